//! The log of placement, for graphs with conditions and loops that TensorFlow lowers before it places them.

use std::collections::HashMap;

use plimsoll_base::Result;
use plimsoll_device::DeviceSpec;
use plimsoll_graph::{Graph, NodeId};
use plimsoll_ops::Registry;

use super::{PlaceOptions, Placement, place};
use crate::inline::lowered;
use crate::plan::DeviceId;

/// A node as TensorFlow's log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Its name.
    pub name: String,
    /// Its operation.
    pub op: String,
    /// Where it was placed.
    pub device: DeviceId,
}

/// Adds to a placement of `inlined` what TensorFlow's log says of `graph`, where lowering changes it: see [`Placement::lowered`].
/// Nodes of the graph itself that read nothing go where they are placed there: it depends on how many nodes read them, and a call reads
/// what its body does not.
///
/// # Errors
/// INVALID_ARGUMENT for functions that make no sense.
pub fn place_lowered(
    (graph, inlined): (&Graph, &Graph),
    registry: &Registry,
    specs: &[DeviceSpec],
    options: &PlaceOptions,
    placement: &mut Placement,
) -> Result<()> {
    let changed = lowered(graph, registry.table())?;
    if changed.is_none() && options.calls.is_empty() {
        return Ok(());
    }
    let whole = changed.as_ref().unwrap_or(graph);
    let Ok(placed) = place(whole, registry, specs, &PlaceOptions { calls: Default::default(), ..options.clone() }) else { return Ok(()) };
    let devices: HashMap<&str, DeviceId> = whole.nodes().iter().map(|(id, node)| (node.name.as_str(), placed.devices[id])).collect();
    for (id, node) in inlined.nodes().iter().filter(|(_, node)| node.inputs.is_empty() && node.controls.is_empty()) {
        let is_stateless = matches!(node.op.as_str(), "Placeholder" | "Const");
        if let Some(device) = devices.get(node.name.as_str()).filter(|_| is_stateless) {
            placement.devices[id] = *device;
        }
    }
    if changed.is_some() {
        let at = |id: &NodeId| placed.moved.get(id).copied().unwrap_or(placed.devices[*id]);
        let logged = |graph: &Graph, id: NodeId, device: DeviceId| {
            let node = graph.node(id);
            Logged { name: node.name.clone(), op: node.op.clone(), device }
        };
        let mut log: Vec<Logged> = placed.order.iter().map(|id| logged(whole, *id, at(id))).collect();
        let is_in_call = |id: &&NodeId| options.calls.part(**id).call.is_some();
        log.extend(placement.order.iter().filter(is_in_call).map(|id| logged(inlined, *id, placement.devices[*id])));
        placement.lowered = Some(log);
    }
    Ok(())
}
