//! Towers that do not wait for each other: a thread for each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plimsoll::{Callable, DataType, Error, HostTensor, Lane, Result, RunMetadata, Session, Shape, Signature, Times};

use crate::data::{self, BatchSource, Component};
use crate::model::Apart;
use crate::promise::Stage;
use crate::report::{Report, Staleness, TowerReport};
use crate::trainer::{Step, device_of, feeds, with_references};

/// Takes steps.
pub(crate) struct Stepper {
    towers: Vec<Tower>,
}

/// One tower, with the needs and notes of its thread.
struct Tower {
    device: String,
    pull: Signature,
    compute: Signature,
    push: Signature,
    batch: Vec<HostTensor>,
    pulled: HostTensor,
    loss: HostTensor,
    pushed: HostTensor,
    times: Times,
    staleness: Staleness,
    moved: u64,
}

/// A tower's runs, prepared.
struct Runs {
    pull: Callable,
    compute: Callable,
    push: Callable,
}

/// The conditions that end the steps.
pub(crate) struct Limits<'a> {
    /// How many steps to take.
    pub count: u64,
    /// Whether no other step may begin.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Whether an error is the end of a cancelled step.
    pub is_cancelled: &'a (dyn Fn(&Error) -> bool + Sync),
}

/// State that the threads share.
struct Shared<'a> {
    source: Mutex<&'a mut dyn BatchSource>,
    /// Steps that were begun.
    begun: AtomicU64,
    has_failed: AtomicBool,
    limits: &'a Limits<'a>,
    show: &'a (dyn Fn(Step) + Sync),
}

impl Stepper {
    /// Steps of one tower with `each` examples, and their bytes: all runs of all towers at once.
    ///
    /// # Errors
    /// The errors of planning.
    pub fn new(session: &Session, towers: &[Apart], components: &[Component], each: u64) -> Result<(Stepper, Stage)> {
        let mut built = Vec::with_capacity(towers.len());
        let mut lanes = Vec::with_capacity(towers.len() + 1);
        let mut pushes = Vec::with_capacity(towers.len());
        for names in towers {
            let one = |fetch: &String, target: &String| Signature {
                fetches: vec![fetch.clone()],
                targets: vec![target.clone()],
                ..Signature::default()
            };
            let (pull, push) = (one(&names.pulled, &names.pull), one(&names.pushed, &names.push));
            let compute = Signature { feeds: feeds(&names.feeds, components, each), ..one(&names.loss, &names.compute) };
            let plans = [&pull, &compute, &push].map(|signature| session.plan_signature(signature));
            let [pull_plan, compute_plan, push_plan] = plans;
            let (pull_plan, compute_plan, push_plan) = (pull_plan?, compute_plan?, push_plan?);
            let moved =
                [&pull_plan, &compute_plan, &push_plan].iter().flat_map(|plan| plan.transfers()).map(|transfer| transfer.bytes).sum();
            let device = device_of(session, &names.feeds[0])?;
            let count = || HostTensor::zeros(DataType::Int64, Shape::scalar());
            built.push(Tower {
                device: pull_plan.devices()[device].name.clone(),
                times: Times { busy: vec![Duration::ZERO; pull_plan.devices().len()], ..Times::default() },
                pull,
                compute,
                push,
                batch: Vec::new(),
                pulled: count()?,
                loss: HostTensor::zeros(DataType::Float, Shape::scalar())?,
                pushed: count()?,
                staleness: Staleness::default(),
                moved,
            });
            lanes.push(vec![pull_plan, compute_plan]);
            pushes.push(push_plan);
        }
        // They write the same variables: one at a time.
        lanes.push(pushes);
        Ok((Stepper { towers: built }, Stage::Lanes(lanes)))
    }

    /// Makes room for batches. The promise was looked at before.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no memory.
    pub fn allocate(&mut self, components: &[Component], each: u64) -> Result<()> {
        for tower in &mut self.towers {
            tower.batch = data::batch(components, each)?;
        }
        Ok(())
    }

