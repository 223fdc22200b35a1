//! RestoreV2 and SaveV2: works of the host on files. A RestoreV2 is a check that all its tensors are there and whole. Each Assign of
//! one is a work that brings it from the file into the variable. A SaveV2 is one work that reads its tensors.
//!
//! A checkpoint is state, as a variable is, named by the prefix under which it is read and written. A reader waits for the writers
//! before it, a writer for all accesses before it. The works are commands of the host's queue (`Work::Outside`). A tensor of a
//! RestoreV2 that no variable takes has no shape, and is refused as not yet built.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, Node, NodeId};

use super::{Lowering, Meaning};
use crate::lir::{Home, Lir, ValueId, VariableId, View, WorkId, WorkKind};
use crate::plan::{PlanCall, PlanCheck, PlanRestore, PlanSave, SavedTensor};

/// Tensors go to files and come from them through a buffer of at most so many bytes.
const BUFFER: u64 = 256 << 10;
/// The least that a buffer has.
const LEAST: u64 = 4096;

/// A tensor in a file: its shape is that of the variable that takes it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    prefix: String,
    name: String,
    node: NodeId,
    /// The check that it is there.
    check: WorkId,
    /// How often its file had been written in this run.
    version: u32,
}

/// The accesses of the nodes so far to checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoints(HashMap<String, Checkpoint>);

#[derive(Debug, Default)]
struct Checkpoint {
    version: u32,
    writer: Option<WorkId>,
    /// Since then.
    readers: Vec<WorkId>,
}

