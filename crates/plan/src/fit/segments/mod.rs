//! Segments: of a loop whose lists a later loop reads in reverse, the state of every k-th iteration is kept in the place of the lists. The
//! later loop goes through segments of k iterations, the last one first. For each it runs the first loop again from the state that was kept,
//! and then its own iterations, which find the rows of the segment in lists of k rows. So results have the same bits: each iteration is
//! computed by the same kernels, from the same operands, in the same order.
//!
//! All of it is made of works that there are: loops, expressions, and kernels that take and write rows. Where k does not divide the number
//! of iterations, the last segment is shorter.
//!
//! [`pairs`]: which loops these are. [`counts`]: which rows they write and read. [`build`]: loops in segments, of [`body`].

mod body;
mod build;
mod counts;
mod pairs;

use std::collections::HashSet;

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use self::body::Making;
use self::counts::Counts;
use self::pairs::Pair;
use crate::Request;
use crate::lir::{Lir, RegionId, ValueId, Work, WorkId, WorkKind};
use crate::plan::DeviceId;

/// A pair whose lists take less than this part of the arena stays as it is.
const LEAST_PART: u64 = 64;

/// Segments have to save this part of the bytes of the lists at least.
const LEAST_SAVED: u64 = 4;

/// A region with loops in segments.
pub(super) struct WithSegments {
    pub lir: Lir,
    /// For each loop, its node, and of how many iterations one state is kept.
    pub segments: Vec<(NodeId, u64)>,
}

/// A pair of loops with the length of its segments.
struct Choice {
    pair: Pair,
    length: u64,
    /// Bytes that are not kept.
    saved: u64,
    /// Predicted seconds that it takes more, roughly.
    longer: f64,
}

/// The region at hand with loops of the device in segments, in an arena of so many bytes: first the pair that saves most for its time, then
/// two, four, and all.
///
/// # Errors
/// INTERNAL where loops are not such pairs.
pub(super) fn with_segments(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Result<Vec<WithSegments>> {
    let mut counts = Counts::new(lir);
    let pairs = pairs::candidates(lir, device).into_iter().filter_map(|loops| pairs::pair(lir, loops, &mut counts));
    let mut choices: Vec<Choice> = pairs.filter_map(|pair| choice(request, lir, device, pair)).collect();
    choices.retain(|choice| choice.saved.saturating_mul(LEAST_PART) >= arena.0);
    // A loop is in one pair.
    let mut taken: HashSet<WorkId> = HashSet::new();
    choices.retain(|choice| {
        let loops = [choice.pair.loops.forward, choice.pair.loops.back];
        let is_free = loops.iter().all(|id| !taken.contains(id));
        taken.extend(loops.into_iter().filter(|_| is_free));
        is_free
    });
    choices.sort_by(|one, other| (other.saved as f64 * one.longer).total_cmp(&(one.saved as f64 * other.longer)));
    let mut found = Vec::new();
    let mut count = 1;
    while !choices.is_empty() {
        count = count.min(choices.len());
        match applied(request, lir, device, &choices[..count]) {
            Ok(with) => found.push(with),
            // The device lacks a kernel for it.
            Err(error) if error.code() == Code::Unimplemented => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        if count == choices.len() {
            break;
        }
        count *= 2;
    }
    Ok(found)
}

/// Values that loops of the device may do without: lists that another loop reads in reverse, before and behind the loops.
pub(super) fn without(lir: &Lir, device: DeviceId) -> HashSet<ValueId> {
    let mut values = HashSet::new();
    for loops in pairs::candidates(lir, device) {
        let (forward, back) = (&lir.works[loops.forward], &lir.works[loops.back]);
        let WorkKind::Loop { carried, .. } = back.kind else { continue };
        for list in &loops.lists {
            values.extend([forward.inputs[list.carried].value, forward.outputs[list.carried]]);
            values.extend(list.inputs.iter().filter(|input| **input < carried).map(|input| back.outputs[*input]));
        }
    }
    values
}

/// The length of segments with which lists and state take least together; none where that does not save enough.
fn choice(request: &Request<'_>, lir: &Lir, device: DeviceId, pair: Pair) -> Option<Choice> {
    let slot = |bytes: u64| request.devices[device.index()].slot(Bytes(bytes)).0;
    let whole: u64 = pair.loops.lists.iter().map(|list| slot(list.bytes)).sum();
    let state: Vec<u64> = pair.state_bytes(lir).collect();
    let takes = |length: u64| {
        let lists = pair.loops.lists.iter().map(|list| slot(list.row.saturating_mul(length)));
        let states = state.iter().map(|bytes| slot(bytes.saturating_mul(pair.loops.trips.div_ceil(length))));
        lists.chain(states).fold(0, u64::saturating_add)
    };
    // Of so many segments, none is longer than it has to be.
    let trips = pair.loops.trips;
    let lengths = (2..=trips / 2).map(|count| trips.div_ceil(count)).filter(|length| *length > 1);
    let length = lengths.min_by_key(|length| takes(*length))?;
    let saved = whole.checked_sub(takes(length)).filter(|saved| *saved >= whole / LEAST_SAVED)?;
    let longer = lir.works[pair.loops.forward].seconds();
    Some(Choice { pair, length, saved, longer })
}

/// The region with these pairs in segments.
fn applied(request: &Request<'_>, lir: &Lir, device: DeviceId, choices: &[Choice]) -> Result<WithSegments> {
    let mut segments = Vec::new();
    let node = choices.first().map_or(NodeId::from_index(0), |choice| lir.works[choice.pair.loops.forward].nodes[0]);
    let mut making = Making { request, lir: lir.clone(), device, node };
    let mut before: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.works.len());
    for Choice { pair, length, .. } in choices {
        for (new, of) in build::segment(&mut making, pair, *length)? {
            before[of].push(new);
        }
        segments.push((lir.works[pair.loops.forward].nodes[0], *length));
    }
    let Making { mut lir, .. } = making;
    let works = lir.region().works.iter().flat_map(|id| before[*id].iter().copied().chain([*id])).collect();
    lir.region_mut().works = works;
    lir.sweep();
    // Lists that are not kept are not begun.
    lir.drop_dead()?;
    Ok(WithSegments { lir, segments })
}

/// For each value of a region, the work that defines it.
fn definitions_in(lir: &Lir, region: RegionId) -> IdVec<ValueId, Option<WorkId>> {
    let mut definitions = IdVec::filled(None, lir.values.len());
    for id in &lir.regions[region].works {
        lir.works[*id].outputs.iter().for_each(|output| definitions[*output] = Some(*id));
    }
    definitions
}

/// For each value of a region, the works that read it, each once.
fn uses_in(lir: &Lir, region: RegionId) -> IdVec<ValueId, Vec<WorkId>> {
    let mut uses: IdVec<ValueId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.values.len());
    for id in &lir.regions[region].works {
        lir.works[*id].reads_once().into_iter().for_each(|value| uses[value].push(*id));
    }
    uses
}

/// Whether a work is never passed over.
fn unguarded(work: &Work) -> bool {
    work.guard.is_none() && !work.is_beside
}
