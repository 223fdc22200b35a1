//! The variables that signatures of a SavedModel are called with, as objects of the model. A Keras variable is saved as a copy, and several
//! may have one name. Which tensor of the files belongs to a handle, the objects alone say for certain.

use std::collections::BTreeMap;

use plimsoll_formats::{SavedObjectGraph, TrackableObjectGraph};
use plimsoll_graph::{AttrValue, GraphDef};

/// Variables that calls hand over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handles {
    /// For each object the objects that it holds, by name.
    children: Vec<Vec<(String, usize)>>,
    /// Variables by the nodes that give their handles.
    variables: BTreeMap<String, usize>,
}

impl Handles {
    /// Those of a graph with the objects of its model. The last arguments of a call are the objects that its function binds.
    pub fn new(graph: &GraphDef, objects: &SavedObjectGraph) -> Handles {
        let is_variable = |object: usize| objects.nodes.get(object).is_some_and(|object| object.variable.is_some());
        let mut variables = BTreeMap::new();
        for node in &graph.nodes {
            let Some(AttrValue::Func(function)) = node.attrs.get("f") else { continue };
            let Some(function) = objects.concrete_functions.get(&function.name) else { continue };
            let arguments: Vec<&String> = node.inputs.iter().filter(|input| !input.starts_with('^')).collect();
            let Some(unbound) = arguments.len().checked_sub(function.bound_inputs.len()) else { continue };
            for (argument, object) in arguments[unbound..].iter().zip(&function.bound_inputs) {
                if let Some(object) = usize::try_from(*object).ok().filter(|object| is_variable(*object)) {
                    variables.insert(argument.to_string(), object);
                }
            }
        }
        if variables.is_empty() {
            return Handles::default();
        }
        let child = |id: i32, name: &String| Some((name.clone(), usize::try_from(id).ok()?));
        let of = |object: &plimsoll_formats::SavedObject| {
            object.children.iter().filter_map(|held| child(held.node_id, &held.local_name)).collect::<Vec<_>>()
        };
        Handles { children: objects.nodes.iter().map(of).collect(), variables }
    }

    /// Where a checkpoint with the same objects has the values of these variables: keys by nodes. Objects are the same that are held under
    /// the same names, from the model on.
    pub fn keys(&self, checkpoint: &TrackableObjectGraph) -> BTreeMap<&str, String> {
        if self.variables.is_empty() {
            return BTreeMap::new();
        }
        let mut there: Vec<Option<usize>> = vec![None; self.children.len()];
        let mut open = vec![(0, 0)];
        while let Some((object, other)) = open.pop() {
            let (Some(known), Some(node)) = (there.get_mut(object), checkpoint.nodes.get(other)) else { continue };
            if known.replace(other).is_some() {
                continue;
            }
            let held: BTreeMap<&str, i32> = node.children.iter().map(|child| (child.local_name.as_str(), child.node_id)).collect();
            let same = |(name, id): &(String, usize)| Some((*id, usize::try_from(*held.get(name.as_str())?).ok()?));
            open.extend(self.children[object].iter().filter_map(same));
        }
        let key = |object: usize| {
            let attributes = &checkpoint.nodes[(*there.get(object)?)?].attributes;
            let value = attributes.iter().find(|tensor| tensor.name == "VARIABLE_VALUE")?;
            Some(value.checkpoint_key.clone())
        };
        self.variables.iter().filter_map(|(node, object)| Some((node.as_str(), key(*object)?))).collect()
    }
}
