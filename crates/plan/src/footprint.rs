//! The bytes of each device that a session takes over several plans: the plan of its initializer, then those of its steps.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;

use crate::constants::ConstantBytes;
use crate::need::{Need, Needs, sort};
use crate::plan::{Certainty, DevicePlan, Holder, PeakParts, Plan, PlanVariable, VariableKind};

/// The peaks of plans that one session runs one after the other. Variables stay from the first plan that touches them. Other memory
/// is there while its plan runs, and is given back where the next one needs it.
#[derive(Clone, Debug)]
pub struct Footprint {
    specs: Vec<DeviceSpec>,
    variables: BTreeSet<String>,
    /// Those of them that have their values from files.
    loaded: BTreeSet<String>,
    resident: Vec<Bytes>,
    needs: Vec<Need>,
}

impl Footprint {
    /// Nothing yet, on these devices.
    pub fn new(specs: &[DeviceSpec]) -> Footprint {
        let need = |spec: &DeviceSpec| Need {
            name: spec.name.to_string(),
            kind: spec.kind,
            limit: spec.memory_limit,
            machine: spec.machine,
            peak: Bytes::ZERO,
            parts: PeakParts::default(),
            certainty: Certainty::Exact,
            holders: Vec::new(),
        };
        Footprint {
            needs: specs.iter().map(need).collect(),
            resident: vec![Bytes::ZERO; specs.len()],
            variables: BTreeSet::new(),
            loaded: BTreeSet::new(),
            specs: specs.to_vec(),
        }
    }

    /// Where these variables have storage already, so many bytes of each device, and their values from files.
    #[must_use]
    pub fn with_variables(mut self, keys: impl IntoIterator<Item = String>, resident: Vec<Bytes>) -> Footprint {
        self.variables = keys.into_iter().collect();
        self.loaded = self.variables.clone();
        self.resident = resident;
        self
    }

    /// Adds a plan that runs after those before it, and returns the bytes that each device holds while it runs. The loading of its
    /// stored variables comes first. Of a run in stages the most counts that any of its plans takes.
    pub fn add(&mut self, plan: &Plan) -> Vec<Bytes> {
        let Some(later) = &plan.later else { return self.add_stage(plan) };
        // When it runs again, the variables of all stages are there.
        for stage in std::iter::once(plan).chain(later.within.iter().chain(&later.plans).map(|plan| &**plan)) {
            self.add_stage(stage);
        }
        let mut first = self.add_stage(plan);
        let within: Vec<Vec<Bytes>> = later.within.iter().map(|plan| self.add(plan)).collect();
        let ways: Vec<Vec<Bytes>> = later.plans.iter().map(|plan| self.add(plan)).collect();
        for (index, first) in first.iter_mut().enumerate() {
            let without = ways.iter().map(|way| way[index]).min().unwrap_or_default().max(*first);
            *first = within.iter().map(|peaks| peaks[index]).chain([*first]).max().unwrap_or_default();
            // A loop may have no iteration.
            if *first > without {
                self.needs[index].certainty = self.needs[index].certainty.clone().or(Certainty::AtMost);
            }
        }
        let mut most = first.clone();
        for (index, most) in most.iter_mut().enumerate() {
            let mut peaks = ways.iter().map(|way| way[index].max(first[index]));
            let one = peaks.next();
            *most = peaks.clone().chain(one).max().unwrap_or(*most);
            let certainty = match one {
                None => Certainty::OpenFrom(later.from),
                Some(one) if peaks.all(|peak| peak == one) && !later.is_bound() => continue,
                Some(_) => Certainty::AtMost,
            };
            self.needs[index].certainty = self.needs[index].certainty.clone().or(certainty);
        }
        most
    }

    fn add_stage(&mut self, plan: &Plan) -> Vec<Bytes> {
        let peaks = self.peaks_with(plan);
        for (index, peak) in peaks.iter().enumerate() {
            let device = &plan.devices[index];
            self.raise(index, *peak, &device.certainty, || device.holders.clone());
        }
        peaks.iter().map(PeakParts::total).collect()
    }

    /// Adds plans that run in lanes (memory that a session keeps for some callables), for each lane the plans that share it. All of
    /// them are loaded at once, after those that were added before: a constant that several of them read counts once.
    pub fn add_lanes(&mut self, lanes: &[Vec<&Plan>]) {
        lanes.iter().flatten().for_each(|plan| self.settle(plan));
        for index in 0..self.specs.len() {
            let mut constants = ConstantBytes::new(&self.specs[index]);
            lanes.iter().flatten().for_each(|plan| constants.add(index, plan.constant_values()));
            let mut peak = PeakParts { variables: self.resident[index], constants: constants.reserved(), ..PeakParts::default() };
            for lane in lanes {
                let devices = || lane.iter().map(|plan| &plan.devices[index]);
                let ends = |device: &DevicePlan| device.peak.total() - device.peak.variables - device.peak.constants - device.arena;
                peak.activations += devices().map(|device| device.arena).max().unwrap_or_default();
                peak.transfer += devices().map(ends).max().unwrap_or_default();
            }
            self.raise(index, peak, &Certainty::Exact, || {
                let mut holders: Vec<Holder> = lanes.iter().flatten().flat_map(|plan| plan.devices[index].holders.clone()).collect();
                sort(&mut holders);
                // Variables are the same in every plan, as are most constants.
                holders.dedup();
                holders
            });
        }
    }

