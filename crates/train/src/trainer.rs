//! A training: plans and promise first, then steps.

use std::path::{Path, PathBuf};

use plimsoll::{Cancellation, DataType, Devices, Error, Feed, Graph, HostTensor, Result, RunMetadata, Session, Shape, Signature};

use crate::apart;
use crate::checkpoint::{self, Order, Progress};
use crate::data::{self, BatchSource, Component, DataSet, digits};
use crate::model::{self, Model, OptimizerKind, Parts, Recipe, Scores, Steps, Towers, TrainingGraph};
use crate::promise::{Promise, Stage};
use crate::report::Report;
use crate::together;

/// The options of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Replicas of the network.
    pub towers: usize,
    /// The logical GPUs that they go to, the first tower's first, counted round and round; in their own order where it is empty.
    pub gpus: Vec<u32>,
    /// Examples of a step: of all towers together, or of the one that takes the step.
    pub batch_size: u64,
    /// How variables learn; the model's own way where it is not said.
    pub optimizer: Option<OptimizerKind>,
    /// The rate; by default one that suits model and optimizer.
    pub learning_rate: Option<f32>,
    /// Decides first values and the order of examples.
    pub seed: i64,
    /// Whether each tower takes steps of its own, without waiting for the others.
    pub is_async: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { towers: 2, gpus: Vec::new(), batch_size: 128, optimizer: None, learning_rate: None, seed: 0, is_async: false }
    }
}

/// Batches that are evaluated are as large as a tower's, within these bounds: then evaluating takes no more than training.
const EVALUATION_BATCH: [u64; 2] = [32, 128];

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// How many steps were taken, with this one.
    pub step: u64,
    /// The loss of its batch, before its update, where the training has one.
    pub loss: Option<f32>,
}

/// How well the network does on examples that it did not learn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The means over all examples, each with its name. Of what counts the examples that are right, it is their share.
    pub results: Vec<(String, f64)>,
}

impl Evaluation {
    /// The result of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.results.iter().find(|(result, _)| result == name).map(|(_, value)| *value)
    }
}

/// A training on devices. [`Trainer::new`] plans it and holds the plans against the lines; nothing has run then and no
/// device memory is taken.
pub struct Trainer {
    session: Session,
    /// The session of the steps, and the handle that ends them.
    steps_in: Session,
    cancellation: Cancellation,
    placement_log: Vec<String>,
    promise: Promise,
    /// The target that gives variables their first values; none where they are all in files.
    init: Option<Signature>,
    evaluation: Option<Evaluates>,
    averaged: Option<Evaluates>,
    evaluation_batch: u64,
    copies: Vec<String>,
    form: Form,
    is_started: bool,
    source: Box<dyn BatchSource>,
    seed: i64,
    held_out: Option<Box<dyn BatchSource>>,
    step: u64,
}

/// What an evaluation runs, and the names of its results.
#[derive(Clone)]
struct Evaluates {
    signature: Signature,
    names: Vec<String>,
}

/// How steps are taken.
enum Form {
    Together(Box<together::Stepper>),
    Apart(apart::Stepper),
}

