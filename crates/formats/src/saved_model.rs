//! SavedModel folders: `saved_model.pb` or `.pbtxt`, with `variables/` and `assets/` beside it. Only read here; another crate runs
//! its operations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_base::{Error, Result};
use plimsoll_graph::GraphDef;

use crate::file::{self, Format};
use crate::message::{decode, encode, message};
use crate::object_graph::SavedObjectGraph;
use crate::tensor_proto::TensorShapeProto;
use crate::wire::{Field, Payload, Reader};

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
    /// `tensorflow.CollectionDef`, as far as names and encoded messages go.
    pub struct CollectionDef {
        /// Names of nodes or tensors.
        1 node_list: Option<NodeList>,
        /// Encoded messages: those of variables are [`VariableDef`].
        2 bytes_list: Option<BytesList>,
    }
    /// `tensorflow.CollectionDef.BytesList`.
    pub struct BytesList {
        /// Encoded messages.
        1 value: Vec<Vec<u8>>,
    }
    /// `tensorflow.VariableDef`, as far as names go.
    pub struct VariableDef {
        /// The variable, or its handle.
        1 variable_name: String,
        /// The operation that gives it its first value.
        2 initializer_name: String,
        /// Where it is a part of a partitioned variable, of which.
        4 save_slice_info_def: Option<SaveSliceInfoDef>,
        /// Whether it is a resource.
        5 is_resource: bool,
    }
    /// `tensorflow.SaveSliceInfoDef`.
    pub struct SaveSliceInfoDef {
        /// The name of the whole.
        1 full_name: String,
        /// The shape of the whole.
        2 full_shape: Vec<i64>,
        /// Where the part begins.
        3 var_offset: Vec<i64>,
        /// The shape of the part.
        4 var_shape: Vec<i64>,
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

/// Whether these bytes are a MetaGraphDef rather than a GraphDef: only the former has a message in field 3 or 5 (a saver,
/// signatures). In text, its graph has a name.
pub fn is_meta_graph(bytes: &[u8]) -> bool {
    if let (Format::Text, Ok(text)) = (Format::of(bytes), std::str::from_utf8(bytes)) {
        return text.lines().any(|line| ["meta_info_def", "graph_def"].iter().any(|field| line.starts_with(field)));
    }
    let is_message = |field: &Field<'_>| matches!(field.payload, Payload::Bytes(_));
    Reader::of_file(bytes).map_while(|field| field.ok()).any(|field| matches!(field.number, 3 | 5) && is_message(&field))
}

/// Reads a MetaGraphDef message (a `.meta` file), binary or text.
///
/// # Errors
/// As [`crate::read_graph_def`].
pub fn read_meta_graph(bytes: &[u8]) -> Result<MetaGraphDef> {
    file::read("MetaGraphDef", bytes)
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
        found.ok_or_else(|| self.no_graph(&wanted))
    }

    /// The graph with exactly these tags; the rest is let go.
    ///
    /// # Errors
    /// As [`SavedModel::meta_graph`].
    pub fn into_meta_graph(mut self, tags: &[&str]) -> Result<MetaGraphDef> {
        let wanted: BTreeSet<&str> = tags.iter().copied().collect();
        match self.meta_graphs.iter().position(|graph| graph.tags() == wanted) {
            Some(position) => Ok(self.meta_graphs.swap_remove(position)),
            None => Err(self.no_graph(&wanted)),
        }
    }

    /// No graph has these tags. The sets that there are stand as a command line says them.
    fn no_graph(&self, wanted: &BTreeSet<&str>) -> Error {
        let said = |tags: &mut dyn Iterator<Item = &str>| format!("'{}'", tags.collect::<Vec<_>>().join(",").escape_debug());
        let wanted = said(&mut wanted.iter().copied());
        let sets: Vec<String> =
            self.meta_graphs.iter().map(|graph| said(&mut graph.meta_info_def.tags.iter().map(String::as_str))).collect();
        Error::not_found(match sets.is_empty() {
            true => format!("no graph of the model has the tags {wanted}; it has no graphs"),
            false => format!("no graph of the model has the tags {wanted}; there are graphs with {}", sets.join(" and ")),
        })
    }

    /// The graph that serves.
    ///
    /// # Errors
    /// As [`SavedModel::meta_graph`].
    pub fn serving(&self) -> Result<&MetaGraphDef> {
        self.meta_graph(&[SERVE])
    }

    /// The graph that serves (of several with other tags beside, the only one), or the only graph; the rest is let go.
    ///
    /// # Errors
    /// As [`SavedModel::meta_graph`].
    pub fn into_serving(mut self) -> Result<MetaGraphDef> {
        if self.meta_graphs.len() != 1 {
            let position = self.meta_graphs.iter().position(|graph| graph.tags() == BTreeSet::from([SERVE]));
            let mut others = self.meta_graphs.iter().enumerate().filter(|(_, graph)| graph.tags().contains(SERVE)).map(|(at, _)| at);
            let only = others.next().filter(|_| others.next().is_none());
            return match position.or(only) {
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

    /// The variables of a collection (`variables`, `trainable_variables`), in its order. Entries that are no VariableDef are left out.
    pub fn variables(&self, collection: &str) -> Vec<VariableDef> {
        let list = self.collection_def.get(collection).and_then(|collection| collection.bytes_list.as_ref());
        let entries = list.into_iter().flat_map(|list| &list.value);
        entries.filter_map(|entry| decode(Reader::of_bytes(entry)).ok()).collect()
    }

    /// The names of nodes and tensors in a collection (`train_op`, `init_op`), in its order.
    pub fn names(&self, collection: &str) -> &[String] {
        let list = self.collection_def.get(collection).and_then(|collection| collection.node_list.as_ref());
        list.map_or(&[], |list| &list.value)
    }

    /// The operation to run after the variables are restored, if there is one: TensorFlow 2 names it as the output of a
    /// signature, TensorFlow 1 in a collection.
    pub fn init_op(&self) -> Option<&str> {
        let signature = self.signature_def.get(INIT_OP).and_then(|signature| signature.outputs.get(INIT_OP)).map(|info| info.name.as_str());
        let collection = |name: &str| self.names(name).first().map(String::as_str);
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
          collection_def { key: "variables" value { bytes_list { value: "\n\003w:0\022\010w/Assign(\001" } } }
          signature_def { key: "serving_default" value {
            inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 3 } } } }
            method_name: "tensorflow/serving/predict" } }
        }"#;

    #[test]
    fn graphs_are_chosen_by_their_tags() {
        let model = parse_saved_model(TEXT.as_bytes()).unwrap();
        assert_eq!(parse_saved_model(&write_saved_model(&model)).unwrap(), model);
        let graph = model.meta_graph(&["gpu", "serve"]).unwrap();
        assert!(model.serving().unwrap_err().message().contains("there are graphs with 'serve,gpu'"));
        assert_eq!(graph.init_op(), Some("init"));
        let variables = graph.variables("variables");
        assert_eq!((variables.len(), &variables[0].variable_name[..], variables[0].is_resource), (1, "w:0", true));
        let input = &graph.signature(DEFAULT_SIGNATURE).unwrap().inputs["x"];
        assert_eq!(input.tensor_shape.as_ref().unwrap().to_partial().unwrap().to_string(), "[?,3]");
        assert!(graph.signature("train").unwrap_err().message().contains("there are serving_default"));
        assert_eq!(graph.saver_def.as_ref().unwrap().restore_op_name, "r");
    }

    #[test]
    fn meta_graphs_are_told_from_graphs() {
        let meta = parse_saved_model(TEXT.as_bytes()).unwrap().meta_graphs.remove(0);
        let bytes = encode(&meta);
        assert!(is_meta_graph(&bytes) && !is_meta_graph(&crate::write_graph_def(&meta.graph_def)));
        assert_eq!(read_meta_graph(&bytes).unwrap(), meta);
    }

    #[test]
    fn of_several_graphs_the_one_that_serves_is_taken() {
        let tagged = |tags: &[&str]| MetaGraphDef {
            meta_info_def: MetaInfoDef { tags: tags.iter().map(|tag| tag.to_string()).collect(), ..MetaInfoDef::default() },
            ..MetaGraphDef::default()
        };
        let serving = |sets: &[&[&str]]| {
            let model = SavedModel { meta_graphs: sets.iter().map(|tags| tagged(tags)).collect(), ..SavedModel::default() };
            model.into_serving().map(|graph| graph.meta_info_def.tags.join(",")).ok()
        };
        assert_eq!(serving(&[&["train"], &["serve"], &["serve", "gpu"]]).as_deref(), Some("serve"));
        assert_eq!(serving(&[&["train"], &["serve", "gpu"]]).as_deref(), Some("serve,gpu"));
        assert_eq!(serving(&[&["train"]]).as_deref(), Some("train"));
        assert_eq!(serving(&[&["serve", "tpu"], &["serve", "gpu"]]), None);
    }

    #[test]
    fn a_folder_without_a_model_says_so() {
        assert_eq!(read_saved_model(Path::new("/no/such/folder")).unwrap_err().code(), plimsoll_base::Code::NotFound);
    }
}
