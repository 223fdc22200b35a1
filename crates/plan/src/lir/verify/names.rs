//! Every id names something, and every work and region has one place.

use plimsoll_base::Result;
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::{Checker, name};
use crate::lir::{Home, RegionId, WorkId, WorkKind};

impl Checker<'_> {
    pub(super) fn names(&self) -> Result<()> {
        self.places()?;
        for (id, value) in self.lir.values.iter() {
            let is_there = match value.home {
                Home::Arena => true,
                Home::Variable(variable) | Home::Flag(variable) => self.lir.variables.get(variable).is_some(),
                Home::Constant(constant) => self.lir.constants.get(constant).is_some(),
                Home::Feed(feed) => self.lir.feeds.get(feed).is_some(),
                Home::Fetch(fetch) => self.lir.fetches.get(fetch).is_some(),
                Home::Given { region, param } => {
                    value.region == region && self.lir.regions.get(region).is_some_and(|region| (param as usize) < region.params.len())
                }
            };
            let is_somewhere = value.device.index() < self.devices.len() && self.graph.nodes().get(value.node).is_some();
            if !is_there || !is_somewhere || value.previous.is_some_and(|previous| self.lir.values.get(previous).is_none()) {
                return Err(self.broken(format!("{} has no home, device, node or version before it", name(id))));
            }
        }
        for region in self.lir.regions.values() {
            region.works.iter().try_for_each(|work| self.named(*work))?;
            match region.params.iter().chain(&region.results).find(|value| self.lir.values.get(**value).is_none()) {
                Some(value) => return Err(self.broken(format!("a region names {}, which there is not", name(*value)))),
                None => continue,
            }
        }
        Ok(())
    }

    /// Every work is in one region, and every region but the first is held by one work of a region before it.
    fn places(&self) -> Result<()> {
        let mut in_regions: IdVec<WorkId, u32> = IdVec::filled(0, self.lir.works.len());
        let mut held: IdVec<RegionId, u32> = IdVec::filled(0, self.lir.regions.len());
        for (id, region) in self.lir.regions.iter() {
            for &work in &region.works {
                if self.lir.works.get(work).is_none() {
                    return Err(self.broken(format!("a region has the work w{}, which there is not", work.index())));
                }
                in_regions[work] += 1;
                let stray = self.lir.works[work]
                    .outputs
                    .iter()
                    .find(|output| self.lir.values.get(**output).is_some_and(|value| value.region != id));
                self.require(work, stray.is_none(), || {
                    format!("{} belongs to another region", stray.map_or_else(String::new, |value| name(*value)))
                })?;
                for &inner in self.lir.works[work].regions() {
                    self.require(work, inner > id && inner.index() < held.len(), || "it holds no region of its own".to_string())?;
                    held[inner] += 1;
                }
            }
        }
        if let Some((work, count)) = in_regions.iter().find(|(_, count)| **count != 1) {
            return Err(self.broken_at(work, format!("it is in {count} regions")));
        }
        match held.iter().find(|(id, count)| **count != u32::from(id.index() > 0)) {
            Some((id, count)) => Err(self.broken(format!("region {} is held by {count} works", id.index()))),
            None => Ok(()),
        }
    }

    fn named(&self, id: WorkId) -> Result<()> {
        let work = &self.lir.works[id];
        let is_node = |node| self.graph.nodes().get(node).is_some();
        self.require(id, !work.nodes.is_empty() && work.nodes.iter().all(|node| is_node(*node)), || "it does no node".to_string())?;
        self.require(id, work.device.index() < self.devices.len(), || "it is on no device".to_string())?;
        let unknown = work.reads().chain(work.outputs.iter().copied()).find(|value| self.lir.values.get(*value).is_none());
        self.require(id, unknown.is_none(), || format!("it names {}, which there is not", name(unknown.unwrap_or(work.outputs[0]))))?;
        if let WorkKind::Outside { call, .. } = work.kind {
            self.require(id, self.lir.calls.get(call).is_some(), || format!("there is no file{}", call.index()))?;
        }
        Ok(())
    }
}
