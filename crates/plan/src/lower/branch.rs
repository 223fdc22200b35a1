//! Nodes that run only sometimes. Every node has the condition under which it runs: all its inputs and controls are alive. Its
//! works are guarded by a bool that says so. The results of a guarded work are undefined where it did not run, and no work that
//! runs reads them. Both sides of a branch are part of one region, ordered and packed with everything else.
//!
//! The rules of liveness are TensorFlow's: Switch kills one of its outputs, Merge lives by its first living input, a
//! ControlTrigger always lives.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::{Lower, Meta};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{ExprBuilder, Scalar};

use super::list::{Length, List};
use super::several::Several;
use super::{Lowering, Meaning};
use crate::condition::{Condition, Conditions};
use crate::lir::{Arg, FetchId, Home, RegionId, ValueId, VariableId, View, WorkId, WorkKind};
use crate::plan::{DeviceId, VariableKind};

/// The facts about liveness so far.
#[derive(Clone, Default)]
pub(super) struct Branches {
    conditions: Conditions,
    /// When nodes run; those that are not here always do.
    pub nodes: HashMap<NodeId, Condition>,
    /// When outputs are alive, where that is not when their nodes run.
    outputs: HashMap<Output, Condition>,
    /// The condition of the node that is being lowered, and the bool that says so; none where it always runs.
    now: Option<Condition>,
    pub guard: Option<ValueId>,
    /// References to one of several variables.
    pub several: HashMap<Output, Several>,
    /// Bools that say whether a condition holds.
    pub bools: HashMap<Condition, ValueId>,
    /// The condition that a bool says.
    made_of: HashMap<ValueId, Condition>,
    /// Whether variables were initialised when the run started, and the newest version of their flags.
    flags: HashMap<VariableId, (Condition, ValueId)>,
    /// Variables that the node at hand initialises, with the node and the version: their flags follow.
    to_flag: Vec<(VariableId, NodeId, ValueId)>,
    /// Works that fault where a variable is read that is not initialised, by the version that they stand for.
    checks: Vec<(ValueId, WorkId)>,
}

impl Branches {
    /// A loop has made a new version of a variable's flag.
    pub fn set_flag(&mut self, variable: VariableId, version: ValueId) -> Result<()> {
        self.flags.insert(variable, (self.conditions.predicate(version)?, version));
        Ok(())
    }

    /// Nodes always run, and their outputs are alive.
    pub fn revive(&mut self, nodes: &[NodeId]) {
        nodes.iter().for_each(|node| _ = self.nodes.remove(node));
        self.outputs.retain(|output, _| !nodes.contains(&output.node));
    }

    /// That both hold.
    pub fn and(&mut self, a: Condition, b: Condition) -> Result<Condition> {
        self.conditions.and(a, b)
    }

    /// That it does not hold.
    pub fn not(&mut self, condition: Condition) -> Result<Condition> {
        self.conditions.not(condition)
    }
}

