//! The contents of files: graphs, options, saved models, checkpoints, arrays. Wire to our structs and back, without loss.
//!
//! Nothing here trusts a byte. A file that makes no sense is an error that names the place. Time and memory are a small multiple of
//! the file's size.
#![forbid(unsafe_code)]

mod attr_value;
pub mod bundle;
mod config;
mod elements;
mod file;
mod flaw;
mod foreign;
mod graph_def;
mod message;
pub mod npy;
mod object_graph;
mod options;
mod saved_model;
mod schema;
mod tensor_proto;
mod text;
mod wire;

pub use config::{
    ConfigProto, GpuExperimental, GpuOptions, GraphOptions, OptimizerOptions, RunOptions, ThreadPoolOptionProto, VirtualDevices,
    print_config, read_config, read_run_options, write_config, write_run_options,
};
pub use file::{Format, print_graph_def, read_graph_def, stream_graph_def, write_graph_def};
pub use foreign::{Foreign, LOOKED_AT};
pub use object_graph::{
    OBJECT_GRAPH_KEY, ObjectReference, SavedConcreteFunction, SavedObject, SavedObjectGraph, SavedVariable, SerializedTensor,
    SlotVariableReference, TrackableObject, TrackableObjectGraph, read_object_graph,
};
pub use options::{apply_config, to_options};
pub use saved_model::{
    AssetFileDef, BytesList, CollectionDef, DEFAULT_SIGNATURE, INIT_OP, MetaGraphDef, MetaInfoDef, NodeList, SERVE, SaveSliceInfoDef,
    SavedModel, SaverDef, SignatureDef, TensorInfo, VariableDef, is_meta_graph, parse_saved_model, read_meta_graph, read_saved_model,
    variables_prefix, write_saved_model,
};
pub use tensor_proto::{Dim, TensorShapeProto};
