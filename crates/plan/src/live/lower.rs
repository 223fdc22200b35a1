//! A local search for an order with a lower live peak. At the first position of the peak it looks for a value that need not be live there:
//! the work that defines it moves behind that position with the works that follow from it, or the works that read it move before it with
//! those that they wait for. The best of some such moves is made if it lowers the peak, or the number of positions at it. So gradients die
//! as soon as their updates can be made, and one that waits for others is computed just before them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_graph::IdVec;

use super::moves::{Death, Moves};
use crate::lir::WorkId;

/// So many values are looked at for one move, the largest first.
const MOST_VALUES: usize = 48;

/// So many works move together.
const MOST_TOGETHER: usize = 64;

/// So many readers and neighbours of a work are worth a step of effort.
const SLOWLY: usize = 16;

/// Works that move so that a value is not live at the peak: its readers move before it, or the work that defines it moves behind it.
struct Way {
    bytes: i64,
    works: Vec<u32>,
    is_later: bool,
}

impl Moves {
    /// Moves works to where the live peak is lower, within an effort: a step is one work that is moved on trial. The same works go the
    /// same way.
    pub(crate) fn lower(&mut self, effort: u64) {
        let costs = self.costs();
        let mut left = effort;
        while let Some(peak) = self.sequence.highest() {
            // Values are looked through for each move.
            left = left.saturating_sub((self.works.len() / SLOWLY) as u64);
            let ways = self.ways(peak);
            if left == 0 || !ways.iter().any(|way| self.go(way, peak, &costs, &mut left)) {
                break;
            }
        }
    }

    /// All works of the region in the order that the moves made. Works that other queues wait for, and those of the other queues, stay in
    /// their order.
    pub(crate) fn into_order(self) -> Vec<WorkId> {
        let mut elements: IdVec<WorkId, Option<usize>> = IdVec::filled(None, self.lir.works.len());
        for (element, work) in self.works.iter().enumerate() {
            elements[*work] = Some(element);
        }
        let mut own = self.order();
        let mut order = Vec::with_capacity(self.lir.region().works.len());
        for &work in &self.lir.region().works {
            match elements[work] {
                None => order.push(work),
                Some(element) if self.edges[element].is_none() => {
                    order.extend(own.by_ref().take_while(|moved| *moved != work));
                    order.push(work);
                }
                Some(_) => {}
            }
        }
        order.extend(own);
        order
    }

    /// What it takes to move each element.
    fn costs(&self) -> Vec<u64> {
        let mut costs: Vec<usize> =
            self.edges.iter().map(|edges| edges.as_ref().map_or(0, |edges| edges.before.len() + edges.after.len())).collect();
        for span in self.values.values().flatten() {
            span.readers.iter().chain(&span.birth).for_each(|element| costs[*element as usize] += span.readers.len());
        }
        costs.into_iter().map(|cost| 1 + (cost / SLOWLY) as u64).collect()
    }

    /// The ways to have less at the position of the peak, those of the largest values first.
    fn ways(&self, peak: u32) -> Vec<Way> {
        let mut ways = Vec::new();
        for span in self.values.values().flatten().filter(|span| span.bytes > 0) {
            let Death::After(last) = span.death else { continue };
            let (born, dies) = (span.birth.map(|birth| self.sequence.position(birth)), self.sequence.position(last));
            if born.is_some_and(|born| born > peak) || dies < peak {
                continue;
            }
            ways.extend(span.birth.map(|birth| Way { bytes: span.bytes, works: vec![birth], is_later: true }));
            let waiting = span.readers.iter().copied().filter(|reader| self.sequence.position(*reader) >= peak).collect();
            ways.push(Way { bytes: span.bytes, works: waiting, is_later: false });
        }
        ways.sort_by_key(|way| Reverse(way.bytes));
        ways.truncate(2 * MOST_VALUES);
        ways
    }

    /// Takes a way as far as it lowers the peak most, or the number of positions at it; false where it does neither.
    fn go(&mut self, way: &Way, peak: u32, costs: &[u64], left: &mut u64) -> bool {
        let rating = |moves: &Moves| (moves.sequence.load().peak, moves.sequence.load().times);
        let end = self.works.len() as u32 - 1;
        let mut best = (rating(self), None);
        for far in (0..32).map(|power| (1u32 << power) - 1) {
            let to = if way.is_later { (peak + far).min(end) } else { peak.saturating_sub(far) };
            let Some(together) = self.together(way, to) else { break };
            let cost: u64 = together.values().map(|element| costs[*element as usize]).sum();
            *left = left.saturating_sub(2 * cost);
            if let Some(moved) = self.move_to(&together, to, way.is_later) {
                let now = rating(self);
                self.take_back(&moved);
                if now < best.0 {
                    best = (now, Some((together, to)));
                }
            }
            if *left == 0 || to == if way.is_later { end } else { 0 } {
                break;
            }
        }
        best.1.is_some_and(|(together, to)| self.move_to(&together, to, way.is_later).is_some())
    }

    /// By position: the works of a way, and those that have to move with them so that the last is there, or the first. None where a work
    /// stays where it is, or where there are too many.
    fn together(&self, way: &Way, to: u32) -> Option<BTreeMap<u32, u32>> {
        let mut together = BTreeMap::new();
        let mut open = way.works.clone();
        while let Some(element) = open.pop() {
            let position = self.sequence.position(element);
            let is_beyond = if way.is_later { position > to } else { position < to };
            if is_beyond || together.insert(position, element).is_some() {
                continue;
            }
            let edges = self.edges[element as usize].as_ref()?;
            open.extend(if way.is_later { &edges.after } else { &edges.before });
            if together.len() > MOST_TOGETHER {
                return None;
            }
        }
        Some(together)
    }

    /// Moves works one behind another, so that the last stands at a position, or the first. The moves that were made; none, and nothing is
    /// moved, where they cannot go there.
    fn move_to(&mut self, together: &BTreeMap<u32, u32>, to: u32, is_later: bool) -> Option<Vec<(usize, usize)>> {
        let mut positions: Vec<usize> = together.keys().map(|position| *position as usize).collect();
        if is_later {
            positions.reverse();
        }
        let mut moved = Vec::with_capacity(positions.len());
        for (index, from) in positions.into_iter().enumerate() {
            let to = if is_later { (to as usize).checked_sub(index) } else { Some(to as usize + index) };
            match to.filter(|to| self.shift(from, *to).is_some()) {
                Some(to) => moved.push((from, to)),
                None => {
                    self.take_back(&moved);
                    return None;
                }
            }
        }
        Some(moved)
    }

    /// Undoes moves.
    fn take_back(&mut self, moved: &[(usize, usize)]) {
        for (from, to) in moved.iter().rev() {
            self.shift(*to, *from);
        }
    }
}
