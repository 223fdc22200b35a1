//! Chains by what is live at once: until no more than a line is. At the highest position, a value that is live there is made as it is read: what
//! reads it takes up what makes it, all readers or the later ones. Where its operands are there anyway, it takes no more memory than a part
//! of it. So cheap works are done again in chains, and what is read while others wait holds nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;

use plimsoll_base::Bytes;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Joined, Joins, MOST_JOINS};
use crate::fit::floor::while_it_runs;
use crate::fit::problem::{is_here, may_repeat};
use crate::lir::{ValueId, WorkId};

/// So many of the largest values of a position are tried.
const MOST_TRIED: usize = 8;

/// So many positions may stay over a line.
const MOST_CLOSED: usize = 6;

/// What a change counts at least, as a part of the time of a step.
const LEAST_COUNTED: f64 = 1e-3;

/// What a change for a line may take more at most, as a part of the time of a step.
const MOST_LONGER: f64 = 0.05;

/// What is known of works as they are.
pub(super) struct Lives {
    /// By work: what is there while it runs, and what it reads.
    running: IdVec<WorkId, u64>,
    reads: IdVec<WorkId, Vec<ValueId>>,
    /// By value: its bytes in the arena, and whether it need not wait there: what makes it runs again in no time.
    bytes: IdVec<ValueId, u64>,
    is_free: IdVec<ValueId, bool>,
    /// Predicted seconds of all.
    seconds: f64,
}

/// What is live at each position, and where values begin and end to live.
struct Profile {
    bytes: Vec<u64>,
    first: IdVec<ValueId, usize>,
    last: IdVec<ValueId, usize>,
}

/// What was there before a change.
#[derive(Default)]
struct Undo {
    joined: Vec<(usize, Option<Joined>)>,
    owner: Vec<(usize, usize)>,
}

/// A change at a position.
#[derive(Clone, Copy)]
enum Change {
    /// What reads a value at this position or behind makes it.
    AsRead(ValueId, usize),
    /// One is done in more parts.
    InMoreParts(usize),
}

impl Profile {
    /// Bytes over a line, of all positions together.
    fn over(&self, line: u64) -> u64 {
        self.bytes.iter().map(|bytes| bytes.saturating_sub(line)).fold(0, u64::saturating_add)
    }
}

