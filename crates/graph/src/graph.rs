//! The graph with typed ids and edges.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use plimsoll_base::{Error, Result};

use crate::def::is_node_name;
use crate::id::Id;
use crate::{Attrs, AttrsPool, GraphDef, IdVec, InputRef, Library, NodeDef, NodeId, OpTable, TensorName, Versions};

/// Output `index` of `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Output {
    /// The node.
    pub node: NodeId,
    /// Which of its outputs.
    pub index: u32,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Unique in the graph.
    pub name: String,
    /// The operation's name.
    pub op: String,
    /// Data inputs, in order.
    pub inputs: Vec<Output>,
    /// Nodes that have to have run.
    pub controls: Vec<NodeId>,
    /// The device asked for, as it was spelled; empty for none.
    pub device: String,
    /// Attributes, defaults filled in where the operation is known.
    pub attrs: Attrs,
    /// See [`NodeDef::carried`].
    pub carried: Vec<u8>,
}

/// Nodes and edges. Operations that are not in the table are kept; they fail only when something needs them. A copy shares its nodes with
/// the original until a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    nodes: IdVec<NodeId, Arc<Node>>,
    by_name: Arc<HashMap<String, NodeId>>,
    /// Functions.
    pub library: Arc<Library>,
    /// Versions.
    pub versions: Versions,
    /// See [`GraphDef::carried`].
    pub carried: Vec<u8>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Lets go of functions that no node calls, directly or through others.
    pub fn drop_unused_functions(&mut self) {
        let used = self.nodes.values().map(|node| (node.op.as_str(), &node.attrs));
        self.library = Arc::new(self.library.reachable(used));
    }

    /// Turns names into ids, fills in missing attributes and checks the graph (see `verify`).
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the node. Bad or repeated names, missing attributes, cycles. Inputs that do not exist or are of the
    /// wrong number or type. Control inputs before data inputs.
    pub fn resolve(def: GraphDef, ops: &OpTable) -> Result<Graph> {
        let by_name = by_name(def.nodes.iter().map(|node| (node.name.as_str(), node.op.as_str())))?;
        let mut pool = AttrsPool::default();
        let mut library = def.library;
        library.functions.iter_mut().flat_map(|function| &mut function.nodes).for_each(|node| pool.share(&mut node.attrs));
        let mut resolved = |node| {
            let mut node = resolve_node(node, &by_name, ops)?;
            pool.share(&mut node.attrs);
            Ok(Arc::new(node))
        };
        let nodes = def.nodes.into_iter().map(&mut resolved).collect::<Result<IdVec<NodeId, _>>>()?;
        let graph = Graph { nodes, by_name: Arc::new(by_name), library: Arc::new(library), versions: def.versions, carried: def.carried };
        crate::verify::verify(&graph, ops)?;
        Ok(graph)
    }

    /// A graph of nodes whose edges are ids already, without functions. Fills in missing attributes and checks the graph, as
    /// [`Graph::resolve`] does.
    ///
    /// # Errors
    /// As [`Graph::resolve`]; INTERNAL for edges to nodes that are not there.
    pub fn of_nodes(mut nodes: IdVec<NodeId, Node>, ops: &OpTable) -> Result<Graph> {
        let by_name = by_name(nodes.values().map(|node| (node.name.as_str(), node.op.as_str())))?;
        let count = nodes.len();
        for (_, node) in nodes.iter_mut() {
            if node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()).any(|id| id.index() >= count) {
                return Err(Error::internal("an edge from a node that is not in the graph").at_node(&node.name));
            }
            if let Some(op) = ops.get(&node.op) {
                op.fill_defaults(&mut node.attrs).map_err(|error| error.at_node(&node.name))?;
            }
        }
        let nodes = nodes.into_values().into_iter().map(Arc::new).collect();
        let graph = Graph { nodes, by_name: Arc::new(by_name), ..Graph::default() };
        crate::verify::verify(&graph, ops)?;
        Ok(graph)
    }

    /// The graph spelled with names again.
    pub fn to_def(&self) -> GraphDef {
        GraphDef {
            nodes: self.node_defs(),
            library: (*self.library).clone(),
            versions: self.versions.clone(),
            carried: self.carried.clone(),
        }
    }

    /// The nodes of [`Graph::to_def`].
    pub fn node_defs(&self) -> Vec<NodeDef> {
        let spell = |output: &Output| {
            let name = &self.nodes[output.node].name;
            if output.index == 0 { name.clone() } else { format!("{name}:{}", output.index) }
        };
        let nodes = self.nodes.values().map(|node| NodeDef {
            name: node.name.clone(),
            op: node.op.clone(),
            inputs: node.inputs.iter().map(spell).chain(node.controls.iter().map(|id| format!("^{}", self.nodes[*id].name))).collect(),
            device: node.device.clone(),
            attrs: node.attrs.clone(),
            carried: node.carried.clone(),
        });
        nodes.collect()
    }

    /// Adds a node whose inputs are in the graph already.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the name is bad or taken.
    pub fn add(&mut self, node: Node) -> Result<NodeId> {
        if !is_node_name(&node.name) || self.by_name.contains_key(&node.name) {
            return Err(Error::invalid_argument(format!("'{}' cannot name another node", node.name.escape_debug())));
        }
        let name = node.name.clone();
        let id = self.nodes.push(Arc::new(node));
        Arc::make_mut(&mut self.by_name).insert(name, id);
        Ok(id)
    }

    /// The names of all nodes, in the graph's order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.values().map(|node| node.name.as_str())
    }

    /// All nodes, in the graph's order.
    pub fn nodes(&self) -> &IdVec<NodeId, Arc<Node>> {
        &self.nodes
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The node `id`, to change. Its name must stay.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(&mut self.nodes[id])
    }

    /// The node of that name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The tensor `name` or `name:k`. Whether the node has that output is not checked here.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for malformed names, NOT_FOUND for nodes that do not exist.
    pub fn tensor(&self, name: &str) -> Result<Output> {
        let name = TensorName::parse(name)?;
        let node = self.find(&name.node).ok_or_else(|| {
            Error::not_found(format!("there is no node '{}' in the graph", name.node)).suggesting(&name.node, self.node_names())
        })?;
        Ok(Output { node, index: name.index })
    }

    /// The name of a tensor: `node` for output 0, else `node:k`.
    pub fn tensor_name(&self, output: Output) -> String {
        format!("{}:{}", self.nodes[output.node].name, output.index)
    }

    /// Every node after all of its data and control inputs; among those that are ready the first in the graph comes first.
    /// Back edges of TF1 loops (NextIteration into Merge) do not count.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where nodes form a cycle, with the names of some.
    pub fn topological(&self) -> Result<Vec<NodeId>> {
        let mut waiting: IdVec<NodeId, usize> = IdVec::filled(0, self.nodes.len());
        let mut consumers: IdVec<NodeId, Vec<NodeId>> = IdVec::filled(Vec::new(), self.nodes.len());
        for (id, node) in self.nodes.iter() {
            for source in self.predecessors(node) {
                waiting[id] += 1;
                consumers[source].push(id);
            }
        }
        let mut ready: BinaryHeap<Reverse<NodeId>> = waiting.iter().filter(|(_, count)| **count == 0).map(|(id, _)| Reverse(id)).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            for &consumer in &consumers[id] {
                waiting[consumer] -= 1;
                if waiting[consumer] == 0 {
                    ready.push(Reverse(consumer));
                }
            }
        }
        if order.len() == self.nodes.len() {
            return Ok(order);
        }
        let stuck: Vec<&str> =
            waiting.iter().filter(|(_, count)| **count > 0).take(3).map(|(id, _)| self.nodes[id].name.as_str()).collect();
        Err(Error::invalid_argument(format!("{} nodes in a cycle, among them {}", self.nodes.len() - order.len(), stuck.join(", ")))
            .at_node(stuck[0]))
    }

    fn predecessors<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
        let merge = matches!(node.op.as_str(), "Merge" | "RefMerge");
        let back_edge = move |source: &NodeId| merge && matches!(self.nodes[*source].op.as_str(), "NextIteration" | "RefNextIteration");
        node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()).filter(move |source| !back_edge(source))
    }
}