    /// Takes steps within the limits. Returns how many, and the last one.
    ///
    /// # Errors
    /// The errors of reading the data and running the graph. Every tower has come to the end of its step then.
    pub fn run(
        &mut self,
        session: &Session,
        source: &mut dyn BatchSource,
        limits: &Limits<'_>,
        show: &(dyn Fn(Step) + Sync),
    ) -> Result<(u64, Option<Step>)> {
        let runs = match self.prepare(session) {
            Err(error) if (limits.is_cancelled)(&error) => return Ok((0, None)),
            runs => runs?,
        };
        let (begun, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Shared { source: Mutex::new(source), begun, has_failed, limits, show };
        let ended: Vec<Result<(u64, Option<Step>)>> = std::thread::scope(|scope| {
            let start = |(number, (tower, runs)): (usize, (_, Runs))| {
                let tower: &mut Tower = tower;
                let shared = &shared;
                let thread = std::thread::Builder::new().name(format!("tower-{number}"));
                thread.spawn_scoped(scope, move || {
                    let result = tower.work(&runs, shared);
                    if result.is_err() {
                        shared.has_failed.store(true, Ordering::Relaxed);
                    }
                    result
                })
            };
            let threads: Vec<_> = self.towers.iter_mut().zip(runs).enumerate().map(start).collect();
            if threads.iter().any(|thread| thread.is_err()) {
                shared.has_failed.store(true, Ordering::Relaxed);
            }
            let ended = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(Error::internal("a tower's thread panicked"))),
                Err(error) => Err(Error::resource_exhausted(format!("a tower's thread cannot start: {error}"))),
            };
            threads.into_iter().map(ended).collect()
        });
        let mut taken = 0;
        let mut last: Option<Step> = None;
        for tower in ended {
            let (steps, step) = tower?;
            taken += steps;
            last = [last, step].into_iter().flatten().max_by_key(|step| step.step);
        }
        Ok((taken, last))
    }

    /// Takes a step of the first tower alone, and says what ran when: its three runs, named.
    ///
    /// # Errors
    /// As [`Stepper::run`].
    pub fn step_with_stats(&mut self, session: &Session, source: &mut dyn BatchSource) -> Result<(Step, Vec<(&'static str, RunMetadata)>)> {
        let runs = self.prepare(session)?;
        match (self.towers.first_mut(), runs.first()) {
            (Some(tower), Some(runs)) => tower.step_with_stats(runs, source),
            _ => Err(Error::internal("a training has no towers")),
        }
    }

    /// Prepares all runs, with the memory that they take: nothing can be refused after that.
    fn prepare(&self, session: &Session) -> Result<Vec<Runs>> {
        let mut runs = Vec::with_capacity(self.towers.len());
        for tower in &self.towers {
            let [pull, compute, push] = [&tower.pull, &tower.compute, &tower.push].map(|signature| session.callable(signature));
            runs.push(Runs { pull: pull?, compute: compute?, push: push? });
        }
        let pushing = session.lane(&runs.iter().map(|runs| &runs.push).collect::<Vec<_>>())?;
        let in_lanes = |runs: Runs| {
            let own: Lane = session.lane(&[&runs.pull, &runs.compute])?;
            Ok(Runs { pull: runs.pull.in_lane(&own)?, compute: runs.compute.in_lane(&own)?, push: runs.push.in_lane(&pushing)? })
        };
        runs.into_iter().map(in_lanes).collect()
    }

    /// How the towers fared.
    pub fn report(&self) -> Report {
        let tower = |tower: &Tower| {
            let running = tower.times.waiting + tower.times.running;
            TowerReport {
                device: tower.device.clone(),
                steps: tower.staleness.steps,
                running,
                waiting: running.saturating_sub(tower.times.busy.iter().sum()),
                moved_bytes_per_step: tower.moved,
            }
        };
        let mut staleness = Staleness::default();
        self.towers.iter().for_each(|tower| staleness.join(&tower.staleness));
        Report { towers: self.towers.iter().map(tower).collect(), staleness: Some(staleness) }
    }
}

impl Tower {
    /// Takes steps while there are some to take; how many, and the last one.
    fn work(&mut self, runs: &Runs, shared: &Shared<'_>) -> Result<(u64, Option<Step>)> {
        let (mut taken, mut last) = (0, None);
        let Limits { count, is_over, is_cancelled } = *shared.limits;
        while !is_over() && !shared.has_failed.load(Ordering::Relaxed) {
            if shared.begun.fetch_add(1, Ordering::Relaxed) >= count {
                break;
            }
            let step = match self.step(runs, shared) {
                Err(error) if is_cancelled(&error) => break,
                step => step?,
            };
            taken += 1;
            (shared.show)(step);
            last = Some(step);
        }
        Ok((taken, last))
    }

    fn step(&mut self, runs: &Runs, shared: &Shared<'_>) -> Result<Step> {
        shared.source.lock().unwrap_or_else(PoisonError::into_inner).next_into(&mut self.batch)?;
        let Tower { batch, pulled, loss, pushed, times, .. } = self;
        runs.pull.run_timed(&[], &mut [&mut *pulled], times)?;
        let feed = &batch[0];
        with_references(batch.iter(), feed, |feeds| runs.compute.run_timed(feeds, &mut [&mut *loss], times))?;
        runs.push.run_timed(&[], &mut [&mut *pushed], times)?;
        self.stepped()
    }

    fn step_with_stats(&mut self, runs: &Runs, source: &mut dyn BatchSource) -> Result<(Step, Vec<(&'static str, RunMetadata)>)> {
        source.next_into(&mut self.batch)?;
        let Tower { batch, pulled, loss, pushed, .. } = self;
        let pull = runs.pull.run_with_stats(&[], &mut [&mut *pulled])?;
        let feed = &batch[0];
        let compute = with_references(batch.iter(), feed, |feeds| runs.compute.run_with_stats(feeds, &mut [&mut *loss]))?;
        let push = runs.push.run_with_stats(&[], &mut [&mut *pushed])?;
        Ok((self.stepped()?, vec![("pull", pull), ("compute", compute), ("push", push)]))
    }

    /// Notes a step that was taken.
    fn stepped(&mut self) -> Result<Step> {
        let count = |tensor: &HostTensor| tensor.as_slice::<i64>().map(|values| values[0] as u64);
        let (before, after) = (count(&self.pulled)?, count(&self.pushed)?);
        self.staleness.add(after.saturating_sub(before + 1));
        Ok(Step { step: after, loss: Some(self.loss.as_slice::<f32>()?[0]) })
    }
}
