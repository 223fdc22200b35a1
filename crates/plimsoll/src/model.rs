//! Files that hold a model, told apart by their contents.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_formats::bundle::Checkpoint;
use plimsoll_formats::{
    DEFAULT_SIGNATURE, Foreign, INIT_OP, LOOKED_AT, MetaGraphDef, SavedModel, SignatureDef, TensorInfo, is_meta_graph, read_graph_def,
    read_meta_graph, read_saved_model, stream_graph_def, variables_prefix,
};
use plimsoll_graph::{AttrValue, GraphDef, HostTensor, Shape};

use crate::objects::Handles;
use crate::values::{SavedValues, Values};

/// The contents of a model file or folder.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A graph in the style of TensorFlow 1.
    Graph(GraphDef),
    /// A SavedModel, its variables still in their files.
    SavedModel(Box<SavedModel>),
    /// A MetaGraph, its variables still in the checkpoint beside it.
    MetaGraph(Box<MetaGraphDef>),
}

/// Which graph of a SavedModel: its tags. By default the one that serves, or the only one.
///
/// ```
/// use plimsoll::model::Tags;
/// let tags = Tags::of(["serve", "gpu"]);
/// assert_eq!(tags, Tags::listed("gpu,serve"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Option<BTreeSet<String>>);

impl Tags {
    /// The graph with exactly these tags.
    pub fn of(tags: impl IntoIterator<Item = impl Into<String>>) -> Tags {
        Tags(Some(tags.into_iter().map(Into::into).collect()))
    }

    /// The graph with exactly the tags of a list with commas, `serve,gpu`. An empty text is the graph without tags.
    pub fn listed(text: &str) -> Tags {
        Tags::of(text.split(',').map(str::trim).filter(|tag| !tag.is_empty()))
    }
}

impl Model {
    /// The same model, of its graphs only the one with these tags.
    ///
    /// # Errors
    /// NOT_FOUND where there is none, with the sets of tags that there are; INVALID_ARGUMENT for tags of a model that is no SavedModel.
    pub fn with_tags(self, tags: &Tags) -> Result<Model> {
        let model = match (self, tags) {
            (Model::SavedModel(model), _) => *model,
            (other, Tags(None)) => return Ok(other),
            (_, Tags(Some(_))) => return Err(Error::invalid_argument("only the graphs of a SavedModel have tags")),
        };
        let version = model.saved_model_schema_version;
        let graph = match &tags.0 {
            None => model.into_serving()?,
            Some(tags) => model.into_meta_graph(&tags.iter().map(String::as_str).collect::<Vec<_>>())?,
        };
        Ok(Model::SavedModel(Box::new(SavedModel {
            saved_model_schema_version: version,
            meta_graphs: vec![graph],
            ..SavedModel::default()
        })))
    }
}

/// Reads a GraphDef (`.pb`, `.pbtxt`), a MetaGraph (`.meta`) or a SavedModel folder.
///
/// # Errors
/// NOT_FOUND where nothing is there. INVALID_ARGUMENT for files of other kinds (Keras, HDF5, ONNX, TensorFlow Lite, PyTorch), with the
/// line that exports them. Otherwise the flaw of the file, and its place.
pub fn read(path: &Path) -> Result<Model> {
    if path.is_dir() {
        return read_saved_model(path).map(|model| Model::SavedModel(Box::new(model)));
    }
    check(path)?;
    // Constants are read one by one. A pipe is read as a whole.
    if !is_meta(path)
        && let Ok(mut file) = plimsoll_base::open_file(path)
        && let Some(graph) = stream_graph_def(&mut file).map_err(|error| file_error(path, &error))?
    {
        return Ok(Model::Graph(graph));
    }
    let bytes = read_file(path)?;
    if is_meta(path) || is_meta_graph(&bytes) {
        return read_meta_graph(&bytes).map(|meta| Model::MetaGraph(Box::new(meta))).map_err(|error| error.context(path.display()));
    }
    read_graph_def(&bytes).map(Model::Graph).map_err(|error| error.context(path.display()))
}

/// Whether the name says that a file is a MetaGraph.
pub fn is_meta(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("meta"))
}

/// A model as one graph that restores itself.
#[derive(Clone, Debug, Default)]
pub struct SavedGraph {
    /// The graph, with the name of the model's checkpoint where it asks for one.
    pub graph: GraphDef,
    /// Where the variables have their values from: [`crate::Devices::session_with`].
    pub values: Values,
    /// The operations to run before the first call.
    pub init: Vec<String>,
    /// The signatures that can be called.
    pub signatures: BTreeMap<String, SignatureDef>,
    /// The operations that train, as a MetaGraph's collection `train_op` names them.
    pub train: Vec<String>,
    /// Whether TensorFlow 2 wrote it: its signatures are functions that it calls one by one.
    is_of_functions: bool,
}

