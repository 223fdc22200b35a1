//! Constants that a graph holds in panels: the order in which kernels of processors read weights.
//!
//! A constant is held so where all its readers are filters of convolutions or right operands of products, on devices whose kernels read
//! these panels best. The graph has it once: what reads it otherwise, a fetch say, spreads it.

use std::collections::{HashMap, HashSet};

use plimsoll_base::{DataType, Panels, Result};
use plimsoll_device::{DeviceKind, DeviceSpec, Library};
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, AttrsExt, Graph, HostTensor, IdVec, NodeId, Output, TensorData};
use plimsoll_ops::{Fact, Registry, infer_node};

use crate::frames::{round, stays};
use crate::place::Placement;

/// The constants of a graph that are best held in panels.
///
/// # Errors
/// INVALID_ARGUMENT for cycles.
pub fn in_panels(
    graph: &Graph,
    registry: &Registry,
    placement: &Placement,
    devices: &[DeviceSpec],
    libraries: &[&dyn Library],
) -> Result<Vec<(NodeId, Panels)>> {
    let weights =
        |id: &NodeId| constant(graph, *id).is_some_and(|tensor| tensor.data_type() == DataType::Float && tensor.shape().rank() > 1);
    if !graph.nodes().ids().any(|id| weights(&id)) {
        return Ok(Vec::new());
    }
    let found = Found { graph, facts: facts(graph, registry)?, readers: readers(graph), placement, devices, libraries };
    Ok(graph.nodes().ids().filter(weights).filter_map(|id| Some((id, found.panels(id)?))).collect())
}

/// Holds constants in panels, in several graphs of the same nodes, one constant after another: nothing is there twice if only these graphs
/// have it.
///
/// # Errors
/// INVALID_ARGUMENT where a constant cannot be held so; RESOURCE_EXHAUSTED where the system has not the memory for one of them.
pub fn hold_in_panels(graphs: &mut [&mut Graph], constants: &[(NodeId, Panels)]) -> Result<()> {
    // Nodes may share elements: those that remain have kept their addresses.
    let mut held: HashMap<(*const u8, Panels), HostTensor> = HashMap::new();
    for &(id, panels) in constants {
        let Some(plain) = graphs.first().and_then(|graph| constant(graph, id)).and_then(HostTensor::bytes) else { continue };
        let (at, tensor) = ((plain.as_ptr(), panels), constant(graphs[0], id));
        let laid_out = match (held.get(&at), tensor) {
            (Some(tensor), Some(own)) => tensor.reshaped(own.shape().clone())?,
            (None, Some(own)) => own.in_panels(panels)?,
            (_, None) => continue,
        };
        held.insert(at, laid_out.clone());
        for graph in graphs.iter_mut() {
            graph.node_mut(id).attrs.insert("value".to_string(), AttrValue::Tensor(laid_out.clone()));
        }
    }
    Ok(())
}

/// The elements of a constant that holds all of them.
fn constant(graph: &Graph, id: NodeId) -> Option<&HostTensor> {
    let node = graph.node(id);
    let tensor = if node.op == "Const" { node.attrs.tensor("value").ok()? } else { return None };
    matches!(tensor.data(), TensorData::Dense(_)).then_some(tensor)
}

/// What is known of each node's outputs, whatever is fed; nothing where a rule refuses.
fn facts(graph: &Graph, registry: &Registry) -> Result<IdVec<NodeId, Vec<Fact>>> {
    let mut facts: IdVec<NodeId, Vec<Fact>> = IdVec::filled(Vec::new(), graph.nodes().len());
    for id in graph.topological()? {
        let node = graph.node(id);
        let inputs = node.inputs.iter().map(|input| facts[input.node].get(input.index as usize).cloned());
        if let (Some(inputs), Some(def)) = (inputs.collect::<Option<Vec<Fact>>>(), registry.table().get(&node.op)) {
            facts[id] = infer_node(registry, &def, node, &inputs).unwrap_or_default();
        }
    }
    Ok(facts)
}

/// By node, the nodes that read data of it: which output, and by which input.
fn readers(graph: &Graph) -> IdVec<NodeId, Vec<(u32, NodeId, usize)>> {
    let mut readers: IdVec<NodeId, Vec<(u32, NodeId, usize)>> = IdVec::filled(Vec::new(), graph.nodes().len());
    for (id, node) in graph.nodes().iter() {
        node.inputs.iter().enumerate().for_each(|(input, output)| readers[output.node].push((output.index, id, input)));
    }
    readers
}

/// A graph, and what is known of it.
struct Found<'a> {
    graph: &'a Graph,
    facts: IdVec<NodeId, Vec<Fact>>,
    readers: IdVec<NodeId, Vec<(u32, NodeId, usize)>>,
    placement: &'a Placement,
    devices: &'a [DeviceSpec],
    libraries: &'a [&'a dyn Library],
}

impl Found<'_> {
    /// The panels in which all readers of a constant read it best; none where they do not agree.
    fn panels(&self, id: NodeId) -> Option<Panels> {
        let (mut open, mut seen, mut agreed) = (vec![id], HashSet::from([id]), None);
        while let Some(at) = open.pop() {
            for &(output, reader, input) in &self.readers[at] {
                // A Merge's second result is a number.
                if output == 1 && self.graph.node(at).op == "Merge" {
                    continue;
                }
                if self.hands_on(reader, input) {
                    if seen.insert(reader) {
                        open.push(reader);
                    }
                    continue;
                }
                let panels = self.read_by(reader, input)?;
                if agreed.replace(panels).is_some_and(|other| other != panels) {
                    return None;
                }
            }
        }
        agreed
    }

    /// Whether a node's results are the input that it reads, also from one iteration of a loop to the next.
    fn hands_on(&self, reader: NodeId, input: usize) -> bool {
        match self.graph.node(reader).op.as_str() {
            "Identity" | "Enter" | "Switch" | "Exit" | "NextIteration" => input == 0,
            "Merge" => round(self.graph, reader).is_some_and(|(_, next)| stays(self.graph, reader, next)),
            _ => false,
        }
    }

    /// The panels in which a node reads an input best.
    fn read_by(&self, reader: NodeId, input: usize) -> Option<Panels> {
        let node = self.graph.node(reader);
        let rank = match node.op.as_str() {
            "Conv2D" if node.attrs.text("data_format").ok()? == "NHWC" => 4,
            "Conv3D" if node.attrs.text("data_format").ok()? == "NDHWC" => 5,
            "MatMul" if !node.attrs.bool("transpose_b").ok()? => 2,
            _ => return None,
        };
        let operand = self.shape(*node.inputs.get(1)?)?;
        if input != 1 || operand.len() != rank {
            return None;
        }
        // Groups of channels have panels of their own.
        if rank > 2 && self.shape(node.inputs[0])?.last()? != &operand[rank - 2] {
            return None;
        }
        let device = self.placement.devices.get(reader)?.index();
        let spec = self.devices.get(device).filter(|spec| spec.kind == DeviceKind::Cpu)?;
        self.libraries.get(device)?.panels(spec, operand[rank - 1]?)
    }

    /// The dimensions of a tensor, as far as they are known.
    fn shape(&self, tensor: Output) -> Option<Vec<Option<u64>>> {
        self.facts[tensor.node].get(tensor.index as usize)?.shape.0.clone()
    }
}
