//! The devices of a session by type, and the types that a node can be placed on.

use std::collections::HashMap;
use std::rc::Rc;

use plimsoll_base::{ArgType, Error, Result};
use plimsoll_device::{DeviceName, DeviceSpec};
use plimsoll_graph::{AttrValue, Graph, IdVec, Node, NodeId};
use plimsoll_ops::Registry;

use super::errors;
use super::signature::Signatures;

/// Device types, by their number in [`Devices::types`], with the priority of the kernel that a node has for each. Sorted: the
/// highest priority first, the better type first among equals.
pub(super) type Types = Rc<[(u8, i32)]>;

/// The devices that nodes are placed on.
pub(super) struct Devices {
    /// In the caller's order.
    pub names: Vec<Rc<DeviceName>>,
    /// The same as text.
    pub full: Vec<String>,
    /// The types that there are, the best one first.
    pub types: Vec<String>,
    /// By device: the number of its type.
    pub of_type: Vec<u8>,
    /// All devices, in the order in which they are preferred where kernels do not decide: by type, local ones first, by name.
    pub preferred: Vec<usize>,
    /// Job, replica and task of this process.
    pub local: DeviceName,
    /// Comes first among candidates.
    pub default: Option<usize>,
}

/// The priorities of TensorFlow's device factories: GPU before CPU before all others.
fn type_priority(kind: &str) -> i32 {
    match kind {
        "GPU" => 210,
        "CPU" => 70,
        _ => 50,
    }
}

impl Devices {
    /// Of these devices those that compute; the others are behind them.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there are none.
    pub fn new(specs: &[DeviceSpec], local: &DeviceName, default: Option<usize>) -> Result<Devices> {
        let count = specs.iter().position(|spec| !spec.kind.computes()).unwrap_or(specs.len());
        let specs = &specs[..count];
        if specs.is_empty() {
            return Err(Error::failed_precondition("No devices are registered"));
        }
        let names: Vec<Rc<DeviceName>> = specs.iter().map(|spec| Rc::new(spec.name.clone())).collect();
        let full: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let kind = |name: &DeviceName| name.kind.clone().unwrap_or_default();
        let mut types: Vec<String> = names.iter().map(|name| kind(name)).collect();
        types.sort_by_key(|kind| (-type_priority(kind), kind.clone()));
        types.dedup();
        let number = |name: &DeviceName| types.iter().position(|other| *other == kind(name)).unwrap_or(0) as u8;
        let of_type = names.iter().map(|name| number(name)).collect();
        let local = DeviceName { kind: None, index: None, ..local.clone() };
        let mut preferred: Vec<usize> = (0..names.len()).collect();
        let rank = |device: &usize| {
            let name = &names[*device];
            (-type_priority(&kind(name)), !name.satisfies(&local), full[*device].clone())
        };
        preferred.sort_by_cached_key(rank);
        Ok(Devices { names, full, types, of_type, preferred, local, default })
    }

    /// The device of that name, full or in the legacy spelling.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.full.iter().position(|full| full == name).or_else(|| {
            let name = DeviceName::parse(name).ok()?;
            self.names.iter().position(|other| **other == name)
        })
    }

    /// Those of `types` that fit `pattern`, the first to be chosen first.
    pub fn candidates(&self, pattern: &DeviceName, types: &Types) -> Rc<[usize]> {
        let supported = |device: &usize| types.iter().find(|(kind, _)| *kind == self.of_type[*device]);
        let fits = |device: &usize| self.names[*device].satisfies(pattern) && supported(device).is_some();
        let mut found: Vec<usize> = self.preferred.iter().copied().filter(fits).collect();
        // Stable: among equal priorities the order stays.
        found.sort_by_key(|device| {
            let priority = supported(device).map_or(0, |(_, priority)| *priority);
            (Some(*device) != self.default, -priority)
        });
        found.into()
    }

    /// Whether any device fits.
    pub fn any(&self, pattern: &DeviceName) -> bool {
        self.names.iter().any(|name| name.satisfies(pattern))
    }
}

