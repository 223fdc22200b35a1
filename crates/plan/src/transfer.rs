//! Copies between devices: one for each value and destination, on the destination's queue.

use std::collections::HashMap;

use plimsoll_graph::{IdVec, Shape};

use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};
use crate::plan::DeviceId;

pub(crate) fn insert(lir: &mut Lir) {
    let mut transfers = Transfers { definitions: lir.definitions(), copies: HashMap::new() };
    let ids: Vec<WorkId> = lir.live().map(|(id, _)| id).collect();
    for id in ids {
        let (device, rank) = (lir.works[id].device, lir.works[id].rank);
        if let Some(guard) = lir.works[id].guard {
            lir.works[id].guard = Some(transfers.on(lir, guard, device, rank));
        }
        // A copy to another device reads where the value is: it is a transfer itself.
        if matches!(lir.works[id].kind, WorkKind::Copy) {
            continue;
        }
        for input in 0..lir.works[id].inputs.len() {
            let value = lir.works[id].inputs[input].value;
            lir.works[id].inputs[input].value = transfers.on(lir, value, device, rank);
        }
    }
}

struct Transfers {
    definitions: IdVec<ValueId, Option<WorkId>>,
    copies: HashMap<(ValueId, DeviceId), ValueId>,
}

impl Transfers {
    /// The value as `device` can read it. What may not have been made is copied only if it was.
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
        let guard = guard.map(|guard| self.on(lir, guard, device, rank));
        let copy = lir.value(device, Home::Arena, bytes, node);
        lir.values[copy].is_copy = true;
        let whole = View { value, data_type: plimsoll_base::DataType::Uint8, shape: Shape::from([bytes]) };
        let work = lir.work(WorkKind::Copy, device, vec![node], vec![whole], vec![copy]);
        (work.rank, work.guard) = (rank, guard);
        self.copies.insert((value, device), copy);
        copy
    }
}
