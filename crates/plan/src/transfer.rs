//! Copies between devices: one for each value and destination, on the destination's queue.

use std::collections::HashMap;

use plimsoll_graph::Shape;

use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};
use crate::plan::DeviceId;

pub(crate) fn insert(lir: &mut Lir) {
    let mut copies: HashMap<(ValueId, DeviceId), ValueId> = HashMap::new();
    let ids: Vec<WorkId> = lir.live().map(|(id, _)| id).collect();
    for id in ids {
        for input in 0..lir.works[id].inputs.len() {
            let (device, view) = (lir.works[id].device, lir.works[id].inputs[input].clone());
            let source = &lir.values[view.value];
            // A copy to another device reads where the value is: it is a transfer itself.
            let is_transfer = matches!(lir.works[id].kind, WorkKind::Copy);
            if source.device == device || is_transfer {
                continue;
            }
            let (bytes, node) = (source.bytes, source.node);
            let copy = *copies.entry((view.value, device)).or_insert_with(|| {
                let copy = lir.value(device, Home::Arena, bytes, node);
                lir.values[copy].is_copy = true;
                let whole = View { value: view.value, data_type: plimsoll_base::DataType::Uint8, shape: Shape::from([bytes]) };
                let rank = lir.works[id].rank;
                lir.work(WorkKind::Copy, device, vec![node], vec![whole], vec![copy]).rank = rank;
                copy
            });
            lir.works[id].inputs[input].value = copy;
        }
    }
}
