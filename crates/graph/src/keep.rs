//! The part of a graph that some of its nodes need.

use std::collections::HashMap;

use crate::{GraphDef, InputRef};

impl GraphDef {
    /// Lets go of all nodes but `roots` and those that they need, directly or through others, and of functions that no node calls
    /// then. The order stays. Where a root is not there, nothing changes, and the result is false.
    ///
    /// ```
    /// # use plimsoll_graph::{GraphDef, NodeDef};
    /// let node = |name: &str, input: &str| NodeDef { name: name.into(), inputs: vec![input.into()], ..NodeDef::default() };
    /// let mut graph = GraphDef { nodes: vec![node("a", "c:1"), node("b", "a"), node("c", "^d"), node("d", "d")], ..GraphDef::default() };
    /// assert!(!graph.keep(&["a", "e"]));
    /// assert!(graph.keep(&["a"]));
    /// assert_eq!(graph.nodes.iter().map(|node| node.name.as_str()).collect::<String>(), "acd");
    /// ```
    pub fn keep(&mut self, roots: &[&str]) -> bool {
        let by_name: HashMap<&str, usize> = self.nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
        let Some(mut open) = roots.iter().map(|root| by_name.get(root).copied()).collect::<Option<Vec<usize>>>() else { return false };
        let mut is_kept = vec![false; self.nodes.len()];
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut is_kept[index], true) {
                continue;
            }
            // An input that makes no sense is said when the graph is resolved.
            let inputs = self.nodes[index].inputs.iter().filter_map(|input| InputRef::parse(input).ok());
            let sources = inputs.map(|input| match input {
                InputRef::Data { node, .. } | InputRef::Control(node) => node,
            });
            open.extend(sources.filter_map(|source| by_name.get(source)));
        }
        let mut kept = is_kept.into_iter();
        self.nodes.retain(|_| kept.next().unwrap_or(true));
        self.nodes.shrink_to_fit();
        self.library.retain_called(self.nodes.iter().map(|node| (node.op.as_str(), &node.attrs)));
        true
    }
}
