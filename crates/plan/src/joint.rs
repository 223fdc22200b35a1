//! Several models on the same devices: the sum of their peaks, and whether they run side by side or in turn.
//!
//! A [`Footprint`] is the bytes of one session over its plans; a [`Joint`] says in which rounds several sessions run. A run that
//! finds no room waits behind the runs of all sessions that are under way.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use crate::footprint::Footprint;
use crate::need::{Need, Needs, over, sort};
use crate::plan::{DeviceId, Holder};

/// How several models can run on the same devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// All of them at the same time: the sum of their peaks is under every line.
    SideBySide,
    /// Each by itself, and in rounds of those that fit beside one another.
    InTurn,
    /// One of them does not even fit by itself.
    Never,
}

/// The bytes of one device that several models take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointNeed {
    /// The full name.
    pub name: String,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The sum of the models' peaks, with the device's own overhead once: the most that they can hold at once.
    pub peak: Bytes,
    /// Each model's peak, with the device's own overhead.
    pub shares: Vec<Bytes>,
}

impl JointNeed {
    /// Bytes that are missing if all run at the same time.
    pub fn shortfall(&self) -> Bytes {
        over(self.peak, self.limit)
    }

    /// Bytes that are missing if each runs by itself.
    pub fn shortfall_in_turn(&self) -> Bytes {
        over(self.shares.iter().copied().max().unwrap_or_default(), self.limit)
    }
}

/// The bytes of the same devices that several models take.
#[derive(Clone, Debug)]
pub struct Joint {
    names: Vec<String>,
    footprints: Vec<Footprint>,
}

impl Joint {
    /// Of models by name, on the same devices.
    pub fn new(models: impl IntoIterator<Item = (String, Footprint)>) -> Joint {
        let (names, footprints) = models.into_iter().unzip();
        Joint { names, footprints }
    }

    /// The models' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The footprint of each of them.
    pub fn footprints(&self) -> &[Footprint] {
        &self.footprints
    }

    /// Their need on each device.
    pub fn needs(&self) -> Vec<JointNeed> {
        let need = |(index, need): (usize, Need)| JointNeed {
            name: need.name,
            limit: need.limit,
            peak: need.peak,
            shares: self.footprints.iter().map(|footprint| footprint.needs()[index].peak).collect(),
        };
        self.together_needs().into_iter().enumerate().map(need).collect()
    }

    /// The need of each device if all run at the same time.
    pub fn together_needs(&self) -> Vec<Need> {
        self.sum(0..self.footprints.len()).map_or_else(Vec::new, |sum| sum.needs().to_vec())
    }

    /// Bytes that are missing if each runs by itself: those of the model that lacks most.
    pub fn shortfall_in_turn(&self) -> Bytes {
        self.footprints.iter().map(|footprint| footprint.needs().shortfall()).max().unwrap_or_default()
    }

    /// The smallest limit that is enough for each by itself: see [`Needs::minimum_limit`].
    pub fn minimum_limit_in_turn(&self) -> Bytes {
        self.footprints.iter().map(Footprint::minimum_limit).max().unwrap_or_default()
    }

    /// How they can run.
    pub fn together(&self) -> Together {
        if self.together_needs().shortfall() == Bytes::ZERO {
            Together::SideBySide
        } else if self.check().is_ok() {
            Together::InTurn
        } else {
            Together::Never
        }
    }

