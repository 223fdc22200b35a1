//! Checkpoints of sessions, in TensorFlow's format: written in version 2 (`P.index`, `P.data-00000-of-00001`, and the file
//! `checkpoint` beside them, which names the latest), read in either.
//!
//! Variables are under their names, as `tf.compat.v1.train.Saver` has them. Those of a SavedModel with objects are under the keys of
//! their objects, with the graph of the objects, as `tf.train.Checkpoint` has them. The state of random generators is there too,
//! under keys that TensorFlow does not ask for. So a resumed run draws the numbers that it would have drawn.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::Session;
use plimsoll_base::{DataType, Error, Result};
use plimsoll_formats::bundle::{
    BundleWriter, Checkpoint, CheckpointState, latest_checkpoint, read_checkpoint_state, write_checkpoint_state,
};
use plimsoll_graph::{AttrsExt, Graph, HostTensor, Shape};
use plimsoll_runtime::{CheckpointReader, CheckpointWriter, Checkpoints, Sink, Source, StoredVariable, VariableInfo};

use crate::{Signature, values};

/// The beginning of the keys of random generators' states; the node's name follows.
pub const STATE_PREFIX: &str = "_PLIMSOLL_STATE/";

/// The restored variables of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Those that have their value from the checkpoint, states of random generators included.
    pub restored: Vec<String>,
    /// Those that the checkpoint does not have: they are as they were.
    pub missing: Vec<String>,
}

/// Writes every variable that has a value to the checkpoint `prefix`, and names it the latest of its folder. Nothing stands
/// under the final names before it is complete. Steps that run at the same time may be in it in part.
///
/// # Errors
/// FAILED_PRECONDITION where no variable has a value; INVALID_ARGUMENT where `prefix` names no file; the file system's error.
pub fn save(session: &Session, prefix: &Path) -> Result<()> {
    save_with(session, prefix, |_| true, &[])
}

/// As [`save`], but only the variables that `is_wanted`, and with tensors that are no variables beside them, under keys of their
/// own.
///
/// # Errors
/// As [`save`]; INVALID_ARGUMENT where a key is a variable's name.
pub fn save_with(session: &Session, prefix: &Path, is_wanted: impl Fn(&VariableInfo) -> bool, others: &[(&str, HostTensor)]) -> Result<()> {
    let (objects, session) = (session.objects(), session.inner());
    let wanted = |variable: &VariableInfo| variable.is_initialized && is_wanted(variable);
    let variables: Vec<VariableInfo> = session.variables().into_iter().filter(wanted).collect();
    let unloaded = session.unloaded()?;
    let of_files = |variable: &&StoredVariable| {
        let StoredVariable { name, data_type, shape, .. } = variable;
        let info = VariableInfo { name: name.clone(), data_type: *data_type, shape: shape.clone(), is_initialized: true, is_state: false };
        is_wanted(&info)
    };
    let unloaded: Vec<&StoredVariable> = unloaded.iter().filter(of_files).collect();
    if variables.iter().all(|variable| variable.is_state) && unloaded.is_empty() {
        return Err(Error::failed_precondition("there is nothing to save: no variable has a value"));
    }
    let name = prefix.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Error::invalid_argument(format!("'{}' cannot name a checkpoint: write FOLDER/NAME", prefix.display())))?;
    let mut writer = BundleWriter::create(prefix)?;
    // Of two variables with one object the first has its key: what was trained comes before what was not touched.
    let mut taken = HashSet::new();
    let mut key_of = |name: &str, is_state: bool| {
        let key = objects.key(name, is_state);
        if taken.insert(key.clone()) { key } else { self::key(name, is_state) }
    };
    for variable in &variables {
        writer.add(&key_of(&variable.name, variable.is_state), &session.read_variable(&variable.name)?)?;
    }
    // A value that no run has needed goes from file to file.
    for StoredVariable { key, name, data_type, shape } in unloaded {
        writer.add_pieces(&key_of(name, false), *data_type, shape, &mut |put| session.read_stored(key, &mut |_, piece| put(piece)))?;
    }
    for (key, tensor) in others.iter().map(|(key, tensor)| (*key, tensor)).chain(objects.graph()) {
        writer.add(key, tensor)?;
    }
    writer.finish()?;
    let folder = folder_of(prefix);
    let mut kept = read_checkpoint_state(&folder)?.unwrap_or_default().all_model_checkpoint_paths;
    kept.retain(|path| path != name && exists(&folder.join(path)));
    kept.push(name.to_string());
    let state = CheckpointState { model_checkpoint_path: name.to_string(), all_model_checkpoint_paths: kept, ..CheckpointState::default() };
    write_checkpoint_state(&folder, &state)
}

