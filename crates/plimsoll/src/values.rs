//! Where the variables of a model have their values from: the files of a SavedModel, a checkpoint, or both.
//!
//! Loading belongs to the promise. Values are read when a plan that touches their variables is loaded. They go piece by piece
//! through one buffer of at most 64 KiB, which the footprint counts. A variable that no run touches is never read.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_formats::OBJECT_GRAPH_KEY;
use plimsoll_formats::bundle::{BundleReader, Entry};
use plimsoll_graph::{AttrsExt, Graph, HostTensor, Node, NodeId, Output};
use plimsoll_plan::{PlanVariable, VariableKind, variable_key};
use plimsoll_runtime::{Stored, StoredVariable};

use crate::checkpoint;

/// Bytes that go from a file to a variable at a time.
const PIECE: u64 = 64 << 10;

/// The least buffer: it holds an element of every type.
const LEAST: u64 = 16;

/// Where the variables of a model have their values from. They are read when a run first needs the variables, piece by piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub(crate) saved: Option<SavedValues>,
    pub(crate) checkpoint: Option<PathBuf>,
}

/// The variables of a SavedModel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedValues {
    /// The checkpoint in its folder.
    pub prefix: PathBuf,
    /// The node that the model's own restoring has the prefix from.
    pub filename: String,
    /// The operation that restores.
    pub restore: String,
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

    /// Whether they are those of a SavedModel, so that its variables need no initializer.
    pub fn are_saved(&self) -> bool {
        self.saved.is_some()
    }

    /// The files, for a graph with calls inlined; and the operations that restore in ways of their own and have to run.
    ///
    /// # Errors
    /// NOT_FOUND where a checkpoint is not there; its flaw.
    pub(crate) fn open(&self, graph: &Graph) -> Result<Opened> {
        let mut opened = self.open_saved(graph)?;
        if let Some(path) = &self.checkpoint {
            let reader = BundleReader::open(checkpoint::find(path)?)?;
            let found = |node: &Node| Some((variable_key(node), opened.objects.find(&node.name, false, &reader)?));
            let keys: BTreeMap<String, String> = graph.nodes().values().filter(|node| is_variable(node)).filter_map(found).collect();
            if keys.is_empty() && graph.nodes().values().any(is_variable) {
                let some: Vec<&str> = reader.names().take(3).collect();
                return Err(Error::not_found(format!("the checkpoint has none of the graph's variables; it has {}", some.join(", "))));
            }
            opened.sources.insert(0, Source { reader, keys, nodes: nodes(graph), overrides: true });
        }
        Ok(opened)
    }

    /// The files of the SavedModel.
    fn open_saved(&self, graph: &Graph) -> Result<Opened> {
        let mut opened = Opened::default();
        let Some(saved) = &self.saved else { return Ok(opened) };
        let restoring = Restoring::find(graph, saved)?;
        if restoring.keys.is_empty() && restoring.others.is_empty() {
            return Ok(opened);
        }
        let reader = BundleReader::open(&saved.prefix)?;
        let mut keys = restoring.keys;
        // Keras saves copies of its variables: those that its functions use are found by name.
        let named = reader.keys_of_objects()?;
        for node in graph.nodes().values().filter(|node| is_variable(node)) {
            let key = variable_key(node);
            let name = key.split_once(';').map_or("", |(_, name)| name);
            if let (false, Some(stored)) = (keys.contains_key(&key), named.get(name)) {
                keys.insert(key, stored.clone());
            }
        }
        opened.objects = Objects::new(&reader, graph, &keys)?;
        opened.sources.push(Source { reader, keys, nodes: nodes(graph), overrides: false });
        opened.run = restoring.others;
        Ok(opened)
    }
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
    fn new(reader: &BundleReader, graph: &Graph, keys: &BTreeMap<String, String>) -> Result<Objects> {
        if !reader.contains(OBJECT_GRAPH_KEY) {
            return Ok(Objects::default());
        }
        let key = |node: &Node| Some((node.name.clone(), keys.get(&variable_key(node))?.clone()));
        let keys = graph.nodes().values().filter(|node| is_variable(node)).filter_map(key).collect();
        Ok(Objects { keys, graph: Some(reader.read(OBJECT_GRAPH_KEY)?) })
    }

    /// The key of a variable in a new checkpoint: that of its object, or its name.
    pub fn key(&self, name: &str, is_state: bool) -> String {
        self.keys.get(name).filter(|_| !is_state).cloned().unwrap_or_else(|| checkpoint::key(name, is_state))
    }

    /// The key under which a checkpoint has a variable.
    pub fn find(&self, name: &str, is_state: bool, reader: &BundleReader) -> Option<String> {
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
    reader: BundleReader,
    /// Names in the file by the keys of variables.
    keys: BTreeMap<String, String>,
    /// Names of nodes by the keys of variables.
    nodes: BTreeMap<String, String>,
    /// Whether its values take the place of those that variables have.
    overrides: bool,
}