impl Lowering<'_> {
    pub(super) fn now(&self) -> Condition {
        self.branches.now.unwrap_or(Condition::ALWAYS)
    }

    /// When an output is alive.
    fn alive(&self, output: Output) -> Condition {
        if self.is_outside(output.node) {
            return Condition::ALWAYS;
        }
        let is_fed = || self.pruned.is_fed(output);
        match self.branches.outputs.get(&output).or(self.branches.nodes.get(&output.node)) {
            None => Condition::ALWAYS,
            Some(_) if is_fed() => Condition::ALWAYS,
            Some(condition) => *condition,
        }
    }

    /// Begins with a node: works from here on are guarded by its condition. Whether it ever runs.
    pub(super) fn enter(&mut self, id: NodeId, node: &Node, lower: Lower) -> Result<bool> {
        let condition = self.condition(node, lower)?;
        if condition != Condition::ALWAYS {
            self.branches.nodes.insert(id, condition);
        }
        if condition != Condition::NEVER {
            self.guard_by(condition, id)?;
        }
        if condition != Condition::NEVER && matches!(lower, Lower::Switch) {
            self.switch(id, node, condition)?;
        }
        Ok(condition != Condition::NEVER)
    }

    /// From here on works run where `condition` holds.
    pub(super) fn guard_by(&mut self, condition: Condition, id: NodeId) -> Result<()> {
        (self.branches.now, self.branches.guard) = (None, None);
        if condition != Condition::ALWAYS {
            let guard = self.bool_of(condition, id)?.value;
            (self.branches.now, self.branches.guard) = (Some(condition), Some(guard));
        }
        Ok(())
    }

    pub(super) fn condition(&mut self, node: &Node, lower: Lower) -> Result<Condition> {
        match lower {
            Lower::ControlTrigger => Ok(Condition::ALWAYS),
            Lower::Merge => node.inputs.iter().try_fold(Condition::NEVER, |any, input| {
                let alive = self.alive(*input);
                self.branches.conditions.or(any, alive)
            }),
            _ => {
                let inputs = node.inputs.iter().map(|input| self.alive(*input));
                let of_node = |control: &NodeId| match self.is_outside(*control) {
                    true => Condition::ALWAYS,
                    false => self.branches.nodes.get(control).copied().unwrap_or(Condition::ALWAYS),
                };
                let controls = node.controls.iter().map(of_node);
                let all: Vec<Condition> = inputs.chain(controls).collect();
                all.into_iter().try_fold(Condition::ALWAYS, |all, next| self.branches.conditions.and(all, next))
            }
        }
    }

    /// Says when the two outputs are alive.
    fn switch(&mut self, id: NodeId, node: &Node, condition: Condition) -> Result<()> {
        let holds = match self.meaning(node.inputs[1])?.clone() {
            Meaning::Known(tensor) => Condition::known(tensor.splat().is_some_and(|bytes| bytes[0] != 0)),
            Meaning::Value(view) => self.holds(view)?,
            Meaning::Variable(variable) => {
                let view = self.read_variable(variable, id, None)?;
                self.holds(view)?
            }
            Meaning::Stored(_) | Meaning::List(_) | Meaning::Same(_) | Meaning::Placed(_) => {
                return self.read(node.inputs[1], self.host).map(drop);
            }
        };
        let fails = self.branches.conditions.not(holds)?;
        for (index, side) in [(0, fails), (1, holds)] {
            let alive = self.branches.conditions.and(condition, side)?;
            self.branches.outputs.insert(Output { node: id, index }, alive);
        }
        Ok(())
    }

    /// That a bool is true: the condition that it was made of, if it was made of one.
    pub(super) fn holds(&mut self, view: View) -> Result<Condition> {
        if view.data_type != DataType::Bool || view.elements() != 1 {
            return Err(Error::invalid_argument(format!("the predicate of Switch is {}{}, not one bool", view.data_type, view.shape)));
        }
        match self.branches.made_of.get(&view.value) {
            Some(condition) => Ok(*condition),
            None => self.branches.conditions.predicate(view.value),
        }
    }

    /// A bool that says whether `condition` holds, made by `id` if it is the first that needs it.
    pub(super) fn bool_of(&mut self, condition: Condition, id: NodeId) -> Result<View> {
        let value = match self.branches.bools.get(&condition) {
            Some(value) => *value,
            None => {
                let value = self.make_bool(condition, id)?;
                self.branches.bools.insert(condition, value);
                self.branches.made_of.entry(value).or_insert(condition);
                value
            }
        };
        Ok(View { value, data_type: DataType::Bool, shape: Shape::scalar() })
    }

    fn make_bool(&mut self, condition: Condition, id: NodeId) -> Result<ValueId> {
        if let Some(test) = self.branches.conditions.first_test(condition)
            && (test.if_true, test.if_false) == (Condition::ALWAYS, Condition::NEVER)
        {
            return Ok(self.branches.conditions.value(test.predicate));
        }
        let test = self.branches.conditions.first_test(condition).ok_or_else(|| Error::internal("a bool for what is known"))?;
        let predicate = View { value: self.branches.conditions.value(test.predicate), data_type: DataType::Bool, shape: Shape::scalar() };
        let mut sides = Vec::with_capacity(2);
        for side in [test.if_true, test.if_false] {
            sides.push(match side {
                Condition::ALWAYS | Condition::NEVER => Pick::Number(Scalar::Bool(side == Condition::ALWAYS)),
                _ => Pick::Value(self.bool_of(side, id)?),
            });
        }
        // A predicate that was not made may be any byte: a condition that looks at it does not depend on it then. For every order
        // of questions, it is known whether or not that node runs.
        let guard = self.branches.guard.take();
        let value = self.lir.value(self.device(id), Home::Arena, 1, id);
        let [on, off] = [sides[0].clone(), sides[1].clone()];
        self.pick(id, predicate, on, off, &Shape::scalar(), value)?;
        self.branches.guard = guard;
        Ok(value)
    }

    /// `result` is `on` where the bool is true, else `off`.
    fn pick(&mut self, id: NodeId, bool: View, on: Pick, off: Pick, shape: &Shape, result: ValueId) -> Result<()> {
        let mut builder = ExprBuilder::new();
        let mut views = vec![bool];
        let condition = builder.input(DataType::Bool)?;
        let mut operand = |pick| match pick {
            Pick::Number(number) => Ok(builder.constant(number)),
            Pick::Value(view) => {
                let register = builder.input(view.data_type);
                views.push(view);
                register
            }
        };
        let (on, off) = (operand(on)?, operand(off)?);
        let picked = builder.select(condition, on, off)?;
        self.work(id, WorkKind::Expr { expr: builder.finish(vec![picked]), shape: shape.clone() }, views, vec![result], false);
        Ok(())
    }

    /// The first living input, and its number.
    pub(super) fn merge(&mut self, id: NodeId, node: &Node) -> Result<()> {
        // Those that may be the first.
        let mut living: Vec<(usize, Output, Condition)> = Vec::new();
        let mut before = Condition::NEVER;
        for (index, input) in node.inputs.iter().enumerate() {
            let alive = self.alive(*input);
            if !self.branches.conditions.implies(alive, before)? {
                living.push((index, *input, alive));
                before = self.branches.conditions.or(before, alive)?;
            }
        }
        let variables: Vec<Option<VariableId>> = living.iter().map(|(_, input, _)| self.variable_behind(id, *input)).collect();
        match variables[..] {
            [Some(variable), ref others @ ..] if others.iter().all(|other| *other == Some(variable)) => {
                self.define(id, 0, Meaning::Variable(variable));
            }
            // A reference to one of several variables gives the value that the variable has here.
            _ if variables.iter().any(Option::is_some) && !self.pruned.facts[id][0].is_ref => {
                return Err(Error::unimplemented("not yet: a Merge of different variables"));
            }
            [_] => self.alias(id, living[0].1, 0)?,
            _ => {
                self.merged_value(id, &living)?;
                if let Some(variables) = variables.into_iter().collect::<Option<Vec<_>>>() {
                    self.refer_to_several(id, variables.into_iter().zip(living.iter().map(|(.., alive)| *alive)))?;
                }
            }
        }
        let is_read = self.pruned.facts[id].len() == 2 && !self.meanings.contains_key(&Output { node: id, index: 1 });
        if let ([(index, ..)], true) = (&living[..], is_read) {
            self.define(id, 1, Meaning::Known(HostTensor::scalar(*index as i32)));
        } else if is_read {
            let index = living.iter().map(|(index, _, alive)| (Pick::Number(Scalar::I32(*index as i32)), *alive)).collect();
            self.first_living(id, 1, index, &Meta { data_type: DataType::Int32, shape: Shape::scalar() })?;
        }
        Ok(())
    }

    /// The variable that an input of a Merge stands for, if the Merge gives on the variable and not its value.
    fn variable_behind(&self, id: NodeId, input: Output) -> Option<VariableId> {
        let fact = &self.pruned.facts[id][0];
        match self.meanings.get(&input) {
            Some(Meaning::Variable(variable)) if fact.is_ref || fact.data_type == DataType::Resource => Some(*variable),
            _ => None,
        }
    }

    fn merged_value(&mut self, id: NodeId, living: &[(usize, Output, Condition)]) -> Result<()> {
        if living.iter().any(|(_, input, _)| matches!(self.meanings.get(input), Some(Meaning::List(_) | Meaning::Same(_)))) {
            return self.merged_list(id, living);
        }
        let inputs: Vec<Output> = living.iter().map(|(_, input, _)| *input).collect();
        let metas = self.metas(&inputs)?;
        if let Some(other) = metas.iter().find(|meta| **meta != metas[0]) {
            return Err(Error::needs_values(format!("not yet: a Merge of shapes {} and {}", metas[0].shape, other.shape)));
        }
        let device = self.device(id);
        let mut picks = Vec::with_capacity(living.len());
        for (_, input, alive) in living {
            let view = match self.meaning(*input)?.clone() {
                // Read only where this input is the one.
                Meaning::Variable(variable) => {
                    let merge = self.now();
                    self.guard_by(*alive, id)?;
                    let view = self.read_variable(variable, id, None)?;
                    self.guard_by(merge, id)?;
                    view
                }
                _ => self.read(*input, device)?,
            };
            picks.push((Pick::Value(view), *alive));
        }
        self.first_living(id, 0, picks, &metas[0])
    }

    /// A list, of which the rows and the length are chosen.
    fn merged_list(&mut self, id: NodeId, living: &[(usize, Output, Condition)]) -> Result<()> {
        let merged = Output { node: id, index: 0 };
        let (mut rows, mut lengths, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (_, input, alive) in living {
            let list = self.list_like(*input, merged)?;
            rows.push((Pick::Value(self.rows(id, &list, merged)?), *alive));
            known.push(if let Length::Known(length) = list.length { Some(length) } else { None });
            lengths.push((list.length, *alive));
        }
        let (data_type, shape) = self.rows_shape(merged)?;
        let Some(rows) = self.chosen(id, rows, &Meta { data_type, shape })? else { return Err(Error::internal("a list without rows")) };
        let length = match known[..] {
            _ if lengths.iter().all(|(length, _)| matches!(length, Length::Absent)) => Length::Absent,
            [Some(first), ref others @ ..] if others.iter().all(|other| *other == Some(first)) => Length::Known(first),
            _ => {
                let lengths = lengths.iter().map(|(length, alive)| Ok((Pick::Value(self.number(id, length)?), *alive)));
                let lengths = lengths.collect::<Result<Vec<_>>>()?;
                let number = Meta { data_type: DataType::Int32, shape: Shape::scalar() };
                Length::Value(self.chosen(id, lengths, &number)?.ok_or_else(|| Error::internal("a list without a length"))?)
            }
        };
        self.define(id, 0, Meaning::List(List { rows: Some(rows), length }));
        Ok(())
    }

    /// Output `index` is the first of `picks` that is alive.
    fn first_living(&mut self, id: NodeId, index: usize, picks: Vec<(Pick, Condition)>, meta: &Meta) -> Result<()> {
        if let Some(view) = self.chosen(id, picks, meta)? {
            self.define(id, index, Meaning::Value(view));
        }
        Ok(())
    }

    /// The first of `picks` that is alive; none for a number.
    pub(super) fn chosen(&mut self, id: NodeId, mut picks: Vec<(Pick, Condition)>, meta: &Meta) -> Result<Option<View>> {
        let device = self.device(id);
        let (mut result, _) = picks.pop().ok_or_else(|| Error::internal("a Merge without living inputs"))?;
        while let Some((pick, alive)) = picks.pop() {
            let alive = self.bool_of(alive, id)?;
            let value = self.lir.value(device, Home::Arena, meta.bytes()?, id);
            self.pick(id, alive, pick, result, &meta.shape, value)?;
            result = Pick::Value(View { value, data_type: meta.data_type, shape: meta.shape.clone() });
        }
        Ok(if let Pick::Value(view) = result { Some(view) } else { None })
    }

    /// When a variable is initialised, as the nodes so far leave it.
    pub(super) fn initialized(&mut self, variable: VariableId) -> Result<Condition> {
        let written = self.written[variable];
        if written == Condition::ALWAYS {
            return Ok(written);
        }
        let (flag, _) = self.flag(variable)?;
        self.branches.conditions.or(flag, written)
    }

    /// Whether a variable was initialised when the run started, and the newest version of its flag, which is the host's.
    fn flag(&mut self, variable: VariableId) -> Result<(Condition, ValueId)> {
        if let Some(flag) = self.branches.flags.get(&variable) {
            return Ok(*flag);
        }
        let node = self.lir.values[self.versions[variable]].node;
        let here = self.lir.enter(RegionId::from_index(0));
        let value = self.lir.param(self.host, Home::Flag(variable), 1, node);
        self.lir.enter(here);
        let flag = (self.branches.conditions.predicate(value)?, value);
        self.branches.flags.insert(variable, flag);
        Ok(flag)
    }

    /// A read of a variable by the node at hand: FAILED_PRECONDITION before the run, or where only the run can tell, in it.
    pub(super) fn require_initialized(&mut self, variable: VariableId, reader: NodeId) -> Result<()> {
        let (now, written) = (self.now(), self.written[variable]);
        if self.branches.conditions.implies(now, written)? {
            return Ok(());
        }
        if now == Condition::ALWAYS && written == Condition::NEVER {
            self.lir.variables[variable].read_first_by.get_or_insert(reader);
            self.written[variable] = now;
            return Ok(());
        }
        let initialized = self.initialized(variable)?;
        if self.branches.conditions.implies(now, initialized)? {
            return Ok(());
        }
        let requirement = match self.lir.variables[variable].kind {
            VariableKind::Reference => Requirement::ReferenceInitialized,
            _ => Requirement::ResourceInitialized,
        };
        let check = self.require(initialized, requirement, reader, self.device(reader))?;
        self.lir.works[check].guard = self.branches.guard;
        self.branches.checks.push((self.versions[variable], check));
        // From here on the run has failed where it is not.
        self.written[variable] = self.branches.conditions.or(written, now)?;
        Ok(())
    }

    /// A work that faults where `condition` does not hold.
    pub(super) fn require(&mut self, condition: Condition, requirement: Requirement, id: NodeId, device: DeviceId) -> Result<WorkId> {
        let view = self.bool_of(condition, id)?;
        let kind = WorkKind::Request { request: Arc::new(KernelRequest::Require(requirement)), args: vec![Arg::Input(0)] };
        let work = self.lir.work(kind, device, vec![id], vec![view], Vec::new());
        self.lir.works[work].is_root = true;
        Ok(work)
    }

    /// A write that is under way: from now on the variable is initialised where the node at hand runs.
    pub(super) fn note_write(&mut self, variable: VariableId, writer: NodeId, version: ValueId) -> Result<()> {
        let (now, written) = (self.now(), self.written[variable]);
        if self.branches.conditions.implies(now, written)? {
            return Ok(());
        }
        // A loop may have no iteration.
        if now == Condition::ALWAYS && self.inside.is_empty() {
            self.lir.initialized.push((variable, version));
        } else {
            self.branches.to_flag.push((variable, writer, version));
        }
        self.written[variable] = self.branches.conditions.or(written, now)?;
        Ok(())
    }

    /// The flags of the variables that the works from `first` on have initialised, those of the node at hand.
    pub(super) fn set_flags(&mut self, first: usize) -> Result<()> {
        for (variable, writer, version) in std::mem::take(&mut self.branches.to_flag) {
            let mut works = (first..self.lir.works.len()).map(WorkId::from_index);
            let write = works.find(|work| self.lir.works[*work].outputs.contains(&version));
            self.set_flag(variable, writer, write)?;
        }
        Ok(())
    }

    /// The flag of a variable becomes true where the node at hand runs, once it has written.
    fn set_flag(&mut self, variable: VariableId, writer: NodeId, write: Option<WorkId>) -> Result<()> {
        let (condition, old) = self.flag(variable)?;
        let old = self.bring_flag(variable, old);
        if self.lir.values[old].device != self.host {
            return Err(Error::unimplemented("not yet: a loop that initialises a variable, and has no part on the host"));
        }
        let new = self.lir.next_version(old, writer);
        self.branches.flags.insert(variable, (condition, new));
        let mut builder = ExprBuilder::new();
        let result = builder.constant(Scalar::Bool(true));
        let kind = WorkKind::Expr { expr: builder.finish(vec![result]), shape: Shape::scalar() };
        let (host, guard) = (self.host, self.branches.guard);
        let work = self.lir.work(kind, host, vec![writer], Vec::new(), vec![new]);
        let work = &mut self.lir.works[work];
        (work.is_root, work.guard) = (true, guard);
        work.after.extend(write);
        Ok(())
    }

    /// A fetched tensor has to be alive.
    pub(super) fn require_alive(&mut self, fetch: FetchId, output: Output) -> Result<()> {
        let alive = self.alive(output);
        (self.branches.now, self.branches.guard) = (None, None);
        if alive == Condition::NEVER {
            return Err(Error::invalid_argument(format!("Retval[{}] does not have value", fetch.index())));
        }
        if alive != Condition::ALWAYS {
            let check = self.require(alive, Requirement::Fetched(fetch.index() as u32), output.node, self.host)?;
            self.put_last(check);
        }
        Ok(())
    }

    /// A reader of a variable waits for the checks before that it is initialised.
    pub(super) fn order_checks(&mut self) {
        let mut checks: HashMap<ValueId, Vec<WorkId>> = HashMap::new();
        for &(version, check) in &self.branches.checks {
            checks.entry(version).or_default().push(check);
        }
        for (id, work) in self.lir.works.iter_mut().filter(|_| !checks.is_empty()) {
            let mut waits: Vec<WorkId> = work.inputs.iter().filter_map(|view| checks.get(&view.value)).flatten().copied().collect();
            waits.retain(|check| id > *check);
            waits.sort_unstable();
            waits.dedup();
            work.after.extend(waits);
        }
    }
}

/// The choice of an expression.
#[derive(Clone)]
pub(super) enum Pick {
    Value(View),
    Number(Scalar),
}
