//! Where the variables of a model have their values from: the files of a SavedModel, a checkpoint, or both.
//!
//! Loading belongs to the promise. Values are read when a plan that touches their variables is loaded. They go piece by piece
//! through one buffer of at most 64 KiB, which the footprint counts. A variable that no run touches is never read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_formats::OBJECT_GRAPH_KEY;
use plimsoll_formats::bundle::{Checkpoint, Entry, Slice};
use plimsoll_graph::{AttrsExt, Graph, HostTensor, Node, NodeId, Output};
use plimsoll_plan::{PlanVariable, VariableKind, variable_key};
use plimsoll_runtime::{Stored, StoredVariable};

use crate::checkpoint;
use crate::objects::Handles;
use crate::preparation::leaves;

/// Bytes that go from a file to a variable at a time.
const PIECE: u64 = 64 << 10;

/// The least buffer: it holds an element of every type.
const LEAST: u64 = 16;

/// Where the variables of a model have their values from. They are read when a run first needs the variables, piece by piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub(crate) saved: Option<SavedValues>,
    pub(crate) checkpoint: Option<PathBuf>,
    /// The results of the model's signatures.
    pub(crate) called: Vec<String>,
}

/// The variables of a SavedModel or a MetaGraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedValues {
    /// The checkpoint that belongs to it, if it is there.
    pub prefix: Option<PathBuf>,
    /// The node that the model's own restoring has the prefix from.
    pub filename: String,
    /// The operation that restores.
    pub restore: String,
    /// The variables that signatures are called with.
    pub handles: Handles,
}

/// The buffer through which a tensor of `whole` bytes goes.
pub(crate) fn piece(whole: Bytes) -> Bytes {
    whole.clamp(Bytes(LEAST), Bytes(PIECE))
}

impl Values {
    /// The same, with values of `checkpoint` (a prefix, or a folder: the latest in it) before those of the model. They also take
    /// the place of an initializer's values.
    pub fn with_checkpoint(mut self, checkpoint: Option<&Path>) -> Values {
        self.checkpoint = checkpoint.map(Path::to_path_buf);
        self
    }

    /// Whether the model has files of its own for them, so that its variables need no initializer.
    pub fn are_saved(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.prefix.is_some())
    }

    /// The files, for a graph with calls inlined; and the operations that restore in ways of their own and have to run.
    ///
    /// # Errors
    /// NOT_FOUND where a checkpoint is not there; its flaw.
    pub(crate) fn open(&self, graph: &Graph) -> Result<Opened> {
        let restoring = self.saved.as_ref().map(|saved| Restoring::find(graph, saved)).transpose()?.unwrap_or_default();
        let mut opened = self.open_saved(graph, &restoring)?;
        if let Some(path) = &self.checkpoint {
            let reader = Checkpoint::open(checkpoint::find(path)?)?;
            let keys = keys(graph, &reader, &restoring, Some(&opened.objects))?;
            if keys.is_empty() && graph.nodes().values().any(|node| is_variable(node)) {
                let some: Vec<&str> = reader.names().take(3).collect();
                return Err(Error::not_found(format!("the checkpoint has none of the graph's variables; it has {}", some.join(", "))));
            }
            opened.sources.insert(0, Source { reader, keys, nodes: nodes(graph), overrides: true });
        }
        Ok(opened)
    }

    /// The files of the model.
    fn open_saved(&self, graph: &Graph, restoring: &Restoring) -> Result<Opened> {
        let mut opened = Opened::default();
        let Some(prefix) = self.saved.as_ref().and_then(|saved| saved.prefix.as_ref()) else { return Ok(opened) };
        if restoring.keys.is_empty() && restoring.others.is_empty() {
            return Ok(opened);
        }
        let reader = Checkpoint::open(prefix)?;
        let keys = keys(graph, &reader, restoring, None)?;
        opened.objects = Objects::new(&reader, graph, &keys)?;
        opened.sources.push(Source { reader, keys, nodes: nodes(graph), overrides: false });
        opened.run = restoring.others.clone();
        Ok(opened)
    }
}

/// Where a checkpoint has the variables of a graph: where the model's saver says; `by_name`, before that, under their names. Else where the
/// objects are that signatures are called with, or those of their names. (Keras saves copies of its variables: those that its functions
/// use are found that way.)
fn keys(graph: &Graph, reader: &Checkpoint, restoring: &Restoring, by_name: Option<&Objects>) -> Result<BTreeMap<String, Place>> {
    let objects = reader.objects()?;
    let (named, called) = (objects.keys_by_name(|name| reader.contains(name)), restoring.handles.keys(&objects));
    let mut keys = BTreeMap::new();
    for node in graph.nodes().values().filter(|node| is_variable(node)) {
        let key = variable_key(node);
        let whole = |name: &str| Place { name: name.to_string(), slice: None };
        let of_node = || by_name?.find(&node.name, false, reader).map(|name| whole(&name));
        let of_saver = || restoring.keys.get(&key).filter(|place| by_name.is_none() || reader.contains(&place.name)).cloned();
        let of_call = || called.get(node.name.as_str()).filter(|name| reader.contains(name)).map(|name| whole(name));
        let of_name = || named.get(key.split_once(';').map_or("", |(_, name)| name)).map(|name| whole(name));
        if let Some(place) = of_node().or_else(of_saver).or_else(of_call).or_else(of_name) {
            keys.insert(key, place);
        }
    }
    Ok(keys)
}

