//! An operator graph as published with "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).

use std::collections::HashMap;

use plimsoll_placer::{Choices, Device};
use serde_json::Value;

/// A node.
#[derive(Clone)]
pub struct Node {
    pub id: u64,
    /// Time on the host and on an accelerator.
    pub seconds: [f64; 2],
    /// Bytes on an accelerator.
    pub bytes: f64,
    /// Of moving its output between an accelerator and the host.
    pub moving: f64,
    /// Whether an accelerator can run it.
    pub can_accelerate: bool,
    /// The part that it belongs to: nodes of a class are one part.
    pub part: usize,
    /// Nodes that read its output, and that it reads, each once.
    pub readers: Vec<usize>,
    pub reads: Vec<usize>,
}

/// The graph, nodes after those that they read.
pub struct Instance {
    pub nodes: Vec<Node>,
    pub parts: usize,
    /// Cores of the host.
    pub cores: f64,
    /// Accelerators, and the bytes that each holds.
    pub accelerators: usize,
    pub limit: f64,
    /// Parts that exchange values with a part.
    pub beside: Vec<Vec<u32>>,
    /// The devices of a part: the host is 0.
    pub choices: Choices,
}

impl Instance {
    pub fn parse(text: &str) -> Result<Instance, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let list = |name: &str| json[name].as_array().cloned().ok_or_else(|| format!("no list {name}"));
        let number = |value: &Value, name: &str| value[name].as_f64().ok_or_else(|| format!("{value} has no number {name}"));
        let id = |value: &Value, name: &str| value[name].as_u64().ok_or_else(|| format!("{value} has no {name}"));
        let can = |value: &Value| match &value["supportedOnFpga"] {
            Value::Bool(can) => *can,
            other => other.as_f64() != Some(0.0),
        };
        let (written, edges) = (list("nodes")?, list("edges")?);
        let mut position: HashMap<u64, usize> = HashMap::new();
        for (index, node) in written.iter().enumerate() {
            if position.insert(id(node, "id")?, index).is_some() {
                return Err(format!("node {} is there twice", node["id"]));
            }
        }
        let find = |edge: &Value, name: &str| {
            let node = id(edge, name)?;
            position.get(&node).copied().ok_or_else(|| format!("an edge names node {node}, which is not there"))
        };
        let (mut readers, mut moving) = (vec![Vec::new(); written.len()], vec![0.0; written.len()]);
        let mut waiting = vec![0; written.len()];
        for edge in &edges {
            let (from, to) = (find(edge, "sourceId")?, find(edge, "destId")?);
            moving[from] = number(edge, "cost")?;
            if !readers[from].contains(&to) {
                readers[from].push(to);
                waiting[to] += 1;
            }
        }
        let mut order: Vec<usize> = (0..written.len()).filter(|node| waiting[*node] == 0).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &reader in &readers[node] {
                waiting[reader] -= 1;
                if waiting[reader] == 0 {
                    order.push(reader);
                }
            }
        }
        if order.len() != written.len() {
            return Err("the graph has a cycle".into());
        }
        let mut at = vec![0; written.len()];
        order.iter().enumerate().for_each(|(index, node)| at[*node] = index);
        let mut parts: HashMap<u64, usize> = HashMap::new();
        let mut nodes = Vec::new();
        let mut count = 0;
        for &node in &order {
            let value = &written[node];
            let part = match value["colorClass"].as_u64() {
                Some(class) => *parts.entry(class).or_insert(count),
                None => count,
            };
            count = count.max(part + 1);
            nodes.push(Node {
                id: id(value, "id")?,
                seconds: [number(value, "cpuLatency")?, number(value, "fpgaLatency")?],
                bytes: value["size"].as_f64().unwrap_or(0.0),
                moving: moving[node],
                can_accelerate: can(value),
                part,
                readers: readers[node].iter().map(|reader| at[*reader]).collect(),
                reads: Vec::new(),
            });
        }
        let mut beside = vec![Vec::new(); count];
        for from in 0..nodes.len() {
            for to in nodes[from].readers.clone() {
                nodes[to].reads.push(from);
                let (one, other) = (nodes[from].part, nodes[to].part);
                for (one, other) in [(one, other), (other, one)] {
                    if one != other && !beside[one].contains(&(other as u32)) {
                        beside[one].push(other as u32);
                    }
                }
            }
        }
        let accelerators = id(&json, "maxFPGAs")? as usize;
        let mut choices: Vec<Vec<Device>> = vec![(0..=accelerators as Device).collect(); count];
        nodes.iter().filter(|node| !node.can_accelerate).for_each(|node| choices[node.part] = vec![0]);
        let cores = json["maxCPUs"].as_f64().unwrap_or(1.0).max(1.0);
        Ok(Instance {
            cores,
            nodes,
            parts: count,
            accelerators,
            limit: number(&json, "maxSizePerFPGA")?,
            beside,
            choices: Choices::new(choices),
        })
    }
}