impl Trainer {
    /// A training of the handwritten digits.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn digits(devices: &Devices, config: &Config) -> Result<Trainer> {
        Trainer::new(devices, &model::DIGITS, digits::data_set(config.seed)?, config)
    }

    /// A training of a model, planned. Moving averages are kept where the model has them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the batch cannot be divided evenly among the towers that share it, or nothing of it is left. The
    /// errors of building the graph. As [`Trainer::with_graph`].
    pub fn new(devices: &Devices, model: &Model, data: DataSet, config: &Config) -> Result<Trainer> {
        let Config { towers, batch_size, seed, is_async, .. } = *config;
        let sharing = if is_async { 1 } else { towers as u64 };
        if towers == 0 || batch_size == 0 || batch_size % sharing != 0 {
            return Err(Error::invalid_argument(format!("a batch of {batch_size} cannot be divided evenly among {towers} towers")));
        }
        let recipe = recipe(model, config, data.training.examples())?;
        let build = if is_async { TrainingGraph::apart } else { TrainingGraph::together };
        let towers = Towers::many_on_these(devices, towers, &config.gpus);
        let graph = build(devices.registry(), &model.network, data.training.components(), &towers, &recipe)?;
        Trainer::with_graph(devices, graph.graph, graph.parts, data, batch_size / sharing, seed)
    }

    /// A training of a graph that has all parts, planned: each tower takes batches of `each` examples. `seed` is that of the order
    /// of the examples.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a batch of more examples than there are, and for names that the graph does not have. It is also the error
    /// of feeds of other types or shapes than the graph's, and of a loss that is no scalar of float or double. The errors of
    /// planning. RESOURCE_EXHAUSTED where the peak of the training is over a line, with the shortfall, the largest holders and a remedy.
    pub fn with_graph(devices: &Devices, graph: Graph, parts: Parts, data: DataSet, each: u64, seed: i64) -> Result<Trainer> {
        let taken = match &parts.steps {
            Steps::Together(steps) => each.saturating_mul(steps.feeds.len() as u64),
            Steps::Apart(_) => each,
        };
        if taken > data.training.examples() {
            let error = Error::invalid_argument(format!("a step takes {taken} examples, and there are {}", data.training.examples()));
            return Err(error.with_remedy(format!("take batches of at most {}", data.training.examples())));
        }
        let components = data.training.components();
        let held_out = data.held_out.as_ref().map_or(0, |source| source.examples());
        let evaluation_batch = largest_divisor(held_out, each.clamp(EVALUATION_BATCH[0], EVALUATION_BATCH[1]).min(held_out));
        let evaluates = |scores: &Scores| Evaluates {
            signature: Signature {
                feeds: feeds(&scores.feeds, components, evaluation_batch),
                fetches: scores.results.iter().map(|score| score.tensor.clone()).collect(),
                ..Signature::default()
            },
            names: scores.results.iter().map(|score| score.name.clone()).collect(),
        };
        let can_evaluate = |scores: &&Scores| !scores.feeds.is_empty() && evaluation_batch > 0;
        let [evaluation, averaged] = [&parts.evaluation, &parts.averaged].map(|scores| scores.as_ref().filter(can_evaluate).map(evaluates));
        let mut session = devices.session_with(graph, &parts.values, Vec::new())?;
        let targets = if parts.init.is_empty() { session.preparation().to_vec() } else { parts.init.clone() };
        let init = Some(Signature { targets, ..Signature::default() }).filter(|init| !init.targets.is_empty());
        let mut placement_log = Vec::new();
        if devices.options().placement.looks_at_runs() {
            // Towers that step by themselves say where they are.
            if let Steps::Together(steps) = &parts.steps {
                let step = together::Stepper::signature(steps, components, each)?;
                let evaluations = [&evaluation, &averaged].into_iter().flatten().map(|evaluates| evaluates.signature.clone());
                let runs: Vec<Signature> = init.clone().into_iter().chain(evaluations).chain([step]).collect();
                let placed = devices.place(&session, &runs, &[])?;
                (session, placement_log) = (placed.session, placed.log);
            }
        }
        let (mut form, steps) = match &parts.steps {
            Steps::Together(steps) => {
                let (stepper, stage) = together::Stepper::new(&session, steps, components, each)?;
                (Form::Together(Box::new(stepper)), stage)
            }
            Steps::Apart(towers) => {
                let (stepper, stage) = apart::Stepper::new(&session, towers, components, each)?;
                (Form::Apart(stepper), stage)
            }
        };
        let alone = |signature: &Signature| Ok::<_, Error>(Stage::Alone(Box::new(session.plan_signature(signature)?)));
        let mut stages = init.iter().map(alone).collect::<Result<Vec<_>>>()?;
        stages.push(steps);
        for evaluates in [&evaluation, &averaged].into_iter().flatten() {
            let stage = alone(&evaluates.signature)?;
            if let Stage::Alone(plan) = &stage {
                plan.fetches().try_for_each(check_score)?;
            }
            stages.push(stage);
        }
        let promise = Promise::new(devices.specs(), stages);
        promise.check()?;
        match &mut form {
            Form::Together(stepper) => stepper.allocate(components, each)?,
            Form::Apart(stepper) => stepper.allocate(components, each)?,
        }
        Ok(Trainer {
            steps_in: session.clone(),
            cancellation: Cancellation::new(),
            session,
            placement_log,
            promise,
            init,
            evaluation,
            averaged,
            evaluation_batch,
            copies: parts.copies,
            form,
            is_started: false,
            source: data.training,
            seed,
            held_out: data.held_out,
            step: 0,
        })
    }

    /// The peaks that it will have.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// The predicted seconds of a step of all towers together. None where each tower steps by itself, and where a device has neither a
    /// table of costs nor a virtual clock.
    ///
    /// # Errors
    /// Those of planning.
    pub fn predicted_seconds(&self) -> Result<Option<f64>> {
        match &self.form {
            Form::Together(stepper) => stepper.predicted_seconds(&self.session),
            Form::Apart(_) => Ok(None),
        }
    }

    /// The attempts to place it by first fit, a line each, the last of them chosen; nothing by TensorFlow's rules.
    pub fn placement_log(&self) -> &[String] {
        &self.placement_log
    }

    /// The training, where `cancellation` ends steps: those that compute, and those that wait for variables or room. A step that is
    /// ended is not counted. Its examples come again if towers step together.
    #[must_use]
    pub fn until(self, cancellation: &Cancellation) -> Trainer {
        Trainer { steps_in: self.session.until(cancellation), cancellation: cancellation.clone(), ..self }
    }

    /// Whether a step was ended when it may have changed a part of the variables: they are the result of no whole step.
    pub fn is_torn(&self) -> bool {
        self.cancellation.has_interrupted()
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Steps taken, those before a checkpoint included.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The metrics of the last step, each with its name.
    ///
    /// # Errors
    /// INTERNAL for a metric that is no number.
    pub fn metrics(&self) -> Result<Vec<(String, f32)>> {
        match &self.form {
            Form::Together(stepper) => stepper.metrics(),
            Form::Apart(_) => Ok(Vec::new()),
        }
    }

    /// How many examples it learns from.
    pub fn examples(&self) -> u64 {
        self.source.examples()
    }

    /// How the towers fared in the steps taken here.
    pub fn report(&self) -> Report {
        match &self.form {
            Form::Together(stepper) => stepper.report(),
            Form::Apart(stepper) => stepper.report(),
        }
    }

    /// Gives the variables their first values, or those of a checkpoint. Without this the first step does it. A checkpoint that
    /// TensorFlow wrote says how many steps were taken (`global_step`), and nothing of the data: examples come from the first on.
    ///
    /// # Errors
    /// As [`checkpoint::restore`]; the errors of running the graph.
    pub fn start(&mut self, resume: Option<&Path>) -> Result<()> {
        self.release();
        // The initializer runs before a restore, too: it gives all variables storage, in one piece.
        match (&self.init, &mut self.form) {
            (Some(init), _) => drop(self.session.callable(init)?.run(&[])?),
            (None, Form::Together(stepper)) => stepper.load(&self.session)?,
            (None, Form::Apart(_)) => {}
        }
        self.release();
        if let Some(path) = resume {
            let restored = checkpoint::restore(path, &self.session, &self.copies)?;
            self.step = restored.step;
            if let Some(Order { position, seed }) = restored.order {
                self.seed = seed;
                self.source.reseed(seed);
                self.source.seek(position);
            }
        }
        self.is_started = true;
        Ok(())
    }

    /// Takes a step. Where towers step together, nothing is allocated from the second on, until something else is done.
    ///
    /// # Errors
    /// The errors of running the graph.
    pub fn step(&mut self) -> Result<Step> {
        let last = self.run(self.step + 1, &|| false, &|_| {})?;
        last.ok_or_else(|| Error::internal("no step was taken"))
    }

    /// Takes steps until there are `until` of them, `is_over` is true, or the cancellation of [`Trainer::until`] ends one. Returns
    /// the last one that was taken here. `show` is called with every step. If each tower takes its own, the calls come out of order,
    /// and from several threads.
    ///
    /// # Errors
    /// The errors of running the graph or reading the data.
    pub fn run(&mut self, until: u64, is_over: &(dyn Fn() -> bool + Sync), show: &(dyn Fn(Step) + Sync)) -> Result<Option<Step>> {
        if !self.is_started {
            self.start(None)?;
        }
        let mut last = None;
        match &mut self.form {
            Form::Together(stepper) => {
                while self.step < until && !is_over() {
                    let loss = match stepper.step(&self.steps_in, &mut *self.source) {
                        Err(error) if self.cancellation.error().is_some_and(|why| why.kind() == error.kind()) => break,
                        loss => loss?,
                    };
                    self.step += 1;
                    let step = Step { step: self.step, loss };
                    show(step);
                    last = Some(step);
                }
            }
            Form::Apart(stepper) => {
                let is_cancelled = |error: &Error| self.cancellation.error().is_some_and(|why| why.kind() == error.kind());
                let limits = apart::Limits { count: until.saturating_sub(self.step), is_over, is_cancelled: &is_cancelled };
                let (taken, step) = stepper.run(&self.steps_in, &mut *self.source, &limits, show)?;
                self.step += taken;
                last = step;
            }
        }
        Ok(last)
    }

    /// Takes a step, and says what ran when on which device. That is its run, or where each tower takes steps of its own, the runs
    /// of one tower's step, each with its name.
    ///
    /// # Errors
    /// The errors of running the graph.
    pub fn step_with_stats(&mut self) -> Result<(Step, Vec<(&'static str, RunMetadata)>)> {
        if !self.is_started {
            self.start(None)?;
        }
        let stepped = match &mut self.form {
            Form::Together(stepper) => {
                let (loss, metadata) = stepper.step_with_stats(&self.steps_in, &mut *self.source)?;
                (Step { step: self.step + 1, loss }, vec![("step", metadata)])
            }
            Form::Apart(stepper) => stepper.step_with_stats(&self.steps_in, &mut *self.source)?,
        };
        self.step += 1;
        Ok(stepped)
    }

    /// How well the network does on the held-out examples now.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there are none, or the graph does not have them; the errors of running it.
    pub fn evaluate(&mut self) -> Result<Evaluation> {
        let nothing = || Error::failed_precondition("this training has no examples to test with");
        self.evaluate_with(self.evaluation.clone().ok_or_else(nothing)?)
    }

    /// As [`Trainer::evaluate`], with the moving averages in place of the variables; none where the training has none.
    ///
    /// # Errors
    /// The errors of running the graph.
    pub fn evaluate_averages(&mut self) -> Result<Option<Evaluation>> {
        self.averaged.clone().map(|evaluates| self.evaluate_with(evaluates)).transpose()
    }

    fn evaluate_with(&mut self, Evaluates { signature, names }: Evaluates) -> Result<Evaluation> {
        if !self.is_started {
            self.start(None)?;
        }
        self.release();
        let Some(source) = &mut self.held_out else { return Err(Error::internal("a training evaluates without examples")) };
        let evaluate = self.session.callable(&signature)?;
        let size = self.evaluation_batch;
        source.seek(0);
        let (count, mut batch) = (source.examples(), data::batch(source.components(), size)?);
        let mut outputs = evaluate.outputs()?;
        let mut sums = vec![0f64; outputs.len()];
        for _ in 0..count / size {
            source.next_into(&mut batch)?;
            evaluate.run_into(&batch.iter().collect::<Vec<_>>(), &mut outputs.iter_mut().collect::<Vec<_>>())?;
            for (sum, output) in sums.iter_mut().zip(&outputs) {
                *sum += match output.to_i64s().as_deref() {
                    Some([right]) => *right as f64,
                    _ => f64::from(number(output)?) * size as f64,
                };
            }
        }
        drop(evaluate);
        self.release();
        Ok(Evaluation { results: names.into_iter().zip(sums.into_iter().map(|sum| sum / count as f64)).collect() })
    }

    /// Gives back everything but the variables.
    fn release(&mut self) {
        match &mut self.form {
            Form::Together(stepper) => stepper.release(),
            // It holds nothing between runs.
            Form::Apart(_) => {}
        }
        self.session.release_unused();
    }

    /// Writes a checkpoint into a folder; its prefix.
    ///
    /// # Errors
    /// As [`checkpoint::save`]; FAILED_PRECONDITION where the training [is torn](Trainer::is_torn).
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        if self.is_torn() {
            return Err(Error::failed_precondition("a step was cancelled, and may have changed a part of the variables"));
        }
        let order = Order { position: self.source.position(), seed: self.seed };
        let progress = Progress { step: self.step, order: Some(order) };
        checkpoint::save(folder, &self.session, &self.copies, &progress)
    }
}

