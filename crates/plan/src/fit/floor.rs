//! What no schedule of these works can do with less of a device, in whatever order, whatever runs again or waits elsewhere, and with masks:
//! while a work runs, its operands, its results and its scratch are there.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;

use super::masks::question;
use super::problem::is_here;
use crate::Request;
use crate::lir::{Lir, RegionId, ValueId, Work, WorkKind};
use crate::live::{pairs, with_others};
use crate::plan::DeviceId;

/// For each device a lower bound of the bytes that the works of the region at hand take of its arena, before they are made to fit. Lines
/// and the order of the works change nothing about it.
///
/// # Errors
/// INVALID_ARGUMENT for a view of more elements than can be counted.
pub(crate) fn floors(request: &Request<'_>, lir: &Lir) -> Result<Vec<Bytes>> {
    (0..request.devices.len())
        .map(|index| {
            let of = Floor { request, lir, device: DeviceId::from_index(index), bodies: Vec::new() };
            of.bytes().map(Bytes)
        })
        .collect()
}

struct Floor<'a> {
    request: &'a Request<'a>,
    lir: &'a Lir,
    device: DeviceId,
    /// By region that a work holds: its bound.
    bodies: Vec<u64>,
}

impl Floor<'_> {
    fn bytes(mut self) -> Result<u64> {
        self.bodies = vec![0; self.lir.regions.len()];
        // The regions that works of a region hold come behind it.
        for region in self.lir.regions.ids().rev() {
            self.bodies[region.index()] = self.of_region(region)?;
        }
        Ok(self.bodies[self.lir.here().index()])
    }

    fn of_region(&self, region: RegionId) -> Result<u64> {
        let works = self.lir.regions[region].works.iter().map(|id| &self.lir.works[*id]);
        let mut works: Vec<(u64, &Work)> = works.map(|work| (self.while_it_runs(work, region), work)).collect();
        works.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut most = 0;
        for (bytes, work) in works {
            // Masks only take away.
            if bytes <= most {
                break;
            }
            most = most.max(bytes.saturating_sub(self.saved_by_masks(work, region)?));
        }
        Ok(most)
    }

    /// What is there of a region while one of its works runs.
    fn while_it_runs(&self, work: &Work, region: RegionId) -> u64 {
        let is_here = |value: ValueId| is_here(self.lir, value, self.device, region);
        let reads = work.reads_once();
        let used = reads.iter().chain(&work.outputs).filter(|value| is_here(**value)).map(|value| self.slot(*value));
        let used = used.fold(0u64, u64::saturating_add);
        let scratch = match work.kind {
            WorkKind::Loop { body, .. } => self.bodies[body.index()],
            _ if work.device == self.device => work.scratch(),
            _ => 0,
        };
        if used == 0 {
            return scratch;
        }
        // A result may lie where an operand was.
        let mut over = with_others(self.lir, work, is_here);
        over.extend(pairs(self.lir, work, is_here).into_iter().map(|(_, result)| result));
        let saved = over.iter().map(|value| self.slot(*value)).fold(0u64, u64::saturating_add);
        used.saturating_sub(saved).saturating_add(scratch)
    }

    /// What a work reads less where it reads masks in the place of values.
    fn saved_by_masks(&self, work: &Work, region: RegionId) -> Result<u64> {
        let (mut saved, mut is_changed) = (0u64, false);
        for value in work.reads_once().into_iter().filter(|value| is_here(self.lir, *value, self.device, region)) {
            if let Some((input, _)) = question(self.lir, work, value)? {
                let mask = self.request.devices[self.device.index()].slot(Bytes(work.inputs[input].shape.elements()?)).0;
                saved = saved.saturating_add(self.slot(value).saturating_sub(mask));
                is_changed = true;
            }
        }
        // The kernel that reads masks may need no scratch.
        Ok(saved.saturating_add(if is_changed { work.scratch() } else { 0 }))
    }

    fn slot(&self, value: ValueId) -> u64 {
        self.request.devices[self.device.index()].slot(Bytes(self.lir.values[value].bytes)).0
    }
}