impl Lowering<'_> {
    pub(super) fn restore(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let (prefix, names) = self.checkpoint(node, self.pruned.facts[id].len())?;
        let types = self.pruned.facts[id].iter().map(|fact| fact.data_type);
        let tensors = names.iter().cloned().zip(types).collect();
        let call = PlanCall::Check(PlanCheck { prefix: prefix.clone(), tensors, node: id });
        let check = self.outside(id, call, LEAST, Vec::new(), Vec::new());
        self.read_checkpoint(&prefix, check);
        let version = self.checkpoints.0.get(&prefix).map_or(0, |checkpoint| checkpoint.version);
        for (index, name) in names.into_iter().enumerate() {
            self.define(id, index, Meaning::Stored(Stored { prefix: prefix.clone(), name, node: id, check, version }));
        }
        Ok(())
    }

    /// The variable becomes the tensor; `result` is its next version.
    pub(super) fn restore_variable(&mut self, id: NodeId, stored: Stored, variable: VariableId, result: ValueId) -> Result<()> {
        let Stored { prefix, name, node, check, version } = stored;
        if self.checkpoints.0.get(&prefix).is_some_and(|checkpoint| checkpoint.version != version) {
            return Err(Error::unimplemented(format!("not yet: {prefix} is written between RestoreV2 and the assignment of '{name}'")));
        }
        let bytes = self.lir.values[result].bytes;
        let call = PlanCall::Restore(PlanRestore { prefix: prefix.clone(), name, variable: variable.index() as u32, node });
        let buffer = bytes.clamp(LEAST, BUFFER);
        let work = self.outside(id, call, buffer, Vec::new(), vec![result]);
        // The check reads the same tensor, through a buffer that is as large.
        if let WorkKind::Outside { scratch, .. } = &mut self.lir.works[check].kind {
            *scratch = buffer.max(*scratch);
        }
        self.lir.works[work].after.push(check);
        self.read_checkpoint(&prefix, work);
        Ok(())
    }

    pub(super) fn save(&mut self, id: NodeId, node: &Node) -> Result<()> {
        const FIRST: usize = 3;
        let (prefix, names) = self.checkpoint(node, node.inputs.len().saturating_sub(FIRST))?;
        let device = self.host;
        let mut views = Vec::with_capacity(names.len());
        for input in &node.inputs[FIRST..] {
            views.push(match self.meaning(*input)?.clone() {
                Meaning::Variable(variable) => self.read_variable(variable, id, None)?,
                _ => self.read(*input, device)?,
            });
        }
        let tensor =
            |(name, view): (String, &View)| SavedTensor { name, data_type: view.data_type, shape: view.shape.clone(), variable: None };
        let largest = views.iter().filter(|view| self.is_variable(view)).map(|view| self.lir.values[view.value].bytes).max();
        let tensors = names.into_iter().zip(&views).map(tensor).collect();
        let call = PlanCall::Save(PlanSave { prefix: prefix.clone(), tensors, node: id });
        let work = self.outside(id, call, largest.map_or(0, |bytes| bytes.clamp(LEAST, BUFFER)), views, Vec::new());
        let checkpoint = self.checkpoints.0.entry(prefix).or_default();
        let before = checkpoint.readers.drain(..).chain(checkpoint.writer);
        self.lir.works[work].after.extend(before);
        (checkpoint.writer, checkpoint.version) = (Some(work), checkpoint.version + 1);
        Ok(())
    }

    fn is_variable(&self, view: &View) -> bool {
        matches!(self.lir.values[view.value].home, Home::Variable(_))
    }

    fn read_checkpoint(&mut self, prefix: &str, reader: WorkId) {
        let checkpoint = self.checkpoints.0.entry(prefix.to_string()).or_default();
        self.lir.works[reader].after.extend(checkpoint.writer);
        checkpoint.readers.push(reader);
    }

    /// A work of the host on files.
    fn outside(&mut self, id: NodeId, call: PlanCall, scratch: u64, inputs: Vec<View>, outputs: Vec<ValueId>) -> WorkId {
        let kind = WorkKind::Outside { call: self.lir.calls.push(call), scratch };
        let (work, guard) = (self.lir.work(kind, self.host, vec![id], inputs, outputs), self.branches.guard);
        (self.lir.works[work].is_root, self.lir.works[work].guard) = (true, guard);
        work
    }

    /// The file and the names of `count` tensors, which have to be known and whole.
    fn checkpoint(&self, node: &Node, count: usize) -> Result<(String, Vec<String>)> {
        let values = self.values(node);
        let texts = |input: usize, what: &str| {
            let strings = values.get(input).and_then(Option::as_ref).and_then(HostTensor::strings);
            let strings = strings.ok_or_else(|| Error::needs_values(format!("not yet: {what} of {} that only the run knows", node.op)))?;
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone());
            strings
                .iter()
                .map(text)
                .collect::<std::result::Result<Vec<String>, _>>()
                .map_err(|_| Error::invalid_argument(format!("{what} of {} is not UTF-8", node.op)))
        };
        let (prefix, names, slices) = (texts(0, "the prefix")?, texts(1, "tensor_names")?, texts(2, "shape_and_slices")?);
        let [prefix] = &prefix[..] else { return Err(Error::invalid_argument(format!("the prefix of {} must be one string", node.op))) };
        if names.len() != count || slices.len() != count {
            let message = format!("{} of {count} tensors has {} names and {} slices", node.op, names.len(), slices.len());
            return Err(Error::invalid_argument(message));
        }
        match slices.iter().find(|slice| !slice.is_empty()) {
            Some(slice) => Err(Error::unimplemented(format!("not yet: a part of a tensor in {}: '{slice}'", node.op))),
            None => Ok((prefix.clone(), names)),
        }
    }
}

/// Says of saved tensors whether they are read where a variable lies: by now it is known which readers get copies.
pub(crate) fn settle_saves(lir: &mut Lir) {
    let Lir { works, calls, values, .. } = lir;
    for work in works.values() {
        let WorkKind::Outside { call, .. } = work.kind else { continue };
        let PlanCall::Save(save) = &mut calls[call] else { continue };
        for (tensor, view) in save.tensors.iter_mut().zip(&work.inputs) {
            tensor.variable = match values[view.value].home {
                Home::Variable(variable) => Some(variable.index() as u32),
                _ => None,
            };
        }
    }
}
