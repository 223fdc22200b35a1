//! Joins elementwise works with the works that make their operands. Chains of expressions become one expression. An expression on an
//! anchor becomes its epilogue. A joined value need not exist in memory.

mod bodies;

use std::collections::BTreeSet;

use plimsoll_base::Result;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, Shape};
use plimsoll_ops::fusion::Stage;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{Expr, ExprBuilder, Reg};

use crate::Request;
use crate::lir::{Applied, Home, Lir, ValueId, View, Work, WorkId, WorkKind};
use crate::passes::{Check, Pass};
use crate::patch::{check, may_fuse, patches};
use crate::plan::DeviceId;
use crate::prepare::{answers, request_of};

/// A kernel is handed at most this many arguments.
const MAX_ARGS: usize = 32;
/// An expression has at most this many steps.
const MAX_STEPS: usize = 256;

/// Joins works, as far as their devices have kernels for them.
///
/// # Errors
/// INTERNAL where a join breaks a rule of the LIR; the error of `go_on`.
pub(crate) fn fuse(request: &Request<'_>, lir: &mut Lir, go_on: &Check<'_>) -> Result<()> {
    let apart: Vec<(WorkId, Work)> = lir.all().map(|(id, work)| (id, work.clone())).collect();
    let fusions = lir.fusions.len();
    // To ask for every step on the way takes longer than all else: only devices that refuse a result are asked so.
    let (mut is_joined, refusing) = join_all(request, lir, &BTreeSet::new(), go_on)?;
    if !refusing.is_empty() {
        apart.into_iter().for_each(|(id, work)| lir.works[id] = work);
        lir.fusions.truncate(fusions);
        (is_joined, _) = join_all(request, lir, &refusing, go_on)?;
    }
    lir.retain(|id| !is_joined[id])?;
    patches(request, lir, (Stage::Joined, Pass::Fuse), go_on)?;
    bodies::join_in_body(request, lir, go_on)?;
    lir.drop_dead()
}

/// By work whether it has become part of another one; and devices that have no kernel for a work as it became.
type Joined = (IdVec<WorkId, bool>, BTreeSet<DeviceId>);

/// Joins works wherever that is possible; on `careful` devices only where there is a kernel for the result. Those that are joined stay in
/// the region.
fn join_all(request: &Request<'_>, lir: &mut Lir, careful: &BTreeSet<DeviceId>, go_on: &Check<'_>) -> Result<Joined> {
    let mut readers = readers(lir);
    let mut definitions = lir.definitions();
    let mut is_awaited: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    lir.all().flat_map(|(_, work)| &work.after).for_each(|before| is_awaited[*before] = true);
    let mut is_joined: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    let mut unsure: BTreeSet<WorkId> = BTreeSet::new();
    for id in lir.topological()? {
        let is_careful = careful.contains(&lir.works[id].device);
        let mut refused: Vec<WorkId> = Vec::new();
        while may_fuse(request, lir)
            && let Some(producer) = candidate(lir, &readers, &definitions, &is_awaited, &refused, id)
        {
            go_on()?;
            let joined = join(lir, producer, id, &[])?;
            let is_fine = |joined: &Work| may_finish(request, joined) && (!is_careful || is_answered(request, joined));
            let Some(joined) = joined.filter(is_fine) else {
                refused.push(producer);
                continue;
            };
            let before = [lir.works[producer].reads_once(), lir.works[id].reads_once()];
            lir.works[id] = joined;
            is_joined[producer] = true;
            unsure.remove(&producer);
            if !is_careful {
                unsure.insert(id);
            }
            lir.fusions.push(Applied { name: "expression", node: lir.works[id].nodes[0] });
            // What the producer read is read by `id` now.
            before.iter().flatten().for_each(|value| readers[*value] -= 1);
            lir.works[id].reads_once().into_iter().for_each(|value| readers[value] += 1);
            for &output in &lir.works[id].outputs {
                definitions[output] = Some(id);
            }
            check(request, lir, &is_joined, Pass::Fuse)?;
        }
    }
    let mut refusing = BTreeSet::new();
    for work in unsure.into_iter().map(|id| &lir.works[id]) {
        go_on()?;
        if !is_answered(request, work) {
            refusing.insert(work.device);
        }
    }
    Ok((is_joined, refusing))
}

/// Whether an epilogue may follow the anchor of a work: where that rounds, its device has to say so.
fn may_finish(request: &Request<'_>, work: &Work) -> bool {
    let WorkKind::Anchor { anchor, epilogue: Some(_) } = &work.kind else { return true };
    let (library, spec) = (request.libraries[work.device.index()], &request.devices[work.device.index()]);
    !anchor.rounds() || request_of(work).is_some_and(|asked| library.finishes(spec, &asked))
}

/// Whether the device of a work has a kernel for it.
fn is_answered(request: &Request<'_>, work: &Work) -> bool {
    request_of(work).is_some_and(|asked| answers(request, work.device, &asked))
}

