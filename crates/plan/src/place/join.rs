//! The requests of nodes, joined into groups: along reference and resource edges, through functions that return resources, and by
//! `_class`. They are limited where tensors' elements live on the host.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::DeviceName;
use plimsoll_graph::{AttrValue, AttrsExt, Graph, IdVec, NodeId};

use super::calls::{self, Stack};
use super::errors;
use super::groups::{Conflict, Context, Groups, Names, common_types};
use super::kernels::{Types, makes_resource, require_kernel, supported_types};
use super::signature::Signatures;
use crate::inline::Part;

/// The groups of a graph, before any device is chosen.
pub(super) struct Joined<'a> {
    pub groups: Groups<'a>,
    pub signatures: Signatures<'a>,
    /// The types that each node's own kernels are for.
    pub supported: IdVec<NodeId, Types>,
    /// The devices of nodes that had them before.
    pub assigned: IdVec<NodeId, Option<usize>>,
    /// The requests of nodes, where they have one.
    pub asked: IdVec<NodeId, Option<Rc<DeviceName>>>,
}

/// Joins the nodes of a graph. `assigned` are the nodes that have devices already, by full name.
///
/// # Errors
/// TensorFlow's: INVALID_ARGUMENT for names and kernels that do not go together, INTERNAL for assigned devices that cannot be,
/// UNIMPLEMENTED for functions that call themselves.
pub(super) fn join<'a>(
    graph: &'a Graph,
    order: &[NodeId],
    cx: Context<'a>,
    assigned: &dyn Fn(NodeId) -> Option<&'a str>,
    stack: &Stack<'_>,
) -> Result<Joined<'a>> {
    let signatures = Signatures::new(graph, order, cx.registry);
    let types = supported_types(graph, order, cx.registry, cx.devices)?;
    let none = IdVec::filled(None, graph.nodes().len());
    let asked = IdVec::filled(None, graph.nodes().len());
    let mut joined = Joined { supported: types.clone(), groups: Groups::new(graph, cx, types), signatures, assigned: none, asked };
    joined.initialise(order, assigned)?;
    // Nodes in a body come after those around it, as in TensorFlow, where bodies are made later.
    let mut outer_first = Vec::new();
    let outer_first: &[NodeId] = if cx.calls.is_empty() {
        order
    } else {
        outer_first.extend_from_slice(order);
        outer_first.sort_by_key(|id| (cx.calls.level(*id), cx.calls.part(*id).branches));
        &outer_first
    };
    let calls = joined.along_edges(outer_first)?;
    // The last one first: so they come out of TensorFlow's set, and so its errors name their ends.
    for call in calls.into_iter().rev() {
        calls::apply(&mut joined, call, stack)?;
    }
    joined.by_class(outer_first)?;
    joined.host_only(order)?;
    joined.without_compilers(order);
    Ok(joined)
}

impl<'a> Joined<'a> {
    fn initialise(&mut self, order: &[NodeId], assigned: &dyn Fn(NodeId) -> Option<&'a str>) -> Result<()> {
        let mut names = Names::default();
        let cx = self.groups.cx;
        for &id in order {
            let node = self.groups.node(id);
            let member = &mut self.groups.members[id];
            if let Some(device) = assigned(id) {
                let name = names.parse(device);
                let name = name.ok_or_else(|| Error::internal(format!("Malformed assigned device '{device}'")).at_node(&node.name))?;
                (member.assigned, member.requested) = (name.clone(), name);
                let found = cx.devices.find(device).ok_or_else(|| errors::assigned_nowhere(node, device, cx.devices))?;
                if !member.types.iter().any(|(kind, _)| *kind == cx.devices.of_type[found]) {
                    return Err(errors::assigned_without_kernel(node, device));
                }
                self.assigned[id] = Some(found);
                continue;
            }
            require_kernel(node, &member.types, cx.registry, cx.devices)?;
            if node.device.is_empty() {
                continue;
            }
            let name = names.parse(&node.device).ok_or_else(|| errors::malformed(node))?;
            self.asked[id] = Some(name.clone());
            if makes_resource(&self.signatures, id) {
                member.resource = name.clone();
            }
            member.requested = name;
        }
        Ok(())
    }

