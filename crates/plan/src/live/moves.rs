//! The live peak of a schedule while single works are moved. A move is rated in time that grows with the logarithm of the works. It
//! gives the same bytes as [`super::Live`] of the new order.

use plimsoll_base::{Bytes, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::sequence::{Load, Sequence};
use super::{Lane, lanes, live_ranges, pairs};
use crate::lir::{Lir, ValueId, WorkId};
use crate::passes::lir_of;
use crate::{DeviceId, Request};

/// The works of one device in the order of a plan, to be moved.
///
/// Works that other queues wait for, or that wait for them, stay where they are. To move one changes the waits that are known of
/// the other queues, and so live ranges of other values.
pub struct Moves {
    pub(super) lir: Lir,
    device: DeviceId,
    spec: DeviceSpec,
    /// By element, its work.
    pub(super) works: Vec<WorkId>,
    pub(super) sequence: Sequence,
    sums: Vec<Sums>,
    pub(super) values: IdVec<ValueId, Option<Span>>,
    /// Bytes that are live from the start.
    base: i64,
    /// By element: the elements that it waits for, and those that wait for it; none for elements that stay.
    pub(super) edges: Vec<Option<Edges>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    pub before: Vec<u32>,
    pub after: Vec<u32>,
}

/// What happens to the live bytes at an element.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Freed before it starts: values that another queue has read by then.
    freed_before: i64,
    /// Defined by it, or by another queue from it on.
    defined: i64,
    /// Its scratch.
    scratch: i64,
    /// Results that are written over operands.
    shared: i64,
    /// Freed when it has finished.
    freed_after: i64,
}

impl Sums {
    fn load(&self) -> Load {
        let start = self.defined - self.freed_before;
        Load::new(start - self.freed_after, start - self.shared + self.scratch)
    }
}

/// A value of the arena.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub bytes: i64,
    /// The element from which it is live; none from the start.
    pub birth: Option<u32>,
    /// The elements that read it.
    pub readers: Vec<u32>,
    /// Where other queues read it: the element before which they are known to have read it, or the end.
    elsewhere: Option<Until>,
    pub death: Death,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Before(u32),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Before(u32),
    After(u32),
    Never,
}

impl Moves {
    /// Of the plan of a request, on one device.
    ///
    /// # Errors
    /// As [`crate::plan`].
    pub fn new(request: &Request<'_>, device: DeviceId) -> Result<Moves> {
        Ok(Moves::of(lir_of(request)?, request.devices, device))
    }

    pub(crate) fn of(lir: Lir, devices: &[DeviceSpec], device: DeviceId) -> Moves {
        let definitions = lir.definitions();
        let (lanes, slots) = lanes(&lir, &lir.region().works, &definitions);
        let ranges = live_ranges(&lir, &lanes);
        let none = Lane { device, is_beside: false, works: Vec::new(), clocks: Vec::new(), waits: Vec::new() };
        let queue = lanes.iter().position(|lane| lane.device == device);
        let lane = queue.map_or(&none, |queue| &lanes[queue]);
        let mut elements = IdVec::filled(None, lir.works.len());
        lane.works.iter().enumerate().for_each(|(element, work)| elements[*work] = Some(element as u32));
        let mut values: IdVec<ValueId, Option<Span>> = IdVec::filled(None, lir.values.len());
        let count = lane.works.len() as u32;
        for (id, value) in lir.values.iter().filter(|(_, value)| value.device == device) {
            let Some(range) = ranges[id] else { continue };
            let birth = match definitions[id] {
                Some(work) if elements[work].is_some() => Some(range.first),
                // From the last command that is known to have finished when the other queue writes it.
                Some(work) => queue.and_then(|queue| lanes[slots[work].0].clocks[slots[work].1][queue].checked_sub(1)),
                None => None,
            };
            let elsewhere = match range.unread_elsewhere {
                0 => None,
                free if free < count => Some(Until::Before(free)),
                _ => Some(Until::End),
            };
            let bytes = devices[device.index()].slot(Bytes(value.bytes)).0 as i64;
            values[id] = Some(Span { bytes, birth, readers: Vec::new(), elsewhere, death: Death::Never });
        }
        for (element, work) in lane.works.iter().enumerate() {
            for value in lir.works[*work].reads_once() {
                if let Some(span) = &mut values[value] {
                    span.readers.push(element as u32);
                }
            }
        }
        let mut edges: Vec<Option<Edges>> = vec![Some(Edges::default()); lane.works.len()];
        for &work in &lir.region().works {
            for before in lir.predecessors(&lir.works[work], &definitions) {
                match (elements[before], elements[work]) {
                    (Some(before), Some(after)) => {
                        edges[before as usize].iter_mut().for_each(|edges| edges.after.push(after));
                        edges[after as usize].iter_mut().for_each(|edges| edges.before.push(before));
                    }
                    (Some(stays), None) | (None, Some(stays)) => edges[stays as usize] = None,
                    (None, None) => {}
                }
            }
        }
        // A loop has its place in other queues, too.
        let shared = (0..).zip(&lane.works).filter(|(_, work)| lir.is_shared(&lir.works[**work]));
        shared.for_each(|(element, _): (usize, _)| edges[element] = None);
        let works = lane.works.clone();
        let loads = vec![Sums::default().load(); works.len()];
        let (sequence, sums) = (Sequence::new(&loads), vec![Sums::default(); works.len()]);
        let spec = devices[device.index()].clone();
        let mut moves = Moves { lir, device, spec, works, sequence, sums, values, base: 0, edges };
        moves.fill();
        moves
    }

