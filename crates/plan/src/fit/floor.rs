//! What no schedule of these works can do with less of a device, in whatever order, whatever runs again or waits elsewhere, with masks and in
//! parts: while a work runs, its operands, its results and its scratch are there. Of a work that may be done in parts, only what is there as
//! a whole in any case.

use std::collections::HashSet;

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;

use super::in_parts::Units;
use super::masks::question;
use super::problem::is_here;
use super::segments;
use crate::Request;
use crate::lir::{Lir, RegionId, ValueId, Work, WorkId, WorkKind};
use crate::live::{pairs, with_others};
use crate::plan::DeviceId;

/// For each device a lower bound of the bytes that the works of the region at hand take of its arena, before they are made to fit. Lines
/// and the order of the works change nothing about it.
///
/// # Errors
/// INVALID_ARGUMENT for a view of more elements than can be counted.
pub(crate) fn floors(request: &Request<'_>, lir: &Lir) -> Result<Vec<Bytes>> {
    let ends = Ends { definitions: lir.definitions(), uses: lir.uses() };
    (0..request.devices.len())
        .map(|index| {
            let device = DeviceId::from_index(index);
            let units = Units::new(request, lir, device);
            let of = Floor {
                request,
                lir,
                device,
                whole: wholes(lir, &ends, device, &units)?,
                units,
                bodies: Vec::new(),
                without: segments::without(lir, device),
            };
            of.bytes().map(Bytes)
        })
        .collect()
}

/// What is there of the region at hand and of a device while a work runs.
pub(super) fn while_it_runs(request: &Request<'_>, lir: &Lir, work: &Work, device: DeviceId) -> u64 {
    let slot = |value: ValueId| request.devices[device.index()].slot(Bytes(lir.values[value].bytes)).0;
    let is_here = |value: ValueId| is_here(lir, value, device, lir.here());
    let reads = work.reads_once();
    let used = reads.iter().chain(&work.outputs).filter(|value| is_here(**value)).map(|value| slot(*value));
    let over = pairs(lir, work, is_here).into_iter().map(|(_, result)| slot(result)).fold(0, u64::saturating_add);
    used.fold(lir.scratch(work, device), u64::saturating_add).saturating_sub(over)
}

struct Floor<'a> {
    request: &'a Request<'a>,
    lir: &'a Lir,
    device: DeviceId,
    /// What may be done in parts.
    units: Units,
    /// By value: whether it is there as a whole at some time, and whether that has its reasons in what makes it.
    whole: IdVec<ValueId, Whole>,
    /// By region that a work holds: its bound.
    bodies: Vec<u64>,
    /// Lists in whose place a loop may keep its state.
    without: HashSet<ValueId>,
}

/// For each value the work that makes it, and those that read it.
struct Ends {
    definitions: IdVec<ValueId, Option<WorkId>>,
    uses: IdVec<ValueId, Vec<WorkId>>,
}

/// Whether a value is there as a whole, where works are done in parts.
#[derive(Clone, Copy, Default)]
struct Whole {
    /// What makes it makes all of it, so it is there for every reader.
    is_made: bool,
    /// A reader needs all of it, so at some time all of it is made.
    is_read: bool,
}

/// What is there as a whole of the region at hand, and of a device. A reader that asks for a mask may have that instead.
///
/// # Errors
/// As [`question`].
fn wholes(lir: &Lir, ends: &Ends, device: DeviceId, units: &Units) -> Result<IdVec<ValueId, Whole>> {
    let Ends { definitions, uses } = ends;
    let mut all: IdVec<ValueId, Whole> = IdVec::filled(Whole::default(), lir.values.len());
    for value in lir.values.ids().filter(|value| is_here(lir, *value, device, lir.here())) {
        let mut is_read = lir.region().results.contains(&value);
        for reader in uses[value].iter().filter(|reader| !units.reads_slices(**reader, value)) {
            is_read |= question(lir, &lir.works[*reader], value)?.is_none();
        }
        all[value] = Whole { is_made: definitions[value].is_none_or(|maker| !units.makes_slices(maker, value)), is_read };
    }
    Ok(all)
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
        let works = self.lir.regions[region].works.iter().map(|id| (*id, &self.lir.works[*id]));
        let bytes = |(id, work)| match region == self.lir.here() && self.units.has(id) {
            true => self.in_parts(id, work),
            false => self.while_it_runs(work, region),
        };
        let mut works: Vec<(u64, &Work)> = works.map(|(id, work)| (bytes((id, work)), work)).collect();
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
        // Lists that are not there are not begun.
        let is_list = !work.outputs.is_empty() && work.outputs.iter().all(|output| self.without.contains(output));
        if is_list && work.regions().is_empty() {
            return 0;
        }
        let is_here = |value: ValueId| self.is_there(value, region);
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

    /// What is there while a work runs that may be done in parts, or others with it. A result may lie where an operand was.
    fn in_parts(&self, id: WorkId, work: &Work) -> u64 {
        let reads = work.reads_once().into_iter();
        let there = |value: &ValueId| self.whole[*value].is_made || !self.units.reads_slices(id, *value);
        let operands: Vec<ValueId> = reads.filter(|value| self.is_there(*value, self.lir.here()) && there(value)).collect();
        let is_over = |result: ValueId| operands.iter().any(|operand| self.lir.values[*operand].bytes == self.lir.values[result].bytes);
        let is_there = |result: &ValueId| self.whole[*result].is_read || self.whole[*result].is_made;
        let results = work.outputs.iter().copied().filter(|result| is_there(result) && !is_over(*result) && !self.without.contains(result));
        operands.iter().copied().chain(results).map(|value| self.slot(value)).fold(0, u64::saturating_add)
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

    /// Whether a value of a region is there in any case.
    fn is_there(&self, value: ValueId, region: RegionId) -> bool {
        is_here(self.lir, value, self.device, region) && !self.without.contains(&value)
    }

    fn slot(&self, value: ValueId) -> u64 {
        self.request.devices[self.device.index()].slot(Bytes(self.lir.values[value].bytes)).0
    }
}
