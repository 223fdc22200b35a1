//! Copies between devices: one for each value and destination. A card carries copies to and from it, since the processor cannot
//! reach its memory; between two of a kind the destination does. In the body of a loop a value is copied in every iteration.

use std::collections::HashMap;

use plimsoll_base::Result;
use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use crate::Request;
use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};
use crate::partners;
use crate::plan::DeviceId;

pub(crate) fn transfer(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    partners::seat(request, lir)?;
    partners::fold_guards(lir)?;
    let mut transfers = Transfers { devices: request.devices, definitions: lir.definitions(), copies: HashMap::new() };
    for id in lir.ids() {
        // A copy to another device reads where the value is: it is a transfer itself.
        let is_copy = matches!(lir.works[id].kind, WorkKind::Copy);
        if is_copy {
            transfers.constant_where_it_goes(lir, id)?;
            let work = &lir.works[id];
            let (from, to) = (lir.values[work.inputs[0].value].device, lir.values[work.outputs[0]].device);
            lir.works[id].device = carrier(request.devices, from, to);
        }
        let (device, rank) = (lir.works[id].device, lir.works[id].rank);
        if let Some(guard) = lir.works[id].guard {
            lir.works[id].guard = Some(transfers.on(lir, guard, device, rank));
        }
        if !is_copy {
            transfers.inputs(lir, id, device, rank);
        }
    }
    Ok(())
}

/// Inputs of works on files that have become copies of variables since [`transfer`].
pub(crate) fn complete(lir: &mut Lir, devices: &[DeviceSpec]) {
    let ids: Vec<WorkId> = lir.all().filter(|(_, work)| matches!(work.kind, WorkKind::Outside { .. })).map(|(id, _)| id).collect();
    if ids.is_empty() {
        return;
    }
    let mut transfers = Transfers { devices, definitions: lir.definitions(), copies: HashMap::new() };
    for id in ids {
        let (device, rank) = (lir.works[id].device, lir.works[id].rank);
        transfers.inputs(lir, id, device, rank);
    }
}

/// The device that copies from one to another.
pub(crate) fn carrier(devices: &[DeviceSpec], from: DeviceId, to: DeviceId) -> DeviceId {
    let is_card = |device: DeviceId| devices[device.index()].kind == DeviceKind::Gpu;
    if is_card(from) && !is_card(to) { from } else { to }
}

struct Transfers<'a> {
    devices: &'a [DeviceSpec],
    definitions: IdVec<ValueId, Option<WorkId>>,
    copies: HashMap<(ValueId, DeviceId), ValueId>,
}

impl Transfers<'_> {
    /// Has the work read its inputs on its device; those on files reach variables where they are, and a loop has them where its body does.
    fn inputs(&mut self, lir: &mut Lir, id: WorkId, device: DeviceId, rank: u32) {
        let reaches = matches!(lir.works[id].kind, WorkKind::Outside { .. });
        let wanted: Vec<DeviceId> = match lir.works[id].kind {
            WorkKind::Loop { body, .. } => lir.passed(body).map(|param| lir.values[param].device).collect(),
            _ => vec![device; lir.works[id].inputs.len()],
        };
        for (input, device) in wanted.into_iter().enumerate() {
            let value = lir.works[id].inputs[input].value;
            if !(reaches && matches!(lir.values[value].home, Home::Variable(_))) {
                lir.works[id].inputs[input].value = self.on(lir, value, device, rank);
            }
        }
    }

    /// A constant that goes from a card to the host was there all the time.
    fn constant_where_it_goes(&self, lir: &mut Lir, id: WorkId) -> Result<()> {
        let work = &lir.works[id];
        let (value, to) = (work.inputs[0].value, lir.values[work.outputs[0]].device);
        let is_card = |device: DeviceId| self.devices[device.index()].kind == DeviceKind::Gpu;
        let Home::Constant(constant) = lir.values[value].home else { return Ok(()) };
        if is_card(lir.values[value].device) && !is_card(to) {
            let (elements, name) = (lir.constant_values[constant].clone(), lir.constants[constant].name.clone());
            let here = lir.constant(&elements, to, lir.constants[constant].tensor, &name)?;
            lir.works[id].inputs[0].value = here;
        }
        Ok(())
    }

    /// The value as `device` can read it. A value that may not have been made is copied only if it was.
    fn on(&mut self, lir: &mut Lir, value: ValueId, device: DeviceId, rank: u32) -> ValueId {
        let source = &lir.values[value];
        if source.device == device {
            return value;
        }
        if let Some(copy) = self.copies.get(&(value, device)) {
            return *copy;
        }
        let (bytes, node, in_arena) = (source.bytes, source.node, source.home == Home::Arena);
        let guard = self.definitions.get(value).copied().flatten().filter(|_| in_arena).and_then(|work| lir.works[work].guard);
        let carrier = carrier(self.devices, source.device, device);
        let guard = guard.map(|guard| self.on(lir, guard, carrier, rank));
        let copy = lir.value(device, Home::Arena, bytes, node);
        lir.values[copy].is_copy = true;
        let work = lir.work(WorkKind::Copy, carrier, vec![node], vec![View::of_bytes(value, bytes)], vec![copy]);
        let work = &mut lir.works[work];
        (work.rank, work.guard) = (rank, guard);
        self.copies.insert((value, device), copy);
        copy
    }
}
