//! What agrees in a loop is there once. Each list of a gradient counts its tensors, all of them alike: one counter is enough.
//!
//! Values that a loop carries agree where they are the same before the first iteration, and each iteration computes them by the same
//! steps from values that agree.

use std::collections::{HashMap, HashSet};

use plimsoll_base::Result;
use plimsoll_graph::{HostTensor, IdVec, Shape};
use plimsoll_request::expr::Expr;

use crate::lir::{Home, Lir, RegionId, ValueId, View, Work, WorkId, WorkKind};

/// What is computed by more steps one behind the other agrees with itself alone.
const MOST_STEPS: usize = 16;

/// Results of works that are computed once are not larger: a value takes so much at least, however few bytes it has.
const TINY: u64 = 64;

/// Carries once what agrees in loops, and computes once what works of a body compute alike, as long as it is tiny.
///
/// # Errors
/// INTERNAL where a rule of the LIR is broken.
pub(super) fn join_agreeing(lir: &mut Lir) -> Result<()> {
    // A loop comes behind those around it, and behind those whose results it begins with.
    let loops: Vec<WorkId> = lir.works.iter().filter(|(_, work)| matches!(work.kind, WorkKind::Loop { .. })).map(|(id, _)| id).collect();
    if loops.is_empty() {
        return Ok(());
    }
    for &id in &loops {
        let WorkKind::Loop { body, carried, .. } = lir.works[id].kind else { continue };
        let around = lir.enter(body);
        let classes = Body::new(lir, id, carried).classes();
        carry_once(lir, id, &classes);
        compute_once(lir)?;
        lir.enter(around);
    }
    lir.each_region(Lir::drop_dead)?;
    lir.sweep();
    Ok(())
}

/// A value of a body, by how it is computed.
enum Term<'a> {
    /// One of the carried values that agree as far as is known, by the first of them.
    Carried(usize),
    /// A value by itself.
    Value(ValueId),
    /// A result of a work.
    Computed { expr: &'a Expr, shape: &'a Shape, work: &'a Work, output: usize },
}

impl Term<'_> {
    /// Whether another term is the same, if their operands are.
    fn is(&self, other: &Term<'_>) -> bool {
        match (self, other) {
            (Term::Carried(one), Term::Carried(other)) => one == other,
            (Term::Value(one), Term::Value(other)) => one == other,
            (
                Term::Computed { expr, shape, work, output },
                Term::Computed { expr: other, shape: shaped, work: working, output: number },
            ) => {
                let alike = |(one, other): (&View, &View)| (one.data_type, &one.shape) == (other.data_type, &other.shape);
                (expr, shape, work.device, output) == (other, shaped, working.device, number)
                    && work.inputs.iter().zip(&working.inputs).all(alike)
            }
            _ => false,
        }
    }
}

/// The body of a loop, which is the region at hand.
struct Body<'a> {
    lir: &'a Lir,
    holder: &'a Work,
    params: Vec<ValueId>,
    results: &'a [ValueId],
    definitions: IdVec<ValueId, Option<WorkId>>,
    /// By parameter: which of the carried values it is.
    carried: HashMap<ValueId, usize>,
    /// For each carried value whether nothing but the next iteration reads what it is then. What reads it as it is now may come before or
    /// behind any work.
    is_only_carried: Vec<bool>,
}

