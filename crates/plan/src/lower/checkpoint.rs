//! RestoreV2 and SaveV2: what a run reads from files before it starts is fed to it, and what it writes to files when it is over
//! is fetched from it.

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};

use super::{Lowering, Meaning};
use crate::lir::{Home, View, WorkKind};
use crate::plan::{PlanRestore, PlanSave, SavedTensor};

/// A tensor in a file: its shape is that of what takes it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    prefix: String,
    name: String,
    node: NodeId,
}

impl Lowering<'_> {
    pub(super) fn restore(&mut self, id: NodeId, node: &Node) -> Result<()> {
        if self.branches.guard.is_some() {
            return Err(Error::unimplemented("not yet: RestoreV2 that runs only sometimes"));
        }
        let (prefix, names) = self.checkpoint(node, self.pruned.facts[id].len())?;
        for (index, name) in names.into_iter().enumerate() {
            self.define(id, index, Meaning::Stored(Stored { prefix: prefix.clone(), name, node: id }));
        }
        Ok(())
    }

    /// The tensor `stored`, of this type and shape, as a value.
    pub(super) fn fed_from_file(&mut self, source: Output, stored: Stored, shape: Shape) -> Result<View> {
        let data_type = self.pruned.facts[source.node][source.index as usize].data_type;
        let bytes = shape.bytes(data_type)?;
        let Stored { prefix, name, node } = stored;
        let index = self.pruned.feeds.len() + self.lir.restores.len();
        let value = self.lir.value(self.host, Home::Feed(index as u32), bytes.0, node);
        self.lir.restores.push(PlanRestore { prefix, name, data_type, shape: shape.clone(), bytes, node });
        Ok(View { value, data_type, shape })
    }

    pub(super) fn save(&mut self, id: NodeId, node: &Node) -> Result<()> {
        const FIRST: usize = 3;
        if self.branches.guard.is_some() {
            return Err(Error::unimplemented("not yet: SaveV2 that runs only sometimes"));
        }
        let (prefix, names) = self.checkpoint(node, node.inputs.len().saturating_sub(FIRST))?;
        let inputs: Vec<usize> = (FIRST..node.inputs.len()).collect();
        let views = self.read_inputs(id, node, &inputs)?;
        let mut tensors = Vec::with_capacity(views.len());
        for (name, view) in names.into_iter().zip(views) {
            let saved: usize = self.lir.saves.iter().map(|save| save.tensors.len()).sum();
            let index = self.pruned.fetches.len() + saved + tensors.len();
            let bytes = self.lir.values[view.value].bytes;
            let copy = self.lir.value(self.host, Home::Fetch(index as u32), bytes, id);
            tensors.push(SavedTensor { name, data_type: view.data_type, shape: view.shape.clone(), bytes: Bytes(bytes) });
            self.lir.work(WorkKind::Copy, self.host, vec![id], vec![view], vec![copy]).is_root = true;
        }
        self.lir.saves.push(PlanSave { prefix, tensors, node: id });
        Ok(())
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
