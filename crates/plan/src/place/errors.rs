//! The errors of placement, in TensorFlow's words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;

use plimsoll_base::{ArgType, Error};
use plimsoll_device::DeviceName;
use plimsoll_graph::{AttrValue, Attrs, Node, NodeId};
use plimsoll_ops::Registry;

use super::groups::{Conflict, Groups};
use super::kernels::{Devices, Types, types_of};

const SOFTEN: &str = "allow soft placement, or ask for a device that is there and has a kernel";

/// What a request for another job, replica or task is told.
const ENGINES: &str = "a graph runs in one process, which is /job:localhost/replica:0/task:0; for several machines, runs go to each by an \
                       engine: plimsoll.Pool(engine=\"ray\") in Python, plimsoll sweep --engine ray, or both in a Slurm allocation";

pub(super) fn malformed(node: &Node) -> Error {
    Error::invalid_argument(format!("Malformed device specification '{}' in node: {{{{node {}}}}}", node.device.escape_debug(), node.name))
        .at_node(&node.name)
}

pub(super) fn assigned_nowhere(node: &Node, device: &str, devices: &Devices) -> Error {
    Error::internal(format!(
        "Assigned device '{device}' does not match any device. Here are the devices available on this machine: [{}]",
        devices.full.join(", ")
    ))
    .at_node(&node.name)
}

pub(super) fn assigned_without_kernel(node: &Node, device: &str) -> Error {
    Error::internal(format!("Assigned device '{device}' does not have registered OpKernel support for {}", node.op)).at_node(&node.name)
}

pub(super) fn no_kernel(node: &Node, registry: &Registry, devices: &Devices) -> Error {
    let mut types = devices.types.clone();
    types.sort_unstable();
    Error::invalid_argument(format!(
        "No OpKernel was registered to support Op '{}' used by {{{{node {}}}}} with these attrs: [{}]\nRegistered devices: [{}]\n\
         Registered kernels:\n{}",
        node.op,
        node.name,
        attrs(&node.attrs),
        types.join(", "),
        kernels(&node.op, registry)
    ))
    .at_node(&node.name)
}

/// The kernels of an operation, one a line.
fn kernels(op: &str, registry: &Registry) -> String {
    let kernels = registry.kernels().of(op);
    if kernels.is_empty() {
        return "  <no registered kernels>\n".to_string();
    }
    kernels.iter().map(|kernel| format!("  {kernel}\n")).collect()
}

fn attrs(attrs: &Attrs) -> String {
    let spell = |value: &AttrValue| match value {
        AttrValue::Type(number) => ArgType::from_number(*number).map_or_else(|| number.to_string(), |arg| arg.base.enumerator()),
        other => other.to_string(),
    };
    attrs.iter().map(|(name, value)| format!("{name}={}", spell(value))).collect::<Vec<_>>().join(", ")
}

pub(super) fn incompatible_edge(what: &str, a: &DeviceName, b: &DeviceName, source: &Node, destination: &Node) -> Error {
    Error::invalid_argument(format!(
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible {what} devices: {a} vs \
         {b}. The edge src node is name='{}' (op='{}'), and the dst node is name='{}' (op='{}').",
        source.name, source.op, destination.name, destination.op
    ))
    .at_node(&destination.name)
}

/// Why `x` and `y`, of the groups with these roots, cannot be in one.
pub(super) fn cannot_colocate(groups: &Groups<'_>, x: &Node, y: &Node, x_root: NodeId, y_root: NodeId, conflict: &Conflict) -> String {
    let nodes = format!("Cannot colocate nodes {{{{colocation_node {}}}}} and {{{{colocation_node {}}}}}", x.name, y.name);
    match conflict {
        Conflict::Names(text) => format!("{nodes}: {text}"),
        Conflict::Types => format!(
            "{nodes} because no device type supports both of those nodes and the other nodes colocated with them.{}{}",
            debug_info(groups, x_root, &|_| None),
            debug_info(groups, y_root, &|_| None)
        ),
    }
}

