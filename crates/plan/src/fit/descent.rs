//! The descent of one device: schedules with ever lower peaks and no better times.

use std::cmp::Reverse;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_fit::{Slow, State, Step};
use plimsoll_graph::NodeId;
use plimsoll_graph::id::Id;

use super::apply::{self, Applied};
use super::away::Away;
use super::bodies::Bodies;
use super::in_parts::{WithParts, with_parts};
use super::masks::{WithMasks, with_masks};
use super::segments::{WithSegments, with_segments};
use super::{arenas, packed, part, problem};
use crate::Request;
use crate::evaluate::{CLEARLY, evaluate};
use crate::lir::Lir;
use crate::live::Live;
use crate::live::moves::Moves;
use crate::plan::DeviceId;

/// The effort of a descent, in steps of the search, of which there are some millions a second: for each work, and within bounds.
const EFFORT: u64 = 2_000;
const LEAST_EFFORT: u64 = 2_000_000;
const MOST_EFFORT: u64 = 20_000_000;

/// The effort of a descent over so many works.
pub(super) fn effort(works: usize) -> u64 {
    EFFORT.saturating_mul(works as u64).clamp(LEAST_EFFORT, MOST_EFFORT)
}

/// The effort to find a better order, in works that are moved on trial: for each work, and at most.
const MOVES: u64 = 200;
const MOST_MOVES: u64 = 150_000;

/// So many schedules are measured side by side, where none is higher than the first by more than this part: so much higher than what is live
/// at once may the first be when it is packed.
const MOST_BESIDE: usize = 3;
const BESIDE: u64 = 12;

/// A list of chains for a line is not searched where another one has a schedule that is as low as its first and faster by this factor.
const SLOWER: f64 = 1.05;

/// A base is not searched where the same with masks takes at most so many times as long: what the one can do, the other can.
const NO_LONGER: f64 = 1.001;

/// The schedules of one device, from the one as it is on, none faster than the one before. The others have another order of works, where one
/// with a lower peak was found that takes no less time; and masks, where there are values that can be kept so.
pub(super) struct Descent<'a> {
    request: &'a Request<'a>,
    /// What schedules are made of. The first is the schedule as it is.
    bases: Vec<Base>,
    away: Away,
    /// The memory that values of the device can wait in, and whether it is a file.
    slow: (Option<Slow>, bool),
    /// What the arenas of the other devices may take.
    most: Vec<Option<Bytes>>,
    /// Of the bases searched so far. None is faster than the one before: so a lower line never gives a faster plan.
    states: Vec<Found>,
    /// The bases that are not searched yet.
    open: Vec<Open>,
    is_begun: bool,
}

/// A base as it is: none of its schedules takes less time, or more memory.
#[derive(Clone, Copy)]
struct Open {
    base: usize,
    seconds: f64,
    peak: u64,
}

/// A schedule.
struct Found {
    base: usize,
    state: State,
    /// What is live at once, or less: no packing takes less. A schedule may take a little less than its peak in the search: see
    /// [`problem::uncounted`].
    least: u64,
    /// What its arena takes, once that is known: nothing where another device takes more than it may.
    known: Option<Option<Bytes>>,
}

/// Works in an order.
struct Base {
    lir: Lir,
    /// The schedules of its loops' bodies.
    bodies: Arc<Bodies>,
    /// The values of which masks are kept in their place, each with the bytes of the mask.
    masks: Vec<(NodeId, Bytes)>,
    /// The base that is the same without masks.
    without: Option<usize>,
    /// The chains in parts, each with the number of parts.
    parts: Vec<(NodeId, u64)>,
    /// The loops in segments, each with the length of these.
    segments: Vec<(NodeId, u64)>,
    /// Whether its chains are made for a line.
    is_for_line: bool,
    /// So much less than its peak may a schedule take: see [`problem::uncounted`].
    uncounted: u64,
}

impl Base {
    fn new(request: &Request<'_>, device: DeviceId, lir: Lir, bodies: &Arc<Bodies>) -> Base {
        let uncounted = problem::uncounted(request, &lir, device);
        let bodies = Arc::clone(bodies);
        Base { lir, bodies, masks: Vec::new(), without: None, parts: Vec::new(), segments: Vec::new(), is_for_line: false, uncounted }
    }

