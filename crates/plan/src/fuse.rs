//! Joins elementwise works with the works that make their operands: chains of expressions become one expression, and an
//! expression on an anchor becomes its epilogue. What is joined need not exist in memory.

use plimsoll_base::Result;
use plimsoll_graph::{IdVec, Shape};
use plimsoll_kernels::anchor::Anchor;
use plimsoll_kernels::expr::{Expr, ExprBuilder, Reg};

use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};

/// A kernel is handed at most this many arguments.
const MAX_ARGS: usize = 32;
/// An expression has at most this many steps.
const MAX_STEPS: usize = 256;

pub(crate) fn fuse(lir: &mut Lir) -> Result<()> {
    let mut uses = lir.uses();
    let mut definitions = lir.definitions();
    let mut is_awaited: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    lir.live().flat_map(|(_, work)| &work.after).for_each(|before| is_awaited[*before] = true);
    for id in lir.topological()? {
        while let Some((producer, value)) = candidate(lir, &uses, &definitions, &is_awaited, id) {
            if !join(lir, producer, value, id)? {
                break;
            }
            uses = recount(lir, uses, producer, id);
            for &output in &lir.works[id].outputs {
                definitions[output] = Some(id);
            }
        }
    }
    join_poolings(lir);
    Ok(())
}

/// After `producer` went into `id`: the producer's inputs are read by `id` now.
fn recount(lir: &Lir, mut uses: IdVec<ValueId, Vec<WorkId>>, producer: WorkId, id: WorkId) -> IdVec<ValueId, Vec<WorkId>> {
    for value in lir.works[producer].reads() {
        uses[value].retain(|user| *user != producer && *user != id);
    }
    for value in lir.works[id].reads() {
        if !uses[value].contains(&id) {
            uses[value].push(id);
        }
    }
    uses
}

