//! Towers that step together: one run a step, in which gradients are averaged.

use std::time::Duration;

use plimsoll::{Callable, Error, HostTensor, Result, RunMetadata, Session, Signature, Times, Transfer};

use crate::data::{self, BatchSource, Component};
use crate::model::Together;
use crate::promise::Stage;
use crate::report::{Report, TowerReport};
use crate::trainer::{device_of, feeds, loss_tensor, number, with_references};

/// Takes steps.
pub(crate) struct Stepper {
    signature: Signature,
    /// The step, prepared; not while something else runs, so that plans do not add up.
    callable: Option<Callable>,
    /// For each tower a tensor for each component.
    batches: Vec<Vec<HostTensor>>,
    /// The loss, where there is one, then the metrics.
    scalars: Vec<HostTensor>,
    has_loss: bool,
    metrics: Vec<String>,
    times: Times,
    towers: Vec<Tower>,
}

struct Tower {
    device: usize,
    name: String,
    moved: u64,
}

impl Stepper {
    /// Steps of which every tower takes `each` examples, and their bytes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the feeds of towers are not the components of examples, or the loss is no scalar; the errors of
    /// planning.
    pub fn new(session: &Session, steps: &Together, components: &[Component], each: u64) -> Result<(Stepper, Stage)> {
        let signature = Stepper::signature(steps, components, each)?;
        let plan = session.plan_signature(&signature)?;
        let devices = steps.feeds.iter().map(|names| device_of(session, &names[0])).collect::<Result<Vec<_>>>()?;
        // Where gradients are applied.
        let home = steps.train.first().map(|target| device_of(session, target)).transpose()?;
        let transfers = plan.transfers();
        let tower = |device: &usize| Tower {
            device: *device,
            name: plan.devices()[*device].name.clone(),
            moved: moved(&transfers, *device, home) / devices.iter().filter(|other| *other == device).count() as u64,
        };
        let stepper = Stepper {
            signature,
            callable: None,
            batches: Vec::new(),
            scalars: plan.fetches().map(loss_tensor).collect::<Result<_>>()?,
            has_loss: steps.loss.is_some(),
            metrics: steps.metrics.iter().map(|metric| metric.name.clone()).collect(),
            times: Times { busy: vec![Duration::ZERO; plan.devices().len()], ..Times::default() },
            towers: devices.iter().map(tower).collect(),
        };
        Ok((stepper, Stage::Alone(Box::new(plan))))
    }

    /// The predicted seconds of a step, where they are known.
    ///
    /// # Errors
    /// Those of planning.
    pub fn predicted_seconds(&self, session: &Session) -> Result<Option<f64>> {
        Ok(session.plan_signature(&self.signature)?.predicted_seconds())
    }

    /// The signature of a step.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the feeds of towers are not the components of examples.
    pub fn signature(steps: &Together, components: &[Component], each: u64) -> Result<Signature> {
        if steps.feeds.is_empty() || steps.feeds.iter().any(|names| names.is_empty() || names.len() != components.len()) {
            let message = format!("an example has {} components, and towers are fed {:?}", components.len(), steps.feeds);
            return Err(Error::invalid_argument(message));
        }
        Ok(Signature {
            feeds: steps.feeds.iter().flat_map(|names| feeds(names, components, each)).collect(),
            fetches: steps.loss.iter().chain(steps.metrics.iter().map(|metric| &metric.tensor)).cloned().collect(),
            targets: steps.train.clone(),
            ..Signature::default()
        })
    }

    /// Makes room for batches. The promise was looked at before.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no memory.
    pub fn allocate(&mut self, components: &[Component], each: u64) -> Result<()> {
        self.batches = self.towers.iter().map(|_| data::batch(components, each)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Takes a step; the loss of its batch.
    ///
    /// # Errors
    /// The errors of reading the data and running the graph.
    pub fn step(&mut self, session: &Session, source: &mut dyn BatchSource) -> Result<Option<f32>> {
        self.step_by(session, source, |callable, feeds, fetches, times| callable.run_timed(feeds, fetches, times))?;
        self.loss()
    }

    fn loss(&self) -> Result<Option<f32>> {
        self.scalars.first().filter(|_| self.has_loss).map(number).transpose()
    }

    /// The metrics of the last step, each with its name.
    ///
    /// # Errors
    /// INTERNAL for one that is no number.
    pub fn metrics(&self) -> Result<Vec<(String, f32)>> {
        let values = &self.scalars[usize::from(self.has_loss)..];
        self.metrics.iter().zip(values).map(|(name, value)| Ok((name.clone(), number(value)?))).collect()
    }

    /// As [`Stepper::step`], and says what ran when.
    ///
    /// # Errors
    /// As [`Stepper::step`].
    pub fn step_with_stats(&mut self, session: &Session, source: &mut dyn BatchSource) -> Result<(Option<f32>, RunMetadata)> {
        let metadata = self.step_by(session, source, |callable, feeds, fetches, _| callable.run_with_stats(feeds, fetches))?;
        Ok((self.loss()?, metadata))
    }

    /// Prepares a step: its variables have storage, and those in files their values.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; the flaw of the files.
    pub fn load(&mut self, session: &Session) -> Result<()> {
        self.callable = Some(session.callable(&self.signature)?);
        Ok(())
    }

    fn step_by<R>(
        &mut self,
        session: &Session,
        source: &mut dyn BatchSource,
        run: impl FnOnce(&Callable, &[&HostTensor], &mut [&mut HostTensor], &mut Times) -> Result<R>,
    ) -> Result<R> {
        let callable = match &self.callable {
            Some(callable) => callable,
            None => self.callable.insert(session.callable(&self.signature)?),
        };
        let position = source.position();
        for batch in &mut self.batches {
            source.next_into(batch)?;
        }
        let Stepper { batches, scalars, times, .. } = self;
        let done = with_references(batches.iter().flatten(), &batches[0][0], |feeds| match &mut scalars[..] {
            // Nothing is allocated for a few.
            [] => run(callable, feeds, &mut [], times),
            [loss] => run(callable, feeds, &mut [loss], times),
            [loss, metric] => run(callable, feeds, &mut [loss, metric], times),
            [loss, first, second] => run(callable, feeds, &mut [loss, first, second], times),
            many => run(callable, feeds, &mut many.iter_mut().collect::<Vec<_>>(), times),
        });
        if done.is_err() {
            // Nothing was learned from the examples: they come again.
            source.seek(position);
        }
        done
    }

    /// Gives back the bytes of a step beside the variables.
    pub fn release(&mut self) {
        self.callable = None;
    }

    /// How the towers fared.
    pub fn report(&self) -> Report {
        let tower = |tower: &Tower| TowerReport {
            device: tower.name.clone(),
            steps: self.times.runs,
            running: self.times.waiting + self.times.running,
            waiting: self.times.waiting + self.times.running.saturating_sub(self.times.busy[tower.device]),
            moved_bytes_per_step: tower.moved,
        };
        Report { towers: self.towers.iter().map(tower).collect(), staleness: None }
    }
}

/// The bytes copied to and from a device that is not the variables' own.
fn moved(transfers: &[Transfer], device: usize, home: Option<usize>) -> u64 {
    let touches = |transfer: &&Transfer| transfer.from == device || transfer.to == device;
    if Some(device) == home { 0 } else { transfers.iter().filter(touches).map(|transfer| transfer.bytes).sum() }
}