    /// Its schedules with lower and lower peaks.
    fn states(&self, request: &Request<'_>, device: DeviceId, slow: Option<Slow>, is_file: bool) -> Vec<State> {
        let mut problem = problem::problem(request, &self.lir, device, slow, &self.bodies);
        let is_own: Vec<bool> = self.lir.all().map(|(_, work)| work.device == device).collect();
        let effort = effort(is_own.iter().filter(|is_own| **is_own).count());
        let mut states = part::descend(request, &problem, &is_own, effort);
        if is_file && problem.slow.take().is_some() {
            // A file is slow, and buffers of moves are live a little longer than the search knows: also those that move nothing.
            states.extend(part::descend(request, &problem, &is_own, effort));
        }
        states
    }
}

/// What searches find, in their order. Each has a thread, where the system has one for it: none knows of the others.
fn side_by_side<T: Send>(searches: &[impl Fn() -> T + Sync]) -> Vec<T> {
    let Some((first, others)) = searches.split_first() else { return Vec::new() };
    std::thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|search| (search, std::thread::Builder::new().spawn_scoped(scope, search))).collect();
        let found = others.into_iter().map(|(search, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => search(),
        });
        std::iter::once(first()).chain(found).collect()
    })
}

impl<'a> Descent<'a> {
    /// # Errors
    /// INTERNAL where a schedule of the search does not hold.
    pub fn new(request: &'a Request<'a>, lir: Lir, device: DeviceId, most: Vec<Option<Bytes>>) -> Result<Descent<'a>> {
        let (away, taken) = (Away::of(request, device), arenas(request, &lir));
        let room = |at: DeviceId| most[at.index()].map_or(Bytes(u64::MAX / 2), |most| most - taken[at.index()]);
        let slow = away.slow.map(|slow| slow.for_search(request, device, room(slow.device))).filter(|slow| slow.bytes > 0);
        let arena = taken[device.index()];
        let is_file = away.slow.is_some_and(|slow| !request.devices[slow.device.index()].kind.computes());
        let in_segments = with_segments(request, &lir, device, arena)?;
        let bodies = Arc::new(Bodies::new(request, &lir, device, arena)?);
        let mut bases = vec![Base::new(request, device, lir, &bodies)];
        bases.extend(ordered(request, &bases[0].lir, device).map(|lir| Base::new(request, device, lir, &bodies)));
        let searched = bases.len() - 1;
        further(request, device, arena, &mut bases)?;
        let of_segments = in_segments.len();
        for (number, WithSegments { lir, segments }) in (1..).zip(in_segments) {
            let bodies = Arc::new(Bodies::new(request, &lir, device, arena)?);
            let lir = ordered(request, &lir, device).unwrap_or(lir);
            bases.push(Base { segments, ..Base::new(request, device, lir, &bodies) });
            // Of all loops in segments.
            if number == of_segments {
                further(request, device, arena, &mut bases)?;
            }
        }
        // The schedules as they are.
        let given = |base: &Base| {
            let problem = problem::problem(request, &base.lir, device, slow.clone(), &base.bodies);
            let steps: Vec<Step> = (0..problem.works.len()).map(Step::Run).collect();
            let (peak, seconds) = plimsoll_fit::replay(&problem, &steps).ok()?;
            Some(State { steps, peak, seconds })
        };
        let as_it_is = |base: usize| {
            let (seconds, peak) = given(&bases[base]).map_or((0.0, u64::MAX), |state| (state.seconds, state.peak));
            Open { base, seconds, peak }
        };
        let all: Vec<Open> = (searched..bases.len()).map(as_it_is).collect();
        let has_better =
            |open: &Open| all.iter().any(|other| bases[other.base].without == Some(open.base) && other.seconds <= open.seconds * NO_LONGER);
        let open = all.iter().filter(|open| !has_better(open)).copied().collect();
        let first = given(&bases[0]).filter(|_| bases.len() > 1);
        let mut descent = Descent { request, bases, away, slow: (slow, is_file), most, states: Vec::new(), open, is_begun: false };
        descent.states.extend(first.map(|state| descent.found(0, state)));
        Ok(descent)
    }

    fn found(&self, base: usize, state: State) -> Found {
        let least = state.peak.saturating_sub(self.bases[base].uncounted);
        Found { base, state, least, known: None }
    }

    /// Searches the bases that may have a schedule of at most so many seconds; the fastest one alone, where it is the first and not all of them
    /// may be needed. Whether there were any.
    fn search(&mut self, seconds: f64, is_all: bool) -> bool {
        let is_first = !std::mem::replace(&mut self.is_begun, true) && !is_all;
        let fastest = self.open.iter().min_by(|one, other| one.seconds.total_cmp(&other.seconds)).map(|open| open.base);
        let is_next = |open: &Open| open.seconds <= seconds && (!is_first || Some(open.base) == fastest);
        let (next, open): (Vec<_>, Vec<_>) = self.open.iter().copied().partition(is_next);
        self.open = open;
        let (for_line, others): (Vec<_>, Vec<_>) = next.iter().copied().partition(|open| self.bases[open.base].is_for_line);
        self.search_these(&others);
        // Of the others all are searched that may have a faster schedule.
        let (bases, states) = (&self.bases, &self.states);
        let is_faster = |found: &Found, open: &Open| {
            !bases[found.base].is_for_line && found.state.peak <= open.peak && found.state.seconds * SLOWER < open.seconds
        };
        let for_line: Vec<_> = for_line.into_iter().filter(|open| !states.iter().any(|found| is_faster(found, open))).collect();
        self.search_these(&for_line);
        !next.is_empty()
    }

    /// Searches some bases.
    fn search_these(&mut self, these: &[Open]) {
        let (request, device, (slow, is_file)) = (self.request, self.away.device, &self.slow);
        let searches: Vec<_> = these.iter().map(|open| || self.bases[open.base].states(request, device, slow.clone(), *is_file)).collect();
        let mut fresh = Vec::new();
        for (open, states) in these.iter().zip(side_by_side(&searches)) {
            fresh.extend(states.into_iter().map(|state| self.found(open.base, state)));
        }
        if self.bases.len() > 1
            && let Some(given) = self.states.first()
        {
            fresh.retain(|found| found.state.peak < given.state.peak && found.state.seconds >= given.state.seconds);
        }
        self.states.extend(fresh);
        let order = |found: &Found| (found.state.seconds, Reverse(found.state.peak), found.base);
        self.states.sort_by(|one, other| {
            let ((seconds, peak, base), other) = (order(one), order(other));
            seconds.total_cmp(&other.0).then(peak.cmp(&other.1)).then(base.cmp(&other.2))
        });
        self.states.dedup_by(|one, other| one.base == other.base && one.state == other.state);
    }

    /// The first schedule whose packed arena is within `room`; where none is, the one with the smallest.
    ///
    /// Bases that are slower as they are than a schedule that is within it need not be searched.
    ///
    /// # Errors
    /// As [`Descent::schedule`].
    pub fn first_below(&mut self, room: Bytes) -> Result<usize> {
        let is_least_expected = self.request.lines.searches.as_ref().is_some_and(|searches| searches.is_least_expected());
        let are_all_needed = room == Bytes::ZERO || is_least_expected;
        loop {
            let mut found = None;
            for state in 0..self.states.len() {
                if self.within(state, room)?.is_some() {
                    found = Some(state);
                    break;
                }
            }
            let seconds = found.map_or(f64::INFINITY, |state| self.states[state].state.seconds);
            match found {
                Some(0) if self.bases.len() > 1 => return Ok(0),
                _ if self.search(seconds, are_all_needed) => {}
                Some(state) => return Ok(state),
                None => break,
            }
        }
        let mut lowest: Option<(Bytes, usize)> = None;
        for state in (0..self.states.len()).rev() {
            let most = lowest.map_or(Bytes(u64::MAX), |(bytes, _)| bytes);
            self.measure_beside(state, most)?;
            if let Some(bytes) = self.within(state, most)? {
                lowest = Some((bytes, state));
            }
        }
        Ok(lowest.map_or(0, |(_, state)| state))
    }

    /// What the packed arena of a schedule takes; none where another device takes more than it may.
    ///
    /// # Errors
    /// As [`Descent::schedule`].
    pub fn bytes(&mut self, state: usize) -> Result<Option<Bytes>> {
        self.within(state, Bytes(u64::MAX))
    }

    /// The same, where it is at most so much. What is live at once says first whether it can be: to pack takes longer.
    fn within(&mut self, state: usize, most: Bytes) -> Result<Option<Bytes>> {
        let Some(found) = self.states.get(state).filter(|found| found.least <= most.0) else { return Ok(None) };
        if found.known.is_none() {
            let measured = self.measure(state, most)?;
            self.note(state, measured);
        }
        Ok(self.states[state].known.flatten().filter(|bytes| *bytes <= most))
    }

    /// Measures a schedule and the next ones before it that are as low, about, where they may be within `most`: to pack takes long, and each is
    /// packed alone. They are asked for next, unless the first is much lower than the others.
    fn measure_beside(&mut self, state: usize, most: Bytes) -> Result<()> {
        let is_open = |found: &Found| found.known.is_none() && found.least <= most.0;
        let Some(first) = self.states.get(state).filter(|found| is_open(found)) else { return Ok(()) };
        let as_low = first.least.saturating_add(first.least / BESIDE);
        let open = (0..=state).rev().filter(|other| is_open(&self.states[*other]) && self.states[*other].least <= as_low);
        let next: Vec<usize> = open.take(MOST_BESIDE).collect();
        let measures: Vec<_> = next.iter().map(|state| || self.measure(*state, most)).collect();
        let measured = side_by_side(&measures);
        for (state, measured) in next.into_iter().zip(measured) {
            self.note(state, measured?);
        }
        Ok(())
    }

    /// What is live at once of a schedule; and what it takes once it is packed, where that may be within `most`.
    fn measure(&self, state: usize, most: Bytes) -> Result<(u64, Option<Option<Bytes>>)> {
        let (request, index) = (self.request, self.away.device.index());
        let lir = self.schedule(state)?.lir;
        let live = Live::new(&lir, &lir.region().works, request.devices);
        let least = live.peaks(request.devices.len())[index].max(self.states[state].least);
        if least > most.0 {
            return Ok((least, None));
        }
        let arenas = packed(request, &live);
        let mut others = (0..arenas.len()).filter(|other| *other != index);
        let is_over = others.any(|other| self.most[other].is_some_and(|most| arenas[other] > most));
        Ok((least, Some(Some(arenas[index]).filter(|_| !is_over))))
    }

    fn note(&mut self, state: usize, (least, known): (u64, Option<Option<Bytes>>)) {
        let found = &mut self.states[state];
        (found.least, found.known) = (least, known);
    }

    /// The works of a schedule.
    ///
    /// # Errors
    /// INTERNAL where it does not hold.
    pub fn schedule(&self, state: usize) -> Result<Applied> {
        let Some(Found { base, state, .. }) = self.states.get(state) else {
            return Ok(Applied::unchanged(&self.bases[0].lir));
        };
        let Base { lir, bodies, masks, parts, segments, .. } = &self.bases[*base];
        let applied = apply::apply(self.request, lir, &state.steps, self.away, bodies)?;
        Ok(Applied { masked: masks.clone(), parts: parts.clone(), segments: segments.clone(), ..applied })
    }
}

