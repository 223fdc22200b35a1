//! Every value is defined once, in the region that reads it, and before it is read.

use plimsoll_base::Result;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Checker, Maker, Makers, name};
use crate::lir::{RegionId, WorkId};
use crate::passes::Pass;

impl Checker<'_> {
    /// Also says what defines each value.
    pub(super) fn flow(&self) -> Result<Makers> {
        let mut makers: Makers = IdVec::filled(None, self.lir.values.len());
        for (id, region) in self.lir.regions.iter() {
            for &param in &region.params {
                if makers[param].replace(Maker::Param(id)).is_some() {
                    return Err(self.broken(format!("{} is defined twice", name(param))));
                }
            }
            for &work in &region.works {
                for &output in &self.lir.works[work].outputs {
                    let is_first = makers[output].replace(Maker::Work(id, work)).is_none();
                    self.require(work, is_first, || format!("{} is defined twice", name(output)))?;
                }
            }
        }
        for (id, region) in self.lir.regions.iter() {
            for &work in &region.works {
                let undefined = self.lir.works[work].reads().find(|value| makers[*value].map(Maker::region) != Some(id));
                self.require(work, undefined.is_none(), || match undefined {
                    Some(value) if makers[value].is_some() => format!("it reads {}, which another region defines", name(value)),
                    value => format!("it reads {}, which nothing defines", value.map_or_else(String::new, name)),
                })?;
            }
            match region.results.iter().find(|value| makers[**value].map(Maker::region) != Some(id)) {
                Some(value) => return Err(self.broken(format!("a region's result {} is not defined in it", name(*value)))),
                None => self.order(id, &makers)?,
            }
        }
        Ok(makers)
    }

    /// Waits are for works of the region, and works do not wait for themselves, however indirectly. Once works are scheduled, none
    /// comes before one that it waits for.
    fn order(&self, region: RegionId, makers: &Makers) -> Result<()> {
        let works = &self.lir.regions[region].works;
        let mut position: IdVec<WorkId, Option<usize>> = IdVec::filled(None, self.lir.works.len());
        works.iter().enumerate().for_each(|(at, work)| position[*work] = Some(at));
        let before = |id: WorkId| {
            let made = self.lir.works[id].reads().filter_map(|value| match makers[value] {
                Some(Maker::Work(_, maker)) => Some(maker),
                _ => None,
            });
            made.chain(self.lir.works[id].after.iter().copied())
        };
        let mut waiting: Vec<usize> = vec![0; works.len()];
        let mut followers: Vec<Vec<usize>> = vec![Vec::new(); works.len()];
        for (at, &id) in works.iter().enumerate() {
            for earlier in before(id) {
                let place = position.get(earlier).copied().flatten();
                self.require(id, place.is_some(), || format!("it waits for w{}, which is not in its region", earlier.index()))?;
                let place = place.unwrap_or_default();
                let is_late = self.after >= Pass::Order && place >= at;
                self.require(id, !is_late, || format!("it comes before w{}, for which it waits", earlier.index()))?;
                waiting[at] += 1;
                followers[place].push(at);
            }
        }
        let mut ready: Vec<usize> = (0..works.len()).filter(|at| waiting[*at] == 0).collect();
        while let Some(at) = ready.pop() {
            for &follower in &followers[at] {
                waiting[follower] -= 1;
                if waiting[follower] == 0 {
                    ready.push(follower);
                }
            }
        }
        match waiting.iter().position(|left| *left > 0) {
            Some(at) => Err(self.broken_at(works[at], "it waits for itself")),
            None => Ok(()),
        }
    }
}