    /// Joins the ends of edges that carry references and resources; the calls whose functions return resources, in the
    /// graph's order.
    fn along_edges(&mut self, order: &[NodeId]) -> Result<BTreeSet<NodeId>> {
        let mut inspected = BTreeSet::new();
        let graph = self.groups.graph;
        let is_call = |id: NodeId, signatures: &Signatures<'_>| calls::returns_resource(graph.node(id), &signatures.functions);
        let has_functions = !self.signatures.functions.is_empty();
        for &id in order {
            let node = graph.node(id);
            let looked_into = has_functions && is_call(id, &self.signatures);
            if looked_into {
                inspected.insert(id);
            }
            let wanted = self.signatures.inputs[id].clone();
            for (input, wanted) in node.inputs.iter().zip(wanted.iter()) {
                if has_functions && is_call(input.node, &self.signatures) {
                    inspected.insert(input.node);
                    continue;
                }
                if looked_into {
                    continue;
                }
                let handle = wanted.is_ref || wanted.base == DataType::Resource;
                let dataset = wanted.base == DataType::Variant && self.is_dataset(input.node) && self.is_dataset(id);
                if dataset || (handle && !is_exempt(&node.op)) {
                    self.enter_body(input.node, id)?;
                    self.groups.unite_along_edge(input.node, id)?;
                }
            }
        }
        Ok(inspected)
    }

    /// A call whose body is on one device is where the references and resources are that the body takes.
    fn enter_body(&mut self, source: NodeId, id: NodeId) -> Result<()> {
        let calls = self.groups.cx.calls;
        let level = calls.level(source);
        if calls.level(id) <= level {
            return Ok(());
        }
        let mut call = id;
        while calls.level(call) > level {
            match calls.part(call) {
                Part { call: Some(outer), is_bound: true, .. } => call = outer,
                _ => return Ok(()),
            }
        }
        self.groups.unite_along_edge(source, call)
    }

    fn is_dataset(&self, id: NodeId) -> bool {
        let op = self.groups.node(id).op.as_str();
        let versioned = op.trim_end_matches(|c: char| c.is_ascii_digit());
        let named = op == "DatasetFromGraph" || op.ends_with("Dataset") || (versioned.len() < op.len() && versioned.ends_with("DatasetV"));
        named && matches!(&*self.signatures.outputs[id], [only] if only.base == DataType::Variant)
    }

    /// `_class` says `loc:@label`; every node also has its own name as a label. The first node with a label is the one that
    /// others join.
    fn by_class(&mut self, order: &[NodeId]) -> Result<()> {
        let graph = self.groups.graph;
        // Without any, every label is the name of one node.
        if !graph.nodes().values().any(|node| node.attrs.contains_key("_class")) {
            return Ok(());
        }
        let mut firsts: HashMap<&[u8], NodeId> = HashMap::with_capacity(order.len());
        for &id in order {
            let node = graph.node(id);
            match node.attrs.get("_class") {
                Some(AttrValue::List(list)) => {
                    for label in list.bytes.iter().filter_map(|class| class.strip_prefix(b"loc:@")) {
                        self.with_label(&mut firsts, id, label)?;
                    }
                }
                Some(AttrValue::Bytes(text)) if !text.is_empty() => self.groups.notes.push(format!(
                    "The value for colocation attribute '_class' must be a list of strings, not a single string: {{{{node {}}}}}",
                    node.name
                )),
                _ => {}
            }
            self.with_label(&mut firsts, id, node.name.as_bytes())?;
        }
        Ok(())
    }

