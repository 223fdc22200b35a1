//! Runs in stages, and their plans: see [`plimsoll_plan::Later`].

use std::sync::Arc;
use std::time::Instant;

use plimsoll_base::{Code, Error, Kind, Result};
use plimsoll_device::Trace;
use plimsoll_graph::{HostTensor, NodeId};
use plimsoll_ops::Lower;
use plimsoll_plan::{Between, Counted, Late, Later, Plan, Repeat, Signature, Value};

use super::Inner;
use super::iterations::{Part, Parts};
use crate::cancellation::{self, Cancellation};
use crate::loaded::Loaded;
use crate::run::{How, Prepared};
use crate::signatures::key;
use crate::stats::RunMetadata;
use crate::times::Times;

/// So many plans are made before a run in stages begins; where there are more, its peak is open.
const MOST_PLANS: usize = 16;

/// A plan, or the positions of the feeds whose elements it lacks, and the first node that does.
enum Planned {
    Plan(Arc<Plan>),
    Lacks(Vec<usize>, NodeId, Error),
}

/// Whether a signature that cannot be planned for this reason may run in stages.
pub(super) fn may_help(error: &Error) -> bool {
    error.kind() == Kind::NeedsValues || error.code() == Code::Unimplemented
}

/// How a run in stages is done.
pub(crate) struct Staged<'a> {
    /// The handle that may end the run early.
    pub cancellation: Option<&'a Cancellation>,
    /// Where to add how the time was spent.
    pub times: Option<&'a mut Times>,
    /// Where to add the records of its stages.
    pub records: Option<Vec<RunMetadata>>,
}

/// What a plan has fetched.
pub(super) fn fetched(tensors: Vec<HostTensor>, plan: &Plan) -> Vec<Value> {
    tensors.into_iter().zip(&plan.fetches).map(|(tensor, fetch)| Value::fetched(tensor, fetch)).collect()
}

pub(super) fn tensors<'a>(values: &[&'a Value]) -> Vec<&'a HostTensor> {
    values.iter().map(|value| &value.tensor).collect()
}

