//! Removal of what the plan's own region does not reach.

use plimsoll_graph::IdVec;

use super::{Home, Lir, Region, RegionId, Work, WorkId, WorkKind};

impl Lir {
    /// Removes works in no region, regions that no work holds, and values without definition and reader. The others keep their order and get
    /// new ids. The plan's own region is at hand behind it. By work its new id, none of those that are gone.
    pub fn sweep(&mut self) -> IdVec<WorkId, Option<WorkId>> {
        let mut is_work_held: IdVec<WorkId, bool> = IdVec::filled(false, self.works.len());
        let mut is_held: IdVec<RegionId, bool> = IdVec::filled(false, self.regions.len());
        let mut open: Vec<RegionId> = self.regions.ids().take(1).collect();
        while let Some(region) = open.pop() {
            is_held[region] = true;
            for &work in &self.regions[region].works {
                is_work_held[work] = true;
                open.extend(self.works[work].regions());
            }
        }
        let mut new_regions: IdVec<RegionId, Option<RegionId>> = IdVec::new();
        let mut regions: IdVec<RegionId, Region> = IdVec::new();
        for (id, region) in is_held.ids().zip(std::mem::take(&mut self.regions).into_values()) {
            new_regions.push(is_held[id].then(|| regions.push(region)));
        }
        let mut new_works: IdVec<WorkId, Option<WorkId>> = IdVec::new();
        let mut works: IdVec<WorkId, Work> = IdVec::new();
        for (id, work) in is_work_held.ids().zip(std::mem::take(&mut self.works).into_values()) {
            new_works.push(is_work_held[id].then(|| works.push(work)));
        }
        let renumbered = |ids: &[WorkId]| ids.iter().filter_map(|id| new_works[*id]).collect::<Vec<_>>();
        let at = |region: RegionId| new_regions[region].unwrap_or(region);
        for work in works.values_mut() {
            work.after = renumbered(&work.after);
            if let WorkKind::Loop { body, .. } = &mut work.kind {
                *body = at(*body);
            }
        }
        regions.values_mut().for_each(|region| region.works = renumbered(&region.works));
        (self.works, self.regions) = (works, regions);
        self.here = self.regions.ids().next().unwrap_or(self.here);
        self.drop_values();
        for value in self.values.values_mut() {
            value.region = at(value.region);
            if let Home::Given { region, .. } = &mut value.home {
                *region = at(*region);
            }
        }
        new_works
    }
}
