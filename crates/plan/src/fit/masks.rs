//! Masks: of a value that is read late only to ask one thing of each element, the answers are kept in its place. So the gradient of `Relu`
//! reads a bool for each element, a quarter of a float.
//!
//! A mask is a work behind the one that makes the value. Readers of the mask compute the same steps as before, by kernels of the same
//! numerics, so they have the same bits: see [`Expr::masked`].

use plimsoll_base::{Bytes, DataType, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{Expr, Masked};

use crate::Request;
use crate::lir::{Home, Lir, ValueId, View, Work, WorkId, WorkKind};
use crate::plan::DeviceId;
use crate::prepare::{Prepare, prepare};

/// A value that takes less than this part of the device's arena stays as it is.
const LEAST_PART: u64 = 64;

/// A region in which masks take the place of values.
pub(super) struct WithMasks {
    pub lir: Lir,
    /// For each of the values, its node and the bytes of the mask.
    pub masks: Vec<(NodeId, Bytes)>,
}

/// The region at hand with a mask of each value of the device that is read late for a mask alone, in an arena of so many bytes. None where
/// there is no such value.
///
/// # Errors
/// As [`Expr::masked`].
pub(super) fn with_masks(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Result<Option<WithMasks>> {
    let mut position: IdVec<WorkId, usize> = IdVec::filled(usize::MAX, lir.works.len());
    lir.region().works.iter().enumerate().for_each(|(index, id)| position[*id] = index);
    let (definitions, uses) = (lir.definitions(), lir.uses());
    let mut with = WithMasks { lir: lir.clone(), masks: Vec::new() };
    // By work: the mask behind it.
    let mut behind: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.works.len());
    for value in lir.values.ids() {
        let info = &lir.values[value];
        let is_here = info.device == device && info.home == Home::Arena && info.region == lir.here();
        if !is_here || info.bytes.saturating_mul(LEAST_PART) < arena.0 || lir.region().results.contains(&value) {
            continue;
        }
        let Some(maker) = definitions[value].filter(|maker| lir.works[*maker].device == device) else { continue };
        // A reader of several values may read masks of others by now.
        let Some(late) = late(&with.lir, value, position[maker], &uses[value], &position)? else { continue };
        if let Some(work) = mask(request, &mut with, value, maker, late)? {
            behind[maker].push(work);
        }
    }
    if with.masks.is_empty() {
        return Ok(None);
    }
    let works = lir.region().works.iter().flat_map(|id| std::iter::once(*id).chain(behind[*id].iter().copied()));
    with.lir.region_mut().works = works.collect();
    Ok(Some(with))
}

/// What reads a value for a mask alone.
struct Late {
    /// The value as they read it.
    view: View,
    mask: Expr,
    /// Each with the number of the input, and the expression that reads the mask there.
    readers: Vec<(WorkId, usize, Expr)>,
}

/// The readers for one mask, where they come later than all others and something lies between.
///
/// # Errors
/// As [`Expr::masked`].
fn late(lir: &Lir, value: ValueId, made: usize, readers: &[WorkId], position: &IdVec<WorkId, usize>) -> Result<Option<Late>> {
    let (mut last, mut first) = (made, usize::MAX);
    let mut late: Option<Late> = None;
    for &id in readers {
        let Some((input, Masked { mask, rest })) = question(lir, &lir.works[id], value)? else {
            last = last.max(position[id]);
            continue;
        };
        first = first.min(position[id]);
        let view = &lir.works[id].inputs[input];
        let late = late.get_or_insert_with(|| Late { view: view.clone(), mask: mask.clone(), readers: Vec::new() });
        if late.mask != mask || late.view != *view {
            return Ok(None);
        }
        late.readers.push((id, input, rest));
    }
    Ok(late.filter(|_| first > last + 1))
}

/// The input through which a work reads a value, where it reads it there for a mask alone.
///
/// # Errors
/// As [`Expr::masked`].
pub(super) fn question(lir: &Lir, work: &Work, value: ValueId) -> Result<Option<(usize, Masked)>> {
    let (expr, first) = match &work.kind {
        WorkKind::Expr { expr, .. } => (expr, 0),
        WorkKind::Anchor { epilogue: Some(epilogue), .. } => (epilogue, Anchor::INPUTS),
        _ => return Ok(None),
    };
    let mut inputs = (0..work.inputs.len()).filter(|input| work.inputs[*input].value == value);
    let (Some(input), None) = (inputs.next(), inputs.next()) else { return Ok(None) };
    if input < first || work.guard == Some(value) || work.device != lir.values[value].device {
        return Ok(None);
    }
    // An epilogue reads what the anchor computes, and then its operands.
    let operand = input - first + usize::from(first > 0);
    Ok(expr.masked(operand)?.map(|masked| (input, masked)))
}

/// Adds a mask of a value, which its late readers read. None where the device lacks a kernel for it, or for one of them with the same numerics.
///
/// # Errors
/// INVALID_ARGUMENT for a view of more elements than can be counted.
fn mask(request: &Request<'_>, with: &mut WithMasks, value: ValueId, maker: WorkId, late: Late) -> Result<Option<WorkId>> {
    let lir = &mut with.lir;
    let (node, bytes) = (lir.values[value].node, late.view.shape.elements()?);
    if bytes >= lir.values[value].bytes {
        return Ok(None);
    }
    let kept = View { value: ValueId::from_index(lir.values.len()), data_type: DataType::Bool, shape: late.view.shape.clone() };
    let changed = |(id, input, rest): (WorkId, usize, Expr)| {
        let mut work = lir.works[id].clone();
        match &mut work.kind {
            WorkKind::Expr { expr, .. } => *expr = rest,
            WorkKind::Anchor { epilogue, .. } => *epilogue = Some(rest),
            _ => return None,
        }
        work.inputs[input] = kept.clone();
        let prepared = prepare(request, lir, &work).ok()?;
        let is_same = numerics(&prepared) == numerics(work.prepared.as_ref()?);
        work.prepared = Some(prepared);
        is_same.then_some((id, work))
    };
    let Some(readers) = late.readers.into_iter().map(changed).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut mask = Work {
        kind: WorkKind::Expr { expr: late.mask, shape: late.view.shape.clone() },
        nodes: vec![node],
        inputs: vec![late.view],
        outputs: vec![kept.value],
        after: Vec::new(),
        is_root: false,
        prepared: None,
        ..lir.works[maker].clone()
    };
    let Ok(prepared) = prepare(request, lir, &mask) else { return Ok(None) };
    mask.prepared = Some(prepared);
    lir.value(mask.device, Home::Arena, bytes, node);
    readers.into_iter().for_each(|(id, work)| lir.works[id] = work);
    with.masks.push((node, Bytes(bytes)));
    Ok(Some(lir.works.push(mask)))
}

/// The numerics of a work's kernel.
fn numerics(prepared: &Prepare) -> Option<&str> {
    prepared.kernel.as_ref().map(|kernel| &*kernel.variant.numerics)
}
