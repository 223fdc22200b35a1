//! TensorFlow's placement of a graph as written, once for a session. Requests of nodes and existing kernels are joined into groups
//! ([`join`]), and every group gets the best device that it can have ([`choose`]).
//!
//! Pure: the same graph, kernels, devices and options give the same placement. Nothing is balanced: a node that asks for nothing
//! goes to the first device of the best type that has a kernel for it. The order of nodes is the graph's, every node after its
//! inputs.
//!
//! [`seat`] moves control flow next to its data. Bodies of calls are placed after the nodes around them. Every node has a reason for
//! its device ([`why`]). The kernels that count are TensorFlow's (`plimsoll_ops::KernelRegistry`), a value, so that tests bring their
//! own. Whether this project can run a node is another question, asked when a plan is made.

mod calls;
mod choose;
mod errors;
mod groups;
mod join;
mod kernels;
mod lowered;
mod pruned;
mod seat;
mod signature;
mod why;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};
use plimsoll_ops::Registry;

use self::calls::Stack;
use self::groups::Context;
use self::kernels::Devices;
use self::seat::Seats;
use crate::inline::Calls;
use crate::plan::DeviceId;

pub use self::lowered::{Logged, place_lowered};
pub use self::pruned::{place_pruned, stateful};
pub use self::seat::seated;
pub use self::why::Why;

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
    /// The lines of TensorFlow's log, where it lowers conditions and loops of the graph before it places them: nodes under the names
    /// that they have there, then those of the bodies of calls. None where `order` is the log.
    pub lowered: Option<Vec<Logged>>,
    /// TensorFlow's other notes in its log: requests that were overruled or ignored. Only with [`PlaceOptions::log`].
    pub notes: Vec<String>,
    /// The device of feeds and fetches: the first CPU.
    pub host: DeviceId,
    /// Whether the host computes works that the library of their device cannot (`allow_soft_placement`).
    pub soft: bool,
    /// Whether each signature has control flow's own nodes beside its data (see [`seated`]).
    pub seats: bool,
}

impl Placement {
    /// Of no node yet.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there is no CPU among the devices.
    pub fn unplaced(specs: &[DeviceSpec]) -> Result<Placement> {
        let host = specs.iter().position(|device| device.kind == DeviceKind::Cpu).map(DeviceId::from_index);
        let host = host.ok_or_else(|| Error::failed_precondition("there is no CPU device"))?;
        Ok(Placement { host, ..Placement::default() })
    }
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
    /// Which nodes came from which call: bodies are placed after their callers.
    pub calls: Arc<Calls>,
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
/// TensorFlow's, naming the node. INVALID_ARGUMENT for device strings that make no sense, and for nodes that cannot be together and
/// must. The same for operations without any kernel, and for nodes whose devices are not there or have none. With soft placement that
/// is only where the job, replica or task is not there, or no device is left. INTERNAL for assigned devices that cannot be.
/// FAILED_PRECONDITION where there are no devices, or no CPU among them. UNIMPLEMENTED for functions that return resources and call
/// themselves.
pub fn place(graph: &Graph, registry: &Registry, specs: &[DeviceSpec], options: &PlaceOptions) -> Result<Placement> {
    let host = specs.iter().position(|device| device.kind == DeviceKind::Cpu);
    let local = specs.get(host.unwrap_or(0)).map(|spec| spec.name.clone()).unwrap_or_default();
    let devices = Devices::new(specs, &local, options.default_device.map(Id::index))?;
    let host = host.map(DeviceId::from_index).ok_or_else(|| Error::failed_precondition("there is no CPU device"))?;
    let cx = Context { registry, devices: &devices, soft: options.soft, log: options.log, calls: &options.calls };
    let isolated = calls::isolate(graph, registry.table())?;
    let whole = isolated.as_ref().unwrap_or(graph);
    let mut order = graph.topological()?;
    order.extend(whole.nodes().ids().skip(graph.nodes().len()));
    let assigned = |id: NodeId| options.assigned.get(&id).map(String::as_str);
    let mut joined = join::join(whole, &order, cx, &assigned, &Stack::default())?;
    let choice = choose::choose(&mut joined, &order)?;
    let why = why::reasons(&mut joined, &choice);
    let count = graph.nodes().len();
    let device = |device: &Option<usize>| device.map_or(host, DeviceId::from_index);
    let mut placement = Placement {
        devices: choice.devices.values().take(count).map(device).collect(),
        moved: BTreeMap::new(),
        why: why.values().take(count).cloned().collect(),
        order: choice.order.into_iter().filter(|id| id.index() < count).collect(),
        lowered: None,
        notes: joined.groups.notes,
        host,
        soft: options.soft,
        seats: true,
    };
    let (order, calls) = (&order[..count], &*options.calls);
    let seats = Seats { graph, order, calls, feeds: HashMap::new(), needed: None };
    placement.moved = seats.seat(&mut placement.devices, &mut placement.why);
    Ok(placement)
}