    /// How many works there are.
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// The most bytes that are live at once.
    pub fn peak(&self) -> Bytes {
        let peak = self.sequence.load().peak.max(0).saturating_add(self.base);
        Bytes(u64::try_from(peak).unwrap_or(0))
    }

    /// The first and the last position that the work at a position may take; none where it has to stay.
    pub fn reach(&self, position: usize) -> Option<(usize, usize)> {
        let element = self.sequence.element(u32::try_from(position).ok()?)?;
        let edges = self.edges[element as usize].as_ref()?;
        let at = |element: &u32| self.sequence.position(*element) as usize;
        let first = edges.before.iter().map(|before| at(before) + 1).max().unwrap_or(0);
        let last = edges.after.iter().map(|after| at(after) - 1).min().unwrap_or(self.works.len() - 1);
        Some((first, last))
    }

    /// Moves the work at a position to another one within its reach, and says what the peak is then. None, and nothing is moved,
    /// where it is outside of its reach.
    pub fn shift(&mut self, from: usize, to: usize) -> Option<Bytes> {
        let (first, last) = self.reach(from)?;
        if to < first || to > last {
            return None;
        }
        let element = self.sequence.element(u32::try_from(from).ok()?)?;
        self.sequence.shift(element, u32::try_from(to).ok()?);
        let work = &self.lir.works[self.works[element as usize]];
        let mut touched = work.reads_once();
        touched.extend(&work.outputs);
        let mut changed = vec![element];
        for value in touched {
            changed.extend(self.settle(value));
        }
        changed.sort_unstable();
        changed.dedup();
        for element in changed {
            self.share(element);
        }
        Some(self.peak())
    }

    fn fill(&mut self) {
        for (element, work) in self.works.iter().enumerate() {
            let work = &self.lir.works[*work];
            let scratch = self.lir.scratch(work, self.device);
            self.sums[element].scratch = if scratch > 0 { self.spec.slot(Bytes(scratch)).0 as i64 } else { 0 };
        }
        let births: Vec<(ValueId, Option<u32>, i64)> =
            self.values.iter().filter_map(|(id, span)| span.as_ref().map(|span| (id, span.birth, span.bytes))).collect();
        for (value, birth, bytes) in births {
            match birth {
                Some(element) => self.sums[element as usize].defined += bytes,
                None => self.base += bytes,
            }
            self.settle(value);
        }
        for element in 0..self.works.len() as u32 {
            self.share(element);
        }
    }

    /// Finds out when a value dies, and gives the elements at which it did and does.
    fn settle(&mut self, value: ValueId) -> Vec<u32> {
        let Some(span) = &self.values[value] else { return Vec::new() };
        let position = |element: u32| self.sequence.position(element);
        let local = span.readers.iter().copied().chain(span.birth).max_by_key(|element| position(*element));
        let death = match (local, span.elsewhere) {
            (_, Some(Until::End)) | (None, None) => Death::Never,
            (None, Some(Until::Before(until))) => Death::Before(until),
            (Some(last), Some(Until::Before(until))) if position(until) > position(last) => Death::Before(until),
            (Some(last), _) => Death::After(last),
        };
        let (bytes, before) = (span.bytes, span.death);
        let mut changed = Vec::new();
        for (death, bytes) in [(before, -bytes), (death, bytes)] {
            let element = match death {
                Death::Never => continue,
                Death::Before(element) => {
                    self.sums[element as usize].freed_before += bytes;
                    element
                }
                Death::After(element) => {
                    self.sums[element as usize].freed_after += bytes;
                    element
                }
            };
            changed.push(element);
        }
        if let Some(span) = &mut self.values[value] {
            span.death = death;
        }
        changed
    }

    /// Finds out what an element writes over its operands, and hands its sums to the sequence.
    fn share(&mut self, element: u32) {
        let work = &self.lir.works[self.works[element as usize]];
        let dies = |value: ValueId| {
            let Some(span) = &self.values[value] else { return false };
            let is_read_before = match span.elsewhere {
                None => true,
                Some(Until::Before(until)) => self.sequence.position(until) <= self.sequence.position(element),
                Some(Until::End) => false,
            };
            span.death == Death::After(element) && is_read_before
        };
        let shared = pairs(&self.lir, work, dies).into_iter().map(|(source, _)| self.values[source].as_ref().map_or(0, |span| span.bytes));
        self.sums[element as usize].shared = shared.sum();
        self.sequence.set(element, self.sums[element as usize].load());
    }

    /// The works in their order now.
    pub(super) fn order(&self) -> impl Iterator<Item = WorkId> {
        let elements = (0..self.works.len() as u32).filter_map(|position| self.sequence.element(position));
        elements.map(|element| self.works[element as usize])
    }
}
