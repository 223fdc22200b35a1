//! A case on devices: planned as a whole, then run step by step.

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_graph::HostTensor;

use super::{Case, Distance, compare};
use crate::peaks::Peak;
use crate::{Callable, Cancellation, Devices, Footprint, Plan, Session, Signature};

/// A step, in names of the graph.
pub(super) struct CaseCall {
    pub(super) feeds: Vec<String>,
    pub(super) fetches: Vec<String>,
    pub(super) targets: Vec<String>,
}

/// A case on devices.
pub struct Replay<'a> {
    case: &'a Case,
    calls: Vec<CaseCall>,
    init: Vec<String>,
    devices: Devices,
    session: Session,
    footprint: Footprint,
    placement_log: Vec<String>,
    last: Option<Signature>,
}

/// How far a replay came that compares, and how far its values were from the recorded ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verified {
    /// Steps that were run and compared.
    pub steps: usize,
    /// The largest [`Distance::error`](super::Distance::error); at most 1 passes.
    pub worst_error: f64,
}

impl<'a> Replay<'a> {
    pub(super) fn new(case: &'a Case, devices: Devices, session: Session, calls: Vec<CaseCall>, init: Vec<String>) -> Result<Replay<'a>> {
        let footprint = Footprint::new(devices.specs());
        let mut replay = Replay { case, calls, init, devices, session, footprint, placement_log: Vec::new(), last: None };
        if replay.devices.options().placement.looks_at_runs() {
            let placed = replay.devices.place(&replay.session, &replay.signatures()?, &[]).map_err(|error| match error.code() {
                Code::ResourceExhausted => error.context(case.name()),
                _ => error,
            })?;
            replay.placement_log = placed.log.iter().map(|line| format!("{}: {line}", case.name())).collect();
            replay.session = placed.session;
        }
        Ok(replay)
    }

    /// The attempts of a placement by first fit or by time; none by TensorFlow's rules.
    pub fn placement_log(&self) -> &[String] {
        &self.placement_log
    }

    /// The replay, where `cancellation` ends runs.
    #[must_use]
    pub fn until(self, cancellation: &Cancellation) -> Self {
        Replay { session: self.session.until(cancellation), ..self }
    }

    /// Plans all that will run, before anything does.
    ///
    /// # Errors
    /// The errors of planning, but for the one that a step has to fail with; RESOURCE_EXHAUSTED where it does not fit.
    pub fn plan(&mut self) -> Result<()> {
        if !self.init.is_empty() {
            let plan = self.session.plan_signature(&Signature { targets: self.init.clone(), ..Signature::default() })?;
            self.footprint.add(&plan);
        }
        let mut known: Vec<(Signature, Plan)> = Vec::new();
        for step in 0..self.case.steps() {
            let signature = match (self.signature(step), self.case.error(step)) {
                // The step fails before it starts.
                (Err(error), Some(code)) if error.code().name() == code => continue,
                (signature, _) => signature?,
            };
            let position = known.iter().position(|(other, _)| *other == signature).unwrap_or(known.len());
            if position == known.len() {
                let plan = self.session.plan_signature(&signature)?;
                known.push((signature, plan));
            }
            self.footprint.add(&known[position].1);
        }
        self.footprint.check()
    }

    /// The plans of all that will run: that of the initializer, and of every step that is unlike those before it.
    ///
    /// # Errors
    /// As [`Replay::plan`], but for what does not fit.
    pub fn plans(&self) -> Result<Vec<Plan>> {
        self.signatures()?.iter().map(|signature| self.session.plan_signature(signature)).collect()
    }

    /// The runs of a case: the initializer, and every step that is unlike those before it.
    fn signatures(&self) -> Result<Vec<Signature>> {
        let mut signatures = Vec::new();
        if !self.init.is_empty() {
            signatures.push(Signature { targets: self.init.clone(), ..Signature::default() });
        }
        for step in 0..self.case.steps() {
            let signature = match (self.signature(step), self.case.error(step)) {
                // The step fails before it starts.
                (Err(error), Some(code)) if error.code().name() == code => continue,
                (signature, _) => signature?,
            };
            if !signatures.contains(&signature) {
                signatures.push(signature);
            }
        }
        Ok(signatures)
    }

    /// The signature of a step, with the elements of feeds where its plan depends on them.
    fn signature(&self, step: usize) -> Result<Signature> {
        let (fetches, targets) = self.wanted(step);
        self.session.signature(&self.case.feeds(&self.calls[step], step)?, &fetches, &targets)
    }

    /// The names of a step's fetches and targets.
    fn wanted(&self, step: usize) -> (Vec<&str>, Vec<&str>) {
        let call = &self.calls[step];
        (call.fetches.iter().map(String::as_str).collect(), call.targets.iter().map(String::as_str).collect())
    }

    fn init_targets(&self) -> Vec<&str> {
        self.init.iter().map(String::as_str).collect()
    }

    /// Runs the operations that initialise.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn init(&self) -> Result<()> {
        if !self.init.is_empty() {
            self.session.run(&[], &[], &self.init_targets())?;
            self.session.release_unused();
        }
        Ok(())
    }

