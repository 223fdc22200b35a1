//! Why a node is where it is.

use plimsoll_device::DeviceName;
use plimsoll_graph::{Graph, IdVec, NodeId};

use super::choose::Choice;
use super::join::Joined;

/// Why a node is on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was there before placement began.
    Assigned,
    /// It asks for this device, or for one like it.
    Requested,
    /// It asks for another device, written here as it stands in the graph, which is not there or has no kernel for it.
    Softened(String),
    /// Its `_class`, or that of others, ties it to this node, which decided.
    Colocated(NodeId),
    /// A reference or resource edge ties it to this node, which decided.
    Shares(NodeId),
    /// It is on the device of this node. It reads only its input's shape, hands it on, or makes a value that only nodes of that
    /// device read.
    Follows(NodeId),
    /// It is control flow's own, and stands where this node is, which gives or reads its data, whatever it asks for.
    Seated(NodeId),
    /// Only devices of this type have a kernel for it.
    OnlyKernel(String),
    /// The kernel for devices of this type has a higher priority than others.
    Priority(String),
    /// The call in whose body it is, is on this device.
    Called(String),
    /// Nothing was asked for: the first device with room for its model, or for its piece of it.
    FirstFit,
    /// Nothing was asked for: the device with which the step ends first. In words, what it costs there and on the next best device.
    Auto(String),
    /// Nothing was asked for: the first device of the best type.
    Default,
}

impl Why {
    /// The same of another graph, in which the nodes have these ids.
    pub(super) fn of(self, id: impl Fn(NodeId) -> NodeId) -> Why {
        match self {
            Why::Colocated(node) => Why::Colocated(id(node)),
            Why::Shares(node) => Why::Shares(id(node)),
            Why::Follows(node) => Why::Follows(id(node)),
            Why::Seated(node) => Why::Seated(id(node)),
            other => other,
        }
    }

    /// In words: `requested`, `colocated with X` (by `_class`, a reference or a resource), `follows X`, `only kernel on CPU`,
    /// `kernel priority of CPU`, `its call is on GPU:1`, `softened from GPU:11`, `default`.
    pub fn describe(&self, graph: &Graph) -> String {
        let name = |node: &NodeId| &graph.node(*node).name;
        match self {
            Why::Assigned => "assigned before".to_string(),
            Why::Requested => "requested".to_string(),
            Why::Softened(asked) => format!("softened from {}", short(asked)),
            Why::Colocated(node) | Why::Shares(node) => format!("colocated with {}", name(node)),
            Why::Follows(node) | Why::Seated(node) => format!("follows {}", name(node)),
            Why::OnlyKernel(kind) => format!("only kernel on {kind}"),
            Why::Priority(kind) => format!("kernel priority of {kind}"),
            Why::Called(asked) => format!("its call is on {}", short(asked)),
            Why::FirstFit => "first fit".to_string(),
            Why::Auto(reason) if reason.is_empty() => "auto".to_string(),
            Why::Auto(reason) => format!("auto: {reason}"),
            Why::Default => "default".to_string(),
        }
    }
}

/// `GPU:11` for a name of type and index alone, any other as it is written.
fn short(asked: &str) -> String {
    match DeviceName::parse(asked) {
        Ok(name) if name == name.local_part() => name.short(),
        _ => asked.to_string(),
    }
}

/// Why every node is where it is: in a group of several, one of them decided.
pub(super) fn reasons(joined: &mut Joined<'_>, choice: &Choice) -> IdVec<NodeId, Why> {
    let deciders = deciders(joined, choice);
    let ids = joined.groups.graph.nodes().ids();
    ids.map(|id| {
        let decider = deciders[joined.groups.root(id)].unwrap_or(id);
        reason(joined, choice, id, decider)
    })
    .collect()
}

/// For every root, the member that decided, in this order. One that was assigned before. One that makes the resource for which it
/// asks a device. One that asks for the device. One that has kernels for one type only (that makes a reference or a resource, if
/// there is one). One that makes a reference or a resource. One that asks for something that it does not get (that makes one, if
/// there is one). The first that was placed.
fn deciders(joined: &mut Joined<'_>, choice: &Choice) -> IdVec<NodeId, Option<NodeId>> {
    let count = joined.groups.graph.nodes().len();
    let is_only = |id: NodeId| joined.groups.cx.devices.types.len() > 1 && joined.supported[id].len() == 1;
    let mut best: IdVec<NodeId, Option<(u8, NodeId)>> = IdVec::filled(None, count);
    for &id in &choice.order {
        let node = joined.groups.node(id);
        let makes = super::kernels::makes_resource(&joined.signatures, id);
        let rank = match (asks_for(joined, choice, id), makes) {
            _ if joined.assigned[id].is_some() => 0,
            (true, true) => 1,
            (true, false) => 2,
            (false, true) if is_only(id) => 3,
            (false, false) if is_only(id) => 4,
            (false, true) if node.device.is_empty() => 5,
            (_, true) => 6,
            _ if !node.device.is_empty() => 7,
            _ => 8,
        };
        let root = joined.groups.root(id);
        if best[root].is_none_or(|(other, _)| rank < other) {
            best[root] = Some((rank, id));
        }
    }
    best.values().map(|best| best.map(|(_, id)| id)).collect()
}

/// Whether a node names the device that it is on.
fn asks_for(joined: &Joined<'_>, choice: &Choice, id: NodeId) -> bool {
    let (Some(device), Some(asked)) = (choice.devices[id], &joined.asked[id]) else { return false };
    joined.groups.cx.devices.names[device].satisfies(asked)
}

fn reason(joined: &mut Joined<'_>, choice: &Choice, id: NodeId, decider: NodeId) -> Why {
    if joined.assigned[id].is_some() {
        return Why::Assigned;
    }
    if asks_for(joined, choice, id) {
        return Why::Requested;
    }
    if let Some(other) = choice.follows[id] {
        return Why::Follows(other);
    }
    if decider != id {
        return if joined.groups.are_tied(id, decider) { Why::Shares(decider) } else { Why::Colocated(decider) };
    }
    let node = joined.groups.node(id);
    if !node.device.is_empty() {
        return Why::Softened(node.device.clone());
    }
    let root = joined.groups.root(id);
    let devices = joined.groups.cx.devices;
    let kind = choice.devices[id].map(|device| devices.types[devices.of_type[device] as usize].clone()).unwrap_or_default();
    if choice.with_call.contains(&id)
        && let Some(device) = choice.devices[id]
    {
        return Why::Called(devices.names[device].local_part().to_string());
    }
    match &*joined.groups.members[root].types {
        [_] if devices.types.len() > 1 => Why::OnlyKernel(kind),
        several if several.iter().any(|(_, priority)| *priority != 0) => Why::Priority(kind),
        _ => Why::Default,
    }
}