/// Adds what can be made of the last base: with masks, and of what comes last then, in parts.
///
/// # Errors
/// As [`with_masks`] and [`with_parts`].
fn further(request: &Request<'_>, device: DeviceId, arena: Bytes, bases: &mut Vec<Base>) -> Result<()> {
    let mut last = bases.len() - 1;
    if let Some(WithMasks { lir, masks }) = with_masks(request, &bases[last].lir, device, arena)? {
        let (bodies, segments) = (Arc::clone(&bases[last].bodies), bases[last].segments.clone());
        bases.push(Base { masks, without: Some(last), segments, ..Base::new(request, device, lir, &bodies) });
        last += 1;
    }
    for WithParts { lir, parts, works, is_for_line } in with_parts(request, &bases[last].lir, device, arena)? {
        let lir = if is_for_line { ordered(request, &lir, device).unwrap_or(lir) } else { lir };
        let of = &bases[last];
        let bodies = Arc::new(of.bodies.renumbered(&works));
        let (masks, segments) = (of.masks.clone(), of.segments.clone());
        bases.push(Base { masks, parts, segments, is_for_line, ..Base::new(request, device, lir, &bodies) });
    }
    Ok(())
}

/// The works of a device, of the region at hand, in an order with a lower live peak, if one is found that takes no less time and clearly no more.
pub(super) fn ordered(request: &Request<'_>, lir: &Lir, device: DeviceId) -> Option<Lir> {
    let rate = |lir: &Lir| evaluate(lir, request.devices, &lir.region().works);
    let mut moves = Moves::of(lir.clone(), request.devices, device);
    let before = moves.peak();
    moves.lower(MOVES.saturating_mul(moves.len() as u64).min(MOST_MOVES));
    if moves.peak() >= before {
        return None;
    }
    let mut ordered = lir.clone();
    ordered.region_mut().works = moves.into_order();
    let (before, after) = (rate(lir).makespan, rate(&ordered).makespan);
    (after >= before && after <= before * CLEARLY).then_some(ordered)
}
