//! The types of every node's inputs and outputs, and the readers of its outputs.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::ArgType;
use plimsoll_graph::{FunctionDef, Graph, IdVec, Node, NodeId, OpDef};
use plimsoll_ops::Registry;

/// The types of a node's inputs, or of its outputs. Nodes of the same types share them.
pub(super) type ArgTypes = Rc<[ArgType]>;

/// Types and consumers of every node.
pub(super) struct Signatures<'a> {
    pub inputs: IdVec<NodeId, ArgTypes>,
    pub outputs: IdVec<NodeId, ArgTypes>,
    /// The functions of the library, by name.
    pub functions: HashMap<&'a str, &'a FunctionDef>,
    /// Where the consumers of each node begin among `consumers`.
    starts: Vec<u32>,
    consumers: Vec<NodeId>,
}

impl<'a> Signatures<'a> {
    /// Reads types from the table of operations and from the library. A node of neither has none.
    pub fn new(graph: &'a Graph, order: &[NodeId], registry: &Registry) -> Signatures<'a> {
        let functions = graph.library.functions.iter().map(|function| (function.signature.name.as_str(), function)).collect();
        let mut shared: Vec<ArgTypes> = vec![Rc::new([])];
        let mut share = |types: Vec<ArgType>| match shared.iter().find(|other| ***other == *types) {
            Some(same) => same.clone(),
            None => {
                let types: ArgTypes = types.into();
                // Long lists are rare and differ: searching among them would take its time.
                if shared.len() < 64 {
                    shared.push(types.clone());
                }
                types
            }
        };
        let none = share(Vec::new());
        let count = graph.nodes().len();
        let mut signatures = Signatures {
            inputs: IdVec::filled(none.clone(), count),
            outputs: IdVec::filled(none, count),
            functions,
            starts: Vec::new(),
            consumers: Vec::new(),
        };
        let mut ops: HashMap<&str, Option<Arc<OpDef>>> = HashMap::new();
        for (id, node) in graph.nodes().iter() {
            let op = ops.entry(&node.op).or_insert_with(|| registry.table().get(&node.op));
            let called = || signatures.functions.get(node.op.as_str()).map(|function| &function.signature);
            let Some(op) = op.as_deref().or_else(called) else { continue };
            let (inputs, outputs) = (op.input_types(&node.attrs), op.output_types(&node.attrs));
            (signatures.inputs[id], signatures.outputs[id]) = (share(inputs.unwrap_or_default()), share(outputs.unwrap_or_default()));
        }
        signatures.find_consumers(graph, order);
        signatures
    }

    fn find_consumers(&mut self, graph: &Graph, order: &[NodeId]) {
        use plimsoll_graph::id::Id;
        let mut counts = vec![0u32; graph.nodes().len() + 1];
        for node in graph.nodes().values() {
            sources(node).for_each(|source| counts[source.index() + 1] += 1);
        }
        for index in 1..counts.len() {
            counts[index] += counts[index - 1];
        }
        let mut next = counts.clone();
        self.consumers = vec![NodeId::from_index(0); counts.last().copied().unwrap_or(0) as usize];
        for &id in order {
            for source in sources(graph.node(id)) {
                self.consumers[next[source.index()] as usize] = id;
                next[source.index()] += 1;
            }
        }
        self.starts = counts;
    }

    /// The nodes at the ends of a node's edges, data and control, once for each edge.
    pub fn consumers(&self, id: NodeId) -> &[NodeId] {
        use plimsoll_graph::id::Id;
        &self.consumers[self.starts[id.index()] as usize..self.starts[id.index() + 1] as usize]
    }
}

/// The nodes that a node's edges come from: data first, then each control once.
pub(super) fn sources(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    let mut controls = node.controls.clone();
    controls.sort_unstable();
    controls.dedup();
    node.inputs.iter().map(|input| input.node).chain(controls)
}
