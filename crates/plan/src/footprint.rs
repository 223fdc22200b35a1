//! What a session takes of each device over several plans: the plan of its initializer, then those of its steps.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;

use crate::plan::{DevicePlan, Holder, Plan, PlanVariable, VariableKind};

/// What one device has to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The full name.
    pub name: String,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The most that is held at once.
    pub peak: Bytes,
    /// What takes most at that time, largest first; some entries only.
    pub holders: Vec<Holder>,
}

/// The peaks of plans that one session runs one after the other. Variables stay from the first plan that touches them; other
/// memory is there while its plan runs, and is given back where the next one needs it.
#[derive(Clone, Debug)]
pub struct Footprint {
    specs: Vec<DeviceSpec>,
    variables: BTreeSet<String>,
    resident: Vec<Bytes>,
    needs: Vec<Need>,
}

impl Footprint {
    /// Nothing yet, on these devices.
    pub fn new(specs: &[DeviceSpec]) -> Footprint {
        let need =
            |spec: &DeviceSpec| Need { name: spec.name.to_string(), limit: spec.memory_limit, peak: Bytes::ZERO, holders: Vec::new() };
        Footprint {
            needs: specs.iter().map(need).collect(),
            resident: vec![Bytes::ZERO; specs.len()],
            variables: BTreeSet::new(),
            specs: specs.to_vec(),
        }
    }

    /// Adds a plan that runs after those before it, and gives what each device holds while it runs.
    pub fn add(&mut self, plan: &Plan) -> Vec<Bytes> {
        self.settle(plan);
        let taken = |(index, device): (usize, &DevicePlan)| self.resident[index] + (device.peak.total() - device.peak.variables);
        let peaks: Vec<Bytes> = plan.devices.iter().enumerate().map(taken).collect();
        for (index, peak) in peaks.iter().enumerate() {
            self.raise(index, *peak, || plan.devices[index].holders.clone());
        }
        peaks
    }

    /// Adds plans that run in lanes (memory that a session keeps for some callables), all of them loaded at once, after what was
    /// added before: for each lane the plans that share it.
    pub fn add_lanes(&mut self, lanes: &[Vec<&Plan>]) {
        lanes.iter().flatten().for_each(|plan| self.settle(plan));
        for index in 0..self.specs.len() {
            let mut peak = self.resident[index];
            for lane in lanes {
                let devices = || lane.iter().map(|plan| &plan.devices[index]);
                let ends = |device: &DevicePlan| device.peak.total() - device.peak.variables - device.peak.constants - device.arena;
                peak += devices().map(|device| device.peak.constants).sum::<Bytes>();
                peak += devices().map(|device| device.arena).max().unwrap_or_default();
                peak += devices().map(ends).max().unwrap_or_default();
            }
            self.raise(index, peak, || {
                let mut holders: Vec<Holder> = lanes.iter().flatten().flat_map(|plan| plan.devices[index].holders.clone()).collect();
                sort(&mut holders);
                // Variables are the same in every plan.
                holders.dedup();
                holders
            });
        }
    }

    /// Gives storage to the variables of a plan that have none.
    fn settle(&mut self, plan: &Plan) {
        for (index, spec) in self.specs.iter().enumerate() {
            let is_new = |variable: &&PlanVariable| {
                variable.device.index() == index && variable.kind != VariableKind::State && !self.variables.contains(&variable.key)
            };
            let new: Bytes = plan.variables.iter().filter(is_new).map(|variable| Bytes(variable.bytes()).round_up(spec.alignment)).sum();
            self.resident[index] += new.round_up(spec.granularity);
        }
        self.variables.extend(plan.variables.iter().map(|variable| variable.key.clone()));
    }

    fn raise(&mut self, index: usize, peak: Bytes, holders: impl FnOnce() -> Vec<Holder>) {
        let need = &mut self.needs[index];
        if peak > need.peak {
            need.peak = peak;
            need.holders = holders();
        }
    }

    /// What every device has to give.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// The smallest limit that is enough, given to every device that has one; to every device, where none has, or where those
    /// that have hold nothing.
    pub fn minimum_limit(&self) -> Bytes {
        let limited = self.needs.iter().any(|need| need.limit.is_some() && need.peak > Bytes::ZERO);
        self.needs.iter().filter(|need| need.limit.is_some() || !limited).map(|need| need.peak).max().unwrap_or_default()
    }

    /// Adds what another session needs at the same time. What a device takes for itself counts once.
    pub fn join(&mut self, other: &Footprint) {
        for ((need, more), spec) in self.needs.iter_mut().zip(&other.needs).zip(&self.specs) {
            let shared = if need.peak > Bytes::ZERO { spec.overhead } else { Bytes::ZERO };
            need.peak += more.peak - shared;
            need.holders.extend(more.holders.iter().cloned());
            sort(&mut need.holders);
        }
    }

    /// Whether every need stays under its line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for the first device where it does not: the least limit, the shortfall, the three largest holders,
    /// and what would help.
    pub fn check(&self) -> Result<()> {
        for need in &self.needs {
            let Some(limit) = need.limit.filter(|limit| need.peak > *limit) else { continue };
            let holders: Vec<String> = need.holders.iter().take(3).map(|holder| format!("{} ({})", holder.name, holder.bytes)).collect();
            let holders = if holders.is_empty() { String::new() } else { format!("; at the peak {} take most", holders.join(", ")) };
            let message = format!(
                "{} bytes are needed and the limit is {} bytes ({limit}): {} bytes short{holders}",
                need.peak.0,
                limit.0,
                (need.peak - limit).0
            );
            let remedy = format!("raise the limit to {} bytes, feed a smaller batch, or move nodes to another device", need.peak.0);
            return Err(Error::resource_exhausted(message).on_device(&need.name).with_remedy(remedy));
        }
        Ok(())
    }
}

/// The largest first.
fn sort(holders: &mut [Holder]) {
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
}
