//! Placement of the graph as written: the device a node names, CPU:0 otherwise; nodes joined by references or handles
//! together.
//!
//! A device that is not there is replaced by CPU:0 where soft placement allows it (job, replica and task are never softened,
//! as in TensorFlow).

use std::collections::BTreeMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};
use plimsoll_ops::Registry;

use crate::plan::DeviceId;

mod seat;
mod why;

pub use why::Why;

/// The device of every node of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// By node: where it runs.
    pub devices: IdVec<NodeId, DeviceId>,
    /// Control flow's own nodes that run elsewhere than TensorFlow's log says, with the device that it says.
    pub moved: BTreeMap<NodeId, DeviceId>,
    /// By node.
    pub why: IdVec<NodeId, Why>,
    /// The nodes, in the order in which they were placed: that of TensorFlow's log.
    pub order: Vec<NodeId>,
    /// What TensorFlow tells in its log beside that: requests that were overruled or ignored. Only with [`PlaceOptions::log`].
    pub notes: Vec<String>,
    /// The device of feeds and fetches: the first CPU.
    pub host: DeviceId,
}

/// How nodes are placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceOptions {
    /// Whether a node may go to another device than it asks for (`allow_soft_placement`).
    pub soft: bool,
    /// Whether notes are taken (`log_device_placement`).
    pub log: bool,
    /// Comes first among the devices that a node can go to: the caller's, where a function's body is placed.
    pub default_device: Option<DeviceId>,
    /// Nodes that have devices already, with the full names of these.
    pub assigned: BTreeMap<NodeId, String>,
}

impl PlaceOptions {
    /// With or without soft placement, and nothing else.
    pub fn new(soft: bool) -> PlaceOptions {
        PlaceOptions { soft, ..PlaceOptions::default() }
    }
}

impl Default for DeviceId {
    fn default() -> DeviceId {
        DeviceId::from_index(0)
    }
}

/// Places every node.
///
/// # Errors
/// INVALID_ARGUMENT naming the node, for device strings that make no sense or name no device (without soft placement, or
/// in another job or task); FAILED_PRECONDITION where there is no CPU.
pub fn place(graph: &Graph, registry: &Registry, devices: &[DeviceSpec], options: &PlaceOptions) -> Result<Placement> {
    let host = devices.iter().position(|device| device.kind == DeviceKind::Cpu).map(DeviceId::from_index);
    let host = host.ok_or_else(|| Error::failed_precondition("there is no CPU device"))?;
    let groups = groups(graph, registry);
    // The first node of a group that asks for a device, a variable before others, decides for all.
    let mut leaders: IdVec<NodeId, Option<NodeId>> = IdVec::filled(None, graph.nodes().len());
    for (id, node) in graph.nodes().iter() {
        let leader = &mut leaders[groups[id]];
        let beats = match leader {
            None => true,
            Some(other) => !is_variable(&graph.node(*other).op) && is_variable(&node.op),
        };
        if !node.device.is_empty() && beats {
            *leader = Some(id);
        }
    }
    let order = graph.topological()?;
    let mut placement = Placement { order, host, ..Placement::default() };
    for (id, node) in graph.nodes().iter() {
        let leader = leaders[groups[id]].unwrap_or(id);
        let asked = &graph.node(leader).device;
        let (device, softened) = find(devices, host, asked, options.soft)
            .map_err(|error| error.context(format!("Cannot assign a device for operation {}", node.name)).at_node(&node.name))?;
        let why = if asked.is_empty() {
            Why::Default
        } else if leader != id {
            Why::Shares(leader)
        } else if softened {
            Why::Softened(asked.clone())
        } else {
            Why::Requested
        };
        placement.devices.push(device);
        placement.why.push(why);
    }
    placement.moved = seat::seat(graph, &placement.order, &mut placement.devices, &mut placement.why);
    Ok(placement)
}

fn is_variable(op: &str) -> bool {
    matches!(op, "VariableV2" | "Variable" | "VarHandleOp")
}

/// For each node, the first node of those that it is joined with by references and handles.
fn groups(graph: &Graph, registry: &Registry) -> IdVec<NodeId, NodeId> {
    let mut parents: IdVec<NodeId, NodeId> = graph.nodes().ids().collect();
    fn root(parents: &mut IdVec<NodeId, NodeId>, mut id: NodeId) -> NodeId {
        while parents[id] != id {
            parents[id] = parents[parents[id]];
            id = parents[id];
        }
        id
    }
    for (id, node) in graph.nodes().iter() {
        let Some(types) = registry.table().get(&node.op).and_then(|op| op.input_types(&node.attrs).ok()) else { continue };
        for (input, wanted) in node.inputs.iter().zip(types) {
            if wanted.is_ref || wanted.base == DataType::Resource {
                let (a, b) = (root(&mut parents, id), root(&mut parents, input.node));
                let (first, second) = (a.min(b), a.max(b));
                parents[second] = first;
            }
        }
    }
    graph.nodes().ids().map(|id| root(&mut parents, id)).collect()
}

/// The device that a string asks for, and whether it is another one than it says.
fn find(devices: &[DeviceSpec], host: DeviceId, asked: &str, soft: bool) -> Result<(DeviceId, bool)> {
    if asked.is_empty() {
        return Ok((host, false));
    }
    let pattern = DeviceName::parse(asked)?;
    let fits = |pattern: &DeviceName| devices.iter().position(|device| device.name.satisfies(pattern)).map(DeviceId::from_index);
    if pattern.kind.is_none() && pattern.index.is_none() && devices[host.index()].name.satisfies(&pattern) {
        return Ok((host, false));
    }
    if let Some(device) = fits(&pattern) {
        return Ok((device, false));
    }
    let address = DeviceName { kind: None, index: None, ..pattern.clone() };
    if soft && devices[host.index()].name.satisfies(&address) {
        return Ok((host, true));
    }
    let names: Vec<String> = devices.iter().map(|device| device.name.to_string()).collect();
    Err(Error::invalid_argument(format!(
        "the operation was explicitly assigned to {asked} but available devices are [ {} ]",
        names.join(", ")
    ))
    .with_remedy("Make sure the device specification refers to a valid device, or allow soft placement."))
}