impl Joins<'_> {
    pub(super) fn lives(&self) -> Lives {
        let (request, lir, device) = (self.chains.request, self.chains.lir, self.device);
        let spec = &request.devices[device.index()];
        let mut lives = Lives {
            running: IdVec::filled(0, lir.works.len()),
            reads: IdVec::filled(Vec::new(), lir.works.len()),
            bytes: IdVec::filled(0, lir.values.len()),
            is_free: IdVec::filled(false, lir.values.len()),
            seconds: 0.0,
        };
        for (id, work) in lir.all() {
            lives.running[id] = while_it_runs(request, lir, work, device);
            lives.reads[id] = work.reads_once();
            lives.seconds += if work.device == device { work.seconds() } else { 0.0 };
        }
        for value in lir.values.ids().filter(|value| is_here(lir, *value, device, lir.here())) {
            lives.bytes[value] = spec.slot(Bytes(lir.values[value].bytes)).0;
        }
        for (id, work) in lir.all().filter(|(id, work)| work.seconds() <= lives.seconds * LEAST_COUNTED && may_repeat(lir, *id, device)) {
            if lives.reads[id].iter().all(|value| lives.bytes[*value] == 0) {
                work.outputs.iter().for_each(|value| lives.is_free[*value] = true);
            }
        }
        lives
    }

    /// Makes values as they are read until no more than so many bytes are live at once. It ends before where no change is left that takes
    /// little more time and saves this part of the line.
    pub(super) fn down_to(&mut self, lives: &Lives, line: u64, least_saved: u64) {
        let longest = lives.seconds * MOST_LONGER;
        // Positions where nothing can be changed: in another order they may have less.
        let mut closed = BTreeSet::new();
        for _ in 0..MOST_JOINS {
            if closed.len() > MOST_CLOSED {
                return;
            }
            let profile = self.profile(lives);
            let over = profile.over(line);
            let open = (0..profile.bytes.len()).filter(|at| profile.bytes[*at] > line && !closed.contains(at));
            let Some(top) = open.max_by_key(|at| (profile.bytes[*at], std::cmp::Reverse(*at))) else { return };
            let mut best: Option<(f64, Change)> = None;
            for change in self.changes(&profile, lives, top) {
                let Some((undo, longer)) = self.change(change) else { continue };
                let after = self.profile(lives).over(line);
                self.undo(undo);
                let saved = over.saturating_sub(after);
                let worth = saved as f64 / (longer.max(0.0) + LEAST_COUNTED * lives.seconds);
                if saved > line / least_saved && longer <= longest && best.is_none_or(|(other, _)| worth > other) {
                    best = Some((worth, change));
                }
            }
            if best.and_then(|(_, change)| self.change(change)).is_none() {
                closed.insert(top);
            }
        }
    }

    /// The most bytes that are live at once.
    pub(super) fn highest(&self, lives: &Lives) -> u64 {
        self.profile(lives).bytes.into_iter().max().unwrap_or(0)
    }

    /// What is live when.
    fn profile(&self, lives: &Lives) -> Profile {
        let lir = self.chains.lir;
        let works = &lir.region().works;
        let (mut first, mut last) = (IdVec::filled(usize::MAX, lir.values.len()), IdVec::filled(0, lir.values.len()));
        let mut bytes = vec![0u64; works.len()];
        let of = |id: WorkId| {
            let joined = self.chains.units.of[id].and_then(|unit| self.joined[self.owner[unit]].as_ref());
            joined.filter(|joined| joined.parts.is_some())
        };
        let mut inside: Vec<(usize, Cow<'_, [ValueId]>)> = Vec::new();
        for (at, id) in works.iter().enumerate() {
            let (reads, outputs) = match of(*id) {
                Some(joined) if joined.at != *id => continue,
                Some(joined) => {
                    bytes[at] = joined.bytes;
                    (Cow::Owned(self.reads(joined)), Cow::Owned(self.writes(joined)))
                }
                None => {
                    bytes[at] = lives.running[*id];
                    (Cow::Borrowed(&lives.reads[*id][..]), Cow::Borrowed(&lir.works[*id].outputs[..]))
                }
            };
            outputs.iter().for_each(|value| (first[*value], last[*value]) = (at, at.max(last[*value])));
            reads.iter().for_each(|value| last[*value] = at.max(last[*value]));
            inside.push((at, reads));
        }
        lir.region().results.iter().for_each(|value| last[*value] = works.len());
        // What lives through a position that does not use it.
        let mut change = vec![0i64; works.len() + 2];
        for value in lir.values.ids().filter(|value| lives.bytes[*value] > 0 && !lives.is_free[*value] && first[*value] < last[*value]) {
            change[first[value] + 1] += lives.bytes[value] as i64;
            change[last[value]] -= lives.bytes[value] as i64;
        }
        let mut through = 0i64;
        let mut inside = inside.into_iter().peekable();
        for (at, bytes) in bytes.iter_mut().enumerate() {
            through += change[at];
            let Some((_, reads)) = inside.next_if(|(other, _)| *other == at) else { continue };
            let is_through = |value: &ValueId| !lives.is_free[*value] && first[*value] < at && at < last[*value];
            let own: u64 = reads.iter().filter(|value| is_through(value)).map(|value| lives.bytes[*value]).sum();
            *bytes = (*bytes + through.max(0) as u64).saturating_sub(own);
        }
        Profile { bytes, first, last }
    }

    /// What may be changed about a position.
    fn changes(&self, profile: &Profile, lives: &Lives, at: usize) -> Vec<Change> {
        let is_there = |value: &ValueId| profile.first[*value] <= at && at <= profile.last[*value];
        let mut values: Vec<ValueId> = self.chains.lir.values.ids().filter(|value| lives.bytes[*value] > self.least).collect();
        values.retain(|value| is_there(value) && self.maker[*value].is_some());
        values.sort_by_key(|value| (std::cmp::Reverse(lives.bytes[*value]), value.index()));
        let mut changes = Vec::new();
        for value in values.into_iter().take(MOST_TRIED) {
            let readers = self.readers(value);
            let stand = readers.iter().flatten().filter_map(|index| self.joined[*index].as_ref()).map(|joined| self.position[joined.at]);
            let stand: BTreeSet<usize> = stand.collect();
            let from: BTreeSet<usize> = [0, at, at + 1].into_iter().filter_map(|from| stand.range(from..).next().copied()).collect();
            changes.extend(from.into_iter().map(|from| Change::AsRead(value, from)));
        }
        let id = self.chains.lir.region().works[at];
        changes.extend(self.chains.units.of[id].map(|unit| Change::InMoreParts(self.owner[unit])));
        changes
    }

    /// Changes it: what was before, and how many seconds it takes more. None where that cannot be done.
    fn change(&mut self, change: Change) -> Option<(Undo, f64)> {
        let mut undo = Undo::default();
        let mut longer = 0.0;
        match change {
            Change::AsRead(value, from) => {
                let readers: Vec<usize> = self.readers(value).into_iter().flatten().collect();
                let mut stand: Vec<(usize, usize)> =
                    readers.into_iter().filter_map(|index| Some((self.position[self.joined[index].as_ref()?.at], index))).collect();
                stand.retain(|(position, _)| *position >= from);
                stand.sort_unstable();
                for (_, reader) in stand {
                    let joined = self.joined[reader].clone();
                    let Some((replaced, better)) = joined.and_then(|joined| self.taking_up(&(vec![reader], joined), value)) else {
                        self.undo(undo);
                        return None;
                    };
                    longer += self.put(&mut undo, replaced, better);
                }
            }
            Change::InMoreParts(index) => {
                let joined = self.joined[index].as_ref()?;
                let better = self.in_parts(joined.units.clone(), joined.own.clone(), joined.count() + 1)?;
                longer += self.put(&mut undo, vec![index], better);
            }
        }
        Some((undo, longer))
    }

    /// [`Joins::replace`], and the seconds that it takes more.
    fn put(&mut self, undo: &mut Undo, replaced: Vec<usize>, better: Joined) -> f64 {
        let before: f64 = replaced.iter().filter_map(|index| self.joined[*index].as_ref()).map(|joined| self.seconds(joined)).sum();
        let longer = self.seconds(&better) - before;
        undo.owner.extend(better.own.iter().map(|unit| (*unit, self.owner[*unit])));
        undo.joined.extend(replaced.iter().map(|index| (*index, self.joined[*index].clone())));
        self.replace(replaced, better);
        longer
    }

    fn undo(&mut self, undo: Undo) {
        undo.joined.into_iter().rev().for_each(|(index, joined)| self.joined[index] = joined);
        undo.owner.into_iter().rev().for_each(|(unit, owner)| self.owner[unit] = owner);
    }
}