/// How a model learns as the configuration says, with so many examples.
fn recipe(model: &Model, config: &Config, examples: u64) -> Result<Recipe> {
    let optimizer = config.optimizer.unwrap_or(model.optimizer);
    let learning_rate = config.learning_rate.unwrap_or(model.rate(optimizer));
    if !learning_rate.is_finite() {
        return Err(Error::invalid_argument(format!("{learning_rate} is not a learning rate")));
    }
    // Whole steps, as in the tutorials.
    let steps = |epochs: f32| ((examples as f64 / config.batch_size as f64 * f64::from(epochs)).floor() as f32).max(1.0);
    Ok(Recipe {
        optimizer,
        learning_rate,
        decay: model.decay.map(|decay| (steps(decay.epochs), decay.factor)),
        moving_average: model.moving_average,
        seed: config.seed,
    })
}

/// Feeds of `count` examples.
pub(crate) fn feeds(names: &[String], components: &[Component], count: u64) -> Vec<Feed> {
    let feed = |(name, component): (&String, &Component)| Feed {
        tensor: name.clone(),
        data_type: component.data_type,
        shape: std::iter::once(count).chain(component.shape.iter().copied()).collect(),
        value: None,
    };
    names.iter().zip(components).map(feed).collect()
}

/// Feeds up to this number are passed on without allocating.
const FEEDS_ON_STACK: usize = 32;

