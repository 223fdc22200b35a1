//! Segments: of a loop whose lists a later loop reads in reverse, the state of every k-th iteration is kept in the place of the lists. The
//! later loop goes through segments of k iterations, the last one first. For each it runs the first loop again from the state that was kept,
//! and then its own iterations, which find the rows of the segment in lists of k rows. So results have the same bits: each iteration is
//! computed by the same kernels, from the same operands, in the same order.
//!
//! All of it is made of works that there are: loops, expressions, and kernels that take and write rows. Where k does not divide the number
//! of iterations, the last segment is shorter.
//!
//! The two loops are in one region: the plan's own, or the body of another loop. Where they are passed over, so is what is made for them.
//! Where several devices have a part in them, each has its part of the state and its counters.
//!
//! [`pairs`]: which loops these are. [`counts`]: which rows they write and read. [`build`]: loops in segments, of [`body`].

mod body;
mod build;
mod counts;
mod pairs;

use std::collections::{BTreeSet, HashSet};

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use self::body::Making;
use self::counts::Counts;
use self::pairs::{List, Pair};
use crate::Request;
use crate::lir::{Lir, RegionId, Trips, ValueId, Work, WorkId, WorkKind};
use crate::order::taken;
use crate::plan::DeviceId;
use crate::prepare::prepare;

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
    /// The region of the loops.
    region: RegionId,
    pair: Pair,
    length: u64,
    /// Bytes that are not kept.
    saved: u64,
    /// Predicted seconds that it takes more, roughly.
    longer: f64,
}

