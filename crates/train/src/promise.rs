//! The promise of a training: the bytes of each device for all of its plans together, before any of them has run.

use plimsoll::{Bytes, DeviceSpec, Error, Footprint, Need, Plan, Result};

/// The peaks of a training: of its initializer, its steps and its evaluations. They run one after the other, and only one has
/// memory beside the variables.
#[derive(Clone, Debug)]
pub struct Promise {
    specs: Vec<DeviceSpec>,
    stages: Vec<Stage>,
    footprint: Footprint,
}

/// The plans that are there at the same time.
#[derive(Clone, Debug)]
pub enum Stage {
    /// The memory of one plan.
    Alone(Box<Plan>),
    /// Lanes, each with the plans that share it.
    Lanes(Vec<Vec<Plan>>),
}

impl Promise {
    /// The promise of stages that come in this order, the first only once.
    pub fn new(specs: &[DeviceSpec], stages: Vec<Stage>) -> Promise {
        let footprint = footprint(specs, &stages);
        Promise { specs: specs.to_vec(), stages, footprint }
    }

    /// The peaks, device by device.
    pub fn devices(&self) -> &[Need] {
        self.footprint.needs()
    }

    /// Whether every device's peak stays under its line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the shortfall, the three largest holders, and a remedy.
    pub fn check(&self) -> Result<()> {
        self.footprint.check()
    }

    /// The refusal of [`Promise::check`] if the line of that device were one byte below its peak; none where it needs nothing.
    pub fn one_byte_less(&self, index: usize) -> Option<Error> {
        let peak = self.devices().get(index)?.peak;
        let mut specs = self.specs.clone();
        specs.iter_mut().for_each(|spec| spec.memory_limit = None);
        specs[index].memory_limit = Some(peak - Bytes(1));
        footprint(&specs, &self.stages).check().err()
    }
}

fn footprint(specs: &[DeviceSpec], stages: &[Stage]) -> Footprint {
    let mut footprint = Footprint::new(specs);
    for stage in stages {
        match stage {
            Stage::Alone(plan) => drop(footprint.add(plan)),
            Stage::Lanes(lanes) => {
                let lanes: Vec<Vec<_>> = lanes.iter().map(|lane| lane.iter().collect()).collect();
                footprint.add_lanes(&lanes);
            }
        }
    }
    footprint
}
