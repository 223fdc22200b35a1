//! Graphs in the making: typed nodes, scopes, variables, gradients, optimizers.
//!
//! Every node is checked against its operation's signature when it is made, and the operation's shape rule is applied. So type,
//! shape and (where it follows) value of every output are known while the graph is built. Names, attributes and structure are those
//! that TensorFlow 1's Python front end gives to the same calls.

mod functions;
mod gradients;
mod initializer;
mod names;
mod node;
pub mod optimizer;
mod scope;
mod signature;
mod variable;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, Node, NodeId, Output, PartialShape};

use crate::{Fact, Registry, infer_node};
pub use initializer::Initializer;
use names::Names;
pub use node::OpBuilder;
pub use scope::Scopes;
use scope::{Controller, Scope};
use variable::Variables;
pub use variable::{Reuse, Variable, VariableKind};

/// Makes a graph, node by node.
///
/// Scopes (names, devices, control dependencies, colocation, variables) are entered with closures and left when these return.
pub struct GraphBuilder {
    graph: Graph,
    registry: Arc<Registry>,
    /// For each node, the facts about its outputs.
    facts: Vec<Vec<Fact>>,
    /// The fact about outputs without a rule.
    nothing: Fact,
    names: Names,
    scope: Scope,
    controllers: Vec<Controller>,
    variables: Variables,
    seed: Option<i64>,
    gate_gradients: bool,
    integer_gradients: bool,
    /// The functions that nodes can call by name: their positions in the library.
    functions: HashMap<String, usize>,
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphBuilder of {} nodes", self.graph.nodes().len())
    }
}

impl GraphBuilder {
    /// An empty graph of these operations.
    pub fn new(registry: Arc<Registry>) -> GraphBuilder {
        GraphBuilder {
            graph: Graph::new(),
            registry,
            facts: Vec::new(),
            nothing: Fact::new(DataType::Variant, PartialShape::unknown()),
            names: Names::default(),
            scope: Scope::default(),
            controllers: Vec::new(),
            variables: Variables::default(),
            seed: None,
            gate_gradients: false,
            integer_gradients: false,
            functions: HashMap::new(),
        }
    }

    /// Goes on with a graph that exists. Its names are taken; its nodes are inferred as if they had been built here.
    ///
    /// # Errors
    /// A shape rule's error for inputs that cannot be; INVALID_ARGUMENT for cycles.
    pub fn extend(graph: Graph, registry: Arc<Registry>) -> Result<GraphBuilder> {
        let mut builder = GraphBuilder::new(registry);
        for node in graph.nodes().values() {
            builder.names.take(&node.name);
        }
        builder.facts = vec![Vec::new(); graph.nodes().len()];
        let order = graph.topological()?;
        for (position, function) in graph.library.functions.iter().enumerate() {
            builder.functions.entry(function.signature.name.clone()).or_insert(position);
        }
        builder.graph = graph;
        for id in order {
            builder.facts[id.index()] = builder.infer(builder.graph.node(id))?;
        }
        Ok(builder)
    }

    /// The graph as far as it is built.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The operations.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The node `id`. It must be of this builder's graph.
    pub fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    /// The fact about a tensor. Of results of functions that are called by name the types are known. Of other outputs whose operation
    /// is not in the table only that they exist is known: type variant, unknown shape.
    pub fn fact(&self, output: Output) -> &Fact {
        self.facts.get(output.node.index()).and_then(|facts| facts.get(output.index as usize)).unwrap_or(&self.nothing)
    }

    /// How many outputs the node has.
    pub fn output_count(&self, node: NodeId) -> usize {
        self.facts.get(node.index()).map_or(0, Vec::len)
    }

    /// The element type of a tensor.
    pub fn data_type(&self, output: Output) -> DataType {
        self.fact(output).data_type
    }

    /// The shape of a tensor, as far as it is known.
    pub fn shape_of(&self, output: Output) -> &PartialShape {
        &self.fact(output).shape
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    fn infer(&self, node: &Node) -> Result<Vec<Fact>> {
        let Some(def) = self.registry.table().get(&node.op) else { return self.results_of_call(node) };
        let inputs: Vec<Fact> = node.inputs.iter().map(|input| self.fact(*input).clone()).collect();
        infer_node(&self.registry, &def, node, &inputs)
    }

    /// The facts about what a function gives that a node calls by its name.
    fn results_of_call(&self, node: &Node) -> Result<Vec<Fact>> {
        let Some(function) = self.functions.get(&node.op).map(|position| &self.graph.library.functions[*position]) else {
            return Ok(Vec::new());
        };
        let types = function.signature.output_types(&node.attrs).map_err(|error| error.at_node(&node.name))?;
        Ok(types.iter().map(|arg| Fact::new(arg.base, PartialShape::unknown())).collect())
    }

    /// Adds a node whose inputs and attributes are checked already.
    fn add_node(&mut self, node: Node) -> Result<NodeId> {
        let facts = self.infer(&node)?;
        let id = self.graph.add(node)?;
        self.facts.push(facts);
        Ok(id)
    }

    /// More is known of the tensor's shape than its operation's rule said.
    fn refine_shape(&mut self, output: Output, shape: PartialShape) {
        if let Some(fact) = self.facts.get_mut(output.node.index()).and_then(|facts| facts.get_mut(output.index as usize)) {
            fact.shape = shape;
        }
    }

    /// More is known of a tensor's shape than its operation says: TensorFlow's `set_shape`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where both cannot be true, and for a tensor of another graph.
    pub fn set_shape(&mut self, output: Output, shape: &PartialShape) -> Result<()> {
        self.check_output(output)?;
        let merged = crate::infer::merge_shapes(self.shape_of(output), shape)?;
        self.refine_shape(output, merged);
        Ok(())
    }

    /// Whether the node exists here.
    fn check_node(&self, node: NodeId) -> Result<()> {
        match self.graph.nodes().get(node) {
            Some(_) => Ok(()),
            None => Err(Error::invalid_argument(format!("{node:?} is of another graph"))),
        }
    }

    /// Whether the output exists here.
    fn check_output(&self, output: Output) -> Result<()> {
        if (output.index as usize) < self.output_count(output.node) {
            return Ok(());
        }
        match self.graph.nodes().get(output.node) {
            None => Err(Error::invalid_argument(format!("{output:?} is of another graph"))),
            Some(node) if self.registry.table().get(&node.op).is_none() => Ok(()),
            Some(node) => Err(Error::invalid_argument(format!(
                "'{}:{}' does not exist: the node has {} outputs",
                node.name,
                output.index,
                self.output_count(output.node)
            ))),
        }
    }
}
