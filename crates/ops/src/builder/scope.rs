//! Scopes: the common parts of all nodes made inside.

use std::collections::HashSet;

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceName;
use plimsoll_graph::{Graph, Node, NodeId, Output};

use super::GraphBuilder;

/// Everything that a closure of the builder changes and that is as it was when the closure returns.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The name scope, without the slash at the end; empty at the root.
    pub(super) name: String,
    /// The device, every part that is said so far; or why the text of a scope is none.
    pub(super) device: Result<DeviceName>,
    /// Indices of the controllers in force.
    pub(super) controllers: Vec<usize>,
    /// The nodes that nodes made inside are placed with, the innermost last.
    pub(super) colocation: Vec<Colocation>,
}

impl Default for Scope {
    fn default() -> Scope {
        Scope { name: String::new(), device: Ok(DeviceName::default()), controllers: Vec::new(), colocation: Vec::new() }
    }
}

/// The node that another is placed with.
#[derive(Clone, Debug)]
pub(super) struct Colocation {
    /// Groups: `loc:@name`.
    pub(super) classes: Vec<String>,
    /// The device that comes with them; empty for none.
    pub(super) device: String,
}

/// Nodes that have to have run before those of a scope.
#[derive(Debug)]
pub(super) struct Controller {
    nodes: Vec<NodeId>,
    /// Nodes made in the scope: a node with an input from them needs no edge of its own.
    inside: HashSet<NodeId>,
}

/// The scopes around at one time, to come back to: see [`GraphBuilder::scopes`].
#[derive(Clone, Debug, Default)]
pub struct Scopes(Scope);

/// Scopes for front ends that open and close them by hand, as Python's `with` does. Each `enter` opens one more inside of those
/// at hand; [`GraphBuilder::set_scopes`] closes it.
impl GraphBuilder {
    /// The scopes at hand.
    pub fn scopes(&self) -> Scopes {
        Scopes(self.scope.clone())
    }

    /// Comes back to scopes of this builder.
    pub fn set_scopes(&mut self, scopes: Scopes) {
        self.scope = scopes.0;
    }

    /// Opens a name scope, as [`GraphBuilder::name_scope`] does. Its name, without a slash at the end.
    pub fn enter_name_scope(&mut self, name: &str) -> &str {
        self.scope.name = match name.strip_suffix('/') {
            Some(absolute) => absolute.to_string(),
            None if name.is_empty() => String::new(),
            None => self.unique_name(name),
        };
        &self.scope.name
    }

    /// Opens a device scope, as [`GraphBuilder::device`] does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a text that is no device name; the scopes are as they were.
    pub fn enter_device(&mut self, device: &str) -> Result<()> {
        self.scope.device = Ok(overlay(self.scope.device.clone()?, &parse_device(device)?));
        Ok(())
    }

    /// Opens a scope without a device, as [`GraphBuilder::no_device`] does.
    pub fn enter_no_device(&mut self) {
        self.scope.device = Ok(DeviceName::default());
    }

    /// Opens a scope of control dependencies, as [`GraphBuilder::control_dependencies`] does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a node of another graph.
    pub fn enter_control_dependencies(&mut self, nodes: &[NodeId]) -> Result<()> {
        nodes.iter().try_for_each(|node| self.check_node(*node))?;
        self.scope.controllers.push(self.controllers.len());
        self.controllers.push(Controller { nodes: nodes.to_vec(), inside: HashSet::new() });
        Ok(())
    }

    /// Opens a scope without control dependencies, as [`GraphBuilder::no_control_dependencies`] does.
    pub fn enter_no_control_dependencies(&mut self) {
        self.scope.controllers.clear();
    }

    /// Opens a scope whose nodes are placed where `node` is, as [`GraphBuilder::colocate_with`] does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a node of another graph.
    pub fn enter_colocation(&mut self, node: NodeId) -> Result<()> {
        self.check_node(node)?;
        let colocation = self.colocation_of(node);
        self.scope.device = Ok(DeviceName::default());
        self.scope.colocation.push(colocation);
        Ok(())
    }

    /// Opens a scope without colocation.
    pub fn enter_no_colocation(&mut self) {
        self.scope.colocation.clear();
    }

    /// Opens a scope whose nodes are placed with the node of that name, which is yet to be made.
    pub fn enter_colocation_with_new(&mut self, name: &str) {
        self.scope.device = Ok(DeviceName::default());
        self.scope.colocation.push(Colocation { classes: vec![format!("loc:@{name}")], device: String::new() });
    }

    /// Asks for a device for a node that is there already, as a device function of TensorFlow 1 does.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a text that is no device name, and for a node of another graph.
    pub fn set_device(&mut self, node: NodeId, device: &str) -> Result<()> {
        self.check_node(node)?;
        self.graph.node_mut(node).device = parse_device(device)?.to_string();
        Ok(())
    }

