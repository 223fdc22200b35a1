//! The iterations of a loop that the session drives: the runs of its condition and of its body, in turn.
//!
//! A run in stages holds the memory of one stage at a time. Between the condition and the body of one loop that would cost more than
//! the runs themselves. So arenas and constants stay where both parts together take no more than the larger one of them. The two are
//! never under way at once: they share the arena.

use std::sync::Arc;

use plimsoll_base::Result;
use plimsoll_graph::HostTensor;
use plimsoll_plan::{DevicePlan, Form, LoopPart, Plan, Value};

use super::Inner;
use super::stages::{Staged, fetched, tensors};
use crate::cancellation::Cancellation;
use crate::loaded::Loaded;

/// The condition or the body of a loop.
pub(super) struct Part<'a> {
    part: &'a LoopPart,
    /// What it was in the last iteration, which serves again while sizes stay the same.
    last: Option<Last>,
    /// Tensors of the last iteration, for what it fetches in the next one.
    spare: Vec<Value>,
}

struct Last {
    forms: Vec<Form>,
    loaded: Arc<Loaded>,
    /// Whether it serves for all elements.
    is_for_all: bool,
}

impl<'a> Part<'a> {
    pub fn new(part: &'a LoopPart) -> Part<'a> {
        Part { part, last: None, spare: Vec::new() }
    }

    /// Whether the last iteration's plan serves for these feeds, too.
    fn serves(&self, feeds: &[&Value]) -> bool {
        self.last.as_ref().is_some_and(|last| last.is_for_all && feeds.iter().zip(&last.forms).all(|(feed, form)| feed.has(form)))
    }

    /// The plan of the last iteration, if it is one stage.
    fn plan(&self) -> Option<&Plan> {
        self.last.as_ref().map(|last| &*last.loaded.plan).filter(|plan| plan.later.is_none())
    }
}

/// What stays on the devices between the parts of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stays {
    Nothing,
    Arenas,
    ArenasAndConstants,
}

impl Stays {
    /// The most that may stay between runs of these plans in turn.
    fn between(a: &Plan, b: &Plan) -> Stays {
        let of_device = |(a, b)| Stays::on(a, b);
        a.devices.iter().zip(&b.devices).map(of_device).min().unwrap_or(Stays::Nothing)
    }

    /// The most that may stay on a device so that it takes no more than for one of the two.
    fn on(a: &DevicePlan, b: &DevicePlan) -> Stays {
        let own = |device: &DevicePlan| device.peak.total() - device.peak.variables;
        let ends = |device: &DevicePlan| own(device).saturating_sub(device.arena + device.peak.constants);
        let (arena, most) = (a.arena.max(b.arena), own(a).max(own(b)));
        if arena + a.peak.constants + b.peak.constants + ends(a).max(ends(b)) <= most {
            Stays::ArenasAndConstants
        } else if arena + (a.peak.constants + ends(a)).max(b.peak.constants + ends(b)) <= most {
            Stays::Arenas
        } else {
            Stays::Nothing
        }
    }
}

/// The two parts of a loop.
pub(super) struct Parts<'a> {
    session: &'a Inner,
    parts: [Part<'a>; 2],
    stays: Stays,
}

