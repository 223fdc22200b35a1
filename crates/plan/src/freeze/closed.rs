//! The nodes of a graph that compute from variables and constants alone.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{Graph, IdVec, Node, NodeId, Output, Shape};
use plimsoll_ops::{Fact, Lower, Registry, infer_node};

use super::append::Kept;
use super::chain::Chain;
use super::is_variable;
use crate::lower::variable_key;

/// A node whose outputs no feed decides.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// The facts about its outputs.
    pub facts: Vec<Fact>,
    /// The keys of the variables that it is computed from, with their bytes.
    pub sources: BTreeMap<String, u64>,
    /// Whether something is computed: the outputs are not just a variable or a constant, maybe in another shape.
    pub is_computed: bool,
}

/// The closed nodes of a graph.
pub(super) struct Closed {
    values: IdVec<NodeId, Option<Value>>,
}

impl Closed {
    /// Those of a graph. Variables with the keys `assigned` are as open as feeds.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for cycles.
    pub fn new(graph: &Graph, registry: &Registry, assigned: &BTreeSet<String>) -> Result<Closed> {
        let mut closed = Closed { values: IdVec::filled(None, graph.nodes().len()) };
        for id in graph.topological()? {
            closed.values[id] = closed.value(graph, registry, id, assigned);
        }
        Ok(closed)
    }

    /// The value of a node, if it is closed.
    pub fn get(&self, id: NodeId) -> Option<&Value> {
        self.values.get(id)?.as_ref()
    }

    /// Adds the value of the node that was added last to the graph.
    pub fn push(&mut self, value: Option<Value>) {
        self.values.push(value);
    }

    /// The shape of a closed tensor.
    pub fn shape(&self, tensor: Output) -> Option<Shape> {
        self.get(tensor.node)?.facts.get(tensor.index as usize)?.shape.complete()
    }

    /// By node, whether it is closed.
    pub fn nodes(&self) -> IdVec<NodeId, bool> {
        self.values.values().map(Option::is_some).collect()
    }

    fn value(&self, graph: &Graph, registry: &Registry, id: NodeId, assigned: &BTreeSet<String>) -> Option<Value> {
        let node = graph.node(id);
        let rules = registry.get(&node.op)?;
        if !node.controls.iter().all(|control| self.get(*control).is_some()) {
            return None;
        }
        if is_variable(graph, id) {
            return self.variable(registry, node, assigned);
        }
        let is_read = matches!(rules.lower, Lower::ReadVariable);
        let def = registry.table().get(&node.op)?;
        let computes = match rules.lower {
            Lower::Nothing => node.inputs.is_empty(),
            Lower::Const | Lower::ReadVariable => true,
            Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) | Lower::Anchor(_) => true,
            Lower::Kernel(_) | Lower::Move(_) | Lower::Recipe(_) | Lower::Alias => !def.is_stateful,
            _ => false,
        };
        // A reference is read by operations that take values only.
        let takes_values = is_read || def.input_types(&node.attrs).ok()?.iter().all(|arg| !arg.is_ref && arg.base != DataType::Resource);
        if !computes || !takes_values {
            return None;
        }
        let value = infer(registry, node, |input| self.get(input.node))?;
        let is_whole = value.facts.iter().all(|fact| fact.shape.complete().is_some() && fact.data_type.size().is_some());
        // What takes more memory than what it is computed from is computed each time.
        let bytes =
            |fact: &Fact| fact.shape.complete().and_then(|shape| shape.bytes(fact.data_type).ok()).map_or(u64::MAX, |bytes| bytes.0);
        let made = value.facts.iter().map(bytes).fold(0, u64::saturating_add);
        let is_small = !value.is_computed || value.sources.is_empty() || made <= value.sources.values().sum();
        ((is_whole || matches!(rules.lower, Lower::Const)) && is_small).then_some(value)
    }

    fn variable(&self, registry: &Registry, node: &Node, assigned: &BTreeSet<String>) -> Option<Value> {
        let key = variable_key(node);
        let mut value = infer(registry, node, |_| None).filter(|_| !assigned.contains(&key))?;
        let fact = &value.facts[0];
        let (data_type, shape) = fact.handle.clone().unwrap_or((fact.data_type, fact.shape.clone()));
        value.sources.insert(key, shape.complete()?.bytes(data_type).ok()?.0);
        Some(value)
    }

    /// The closed tensors that others than closed nodes read, and that something was computed for, each with its first reader. Nodes of
    /// the chains read nothing any more.
    pub fn frontier(&self, graph: &Graph, chains: &[Chain]) -> BTreeMap<Output, NodeId> {
        let passed: BTreeSet<NodeId> = chains.iter().flat_map(Chain::nodes).collect();
        let mut frontier = BTreeMap::new();
        for (id, node) in graph.nodes().iter().filter(|(id, _)| self.get(*id).is_none() && !passed.contains(id)) {
            for input in &node.inputs {
                let value = self.get(input.node).filter(|value| value.is_computed && !value.sources.is_empty());
                if value.is_some_and(|value| value.facts.get(input.index as usize).is_some_and(|fact| fact.data_type.is_floating())) {
                    frontier.entry(*input).or_insert(id);
                }
            }
        }
        frontier
    }

    /// Lets open nodes read folded variables, and the ends of chains in their new form.
    pub fn rewire(&self, graph: &mut Graph, chains: &[Chain], kept: &BTreeMap<Output, Kept>) {
        let ends: BTreeMap<Output, Output> = chains.iter().filter_map(|chain| Some((chain.end()?, chain.result))).collect();
        let assigns: BTreeSet<NodeId> = kept.values().map(|kept| kept.assign).collect();
        for id in graph.nodes().ids().filter(|id| self.get(*id).is_none() && !assigns.contains(id)) {
            let node = graph.node(id);
            let rewired = |input: &Output| kept.get(input).map(|kept| kept.read).or_else(|| ends.get(input).copied()).unwrap_or(*input);
            let inputs: Vec<Output> = node.inputs.iter().map(rewired).collect();
            let controls: Vec<NodeId> = node.controls.iter().copied().filter(|control| self.get(*control).is_none()).collect();
            // The other nodes are those of the graph as written, shared.
            if inputs != node.inputs || controls.len() != node.controls.len() {
                let node = graph.node_mut(id);
                (node.inputs, node.controls) = (inputs, controls);
            }
        }
    }
}

/// The value of a node whose inputs and controls are closed.
pub(super) fn infer<'a>(registry: &Registry, node: &Node, of: impl Fn(Output) -> Option<&'a Value>) -> Option<Value> {
    let def = registry.table().get(&node.op)?;
    let lower = registry.get(&node.op)?.lower;
    let inputs = node.inputs.iter().map(|input| of(*input)).collect::<Option<Vec<&Value>>>()?;
    let facts = inputs.iter().zip(&node.inputs).map(|(value, input)| value.facts.get(input.index as usize).cloned());
    let facts = facts.collect::<Option<Vec<Fact>>>()?;
    let sources = inputs.iter().flat_map(|value| &value.sources).map(|(key, bytes)| (key.clone(), *bytes)).collect();
    let is_computed = match lower {
        Lower::Const | Lower::Variable | Lower::ReadVariable | Lower::Nothing => false,
        // Further inputs only say a shape.
        Lower::Alias => inputs.first().is_some_and(|value| value.is_computed),
        _ => true,
    };
    let facts = infer_node(registry, &def, node, &facts).ok()?;
    Some(Value { facts, sources, is_computed })
}