impl Inner {
    /// The plan of a signature: of its first stage, where it runs in several.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub(super) fn planned_in_stages(&self, signature: &Signature, cancellation: Option<&Cancellation>) -> Result<Arc<Plan>> {
        match self.stage(signature, cancellation, &mut MOST_PLANS.clone())? {
            Planned::Plan(plan) => Ok(plan),
            Planned::Lacks(_, _, error) => Err(error),
        }
    }

    /// As [`Inner::planned_in_stages`]; where it lacks the elements of feeds, the plan is open from the node on that they decide, and
    /// holds the feeds alone. It cannot run.
    pub(super) fn planned_as_known(&self, signature: &Signature, cancellation: Option<&Cancellation>) -> Result<Plan> {
        match self.stage(signature, cancellation, &mut MOST_PLANS.clone())? {
            Planned::Plan(plan) => Ok(Plan::clone(&plan)),
            Planned::Lacks(feeds, from, _) => {
                let nothing = Signature { fetches: Vec::new(), targets: Vec::new(), is_stage: true, ..signature.clone() };
                let later = Some(Arc::new(Later::behind_feeds(signature, &feeds, from)));
                Ok(Plan { later, ..Plan::clone(&*self.planned(&nothing, cancellation)?) })
            }
        }
    }

    /// As [`Inner::planned_in_stages`], with the elements of these feeds where it lacks them; and its signature.
    pub(super) fn planned_with(
        &self,
        signature: &Signature,
        feeds: &[&HostTensor],
        cancellation: Option<&Cancellation>,
    ) -> Result<(Signature, Arc<Plan>)> {
        let mut signature = signature.clone();
        loop {
            match self.stage(&signature, cancellation, &mut MOST_PLANS.clone())? {
                Planned::Plan(plan) => return Ok((signature, plan)),
                Planned::Lacks(positions, _, error) => {
                    let before = signature.feeds.iter().filter(|feed| feed.value.is_some()).count();
                    for position in positions {
                        signature.feeds[position].value = feeds.get(position).map(|feed| (*feed).clone());
                    }
                    if signature.feeds.iter().filter(|feed| feed.value.is_some()).count() == before {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// A signature that is fed with these, ready to run, and whether it is so for other elements of them, too. Its arenas are those of
    /// `outer`, the plan for larger sizes, where there is one.
    pub(super) fn ready(
        &self,
        signature: &Signature,
        feeds: &[&HostTensor],
        outer: Option<&Plan>,
        cancellation: Option<&Cancellation>,
    ) -> Result<(Arc<Loaded>, bool)> {
        let key = key(signature);
        if let Some(loaded) = self.plans().loaded(&key, &[signature]) {
            return Ok((loaded, true));
        }
        let _one = cancellation::lock(&self.loading, cancellation)?;
        if let Some(loaded) = self.plans().loaded(&key, &[signature]) {
            return Ok((loaded, true));
        }
        let (valued, mut plan) = self.planned_with(signature, feeds, cancellation)?;
        let is_for_all = valued == *signature;
        let signature = valued;
        if let Some(loaded) = self.plans().loaded(&key, &[&signature]) {
            return Ok((loaded, is_for_all));
        }
        if let Some(outer) = outer.filter(|outer| outer.later.is_none() && plan.later.is_none()) {
            plan = Arc::new(self.requested(&signature, |request| plimsoll_plan::within(request, Plan::clone(&plan), outer))?);
        }
        self.load(&key, &signature, plan, cancellation).map(|loaded| (loaded, is_for_all))
    }

    /// A run in stages: what it fetches. Adds its records, where they are wanted. Between two stages it holds nothing of the devices.
    ///
    /// # Errors
    /// As [`crate::Callable::run_into`].
    pub fn run_stages(&self, loaded: Arc<Loaded>, feeds: &[&Value], how: &mut Staged<'_>) -> Result<Vec<Value>> {
        let mut loaded = loaded;
        let mut stages: Vec<(Arc<Later>, Vec<Value>)> = Vec::new();
        let mut made = loop {
            let plan = &loaded.plan;
            let feeds: Vec<&Value> = feeds.iter().copied().chain(stages.iter().flat_map(|(_, made)| made)).collect();
            let mut made: Vec<HostTensor> =
                plan.fetches.iter().map(|fetch| HostTensor::zeros(fetch.data_type, fetch.shape.clone())).collect::<Result<_>>()?;
            if !plan.feeds.is_empty() || !plan.fetches.is_empty() || !plan.queues.is_empty() {
                self.run_stage(&loaded, &tensors(&feeds), &mut made, how)?;
            }
            let mut made = fetched(made, plan);
            let Some(later) = plan.later.clone() else { break made };
            made = later.made(made)?;
            for between in &later.between {
                let values: Vec<&Value> = feeds.iter().copied().chain(&made).collect();
                let results = match between {
                    Between::Counted(counted) => self.counted(counted, &values)?,
                    Between::Loop(repeat) => self.repeat(repeat, &values, how)?,
                };
                made.extend(results);
            }
            let feeds: Vec<&HostTensor> = feeds.into_iter().chain(&made).map(|value| &value.tensor).collect();
            let outer = match &later.plans[..] {
                [outer] if later.is_bound() => Some(&**outer),
                _ => None,
            };
            let (next, _) = self.ready(&later.signature(&made), &feeds, outer, how.cancellation)?;
            stages.push((later, made));
            loaded = next;
        };
        for (later, first) in stages.into_iter().rev() {
            made = later.assemble(&first, &made)?;
        }
        Ok(made)
    }

    fn run_stage(&self, loaded: &Loaded, feeds: &[&HostTensor], made: &mut [HostTensor], how: &mut Staged<'_>) -> Result<()> {
        self.run_part_of(loaded, feeds, made, how)?;
        self.give_back(loaded);
        Ok(())
    }

    /// Gives back what a stage had of the devices: the peak of a run is that of one stage.
    pub(super) fn give_back(&self, loaded: &Loaded) {
        self.grants().kept().arenas.clear();
        loaded.constants().give_back();
    }

    /// Runs a stage, whose arenas and constants stay.
    pub(super) fn run_part_of(&self, loaded: &Loaded, feeds: &[&HostTensor], made: &mut [HostTensor], how: &mut Staged<'_>) -> Result<()> {
        let plan = &loaded.plan;
        let trace = how.records.is_some().then(|| Trace::new(plan.queues.iter().map(|queue| queue.program.commands.len())));
        let start = Instant::now();
        let this = How { trace, times: how.times.as_deref_mut(), cancellation: how.cancellation };
        let mut fetches: Vec<&mut HostTensor> = made.iter_mut().collect();
        let done = Prepared::new(self, loaded, None, feeds, &mut fetches, this)?.admit()?.start()?.finish()?;
        if let (Some(records), Some(trace)) = (&mut how.records, done.trace) {
            records.push(RunMetadata::new(plan, self.graph(), self.devices().specs(), &trace, start.elapsed()));
        }
        Ok(())
    }

    /// The results of a node that is computed between two stages.
    fn counted(&self, counted: &Counted, values: &[&Value]) -> Result<Vec<Value>> {
        let node = self.graph.node(counted.node);
        let at = |error: Error| error.at_node(&node.name);
        let Lower::Counted(compute) = self.registry.require(&node.op).map_err(at)?.lower else {
            return Err(Error::internal("a node between two stages is none of those that are computed there").at_node(&node.name));
        };
        let inputs =
            counted.inputs.iter().map(|input| input.of(values)?.tensor.dense()).collect::<Result<Vec<HostTensor>>>().map_err(at)?;
        let results = compute(node, &inputs.iter().collect::<Vec<_>>()).map_err(at)?;
        let result =
            |output: &u32| results.get(*output as usize).cloned().map(Value::from).ok_or_else(|| Error::internal("a result is missing"));
        counted.outputs.iter().map(result).collect::<Result<_>>().map_err(at)
    }

    /// What leaves a loop, an iteration behind another.
    fn repeat(&self, repeat: &Repeat, values: &[&Value], how: &mut Staged<'_>) -> Result<Vec<Value>> {
        let mut values = repeat.first.iter().map(|first| first.of(values)).collect::<Result<Vec<Value>>>()?;
        let mut parts = Parts::new(self, Part::new(&repeat.test), Part::new(&repeat.body));
        loop {
            let tested = parts.test(&values, how)?;
            let goes = tested.first().and_then(|goes| Some(goes.tensor.dense().ok()?.bytes()?.first()? != &0));
            if !goes.ok_or_else(|| Error::internal("a loop without a condition").at_node(&repeat.name))? {
                break;
            }
            let next = parts.body(&values, how)?;
            let replace = |(number, next): (&usize, Value)| std::mem::replace(&mut values[*number], next);
            let replaced = repeat.goes.iter().zip(next).map(replace).collect();
            parts.done_with(tested, replaced);
        }
        let left = |number: &usize| values.get(*number).cloned().ok_or_else(|| Error::internal("a loop lacks a value"));
        repeat.exits.iter().map(left).collect()
    }

    /// The plan of a signature; `left` counts the plans that may still be made for it.
    fn stage(&self, signature: &Signature, cancellation: Option<&Cancellation>, left: &mut usize) -> Result<Planned> {
        *left = left.saturating_sub(1);
        let error = match self.planned(signature, cancellation) {
            Err(error) if may_help(&error) => error,
            plan => return plan.map(Planned::Plan),
        };
        let split = match self.requested_of(&self.graph, signature, |request| plimsoll_plan::late(request, &error))? {
            Some(Late::Stage(split)) => split,
            Some(Late::Feeds(positions, from)) => return Ok(Planned::Lacks(positions, from, error)),
            None => return Err(error),
        };
        let first = self.planned(&split.first, cancellation)?;
        let mut later = split.later;
        if let Some(within) = self.iterations(&later, cancellation, left)? {
            let plans = self.rests(&later, cancellation, left)?;
            later = later.with_plans(plans, within);
        }
        let later = Some(Arc::new(later));
        let plan = Arc::new(Plan { later, ..Plan::clone(&first) });
        self.plans().keep(&key(signature), signature, &plan, None);
        Ok(Planned::Plan(plan))
    }

    /// The plans of loops that the session drives, where their sizes stay the same; none where they may not.
    fn iterations(&self, later: &Later, cancellation: Option<&Cancellation>, left: &mut usize) -> Result<Option<Vec<Arc<Plan>>>> {
        let mut plans = Vec::new();
        for between in &later.between {
            let Between::Loop(repeat) = between else { continue };
            let Some(signatures) = repeat.signatures() else { return Ok(None) };
            for signature in signatures {
                if *left == 0 {
                    return Ok(None);
                }
                match self.stage(&signature, cancellation, left)? {
                    Planned::Plan(plan) if plan.later.as_ref().is_none_or(|later| !later.plans.is_empty()) => plans.push(plan),
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(plans))
    }

    /// All plans that the rest of a run may have, where these are few; else none.
    ///
    /// # Errors
    /// Where the rest cannot be planned for any values, why.
    fn rests(&self, later: &Later, cancellation: Option<&Cancellation>, left: &mut usize) -> Result<Vec<Arc<Plan>>> {
        let alternatives = later.alternatives()?;
        if alternatives.len() > *left {
            return Ok(Vec::new());
        }
        let (mut plans, mut refused, mut is_open) = (Vec::new(), None, false);
        for signature in &alternatives {
            match self.stage(signature, cancellation, left) {
                Ok(Planned::Plan(plan)) if plan.later.as_ref().is_none_or(|later| !later.plans.is_empty()) => plans.push(plan),
                Ok(_) => return Ok(Vec::new()),
                // A run that takes this way ends there.
                Err(error) if error.code() == Code::InvalidArgument => refused = Some(error),
                // Only a run that takes this way is refused.
                Err(error) if error.code() == Code::Unimplemented => (refused, is_open) = (Some(error), true),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) if plans.is_empty() => Err(error),
            _ if is_open => Ok(Vec::new()),
            _ => Ok(plans),
        }
    }
}