    /// The order of runs: rounds, one after the other, of models that run side by side, by their positions. Each round takes, in
    /// the order of the models, those of the rest that fit beside it. One round where all fit side by side.
    ///
    /// # Errors
    /// As [`Joint::check`].
    pub fn rounds(&self) -> Result<Vec<Vec<usize>>> {
        self.check()?;
        let mut left: Vec<usize> = (0..self.footprints.len()).collect();
        let mut rounds = Vec::new();
        while !left.is_empty() {
            let mut round: Vec<usize> = Vec::new();
            left.retain(|&model| {
                let fits = self.sum(round.iter().copied().chain([model])).is_none_or(|sum| sum.check().is_ok());
                if fits {
                    round.push(model);
                }
                !fits
            });
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// The order of runs where each has the devices to itself: rounds of one model, in the order of the models.
    ///
    /// # Errors
    /// As [`Joint::check`].
    pub fn one_by_one(&self) -> Result<Vec<Vec<usize>>> {
        self.check()?;
        Ok((0..self.footprints.len()).map(|model| vec![model]).collect())
    }

    /// Whether they can run at all, side by side or in turn.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for the first model that does not fit by itself: the device, the shortfall, the largest holders, and a
    /// remedy.
    pub fn check(&self) -> Result<()> {
        let several = self.names.len() > 1;
        let check =
            |(name, footprint): (&String, &Footprint)| footprint.check().map_err(|error| if several { error.context(name) } else { error });
        self.names.iter().zip(&self.footprints).try_for_each(check)
    }

    /// Whether they fit side by side.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for the first device where they do not: the sum, each model's share, the shortfall, and a remedy.
    pub fn check_side_by_side(&self) -> Result<()> {
        let else_do = "or run them one after the other";
        let shares = |share: &dyn Fn(&Footprint) -> Bytes| {
            let share = |(name, footprint): (&String, &Footprint)| format!("{name} {}", share(footprint));
            format!(" side by side ({})", self.names.iter().zip(&self.footprints).map(share).collect::<Vec<_>>().join(", "))
        };
        let needs = self.together_needs();
        for (index, need) in needs.iter().enumerate() {
            let need = Need { holders: self.holders(DeviceId::from_index(index)), ..need.clone() };
            need.refuse(&shares(&|footprint| footprint.needs()[index].peak), else_do)?;
        }
        let Some(machine) = needs.machine() else { return Ok(()) };
        machine.refuse(&shares(&|footprint| footprint.needs().machine().map_or(Bytes::ZERO, |need| need.peak)), else_do)
    }

    /// The largest holders of a device when all run at the same time, named by model and node; some entries only.
    pub fn holders(&self, device: DeviceId) -> Vec<Holder> {
        let of_model = |(name, footprint): (&String, &Footprint)| {
            let holders = footprint.needs().get(device.index()).map_or_else(Vec::new, |need| need.holders.clone());
            holders.into_iter().map(|holder| Holder { name: format!("{} of {name}", holder.name), ..holder }).collect::<Vec<_>>()
        };
        let mut holders: Vec<Holder> = self.names.iter().zip(&self.footprints).flat_map(of_model).collect();
        sort(&mut holders);
        holders
    }

    fn sum(&self, models: impl IntoIterator<Item = usize>) -> Option<Footprint> {
        let mut models = models.into_iter();
        let mut sum = self.footprints.get(models.next()?)?.clone();
        models.filter_map(|model| self.footprints.get(model)).for_each(|footprint| sum.join(footprint));
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::{DeviceSpec, InstructionSet};

    use super::*;

    /// Models on CPU:0 with a limit of 100 bytes and CPU:1 with one of 50.
    fn joint(peaks: &[[u64; 2]]) -> Joint {
        let spec = |(index, limit)| DeviceSpec::cpu(index, Some(Bytes(limit)), 1, InstructionSet::Baseline);
        let specs = [(0, 100), (1, 50)].map(spec);
        Joint::new(peaks.iter().enumerate().map(|(index, peaks)| (format!("m{index}"), Footprint::of_peaks(&specs, peaks))))
    }

    #[test]
    fn models_run_in_rounds_of_those_that_fit_beside_one_another() {
        let joint = joint(&[[60, 0], [50, 50], [40, 20]]);
        assert_eq!((joint.together(), joint.together_needs().shortfall()), (Together::InTurn, Bytes(50 + 20)));
        assert_eq!(joint.rounds().unwrap(), [vec![0, 2], vec![1]]);
        assert_eq!(joint.one_by_one().unwrap(), [[0], [1], [2]]);
        assert_eq!((joint.shortfall_in_turn(), joint.minimum_limit_in_turn()), (Bytes::ZERO, Bytes(60)));
    }

    #[test]
    fn in_turn_the_model_counts_that_lacks_most() {
        let joint = joint(&[[110, 0], [120, 55], [10, 10]]);
        assert_eq!((joint.together(), joint.shortfall_in_turn(), joint.minimum_limit_in_turn()), (Together::Never, Bytes(25), Bytes(120)));
        assert!(joint.rounds().is_err() && joint.one_by_one().unwrap_err().message().contains("m0"));
    }
}
