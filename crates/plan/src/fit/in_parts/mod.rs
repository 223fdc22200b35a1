//! Parts: works whose rows do not depend on each other are done for some of the rows at a time, so that what is between them is never there as
//! a whole. Each part is computed by kernels of the same numerics, so results have the same bits: see [`plimsoll_device::Library::part`].
//!
//! The work that takes most while it runs comes first. It takes up what makes one of its operands, or the only reader of one of its results
//! takes it up; so may several of them. That goes on as long as it lowers what the work takes. What others read as well is computed once
//! more for the parts. In the end works in parts that compute the same are one work with the results of all of them ([`together`]).
//!
//! Other lists of schedules have chains by what is live at once ([`lines`]).
//!
//! [`units`]: what may be done in parts. [`chain`]: works in parts.

mod chain;
mod lines;
mod together;
mod units;

use std::collections::{BTreeSet, HashSet};

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};

use self::chain::Chains;
use self::units::COUNTS;
pub(super) use self::units::Units;
use super::floor::while_it_runs;
use super::problem::overwriting;
use crate::Request;
use crate::lir::{Lir, ValueId, Work, WorkId};
use crate::plan::DeviceId;

/// So many times works are put together; and so many times for a list of schedules before.
const MOST_JOINS: usize = 512;
const FEW_JOINS: usize = 96;

/// So many requests are one work at most.
const MOST_UNITS: usize = 48;

/// So many further ones are taken up at once where the first alone saves nothing, and so many readers behind one another are looked at.
const MOST_AHEAD: usize = 3;

/// What takes less than this part of the arena stays as it is.
const LEAST_PART: u64 = 64;

/// A change has to save this part of what is there while a work runs.
const LEAST_SAVED: u64 = 32;

/// A change counts as if it took this part of the time more at least. What saves no more of the time of a step is left.
const LEAST_LONGER: f64 = 0.02;

/// Lines for lists of schedules whose chains are made for a line: 32nds of the arena as it is. Each list goes on from the one before.
const LINES: [u64; 2] = [24, 16];

/// Such a list takes less than the one before by this part at least.
const CLEARLY_LOWER: u64 = 16;

/// The line of a last list, and what a change for it has to save, as [`LEAST_SAVED`]. So chains have more parts where that is all that is left:
/// they take longer, so the list before stays.
const LAST_LINE: (u64, u64) = (15, 64);

/// A region with works in parts.
pub(super) struct WithParts {
    pub lir: Lir,
    /// For each work in parts, its node and the number of parts.
    pub parts: Vec<(NodeId, u64)>,
    /// By work of the region as it was: its number; none of those that are gone.
    pub works: IdVec<WorkId, Option<WorkId>>,
    /// Whether chains are made for a line: another order may take less.
    pub is_for_line: bool,
}

/// Of sums over the rows, which chains there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// None ends in a sum.
    Without,
    /// Those whose sums have as many parts as what comes before them.
    AsMany,
    /// Also those where what comes before a sum has fewer parts for it.
    Fewer,
}

