//! Works read and write what their device holds; copies are what goes from one to another.

use plimsoll_base::Result;
use plimsoll_device::DeviceKind;
use plimsoll_graph::id::Id;

use super::{Checker, name};
use crate::lir::{Home, ValueId, WorkId, WorkKind};
use crate::plan::DeviceId;

impl Checker<'_> {
    pub(super) fn devices(&self, id: WorkId) -> Result<()> {
        let work = &self.lir.works[id];
        let is_here = |value: &ValueId| self.lir.values[*value].device == work.device;
        let kind = |device: DeviceId| self.devices[device.index()].kind;
        // A file looks at guards in the memory of processors.
        let is_seen = |guard: &ValueId| match kind(work.device) {
            DeviceKind::Spill => kind(self.lir.values[*guard].device) == DeviceKind::Cpu,
            _ => is_here(guard),
        };
        if let Some(guard) = work.guard.filter(|guard| !is_seen(guard)) {
            return Err(self.broken_at(id, format!("its guard {} is on another device", name(guard))));
        }
        match work.kind {
            WorkKind::Copy => return self.carrier(id),
            // Its values are where its body has them.
            WorkKind::Loop { .. } => return Ok(()),
            _ => {}
        }
        // What is done with files reaches variables where they are.
        let reaches = matches!(work.kind, WorkKind::Outside { .. });
        let is_reached = |value: &ValueId| reaches && matches!(self.lir.values[*value].home, Home::Variable(_));
        let elsewhere = work
            .inputs
            .iter()
            .map(|view| view.value)
            .chain(work.outputs.iter().copied())
            .find(|value| !is_here(value) && !is_reached(value));
        self.require(id, elsewhere.is_none(), || format!("{} is on another device", elsewhere.map_or_else(String::new, name)))?;
        let is_host = kind(work.device) == DeviceKind::Cpu;
        self.require(id, !reaches || is_host, || "only the host reaches files".to_string())
    }

    /// A copy is in the queue of one of its ends; with a card or a file at one end alone, in that of the card or file.
    fn carrier(&self, id: WorkId) -> Result<()> {
        let work = &self.lir.works[id];
        let (from, to) = (self.lir.values[work.inputs[0].value].device, self.lir.values[work.outputs[0]].device);
        let is_processor = |device: DeviceId| self.devices[device.index()].kind == DeviceKind::Cpu;
        let is_file = |device: DeviceId| self.devices[device.index()].kind == DeviceKind::Spill;
        let carrier = if is_processor(to) && !is_processor(from) { from } else { to };
        self.require(id, work.device == carrier, || "another device has to copy".to_string())?;
        let is_reached = [(from, to), (to, from)].into_iter().all(|(end, other)| !is_file(end) || is_processor(other));
        self.require(id, is_reached, || "a file copies between itself and processors alone".to_string())
    }
}