/// How many works read each value.
fn readers(lir: &Lir) -> IdVec<ValueId, u32> {
    lir.uses().values().map(|works| works.len() as u32).collect()
}

/// A work whose only reader is `id` and that can go into it; none of those that were refused.
fn candidate(
    lir: &Lir,
    readers: &IdVec<ValueId, u32>,
    definitions: &IdVec<ValueId, Option<WorkId>>,
    is_awaited: &IdVec<WorkId, bool>,
    refused: &[WorkId],
    id: WorkId,
) -> Option<WorkId> {
    let consumer = &lir.works[id];
    let WorkKind::Expr { expr, shape } = &consumer.kind else { return None };
    if consumer.inputs.len() + consumer.outputs.len() > MAX_ARGS {
        return None;
    }
    consumer.inputs.iter().find_map(|view| {
        let producer_id = definitions[view.value].filter(|producer| !refused.contains(producer))?;
        let producer = &lir.works[producer_id];
        if !matches!(producer.kind, WorkKind::Expr { .. } | WorkKind::Anchor { .. }) {
            return None;
        }
        // Bytes that are read as another type have to be in memory.
        let type_of = |output: &ValueId| match &producer.kind {
            WorkKind::Expr { expr, .. } | WorkKind::Anchor { epilogue: Some(expr), .. } => {
                let position = producer.outputs.iter().position(|other| other == output)?;
                Some(expr.type_of(*expr.outputs().get(position)?))
            }
            WorkKind::Anchor { anchor, epilogue: None } => Some(anchor.data_type()),
            _ => None,
        };
        let as_made = |view: &View| !producer.outputs.contains(&view.value) || type_of(&view.value) == Some(view.data_type);
        if !consumer.inputs.iter().all(as_made) {
            return None;
        }
        // An effect that is joined with a failure would be half done when that comes. A work that others wait for stays where it
        // is.
        if (is_awaited[producer_id] || lir.has_effect(consumer)) && producer.can_fail() {
            return None;
        }
        let only_here = |output: &ValueId| {
            let here = u32::from(consumer.reads().any(|value| value == *output));
            lir.values[*output].home == Home::Arena && readers[*output] == here
        };
        if producer.device != consumer.device || producer.is_root || !producer.outputs.iter().all(only_here) {
            return None;
        }
        // A guarded work cannot be joined with one under another guard, nor can a work make its own guard.
        if producer.guard.is_some_and(|guard| consumer.guard != Some(guard))
            || consumer.guard.is_some_and(|guard| producer.outputs.contains(&guard))
        {
            return None;
        }
        if producer.inputs.len() + consumer.inputs.len() + consumer.outputs.len() > MAX_ARGS {
            return None;
        }
        let steps = match &producer.kind {
            WorkKind::Expr { expr, shape: made } => {
                let flexible = is_flexible(&producer.inputs, made);
                if made != shape && !flexible {
                    return None;
                }
                // The consumer must read it element by element (a broadcast operand would be computed again and again).
                let whole = |view: &View| !producer.outputs.contains(&view.value) || is_whole(view, shape);
                if !consumer.inputs.iter().all(whole) {
                    return None;
                }
                expr.instrs().len()
            }
            WorkKind::Anchor { anchor, epilogue } => {
                let made = Shape::from(anchor.shape()?);
                let elements = made.elements().ok()?;
                let flexible = is_flexible(&consumer.inputs, shape);
                if elements == 0 || (*shape != made && !flexible) || shape.elements().ok()? != elements {
                    return None;
                }
                let whole = |view: &View| !producer.outputs.contains(&view.value) || is_whole(view, shape);
                // A variable that the anchor is computed from cannot be written while it is read. Where elements lie in results for
                // a while, no variable can, since operands may be read there.
                let reads = |home: Home| producer.inputs[..Anchor::INPUTS].iter().any(|view| lir.values[view.value].home == home);
                let homes = consumer.outputs.iter().map(|output| lir.values[*output].home);
                let mut written = homes.filter(|home| matches!(home, Home::Variable(_)));
                let clash = written.any(|home| anchor.uses_results() || reads(home));
                if clash || !consumer.inputs.iter().all(whole) {
                    return None;
                }
                epilogue.as_ref().map_or(1, |expr| expr.instrs().len())
            }
            _ => return None,
        };
        (steps + expr.instrs().len() <= MAX_STEPS).then_some(producer_id)
    })
}

/// Whether a view gives every element of `shape` its own element, in order.
fn is_whole(view: &View, shape: &Shape) -> bool {
    view.shape == *shape || (shape.elements().is_ok_and(|elements| view.elements() == elements) && trimmed(&view.shape) == trimmed(shape))
}

/// The dimensions without those of 1: broadcasting pairs elements in order exactly where these are equal.
fn trimmed(shape: &Shape) -> Vec<u64> {
    shape.iter().copied().filter(|dim| *dim != 1).collect()
}