/// Removes a checkpoint that [`save`] wrote: the file `checkpoint` no longer names it, then its files go. A later one is the latest
/// of its folder.
///
/// # Errors
/// FAILED_PRECONDITION where it is the latest; the file system's error.
pub fn remove(prefix: &Path) -> Result<()> {
    let (folder, name) = (folder_of(prefix), prefix.file_name().and_then(|name| name.to_str()).unwrap_or_default());
    if let Some(mut state) = read_checkpoint_state(&folder)? {
        if state.model_checkpoint_path == name {
            return Err(Error::failed_precondition(format!("{} is the latest checkpoint of its folder", prefix.display())));
        }
        state.all_model_checkpoint_paths.retain(|path| path != name);
        write_checkpoint_state(&folder, &state)?;
    }
    // The index first: without it there is no checkpoint.
    for suffix in [".index", ".data-00000-of-00001"] {
        let mut path = prefix.as_os_str().to_os_string();
        path.push(suffix);
        std::fs::remove_file(&path).map_err(|error| crate::model::file_error(Path::new(&path), &error))?;
    }
    Ok(())
}

/// Gives the graph's variables the values that `checkpoint` (a prefix, or a folder: the latest in it) has for them. Its
/// entries that the graph does not know are left alone. Types and shapes are looked at before anything changes.
///
/// The state of a random generator is restored where a callable that uses it was prepared before, so prepare callables first.
///
/// # Errors
/// NOT_FOUND where there is no checkpoint, or none of its entries is a variable of the graph. INVALID_ARGUMENT where types or
/// shapes differ. DATA_LOSS where it is damaged. RESOURCE_EXHAUSTED where the line has no room for the variables.
pub fn restore(session: &Session, checkpoint: &Path) -> Result<Restored> {
    let (objects, inner) = (session.objects(), session.inner());
    let reader = Checkpoint::open(find(checkpoint)?)?;
    let stored: Vec<String> = inner.variables().into_iter().map(|variable| variable.name).collect();
    let mut absent = variables_of(inner.graph());
    absent.retain(|name| !stored.contains(name) && objects.find(name, false, &reader).is_some());
    if !absent.is_empty() {
        // One callable that has them all, so that they share memory as they would in a run.
        inner.callable(&Signature { targets: absent, ..Signature::default() })?;
        inner.release_unused();
    }
    restore_from(session, &reader)
}

/// Names of the session's variables that have storage and no value in `checkpoint`.
///
/// # Errors
/// NOT_FOUND where there is no checkpoint; DATA_LOSS where it is damaged.
pub fn missing(session: &Session, checkpoint: &Path) -> Result<Vec<String>> {
    let (objects, session) = (session.objects(), session.inner());
    let reader = Checkpoint::open(find(checkpoint)?)?;
    // A checkpoint may have it under the name that the model's saver has for it.
    let is_missing = |variable: &VariableInfo| {
        objects.find(&variable.name, variable.is_state, &reader).is_none() && !session.is_overridden(&variable.name)
    };
    Ok(session.variables().into_iter().filter(is_missing).map(|variable| variable.name).collect())
}

/// As [`restore`], but only for variables that have storage already: those of the callables that were prepared. Takes no
/// memory of any device.
///
/// # Errors
/// As [`restore`].
pub fn restore_prepared(session: &Session, checkpoint: &Path) -> Result<Restored> {
    restore_from(session, &Checkpoint::open(find(checkpoint)?)?)
}

fn restore_from(session: &Session, reader: &Checkpoint) -> Result<Restored> {
    let (objects, session) = (session.objects(), session.inner());
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for variable in session.variables() {
        match objects.find(&variable.name, variable.is_state, reader) {
            Some(key) => here.push((key, variable)),
            None => absent.push(variable),
        }
    }
    if !here.iter().any(|(_, variable)| !variable.is_state) && absent.iter().any(|variable| !variable.is_state) {
        let some: Vec<&str> = reader.names().take(3).collect();
        return Err(Error::not_found(format!("the checkpoint has none of the graph's variables; it has {}", some.join(", "))));
    }
    for (key, variable) in &here {
        let entry = reader.entry(key)?;
        if entry.data_type != variable.data_type || entry.shape != variable.shape {
            return Err(Error::invalid_argument(format!(
                "variable '{}' is {}{}, in the checkpoint {}{}",
                variable.name, variable.data_type, variable.shape, entry.data_type, entry.shape
            )));
        }
    }
    for (key, variable) in &here {
        let bytes = variable.shape.bytes(variable.data_type)?;
        session.fill_variable(&variable.name, values::piece(bytes), &mut |buffer, give| reader.read_in_pieces(key, None, buffer, give))?;
    }
    let here = here.into_iter().map(|(_, variable)| variable).collect();
    let names = |variables: Vec<VariableInfo>| variables.into_iter().map(|variable| variable.name).collect();
    Ok(Restored { restored: names(here), missing: names(absent) })
}

