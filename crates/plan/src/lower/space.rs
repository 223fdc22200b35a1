//! Which works of nodes on a card the host does: those of kernels all of whose results are in the host's memory.
//!
//! TensorFlow places arithmetic on int32 shapes and indices on the card. Its kernels for them compute on the processor and touch no
//! memory of the card. Here such a node's work is one of the host's: it reads and writes the host's arena, and is counted there. A
//! result in the host's memory beside others that are not (the index that Merge gives) stays on the card.

use plimsoll_device::DeviceKind;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_ops::Lower;

use crate::Request;
use crate::infer::Pruned;
use crate::plan::DeviceId;

/// The device that does each node's work.
pub(super) fn workers(request: &Request<'_>, pruned: &Pruned) -> IdVec<NodeId, DeviceId> {
    let mut workers = request.placement.devices.clone();
    for &id in &pruned.order {
        let on_card = request.devices[workers[id].index()].kind == DeviceKind::Gpu;
        if on_card && is_of_host(request, id) {
            workers[id] = request.placement.host;
        }
    }
    workers
}

/// Whether all results of a node (or where it has none, all arguments) are in the host's memory. A variable's handle is, and
/// says nothing of where the variable is.
fn is_of_host(request: &Request<'_>, id: NodeId) -> bool {
    let node = request.graph.node(id);
    let is_variable = request.registry.get(&node.op).is_some_and(|rules| matches!(rules.lower, Lower::Variable));
    let Some(def) = request.registry.table().get(&node.op).filter(|_| !is_variable) else { return false };
    let found = request.registry.kernels().find(&node.op, DeviceKind::Gpu.name(), &node.attrs);
    let Some(kernel) = found.ok().and_then(|found| found.kernel) else { return false };
    let args = if def.outputs.is_empty() { &def.inputs } else { &def.outputs };
    !args.is_empty() && args.iter().all(|arg| kernel.host_args.contains(&arg.name))
}
