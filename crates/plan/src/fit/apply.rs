//! A schedule that the search has found, as works. What runs again is a work of its own, with values of its own. A move is a copy.

use std::collections::HashMap;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_fit::Step;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use super::away::Away;
use super::bodies::{self, Bodies};
use super::problem::overwriting;
use crate::Request;
use crate::lir::{Home, Lir, ValueId, View, WorkId, WorkKind};
use crate::prepare::prepare;

/// A region with the works of a schedule, in its order.
pub(super) struct Applied {
    pub lir: Lir,
    /// The nodes of the works that run again.
    pub recomputed: Vec<NodeId>,
    /// The nodes of the values that wait in a slower memory meanwhile, with their bytes.
    pub offloaded: Vec<(NodeId, Bytes)>,
    /// The nodes of the values of which masks are kept in their place, with the bytes of the masks.
    pub masked: Vec<(NodeId, Bytes)>,
    /// The nodes of chains in parts, with the numbers of parts.
    pub parts: Vec<(NodeId, u64)>,
    /// The nodes of loops in segments, with the lengths of these.
    pub segments: Vec<(NodeId, u64)>,
}

impl Applied {
    /// The works as they are.
    pub fn unchanged(lir: &Lir) -> Applied {
        Applied {
            lir: lir.clone(),
            recomputed: Vec::new(),
            offloaded: Vec::new(),
            masked: Vec::new(),
            parts: Vec::new(),
            segments: Vec::new(),
        }
    }
}

/// The region at hand with the works of a schedule, and its loops with those of their bodies.
///
/// # Errors
/// INTERNAL for a step that the region does not have.
pub(super) fn apply(request: &Request<'_>, before: &Lir, steps: &[Step], away: Away, bodies: &Bodies) -> Result<Applied> {
    let no_step = || Error::internal("a schedule has a step that the region has not");
    let works = before.ids();
    let overwriting = overwriting(before);
    let mut lir = before.clone();
    // By value: the one that has its bytes from here on.
    let mut now: IdVec<ValueId, ValueId> = IdVec::new();
    before.values.ids().for_each(|value| {
        now.push(value);
    });
    // By value: its copy in the slower memory.
    let mut copies: HashMap<ValueId, ValueId> = HashMap::new();
    // What leaves the device before its next work, which waits for that; and the latest work, which comes before what moves back.
    let (mut leaving, mut latest): (Vec<WorkId>, Option<WorkId>) = (Vec::new(), None);
    let definitions = before.definitions();
    let mut ran = vec![false; works.len()];
    let (mut order, mut recomputed, mut offloaded) = (Vec::with_capacity(steps.len()), Vec::new(), Vec::new());
    for step in steps {
        let (number, way) = match *step {
            Step::Run(number) if number < works.len() => (number, None),
            Step::RunAs(number, way) if number < works.len() => (number, Some(way)),
            Step::Out(value) | Step::In(value) if value < before.values.len() => {
                let value = ValueId::from_index(value);
                let (bytes, node) = (before.values[value].bytes, before.values[value].node);
                let is_out = matches!(step, Step::Out(_));
                let slow = away.slow.ok_or_else(no_step)?;
                let from = if is_out { now[value] } else { *copies.get(&value).ok_or_else(no_step)? };
                let to = lir.value(if is_out { slow.device } else { away.device }, Home::Arena, bytes, node);
                lir.values[to].is_copy = true;
                let id = lir.work(WorkKind::Copy, slow.carrier, vec![node], vec![View::of_bytes(from, bytes)], vec![to]);
                // A value that may not have been made is copied only if it was.
                lir.works[id].guard = definitions[value].and_then(|work| before.works[work].guard).map(|guard| now[guard]);
                lir.works[id].prepared = Some(prepare(request, &lir, &lir.works[id])?);
                lir.works[id].is_beside = slow.is_beside;
                if is_out {
                    leaving.push(id);
                    offloaded.push((node, Bytes(bytes)));
                    copies.insert(value, to);
                } else {
                    lir.works[id].after.extend(latest);
                    now[value] = to;
                }
                order.push(id);
                continue;
            }
            _ => return Err(no_step()),
        };
        let first = &before.works[works[number]];
        let id = if std::mem::replace(&mut ran[number], true) {
            let mut repeated = first.clone();
            // All runs of a loop go the same way: the first has it.
            repeated.prepared.clone_from(&lir.works[works[number]].prepared);
            for output in &mut repeated.outputs {
                let fresh = lir.values.push(before.values[*output].clone());
                now[*output] = fresh;
                *output = fresh;
            }
            repeated.is_root = false;
            if let WorkKind::Loop { body, .. } = &mut repeated.kind {
                *body = bodies::copy(&mut lir, *body);
            }
            let id = lir.works.push(repeated);
            // What overwrites its operands waits for it, as for every reader.
            for writer in first.reads_once().into_iter().filter_map(|value| overwriting[value]) {
                lir.works[writer].after.push(id);
            }
            recomputed.extend(first.nodes.first());
            id
        } else {
            if let Some(way) = way {
                let narrowed = bodies::narrow(request, lir, works[number], way, away, bodies)?;
                lir = narrowed.lir;
                recomputed.extend(narrowed.recomputed);
            }
            works[number]
        };
        let work = &mut lir.works[id];
        work.inputs.iter_mut().map(|view| &mut view.value).chain(&mut work.guard).for_each(|value| *value = now[*value]);
        if work.device == away.device && !work.is_beside {
            work.after.append(&mut leaving);
            work.after.sort_unstable();
            latest = Some(id);
        }
        order.push(id);
    }
    if ran.contains(&false) {
        return Err(Error::internal("a schedule lacks a work"));
    }
    lir.region_mut().works = order;
    Ok(Applied { lir, recomputed, offloaded, masked: Vec::new(), parts: Vec::new(), segments: Vec::new() })
}
