//! What of a model's preparation a run needs: tables and variables that the run does not use are not initialised, so they need
//! neither rules nor memory.

use std::collections::HashSet;

use plimsoll_graph::{Graph, Node, NodeId};
use plimsoll_ops::Registry;
use plimsoll_plan::{node_of, variable_key};

/// The operations of `preparation` that a run of these nodes needs. An operation that only holds others together is taken apart if
/// some of its parts are not needed. With `registry`, parts with operations that
/// have no rule are left out: a run that needs them fails by itself.
pub(crate) fn needed(graph: &Graph, preparation: &[String], wanted: &[&str], registry: Option<&Registry>) -> Vec<String> {
    let roots: Vec<NodeId> = preparation.iter().filter_map(|name| graph.find(node_of(name))).collect();
    let parts: Vec<Part> = leaves(graph, roots).into_iter().map(|leaf| Part::new(graph, leaf)).collect();
    let used = above(graph, wanted.iter().filter_map(|name| graph.find(node_of(name))).collect());
    let mut resources: HashSet<String> = used.iter().filter_map(|node| resource(graph.node(*node))).collect();
    let has_rules =
        |part: &Part| registry.is_none_or(|registry| part.nodes.iter().all(|node| registry.get(&graph.node(*node).op).is_some()));
    let mut kept = vec![false; parts.len()];
    // A part that is needed may read what another part writes.
    loop {
        let before = kept.clone();
        for (part, kept) in parts.iter().zip(&mut kept) {
            if !*kept && has_rules(part) && (part.resources.is_empty() || part.resources.iter().any(|name| resources.contains(name))) {
                *kept = true;
                resources.extend(part.resources.iter().cloned());
            }
        }
        if kept == before {
            break;
        }
    }
    if kept.iter().all(|kept| *kept) {
        return preparation.to_vec();
    }
    parts.iter().zip(kept).filter(|(_, kept)| *kept).map(|(part, _)| graph.node(part.leaf).name.clone()).collect()
}

/// An operation with an effect, and all that it needs.
struct Part {
    leaf: NodeId,
    nodes: Vec<NodeId>,
    /// The variables and tables among these.
    resources: HashSet<String>,
}

impl Part {
    fn new(graph: &Graph, leaf: NodeId) -> Part {
        let nodes = above(graph, vec![leaf]);
        let resources = nodes.iter().filter_map(|node| resource(graph.node(*node))).collect();
        Part { leaf, nodes, resources }
    }
}

/// The operations above these that do more than read files and hold others together, in the order of the graph. What one of them
/// computes with is its own.
pub(crate) fn leaves(graph: &Graph, roots: Vec<NodeId>) -> Vec<NodeId> {
    let (mut leaves, mut seen, mut stack) = (Vec::new(), HashSet::new(), roots);
    while let Some(id) = stack.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = graph.node(id);
        stack.extend(node.controls.iter().copied());
        match node.op.as_str() {
            "NoOp"
            | "Identity"
            | "IdentityN"
            | "Const"
            | "Placeholder"
            | "PlaceholderWithDefault"
            | "RestoreV2"
            | "Restore"
            | "RestoreSlice"
            | "VarHandleOp"
            | "VariableV2"
            | "Variable" => stack.extend(node.inputs.iter().map(|input| input.node)),
            _ => leaves.push(id),
        }
    }
    leaves.sort_unstable();
    leaves
}

/// These nodes and all that they need.
fn above(graph: &Graph, roots: Vec<NodeId>) -> Vec<NodeId> {
    let (mut nodes, mut seen, mut stack) = (Vec::new(), HashSet::new(), roots);
    while let Some(id) = stack.pop() {
        if seen.insert(id) {
            nodes.push(id);
            let node = graph.node(id);
            stack.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
        }
    }
    nodes
}

/// The name of the variable, table or other state that a node is a handle of.
fn resource(node: &Node) -> Option<String> {
    let is_handle = match node.op.as_str() {
        "VariableV2" | "Variable" | "VarHandleOp" => true,
        "MutableDenseHashTable" | "MutableDenseHashTableV2" => true,
        op => node.inputs.is_empty() && ["Table", "TableV2", "Handle", "HandleOp", "HandleV2"].iter().any(|end| op.ends_with(end)),
    };
    is_handle.then(|| variable_key(node))
}