#[derive(Debug)]
struct Files(Vec<Source>);

impl Files {
    /// The file that has the value, and its name there.
    fn find(&self, variable: &PlanVariable) -> Option<(&Source, String)> {
        let name = |source: &Source| match variable.kind {
            // Only checkpoints of ours have states.
            VariableKind::State => {
                Some(checkpoint::key(&variable.name, true)).filter(|name| source.overrides && source.reader.contains(name))
            }
            _ => source.keys.get(&variable.key).cloned(),
        };
        self.0.iter().find_map(|source| Some((source, name(source)?)))
    }
}

impl Stored for Files {
    fn buffer(&self, variable: &PlanVariable) -> Option<Bytes> {
        self.find(variable).map(|_| piece(variable.bytes))
    }

    fn variables(&self) -> Result<Vec<StoredVariable>> {
        let mut variables: BTreeMap<&String, StoredVariable> = BTreeMap::new();
        for source in &self.0 {
            for (key, node) in &source.nodes {
                let Some(stored) = source.keys.get(key).filter(|_| !variables.contains_key(key)) else { continue };
                let Entry { data_type, shape } = source.reader.entry(stored)?;
                variables.insert(key, StoredVariable { key: key.clone(), name: node.clone(), data_type, shape });
            }
        }
        Ok(variables.into_values().collect())
    }

    fn read_key(&self, key: &str, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let found = self.0.iter().find_map(|source| Some((source, source.keys.get(key)?)));
        let (source, name) = found.ok_or_else(|| Error::not_found(format!("no files hold a value for '{key}'")))?;
        source.reader.read_in_pieces(name, buffer, give)
    }

    fn overrides(&self, variable: &PlanVariable) -> bool {
        self.find(variable).is_some_and(|(source, _)| source.overrides)
    }

    fn read(&self, variable: &PlanVariable, buffer: &mut [u8], give: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let (source, name) = self.find(variable).ok_or_else(|| Error::internal("a variable without a value in the files"))?;
        let entry = source.reader.entry(&name)?;
        if entry.data_type != variable.data_type || entry.shape != variable.shape {
            return Err(Error::invalid_argument(format!(
                "variable '{}' is {}{}, in the checkpoint {}{}",
                variable.name, variable.data_type, variable.shape, entry.data_type, entry.shape
            )));
        }
        source.reader.read_in_pieces(&name, buffer, give)
    }
}

/// The restoring operations of a SavedModel.
#[derive(Debug, Default)]
struct Restoring {
    /// Variables that get a tensor of the files as it is: names there, by the keys of variables.
    keys: BTreeMap<String, String>,
    /// Other operations that the restoring runs.
    others: Vec<String>,
}

impl Restoring {
    /// Reads it from the graph. Assignments of whole tensors from a RestoreV2 are values of variables; everything else with an
    /// effect has to run.
    fn find(graph: &Graph, saved: &SavedValues) -> Result<Restoring> {
        let Some(restore) = graph.find(&saved.restore) else { return Ok(Restoring::default()) };
        let mut restoring = Restoring::default();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut stack = vec![restore];
        let mut simple = true;
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = graph.node(id);
            stack.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
            match node.op.as_str() {
                "Assign" | "AssignVariableOp" => match stored_tensor(graph, node, &saved.filename) {
                    Some((variable, name)) => drop(restoring.keys.insert(variable_key(graph.node(variable)), name)),
                    None => simple = false,
                },
                "RestoreV2"
                | "NoOp"
                | "Identity"
                | "IdentityN"
                | "Const"
                | "VarHandleOp"
                | "VariableV2"
                | "Variable"
                | "Placeholder"
                | "PlaceholderWithDefault" => {}
                _ => simple = false,
            }
        }
        if !simple {
            restoring.others.push(saved.restore.clone());
        }
        Ok(restoring)
    }
}

/// The variable that `assign` changes and the tensor of the files that it gets, where it is that simple.
fn stored_tensor(graph: &Graph, assign: &Node, filename: &str) -> Option<(NodeId, String)> {
    let [target, value, ..] = &assign.inputs[..] else { return None };
    let variable = source(graph, *target).node;
    let value = source(graph, *value);
    let restore = graph.node(value.node);
    if restore.op != "RestoreV2" || !is_variable(graph.node(variable)) {
        return None;
    }
    let [prefix, names, slices] = &restore.inputs[..] else { return None };
    if graph.node(source(graph, *prefix).node).name != filename {
        return None;
    }
    let text = |input: &Output| {
        let tensor = graph.node(source(graph, *input).node).attrs.tensor("value").ok()?;
        String::from_utf8(tensor.strings()?.get(value.index as usize)?.clone()).ok()
    };
    (text(slices)?.is_empty()).then_some((variable, text(names)?))
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