/// The prefix that `path` stands for: itself, or the latest checkpoint of the folder that it is.
///
/// # Errors
/// NOT_FOUND where there is none.
pub fn find(path: &Path) -> Result<PathBuf> {
    if exists(path) {
        return Ok(path.to_path_buf());
    }
    let shown = path.display();
    if !path.is_dir() {
        return Err(Error::not_found(format!(
            "there is no checkpoint {shown}: neither {shown}.index nor a folder with a file 'checkpoint'"
        )));
    }
    let Some(state) = read_checkpoint_state(path)? else {
        return Err(Error::not_found(format!("the folder {shown} has no file 'checkpoint' that names its latest checkpoint"))
            .with_remedy("name a checkpoint: the part of its files' names before .index"));
    };
    let named = state.model_checkpoint_path.escape_debug().to_string();
    if named.is_empty() {
        return Err(Error::not_found(format!("the file {} names no checkpoint", path.join("checkpoint").display())));
    }
    latest_checkpoint(path)?.ok_or_else(|| {
        Error::not_found(format!("{} names '{named}' as the latest, and there is no {named}.index", path.join("checkpoint").display()))
            .with_remedy("name another checkpoint: the part of its files' names before .index")
    })
}

/// The file system, for graphs that save and restore themselves.
pub(crate) struct Files;

impl Checkpoints for Files {
    fn open(&self, prefix: &str) -> Result<Box<dyn CheckpointReader>> {
        if !exists(Path::new(prefix)) {
            let message = format!("Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {prefix}");
            return Err(Error::not_found(message));
        }
        Ok(Box::new(Reading(Checkpoint::open(prefix)?)))
    }

    fn create(&self, prefix: &str) -> Result<Box<dyn CheckpointWriter>> {
        Ok(Box::new(Writing(BundleWriter::create(prefix)?)))
    }
}

struct Reading(Checkpoint);

impl CheckpointReader for Reading {
    fn entry(&self, name: &str) -> Result<(DataType, Shape)> {
        if !self.0.contains(name) {
            return Err(Error::not_found(format!("Key {name} not found in checkpoint")));
        }
        self.0.entry(name).map(|entry| (entry.data_type, entry.shape))
    }

    fn stream(&self, name: &str, buffer: &mut [u8], sink: &mut Sink<'_>) -> Result<()> {
        self.0.read_in_pieces(name, None, buffer, sink)
    }
}

struct Writing(BundleWriter);

impl CheckpointWriter for Writing {
    fn add(&mut self, name: &str, data_type: DataType, shape: &Shape, source: &mut Source<'_>) -> Result<()> {
        self.0.add_pieces(name, data_type, shape, source)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()
    }
}

/// The key of a variable, or of the state of an operation, in a checkpoint.
pub(crate) fn key(name: &str, is_state: bool) -> String {
    if is_state { format!("{STATE_PREFIX}{name}") } else { name.to_string() }
}

fn exists(prefix: &Path) -> bool {
    Checkpoint::exists(prefix)
}

fn folder_of(prefix: &Path) -> PathBuf {
    prefix.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The variables of a graph whose type and shape are known.
fn variables_of(graph: &Graph) -> Vec<String> {
    let is_variable = |op: &str| matches!(op, "VariableV2" | "Variable" | "VarHandleOp");
    let known = |node: &plimsoll_graph::Node| {
        let shape = node.attrs.shape("shape").ok().and_then(plimsoll_graph::PartialShape::complete);
        shape.is_some() && node.attrs.data_type("dtype").is_ok_and(|data_type| data_type != DataType::String)
    };
    graph.nodes().values().filter(|node| is_variable(&node.op) && known(node)).map(|node| node.name.clone()).collect()
}
