//! Values that wait in the slow memory, and how long works wait for them.
//!
//! Moves run beside works, so they cost what works have to wait. The search counts that by stages: what runs again in a stage is as
//! if it ran before anything else of it. A schedule's true time is found by a replay.

use std::collections::BTreeMap;

use crate::graph::{Graph, Key, key, slot, stage};
use crate::state::State;

/// The time of works in each stage: sums of prefixes in a binary indexed tree (Fenwick 1994).
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    sums: Vec<i64>,
}

impl Clock {
    pub fn new(graph: &Graph) -> Clock {
        let mut clock = Clock { sums: vec![0; graph.works.len() + 2] };
        for (at, work) in graph.works.iter().enumerate() {
            clock.add(at, work.busy);
        }
        clock
    }

    pub fn add(&mut self, stage: usize, parts: i64) {
        let mut at = stage + 1;
        while at < self.sums.len() {
            self.sums[at] += parts;
            at += at & at.wrapping_neg();
        }
    }

    /// When a stage begins.
    pub fn begin(&self, stage: usize) -> i64 {
        let (mut at, mut sum) = (stage, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }

    /// The first stage that begins at a time or later, or the one behind all.
    fn at(&self, time: i64) -> usize {
        let (mut at, mut sum) = (0, 0);
        let mut bit = self.sums.len().next_power_of_two();
        while bit > 0 {
            if at + bit < self.sums.len() && sum + self.sums[at + bit] < time {
                at += bit;
                sum += self.sums[at];
            }
            bit /= 2;
        }
        if time <= 0 { 0 } else { (at + 1).min(self.sums.len() - 2) }
    }
}

/// Where the moves of a value are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    pub out: Option<Key>,
    /// In order.
    pub back: Vec<Key>,
}

/// Longer than anything takes: the slow memory is full.
const FULL: i64 = i64::MAX / 8;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Out(usize),
    In(usize),
    Read(usize),
}

impl State<'_> {
    /// What moves make works wait; [`FULL`] if the slow memory is too small.
    pub fn waits(&self) -> i64 {
        let Some(link) = &self.graph.link else { return 0 };
        if self.moved.is_empty() {
            return 0;
        }
        let mut events: Vec<(Key, Event)> = Vec::new();
        let mut room: Vec<(Key, i64)> = Vec::new();
        for (&value, moves) in &self.moved {
            let (Some(out), Some(&last)) = (moves.out, moves.back.last()) else { continue };
            events.push((out, Event::Out(value)));
            for &back in &moves.back {
                let read = self.first_read(value, back);
                events.extend([(back, Event::In(value)), (read, Event::Read(value))]);
            }
            let bytes = link.room_of(self.graph.values[value].bytes);
            room.extend([(out, bytes), (last + 1, -bytes)]);
        }
        events.sort_unstable();
        room.sort_unstable();
        let mut held = 0;
        for (_, bytes) in room {
            held += bytes;
            if held > link.bytes() {
                return FULL;
            }
        }
        let (mut waits, mut out_free, mut in_free) = (0, 0, 0);
        // When the copy of a value is where its latest move goes.
        let mut ready: BTreeMap<usize, i64> = BTreeMap::new();
        for (at, event) in events {
            let now = self.clock.begin(stage(at).min(self.graph.end())) + waits;
            match event {
                Event::Out(value) => {
                    let made = stage(self.life(value, at).0.unwrap_or(0));
                    let made = self.clock.begin(made) + self.graph.works[self.graph.values[value].work].busy + waits;
                    out_free = out_free.max(made.min(now)) + link.time(self.graph.values[value].bytes);
                    waits += (out_free - now).max(0);
                    ready.insert(value, out_free);
                }
                Event::In(value) => {
                    let copied = ready.get(&value).copied().unwrap_or(0);
                    in_free = in_free.max(now).max(copied) + link.time(self.graph.values[value].bytes);
                    ready.insert(value, in_free);
                }
                Event::Read(value) => waits += (ready.get(&value).copied().unwrap_or(0) - now).max(0),
            }
        }
        waits
    }

    /// Lets a value wait in the slow memory between two uses, so that it is not there at a position between them. With some slack
    /// the moves have that many times their own time before works wait for them.
    pub fn wait_slow(&mut self, value: usize, uses: (Key, Key), at: Key, slack: i64) -> bool {
        let (graph, (before, next)) = (self.graph, uses);
        let Some(link) = &graph.link else { return false };
        let info = &graph.values[value];
        let time = link.time(info.bytes).saturating_mul(slack);
        let to = if next == Key::MAX { graph.end() } else { stage(next) };
        let begin = self.clock.begin(to);
        let mut back = if slack == 0 { to } else { self.clock.at((begin - time).max(0)) };
        if back > to || (back < to && begin - self.clock.begin(back) < time) {
            back = back.saturating_sub(1).min(to);
        }
        let back = key(back, info.slot_in);
        let moved = self.moved.get(&value).and_then(|moves| moves.out);
        let out = match moved {
            Some(out) if out <= before => out,
            // What moved out later moves out now: its copy is the same.
            _ => {
                // Behind the run that makes or uses it: a first run is the last of its stage.
                let is_last = graph.works.get(stage(before)).is_some_and(|work| work.slot == slot(before));
                let first = stage(before) + usize::from(is_last);
                let stage = if slack == 0 { first } else { self.clock.at(self.clock.begin(first) + time).max(first) };
                let out = key(stage, info.slot_out);
                if out <= before {
                    return false;
                }
                out
            }
        };
        if out >= at || back <= at || back >= next {
            return false;
        }
        if let Some(later) = moved.filter(|moved| *moved > out) {
            self.take_out(later);
        }
        self.insert(out);
        self.insert(back);
        self.waits() < FULL && self.see_views(value, back)
    }
}
