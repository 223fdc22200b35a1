//! SavedModel folders: `saved_model.pb` or `.pbtxt`, with `variables/` and `assets/` beside it. Only read here; another crate runs
//! its operations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_base::{Error, Result};
use plimsoll_graph::GraphDef;

use crate::file;
use crate::message::{encode, message};
use crate::object_graph::SavedObjectGraph;
use crate::tensor_proto::TensorShapeProto;

/// The tag of graphs that serve.
pub const SERVE: &str = "serve";
/// The signature that serves where none is named.
pub const DEFAULT_SIGNATURE: &str = "serving_default";
/// The signature and collection that name the operation to run after loading.
pub const INIT_OP: &str = "__saved_model_init_op";

message! {
    /// `tensorflow.SavedModel`.
    pub struct SavedModel {
        /// 1 since there are saved models.
        1 saved_model_schema_version: i64,
        /// Graphs, told apart by their tags.
        2 meta_graphs: Vec<MetaGraphDef>,
    }
    /// `tensorflow.MetaGraphDef`.
    pub struct MetaGraphDef {
        /// Tags and versions.
        1 meta_info_def: MetaInfoDef,
        /// The graph.
        2 graph_def: GraphDef,
        /// The tensors and ops that save and restore its variables.
        3 saver_def: Option<SaverDef>,
        /// Named collections.
        4 collection_def: BTreeMap<String, CollectionDef>,
        /// The signatures that can be called.
        5 signature_def: BTreeMap<String, SignatureDef>,
        /// Files that are fed by their path.
        6 asset_file_def: Vec<AssetFileDef>,
        /// Objects of TensorFlow 2: variables, functions, and how they are reached.
        7 object_graph_def: Option<SavedObjectGraph>,
    }
    /// `tensorflow.MetaGraphDef.MetaInfoDef`.
    pub struct MetaInfoDef {
        /// Tags.
        4 tags: Vec<String>,
        /// The TensorFlow that wrote it.
        5 tensorflow_version: String,
        /// Whether attributes at their default are left out.
        7 stripped_default_attrs: bool,
    }
    /// `tensorflow.SaverDef`.
    pub struct SaverDef {
        /// The tensor that is fed the prefix of the checkpoint.
        1 filename_tensor_name: String,
        /// The tensor to fetch in order to save.
        2 save_tensor_name: String,
        /// The operation to run in order to restore.
        3 restore_op_name: String,
        /// 2 is the format of [`crate::bundle`].
        7 version: i32,
    }
    /// `tensorflow.CollectionDef`, as far as names go.
    pub struct CollectionDef {
        /// Names of nodes or tensors.
        1 node_list: Option<NodeList>,
    }
    /// `tensorflow.CollectionDef.NodeList`.
    pub struct NodeList {
        /// Names of nodes or tensors.
        1 value: Vec<String>,
    }
    /// `tensorflow.SignatureDef`.
    pub struct SignatureDef {
        /// Arguments by name.
        1 inputs: BTreeMap<String, TensorInfo>,
        /// Results by name.
        2 outputs: BTreeMap<String, TensorInfo>,
        /// `tensorflow/serving/predict` and the like.
        3 method_name: String,
    }
    /// `tensorflow.TensorInfo`. Sparse and composite tensors are carried.
    pub struct TensorInfo {
        /// The tensor, `node:0`.
        1 name: String,
        /// Its type, by the wire number.
        2 dtype: i32,
        /// Its shape, as far as it is known.
        3 tensor_shape: Option<TensorShapeProto>,
    }
    /// `tensorflow.AssetFileDef`.
    pub struct AssetFileDef {
        /// The tensor that is fed the path.
        1 tensor_info: TensorInfo,
        /// The file, in `assets/`.
        2 filename: String,
    }
}

