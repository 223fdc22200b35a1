//! The accesses of commands to files are those of the graph's nodes: a plan names no file of its own.

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{HostTensor, NodeId};

use super::{Checked, wrong};
use crate::plan::{PlanCall, PlanCheck, PlanRestore, PlanSave};

/// A checkpoint that a node names.
struct Named<'a> {
    names: &'a [Vec<u8>],
}

impl Checked<'_> {
    pub(super) fn calls(&self) -> Result<()> {
        let each = |call: &PlanCall| match call {
            PlanCall::Check(check) => self.check(check),
            PlanCall::Restore(restore) => self.restore(restore),
            PlanCall::Save(save) => self.save(save),
        };
        self.plan
            .calls
            .iter()
            .enumerate()
            .try_for_each(|(index, call)| each(call).map_err(|error| error.context(format_args!("file {index}"))))
    }

    fn check(&self, check: &PlanCheck) -> Result<()> {
        let named = self.named(check.node, "RestoreV2", &check.prefix)?;
        let types = self.pruned.facts[check.node].iter().map(|fact| fact.data_type);
        let wanted = named.names.iter().map(Vec::as_slice).zip(types);
        let said = check.tensors.iter().map(|(name, data_type)| (name.as_bytes(), *data_type));
        if said.eq(wanted) { Ok(()) } else { Err(wrong("it restores other tensors than its node")) }
    }

    fn restore(&self, restore: &PlanRestore) -> Result<()> {
        let named = self.named(restore.node, "RestoreV2", &restore.prefix)?;
        if !named.names.iter().any(|name| name == restore.name.as_bytes()) {
            return Err(wrong("it restores another tensor than its node"));
        }
        let exists = self.plan.variables.get(restore.variable as usize).is_some();
        if exists { Ok(()) } else { Err(wrong(format!("there is no variable {}", restore.variable))) }
    }

    fn save(&self, save: &PlanSave) -> Result<()> {
        let named = self.named(save.node, "SaveV2", &save.prefix)?;
        if !save.tensors.iter().map(|tensor| tensor.name.as_bytes()).eq(named.names.iter().map(Vec::as_slice)) {
            return Err(wrong("it saves other tensors than its node"));
        }
        for tensor in &save.tensors {
            let bytes = tensor.shape.bytes(tensor.data_type)?;
            let Some(index) = tensor.variable else { continue };
            let variable = self.plan.variables.get(index as usize).ok_or_else(|| wrong(format!("there is no variable {index}")))?;
            if variable.data_type != tensor.data_type || variable.bytes != bytes {
                return Err(wrong(format!("variable {} is saved as {}{}", variable.name, tensor.data_type, tensor.shape)));
            }
        }
        Ok(())
    }

    /// The checkpoint that a node reads or writes; it is that of the plan.
    fn named(&self, id: NodeId, op: &str, prefix: &str) -> Result<Named<'_>> {
        self.require_node(id)?;
        let node = self.graph.node(id);
        let strings = |input: usize| {
            let input = node.inputs.get(input)?;
            let value = self.pruned.facts[input.node].get(input.index as usize)?.value.as_ref();
            value.filter(|value| value.data_type() == DataType::String).and_then(HostTensor::strings)
        };
        match (strings(0), strings(1)) {
            (Some([named]), Some(names)) if node.op == op && named == prefix.as_bytes() => Ok(Named { names }),
            _ => Err(wrong(format!("no {op} of the graph names {}", prefix.escape_debug()))),
        }
    }
}
