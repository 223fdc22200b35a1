//! Why a node is where it is.

use plimsoll_device::DeviceName;
use plimsoll_graph::{Graph, NodeId};

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
    /// It goes where this node is: it reads only its input's shape, hands it on, or makes what only this node and others
    /// there read.
    Follows(NodeId),
    /// It is control flow's own, and stands where this node is, which gives or reads its data, whatever it asks for.
    Seated(NodeId),
    /// Only devices of this type have a kernel for it.
    OnlyKernel(String),
    /// The kernel for devices of this type has a higher priority than others.
    Priority(String),
    /// Nothing was asked for: the first device of the best type.
    Default,
}

impl Why {
    /// In words: `requested`, `colocated with X`, `reference or resource edge with X`, `follows X`, `control flow, with X`, `only kernel on CPU`,
    /// `kernel priority of CPU`, `softened from GPU:11`, `default`.
    pub fn describe(&self, graph: &Graph) -> String {
        let name = |node: &NodeId| &graph.node(*node).name;
        match self {
            Why::Assigned => "assigned before".to_string(),
            Why::Requested => "requested".to_string(),
            Why::Softened(asked) => format!("softened from {}", short(asked)),
            Why::Colocated(node) => format!("colocated with {}", name(node)),
            Why::Shares(node) => format!("reference or resource edge with {}", name(node)),
            Why::Follows(node) => format!("follows {}", name(node)),
            Why::Seated(node) => format!("control flow, with {}", name(node)),
            Why::OnlyKernel(kind) => format!("only kernel on {kind}"),
            Why::Priority(kind) => format!("kernel priority of {kind}"),
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
