//! References that stand for one of several variables, as a RefMerge makes them: only the run says for which.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{Node, NodeId, Output};
use plimsoll_ops::{Lower, Meta};

use super::branch::Pick;
use super::{Lowering, Meaning};
use crate::condition::Condition;
use crate::lir::{VariableId, View};

/// Variables, each with the condition under which it is the one. At most one of these holds.
pub(super) type Several = Vec<(VariableId, Condition)>;

impl Lowering<'_> {
    /// The first output of a node refers to the first of these variables whose condition holds.
    pub(super) fn refer_to_several(&mut self, id: NodeId, all: impl Iterator<Item = (VariableId, Condition)>) -> Result<()> {
        let mut several = Several::new();
        let mut none_before = Condition::ALWAYS;
        for (variable, alive) in all {
            several.push((variable, self.branches.and(none_before, alive)?));
            let is_dead = self.branches.not(alive)?;
            none_before = self.branches.and(none_before, is_dead)?;
        }
        self.branches.several.insert(Output { node: id, index: 0 }, several);
        Ok(())
    }

    /// Where `source` refers to one of several variables, `alias` refers to the same.
    pub(super) fn refer_alike(&mut self, source: Output, alias: Output) {
        let is_reference = self.pruned.facts[alias.node][alias.index as usize].is_ref;
        if let Some(several) = self.branches.several.get(&source).filter(|_| is_reference).cloned() {
            self.branches.several.insert(alias, several);
        }
    }

    /// Changes variables. Where an input refers to one of several, each of them is changed under the condition that it is the one.
    pub(super) fn change(&mut self, id: NodeId, node: &Node, lower: Lower) -> Result<()> {
        let Some((reference, several)) = self.one_of_several(node)? else { return self.change_these(id, node, lower) };
        let (now, value, own) = (self.now(), self.meaning(reference)?.clone(), Output { node: id, index: 0 });
        for (variable, is_the_one) in &several {
            let first = self.lir.works.len();
            let condition = self.branches.and(now, *is_the_one)?;
            if condition == Condition::NEVER {
                continue;
            }
            self.guard_by(condition, id)?;
            self.meanings.insert(reference, Meaning::Variable(*variable));
            self.meanings.remove(&own);
            self.change_these(id, node, lower)?;
            self.set_flags(first)?;
        }
        self.guard_by(now, id)?;
        self.meanings.insert(reference, value);
        // Where the result is a reference, too, it has the changed value, and refers to the same.
        if self.meanings.remove(&own).is_some() {
            let value = self.value_of_one(id, &several)?;
            self.define(id, 0, Meaning::Value(value));
            self.branches.several.insert(own, several);
        }
        Ok(())
    }

    /// The input of a node that refers to one of several variables, with these; none where there is no such input.
    fn one_of_several(&self, node: &Node) -> Result<Option<(Output, Several)>> {
        let mut found = node.inputs.iter().filter_map(|input| Some((*input, self.branches.several.get(input)?)));
        let Some((reference, several)) = found.next() else { return Ok(None) };
        if found.any(|(other, _)| other != reference) {
            return Err(Error::unimplemented("not yet: a change by two references to one of several variables"));
        }
        Ok(Some((reference, several.clone())))
    }

    /// The value that one of several variables of one shape has here.
    fn value_of_one(&mut self, id: NodeId, several: &Several) -> Result<View> {
        let now = self.now();
        let mut picks = Vec::with_capacity(several.len());
        for (variable, is_the_one) in several {
            self.guard_by(*is_the_one, id)?;
            picks.push((Pick::Value(self.read_variable(*variable, id, None)?), *is_the_one));
        }
        self.guard_by(now, id)?;
        let variable = &self.lir.variables[several[0].0];
        let meta = Meta { data_type: variable.data_type, shape: variable.shape.clone() };
        self.chosen(id, picks, &meta)?.ok_or_else(|| Error::internal("a variable without a value"))
    }
}
