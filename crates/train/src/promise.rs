//! What a training takes of each device, all of its plans together, before any of them has run.

use plimsoll::{Bytes, DeviceSpec, Error, Footprint, Need, Plan, Result};

/// The peaks of a training: of its initializer, its steps and its evaluations, which run one after the other and of which
/// only one has memory beside the variables.
#[derive(Clone, Debug)]
pub struct Promise {
    specs: Vec<DeviceSpec>,
    plans: Vec<Plan>,
    footprint: Footprint,
}

impl Promise {
    /// The promise of plans that a session runs in this order, the first only once.
    pub fn new(specs: &[DeviceSpec], plans: Vec<Plan>) -> Promise {
        let footprint = footprint(specs, &plans);
        Promise { specs: specs.to_vec(), plans, footprint }
    }

    /// The peaks, device by device.
    pub fn devices(&self) -> &[Need] {
        self.footprint.needs()
    }

    /// Whether every device's peak stays under its line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the shortfall, the three largest holders, and what would help.
    pub fn check(&self) -> Result<()> {
        self.footprint.check()
    }

    /// What [`Promise::check`] would say if the line of that device were one byte below its peak; none where it needs nothing.
    pub fn one_byte_less(&self, index: usize) -> Option<Error> {
        let peak = self.devices().get(index)?.peak;
        let mut specs = self.specs.clone();
        specs.iter_mut().for_each(|spec| spec.memory_limit = None);
        specs[index].memory_limit = Some(peak - Bytes(1));
        footprint(&specs, &self.plans).check().err()
    }
}

fn footprint(specs: &[DeviceSpec], plans: &[Plan]) -> Footprint {
    let mut footprint = Footprint::new(specs);
    for plan in plans {
        footprint.add(plan);
    }
    footprint
}