/// Where a checkpoint has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The tensor's name there.
    name: String,
    /// The part of it that is the value, if it is not the whole.
    slice: Option<Slice>,
}

/// Files that are open, the one that counts first.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    sources: Vec<Source>,
    /// Operations that restore in ways of their own.
    pub run: Vec<String>,
    /// The objects of a SavedModel.
    pub objects: Objects,
}

/// The objects of a SavedModel, whose variables have other keys in checkpoints than their names. A checkpoint with these keys and the
/// graph of the objects is one of Python's `tf.train.Checkpoint`.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Keys of variables by the names of their nodes.
    keys: BTreeMap<String, String>,
    /// The graph of the objects, one string.
    graph: Option<HostTensor>,
}

impl Objects {
    /// Those of a SavedModel's files; `keys` are names there by the keys of variables.
    fn new(reader: &Checkpoint, graph: &Graph, keys: &BTreeMap<String, Place>) -> Result<Objects> {
        if !reader.contains(OBJECT_GRAPH_KEY) {
            return Ok(Objects::default());
        }
        let whole = |node: &Node| keys.get(&variable_key(node)).filter(|place| place.slice.is_none());
        let key = |node: &Node| Some((node.name.clone(), whole(node)?.name.clone()));
        let keys = graph.nodes().values().filter(|node| is_variable(node)).filter_map(|node| key(node)).collect();
        Ok(Objects { keys, graph: Some(reader.read(OBJECT_GRAPH_KEY)?) })
    }

    /// The key of a variable in a new checkpoint: that of its object, or its name.
    pub fn key(&self, name: &str, is_state: bool) -> String {
        self.keys.get(name).filter(|_| !is_state).cloned().unwrap_or_else(|| checkpoint::key(name, is_state))
    }

    /// The key under which a checkpoint has a variable.
    pub fn find(&self, name: &str, is_state: bool, reader: &Checkpoint) -> Option<String> {
        [self.key(name, is_state), checkpoint::key(name, is_state)].into_iter().find(|key| reader.contains(key))
    }

    /// What a checkpoint has beside the variables.
    pub fn graph(&self) -> Option<(&'static str, &HostTensor)> {
        Some((OBJECT_GRAPH_KEY, self.graph.as_ref()?))
    }
}

impl Opened {
    /// The files as the runtime sees them.
    pub fn stored(&mut self) -> Option<Arc<dyn Stored>> {
        let sources = std::mem::take(&mut self.sources);
        (!sources.is_empty()).then(|| Arc::new(Files(sources)) as Arc<dyn Stored>)
    }
}

#[derive(Debug)]
struct Source {
    reader: Checkpoint,
    /// Places in the file by the keys of variables.
    keys: BTreeMap<String, Place>,
    /// Names of nodes by the keys of variables.
    nodes: BTreeMap<String, String>,
    /// Whether its values take the place of those that variables have.
    overrides: bool,
}

impl Source {
    /// The type and shape of the value at a place.
    fn entry(&self, place: &Place) -> Result<Entry> {
        let entry = self.reader.entry(&place.name)?;
        Ok(match &place.slice {
            Some(slice) => Entry { shape: slice.shape(), ..entry },
            None => entry,
        })
    }

    fn read(&self, place: &Place, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.reader.read_in_pieces(&place.name, place.slice.as_ref(), buffer, give)
    }
}

#[derive(Debug)]
struct Files(Vec<Source>);

impl Files {
    /// The file that has the value, and its place there.
    fn find(&self, variable: &PlanVariable) -> Option<(&Source, Place)> {
        let name = |source: &Source| match variable.kind {
            // Only checkpoints of ours have states.
            VariableKind::State => {
                let name = Some(checkpoint::key(&variable.name, true));
                let name = name.filter(|name| source.overrides && source.reader.contains(name))?;
                Some(Place { name, slice: None })
            }
            _ => source.keys.get(&variable.key).cloned(),
        };
        self.0.iter().find_map(|source| Some((source, name(source)?)))
    }
}

impl Stored for Files {
    fn buffer(&self, variable: &PlanVariable) -> Option<Bytes> {
        self.find(variable).map(|(source, place)| piece(variable.bytes) + Bytes(source.reader.beside_buffer(&place.name)))
    }

    fn variables(&self) -> Result<Vec<StoredVariable>> {
        let mut variables: BTreeMap<&String, StoredVariable> = BTreeMap::new();
        for source in &self.0 {
            for (key, node) in &source.nodes {
                let Some(stored) = source.keys.get(key).filter(|_| !variables.contains_key(key)) else { continue };
                let Entry { data_type, shape } = source.entry(stored)?;
                variables.insert(key, StoredVariable { key: key.clone(), name: node.clone(), data_type, shape });
            }
        }
        Ok(variables.into_values().collect())
    }