impl<'a> Body<'a> {
    fn new(lir: &'a Lir, holder: WorkId, carried: usize) -> Body<'a> {
        let params: Vec<ValueId> = lir.passed(lir.here()).take(carried).collect();
        let results = &lir.region().results[..];
        let awaited: HashSet<WorkId> = lir.all().flat_map(|(_, work)| work.after.iter().copied()).collect();
        let (definitions, uses) = (lir.definitions(), lir.uses());
        let mut times: HashMap<ValueId, usize> = HashMap::new();
        results.iter().for_each(|result| *times.entry(*result).or_default() += 1);
        let hands_on = |id: WorkId, param: ValueId, result: ValueId| {
            let work = &lir.works[id];
            matches!(work.kind, WorkKind::Expr { .. } | WorkKind::Copy)
                && work.outputs == [result]
                && lir.values[result].previous == Some(param)
                && work.guard.is_none()
                && work.after.is_empty()
                && !awaited.contains(&id)
                && uses[result].is_empty()
                && times[&result] == 1
        };
        let is_only_carried = params
            .iter()
            .zip(results)
            .map(|(param, result)| param == result || definitions[*result].is_some_and(|id| hands_on(id, *param, *result)));
        let is_only_carried = is_only_carried.collect();
        let carried = params.iter().copied().zip(0..).collect();
        Body { lir, holder: &lir.works[holder], params, results, definitions, carried, is_only_carried }
    }

    /// For each carried value the first one that it agrees with: itself, if there is none before it.
    fn classes(&self) -> Vec<usize> {
        let all = 0..self.params.len();
        let mut classes: Vec<usize> = Vec::with_capacity(all.len());
        for index in all.clone() {
            let first = (0..index).find(|other| classes[*other] == *other && self.begin_alike(*other, index));
            classes.push(first.unwrap_or(index));
        }
        while classes.iter().enumerate().any(|(index, first)| index != *first) {
            let mut terms = Terms { classes: &classes, known: HashMap::new(), count: 0, numbers: HashMap::new() };
            let mut first_of: HashMap<(usize, usize), usize> = HashMap::new();
            let finer: Vec<usize> = all
                .clone()
                .map(|index| *first_of.entry((classes[index], terms.of(self, self.results[index], 0))).or_insert(index))
                .collect();
            if finer == classes {
                break;
            }
            classes = finer;
        }
        classes
    }

    /// Whether two carried values are the same before the first iteration, and the second can be left out. The first of a loop says whether
    /// there is one.
    fn begin_alike(&self, one: usize, other: usize) -> bool {
        let lir = self.lir;
        let [left, right] = [one, other].map(|index| &self.holder.inputs[index]);
        let device = |index: usize| lir.values[self.params[index]].device;
        one > 0
            && (left.data_type, &left.shape) == (right.data_type, &right.shape)
            && device(one) == device(other)
            && self.is_only_carried[one]
            && self.is_only_carried[other]
            && lir.values[self.holder.outputs[other]].home == Home::Arena
            && (left.value == right.value || self.is_same_number(left.value, right.value))
    }

    /// Whether two values are constants with the same elements, and that is soon seen.
    fn is_same_number(&self, one: ValueId, other: ValueId) -> bool {
        let constant = |value: ValueId| match self.lir.values[value].home {
            Home::Constant(constant) => Some(&self.lir.constant_values[constant]),
            _ => None,
        };
        let (Some(one), Some(other)) = (constant(one), constant(other)) else { return false };
        let is_short = |tensor: &HostTensor| tensor.splat().is_some() || tensor.byte_len() <= TINY;
        is_short(one) && is_short(other) && one == other
    }
}

/// The terms of a body, each once.
struct Terms<'a, 'c> {
    classes: &'c [usize],
    /// With their numbers, by the numbers of their operands.
    known: HashMap<Vec<usize>, Vec<(Term<'a>, usize)>>,
    count: usize,
    numbers: HashMap<ValueId, usize>,
}

impl<'a> Terms<'a, '_> {
    /// The number of a value's term.
    fn of(&mut self, body: &Body<'a>, value: ValueId, depth: usize) -> usize {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let maker = body.definitions[value].map(|id| &body.lir.works[id]).filter(|work| depth < MOST_STEPS && work.guard.is_none());
        let number = match (body.carried.get(&value), maker.map(|work| (work, &work.kind))) {
            (Some(index), _) => self.number(Vec::new(), Term::Carried(self.classes[*index])),
            (None, Some((work, WorkKind::Copy))) => self.of(body, work.inputs[0].value, depth + 1),
            (None, Some((work, WorkKind::Expr { expr, shape }))) => {
                let operands: Vec<usize> = work.inputs.iter().map(|view| self.of(body, view.value, depth + 1)).collect();
                let output = work.outputs.iter().position(|output| *output == value).unwrap_or(0);
                self.number(operands, Term::Computed { expr, shape, work, output })
            }
            _ => self.number(Vec::new(), Term::Value(value)),
        };
        self.numbers.insert(value, number);
        number
    }