/// The region at hand with works of the device in parts, in an arena of so many bytes: without sums over the rows, and with those, too, which
/// takes less and longer; then with chains that have something in common as one; then with chains for lines. Each only where works take less
/// so.
///
/// # Errors
/// INTERNAL where a work waits for one that is gone.
pub(super) fn with_parts(request: &Request<'_>, lir: &Lir, device: DeviceId, arena: Bytes) -> Result<Vec<WithParts>> {
    let units = Units::new(request, lir, device);
    if units.all.is_empty() {
        return Ok(Vec::new());
    }
    let chains = Chains::new(request, lir, &units);
    let begin = |sums: Sums| Joins::new(&chains, (device, arena.0 / LEAST_PART), sums);
    let mut found = Found::default();
    let mut joins = begin(Sums::Without);
    joins.up_to(MOST_JOINS);
    found.add(&joins)?;
    let mut joins = begin(Sums::Fewer);
    // What comes last takes long and saves little: a list ends before it.
    if !joins.up_to(FEW_JOINS) && joins.has_sums() {
        found.add(&joins)?;
    }
    joins.up_to(MOST_JOINS);
    if joins.has_sums() {
        found.add(&joins)?;
    }
    let mut others = begin(Sums::AsMany);
    others.up_to(FEW_JOINS);
    if others.has_sums() {
        found.add(&others)?;
    }
    let least = lir.all().map(|(_, work)| work.seconds()).sum::<f64>() * LEAST_LONGER;
    let mut saved = 0.0;
    for most in [joins.largest(), arena.0] {
        saved += joins.together(most);
        if saved > least {
            found.add(&joins)?;
        }
    }
    let mut to_lines = Joins { is_for_line: true, ..begin(Sums::Fewer) };
    let lives = to_lines.lives();
    let mut highest = to_lines.highest(&lives);
    for part in LINES {
        to_lines.down_to(&lives, arena.0 / 32 * part, LEAST_SAVED);
        let lower = to_lines.highest(&lives);
        // What saves little for a line saves as little for a lower one.
        if lower > highest - highest / CLEARLY_LOWER {
            return Ok(found.with);
        }
        found.add(&to_lines)?;
        highest = lower;
    }
    to_lines.down_to(&lives, arena.0 / 32 * LAST_LINE.0, LAST_LINE.1);
    found.add(&to_lines)?;
    Ok(found.with)
}

/// Regions with works in parts, each once.
#[derive(Default)]
struct Found {
    with: Vec<WithParts>,
    /// For each, what its works in parts are.
    chains: Vec<Vec<Chain>>,
}

/// The work in whose place a chain is, its number of parts, its requests, and those of them that give results.
type Chain = (WorkId, u64, Vec<usize>, Vec<usize>);

impl Found {
    /// # Errors
    /// As [`with_parts`].
    fn add(&mut self, joins: &Joins<'_>) -> Result<()> {
        let in_parts = joins.joined.iter().flatten().filter(|joined| joined.parts.is_some());
        let chains = in_parts.map(|joined| (joined.at, joined.count(), joined.units.clone(), joined.roots.clone())).collect();
        if !self.chains.contains(&chains) {
            self.with.extend(joins.applied()?);
            self.chains.push(chains);
        }
        Ok(())
    }
}

/// Requests that are one work.
#[derive(Clone)]
struct Joined {
    /// In the order in which they run.
    units: Vec<usize>,
    /// Those of them that give results, the last one among them.
    roots: Vec<usize>,
    /// Those of them that run nowhere else.
    own: BTreeSet<usize>,
    /// The work in whose place it is.
    at: WorkId,
    /// Once it is done in parts: their number, and the work.
    parts: Option<(u64, Work)>,
    /// What is there while it runs.
    bytes: u64,
}

struct Joins<'a> {
    chains: &'a Chains<'a>,
    device: DeviceId,
    /// What takes no more stays as it is.
    least: u64,
    /// By work: its position.
    position: IdVec<WorkId, usize>,
    /// By value: the works that read it, the request that makes it, the work that does, and the work that overwrites it.
    uses: IdVec<ValueId, Vec<WorkId>>,
    maker: IdVec<ValueId, Option<usize>>,
    definitions: IdVec<ValueId, Option<WorkId>>,
    overwriting: IdVec<ValueId, Option<WorkId>>,
    /// By work: those that wait for it beyond its results.
    waiting: IdVec<WorkId, Vec<WorkId>>,
    /// First one for each unit.
    joined: Vec<Option<Joined>>,
    /// By unit: the one of which it is.
    owner: Vec<usize>,
    /// Which chains may end in sums over the rows.
    sums: Sums,
    /// Whether they are made for a line: with sums one by one, and what they make as late as that takes less.
    is_for_line: bool,
    /// How often works were put together, or none was found that could be.
    done: usize,
    /// Those for which none was found.
    stuck: HashSet<usize>,
    /// What takes no more is not worth it.
    enough: u64,
}