/// The ids of nodes with these names and operations.
///
/// # Errors
/// INVALID_ARGUMENT for bad or repeated names, and where a node names no operation.
fn by_name<'a>(nodes: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> Result<HashMap<String, NodeId>> {
    let mut by_name = HashMap::with_capacity(nodes.len());
    for (index, (name, op)) in nodes.enumerate() {
        if !is_node_name(name) {
            let shown = name.escape_debug().to_string();
            return Err(Error::invalid_argument(format!("'{shown}' is not a node name")).at_node(shown));
        }
        if op.is_empty() {
            return Err(Error::invalid_argument("the node names no operation").at_node(name));
        }
        if by_name.insert(name.to_string(), NodeId::from_index(index)).is_some() {
            return Err(Error::invalid_argument(format!("Node name '{name}' is not unique")).at_node(name));
        }
    }
    Ok(by_name)
}

fn resolve_node(def: NodeDef, by_name: &HashMap<String, NodeId>, ops: &OpTable) -> Result<Node> {
    let find = |name: &str| {
        by_name.get(name).copied().ok_or_else(|| Error::invalid_argument(format!("Unknown input node '{}'", name.escape_debug())))
    };
    let (mut inputs, mut controls) = (Vec::new(), Vec::new());
    let mut attrs = def.attrs;
    let mut resolve_all = || -> Result<()> {
        for text in &def.inputs {
            match InputRef::parse(text)? {
                InputRef::Control(name) => controls.push(find(name)?),
                InputRef::Data { .. } if !controls.is_empty() => {
                    return Err(Error::invalid_argument(format!("data input '{text}' comes after a control input")));
                }
                InputRef::Data { node, index } => inputs.push(Output { node: find(node)?, index }),
            }
        }
        if let Some(op) = ops.get(&def.op) {
            op.fill_defaults(&mut attrs)?;
        }
        Ok(())
    };
    resolve_all().map_err(|error| error.at_node(&def.name))?;
    Ok(Node { name: def.name, op: def.op, inputs, controls, device: def.device, attrs, carried: def.carried })
}