    /// Closes a loop of TensorFlow 1's: the second input of a Merge becomes what a NextIteration gives, which is made after it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for other nodes, another type, and a shape that the Merge's result cannot have.
    pub fn close_loop(&mut self, merge: NodeId, next: NodeId) -> Result<()> {
        self.check_node(merge)?;
        self.check_node(next)?;
        let (Node { op, inputs, .. }, from) = (self.node(merge), &self.node(next).op);
        if !matches!(op.as_str(), "Merge" | "RefMerge")
            || inputs.len() != 2
            || !matches!(from.as_str(), "NextIteration" | "RefNextIteration")
        {
            return Err(Error::invalid_argument(format!("a loop goes from a NextIteration to a Merge of two, not from {from} to {op}")));
        }
        let (value, merged) = (Output { node: next, index: 0 }, Output { node: merge, index: 0 });
        let (given, wanted) = (self.fact(value), self.fact(merged));
        let fits = given.data_type == wanted.data_type && crate::infer::merge_shapes(&given.shape, &wanted.shape).is_ok();
        if !fits {
            let text = format!(
                "an iteration gives {}{} where {}{} goes into the next",
                given.data_type, given.shape, wanted.data_type, wanted.shape
            );
            return Err(Error::invalid_argument(text).at_node(&self.node(merge).name));
        }
        self.graph.node_mut(merge).inputs[1] = value;
        Ok(())
    }
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
        let before = self.scopes();
        self.enter_name_scope(name);
        let result = body(self);
        self.set_scopes(before);
        result
    }

    /// The name scope, without a slash at the end; empty at the root.
    pub fn current_name_scope(&self) -> &str {
        &self.scope.name
    }

    /// A name for a node that is not taken, under the name scope. It is taken now.
    pub fn unique_name(&mut self, name: &str) -> String {
        if self.scope.name.is_empty() { self.names.unique(name) } else { self.names.unique(&format!("{}/{name}", self.scope.name)) }
    }

    /// Nodes made in `body` ask for this device (`/gpu:0`, `gpu:0`, `/job:worker/task:1`). Parts that it does not name are the
    /// outer scope's. A text that is no device name is an error of every node made inside.
    pub fn device<R>(&mut self, device: &str, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let device = parse_device(device).and_then(|inner| Ok(overlay(self.scope.device.clone()?, &inner)));
        self.scoped(|scope| scope.device = device, body)
    }

    /// Nodes made in `body` ask for no device, whatever the scopes around say.
    pub fn no_device<R>(&mut self, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        self.scoped(|scope| scope.device = Ok(DeviceName::default()), body)
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

    /// Nodes made in `body` are placed where `node` is: they name its groups in `_class` and ask for its device.
    /// Device scopes around do not count inside. The node must be of this builder's graph.
    pub fn colocate_with<R>(&mut self, node: NodeId, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        let colocation = self.colocation_of(node);
        self.colocate(colocation, body)
    }

    pub(super) fn colocate<R>(&mut self, colocation: Colocation, body: impl FnOnce(&mut GraphBuilder) -> R) -> R {
        self.scoped(
            |scope| {
                scope.device = Ok(DeviceName::default());
                scope.colocation.push(colocation);
            },
            body,
        )
    }

    /// The meaning of being placed with a node.
    pub(super) fn colocation_of(&self, node: NodeId) -> Colocation {
        Colocation { classes: classes_of(&self.graph, node), device: self.node(node).device.clone() }
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

    /// The groups (`loc:@name`, sorted) and the device of a node made here that is also placed with `references`, the nodes
    /// whose variables it changes.
    pub(super) fn placement_here(&self, references: &[NodeId], said: &str) -> Result<(Vec<String>, String)> {
        let references = references.iter().map(|node| self.colocation_of(*node));
        let colocations: Vec<Colocation> = self.scope.colocation.iter().cloned().chain(references).collect();
        let mut classes: Vec<String> = colocations.iter().flat_map(|colocation| colocation.classes.iter().cloned()).collect();
        classes.sort();
        classes.dedup();
        let around = if colocations.len() > self.scope.colocation.len() { Ok(DeviceName::default()) } else { self.scope.device.clone() };
        let around = match colocations.iter().rev().find(|colocation| !colocation.device.is_empty()) {
            Some(colocation) => parse_device(&colocation.device),
            None => around,
        };
        Ok((classes, overlay(around?, &parse_device(said)?).to_string()))
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

pub(super) fn parse_device(text: &str) -> Result<DeviceName> {
    DeviceName::parse_python(text).or_else(|_| DeviceName::parse_full_or_local(text))
}

fn overlay(mut outer: DeviceName, inner: &DeviceName) -> DeviceName {
    outer.overlay(inner);
    outer
}
