//! The peak of a plan is the reservation of running it.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use super::{Checked, wrong};
use crate::constants::ConstantBytes;
use crate::plan::{Certainty, DeviceId, PeakParts, VariableKind};
use crate::report::{MOST_HOLDERS, SCRATCH};

impl Checked<'_> {
    pub(super) fn peak(&self) -> Result<()> {
        let plan = self.plan;
        for (index, (device, spec)) in plan.devices.iter().zip(self.devices).enumerate() {
            let id = DeviceId::from_index(index);
            let here = |device: Option<DeviceId>| device == Some(id);
            let variables = plan.variables.iter().filter(|variable| here(Some(variable.device)) && variable.kind != VariableKind::State);
            let mut constants = ConstantBytes::new(spec);
            constants.add(index, plan.constant_values());
            let ends = plan.ends().filter(|_| id == plan.host);
            let reserved = PeakParts {
                variables: spec.reserved_for(variables.map(|variable| variable.bytes)),
                constants: constants.reserved(),
                overhead: spec.overhead,
                ..PeakParts::default()
            };
            let moving = device.arena.0.checked_add(spec.reserved_for(ends).0);
            let PeakParts { variables, constants, activations, workspace, transfer, overhead } = device.peak;
            let said = [activations, workspace, transfer].iter().try_fold(0u64, |sum, part| sum.checked_add(part.0));
            let stays = PeakParts { variables, constants, overhead, ..PeakParts::default() };
            let is_whole =
                device.arena == spec.reserved(device.packed) && device.arena <= Bytes(i64::MAX as u64) && device.live <= device.packed;
            let is_whole = is_whole && device.least <= device.peak.total();
            if device.name != spec.name.to_string() || device.certainty != Certainty::Exact {
                return Err(wrong(format!("the plan of {} is of {}", spec.name, device.name)));
            }
            // Refusals show them.
            let is_known = |name: &str| name == SCRATCH || self.graph.tensor(name).is_ok();
            if device.holders.len() > MOST_HOLDERS || !device.holders.iter().all(|holder| is_known(&holder.name)) {
                return Err(wrong("its holders are not those of the graph").on_device(&device.name));
            }
            if stays != reserved || said.is_none() || said != moving || !is_whole {
                return Err(wrong("its peak is not what it reserves").on_device(&device.name));
            }
        }
        Ok(())
    }
}
