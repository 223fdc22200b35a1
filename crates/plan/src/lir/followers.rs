//! Which works wait for which.

use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Lir, ValueId, WorkId};

/// For each work those that wait for it, once for each time; and for each work how many times it waits.
pub(crate) struct Followers {
    /// Where those of each work begin.
    starts: IdVec<WorkId, u32>,
    all: Vec<WorkId>,
    pub waiting: IdVec<WorkId, usize>,
}

impl Followers {
    /// Of works of a region, in their order.
    pub fn new(lir: &Lir, works: &[WorkId], definitions: &IdVec<ValueId, Option<WorkId>>) -> Followers {
        let mut starts: IdVec<WorkId, u32> = IdVec::filled(0, lir.works.len() + 1);
        let mut waiting: IdVec<WorkId, usize> = IdVec::filled(0, lir.works.len());
        for &id in works {
            for before in lir.predecessors(&lir.works[id], definitions) {
                starts[before] += 1;
                waiting[id] += 1;
            }
        }
        let mut end = 0;
        for start in starts.values_mut() {
            end += *start;
            *start = end;
        }
        // From the last to the first: then each begins at its start.
        let mut all = vec![WorkId::from_index(0); end as usize];
        for &id in works.iter().rev() {
            for before in lir.predecessors(&lir.works[id], definitions) {
                starts[before] -= 1;
                all[starts[before] as usize] = id;
            }
        }
        Followers { starts, all, waiting }
    }

    /// Those that wait for a work, in the order of works.
    pub fn of(&self, work: WorkId) -> &[WorkId] {
        let [first, end] = [work.index(), work.index() + 1].map(|index| self.starts[WorkId::from_index(index)] as usize);
        &self.all[first..end]
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::NodeId;

    use super::*;
    use crate::lir::{Home, View, WorkKind};
    use crate::plan::DeviceId;

    #[test]
    fn works_follow_once_for_each_time_that_they_wait() {
        let mut lir = Lir::new();
        let (device, node) = (DeviceId::from_index(0), NodeId::from_index(0));
        let values = [0; 3].map(|_| lir.value(device, Home::Arena, 8, node));
        let mut work = |reads: &[usize], value: usize| {
            let inputs = reads.iter().map(|read| View::of_bytes(values[*read], 8)).collect();
            lir.work(WorkKind::Copy, device, vec![node], inputs, vec![values[value]])
        };
        let works = [work(&[], 0), work(&[0], 1), work(&[0, 1], 2)];
        lir.works[works[2]].after.push(works[0]);
        let followers = Followers::new(&lir, &works, &lir.definitions());
        assert_eq!(works.map(|work| followers.of(work).to_vec()), [vec![works[1], works[2], works[2]], vec![works[2]], vec![]]);
        assert_eq!(works.map(|work| followers.waiting[work]), [0, 1, 3]);
    }
}