/// The plan's own region with loops of the device in segments, in an arena of so many bytes: first the pair that saves most for its time, then
/// two, four, and all. Pairs may be in the bodies of other loops.
///
/// # Errors
/// INTERNAL where loops are not such pairs.
pub(super) fn with_segments(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Result<Vec<WithSegments>> {
    let mut choices = choices(request, lir, device, arena);
    choices.sort_by(|one, other| (other.saved as f64 * one.longer).total_cmp(&(one.saved as f64 * other.longer)));
    let mut found = Vec::new();
    let mut count = 1;
    while !choices.is_empty() {
        count = count.min(choices.len());
        match applied(request, lir, &choices[..count]) {
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

/// The pairs of loops that are worth it, of all regions. None is within a loop of another.
fn choices(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Vec<Choice> {
    let mut counts = Counts::new(lir);
    let mut taken: HashSet<WorkId> = HashSet::new();
    let mut found = Vec::new();
    // Regions that works hold come behind those of these works.
    for_each_region(lir, |lir| {
        let around: Vec<WorkId> = lir.around(lir.here()).collect();
        if around.iter().any(|holder| taken.contains(holder)) {
            return;
        }
        let times: f64 = around.iter().filter_map(|holder| lir.works[*holder].trips()).map(Trips::predicted).product();
        let pairs = pairs::candidates(lir, device).into_iter().filter_map(|loops| pairs::pair(lir, loops, &mut counts));
        for pair in pairs {
            let loops = [pair.loops.forward, pair.loops.back];
            let choice = choice(request, lir, device, pair).filter(|choice| choice.saved.saturating_mul(LEAST_PART) >= arena.0);
            // A loop is in one pair.
            if let Some(choice) = choice.filter(|_| loops.iter().all(|id| !taken.contains(id))) {
                taken.extend(loops);
                found.push(Choice { longer: choice.longer * times, ..choice });
            }
        }
    });
    found
}

/// Values that loops of the device may do without: lists that another loop reads in reverse, before and behind the loops.
pub(super) fn without(lir: &Lir, device: DeviceId) -> HashSet<ValueId> {
    let mut values = HashSet::new();
    for_each_region(lir, |lir| {
        for loops in pairs::candidates(lir, device) {
            let (forward, back) = (&lir.works[loops.forward], &lir.works[loops.back]);
            let WorkKind::Loop { carried, .. } = back.kind else { continue };
            for list in &loops.lists {
                values.extend([forward.inputs[list.carried].value, forward.outputs[list.carried]]);
                values.extend(list.inputs.iter().filter(|input| **input < carried).map(|input| back.outputs[*input]));
            }
        }
    });
    values
}

/// Calls `look` with each region at hand that has loops, those that works hold behind the regions of these works.
fn for_each_region(lir: &Lir, mut look: impl FnMut(&Lir)) {
    let has_loops = |region: &RegionId| lir.regions[*region].works.iter().any(|id| !lir.works[*id].regions().is_empty());
    let regions: Vec<RegionId> = lir.regions.ids().filter(has_loops).collect();
    if regions.is_empty() {
        return;
    }
    let mut lir = lir.clone();
    for region in regions {
        lir.enter(region);
        look(&lir);
    }
}

/// The length of segments with which lists and state take least of a device together; none where that does not save enough.
fn choice(request: &Request<'_>, lir: &Lir, device: DeviceId, pair: Pair) -> Option<Choice> {
    let slot = |bytes: u64| request.devices[device.index()].slot(Bytes(bytes)).0;
    let lists: Vec<&List> = pair.loops.lists.iter().filter(|list| list.device == device).collect();
    let whole: u64 = lists.iter().map(|list| slot(list.bytes)).sum();
    let state: Vec<u64> = pair.state_bytes(lir, device).collect();
    let takes = |length: u64| {
        let lists = lists.iter().map(|list| slot(list.row.saturating_mul(length)));
        let states = state.iter().map(|bytes| slot(bytes.saturating_mul(pair.loops.trips.div_ceil(length))));
        lists.chain(states).fold(0, u64::saturating_add)
    };
    // Of so many segments, none is longer than it has to be.
    let trips = pair.loops.trips;
    let lengths = (2..=trips / 2).map(|count| trips.div_ceil(count)).filter(|length| *length > 1);
    let length = lengths.min_by_key(|length| takes(*length))?;
    let saved = whole.checked_sub(takes(length)).filter(|saved| *saved >= whole / LEAST_SAVED)?;
    let longer = lir.works[pair.loops.forward].seconds();
    Some(Choice { region: lir.here(), pair, length, saved, longer })
}

/// The plan's own region with these pairs in segments.
fn applied(request: &Request<'_>, lir: &Lir, choices: &[Choice]) -> Result<WithSegments> {
    let mut segments = Vec::new();
    let node = choices.first().map_or(NodeId::from_index(0), |choice| lir.works[choice.pair.loops.forward].nodes[0]);
    let mut making = Making { request, lir: lir.clone(), node, guard: None };
    // The loops around, whose bodies change with these.
    let mut around: BTreeSet<WorkId> = BTreeSet::new();
    for Choice { region, pair, length, .. } in choices {
        let top = making.lir.enter(*region);
        let before = build::segment(&mut making, pair, *length)?;
        let first_of = |id: WorkId| before.iter().filter(move |(_, of)| *of == id).map(|(new, _)| *new);
        making.lir.region_mut().works = making.lir.region().works.iter().flat_map(|id| first_of(*id).chain([*id])).collect();
        making.lir.enter(top);
        around.extend(lir.around(*region));
        segments.push((lir.works[pair.loops.forward].nodes[0], *length));
    }
    let Making { lir: mut made, .. } = making;
    // So have the bodies that are new.
    let is_new = |(_, work): &(WorkId, &Work)| work.regions().iter().any(|body| body.index() >= lir.regions.len());
    around.extend(made.works.iter().filter(is_new).map(|(id, _)| id));
    let works = made.sweep();
    let mut lir = made;
    let changed: BTreeSet<RegionId> = around.iter().filter_map(|id| works[*id]).flat_map(|id| lir.works[id].regions()).copied().collect();
    let top = lir.here();
    // Bodies come behind what is around them.
    for region in changed.into_iter().rev() {
        lir.enter(region);
        // Lists that are not kept are not begun, and their rows have no numbers.
        lir.drop_dead()?;
        lir.region_mut().arena = taken(&lir, request.devices);
        if let Some(holder) = lir.holder(region) {
            let prepared = prepare(request, &lir, &lir.works[holder])?;
            lir.works[holder].prepared = Some(prepared);
        }
    }
    lir.enter(top);
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