/// Reads `saved_model.pb` or `saved_model.pbtxt` in `folder`.
///
/// # Errors
/// NOT_FOUND where the folder holds neither; UNIMPLEMENTED for models in chunks (`saved_model.cpb`); otherwise as
/// [`crate::read_graph_def`].
pub fn read_saved_model(folder: &Path) -> Result<SavedModel> {
    for name in ["saved_model.pb", "saved_model.pbtxt"] {
        let path = folder.join(name);
        match plimsoll_base::read_file(&path) {
            Ok(bytes) => return parse_saved_model(&bytes).map_err(|error| error.context(path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound || error.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(plimsoll_base::file_error(&path, &error)),
        }
    }
    if folder.join("saved_model.cpb").exists() {
        return Err(Error::unimplemented(format!("{} is a model in chunks (saved_model.cpb), which is not read here", folder.display())));
    }
    Err(Error::not_found(format!("{} holds no saved_model.pb and no saved_model.pbtxt", folder.display())))
}

/// Reads a SavedModel message, binary or text.
///
/// # Errors
/// As [`crate::read_graph_def`].
pub fn parse_saved_model(bytes: &[u8]) -> Result<SavedModel> {
    file::read("SavedModel", bytes)
}

/// A SavedModel in protobuf's wire form.
pub fn write_saved_model(model: &SavedModel) -> Vec<u8> {
    encode(model)
}

/// The prefix of the checkpoint that holds a model's variables.
pub fn variables_prefix(folder: &Path) -> PathBuf {
    folder.join("variables").join("variables")
}

impl SavedModel {
    /// The graph with exactly these tags.
    ///
    /// # Errors
    /// NOT_FOUND with the sets of tags that there are.
    pub fn meta_graph(&self, tags: &[&str]) -> Result<&MetaGraphDef> {
        let wanted: BTreeSet<&str> = tags.iter().copied().collect();
        let found = self.meta_graphs.iter().find(|graph| graph.tags() == wanted);
        found.ok_or_else(|| {
            let sets: Vec<String> = self.meta_graphs.iter().map(|graph| format!("{:?}", graph.tags())).collect();
            Error::not_found(format!("no graph of the model has the tags {wanted:?}; there are {}", sets.join(", ")))
        })
    }

    /// The graph that serves.
    ///
    /// # Errors
    /// As [`SavedModel::meta_graph`].
    pub fn serving(&self) -> Result<&MetaGraphDef> {
        self.meta_graph(&[SERVE])
    }

    /// The graph that serves, or the only one; the rest is let go.
    ///
    /// # Errors
    /// As [`SavedModel::meta_graph`].
    pub fn into_serving(mut self) -> Result<MetaGraphDef> {
        if self.meta_graphs.len() != 1 {
            let position = self.meta_graphs.iter().position(|graph| graph.tags() == BTreeSet::from([SERVE]));
            return match position {
                Some(position) => Ok(self.meta_graphs.swap_remove(position)),
                None => self.serving().cloned(),
            };
        }
        Ok(self.meta_graphs.remove(0))
    }
}

impl MetaGraphDef {
    /// The tags.
    pub fn tags(&self) -> BTreeSet<&str> {
        self.meta_info_def.tags.iter().map(String::as_str).collect()
    }

    /// The signature of that name.
    ///
    /// # Errors
    /// NOT_FOUND with the names that there are.
    pub fn signature(&self, name: &str) -> Result<&SignatureDef> {
        self.signature_def.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.signature_def.keys().map(String::as_str).collect();
            Error::not_found(format!("the model has no signature '{}'; there are {}", name.escape_debug(), names.join(", ")))
                .suggesting(name, names.iter().copied())
        })
    }

    /// The operation to run after the variables are restored, if there is one: TensorFlow 2 names it as the output of a
    /// signature, TensorFlow 1 in a collection.
    pub fn init_op(&self) -> Option<&str> {
        let signature = self.signature_def.get(INIT_OP).and_then(|signature| signature.outputs.get(INIT_OP)).map(|info| info.name.as_str());
        let collection = |name: &str| self.collection_def.get(name)?.node_list.as_ref()?.value.first().map(String::as_str);
        signature.or_else(|| collection("saved_model_main_op")).or_else(|| collection("legacy_init_op"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        saved_model_schema_version: 1
        meta_graphs {
          meta_info_def { tags: "serve" tags: "gpu" stripped_default_attrs: true function_aliases { key: "a" value: "b" } }
          graph_def { node { name: "init" op: "NoOp" } }
          saver_def { filename_tensor_name: "f:0" restore_op_name: "r" version: V2 max_to_keep: 5 }
          collection_def { key: "saved_model_main_op" value { node_list { value: "init" } } }
          collection_def { key: "losses" value { bytes_list { value: "x" } } }
          signature_def { key: "serving_default" value {
            inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 3 } } } }
            method_name: "tensorflow/serving/predict" } }
        }"#;

    #[test]
    fn graphs_are_chosen_by_their_tags() {
        let model = parse_saved_model(TEXT.as_bytes()).unwrap();
        assert_eq!(parse_saved_model(&write_saved_model(&model)).unwrap(), model);
        let graph = model.meta_graph(&["gpu", "serve"]).unwrap();
        assert!(model.serving().unwrap_err().message().contains(r#"there are {"gpu", "serve"}"#));
        assert_eq!(graph.init_op(), Some("init"));
        let input = &graph.signature(DEFAULT_SIGNATURE).unwrap().inputs["x"];
        assert_eq!(input.tensor_shape.as_ref().unwrap().to_partial().unwrap().to_string(), "[?,3]");
        assert!(graph.signature("train").unwrap_err().message().contains("there are serving_default"));
        assert_eq!(graph.saver_def.as_ref().unwrap().restore_op_name, "r");
    }

    #[test]
    fn a_folder_without_a_model_says_so() {
        assert_eq!(read_saved_model(Path::new("/no/such/folder")).unwrap_err().code(), plimsoll_base::Code::NotFound);
    }
}
