//! Variables whose shape the graph leaves open: they have that of their value in files, so that plans know their bytes.

use std::collections::{BTreeMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, AttrsExt, Graph, Node, NodeId, Shape};
use plimsoll_ops::variable::OPEN_SHAPE;
use plimsoll_plan::variable_key;

use crate::stored::Stored;

/// Gives variables of open shape that of their value in files, where the graph allows it. What assigns to them is marked: it may give
/// them no other shape.
///
/// # Errors
/// The flaw of the files.
pub(super) fn settle(graph: &mut Graph, stored: &dyn Stored) -> Result<()> {
    let open: Vec<NodeId> = graph.nodes().iter().filter(|(_, node)| is_open(node)).map(|(id, _)| id).collect();
    if open.is_empty() {
        return Ok(());
    }
    let shapes: BTreeMap<String, Shape> = stored.variables()?.into_iter().map(|variable| (variable.key, variable.shape)).collect();
    let mut settled: HashSet<NodeId> = HashSet::new();
    for id in open {
        let node = graph.node(id);
        let Some(shape) = shapes.get(&variable_key(node)) else { continue };
        if node.attrs.shape("shape").is_ok_and(|declared| declared.admits(shape)) {
            graph.node_mut(id).attrs.insert("shape".to_string(), AttrValue::Shape(shape.into()));
            settled.insert(id);
        }
    }
    let assigns = |node: &Node| {
        let handle = node.inputs.first().filter(|_| node.op.starts_with("Assign"));
        handle.is_some_and(|handle| settled.contains(&behind(graph, handle.node)))
    };
    let marked: Vec<NodeId> = graph.nodes().iter().filter(|(_, node)| assigns(node)).map(|(id, _)| id).collect();
    for id in marked {
        graph.node_mut(id).attrs.insert(OPEN_SHAPE.to_string(), AttrValue::Bool(true));
    }
    Ok(())
}

fn is_open(node: &Node) -> bool {
    matches!(node.op.as_str(), "VarHandleOp" | "VariableV2" | "Variable")
        && node.attrs.shape("shape").is_ok_and(|shape| shape.complete().is_none())
}

/// The node that a handle comes from, through nodes that pass it on.
fn behind(graph: &Graph, mut id: NodeId) -> NodeId {
    for _ in 0..graph.nodes().len() {
        let node = graph.node(id);
        match node.inputs.first() {
            Some(input) if matches!(node.op.as_str(), "Identity" | "RefIdentity") => id = input.node,
            _ => break,
        }
    }
    id
}