    fn with_label<'b>(&mut self, firsts: &mut HashMap<&'b [u8], NodeId>, id: NodeId, label: &'b [u8]) -> Result<()> {
        let first = *firsts.entry(label).or_insert(id);
        if first == id {
            return Ok(());
        }
        let (x, y) = (self.groups.root(id), self.groups.root(first));
        let Err(conflict) = self.groups.unite(id, first) else { return Ok(()) };
        if self.groups.cx.soft && !self.groups.cx.log {
            return Ok(());
        }
        let (node, other) = (self.groups.node(id), self.groups.node(first));
        let text = errors::cannot_colocate(&self.groups, node, other, x, y, &conflict);
        if !self.groups.cx.soft {
            return Err(Error::invalid_argument(text).at_node(&node.name));
        }
        self.groups.notes.push(format!(
            "Ignoring request to colocate node '{}' with nodes in colocation group '{}' because soft placement is on and an attempt \
             at doing so resulted in the following error: {text}",
            node.name,
            String::from_utf8_lossy(label),
        ));
        Ok(())
    }

    /// Joins two nodes because a call's function does.
    pub fn unite(&mut self, first: NodeId, other: NodeId) -> Result<()> {
        let (x, y) = (self.groups.root(first), self.groups.root(other));
        self.groups.unite(first, other).map_err(|conflict: Conflict| {
            let (node, other) = (self.groups.node(first), self.groups.node(other));
            Error::invalid_argument(errors::cannot_colocate(&self.groups, node, other, x, y, &conflict)).at_node(&node.name)
        })
    }

    /// A node that takes lists of strings or resources goes to a CPU.
    fn host_only(&mut self, order: &[NodeId]) -> Result<()> {
        let graph = self.groups.graph;
        let mut elements: IdVec<NodeId, Option<bool>> = IdVec::filled(None, graph.nodes().len());
        let cpu = self.groups.cx.devices.types.iter().position(|kind| kind == "CPU");
        for &id in order {
            let inputs = self.signatures.inputs[id].clone();
            let node = graph.node(id);
            let variants = || node.inputs.iter().zip(inputs.iter()).filter(|(_, wanted)| wanted.base == DataType::Variant);
            elements[id] = element_type(node).or_else(|| variants().find_map(|(input, _)| elements[input.node]));
            if elements[id] != Some(true) || variants().next().is_none() {
                continue;
            }
            let root = self.groups.root(id);
            let member = &mut self.groups.members[root];
            let only: Types = member.types.iter().filter(|(kind, _)| Some(*kind as usize) == cpu).copied().collect();
            if let Some(types) = common_types(&member.types, &only) {
                member.types = types;
            }
        }
        Ok(())
    }

    /// Types of devices that stand for compilers are for nodes that name them.
    fn without_compilers(&mut self, order: &[NodeId]) {
        let types = &self.groups.cx.devices.types;
        let is_compiler = |kind: &str| matches!(kind, "XLA_CPU_JIT" | "XLA_GPU_JIT" | "XLA_TPU_JIT" | "XLA_CPU" | "XLA_GPU" | "TPU");
        if !types.iter().any(|kind| is_compiler(kind)) {
            return;
        }
        for &id in order {
            let root = self.groups.root(id);
            let member = &mut self.groups.members[root];
            let names = [&member.requested, &member.assigned, &member.resource];
            if names.iter().any(|name| name.kind.as_deref().is_some_and(is_compiler)) {
                continue;
            }
            let others: Vec<(u8, i32)> = member.types.iter().filter(|(kind, _)| !is_compiler(&types[*kind as usize])).copied().collect();
            if !others.is_empty() && others.len() < member.types.len() {
                member.types = Rc::from(others);
            }
        }
    }
}

/// For operations on lists of tensors: whether their elements are always in the host's memory.
fn element_type(node: &plimsoll_graph::Node) -> Option<bool> {
    const LISTS: &[&str] = &[
        "TensorListReserve",
        "TensorListFromTensor",
        "EmptyTensorList",
        "TensorListSplit",
        "TensorListScatter",
        "TensorListScatterV2",
        "TensorListScatterIntoExistingList",
        "TensorListPushBack",
        "TensorListPushBackBatch",
        "TensorListPopBack",
        "TensorListStack",
        "TensorListConcat",
        "TensorListConcatV2",
        "TensorListGetItem",
        "TensorListSetItem",
        "TensorListGather",
        "TensorListConcatLists",
    ];
    if !LISTS.contains(&node.op.as_str()) {
        return None;
    }
    match node.attrs.data_type("element_dtype").ok()? {
        DataType::Variant => None,
        other => Some(matches!(other, DataType::String | DataType::Resource)),
    }
}

/// Operations that hand resources to functions, which are placed by themselves.
fn is_exempt(op: &str) -> bool {
    let op = op.strip_prefix("Experimental").unwrap_or(op);
    matches!(
        op,
        "PartitionedCall"
            | "StatefulPartitionedCall"
            | "IdentityN"
            | "DeleteMultiDeviceIterator"
            | "FilterDataset"
            | "FlatMapDataset"
            | "GeneratorDataset"
            | "GroupByReducerDataset"
            | "GroupByWindowDataset"
            | "InterleaveDataset"
            | "LegacyParallelInterleaveDatasetV2"
            | "LoadDataset"
            | "MapAndBatchDataset"
            | "MapDataset"
            | "ParallelInterleaveDataset"
            | "ParallelInterleaveDatasetV2"
            | "ParallelInterleaveDatasetV3"
            | "ParallelInterleaveDatasetV4"
            | "ParallelMapDataset"
            | "ParallelMapDatasetV2"
            | "ReduceDataset"
            | "SaveDataset"
            | "SaveDatasetV2"
            | "ScanDataset"
            | "SnapshotDataset"
            | "SnapshotDatasetV2"
            | "TakeWhileDataset"
    )
}