impl SavedGraph {
    /// Any model that was read from `path`.
    ///
    /// # Errors
    /// As [`SavedGraph::new`].
    pub fn of(model: Model, path: &Path) -> Result<SavedGraph> {
        match model {
            Model::Graph(graph) => Ok(SavedGraph { graph, ..SavedGraph::default() }),
            Model::SavedModel(model) => SavedGraph::new(*model, path),
            Model::MetaGraph(meta) => SavedGraph::of_meta(*meta, path),
        }
    }

    /// The model in `folder`: its graph that serves, or its only one.
    ///
    /// # Errors
    /// NOT_FOUND where it has several graphs and none serves; INVALID_ARGUMENT where it names nodes that it does not have.
    pub fn new(model: SavedModel, folder: &Path) -> Result<SavedGraph> {
        let meta = model.into_serving()?;
        let init = meta.init_op().map(str::to_string);
        let is_of_functions = meta.object_graph_def.is_some();
        let mut saved = SavedGraph::with_values(meta, Some(variables_prefix(folder)))?;
        saved.is_of_functions = is_of_functions;
        saved.prepare_with(init.iter());
        Ok(saved)
    }

    /// The MetaGraph of the file `path`, with the values of the checkpoint that the name without `.meta` says. Where there is no such
    /// checkpoint, the operations of its collection `init_op` give values.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it names nodes that it does not have.
    pub fn of_meta(meta: MetaGraphDef, path: &Path) -> Result<SavedGraph> {
        let prefix = Some(path.with_extension("")).filter(|prefix| is_meta(path) && Checkpoint::exists(prefix));
        let init: Vec<String> = if prefix.is_none() { meta.names("init_op").to_vec() } else { Vec::new() };
        let train = meta.names("train_op").to_vec();
        let mut saved = SavedGraph::with_values(meta, prefix)?;
        saved.train = train.into_iter().filter(|name| saved.has(node_of(name))).collect();
        saved.prepare_with(init.iter());
        Ok(saved)
    }

    /// The graph, with values from the checkpoint `prefix` by its saver.
    fn with_values(mut meta: MetaGraphDef, prefix: Option<PathBuf>) -> Result<SavedGraph> {
        let mut saved = SavedGraph { graph: std::mem::take(&mut meta.graph_def), signatures: meta.signature_def, ..SavedGraph::default() };
        let results = |name: &String| saved.signatures[name].outputs.values().map(|info| info.name.clone()).collect::<Vec<_>>();
        saved.values.called = saved.signatures.keys().filter(|name| *name != INIT_OP).flat_map(results).collect();
        let Some(saver) = &meta.saver_def else { return Ok(saved) };
        let missing =
            |name: &str| Error::invalid_argument(format!("the model's saver names '{}', which it does not have", name.escape_debug()));
        let (filename, operation) = (node_of(&saver.filename_tensor_name), node_of(&saver.restore_op_name));
        let node = saved.graph.nodes.iter_mut().find(|node| node.name == filename).ok_or_else(|| missing(filename))?;
        if let Some(path) = &prefix {
            let path = path.to_str().ok_or_else(|| Error::invalid_argument(format!("{} is not UTF-8", path.display())))?;
            let value = HostTensor::from_strings(Shape::scalar(), vec![path.as_bytes().to_vec()])?;
            node.op = "Const".to_string();
            node.inputs.clear();
            let attrs = [("dtype", AttrValue::data_type(DataType::String)), ("value", AttrValue::Tensor(value))];
            node.attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        }
        if !saved.has(operation) {
            return Err(missing(operation));
        }
        let handles = meta.object_graph_def.as_ref().map(|objects| Handles::new(&saved.graph, objects)).unwrap_or_default();
        saved.values.saved = Some(SavedValues { prefix, filename: filename.to_string(), restore: operation.to_string(), handles });
        Ok(saved)
    }

