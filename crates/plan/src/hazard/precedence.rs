//! The order of works, kept up to date while waits are added. It is a topological order: a new wait moves only the works between its
//! two ends. The method is of Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic graphs, 2006.

use std::collections::HashSet;

use plimsoll_base::Result;
use plimsoll_graph::IdVec;

use crate::lir::{Lir, ValueId, WorkId};

pub(super) struct Precedence {
    /// Where each work stands.
    position: IdVec<WorkId, u32>,
    before: IdVec<WorkId, Vec<WorkId>>,
    after: IdVec<WorkId, Vec<WorkId>>,
}

impl Precedence {
    /// The order of the works as they are.
    ///
    /// # Errors
    /// INTERNAL where works form a cycle.
    pub fn new(lir: &Lir, definitions: &IdVec<ValueId, Option<WorkId>>) -> Result<Precedence> {
        let mut position = IdVec::filled(u32::MAX, lir.works.len());
        let mut before = IdVec::filled(Vec::new(), lir.works.len());
        let mut after: IdVec<WorkId, Vec<WorkId>> = IdVec::filled(Vec::new(), lir.works.len());
        for (place, id) in lir.topological()?.into_iter().enumerate() {
            position[id] = place as u32;
            before[id] = lir.predecessors(&lir.works[id], definitions).collect();
            before[id].iter().for_each(|earlier| after[*earlier].push(id));
        }
        Ok(Precedence { position, before, after })
    }

    /// Whether `work` stands behind `other`; it need not wait for it.
    pub fn is_after(&self, work: WorkId, other: WorkId) -> bool {
        self.position[work] > self.position[other]
    }

    /// Those of `works` that have to wait for `from`.
    pub fn reached(&self, from: WorkId, works: &[WorkId]) -> HashSet<WorkId> {
        let Some(most) = works.iter().map(|work| self.position[*work]).max() else { return HashSet::new() };
        let found: HashSet<WorkId> = self.walk(&[from], &self.after, |position| position <= most).into_iter().collect();
        works.iter().copied().filter(|work| found.contains(work)).collect()
    }

    /// From here on `writer` waits for `works`, none of which waits for it.
    pub fn add(&mut self, works: &[WorkId], writer: WorkId) {
        for &work in works {
            self.before[writer].push(work);
            self.after[work].push(writer);
        }
        let late: Vec<WorkId> = works.iter().copied().filter(|work| self.is_after(*work, writer)).collect();
        let Some(most) = late.iter().map(|work| self.position[*work]).max() else { return };
        let least = self.position[writer];
        // Works that have to be before `writer` now go there, in their order; then the works after `writer`.
        let mut first = self.walk(&late, &self.before, |position| position >= least);
        let mut second = self.walk(&[writer], &self.after, |position| position <= most);
        first.sort_unstable_by_key(|work| self.position[*work]);
        second.sort_unstable_by_key(|work| self.position[*work]);
        let moved: Vec<WorkId> = first.into_iter().chain(second).collect();
        let mut places: Vec<u32> = moved.iter().map(|work| self.position[*work]).collect();
        places.sort_unstable();
        for (work, place) in moved.into_iter().zip(places) {
            self.position[work] = place;
        }
    }

    /// The works that edges lead to from some, these included, as far as positions are `within`.
    fn walk(&self, from: &[WorkId], edges: &IdVec<WorkId, Vec<WorkId>>, within: impl Fn(u32) -> bool) -> Vec<WorkId> {
        let mut seen: HashSet<WorkId> = from.iter().copied().collect();
        let mut found: Vec<WorkId> = from.to_vec();
        let mut next = 0;
        while next < found.len() {
            let near = edges[found[next]].iter().copied().filter(|work| within(self.position[*work]));
            let fresh: Vec<WorkId> = near.filter(|work| seen.insert(*work)).collect();
            found.extend(fresh);
            next += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    /// Whether a path leads from one work to another.
    fn leads(precedence: &Precedence, from: WorkId, to: WorkId) -> bool {
        precedence.walk(&[from], &precedence.after, |_| true).contains(&to)
    }

    #[test]
    fn positions_follow_the_waits_that_are_added() {
        const WORKS: usize = 40;
        let mut seed = 1u64;
        let mut random = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % most
        };
        for _ in 0..50 {
            let mut precedence = Precedence {
                position: (0..WORKS as u32).collect(),
                before: IdVec::filled(Vec::new(), WORKS),
                after: IdVec::filled(Vec::new(), WORKS),
            };
            for _ in 0..60 {
                let writer = WorkId::from_index(random(WORKS));
                let mut readers: Vec<WorkId> = (0..3).map(|_| WorkId::from_index(random(WORKS))).filter(|work| *work != writer).collect();
                readers.sort_unstable();
                readers.dedup();
                let late: Vec<WorkId> = readers.iter().copied().filter(|reader| precedence.is_after(*reader, writer)).collect();
                let reached = precedence.reached(writer, &late);
                for reader in &readers {
                    assert_eq!(reached.contains(reader), leads(&precedence, writer, *reader));
                }
                let waits: Vec<WorkId> = readers.into_iter().filter(|reader| !reached.contains(reader)).collect();
                precedence.add(&waits, writer);
                let mut positions: Vec<u32> = precedence.position.values().copied().collect();
                positions.sort_unstable();
                assert!(positions.into_iter().eq(0..WORKS as u32));
                for (work, before) in precedence.before.iter() {
                    assert!(before.iter().all(|earlier| precedence.position[*earlier] < precedence.position[work]));
                }
            }
        }
    }
}
