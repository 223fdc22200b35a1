//! New nodes of a graph that is frozen.

use std::collections::{BTreeMap, HashMap};

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Attrs, Graph, Node, NodeId, Output};
use plimsoll_ops::Registry;

use super::Folded;
use super::closed::{Closed, infer};
use crate::lower::variable_key;

/// The container of folded variables: no name of a graph's own variables is in it.
const CONTAINER: &str = "plimsoll.folded";

/// The attribute that nodes have which are not the graph's own.
const ADDED: &str = "_plimsoll_folded";

/// Whether freezing has added the node.
pub(crate) fn is_added(node: &Node) -> bool {
    node.attrs.contains_key(ADDED)
}

/// Adds nodes behind those of a graph.
pub(super) struct Appender<'a> {
    pub graph: &'a mut Graph,
    pub closed: &'a mut Closed,
    registry: &'a Registry,
    /// The new nodes, each with one on whose device it is.
    pub beside: Vec<(NodeId, NodeId)>,
    /// Numbers of folded variables by the nodes that read them.
    pub readers: HashMap<NodeId, usize>,
    /// The tensors that folded variables hold.
    pub kept: BTreeMap<Output, Kept>,
    pub folded: Vec<Folded>,
}

/// A folded variable in the graph.
pub(super) struct Kept {
    /// Its value.
    pub read: Output,
    /// The node that assigns it.
    pub assign: NodeId,
}

impl<'a> Appender<'a> {
    pub fn new(graph: &'a mut Graph, registry: &'a Registry, closed: &'a mut Closed) -> Appender<'a> {
        let (beside, readers) = (Vec::new(), HashMap::new());
        Appender { graph, closed, registry, beside, readers, kept: BTreeMap::new(), folded: Vec::new() }
    }

    /// A node of closed inputs, on the device of another one. Returns its output.
    ///
    /// # Errors
    /// INTERNAL where its value is not closed.
    pub fn closed(&mut self, op: &str, name: String, inputs: &[Output], attrs: &[(&str, AttrValue)], beside: NodeId) -> Result<Output> {
        let node = self.add(op, name, inputs, attrs, beside)?;
        let value = infer(self.registry, self.graph.node(node), |input| self.closed.get(input.node));
        if value.is_none() {
            return Err(Error::internal(format!("{op} of closed tensors is not closed")).at_node(&self.graph.node(node).name));
        }
        self.closed.push(value);
        Ok(Output { node, index: 0 })
    }

    /// A node that feeds may decide about. Returns its output.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where an attribute is missing.
    pub fn open(&mut self, op: &str, name: String, inputs: &[Output], attrs: &[(&str, AttrValue)], beside: NodeId) -> Result<Output> {
        let node = self.add(op, name, inputs, attrs, beside)?;
        self.closed.push(None);
        Ok(Output { node, index: 0 })
    }

    fn add(&mut self, op: &str, name: String, inputs: &[Output], attrs: &[(&str, AttrValue)], beside: NodeId) -> Result<NodeId> {
        let mut attrs: Attrs = attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        self.registry.table().require(op)?.fill_defaults(&mut attrs)?;
        attrs.insert(ADDED.to_string(), AttrValue::Bool(true));
        let mut free = name.clone();
        for number in 1.. {
            if self.graph.find(&free).is_none() {
                break;
            }
            free = format!("{name}_{number}");
        }
        let id = self.graph.add(Node { name: free, op: op.to_string(), inputs: inputs.to_vec(), attrs, ..Node::default() })?;
        self.beside.push((id, beside));
        Ok(id)
    }

    /// A folded variable that holds a closed tensor. Returns its value.
    ///
    /// # Errors
    /// INTERNAL where the tensor is not closed.
    pub fn keep(&mut self, tensor: Output, name: String, beside: NodeId) -> Result<Output> {
        if let Some(kept) = self.kept.get(&tensor) {
            return Ok(kept.read);
        }
        let value = self.closed.get(tensor.node).and_then(|value| Some((value.facts.get(tensor.index as usize)?, &value.sources)));
        let (fact, sources) = value.ok_or_else(|| Error::internal(format!("{name} is not known beforehand")))?;
        let (data_type, shape) = (fact.data_type, fact.shape.clone());
        let (source_bytes, sources) = (sources.values().sum(), sources.keys().cloned().collect());
        let dtype = ("dtype", AttrValue::data_type(data_type));
        let own = [dtype.clone(), ("shape", AttrValue::Shape(shape)), ("container", AttrValue::text(CONTAINER))];
        let handle = self.open("VarHandleOp", name.clone(), &[], &own, beside)?;
        let assign = self.open("AssignVariableOp", format!("{name}/Assign"), &[handle, tensor], std::slice::from_ref(&dtype), beside)?.node;
        let read = self.open("ReadVariableOp", format!("{name}/Read"), &[handle], &[dtype], beside)?;
        self.readers.insert(read.node, self.folded.len());
        let (key, assigned_by) = (variable_key(self.graph.node(handle.node)), self.graph.node(assign).name.clone());
        self.folded.push(Folded { key, assign: assigned_by, sources, source_bytes });
        self.kept.insert(tensor, Kept { read, assign });
        Ok(read)
    }
}