    /// Lets go of what runs that only name these tensors and operations do not need: other signatures, and functions that save. A
    /// graph of TensorFlow 1 stays whole, as it is placed as a whole. So does a graph that has no node of one of the names: it may be in a function.
    pub fn keep_for(&mut self, names: &[&str]) {
        if !self.is_of_functions {
            return;
        }
        let restoring = self.values.saved.iter().flat_map(|saved| [saved.filename.as_str(), saved.restore.as_str()]);
        let named = names.iter().map(|name| node_of(name)).chain(self.init.iter().map(String::as_str));
        let roots: Vec<&str> = named.chain(restoring).collect();
        if !self.graph.keep(&roots) {
            return;
        }
        let kept: HashSet<&str> = self.graph.nodes.iter().map(|node| node.name.as_str()).collect();
        let is_kept = |tensor: &str| kept.contains(node_of(tensor));
        self.values.called.retain(|tensor| is_kept(tensor));
        self.signatures.retain(|_, signature| signature.inputs.values().chain(signature.outputs.values()).all(|info| is_kept(&info.name)));
    }

    fn has(&self, name: &str) -> bool {
        self.graph.nodes.iter().any(|node| node.name == name)
    }

    /// Takes in operations to run before the first call, those that do something.
    fn prepare_with<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        let works = |name: &&str| self.graph.nodes.iter().any(|node| node.name == **name && !(node.op == "NoOp" && node.inputs.is_empty()));
        self.init = names.map(|name| node_of(name)).filter(works).map(str::to_string).collect();
    }

    /// The names of the signatures that users call: without the one of the initializer.
    pub fn callable(&self) -> impl Iterator<Item = &str> {
        self.signatures.keys().map(String::as_str).filter(|name| *name != INIT_OP)
    }

    /// The signature to call where none is named: the only one, or `serving_default`. None where there are several others.
    pub fn default_signature(&self) -> Option<&str> {
        let mut callable = self.callable();
        match (callable.next(), callable.next()) {
            (Some(only), None) => Some(only),
            _ => self.signatures.contains_key(DEFAULT_SIGNATURE).then_some(DEFAULT_SIGNATURE),
        }
    }

    /// The signature of that name.
    ///
    /// # Errors
    /// NOT_FOUND with the names that there are.
    pub fn signature(&self, name: &str) -> Result<&SignatureDef> {
        find_signature(&self.signatures, name)
    }
}

/// The signature of that name.
///
/// # Errors
/// NOT_FOUND with the names that there are.
pub(crate) fn find_signature<'a>(signatures: &'a BTreeMap<String, SignatureDef>, name: &str) -> Result<&'a SignatureDef> {
    signatures.get(name).ok_or_else(|| {
        let names = match signatures.is_empty() {
            true => "none: it is a graph".to_string(),
            false => signatures.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        };
        let error = Error::not_found(format!("the model has no signature '{}'; there are {names}", name.escape_debug()));
        error.suggesting(name, signatures.keys().map(String::as_str))
    })
}

/// The tensor of an argument or a result (`what`) of a signature.
///
/// # Errors
/// INVALID_ARGUMENT with the names that there are.
pub fn tensor_of<'a>(infos: &'a BTreeMap<String, TensorInfo>, name: &str, signature: &str, what: &str) -> Result<&'a str> {
    infos.get(name).map(|info| info.name.as_str()).ok_or_else(|| {
        let names = infos.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let error =
            Error::invalid_argument(format!("the signature '{signature}' has no {what} '{}'; there are {names}", name.escape_debug()));
        error.suggesting(name, infos.keys().map(String::as_str))
    })
}

/// The node of a tensor.
pub fn node_of(tensor: &str) -> &str {
    tensor.split(':').next().unwrap_or(tensor)
}

pub use plimsoll_base::file_error;

/// The bytes of a file that the command line names, or of an anonymous pipe (`<(…)`).
///
/// # Errors
/// The system's error, with its status code and the path. INVALID_ARGUMENT for a named pipe, a device, or more than 2 GiB.
/// RESOURCE_EXHAUSTED where this machine has less memory.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    plimsoll_base::read_input(path).map_err(|error| file_error(path, &error))
}

/// A plain file of a folder or a data set, open for reading.
///
/// # Errors
/// The system's error, with its status code and the path; INVALID_ARGUMENT for a pipe, a folder or a device.
pub fn open_file(path: &Path) -> Result<File> {
    plimsoll_base::open_file(path).map_err(|error| file_error(path, &error))
}

/// A file that the command line names, created or emptied; or a device, or a pipe that has a reader.
///
/// # Errors
/// The system's error, with its status code and the path; INVALID_ARGUMENT for a named pipe that no process reads.
pub fn create_output(path: &Path) -> Result<File> {
    plimsoll_base::create_output(path).map_err(|error| file_error(path, &error))
}