/// For every node of a graph, the types that it can be placed on.
///
/// # Errors
/// INVALID_ARGUMENT naming the node for kernels that fit equally well.
pub(super) fn supported_types(graph: &Graph, order: &[NodeId], registry: &Registry, devices: &Devices) -> Result<IdVec<NodeId, Types>> {
    let everything: Types = (0..devices.types.len() as u8).map(|kind| (kind, 0)).collect();
    let nothing: Types = Rc::new([]);
    let mut found: IdVec<NodeId, Types> = IdVec::filled(nothing, graph.nodes().len());
    let mut ops: HashMap<&str, KnownOp<'_>> = HashMap::new();
    for &id in order {
        let node = graph.node(id);
        let op = ops.entry(&node.op).or_insert_with(|| KnownOp::new(&node.op, registry));
        // The request of a node decides where there is no kernel at all.
        let known = op.known.iter().find(|(values, types)| !types.is_empty() && op.is_like(node, values));
        found[id] = match known {
            Some((_, types)) => types.clone(),
            None => {
                let types = types_of(node, registry, devices, &everything).map_err(|error| error.at_node(&node.name))?;
                let types: Types = types.into();
                op.known.push((op.deciding.iter().map(|attr| node.attrs.get(attr)).collect(), types.clone()));
                types
            }
        };
    }
    Ok(found)
}

/// An operation, and the types of the nodes of it that were seen.
struct KnownOp<'a> {
    /// The attributes that decide between its kernels.
    deciding: Vec<String>,
    /// By the values of these.
    known: Vec<(Vec<Option<&'a AttrValue>>, Types)>,
}

impl KnownOp<'_> {
    fn new(op: &str, registry: &Registry) -> Self {
        let kernels = registry.kernels().of(op);
        let mut deciding: Vec<String> =
            kernels.iter().flat_map(|kernel| &kernel.constraints).map(|constraint| constraint.attr.clone()).collect();
        deciding.push("_kernel".to_string());
        deciding.sort_unstable();
        deciding.dedup();
        KnownOp { deciding, known: Vec::new() }
    }

    fn is_like(&self, node: &Node, values: &[Option<&AttrValue>]) -> bool {
        self.deciding.iter().zip(values).all(|(attr, value)| node.attrs.get(attr) == *value)
    }
}

/// The types of one node. An operation that is in no table is a function's name, which any device takes.
pub(super) fn types_of(node: &Node, registry: &Registry, devices: &Devices, everything: &Types) -> Result<Vec<(u8, i32)>> {
    if registry.table().get(&node.op).is_none() {
        return Ok(everything.to_vec());
    }
    let (mut types, mut mismatch) = (Vec::new(), false);
    for (number, kind) in devices.types.iter().enumerate() {
        let found = registry.kernels().find(&node.op, kind, &node.attrs)?;
        mismatch |= found.mismatch;
        if let Some(kernel) = found.kernel {
            types.push((number as u8, kernel.priority));
        }
    }
    if types.is_empty() && !mismatch && !node.device.is_empty() {
        // A node that is asked for in another process may have a kernel there.
        let asked = DeviceName::parse(&node.device).unwrap_or_default();
        if is_elsewhere(&asked, &devices.local) {
            let wanted = |kind: &&(u8, i32)| asked.kind.as_ref().is_none_or(|wanted| devices.types[kind.0 as usize] == *wanted);
            types.extend(everything.iter().filter(wanted));
        }
    }
    types.sort_by_key(|(_, priority)| -priority);
    Ok(types)
}

fn is_elsewhere(asked: &DeviceName, local: &DeviceName) -> bool {
    let address = |name: &DeviceName| DeviceName { kind: None, index: None, ..name.clone() };
    !address(asked).is_compatible(&address(local))
}

/// # Errors
/// INVALID_ARGUMENT naming the node that has no kernel for any of the devices.
pub(super) fn require_kernel(node: &Node, types: &Types, registry: &Registry, devices: &Devices) -> Result<()> {
    if types.is_empty() { Err(errors::no_kernel(node, registry, devices)) } else { Ok(()) }
}

/// Whether a node makes a reference or a resource out of nothing: its request is then where the resource is.
pub(super) fn makes_resource(signatures: &Signatures, id: NodeId) -> bool {
    let is_handle = |arg: &ArgType| arg.is_ref || arg.base == plimsoll_base::DataType::Resource;
    signatures.inputs[id].is_empty() && matches!(&*signatures.outputs[id], [only] if is_handle(only))
}
