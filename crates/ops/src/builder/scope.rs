//! Scopes: what all nodes made inside have in common.

use std::collections::HashSet;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Graph, NodeId};

use super::GraphBuilder;

/// Everything that a closure of the builder changes and that is as it was when the closure returns.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// The name scope, without the slash at the end; empty at the root.
    pub(super) name: String,
    /// The device, every part that is said so far; empty for none.
    pub(super) device: String,
    /// Indices of the controllers in force.
    pub(super) controllers: Vec<usize>,
    /// Nodes that those made inside are placed with, the innermost last.
    pub(super) colocation: Vec<NodeId>,
}

/// Nodes that have to have run before those of a scope.
#[derive(Debug)]
pub(super) struct Controller {
    nodes: Vec<NodeId>,
    /// Nodes made in the scope: what takes an input from them needs no edge of its own.
    inside: HashSet<NodeId>,
}

impl GraphBuilder {
    /// Runs `body` in a changed scope and restores the scope.
    pub(super) fn scoped<R>(&mut self, change: impl FnOnce(&mut Scope), body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let before = self.scope.clone();
        change(&mut self.scope);
        let result = body(self);
        self.scope = before;
        result
    }

    /// Nodes made in `body` are named `scope/name`; scopes nest, and each entry is unique (`scope`, `scope_1`).
    /// A name that ends with `/` is entered again as it is, from the root; an empty name is the root.
    pub fn name_scope<R>(&mut self, name: &str, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let entered = match name.strip_suffix('/') {
            Some(absolute) => absolute.to_string(),
            None if name.is_empty() => String::new(),
            None => self.unique_name(name),
        };
        self.scoped(|scope| scope.name = entered, body)
    }

    /// The name scope, without a slash at the end; empty at the root.
    pub fn current_name_scope(&self) -> &str {
        &self.scope.name
    }

    /// A name for a node that is not taken, under the name scope. It is taken now.
    pub fn unique_name(&mut self, name: &str) -> String {
        if self.scope.name.is_empty() { self.names.unique(name) } else { self.names.unique(&format!("{}/{name}", self.scope.name)) }
    }

    /// Nodes made in `body` ask for this device. Parts that it does not name are the outer scope's.
    /// A text that is no device name is an error of every node made inside.
    pub fn device<R>(&mut self, device: &str, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        // A malformed name cannot be reported from here; it stays as it is, and making a node reports it.
        let merged = merge_devices(&self.scope.device, device).unwrap_or_else(|_| device.to_string());
        self.scoped(|scope| scope.device = merged, body)
    }

    /// Nodes made in `body` ask for no device, whatever the scopes around say.
    pub fn no_device<R>(&mut self, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        self.scoped(|scope| scope.device.clear(), body)
    }

    /// The device that a node made here asks for; empty for none.
    pub fn current_device(&self) -> &str {
        &self.scope.device
    }

    /// Nodes made in `body` run after these nodes (and after those of the scopes around).
    pub fn control_dependencies<R>(&mut self, nodes: &[NodeId], body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let index = self.controllers.len();
        self.controllers.push(Controller { nodes: nodes.to_vec(), inside: HashSet::new() });
        self.scoped(|scope| scope.controllers.push(index), body)
    }

    /// Nodes made in `body` run after nothing but their inputs, whatever the scopes around say.
    pub fn no_control_dependencies<R>(&mut self, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        self.scoped(|scope| scope.controllers.clear(), body)
    }

    /// Nodes made in `body` are placed where `node` is: they name it in `_class` and ask for its device.
    /// Device scopes around do not count inside.
    pub fn colocate_with<R>(&mut self, node: NodeId, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        self.scoped(
            |scope| {
                scope.device.clear();
                scope.colocation.push(node);
            },
            body,
        )
    }