impl<'a> Parts<'a> {
    pub fn new(session: &'a Inner, test: Part<'a>, body: Part<'a>) -> Parts<'a> {
        Parts { session, parts: [test, body], stays: Stays::Nothing }
    }

    /// Whether there is another iteration, which is given these values.
    ///
    /// # Errors
    /// As [`crate::Callable::run_into`].
    pub fn test(&mut self, values: &[Value], how: &mut Staged<'_>) -> Result<Vec<Value>> {
        self.run(0, values, how)
    }

    /// What an iteration hands on.
    ///
    /// # Errors
    /// As [`crate::Callable::run_into`].
    pub fn body(&mut self, values: &[Value], how: &mut Staged<'_>) -> Result<Vec<Value>> {
        self.run(1, values, how)
    }

    /// Tensors of the condition and of the body that nothing reads any more.
    pub fn done_with(&mut self, tested: Vec<Value>, replaced: Vec<Value>) {
        (self.parts[0].spare, self.parts[1].spare) = (tested, replaced);
    }

    fn run(&mut self, number: usize, values: &[Value], how: &mut Staged<'_>) -> Result<Vec<Value>> {
        if let Some(error) = how.cancellation.and_then(Cancellation::error) {
            return Err(error);
        }
        let part = self.parts[number].part;
        let feeds = part.feeds(values)?;
        if !self.parts[number].serves(&feeds) {
            self.give_back();
            let (loaded, is_for_all) = self.session.ready(&part.signature(&feeds), &tensors(&feeds), None, how.cancellation)?;
            let forms = feeds.iter().map(|feed| feed.form()).collect();
            self.parts[number].last = Some(Last { forms, loaded, is_for_all });
            self.stays = match (self.parts[0].plan(), self.parts[1].plan()) {
                (Some(test), Some(body)) => Stays::between(test, body),
                _ => Stays::Nothing,
            };
        }
        let Some(loaded) = self.parts[number].last.as_ref().map(|last| last.loaded.clone()) else { return Ok(Vec::new()) };
        if self.stays == Stays::Nothing {
            return part.made(self.session.run_stages(loaded, &feeds, how)?);
        }
        let plan = &loaded.plan;
        let mut spares = std::mem::take(&mut self.parts[number].spare);
        let mut made = Vec::with_capacity(plan.fetches.len());
        for fetch in &plan.fetches {
            let serves = |Value { tensor, .. }: &Value| {
                tensor.data_type() == fetch.data_type && *tensor.shape() == fetch.shape && tensor.bytes().is_some()
            };
            let spare = spares.iter().position(serves).map(|position| spares.swap_remove(position).tensor);
            made.push(spare.map_or_else(|| HostTensor::zeros(fetch.data_type, fetch.shape.clone()), Ok)?);
        }
        if !plan.feeds.is_empty() || !plan.fetches.is_empty() || !plan.queues.is_empty() {
            self.session.run_part_of(&loaded, &tensors(&feeds), &mut made, how)?;
        }
        if self.stays == Stays::Arenas {
            loaded.constants().give_back();
        }
        part.made(fetched(made, plan))
    }

    /// Gives back what stayed.
    fn give_back(&self) {
        if self.stays != Stays::Nothing {
            self.parts.iter().filter_map(|part| part.last.as_ref()).for_each(|last| self.session.give_back(&last.loaded));
        }
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;
    use plimsoll_device::DeviceKind;
    use plimsoll_plan::{Certainty, PeakParts};

    use super::*;

    /// What a plan takes of a device: variables, constants, its arena, what is fed and fetched.
    fn device([variables, constants, arena, transfer]: [u64; 4]) -> DevicePlan {
        let peak = PeakParts {
            variables: Bytes(variables),
            constants: Bytes(constants),
            activations: Bytes(arena),
            transfer: Bytes(transfer),
            ..PeakParts::default()
        };
        DevicePlan {
            name: "CPU:0".to_string(),
            kind: DeviceKind::Cpu,
            limit: None,
            machine: None,
            peak,
            certainty: Certainty::Exact,
            arena: Bytes(arena),
            packed: Bytes(arena),
            live: Bytes(arena),
            least: Bytes::ZERO,
            holders: Vec::new(),
        }
    }

    #[test]
    fn what_stays_takes_no_more_than_the_larger_part() {
        for (test, body, stays) in [
            ([0, 0, 8, 4], [0, 16, 64, 8], Stays::ArenasAndConstants),
            // Variables are there anyway.
            ([100, 0, 8, 4], [0, 16, 64, 8], Stays::ArenasAndConstants),
            // The constants of both, with the larger arena and the larger ends, are more than the body takes.
            ([0, 4, 8, 4], [0, 16, 64, 8], Stays::Arenas),
            // So is the body's arena with what is fed to the condition.
            ([0, 0, 8, 32], [0, 16, 64, 8], Stays::Nothing),
            ([0, 0, 0, 0], [0, 0, 0, 0], Stays::ArenasAndConstants),
        ] {
            assert_eq!(Stays::on(&device(test), &device(body)), stays, "{test:?} {body:?}");
            assert_eq!(Stays::on(&device(body), &device(test)), stays, "{body:?} {test:?}");
        }
    }
}