    fn read_key(&self, key: &str, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let found = self.0.iter().find_map(|source| Some((source, source.keys.get(key)?)));
        let (source, place) = found.ok_or_else(|| Error::not_found(format!("no files hold a value for '{key}'")))?;
        source.read(place, buffer, give)
    }

    fn overrides(&self, variable: &PlanVariable) -> bool {
        self.find(variable).is_some_and(|(source, _)| source.overrides)
    }

    fn divides_buffer(&self) -> bool {
        // Where blocks come into memory beside the buffer, one does at a time.
        self.0.iter().all(|source| matches!(source.reader, Checkpoint::Bundle(_)))
    }

    fn overrides_key(&self, key: &str) -> bool {
        self.0.iter().any(|source| source.overrides && source.keys.contains_key(key))
    }

    fn read(&self, variable: &PlanVariable, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let (source, place) = self.find(variable).ok_or_else(|| Error::internal("a variable without a value in the files"))?;
        let entry = source.entry(&place)?;
        if entry.data_type != variable.data_type || entry.shape != variable.shape {
            return Err(Error::invalid_argument(format!(
                "variable '{}' is {}{}, in the checkpoint {}{}",
                variable.name, variable.data_type, variable.shape, entry.data_type, entry.shape
            )));
        }
        source.read(&place, buffer, give)
    }
}

/// The restoring operations of a SavedModel.
#[derive(Debug, Default)]
struct Restoring {
    /// Variables that get a tensor of the files, or a slice of one, as it is: places there, by the keys of variables.
    keys: BTreeMap<String, Place>,
    /// Other operations that the restoring runs.
    others: Vec<String>,
    /// The variables that signatures are called with.
    handles: Handles,
}

impl Restoring {
    /// Reads it from the graph. Assignments of whole tensors from a RestoreV2 are values of variables; everything else with an
    /// effect has to run.
    fn find(graph: &Graph, saved: &SavedValues) -> Result<Restoring> {
        let Some(restore) = graph.find(&saved.restore) else { return Ok(Restoring::default()) };
        let mut restoring = Restoring { handles: saved.handles.clone(), ..Restoring::default() };
        for leaf in leaves(graph, vec![restore]) {
            let node = graph.node(leaf);
            let stored = match node.op.as_str() {
                "Assign" | "AssignVariableOp" => stored_tensor(graph, node, &saved.filename),
                _ => None,
            };
            match stored {
                Some((variable, place)) => drop(restoring.keys.insert(variable_key(graph.node(variable)), place)),
                None => restoring.others.push(node.name.clone()),
            }
        }
        Ok(restoring)
    }
}

/// The variable that `assign` changes and the tensor of the files that it gets, where it is that simple.
fn stored_tensor(graph: &Graph, assign: &Node, filename: &str) -> Option<(NodeId, Place)> {
    let [target, value, ..] = &assign.inputs[..] else { return None };
    let variable = source(graph, *target).node;
    let value = source(graph, *value);
    let restore = graph.node(value.node);
    if !is_variable(graph.node(variable)) {
        return None;
    }
    let (prefix, names, slices) = match (restore.op.as_str(), &restore.inputs[..]) {
        ("RestoreV2" | "RestoreSlice", [prefix, names, slices]) => (prefix, names, Some(slices)),
        ("Restore", [prefix, names]) => (prefix, names, None),
        _ => return None,
    };
    if graph.node(source(graph, *prefix).node).name != filename {
        return None;
    }
    let text = |input: &Output| {
        let tensor = graph.node(source(graph, *input).node).attrs.tensor("value").ok()?;
        String::from_utf8(tensor.strings()?.get(value.index as usize)?.clone()).ok()
    };
    let slice = match slices {
        Some(slices) => Some(text(slices)?).filter(|slice| !slice.is_empty()),
        None => None,
    };
    let slice = match slice {
        Some(slice) => Some(Slice::parse(&slice)?),
        None => None,
    };
    Some((variable, Place { name: text(names)?, slice }))
}

/// The tensor that goes through Identity operations to there.
fn source(graph: &Graph, mut tensor: Output) -> Output {
    while let ("Identity", [input, ..]) = (graph.node(tensor.node).op.as_str(), &graph.node(tensor.node).inputs[..]) {
        tensor = *input;
    }
    tensor
}

/// Names of nodes by the keys of their variables: of several, the first in the graph.
fn nodes(graph: &Graph) -> BTreeMap<String, String> {
    let mut nodes = BTreeMap::new();
    for node in graph.nodes().values().filter(|node| is_variable(node)) {
        nodes.entry(variable_key(node)).or_insert_with(|| node.name.clone());
    }
    nodes
}

fn is_variable(node: &Node) -> bool {
    matches!(node.op.as_str(), "VariableV2" | "Variable" | "VarHandleOp")
        && node.attrs.data_type("dtype").is_ok_and(|data_type| data_type != DataType::String)
}