/// No device is left for a node.
pub(super) fn no_candidate(groups: &Groups<'_>, id: NodeId, root: NodeId, assigned: &dyn Fn(NodeId) -> Option<usize>) -> Error {
    let node = groups.node(id);
    let devices = groups.cx.devices;
    let member = &groups.members[root];
    let info = debug_info(groups, root, assigned);
    let text = if member.requested.is_empty() {
        format!("Node had no OpKernel registered to support this operation: Operation was {}.\n{info}", node.op)
    } else {
        match DeviceName::parse(&node.device) {
            Ok(asked) if asked == *member.requested => own_request(groups, node, &asked, &info),
            _ => format!(
                "Could not satisfy explicit device specification '{}' because the node {{{{colocation_node {}}}}} was colocated with a \
                 group of nodes that required incompatible device '{}'. All available devices [{}]. {info}",
                node.device,
                node.name,
                member.requested,
                devices.full.join(", ")
            ),
        }
    };
    let error = Error::invalid_argument(format!("Cannot assign a device for operation {}: {text}", node.name)).at_node(&node.name);
    match DeviceName::parse(&node.device) {
        Ok(asked) if is_elsewhere(&asked, devices) => error.with_remedy(ENGINES),
        _ if groups.cx.soft => error,
        _ => error.with_remedy(SOFTEN),
    }
}

/// Whether a name asks for a process that has none of the devices.
fn is_elsewhere(asked: &DeviceName, devices: &Devices) -> bool {
    !devices.any(&DeviceName { kind: None, index: None, ..asked.clone() })
}

/// The node itself asks for a device that it cannot have.
fn own_request(groups: &Groups<'_>, node: &Node, asked: &DeviceName, info: &str) -> String {
    let devices = groups.cx.devices;
    if !devices.any(asked) {
        let mut names = devices.full.clone();
        names.sort_unstable();
        let kind = asked.kind.as_deref().unwrap_or("");
        let gpu = if kind.eq_ignore_ascii_case("gpu") && !devices.types.iter().any(|other| other == kind) {
            " The requested device appears to be a GPU, but CUDA is not enabled."
        } else {
            ""
        };
        return format!(
            "{{{{node {}}}}} was explicitly assigned to {} but available devices are [ {} ]. Make sure the device specification refers to a \
             valid device.{gpu}",
            node.name,
            node.device,
            names.join(", ")
        );
    }
    match &asked.kind {
        Some(kind) => format!(
            "Could not satisfy explicit device specification '{}' because no supported kernel for {kind} devices is available.{info}\n\
             Op: {}\nNode attrs: {}\nRegistered kernels:\n{}",
            node.device,
            node.op,
            attrs(&node.attrs),
            kernels(&node.op, groups.cx.registry)
        ),
        None => format!("Could not satisfy explicit device specification '{}'{info}", node.device),
    }
}

/// The state of a group's root, its operations with the device types that each supports, and its members with their requests and
/// devices.
pub(super) fn debug_info(groups: &Groups<'_>, root: NodeId, assigned: &dyn Fn(NodeId) -> Option<usize>) -> String {
    let devices = groups.cx.devices;
    let spell = |types: &[(u8, i32)]| types.iter().map(|(kind, _)| devices.types[*kind as usize].as_str()).collect::<Vec<_>>();
    let member = &groups.members[root];
    let possible = member.candidates.iter().flat_map(|found| found.iter()).map(|device| devices.full[*device].as_str());
    let mut text = format!(
        "\nColocation Debug Info:\nColocation group had the following types and supported devices: \nRoot \
         Member(assigned_device_name_index_={} requested_device_name_='{}' assigned_device_name_='{}' resource_device_name_='{}' \
         supported_device_types_=[{}] possible_devices_=[{}]",
        member.assigned_to.map_or(-1, |device| device as i64),
        member.requested,
        member.assigned,
        member.resource,
        spell(&member.types).join(", "),
        possible.collect::<Vec<_>>().join(", ")
    );
    let everything: Types = Rc::from([]);
    let members: Vec<NodeId> = groups.graph.nodes().ids().filter(|id| groups.root_of(*id) == root).collect();
    let mut ops: BTreeMap<&str, String> = BTreeMap::new();
    for id in &members {
        let node = groups.node(*id);
        let types = || types_of(node, groups.cx.registry, devices, &everything).unwrap_or_default();
        ops.entry(&node.op).or_insert_with(|| spell(&types()).iter().map(|kind| format!("{kind} ")).collect());
    }
    for (op, types) in ops {
        let _ = write!(text, "\n{op}: {types}");
    }
    text.push_str("\n\nColocation members, user-requested devices, and framework assigned devices, if any:");
    for id in &members {
        let node = groups.node(*id);
        let _ = write!(text, "\n  {} ({}) {}", node.name, node.op, node.device);
        if let Some(device) = assigned(*id) {
            let _ = write!(text, " framework assigned device={}", devices.full[device]);
        }
    }
    text.push('\n');
    text
}
