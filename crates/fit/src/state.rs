//! A schedule under change: what runs where, and the bytes at each position.

use std::collections::BTreeMap;

use crate::chains::Chains;
use crate::graph::{Graph, Key, Slot, Way, key, slot, stage};
use crate::moves::{Clock, Moves};
use crate::profile::Profile;

/// A change, to be taken back.
#[derive(Clone, Copy, Debug)]
enum Change {
    Inserted(Key),
    Removed(Key),
    /// A work ran in another way before.
    Way(usize, usize),
}

#[derive(Clone)]
pub(crate) struct State<'a> {
    pub graph: &'a Graph,
    pub profile: Profile,
    /// Where each value is defined, and where it is read.
    defs: Vec<Vec<Key>>,
    reads: Vec<Vec<Key>>,
    /// What each work runs beyond its first time.
    again: Vec<Vec<Key>>,
    /// Parts of time, of what runs again.
    pub cost: i64,
    changes: Vec<Change>,
    /// Values with moves, and the time of works in each stage.
    pub moved: BTreeMap<usize, Moves>,
    pub clock: Clock,
    /// The works that run in another way, with its number.
    ways: BTreeMap<usize, usize>,
    /// Work done.
    pub steps: u64,
    /// How often something was put at a position.
    pub puts: u64,
    pub chains: Chains,
}

/// A life that has no end.
const END: Key = Key::MAX;