    /// Runs a step that has to fail, if it is one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it does not, or not with the code that it has to fail with.
    pub fn fail(&mut self, step: usize) -> Result<bool> {
        let Some(code) = self.case.error(step) else { return Ok(false) };
        match self.step(step) {
            Err(error) if error.code().name() == code => Ok(true),
            Err(error) => Err(Error::invalid_argument(format!("fails with another code than {code}: {error}"))),
            Ok(_) => Err(Error::invalid_argument(format!("does not fail with {code}"))),
        }
    }

    /// Runs a step; the values of its fetches.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn step(&mut self, step: usize) -> Result<Vec<HostTensor>> {
        let feeds = self.case.feeds(&self.calls[step], step)?;
        let (fetches, targets) = self.wanted(step);
        let signature = self.session.signature(&feeds, &fetches, &targets)?;
        let is_new = self.last.as_ref() != Some(&signature);
        if is_new {
            // Constants of the plan before would count beside those of this one.
            self.session.release_unused();
            self.last = Some(signature);
        }
        let (fetches, targets) = self.wanted(step);
        self.session.run(&feeds, &fetches, &targets)
    }

    /// Runs the steps, and compares every value that they fetch with the recorded one. `verified` says how far it came.
    ///
    /// # Errors
    /// Why the case fails: an error of a step, or the first value that is too far from the recorded one.
    pub fn verify(&mut self, verified: &mut Verified) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        self.init().map_err(text)?;
        let mut first_miss = None;
        for step in 0..self.case.steps() {
            let at = |error: Error| format!("step {step}: {error}");
            if self.fail(step).map_err(at)? {
                verified.steps += 1;
                continue;
            }
            let values = self.step(step).map_err(at)?;
            let (rtol, atol) = self.case.tolerance();
            for ((name, file), got) in self.case.fetches(step).zip(&values) {
                let want = self.case.array(file).map_err(text)?;
                let distance = compare(got, &want, rtol, atol).map_err(|reason| format!("step {step}: {name} {reason}"))?;
                verified.worst_error = verified.worst_error.max(distance.error);
                if distance.error > 1.0 && first_miss.is_none() {
                    let Distance { element, got, want, .. } = distance;
                    first_miss = Some(format!("step {step}: {name}, element {element}: {got} instead of {want}"));
                }
            }
            verified.steps += 1;
        }
        first_miss.map_or(Ok(()), Err)
    }

    /// Runs all before the last step that does not fail; that step, prepared, and its feeds.
    ///
    /// # Errors
    /// The error of a step; INVALID_ARGUMENT where every step fails.
    pub fn last(&mut self) -> Result<(Callable, Vec<HostTensor>)> {
        self.init()?;
        let step = self.case.last()?;
        for before in 0..step {
            if !self.fail(before)? {
                self.step(before)?;
            }
        }
        self.session.release_unused();
        let feeds = self.case.feeds(&self.calls[step], step)?;
        let (fetches, targets) = self.wanted(step);
        let callable = self.session.callable_for(&feeds, &fetches, &targets)?;
        Ok((callable, feeds.into_iter().map(|(_, tensor)| tensor).collect()))
    }

    /// The picture of the plan of the last step that does not fail. Where the plan has no stages, with what less memory costs.
    ///
    /// # Errors
    /// The errors of planning; INVALID_ARGUMENT where every step fails.
    pub fn picture(&self) -> Result<plimsoll_page::picture::Model> {
        let signature = self.signature(self.case.last()?)?;
        let plan = self.session.plan_signature(&signature)?.with_footprint(&self.footprint).with_minimum(self.minimum_limit()?);
        let curves = if plan.stages().is_none() { self.session.curves(&signature)? } else { Vec::new() };
        Ok(plan.picture_of_model(self.case.name(), &curves))
    }

    /// The predicted seconds of the last step that does not fail; none where a device has neither a table of costs nor a virtual clock.
    ///
    /// # Errors
    /// As [`Replay::picture`].
    pub fn predicted_seconds(&self) -> Result<Option<f64>> {
        Ok(self.session.plan_signature(&self.signature(self.case.last()?)?)?.predicted_seconds())
    }

    /// The devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The promised peak of each device beside the measured one.
    pub fn peaks(&self) -> Vec<Peak> {
        Peak::of(&self.devices, self.footprint.needs())
    }

    /// The smallest limit that is enough, given to every device that has one; to every device, where none has. See
    /// [`Session::minimum_limit`].
    ///
    /// # Errors
    /// The errors of planning.
    pub fn minimum_limit(&self) -> Result<Bytes> {
        self.session.minimum_limit(&self.signatures()?, &self.footprint)
    }
}
