//! The device memory of several runs together: of one session, and of several.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use crate::{DeviceSpec, Holder, JointNeed, Need, Plan, Together};

/// The memory that a session needs for several plans, which run one after the other.
#[derive(Clone, Debug)]
pub struct Footprint(pub(crate) plimsoll_plan::Footprint);

impl Footprint {
    /// Of no plans.
    pub fn new(specs: &[DeviceSpec]) -> Footprint {
        Footprint(plimsoll_plan::Footprint::new(specs))
    }

    /// Adds a plan. Returns the peak of each device so far.
    pub fn add(&mut self, plan: &Plan) -> Vec<Bytes> {
        self.0.add(plan.inner())
    }

    /// Adds lanes, which are there at the same time, each with the plans that share it.
    pub fn add_lanes(&mut self, lanes: &[Vec<&Plan>]) {
        let lanes: Vec<Vec<_>> = lanes.iter().map(|lane| lane.iter().map(|plan| plan.inner()).collect()).collect();
        self.0.add_lanes(&lanes);
    }

    /// The need of each device.
    pub fn needs(&self) -> &[Need] {
        self.0.needs()
    }

    /// The smallest limit that is enough, given to every device that has one; to every device, where none has.
    pub fn minimum_limit(&self) -> Bytes {
        self.0.minimum_limit()
    }

    /// Whether every device's peak stays under its line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the shortfall, the three largest holders, and a remedy.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }
}

/// The memory that several models need, side by side and in turn.
#[derive(Clone, Debug)]
pub struct Joint {
    inner: plimsoll_plan::Joint,
    footprints: Vec<Footprint>,
}

impl Joint {
    /// Models by name, each with its footprint.
    pub fn new(models: impl IntoIterator<Item = (String, Footprint)>) -> Joint {
        let models: Vec<(String, Footprint)> = models.into_iter().collect();
        let footprints = models.iter().map(|(_, footprint)| footprint.clone()).collect();
        Joint { inner: plimsoll_plan::Joint::new(models.into_iter().map(|(name, footprint)| (name, footprint.0))), footprints }
    }

    /// The names of the models.
    pub fn names(&self) -> &[String] {
        self.inner.names()
    }

    /// The footprints of the models.
    pub fn footprints(&self) -> &[Footprint] {
        &self.footprints
    }

    /// The need of each device.
    pub fn needs(&self) -> Vec<JointNeed> {
        self.inner.needs()
    }

    /// The need of each device for all models side by side.
    pub fn together_needs(&self) -> Vec<Need> {
        self.inner.together_needs()
    }

    /// Bytes that are missing if each runs by itself: those of the model that lacks most.
    pub fn shortfall_in_turn(&self) -> Bytes {
        self.inner.shortfall_in_turn()
    }

    /// The smallest limit that is enough for each by itself.
    pub fn minimum_limit_in_turn(&self) -> Bytes {
        self.inner.minimum_limit_in_turn()
    }

    /// Whether the models fit side by side, in turn, or not at all.
    pub fn together(&self) -> Together {
        self.inner.together()
    }

    /// Rounds, one after the other, of models that run side by side, by their positions.
    ///
    /// # Errors
    /// As [`Joint::check`].
    pub fn rounds(&self) -> Result<Vec<Vec<usize>>> {
        self.inner.rounds()
    }

    /// Rounds of one model, in the order of the models: each has the devices to itself.
    ///
    /// # Errors
    /// As [`Joint::check`].
    pub fn one_by_one(&self) -> Result<Vec<Vec<usize>>> {
        self.inner.one_by_one()
    }

    /// Whether the models fit in turn.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for a model that does not fit by itself.
    pub fn check(&self) -> Result<()> {
        self.inner.check()
    }

    /// Whether the models fit side by side.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the shortfall and the largest holders.
    pub fn check_side_by_side(&self) -> Result<()> {
        self.inner.check_side_by_side()
    }

    /// The largest holders of a device, by its position, over all models.
    pub fn holders(&self, device: usize) -> Vec<Holder> {
        self.inner.holders(plimsoll_plan::DeviceId::from_index(device))
    }
}
