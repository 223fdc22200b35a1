//! Writes of variables wait for the readers of the version before; where a write cannot wait, the reader gets a copy.

mod precedence;

use std::collections::HashSet;

use plimsoll_base::Result;
use plimsoll_request::KernelRequest;

use crate::Request;
use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};
use crate::prepare::{choose_one, request_of};
use crate::{lower, transfer};
use precedence::Precedence;

pub(crate) fn hazard(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    order_accesses(request, lir)?;
    transfer::complete(lir, request.devices);
    lower::settle_saves(lir);
    Ok(())
}

fn order_accesses(request: &Request<'_>, lir: &mut Lir) -> Result<()> {
    let versions: Vec<(ValueId, ValueId)> = lir.versions().collect();
    let definitions = lir.definitions();
    // Writes of one variable first: whether another work may still be moved depends on them.
    for &(old, new) in &versions {
        if let (Some(previous), Some(writer)) = (definitions[old], definitions[new])
            && previous != writer
        {
            lir.works[writer].after.push(previous);
        }
    }
    // A new copy reads `old` alone, and `old` is read by no copy before: so the readers are known beforehand.
    let uses = lir.uses();
    let mut precedence = Precedence::new(lir, &definitions)?;
    for (old, new) in versions {
        let Some(writer) = definitions[new] else { continue };
        let readers = &uses[old];
        let late: Vec<WorkId> = readers.iter().copied().filter(|&reader| reader != writer && precedence.is_after(reader, writer)).collect();
        let reached = precedence.reached(writer, &late);
        let mut copied: Option<ValueId> = None;
        let mut waits: Vec<WorkId> = Vec::new();
        for &reader in readers {
            if reader == writer {
                let stay = stays_in_loop(lir, writer, old);
                if !stay.is_empty() {
                    let copy = *copied.get_or_insert_with(|| copy_before(lir, old, writer));
                    stay.into_iter().for_each(|input| lir.works[writer].inputs[input].value = copy);
                }
                if reads_out_of_step(request, lir, writer, old)? {
                    let copy = *copied.get_or_insert_with(|| copy_before(lir, old, writer));
                    replace_operand(lir, writer, old, copy);
                }
            } else if reached.contains(&reader) {
                let copy = *copied.get_or_insert_with(|| copy_before(lir, old, writer));
                replace(lir, reader, old, copy);
            } else {
                waits.push(reader);
            }
        }
        lir.works[writer].after.extend(&waits);
        precedence.add(&waits, writer);
    }
    settle(lir);
    Ok(())
}

/// Every wait once.
fn settle(lir: &mut Lir) {
    for work in lir.works.iter_mut().map(|(_, work)| work) {
        work.after.sort_unstable();
        work.after.dedup();
    }
}

/// True if an update in place is unsafe: the kernel may need the old value of an element after it has written it.
///
/// # Errors
/// As [`choose_one`].
pub(crate) fn reads_out_of_step(request: &Request<'_>, lir: &Lir, id: WorkId, old: ValueId) -> Result<bool> {
    let work = &lir.works[id];
    let of_old = |view: &View| view.value == old;
    let call = match &work.kind {
        // Several groups of tensors are written element by element, each over its own operands, and lists in one of their rows.
        WorkKind::Kernel { call, .. } if matches!(*call.request, KernelRequest::Exprs(_) | KernelRequest::OnRows(_)) => call.clone(),
        // A kernel that changes a variable in place has it as its first input, and reads no other part of it.
        WorkKind::Request { .. } | WorkKind::Kernel { .. } => return Ok(work.inputs.iter().skip(1).any(of_old)),
        WorkKind::Copy | WorkKind::Outside { .. } | WorkKind::Loop { .. } | WorkKind::Parts(_) => return Ok(false),
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } => {
            let Some(kernel) = request_of(work) else { return Ok(false) };
            choose_one(request, work.device, kernel)?
        }
    };
    let written = work.outputs.iter().position(|output| lir.values[*output].home == lir.values[old].home);
    let may = |input: usize| written.is_none_or(|output| call.step().in_place.contains(&(input, output)));
    Ok(work.inputs.iter().enumerate().any(|(input, view)| of_old(view) && !may(input)))
}

/// The inputs of a loop that are `old`, and stay so in every iteration. The loop writes `old`'s bytes by another input.
fn stays_in_loop(lir: &Lir, id: WorkId, old: ValueId) -> Vec<usize> {
    let WorkKind::Loop { body, carried, .. } = lir.works[id].kind else { return Vec::new() };
    let written: HashSet<Home> = lir.versions().map(|(_, new)| lir.values[new].home).collect();
    let is_old = |input: &usize| lir.works[id].inputs[*input].value == old;
    let stays = |input: &usize| !written.contains(&Home::Given { region: body, param: *input as u32 });
    (carried..lir.works[id].inputs.len()).filter(is_old).filter(stays).collect()
}

/// A copy of `old` that is made before `writer` overwrites it.
fn copy_before(lir: &mut Lir, old: ValueId, writer: WorkId) -> ValueId {
    let (device, bytes, node) = (lir.values[old].device, lir.values[old].bytes, lir.values[old].node);
    let copy = lir.value(device, Home::Arena, bytes, node);
    let id = lir.work(WorkKind::Copy, device, vec![node], vec![View::of_bytes(old, bytes)], vec![copy]);
    lir.works[id].rank = lir.works[writer].rank;
    lir.works[writer].after.push(id);
    copy
}

fn replace(lir: &mut Lir, reader: WorkId, old: ValueId, copy: ValueId) {
    if lir.works[reader].guard == Some(old) {
        lir.works[reader].guard = Some(copy);
    }
    for view in &mut lir.works[reader].inputs {
        if view.value == old {
            view.value = copy;
        }
    }
}

/// As [`replace`], but leaves the element-by-element operand that may be written in place.
fn replace_operand(lir: &mut Lir, reader: WorkId, old: ValueId, copy: ValueId) {
    let first = usize::from(matches!(lir.works[reader].kind, WorkKind::Kernel { .. }));
    for view in lir.works[reader].inputs[first..].iter_mut() {
        if view.value == old {
            view.value = copy;
        }
    }
}