    /// Gives storage to the variables of a plan that have none, and values to those of them that are stored.
    fn settle(&mut self, plan: &Plan) {
        let is_new = |variable: &&PlanVariable| variable.kind != VariableKind::State && !self.variables.contains(&variable.key);
        let new: Vec<&PlanVariable> = plan.variables.iter().filter(is_new).collect();
        for (index, spec) in self.specs.iter().enumerate() {
            let here = new.iter().filter(|variable| variable.device.index() == index);
            self.resident[index] += spec.reserved_for(here.map(|variable| variable.bytes));
        }
        self.variables.extend(plan.variables.iter().map(|variable| variable.key.clone()));
        let stored = plan.variables.iter().filter(|variable| variable.stored.is_some());
        let buffer = loading_buffer(stored.filter(|variable| self.loaded.insert(variable.key.clone())));
        if buffer > Bytes::ZERO {
            self.load(plan, buffer);
        }
        plan.before.iter().for_each(|before| self.settle_before(before));
    }

    /// A plan that computes folded variables. Those that it reads from files go again.
    fn settle_before(&mut self, plan: &Plan) {
        let before = (self.variables.clone(), self.loaded.clone(), self.resident.clone());
        let peaks = self.peaks_with(plan);
        for (index, peak) in peaks.into_iter().enumerate() {
            let device = &plan.devices[index];
            self.raise(index, peak, &device.certainty, || device.holders.clone());
        }
        (self.variables, self.loaded, self.resident) = before;
        let stays = |variable: &&PlanVariable| {
            variable.stored.is_none() && variable.kind != VariableKind::State && !self.variables.contains(&variable.key)
        };
        let staying: Vec<&PlanVariable> = plan.variables.iter().filter(stays).collect();
        for (index, spec) in self.specs.iter().enumerate() {
            let here = staying.iter().filter(|variable| variable.device.index() == index);
            self.resident[index] += spec.reserved_for(here.map(|variable| variable.bytes));
        }
        self.variables.extend(staying.into_iter().map(|variable| variable.key.clone()));
    }

    /// Its peaks, after its variables are there.
    fn peaks_with(&mut self, plan: &Plan) -> Vec<PeakParts> {
        self.settle(plan);
        let taken = |(index, device): (usize, &DevicePlan)| PeakParts { variables: self.resident[index], ..device.peak };
        plan.devices.iter().enumerate().map(taken).collect()
    }

    /// The loading of stored variables, through a buffer.
    fn load(&mut self, plan: &Plan, buffer: Bytes) {
        for index in 0..self.specs.len() {
            let device = &plan.devices[index];
            let buffer = if index == plan.host.index() { self.specs[index].reserved(buffer) } else { Bytes::ZERO };
            let peak =
                PeakParts { variables: self.resident[index], transfer: buffer, overhead: device.peak.overhead, ..PeakParts::default() };
            self.raise(index, peak, &Certainty::Exact, || {
                let here = plan.variables.iter().filter(|variable| variable.device.index() == index);
                let mut holders: Vec<Holder> = here.map(|variable| Holder { name: variable.name.clone(), bytes: variable.bytes }).collect();
                holders.push(Holder { name: "loading of variables".to_string(), bytes: buffer });
                sort(&mut holders);
                holders.truncate(10);
                holders
            });
        }
    }

    fn raise(&mut self, index: usize, parts: PeakParts, certainty: &Certainty, holders: impl FnOnce() -> Vec<Holder>) {
        let need = &mut self.needs[index];
        need.certainty = need.certainty.clone().or(certainty.clone());
        if parts.total() > need.peak {
            (need.peak, need.parts) = (parts.total(), parts);
            need.holders = holders();
        }
    }

    /// Needs of at least what another footprint on the same devices needs.
    pub(crate) fn raise_to(&mut self, other: &Footprint) {
        for (need, other) in self.needs.iter_mut().zip(&other.needs).filter(|(need, other)| need.peak < other.peak) {
            need.clone_from(other);
        }
    }

    /// The devices.
    pub fn specs(&self) -> &[DeviceSpec] {
        &self.specs
    }

    /// The need of every device.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// The smallest limit that is enough: see [`Needs::minimum_limit`].
    pub fn minimum_limit(&self) -> Bytes {
        self.needs.minimum_limit()
    }

    /// Adds the need of another session at the same time. The device's own overhead counts once.
    pub fn join(&mut self, other: &Footprint) {
        for ((need, more), spec) in self.needs.iter_mut().zip(&other.needs).zip(&self.specs) {
            let shared = if need.peak > Bytes::ZERO { spec.overhead } else { Bytes::ZERO };
            need.peak += more.peak - shared;
            need.parts = need.parts.plus(&PeakParts { overhead: more.parts.overhead - shared, ..more.parts });
            // The peaks need not be at the same time: their sum is a bound.
            if need.certainty == Certainty::Exact {
                need.certainty = if more.certainty == Certainty::Exact { Certainty::AtMost } else { more.certainty.clone() };
            }
            need.holders.extend(more.holders.iter().cloned());
            sort(&mut need.holders);
        }
    }

    /// Whether every need stays under its line.
    ///
    /// # Errors
    /// As [`Needs::check`].
    pub fn check(&self) -> Result<()> {
        self.needs.check()
    }
}

/// The buffer through which the values of these variables are loaded; none where none of them is stored.
pub fn loading_buffer<'a>(variables: impl Iterator<Item = &'a PlanVariable>) -> Bytes {
    variables.filter_map(|variable| variable.stored).max().unwrap_or_default()
}

#[cfg(test)]
impl Footprint {
    /// Of activations that take so much of each device.
    pub(crate) fn of_peaks(specs: &[DeviceSpec], peaks: &[u64]) -> Footprint {
        let mut footprint = Footprint::new(specs);
        for (index, peak) in peaks.iter().enumerate() {
            let parts = PeakParts { activations: Bytes(*peak), ..PeakParts::default() };
            footprint.raise(index, parts, &Certainty::Exact, Vec::new);
        }
        footprint
    }
}