/// A work whose only reader is `id` and that can go into it, with the value that `id` reads.
fn candidate(
    lir: &Lir,
    uses: &IdVec<ValueId, Vec<WorkId>>,
    definitions: &IdVec<ValueId, Option<WorkId>>,
    is_awaited: &IdVec<WorkId, bool>,
    id: WorkId,
) -> Option<(WorkId, ValueId)> {
    let consumer = &lir.works[id];
    let WorkKind::Expr { expr, shape } = &consumer.kind else { return None };
    consumer.inputs.iter().find_map(|view| {
        let producer_id = definitions[view.value]?;
        let producer = &lir.works[producer_id];
        // Bytes that are read as another type have to be in memory.
        let type_of = |output: &ValueId| match &producer.kind {
            WorkKind::Expr { expr, .. } | WorkKind::Anchor { epilogue: Some(expr), pooling: None, .. } => {
                let position = producer.outputs.iter().position(|other| other == output)?;
                Some(expr.type_of(*expr.outputs().get(position)?))
            }
            WorkKind::Anchor { anchor, epilogue: None, pooling: None } => Some(anchor.data_type()),
            _ => None,
        };
        let as_made = |view: &View| !producer.outputs.contains(&view.value) || type_of(&view.value) == Some(view.data_type);
        if !consumer.inputs.iter().all(as_made) {
            return None;
        }
        let only_here = |output: &ValueId| lir.values[*output].home == Home::Arena && uses[*output].iter().all(|user| *user == id);
        // An effect that is joined with a failure is half done when that comes; and what others wait for stays where it is.
        if producer.can_fail() && (is_awaited[producer_id] || lir.has_effect(consumer)) {
            return None;
        }
        if producer.gone || producer.device != consumer.device || producer.is_root || !producer.outputs.iter().all(only_here) {
            return None;
        }
        // What is passed over cannot be joined with what is not, nor can a work make its own guard.
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
            WorkKind::Anchor { anchor, epilogue, pooling: None } => {
                let made = Shape::from(anchor.shape()?);
                let elements = made.elements().ok()?;
                let flexible = is_flexible(&consumer.inputs, shape);
                if elements == 0 || (*shape != made && !flexible) || shape.elements().ok()? != elements {
                    return None;
                }
                let whole = |view: &View| !producer.outputs.contains(&view.value) || is_whole(view, shape);
                // A variable that the anchor is computed from cannot be written while it is read; and where elements lie in results
                // for a while, none can, since operands may be read there.
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
        (steps + expr.instrs().len() <= MAX_STEPS).then_some((producer_id, view.value))
    })
}

/// Puts poolings into the anchors that make what they pool, where nobody else reads that.
fn join_poolings(lir: &mut Lir) {
    let (uses, definitions) = (lir.uses(), lir.definitions());
    let ids: Vec<WorkId> = lir.live().map(|(id, _)| id).collect();
    for id in ids {
        let work = &lir.works[id];
        let WorkKind::Kernel { pooling: Some(pooling), .. } = &work.kind else { continue };
        let pooled = &work.inputs[0];
        let Some(producer_id) = definitions[pooled.value] else { continue };
        let producer = &lir.works[producer_id];
        let WorkKind::Anchor { anchor, epilogue, pooling: None } = &producer.kind else { continue };
        let only_here = producer.outputs == [pooled.value] && uses[pooled.value] == [id] && lir.values[pooled.value].home == Home::Arena;
        let made = epilogue.as_ref().map_or(vec![anchor.data_type()], Expr::output_types);
        let alike = producer.device == work.device && producer.guard == work.guard && !producer.is_root;
        if !only_here || !alike || producer.can_fail() || made != [pooled.data_type] || work.inputs.len() != 1 || !anchor.takes(pooling) {
            continue;
        }
        let kind = WorkKind::Anchor { anchor: *anchor, epilogue: epilogue.clone(), pooling: Some(*pooling) };
        let (inputs, after) = (producer.inputs.clone(), producer.after.clone());
        let nodes = producer.nodes.iter().chain(&work.nodes).copied().collect();
        let work = &mut lir.works[id];
        (work.kind, work.inputs, work.nodes) = (kind, inputs, nodes);
        work.after.extend(after);
        lir.works[producer_id].gone = true;
    }
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

/// Puts `producer` into `id`. Whether it could.
fn join(lir: &mut Lir, producer: WorkId, _value: ValueId, id: WorkId) -> Result<bool> {
    let (made, user) = (lir.works[producer].clone(), lir.works[id].clone());
    let WorkKind::Expr { expr, shape } = &user.kind else { return Ok(false) };
    let shape = match &made.kind {
        WorkKind::Anchor { anchor, .. } => anchor.shape().map_or_else(|| shape.clone(), Shape::from),
        _ => shape.clone(),
    };
    let mut builder = ExprBuilder::new();
    let mut inputs: Vec<View> = Vec::new();
    let mut registers: Vec<Reg> = Vec::new();
    let mut operand = |builder: &mut ExprBuilder, view: &View| -> Result<Reg> {
        // An operand of another shape with as many elements is whole: see `is_flexible`.
        let is_whole = view.elements() == shape.elements()? && view.elements() != 1;
        let fitted = if is_whole {
            View { shape: shape.clone(), ..view.clone() }
        } else if view.elements() == 1 && view.shape.rank() > shape.rank() {
            View { shape: Shape::scalar(), ..view.clone() }
        } else {
            view.clone()
        };
        if let Some(position) = inputs.iter().position(|other| *other == fitted) {
            return Ok(registers[position]);
        }
        let register = builder.input(view.data_type)?;
        inputs.push(fitted);
        registers.push(register);
        Ok(register)
    };
    let (results, leading) = match &made.kind {
        WorkKind::Expr { expr, .. } => {
            let operands = made.inputs.iter().map(|view| operand(&mut builder, view)).collect::<Result<Vec<_>>>()?;
            (builder.inline(expr, &operands)?, 0)
        }
        WorkKind::Anchor { anchor, epilogue, pooling: None } => {
            let element = builder.input(anchor.data_type())?;
            match epilogue {
                None => (vec![element], Anchor::INPUTS),
                Some(expr) => {
                    let mut operands = vec![element];
                    for view in &made.inputs[Anchor::INPUTS..] {
                        operands.push(operand(&mut builder, view)?);
                    }
                    (builder.inline(expr, &operands)?, Anchor::INPUTS)
                }
            }
        }
        _ => return Ok(false),
    };
    let mut operands = Vec::with_capacity(user.inputs.len());
    for view in &user.inputs {
        operands.push(match made.outputs.iter().position(|output| *output == view.value) {
            Some(position) => results[position],
            None => operand(&mut builder, view)?,
        });
    }
    let outputs = builder.inline(expr, &operands)?;
    let joined: Expr = builder.finish(outputs);
    let mut all = made.inputs[..leading].to_vec();
    all.extend(inputs);
    let kind = match made.kind {
        WorkKind::Anchor { anchor, .. } => WorkKind::Anchor { anchor, epilogue: Some(joined), pooling: None },
        _ => WorkKind::Expr { expr: joined, shape },
    };
    let nodes = match kind {
        // An anchor gives the work its name, however much is fused into it.
        WorkKind::Anchor { .. } => made.nodes.iter().chain(&user.nodes).copied().collect(),
        _ => user.nodes.iter().chain(&made.nodes).copied().collect(),
    };
    let work = &mut lir.works[id];
    (work.kind, work.inputs, work.nodes) = (kind, all, nodes);
    work.after.extend(made.after);
    lir.works[producer].gone = true;
    Ok(true)
}