impl<'a> State<'a> {
    /// Every work runs once.
    pub fn new(graph: &'a Graph, budget: i64) -> State<'a> {
        let mut state = State {
            graph,
            profile: Profile::new(&[], budget),
            defs: graph.values.iter().map(|value| if value.work == usize::MAX { vec![] } else { vec![graph.first(value.work)] }).collect(),
            reads: graph.values.iter().map(|value| value.readers.iter().map(|work| graph.first(*work)).collect()).collect(),
            again: vec![Vec::new(); graph.works.len()],
            cost: 0,
            changes: Vec::new(),
            moved: BTreeMap::new(),
            clock: if graph.link.is_some() { Clock::new(graph) } else { Clock::default() },
            ways: BTreeMap::new(),
            steps: 0,
            puts: 0,
            chains: Chains::default(),
        };
        let mut bytes: Vec<i64> = vec![0; graph.works.len() + 1];
        for value in 0..graph.values.len() {
            let Some(&from) = state.defs[value].first() else { continue };
            let to = state.bound(value, from, END);
            // Keys of first runs: the stage is the work. A bound within a stage is behind its work's run.
            let index = if to == END { graph.end() } else { stage(to) + usize::from(slot(to) > graph.works[stage(to)].slot) };
            bytes[stage(from)] += graph.values[value].bytes;
            bytes[index] -= graph.values[value].bytes;
        }
        let mut live = graph.base;
        let mut positions = Vec::new();
        for (work, change) in bytes[..graph.works.len()].iter().enumerate() {
            live += change;
            positions.push((graph.first(work), live + graph.works[work].scratch));
        }
        state.profile = Profile::new(&positions, budget);
        state
    }

    /// The bytes of a value that is defined at `def` are there up to this key, which is not one of the life. `next` is where it is
    /// defined again.
    fn bound(&self, value: usize, def: Key, next: Key) -> Key {
        if next == END && self.graph.values[value].is_result {
            return END;
        }
        let reads = &self.reads[value];
        let count = if next == END { reads.len() } else { reads.partition_point(|read| *read < next) };
        self.behind(value, def, count)
    }

    /// The same of a life whose last read is the last of so many reads of the value, or none if that is not behind the definition.
    #[inline]
    fn behind(&self, value: usize, def: Key, count: usize) -> Key {
        match count.checked_sub(1).map(|last| self.reads[value][last]) {
            Some(read) if read > def => self.behind_read(value, read),
            _ => def + 1,
        }
    }

    /// The same of a life with this last read.
    #[inline]
    fn behind_read(&self, value: usize, read: Key) -> Key {
        if self.graph.values[value].is_over && self.graph.is_over(slot(read), value) { read } else { read + 1 }
    }

    /// Whether something needs the life that a read at a key would see, behind that read; the reads from this number on are behind it.
    #[inline]
    fn is_needed(&self, value: usize, behind: usize, next: Key) -> bool {
        match self.reads[value].get(behind) {
            Some(read) if *read < next => true,
            _ => next == END && self.graph.values[value].is_result,
        }
    }

    /// Whether the life that a read at a key would see ends at or before it.
    pub fn is_gone(&self, value: usize, at: Key) -> bool {
        let reads = &self.reads[value];
        let behind = reads.partition_point(|read| *read < at);
        let (def, next) = self.life(value, at);
        if !self.is_needed(value, behind, next) {
            return def.is_none_or(|def| self.behind(value, def, behind) <= at);
        }
        // A read just there may be the last, and write over it.
        def.is_none_or(|def| reads.get(behind) == Some(&at) && self.bound(value, def, next) <= at)
    }

    /// The definition that a read at a key sees, and the next one.
    pub fn life(&self, value: usize, at: Key) -> (Option<Key>, Key) {
        let defs = &self.defs[value];
        let next = defs.partition_point(|def| *def < at);
        (next.checked_sub(1).map(|before| defs[before]), defs.get(next).copied().unwrap_or(END))
    }

    /// Where the life ends that a read at a key would see.
    pub fn end(&self, value: usize, at: Key) -> Key {
        let (def, next) = self.life(value, at);
        def.map_or(0, |def| self.bound(value, def, next))
    }

    /// The last use before a key and the first one at or after it, of a value that is live there. A use is a definition or a read.
    pub fn gap(&self, value: usize, at: Key) -> Option<(Key, Key)> {
        let reads = &self.reads[value];
        if !self.graph.values[value].is_result && reads.last().is_none_or(|read| *read < at) {
            return None;
        }
        let (def, next) = self.life(value, at);
        let def = def?;
        let index = reads.partition_point(|read| *read < at);
        let before = index.checked_sub(1).map_or(def, |index| reads[index].max(def));
        match reads.get(index) {
            Some(&read) if read < next => Some((before, read)),
            _ if next == END && self.graph.values[value].is_result => Some((before, END)),
            _ => None,
        }
    }

    /// The longest time without a use: the use before and the one after it.
    pub fn longest(&self, value: usize) -> Option<(Key, Key)> {
        let (reads, defs) = (&self.reads[value], &self.defs[value]);
        let mut before = *defs.first()?;
        let mut longest: Option<(Key, Key)> = None;
        let end = self.graph.values[value].is_result.then_some(Key::MAX);
        for &read in reads.iter().chain(&end) {
            let def = defs[defs.partition_point(|def| *def < read).saturating_sub(1)];
            before = before.max(def);
            let length = |pair: (Key, Key)| stage(pair.1).saturating_sub(stage(pair.0));
            if longest.is_none_or(|longest| length((before, read)) > length(longest)) {
                longest = Some((before, read));
            }
            before = before.max(read);
        }
        longest
    }

    /// Runs again what ran again in another schedule of the same graph, and nothing else; works go the ways that they went there.
    pub fn restore(&mut self, keys: &[Key], ways: &BTreeMap<usize, usize>) {
        let steps = self.steps;
        *self = State::new(self.graph, self.profile.budget());
        self.steps = steps;
        ways.iter().for_each(|(work, number)| self.turn(*work, *number));
        keys.iter().for_each(|key| self.put(*key));
    }

    /// The works that run in another way than as they are given.
    pub fn ways(&self) -> &BTreeMap<usize, usize> {
        &self.ways
    }

    /// How a work runs: 0 is as it is given.
    pub fn way_number(&self, work: usize) -> usize {
        self.ways.get(&work).copied().unwrap_or(0)
    }

    fn way(&self, work: usize) -> Way {
        self.graph.works[work].way(self.way_number(work))
    }

    /// Lets all runs of a work go another way.
    pub fn set_way(&mut self, work: usize, number: usize) {
        let before = self.way_number(work);
        if before != number {
            self.turn(work, number);
            self.changes.push(Change::Way(work, before));
        }
    }

    fn turn(&mut self, work: usize, number: usize) {
        let (graph, before) = (self.graph, self.way(work));
        let after = graph.works[work].way(number);
        if number == 0 {
            self.ways.remove(&work);
        } else {
            self.ways.insert(work, number);
        }
        let first = graph.first(work);
        for at in std::iter::once(first).chain(self.again[work].iter().copied()) {
            self.profile.add(at, at + 1, after.scratch - before.scratch);
            self.cost += after.cost - before.cost;
            if graph.link.is_some() {
                self.clock.add(stage(at), after.busy - before.busy);
            }
        }
        self.steps += 1;
    }

    pub fn runs_again(&self, work: usize) -> &[Key] {
        &self.again[work]
    }

    pub fn is_there(&self, at: Key) -> bool {
        match self.graph.slots[slot(at) as usize] {
            Slot::Run(work) => self.graph.first(work) == at || self.again[work].binary_search(&at).is_ok(),
            Slot::In(value) => self.defs[value].binary_search(&at).is_ok(),
            Slot::Out(value) => self.reads[value].binary_search(&at).is_ok(),
        }
    }

    fn uses(&self, slot: u32) -> (&'a [usize], &'a [usize]) {
        let graph = self.graph;
        match graph.slots[slot as usize] {
            Slot::Run(work) => (&graph.works[work].reads, &graph.works[work].writes),
            Slot::In(_) | Slot::Out(_) => (&[], &[]),
        }
    }

    /// Bytes at a new position: of what lives from before it to behind it.
    fn through(&self, at: Key) -> i64 {
        let Some((before, bytes)) = self.profile.before(at) else { return self.graph.base };
        let slot = slot(before);
        let (reads, writes) = self.uses(slot);
        let mut left = bytes;
        if let Slot::Run(work) = self.graph.slots[slot as usize] {
            left -= self.way(work).scratch;
        }
        let one = match self.graph.slots[slot as usize] {
            Slot::In(value) | Slot::Out(value) => Some(value),
            Slot::Run(_) => None,
        };
        for &value in reads.iter().chain(writes).chain(&one) {
            let bytes = self.graph.values[value].bytes;
            if bytes > 0 && self.end(value, before + 1) == before + 1 {
                left -= bytes;
            }
        }
        left
    }

    fn move_bound(&mut self, value: usize, from: Key, to: Key) {
        self.count(from, to);
        self.add(value, from, to);
    }

    /// The steps of a bound that moves.
    fn count(&mut self, from: Key, to: Key) {
        // Blocks of positions are looked at; a bound may be at the end.
        let last = |key: Key| stage(key).min(self.graph.end());
        self.steps += if from == to { 0 } else { 1 + last(from).abs_diff(last(to)) as u64 / 512 };
    }

    /// A life that ended at one key ends at another.
    fn add(&mut self, value: usize, from: Key, to: Key) {
        let bytes = self.graph.values[value].bytes;
        if from < to {
            self.profile.add(from, to, bytes);
        } else {
            self.profile.add(to, from, -bytes);
        }
    }

    /// Where the life that a read sees ends without it, and with it; none if that is the same, because something needs it later. So many reads
    /// are before it, and those from another number on behind it.
    fn ends(&self, value: usize, at: Key, (before, behind): (usize, usize)) -> Option<(Key, Key)> {
        let (def, next) = self.life(value, at);
        if self.is_needed(value, behind, next) {
            return None;
        }
        Some((self.behind(value, def.unwrap_or(0), before), self.behind_read(value, at)))
    }

    fn add_read(&mut self, value: usize, at: Key) {
        self.chains.note(value);
        let index = self.reads[value].partition_point(|read| *read < at);
        let ends = self.ends(value, at, (index, index));
        self.reads[value].insert(index, at);
        if let Some((without, with)) = ends {
            self.move_bound(value, without, with);
        }
    }

    fn drop_read(&mut self, value: usize, at: Key) {
        self.chains.note(value);
        let Ok(index) = self.reads[value].binary_search(&at) else { return };
        let ends = self.ends(value, at, (index, index + 1));
        self.reads[value].remove(index);
        if let Some((without, with)) = ends {
            self.move_bound(value, with, without);
        }
    }

    /// Where the life before a definition ends without it, and with it; and where its own life ends.
    fn lives(&self, value: usize, at: Key, (def, next): (Key, Key)) -> (Key, Key, Key) {
        let reads = &self.reads[value];
        let before = reads.partition_point(|read| *read < at);
        let with = self.behind(value, def, before);
        if next == END && self.graph.values[value].is_result {
            return (END, with, END);
        }
        let all = if next == END { reads.len() } else { before + reads[before..].partition_point(|read| *read < next) };
        if all == before { (with, with, at + 1) } else { (self.behind(value, def, all), with, self.behind(value, at, all)) }
    }

    fn add_def(&mut self, value: usize, at: Key) {
        self.chains.note(value);
        let index = self.defs[value].partition_point(|def| *def < at);
        let def = index.checked_sub(1).map_or(0, |before| self.defs[value][before]);
        let next = self.defs[value].get(index).copied().unwrap_or(END);
        let (without, with, own) = self.lives(value, at, (def, next));
        self.defs[value].insert(index, at);
        self.count(without, with);
        self.count(at, own);
        // The life that was there before goes on as its own.
        if without == own {
            self.add(value, at, with);
        } else {
            self.add(value, without, with);
            self.add(value, at, own);
        }
    }

    fn drop_def(&mut self, value: usize, at: Key) {
        self.chains.note(value);
        let Ok(index) = self.defs[value].binary_search(&at) else { return };
        let def = index.checked_sub(1).map_or(0, |before| self.defs[value][before]);
        let next = self.defs[value].get(index + 1).copied().unwrap_or(END);
        let (without, with, own) = self.lives(value, at, (def, next));
        self.defs[value].remove(index);
        self.count(own, at);
        self.count(with, without);
        if without == own {
            self.add(value, with, at);
        } else {
            self.add(value, own, at);
            self.add(value, with, without);
        }
    }

    fn put(&mut self, at: Key) {
        self.puts += 1;
        let bytes = self.through(at);
        let slot = slot(at);
        let graph = self.graph;
        match graph.slots[slot as usize] {
            Slot::Run(work) => {
                let (info, way) = (&graph.works[work], self.way(work));
                self.profile.insert(at, bytes + way.scratch);
                let index = self.again[work].partition_point(|other| *other < at);
                self.again[work].insert(index, at);
                self.cost += way.cost;
                if graph.link.is_some() {
                    self.clock.add(stage(at), way.busy);
                }
                for &value in &info.reads {
                    self.add_read(value, at);
                }
                for &value in &info.writes {
                    self.add_def(value, at);
                }
            }
            Slot::In(value) => {
                self.profile.insert(at, bytes);
                self.add_def(value, at);
                let back = &mut self.moved.entry(value).or_default().back;
                back.insert(back.partition_point(|other| *other < at), at);
            }
            Slot::Out(value) => {
                self.profile.insert(at, bytes);
                self.add_read(value, at);
                self.moved.entry(value).or_default().out = Some(at);
            }
        }
    }

    fn take(&mut self, at: Key) {
        let graph = self.graph;
        match graph.slots[slot(at) as usize] {
            Slot::Run(work) => {
                let (info, way) = (&graph.works[work], self.way(work));
                for &value in &info.writes {
                    self.drop_def(value, at);
                }
                for &value in &info.reads {
                    self.drop_read(value, at);
                }
                if let Ok(index) = self.again[work].binary_search(&at) {
                    self.again[work].remove(index);
                }
                self.cost -= way.cost;
                if graph.link.is_some() {
                    self.clock.add(stage(at), -way.busy);
                }
            }
            Slot::In(value) => {
                self.drop_def(value, at);
                self.with_moves(value, |moves| moves.back.retain(|other| *other != at));
            }
            Slot::Out(value) => {
                self.drop_read(value, at);
                self.with_moves(value, |moves| moves.out = None);
            }
        }
        self.profile.remove(at);
    }

    fn with_moves(&mut self, value: usize, change: impl Fn(&mut Moves)) {
        if let Some(moves) = self.moved.get_mut(&value) {
            change(moves);
            if moves.out.is_none() && moves.back.is_empty() {
                self.moved.remove(&value);
            }
        }
    }

    /// The first read of the definition at a key.
    pub fn first_read(&self, value: usize, def: Key) -> Key {
        let index = self.reads[value].partition_point(|read| *read <= def);
        self.reads[value].get(index).copied().unwrap_or(END)
    }

    /// What it takes beyond the schedule as given.
    pub fn total(&self) -> i64 {
        self.cost + self.waits()
    }

    /// Puts something at a position, unless it is there.
    pub fn insert(&mut self, at: Key) {
        if !self.is_there(at) {
            self.put(at);
            self.changes.push(Change::Inserted(at));
        }
    }

    /// Runs a work again in a stage, if that is allowed; and views of what it defines again, and views that it reads.
    pub fn run_again(&mut self, work: usize, at: usize) -> bool {
        let info = &self.graph.works[work];
        let at = key(at, info.slot);
        if self.is_there(at) {
            return true;
        }
        if !info.again || stage(at) > info.until || at <= self.graph.first(work) {
            return false;
        }
        self.put(at);
        self.changes.push(Change::Inserted(at));
        info.reads.iter().all(|value| self.see(*value, at)) && info.writes.iter().all(|value| self.see_views(*value, at))
    }

    /// Lets a read of a view see it: the view is made again if what it is a view of was.
    fn see(&mut self, view: usize, at: Key) -> bool {
        let graph = self.graph;
        let Some(root) = graph.values[view].root else { return true };
        let made = self.life(root, at).0;
        self.life(view, at).0 >= made || self.run_again(graph.values[view].work, if at == END { graph.end() } else { stage(at) })
    }

    /// Lets the reads of views see them, of a value that is defined again.
    pub fn see_views(&mut self, value: usize, at: Key) -> bool {
        let graph = self.graph;
        for &view in &graph.values[value].views {
            let next = self.life(value, at + 1).1;
            let index = self.reads[view].partition_point(|read| *read <= at);
            let read = self.reads[view].get(index).copied().filter(|read| *read < next);
            let end = (next == END && graph.values[view].is_result).then_some(END);
            if let Some(read) = read.or(end)
                && !self.see(view, read)
            {
                return false;
            }
        }
        true
    }

    /// Whether nothing needs a position: it is no first run, and what it defines was there before.
    pub fn can_go(&self, at: Key) -> bool {
        let graph = self.graph;
        match graph.slots[slot(at) as usize] {
            Slot::Run(work) if graph.first(work) == at => false,
            Slot::Run(work) => graph.works[work].writes.iter().all(|value| {
                let Some(root) = graph.values[*value].root else { return true };
                let next = self.life(*value, at + 1).1;
                let index = self.reads[*value].partition_point(|read| *read <= at);
                let read = self.reads[*value].get(index).is_some_and(|read| *read < next);
                let is_read = read || (next == END && graph.values[*value].is_result);
                !is_read || self.life(*value, at).0 >= self.life(root, at).0
            }),
            Slot::In(_) => true,
            // It goes with the last move back.
            Slot::Out(_) => false,
        }
    }

    /// Takes a position out. The caller asked [`State::can_go`].
    pub fn remove(&mut self, at: Key) {
        self.take(at);
        self.changes.push(Change::Removed(at));
        if let Slot::In(value) = self.graph.slots[slot(at) as usize]
            && let Some(Moves { out: Some(out), back }) = self.moved.get(&value)
            && back.is_empty()
        {
            let out = *out;
            self.take(out);
            self.changes.push(Change::Removed(out));
        }
    }

    /// Takes a move out away that an earlier one takes the place of.
    pub fn take_out(&mut self, at: Key) {
        self.take(at);
        self.changes.push(Change::Removed(at));
    }

    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    pub fn back_to(&mut self, mark: usize) {
        while self.changes.len() > mark {
            match self.changes.pop() {
                Some(Change::Inserted(at)) => self.take(at),
                Some(Change::Removed(at)) => self.put(at),
                Some(Change::Way(work, before)) => self.turn(work, before),
                None => {}
            }
        }
    }

    /// What was done cannot be taken back any more.
    pub fn keep(&mut self) {
        self.changes.clear();
    }

    pub fn peak(&mut self) -> i64 {
        self.profile.peak()
    }
}