    /// The control inputs of a new node: those said, and those of the scopes that its inputs are not inside of; sorted by name.
    pub(super) fn control_inputs(&self, said: &[NodeId], inputs: impl Iterator<Item = NodeId> + Clone) -> Vec<NodeId> {
        let mut controls: Vec<NodeId> = said.to_vec();
        for &index in &self.scope.controllers {
            let controller = &self.controllers[index];
            if !inputs.clone().any(|input| controller.inside.contains(&input)) {
                controls.extend(controller.nodes.iter().filter(|node| !inputs.clone().any(|input| input == **node)));
            }
        }
        sort_by_name(&self.graph, &mut controls);
        controls
    }

    /// The scopes remember the node.
    pub(super) fn record(&mut self, node: NodeId) {
        for &index in &self.scope.controllers {
            self.controllers[index].inside.insert(node);
        }
    }

    /// The groups that nodes made here belong to: `loc:@name`, sorted.
    pub(super) fn colocation_classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = self.scope.colocation.iter().flat_map(|node| classes_of(&self.graph, *node)).collect();
        classes.sort();
        classes.dedup();
        classes
    }

    /// The device of a node made here: that of the node it is placed with, else the scope's.
    pub(super) fn device_here(&self) -> Result<String> {
        let placed_with = self.scope.colocation.iter().rev().map(|node| &self.graph.node(*node).device).find(|device| !device.is_empty());
        match placed_with {
            Some(device) => merge_devices(device, &self.scope.device),
            None => merge_devices("", &self.scope.device),
        }
    }
}

/// The groups that a node belongs to; its own where it names none.
fn classes_of(graph: &Graph, node: NodeId) -> Vec<String> {
    let node = graph.node(node);
    let own = || vec![format!("loc:@{}", node.name)];
    let Some(plimsoll_graph::AttrValue::List(list)) = node.attrs.get("_class") else { return own() };
    let classes: Vec<String> =
        list.bytes.iter().filter_map(|class| String::from_utf8(class.clone()).ok()).filter(|class| class.starts_with("loc:@")).collect();
    if classes.is_empty() { own() } else { classes }
}

/// Sorts nodes by name, each once.
pub(super) fn sort_by_name(graph: &Graph, nodes: &mut Vec<NodeId>) {
    nodes.sort_by(|a, b| graph.node(*a).name.cmp(&graph.node(*b).name));
    nodes.dedup();
}

/// The parts of a device name: job, replica, task, and type with number.
type Parts = [Option<String>; 4];

/// `outer` with every part that `inner` says, in the form `/job:J/replica:R/task:T/device:GPU:0`.
///
/// # Errors
/// INVALID_ARGUMENT where one is no device name.
pub(super) fn merge_devices(outer: &str, inner: &str) -> Result<String> {
    let (mut parts, inner) = (parse_device(outer)?, parse_device(inner)?);
    for (part, said) in parts.iter_mut().zip(inner) {
        *part = said.or(part.take());
    }
    let names = ["/job:", "/replica:", "/task:", "/device:"];
    Ok(parts.iter().zip(names).filter_map(|(part, name)| part.as_ref().map(|part| format!("{name}{part}"))).collect())
}

fn parse_device(text: &str) -> Result<Parts> {
    let wrong = || Error::invalid_argument(format!("'{}' is no device name", text.escape_debug()));
    let mut parts = Parts::default();
    let number = |text: &str| text == "*" || (!text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit()));
    for part in text.split('/').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once(':').unwrap_or((part, "*"));
        match key.to_ascii_lowercase().as_str() {
            "job" => parts[0] = Some(value.to_string()),
            "replica" if number(value) => parts[1] = Some(value.to_string()),
            "task" if number(value) => parts[2] = Some(value.to_string()),
            "device" => {
                let (kind, index) = value.split_once(':').unwrap_or((value, "*"));
                if kind.is_empty() || !number(index) {
                    return Err(wrong());
                }
                parts[3] = Some(format!("{}:{index}", kind.to_ascii_uppercase()));
            }
            kind @ ("cpu" | "gpu") if number(value) => parts[3] = Some(format!("{}:{value}", kind.to_ascii_uppercase())),
            _ => return Err(wrong()),
        }
    }
    Ok(parts)
}
