//! Files that hold a model, told apart by their contents.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_formats::{
    DEFAULT_SIGNATURE, INIT_OP, SavedModel, SignatureDef, TensorInfo, read_graph_def, read_saved_model, variables_prefix,
};
use plimsoll_graph::{AttrValue, GraphDef, HostTensor, Shape};

use crate::values::{SavedValues, Values};

/// The contents of a model file or folder.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A graph in the style of TensorFlow 1.
    Graph(GraphDef),
    /// A SavedModel, its variables still in their files.
    SavedModel(Box<SavedModel>),
}

/// Reads a GraphDef (`.pb`, `.pbtxt`) or a SavedModel folder.
///
/// # Errors
/// NOT_FOUND where nothing is there. INVALID_ARGUMENT for files of other kinds (`.keras`, `.h5`, `.onnx`, `.tflite`), with the line
/// that exports them. Otherwise the flaw of the file, and its place.
pub fn read(path: &Path) -> Result<Model> {
    if path.is_dir() {
        return read_saved_model(path).map(|model| Model::SavedModel(Box::new(model)));
    }
    check(path)?;
    let bytes = read_file(path)?;
    read_graph_def(&bytes).map(Model::Graph).map_err(|error| error.context(path.display()))
}

/// A SavedModel as one graph that restores itself.
#[derive(Clone, Debug)]
pub struct SavedGraph {
    /// The graph, with the name of the model's checkpoint where it asks for one.
    pub graph: GraphDef,
    /// Where the variables have their values from: [`crate::Devices::session_with`].
    pub values: Values,
    /// The operations to run before the first call.
    pub init: Vec<String>,
    /// The signatures that can be called.
    pub signatures: BTreeMap<String, SignatureDef>,
}

impl SavedGraph {
    /// The model in `folder`: its graph that serves, or its only one.
    ///
    /// # Errors
    /// NOT_FOUND where it has several graphs and none serves; INVALID_ARGUMENT where it names nodes that it does not have.
    pub fn new(model: SavedModel, folder: &Path) -> Result<SavedGraph> {
        let mut meta = model.into_serving()?;
        meta.object_graph_def = None;
        let mut graph = std::mem::take(&mut meta.graph_def);
        let has = |graph: &GraphDef, name: &str| graph.nodes.iter().any(|node| node.name == name);
        let mut values = Values::default();
        if let Some(saver) = &meta.saver_def {
            let missing =
                |name: &str| Error::invalid_argument(format!("the model's saver names '{}', which it does not have", name.escape_debug()));
            let (prefix, operation) = (node_of(&saver.filename_tensor_name), node_of(&saver.restore_op_name));
            let node = graph.nodes.iter_mut().find(|node| node.name == prefix).ok_or_else(|| missing(prefix))?;
            let path = variables_prefix(folder);
            let path = path.to_str().ok_or_else(|| Error::invalid_argument(format!("{} is not UTF-8", path.display())))?;
            let value = HostTensor::from_strings(Shape::scalar(), vec![path.as_bytes().to_vec()])?;
            node.op = "Const".to_string();
            node.inputs.clear();
            let attrs = [("dtype", AttrValue::data_type(DataType::String)), ("value", AttrValue::Tensor(value))];
            node.attrs = attrs.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
            if !has(&graph, operation) {
                return Err(missing(operation));
            }
            let (filename, restore) = (prefix.to_string(), operation.to_string());
            values.saved = Some(SavedValues { prefix: variables_prefix(folder), filename, restore });
        }
        let works = |name: &&str| graph.nodes.iter().any(|node| node.name == **name && !(node.op == "NoOp" && node.inputs.is_empty()));
        let init = meta.init_op().map(node_of).filter(works).map(str::to_string).into_iter().collect();
        Ok(SavedGraph { graph, values, init, signatures: meta.signature_def })
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
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    let shown = path.display();
    let folder = path.with_extension("");
    let folder = folder.display();
    let keras = || format!("python -c \"import keras; keras.saving.load_model('{shown}').export('{folder}')\"");
    let (kind, line) = match extension.as_str() {
        "keras" => ("a Keras model", keras()),
        "h5" | "hdf5" => ("a Keras model in HDF5", keras()),
        "onnx" => ("an ONNX model", format!("onnx2tf -i '{shown}' -o '{folder}'")),
        "tflite" => (
            "a TensorFlow Lite model",
            format!("python -m tf2onnx.convert --tflite '{shown}' --output '{folder}.onnx' && onnx2tf -i '{folder}.onnx' -o '{folder}'"),
        ),
        _ if path.file_stem().is_some_and(|stem| stem == "saved_model") => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let error = Error::invalid_argument(format!("{shown} is a part of a SavedModel"));
            return Err(error.with_remedy(format!("give its folder: {}", folder.display())));
        }
        _ if path.exists() => return Ok(()),
        _ => return Err(Error::not_found(format!("{shown}: no such file or folder"))),
    };
    Err(Error::invalid_argument(format!("{shown} is {kind}, which is not read here"))
        .with_remedy(format!("this writes the SavedModel folder {folder}:\n  {line}")))
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Code;

    use super::*;

    #[test]
    fn files_of_other_kinds_are_answered_with_the_line_that_exports_them() {
        for (name, line) in [
            ("a/net.keras", "load_model('a/net.keras').export('a/net')"),
            ("net.h5", "load_model('net.h5').export('net')"),
            ("net.onnx", "onnx2tf -i 'net.onnx' -o 'net'"),
            ("net.TFLITE", "--tflite 'net.TFLITE'"),
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
            let saved = SavedGraph { graph: GraphDef::default(), values: Values::default(), init: Vec::new(), signatures };
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
