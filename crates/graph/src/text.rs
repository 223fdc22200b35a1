//! The graph as text for people and tests: one line a node.

use std::fmt;

use crate::{Graph, Node};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes().values().try_for_each(|node| write_node(f, self, node))
    }
}

/// `name = Op(input, other:1) {T=float} @/cpu:0 ^control`
fn write_node(f: &mut fmt::Formatter<'_>, graph: &Graph, node: &Node) -> fmt::Result {
    write!(f, "{} = {}(", node.name, node.op)?;
    for (position, input) in node.inputs.iter().enumerate() {
        let separator = if position > 0 { ", " } else { "" };
        match input.index {
            0 => write!(f, "{separator}{}", graph.node(input.node).name)?,
            index => write!(f, "{separator}{}:{index}", graph.node(input.node).name)?,
        }
    }
    f.write_str(")")?;
    for (position, (name, value)) in node.attrs.iter().enumerate() {
        write!(f, "{}{name}={value}", if position > 0 { ", " } else { " {" })?;
    }
    if !node.attrs.is_empty() {
        f.write_str("}")?;
    }
    if !node.device.is_empty() {
        write!(f, " @{}", node.device)?;
    }
    for control in &node.controls {
        write!(f, " ^{}", graph.node(*control).name)?;
    }
    writeln!(f)
}