    fn number(&mut self, operands: Vec<usize>, term: Term<'a>) -> usize {
        let alike = self.known.entry(operands).or_default();
        if let Some((_, number)) = alike.iter().find(|(other, _)| other.is(&term)) {
            return *number;
        }
        self.count += 1;
        alike.push((term, self.count));
        self.count
    }
}

/// Leaves out carried values that agree with another one. The body of the loop is the region at hand.
fn carry_once(lir: &mut Lir, holder: WorkId, classes: &[usize]) {
    let body = lir.here();
    let params: Vec<ValueId> = lir.passed(body).collect();
    let gone: Vec<usize> = (0..classes.len()).filter(|index| classes[*index] != *index).collect();
    if gone.is_empty() {
        return;
    }
    let definitions = lir.definitions();
    let mut instead: HashMap<ValueId, ValueId> = HashMap::new();
    let mut removed: HashSet<WorkId> = HashSet::new();
    for &index in &gone {
        let (outputs, results) = (&lir.works[holder].outputs, &lir.region().results);
        instead.insert(params[index], params[classes[index]]);
        instead.insert(outputs[index], outputs[classes[index]]);
        if results[index] != params[index] {
            removed.extend(definitions[results[index]]);
        }
    }
    let given: HashSet<ValueId> = gone.iter().map(|index| params[*index]).collect();
    let work = &mut lir.works[holder];
    for &index in gone.iter().rev() {
        work.inputs.remove(index);
        work.outputs.remove(index);
        lir.regions[body].results.remove(index);
    }
    if let WorkKind::Loop { carried, .. } = &mut work.kind {
        *carried -= gone.len();
    }
    lir.regions[body].params.retain(|param| !given.contains(param));
    lir.regions[body].works.retain(|work| !removed.contains(work));
    for value in lir.values.values_mut() {
        if let Home::Given { region, param } = &mut value.home
            && *region == body
        {
            *param -= gone.iter().filter(|index| **index < *param as usize).count() as u32;
        }
    }
    let around = lir.works[holder].outputs.first().map(|output| lir.values[*output].region);
    std::iter::once(body).chain(around).for_each(|region| read_instead(lir, region, &instead));
    stay(lir, holder, body);
}

/// What an iteration copies to where it lies stays there: values that change places may be one.
fn stay(lir: &mut Lir, holder: WorkId, body: RegionId) {
    let WorkKind::Loop { carried, .. } = lir.works[holder].kind else { return };
    let params: Vec<ValueId> = lir.passed(body).take(carried).collect();
    let definitions = lir.definitions();
    let mut removed: HashSet<WorkId> = HashSet::new();
    for (index, param) in params.into_iter().enumerate() {
        let Some(id) = definitions[lir.regions[body].results[index]] else { continue };
        let work = &lir.works[id];
        if matches!(work.kind, WorkKind::Copy) && work.inputs[0].value == param && work.after.is_empty() {
            lir.regions[body].results[index] = param;
            removed.insert(id);
        }
    }
    lir.regions[body].works.retain(|work| !removed.contains(work));
}

/// Computes once what works of the region at hand compute alike.
fn compute_once(lir: &mut Lir) -> Result<()> {
    let awaited: HashSet<WorkId> = lir.all().flat_map(|(_, work)| work.after.iter().copied()).collect();
    let mut by_operand: HashMap<ValueId, Vec<WorkId>> = HashMap::new();
    let mut instead: HashMap<ValueId, ValueId> = HashMap::new();
    let mut removed: HashSet<WorkId> = HashSet::new();
    for id in lir.topological()? {
        let work = &mut lir.works[id];
        for value in work.inputs.iter_mut().map(|view| &mut view.value).chain(&mut work.guard) {
            *value = instead.get(value).copied().unwrap_or(*value);
        }
        let work = &lir.works[id];
        let is_tiny = |output: &ValueId| lir.values[*output].home == Home::Arena && lir.values[*output].bytes <= TINY;
        let may_go = !work.is_root && !work.can_fail() && work.after.is_empty() && !awaited.contains(&id);
        let Some(first) = work.inputs.first().filter(|_| may_go && work.outputs.iter().all(is_tiny)) else { continue };
        let others = by_operand.entry(first.value).or_default();
        match others.iter().find(|other| compute_alike(&lir.works[**other], work)) {
            Some(other) => {
                instead.extend(work.outputs.iter().copied().zip(lir.works[*other].outputs.iter().copied()));
                removed.insert(id);
            }
            None => others.push(id),
        }
    }
    lir.region_mut().works.retain(|work| !removed.contains(work));
    read_instead(lir, lir.here(), &instead);
    Ok(())
}

/// Whether two works have the same results.
fn compute_alike(one: &Work, other: &Work) -> bool {
    let same = match (&one.kind, &other.kind) {
        (WorkKind::Expr { expr, shape }, WorkKind::Expr { expr: other, shape: shaped }) => expr == other && shape == shaped,
        _ => false,
    };
    same && (one.device, one.guard, &one.inputs) == (other.device, other.guard, &other.inputs)
}

/// What reads a value in a region reads the one that is there instead.
fn read_instead(lir: &mut Lir, region: RegionId, instead: &HashMap<ValueId, ValueId>) {
    let at = |value: &mut ValueId| *value = instead.get(value).copied().unwrap_or(*value);
    let region = &mut lir.regions[region];
    for id in &region.works {
        let work = &mut lir.works[*id];
        work.inputs.iter_mut().map(|view| &mut view.value).chain(&mut work.guard).for_each(at);
    }
    region.results.iter_mut().for_each(at);
}