/// Writes a file that the command line names beside its name first, so that no half of one is ever there. A device or a pipe is
/// written to as it is.
///
/// # Errors
/// As [`create_output`], and the result of `write`.
pub fn replace_output(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| file_error(path, &error);
    let filled = |file: std::io::Result<File>| {
        let mut out = BufWriter::new(file.map_err(failed)?);
        write(&mut out)?;
        out.flush().map_err(failed)
    };
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return filled(plimsoll_base::create_output(path));
    }
    let temporary = beside(path);
    filled(plimsoll_base::create_file(&temporary)).and_then(|()| std::fs::rename(&temporary, path).map_err(failed)).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Whether [`replace_output`] can write there, before what takes long. Nothing stays of it. A device or a pipe is not opened.
///
/// # Errors
/// As [`create_output`].
pub fn check_output(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => create_output(path).map(drop),
        Ok(metadata) if !metadata.is_file() => Ok(()),
        _ => {
            let temporary = beside(path);
            let made = plimsoll_base::create_file(&temporary).and_then(|_| std::fs::remove_file(&temporary));
            made.map_err(|error| file_error(path, &error))
        }
    }
}

/// The file that becomes this one when it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".tmp{}", std::process::id()));
    PathBuf::from(temporary)
}

/// Whether something is there whose name does not say that it is of a kind that is not read here.
///
/// # Errors
/// NOT_FOUND; INVALID_ARGUMENT with the line that exports such a file.
pub fn check(path: &Path) -> Result<()> {
    let shown = path.display();
    if path.file_stem().is_some_and(|stem| stem == "saved_model") {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let error = Error::invalid_argument(format!("{shown} is a part of a SavedModel"));
        return Err(error.with_remedy(format!("give its folder: {}", folder.display())));
    }
    // The contents say more than the name, where they can be looked at.
    if let Some(kind) = foreign_contents(path).or_else(|| Foreign::of_name(path)) {
        return Err(kind.error(path));
    }
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::not_found(format!("{shown}: no such file or folder"))),
        // A folder that may not be entered, or links that lead in a circle.
        Err(error) => Err(file_error(path, &error)),
    }
}

/// The kind of a plain file, by its start and its end. A file that cannot be read says why when it is read.
fn foreign_contents(path: &Path) -> Option<Foreign> {
    let mut file = plimsoll_base::open_file(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut start = Vec::new();
    (&mut file).take(LOOKED_AT as u64).read_to_end(&mut start).ok()?;
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT as u64))).ok()?;
    file.take(LOOKED_AT as u64).read_to_end(&mut end).ok()?;
    match Foreign::of_bytes(&start, &end)? {
        Foreign::Hdf5 if Foreign::of_name(path) == Some(Foreign::Weights) => Some(Foreign::Weights),
        kind => Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Code;

    use super::*;

    #[test]
    fn files_of_other_kinds_are_answered_with_the_line_that_exports_them() {
        for (name, line) in [
            ("a/net.keras", "load_model('a/net.keras', compile=False).export('a/net')"),
            ("net.h5", "load_model('net.h5', compile=False).export('net')"),
            ("net.onnx", "onnx2tf -i 'net.onnx' -o 'net'"),
            ("net.TFLITE", "--tflite 'net.TFLITE'"),
            ("net.weights.h5", "model.load_weights('net.weights.h5'); model.export('net')"),
            ("net.pt", "torch.load('net.pt', weights_only=False)"),
            ("bert/model.safetensors", "from_preset('bert').export('bert/model')"),
        ] {
            let error = read(Path::new(name)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.remedy().is_some_and(|remedy| remedy.contains(line)), "{error}");
        }
        let error = read(Path::new("net/saved_model.pb")).unwrap_err();
        assert_eq!(error.remedy(), Some("give its folder: net"));
    }

    #[test]
    fn a_model_may_say_which_signature_is_called() {
        let default = |names: &[&str]| {
            let signatures = names.iter().map(|name| (name.to_string(), SignatureDef::default())).collect();
            let saved = SavedGraph { signatures, ..SavedGraph::default() };
            saved.default_signature().map(str::to_string)
        };
        for (names, expected) in [
            (&["train"][..], Some("train")),
            (&[INIT_OP, "train"], Some("train")),
            (&["a", "b"], None),
            (&["a", "b", DEFAULT_SIGNATURE], Some(DEFAULT_SIGNATURE)),
            (&[INIT_OP], None),
            (&[], None),
        ] {
            assert_eq!(default(names).as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("no/such.pb")).unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.message().starts_with("no/such.pb: "), "{error}");
    }
}
