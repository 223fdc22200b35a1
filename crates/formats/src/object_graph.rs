//! The objects of TensorFlow 2's models and checkpoints: which variables there are, and under which key a checkpoint holds them.

use std::collections::BTreeMap;

use plimsoll_base::Result;

use crate::file;
use crate::message::message;
use crate::tensor_proto::TensorShapeProto;

/// The key under which a TensorFlow 2 checkpoint holds its [`TrackableObjectGraph`], as a string tensor.
pub const OBJECT_GRAPH_KEY: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

message! {
    /// `tensorflow.SavedObjectGraph`: the objects of a SavedModel. The first is the model.
    pub struct SavedObjectGraph {
        /// Objects; others refer to them by position.
        1 nodes: Vec<SavedObject>,
        /// Functions by their name in the library.
        2 concrete_functions: BTreeMap<String, SavedConcreteFunction>,
    }
    /// `tensorflow.SavedObject`, as far as variables go.
    pub struct SavedObject {
        /// The objects that it holds, by name.
        1 children: Vec<ObjectReference>,
        /// Where it is an optimizer, its slots.
        3 slot_variables: Vec<SlotVariableReference>,
        /// Where it is a variable.
        7 variable: Option<SavedVariable>,
    }
    /// `tensorflow.SavedVariable`.
    pub struct SavedVariable {
        /// Its type, by the wire number.
        1 dtype: i32,
        /// Its shape.
        2 shape: Option<TensorShapeProto>,
        /// Whether training changes it.
        3 trainable: bool,
        /// Its name.
        6 name: String,
        /// The device that it asks for.
        7 device: String,
    }
    /// `tensorflow.SavedConcreteFunction`.
    pub struct SavedConcreteFunction {
        /// The objects that are its trailing arguments, in order.
        2 bound_inputs: Vec<i32>,
    }
    /// `tensorflow.TrackableObjectGraph`: the objects of a checkpoint.
    pub struct TrackableObjectGraph {
        /// Objects; others refer to them by position.
        1 nodes: Vec<TrackableObject>,
    }
    /// `tensorflow.TrackableObjectGraph.TrackableObject`.
    pub struct TrackableObject {
        /// The objects that it holds, by name.
        1 children: Vec<ObjectReference>,
        /// The tensors that it saves.
        2 attributes: Vec<SerializedTensor>,
        /// Where it is an optimizer, its slots.
        3 slot_variables: Vec<SlotVariableReference>,
    }
    /// `tensorflow.TrackableObjectGraph.TrackableObject.ObjectReference`.
    pub struct ObjectReference {
        /// The object, by position.
        1 node_id: i32,
        /// Its name in the object that holds it.
        2 local_name: String,
    }
    /// `tensorflow.TrackableObjectGraph.TrackableObject.SerializedTensor`.
    pub struct SerializedTensor {
        /// `VARIABLE_VALUE` for a variable.
        1 name: String,
        /// The name that TensorFlow 1 would give it.
        2 full_name: String,
        /// The key in the checkpoint.
        3 checkpoint_key: String,
    }
    /// `tensorflow.TrackableObjectGraph.TrackableObject.SlotVariableReference`.
    pub struct SlotVariableReference {
        /// The variable that has the slot, by position.
        1 original_variable_node_id: i32,
        /// `momentum`, `m`.
        2 slot_name: String,
        /// The slot, by position.
        3 slot_variable_node_id: i32,
    }
}

impl TrackableObjectGraph {
    /// The keys of variables by the names that TensorFlow 1 would give them, of those that the checkpoint `has`. A name of several
    /// variables is left out.
    pub fn keys_by_name(&self, has: impl Fn(&str) -> bool) -> BTreeMap<&str, &str> {
        let mut keys: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for SerializedTensor { full_name, checkpoint_key, .. } in self.nodes.iter().flat_map(|object| &object.attributes) {
            if full_name.is_empty() || !has(checkpoint_key) {
                continue;
            }
            keys.entry(full_name).or_insert(Some(checkpoint_key)).take_if(|known| known != checkpoint_key);
        }
        keys.into_iter().filter_map(|(name, key)| Some((name, key?))).collect()
    }
}

/// Reads the objects of a checkpoint (the one string of the tensor under [`OBJECT_GRAPH_KEY`]).
///
/// # Errors
/// As [`crate::read_graph_def`].
pub fn read_object_graph(bytes: &[u8]) -> Result<TrackableObjectGraph> {
    file::read("TrackableObjectGraph", bytes)
}