/// Whether the work could run in any shape with as many elements: every operand is whole or a single element.
fn is_flexible(inputs: &[View], shape: &Shape) -> bool {
    inputs.iter().all(|view| view.elements() == 1 || view.shape == *shape)
}

/// `id` with `producer` in it; none where they are no expressions or anchors. It has the results of the producer that are `kept`, too.
fn join(lir: &Lir, producer: WorkId, id: WorkId, kept: &[ValueId]) -> Result<Option<Work>> {
    let (made, user) = (&lir.works[producer], &lir.works[id]);
    let WorkKind::Expr { expr, shape } = &user.kind else { return Ok(None) };
    let shape = match &made.kind {
        WorkKind::Anchor { anchor, .. } => anchor.shape().map_or_else(|| shape.clone(), Shape::from),
        _ => shape.clone(),
    };
    let mut operands = Operands::new(shape.clone());
    let (results, leading, anchor) = match &made.kind {
        WorkKind::Anchor { anchor, epilogue } => {
            let element = operands.builder.input(anchor.data_type())?;
            match epilogue {
                None => (vec![element], Anchor::INPUTS, Some(*anchor)),
                Some(expr) => {
                    let mut registers = vec![element];
                    for view in &made.inputs[Anchor::INPUTS..] {
                        registers.push(operands.register(view)?);
                    }
                    (operands.builder.inline(expr, &registers)?, Anchor::INPUTS, Some(*anchor))
                }
            }
        }
        WorkKind::Expr { expr, .. } => (operands.begin(expr.clone(), &made.inputs)?, 0, None),
        _ => return Ok(None),
    };
    let mut registers = Vec::with_capacity(user.inputs.len());
    for view in &user.inputs {
        registers.push(match made.outputs.iter().position(|output| *output == view.value) {
            Some(position) => results[position],
            None => operands.register(view)?,
        });
    }
    let mut outputs = operands.builder.inline(expr, &registers)?;
    for value in kept {
        outputs.extend(made.outputs.iter().position(|output| output == value).map(|position| results[position]));
    }
    let joined: Expr = operands.builder.finish(outputs);
    let (kind, nodes) = match anchor {
        // An anchor gives the work its name, however much is fused into it.
        Some(anchor) => (WorkKind::Anchor { anchor, epilogue: Some(joined) }, [&made.nodes[..], &user.nodes]),
        None => (WorkKind::Expr { expr: joined, shape }, [&user.nodes[..], &made.nodes]),
    };
    let inputs = made.inputs[..leading].iter().cloned().chain(operands.views).collect();
    let after = [&user.after[..], &made.after].concat();
    let outputs = [&user.outputs[..], kept].concat();
    Ok(Some(Work { kind, nodes: nodes.concat(), inputs, outputs, after, ..user.clone() }))
}

/// The operands of an expression that is being joined, each once.
struct Operands {
    builder: ExprBuilder,
    /// The shape of the expression.
    shape: Shape,
    views: Vec<View>,
    registers: Vec<Reg>,
}

impl Operands {
    fn new(shape: Shape) -> Operands {
        Operands { builder: ExprBuilder::new(), shape, views: Vec::new(), registers: Vec::new() }
    }

    /// Begins with an expression on these operands; its results.
    fn begin(&mut self, expr: Expr, inputs: &[View]) -> Result<Vec<Reg>> {
        for (number, view) in inputs.iter().enumerate() {
            let fitted = self.fit(view)?;
            if fitted != *view || inputs[..number].contains(view) {
                let registers = inputs.iter().map(|view| self.register(view)).collect::<Result<Vec<_>>>()?;
                return self.builder.inline(&expr, &registers);
            }
        }
        // The operands stay the same: its steps need not be built again.
        let (builder, results) = ExprBuilder::resume(expr);
        self.registers = builder.inputs();
        (self.builder, self.views) = (builder, inputs.to_vec());
        Ok(results)
    }

    /// The operand as the expression's shape has it.
    fn fit(&self, view: &View) -> Result<View> {
        // An operand of another shape with as many elements is whole: see `is_flexible`.
        let is_whole = view.elements() == self.shape.elements()? && view.elements() != 1;
        Ok(if is_whole {
            View { shape: self.shape.clone(), ..view.clone() }
        } else if view.elements() == 1 && view.shape.rank() > self.shape.rank() {
            View { shape: Shape::scalar(), ..view.clone() }
        } else {
            view.clone()
        })
    }

    fn register(&mut self, view: &View) -> Result<Reg> {
        let fitted = self.fit(view)?;
        if let Some(position) = self.views.iter().position(|other| *other == fitted) {
            return Ok(self.registers[position]);
        }
        let register = self.builder.input(view.data_type)?;
        self.views.push(fitted);
        self.registers.push(register);
        Ok(register)
    }
}