/// Calls `run` with references to the tensors.
pub(crate) fn with_references<'a, R>(
    tensors: impl Iterator<Item = &'a HostTensor> + Clone,
    nothing: &'a HostTensor,
    run: impl FnOnce(&[&HostTensor]) -> R,
) -> R {
    let count = tensors.clone().count();
    if count > FEEDS_ON_STACK {
        return run(&tensors.collect::<Vec<_>>());
    }
    let mut few: [&HostTensor; FEEDS_ON_STACK] = [nothing; FEEDS_ON_STACK];
    few.iter_mut().zip(tensors).for_each(|(slot, feed)| *slot = feed);
    run(&few[..count])
}

/// The index of the device that a tensor's node is on.
pub(crate) fn device_of(session: &Session, tensor: &str) -> Result<usize> {
    let name = tensor.split(':').next().unwrap_or(tensor);
    let id = session.graph().find(name).ok_or_else(|| Error::not_found(format!("the graph has no node '{name}'")))?;
    // With place_pruned_graph a node has no device before a run is planned.
    session.device_of(id).ok_or_else(|| Error::unimplemented("not yet: training with graph_options.place_pruned_graph").at_node(name))
}

/// Whether a tensor can be a score.
fn check_score((name, data_type, shape): (&str, DataType, &Shape)) -> Result<()> {
    match data_type {
        _ if shape.rank() != 0 => {}
        DataType::Float | DataType::Double | DataType::Int32 | DataType::Int64 => return Ok(()),
        _ => {}
    }
    Err(Error::invalid_argument(format!("'{name}' is {data_type}{shape}, and a score is a scalar of float, double, int32 or int64")))
}

/// A tensor for the loss or a metric that a step fetches.
pub(crate) fn loss_tensor((name, data_type, shape): (&str, DataType, &Shape)) -> Result<HostTensor> {
    if shape.rank() != 0 || !matches!(data_type, DataType::Float | DataType::Double) {
        return Err(Error::invalid_argument(format!("'{name}' is {data_type}{shape}, and a loss is a scalar of float or double")));
    }
    HostTensor::zeros(data_type, shape.clone())
}

/// The value of a loss.
pub(crate) fn number(loss: &HostTensor) -> Result<f32> {
    match loss.data_type() {
        DataType::Double => Ok(loss.as_slice::<f64>()?[0] as f32),
        _ => Ok(loss.as_slice::<f32>()?[0]),
    }
}

/// The largest number up to `most` that divides `count`; 0 for none.
fn largest_divisor(count: u64, most: u64) -> u64 {
    (1..=most).rev().find(|size| count.is_multiple_of(*size)).unwrap_or(0)
}