impl<'a> Joins<'a> {
    fn new(chains: &'a Chains<'a>, (device, least): (DeviceId, u64), sums: Sums) -> Joins<'a> {
        let (lir, units) = (chains.lir, chains.units);
        let mut position: IdVec<WorkId, usize> = IdVec::filled(usize::MAX, lir.works.len());
        lir.region().works.iter().enumerate().for_each(|(index, id)| position[*id] = index);
        let mut waiting: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.works.len());
        for (id, work) in lir.all() {
            work.after.iter().for_each(|before| waiting[*before].push(id));
        }
        let mut maker: IdVec<ValueId, Option<usize>> = IdVec::filled(None, lir.values.len());
        for (number, unit) in units.all.iter().enumerate() {
            unit.writes().iter().for_each(|value| maker[*value] = Some(number));
        }
        let running = |work: &Work| while_it_runs(chains.request, lir, work, device);
        let alone = |(number, unit): (usize, &units::Unit)| {
            let bytes = unit.works.iter().map(|work| running(&lir.works[*work])).max().unwrap_or(0);
            Some(Joined {
                units: vec![number],
                roots: vec![number],
                own: BTreeSet::from([number]),
                at: *unit.works.last()?,
                parts: None,
                bytes,
            })
        };
        let joined: Vec<Option<Joined>> = units.all.iter().enumerate().map(alone).collect();
        let others = lir.all().filter(|(id, _)| !units.has(*id)).map(|(_, work)| running(work)).max().unwrap_or(0);
        Joins {
            chains,
            device,
            least,
            position,
            uses: lir.uses(),
            maker,
            definitions: lir.definitions(),
            overwriting: overwriting(lir),
            waiting,
            owner: (0..joined.len()).collect(),
            joined,
            sums,
            is_for_line: false,
            done: 0,
            stuck: HashSet::new(),
            // What takes less than half of what cannot be changed is not worth it.
            enough: least.max(others / 2),
        }
    }

    /// Puts works together, those that take most first, as long as that takes less, until it was done so many times. Whether nothing is left.
    fn up_to(&mut self, times: usize) -> bool {
        while self.done < times {
            let open = self.joined.iter().enumerate().filter(|(index, _)| !self.stuck.contains(index));
            let most = open.filter_map(|(index, joined)| Some((index, joined.as_ref()?.bytes)));
            let Some((most, bytes)) = most.min_by_key(|(index, bytes)| (std::cmp::Reverse(*bytes), *index)) else { return true };
            if bytes <= self.enough {
                return true;
            }
            self.done += 1;
            match self.best(most, bytes) {
                Some((replaced, better)) => self.replace(replaced, better),
                None => {
                    self.stuck.insert(most);
                    self.enough = self.enough.max(bytes / 2);
                }
            }
        }
        false
    }

    /// What the one takes that takes most.
    fn largest(&self) -> u64 {
        self.joined.iter().flatten().map(|joined| joined.bytes).max().unwrap_or(0)
    }

    /// Whether what is in parts ends in a sum over the rows somewhere.
    fn has_sums(&self) -> bool {
        let in_parts = self.joined.iter().flatten().filter(|joined| joined.parts.is_some());
        in_parts.flat_map(|joined| &joined.roots).any(|unit| self.chains.units.all[*unit].is_sum())
    }

    /// The way to have less than so many bytes while one runs: which it takes the place of, and what.
    fn best(&self, most: usize, bytes: u64) -> Option<(Vec<usize>, Joined)> {
        let joined = self.joined[most].as_ref()?;
        let mut ways: Vec<(Vec<usize>, Joined)> = Vec::new();
        // Alone, and in more parts.
        ways.extend(self.in_parts(joined.units.clone(), joined.own.clone(), joined.count() + 1).map(|way| (vec![most], way)));
        // It takes up others, or what comes behind takes it up. One may have to take up several before it takes less: results may lie where
        // operands were.
        let mut last = Some(most);
        for _ in 0..=MOST_AHEAD {
            let Some((first, joined)) = last.and_then(|last| Some((last, self.joined[last].as_ref()?))) else { break };
            let mut way = (vec![first], joined.clone());
            for _ in 0..=MOST_AHEAD {
                let next = self.reads(&way.1).into_iter().filter_map(|value| self.taking_up(&way, value));
                let Some(next) = next.min_by_key(|(_, next)| next.bytes) else { break };
                ways.push(next.clone());
                way = next;
            }
            let readers: BTreeSet<Option<usize>> = self.writes(joined).into_iter().flat_map(|value| self.readers(value)).collect();
            last = if readers.len() == 1 { readers.first().copied().flatten() } else { None };
        }
        ways.retain(|(replaced, _)| replaced.contains(&most));
        let saved = |(_, way): &(Vec<usize>, Joined)| bytes.saturating_sub(way.bytes);
        let worth = |way: &(Vec<usize>, Joined)| {
            let before: f64 = way.0.iter().filter_map(|index| self.joined[*index].as_ref()).map(|joined| self.seconds(joined)).sum();
            saved(way) as f64 / ((self.seconds(&way.1) - before).max(0.0) + before * LEAST_LONGER)
        };
        let lower = ways.into_iter().filter(|way| saved(way) > bytes / LEAST_SAVED);
        lower.max_by(|one, other| worth(one).total_cmp(&worth(other)))
    }

    /// Predicted seconds of one.
    fn seconds(&self, joined: &Joined) -> f64 {
        match &joined.parts {
            Some((_, work)) => work.seconds(),
            None => self.works(joined).into_iter().map(|work| self.chains.lir.works[work].seconds()).sum(),
        }
    }

    /// One in the place of others, with what makes an operand of it.
    fn taking_up(&self, (replaced, of): &(Vec<usize>, Joined), value: ValueId) -> Option<(Vec<usize>, Joined)> {
        let makes = self.maker[value].filter(|_| self.bytes_of(value) > self.least)?;
        let from = self.owner[makes];
        let taken = self.joined[from].as_ref().filter(|_| !replaced.contains(&from))?;
        let is_there = |other: Option<usize>| other.is_some_and(|other| replaced.contains(&other));
        let is_alone = self.writes(taken).into_iter().all(|value| self.readers(value).into_iter().all(is_there))
            && taken.own.iter().all(|unit| self.may_move(*unit, of.at, true));
        let (units, own, replaced) = match is_alone {
            true => {
                (taken.units.clone(), taken.own.iter().chain(&of.own).copied().collect(), replaced.iter().copied().chain([from]).collect())
            }
            false => (self.needed(taken, makes), of.own.clone(), replaced.clone()),
        };
        let units: Vec<usize> = self.in_order(units.into_iter().chain(of.units.iter().copied()), *of.units.last()?);
        if units.len() > MOST_UNITS {
            return None;
        }
        let most = of.count().max(taken.count()).max(1);
        let joined = self
            .in_parts(units.clone(), own.clone(), most)
            .or_else(|| self.in_parts(units, own, 1).filter(|_| most > 1 && self.sums != Sums::AsMany))?;
        Some((replaced, joined))
    }

    /// Units in at least so many parts. Of all numbers of parts one divides the other: so a part is never read that is some of one part and some
    /// of the next.
    fn in_parts(&self, units: Vec<usize>, own: BTreeSet<usize>, least: u64) -> Option<Joined> {
        let root = *units.last()?;
        let last = &self.chains.units.all[root];
        if last.is_sum() && self.sums == Sums::Without {
            return None;
        }
        // What it reads may be overwritten between the steps of the last one, whose first step has read it.
        let may_stand = |at: &&WorkId| units.iter().all(|unit| self.may_move(*unit, **at, own.contains(unit)));
        let at = *[last.works.last()?, last.works.first()?].into_iter().find(may_stand)?;
        let others = || self.joined.iter().flatten().map(Joined::count).filter(|count| *count > 0);
        let is_one_family = |count: u64| others().all(|other| other.is_multiple_of(count) || count.is_multiple_of(other));
        let counts = COUNTS.iter().filter(|count| **count >= least && is_one_family(**count));
        let made = |units: &[usize], count: u64| self.chains.work((units, &[root]), count, self.is_for_line);
        let (count, mut work) = counts.filter_map(|count| Some((*count, made(&units, *count)?))).next()?;
        let mut units = units;
        if self.is_for_line {
            let late = self.late(&units);
            let scratch = |work: &Work| work.prepared.as_ref().map_or(0, |prepared| prepared.shared);
            if let Some(other) = made(&late, count).filter(|other| scratch(other) < scratch(&work)) {
                (units, work) = (late, other);
            }
        }
        if Some(&at) != last.works.last() && !self.is_ready(&work, &own, at) {
            return None;
        }
        let bytes = while_it_runs(self.chains.request, self.chains.lir, &work, self.device);
        Some(Joined { units, roots: vec![root], own, at, parts: Some((count, work)), bytes })
    }

    /// Whether all that a chain reads, and all that its own works wait for, is there before another work.
    fn is_ready(&self, work: &Work, own: &BTreeSet<usize>, at: WorkId) -> bool {
        let works: Vec<WorkId> = own.iter().flat_map(|unit| self.chains.units.all[*unit].works.iter().copied()).collect();
        let is_before = |other: &WorkId| works.contains(other) || self.stands(*other).1 < self.position[at];
        let makers = work.reads_once().into_iter().filter_map(|value| self.definitions[value]);
        makers.chain(works.iter().flat_map(|work| self.chains.lir.works[*work].after.iter().copied())).all(|other| is_before(&other))
    }

    /// The units of a chain that make a unit's results from what is there before and behind the chain.
    fn needed(&self, taken: &Joined, makes: usize) -> Vec<usize> {
        let results = self.writes(taken);
        let mut needed = BTreeSet::from([makes]);
        let mut open = vec![makes];
        while let Some(unit) = open.pop() {
            for value in self.chains.units.all[unit].reads() {
                let inner = self.maker[*value].filter(|maker| taken.units.contains(maker) && !results.contains(value));
                open.extend(inner.filter(|maker| needed.insert(*maker)));
            }
        }
        needed.into_iter().collect()
    }

    /// Units, each just before the first that reads it; the one that gives the results is the last.
    fn late(&self, units: &[usize]) -> Vec<usize> {
        let mut late = Vec::with_capacity(units.len());
        // Each with the number of its operands that have been looked at.
        let mut open: Vec<(usize, usize)> = units.last().map(|root| (*root, 0)).into_iter().collect();
        while let Some((unit, looked)) = open.pop() {
            match self.chains.units.all[unit].reads().get(looked) {
                Some(value) => {
                    open.push((unit, looked + 1));
                    let maker = self.maker[*value].filter(|maker| units.contains(maker) && !late.contains(maker) && *maker != unit);
                    open.extend(maker.map(|maker| (maker, 0)));
                }
                None => late.push(unit),
            }
        }
        late
    }

    /// Units, each once, in the order of their works; the one that gives the results is the last.
    fn in_order(&self, units: impl Iterator<Item = usize>, root: usize) -> Vec<usize> {
        let units: BTreeSet<usize> = units.filter(|unit| *unit != root).collect();
        let mut units: Vec<usize> = units.into_iter().collect();
        units.sort_by_key(|unit| self.chains.units.all[*unit].works.last().map(|work| self.position[*work]));
        units.push(root);
        units
    }

    /// Whether a unit may run where a work stands: what it reads is not overwritten before, and no other work waits for it before, where it
    /// runs nowhere else.
    fn may_move(&self, unit: usize, to: WorkId, is_own: bool) -> bool {
        let unit = &self.chains.units.all[unit];
        let is_behind = |work: &WorkId| self.position[*work] > self.position[to];
        let is_kept = unit.reads().iter().filter_map(|value| self.overwriting[*value].as_ref()).all(is_behind);
        let may_wait = |work: &WorkId| unit.works.contains(work) || *work == to || self.stands(*work).0 > self.position[to];
        is_kept && (!is_own || unit.works.iter().flat_map(|work| &self.waiting[*work]).all(may_wait))
    }

    /// The first and the last position where a work may be taken to stand: its own, and that of what it is part of.
    fn stands(&self, work: WorkId) -> (usize, usize) {
        let own = self.position[work];
        let of = self.chains.units.of[work].and_then(|unit| self.joined[self.owner[unit]].as_ref());
        let at = of.map_or(own, |joined| self.position[joined.at]);
        (own.min(at), own.max(at))
    }

    /// Puts one in the place of others. The first keeps its number.
    fn replace(&mut self, replaced: Vec<usize>, better: Joined) {
        replaced.iter().for_each(|index| self.joined[*index] = None);
        better.own.iter().for_each(|unit| self.owner[*unit] = replaced[0]);
        self.joined[replaced[0]] = Some(better);
    }

    /// The works that run nowhere else.
    fn works(&self, joined: &Joined) -> Vec<WorkId> {
        let mut works: Vec<WorkId> = joined.own.iter().flat_map(|unit| self.chains.units.all[*unit].works.iter().copied()).collect();
        works.sort_by_key(|work| self.position[*work]);
        works
    }

    /// What one reads.
    fn reads(&self, joined: &Joined) -> Vec<ValueId> {
        match &joined.parts {
            Some((_, work)) => work.reads_once(),
            None => self.chains.units.all[joined.units[0]].reads().to_vec(),
        }
    }

    /// The results of one.
    fn writes(&self, joined: &Joined) -> Vec<ValueId> {
        joined.roots.iter().flat_map(|unit| self.chains.units.all[*unit].writes()).copied().collect()
    }

    /// What reads a value: one of units, or something else.
    fn readers(&self, value: ValueId) -> Vec<Option<usize>> {
        let owner = |work: &WorkId| self.chains.units.of[*work].map(|unit| self.owner[unit]);
        let others = self.uses[value].iter().filter(|work| owner(work).is_none()).map(|_| None);
        let kept = self.chains.lir.region().results.contains(&value).then_some(None);
        // What is done in parts may compute readers once more.
        let in_parts = (0..self.joined.len()).filter(|index| self.joined[*index].as_ref().is_some_and(|joined| joined.parts.is_some()));
        let may: BTreeSet<usize> = self.uses[value].iter().filter_map(owner).chain(in_parts).collect();
        let reads = |index: &usize| self.joined[*index].as_ref().is_some_and(|joined| self.reads(joined).contains(&value));
        may.into_iter().filter(reads).map(Some).chain(others).chain(kept).collect()
    }

    fn bytes_of(&self, value: ValueId) -> u64 {
        self.chains.lir.values[value].bytes
    }

    /// The region with all works in parts. None where there is none.
    fn applied(&self) -> Result<Option<WithParts>> {
        let mut lir = self.chains.lir.clone();
        let mut parts = Vec::new();
        // By work that is gone: the one that it is part of.
        let mut gone: IdVec<WorkId, Option<WorkId>> = IdVec::filled(None, lir.works.len());
        let mut made: Vec<(WorkId, Work)> = Vec::new();
        for joined in self.joined.iter().flatten() {
            let (Some((count, work)), works) = (&joined.parts, self.works(joined)) else { continue };
            works.iter().filter(|id| **id != joined.at).for_each(|id| gone[*id] = Some(joined.at));
            let mut work = work.clone();
            work.after =
                works.iter().flat_map(|id| self.chains.lir.works[*id].after.iter().copied()).filter(|id| !works.contains(id)).collect();
            work.is_root = works.iter().any(|id| self.chains.lir.works[*id].is_root);
            parts.extend(work.nodes.first().map(|node| (*node, *count)));
            made.push((joined.at, work));
        }
        if made.is_empty() {
            return Ok(None);
        }
        let mut writers: Vec<(WorkId, WorkId)> = Vec::new();
        for (id, work) in made {
            writers.extend(work.reads_once().into_iter().filter_map(|value| Some((self.overwriting[value]?, id))));
            lir.works[id] = work;
        }
        writers.into_iter().for_each(|(writer, reader)| lir.works[writer].after.push(reader));
        for id in lir.ids() {
            let after = &mut lir.works[id].after;
            after.iter_mut().for_each(|before| *before = gone[*before].unwrap_or(*before));
            after.sort_unstable();
            after.dedup();
        }
        lir.retain(|id| gone[id].is_none())?;
        let (mut works, mut next) = (IdVec::new(), 0);
        for gone in gone.values() {
            works.push(gone.is_none().then(|| WorkId::from_index(next)));
            next += usize::from(gone.is_none());
        }
        Ok(Some(WithParts { lir, parts, works, is_for_line: self.is_for_line }))
    }
}

impl Joined {
    /// The number of parts; 0 where it is whole.
    fn count(&self) -> u64 {
        self.parts.as_ref().map_or(0, |(count, _)| *count)
    }
}
