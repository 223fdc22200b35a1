//! A training: plans and promise first, then steps.

use std::path::{Path, PathBuf};

use plimsoll::{Callable, DataType, Devices, Error, Feed, Graph, HostTensor, PlanFetch, Result, Session, Signature};

use crate::checkpoint::{self, Progress};
use crate::data::{self, BatchSource, Component, DataSet, digits};
use crate::model::{self, Network, OptimizerKind, Parts, Towers, TrainingGraph};
use crate::promise::Promise;

/// What can be said of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Replicas of the network.
    pub towers: usize,
    /// Examples of a step, all towers together.
    pub batch_size: u64,
    /// How variables learn.
    pub optimizer: OptimizerKind,
    /// How fast; the optimizer's default where it is not said.
    pub learning_rate: Option<f32>,
    /// Decides first values and the order of examples.
    pub seed: i64,
}

impl Default for Config {
    fn default() -> Config {
        Config { towers: 2, batch_size: 128, optimizer: OptimizerKind::default(), learning_rate: None, seed: 0 }
    }
}

/// The largest batch that is evaluated at once.
const EVALUATION_BATCH: u64 = 128;

/// Feeds up to this number are passed to a step without allocating.
const FEEDS_ON_STACK: usize = 32;

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// How many steps were taken, with this one.
    pub step: u64,
    /// The loss of its batch, before its update, where the training has one.
    pub loss: Option<f32>,
}

/// How well the network does on examples that it did not learn from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f32,
    /// The share that it gets right.
    pub accuracy: f64,
}

/// A training on devices. [`Trainer::new`] plans it and holds the plans against the lines; nothing has run then and no
/// device memory is taken.
pub struct Trainer {
    session: Session,
    promise: Promise,
    signatures: Signatures,
    /// The step, prepared; not while something else runs, so that plans do not add up.
    train: Option<Callable>,
    is_started: bool,
    source: Box<dyn BatchSource>,
    seed: i64,
    held_out: Option<Box<dyn BatchSource>>,
    /// For each tower a tensor for each component.
    batches: Vec<Vec<HostTensor>>,
    loss: Option<HostTensor>,
    step: u64,
}

struct Signatures {
    init: Signature,
    train: Signature,
    /// With the number of examples of a batch.
    evaluate: Option<(Signature, u64)>,
}

impl Trainer {
    /// A training of the handwritten digits.
    ///
    /// # Errors
    /// As [`Trainer::with_network`].
    pub fn digits(devices: &Devices, config: &Config) -> Result<Trainer> {
        Trainer::with_network(devices, &model::digits, digits::data_set(config.seed)?, config)
    }

    /// A training of a network, planned.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the batch cannot be divided evenly among the towers, or nothing of it is left; what building the
    /// graph says; as [`Trainer::with_graph`].
    pub fn with_network(devices: &Devices, network: &Network, data: DataSet, config: &Config) -> Result<Trainer> {
        let Config { towers, batch_size, optimizer, learning_rate, seed } = *config;
        if towers == 0 || batch_size == 0 || batch_size % towers as u64 != 0 {
            return Err(Error::invalid_argument(format!("a batch of {batch_size} cannot be divided evenly among {towers} towers")));
        }
        let rate = learning_rate.unwrap_or(optimizer.default_learning_rate());
        if !rate.is_finite() {
            return Err(Error::invalid_argument(format!("{rate} is no learning rate")));
        }
        let components = data.training.components();
        let graph = TrainingGraph::build(devices.registry(), network, components, &Towers::on_cpus(towers), (optimizer, rate), seed)?;
        Trainer::with_graph(devices, graph.graph, graph.parts, data, batch_size / towers as u64, seed)
    }

    /// A training of a graph that has what it takes, planned: each tower takes batches of `each` examples. `seed` is that of the
    /// order of the examples.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for names that are not there, for feeds of other types or shapes than the graph's, and for a loss that is
    /// no scalar of float or double; what planning says; RESOURCE_EXHAUSTED, with the shortfall, the largest holders and what
    /// would help, where the peak of the training is over a line.
    pub fn with_graph(devices: &Devices, graph: Graph, parts: Parts, data: DataSet, each: u64, seed: i64) -> Result<Trainer> {
        let components = data.training.components();
        if parts.feeds.is_empty() || parts.feeds.iter().any(|names| names.len() != components.len()) {
            let message = format!("an example has {} components, and towers are fed {:?}", components.len(), parts.feeds);
            return Err(Error::invalid_argument(message));
        }
        let held_out = data.held_out.as_ref().map_or(0, |source| source.examples());
        let signatures = Signatures::new(&parts, components, each, largest_divisor(held_out, EVALUATION_BATCH.min(held_out)));
        let session = devices.session(graph)?;
        let plan = |signature: &Signature| session.plan_signature(signature);
        let mut plans = vec![plan(&signatures.init)?, plan(&signatures.train)?];
        let loss = plans[1].fetches.first().map(loss_tensor).transpose()?;
        if let Some((evaluate, _)) = &signatures.evaluate {
            plans.push(plan(evaluate)?);
        }
        let promise = Promise::new(devices.specs(), plans);
        promise.check()?;
        let batches = parts.feeds.iter().map(|_| data::batch(components, each)).collect::<Result<Vec<_>>>()?;
        let (source, held_out) = (data.training, data.held_out);
        Ok(Trainer { session, promise, signatures, train: None, is_started: false, source, seed, held_out, batches, loss, step: 0 })
    }

    /// The peaks that it will have.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Steps taken, those before a checkpoint included.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Gives the variables their first values, or those of a checkpoint. Without this the first step does it. A checkpoint that
    /// TensorFlow wrote says nothing of the data: the training begins with it at step 0.
    ///
    /// # Errors
    /// As [`checkpoint::restore`]; what running the graph says.
    pub fn start(&mut self, resume: Option<&Path>) -> Result<()> {
        self.release();
        // The initializer runs before a restore, too: it gives all variables storage, in one piece.
        self.session.callable(&self.signatures.init)?.run(&[])?;
        self.release();
        if let Some(path) = resume
            && let Some(Progress { step, position, seed }) = checkpoint::restore(path, &self.session)?
        {
            (self.step, self.seed) = (step, seed);
            self.source.reseed(seed);
            self.source.seek(position);
        }
        self.is_started = true;
        Ok(())
    }

    /// Takes a step. From the second on nothing is allocated, until something else is done.
    ///
    /// # Errors
    /// What running the graph says.
    pub fn step(&mut self) -> Result<Step> {
        if !self.is_started {
            self.start(None)?;
        }
        let train = match &self.train {
            Some(train) => train,
            None => self.train.insert(self.session.callable(&self.signatures.train)?),
        };
        for batch in &mut self.batches {
            self.source.next_into(batch)?;
        }
        let loss = self.loss.as_mut_slice();
        let mut feeds = self.batches.iter().flatten();
        let count = self.signatures.train.feeds.len();
        let mut fetch = loss.iter_mut();
        let fetches: &mut [&mut HostTensor] = match fetch.next() {
            Some(loss) => &mut [loss],
            None => &mut [],
        };
        if count <= FEEDS_ON_STACK {
            let mut few: [&HostTensor; FEEDS_ON_STACK] = [&self.batches[0][0]; FEEDS_ON_STACK];
            few.iter_mut().zip(&mut feeds).for_each(|(slot, feed)| *slot = feed);
            train.run_into(&few[..count], fetches)?;
        } else {
            train.run_into(&feeds.collect::<Vec<_>>(), fetches)?;
        }
        self.step += 1;
        Ok(Step { step: self.step, loss: self.loss.as_ref().map(number).transpose()? })
    }

    /// How well the network does on the held-out examples now.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there are none, or the graph says nothing of them; what running it says.
    pub fn evaluate(&mut self) -> Result<Evaluation> {
        if !self.is_started {
            self.start(None)?;
        }
        self.release();
        let (Some((signature, size)), Some(source)) = (&self.signatures.evaluate, &mut self.held_out) else {
            return Err(Error::failed_precondition("this training has no examples to test with"));
        };
        let evaluate = self.session.callable(signature)?;
        source.seek(0);
        let (count, mut batch) = (source.examples(), data::batch(source.components(), *size)?);
        let mut outputs = evaluate.outputs()?;
        let (mut loss, mut correct) = (0f64, 0i64);
        for _ in 0..count / size {
            source.next_into(&mut batch)?;
            evaluate.run_into(&batch.iter().collect::<Vec<_>>(), &mut outputs.iter_mut().collect::<Vec<_>>())?;
            loss += f64::from(number(&outputs[0])?) * *size as f64;
            correct += i64::from(outputs[1].as_slice::<i32>()?[0]);
        }
        drop(evaluate);
        self.release();
        let count = count as f64;
        Ok(Evaluation { loss: (loss / count) as f32, accuracy: correct as f64 / count })
    }

    /// Gives back everything but the variables.
    fn release(&mut self) {
        self.train = None;
        self.session.release_unused();
    }

    /// Writes a checkpoint into a folder; its prefix.
    ///
    /// # Errors
    /// As [`checkpoint::save`].
    pub fn save(&self, folder: &Path) -> Result<PathBuf> {
        let progress = Progress { step: self.step, position: self.source.position(), seed: self.seed };
        checkpoint::save(folder, &self.session, &progress)
    }
}

impl Signatures {
    /// Towers take batches of `each` examples of these components. Nothing is evaluated in batches of none.
    fn new(parts: &Parts, components: &[Component], each: u64, evaluation_batch: u64) -> Signatures {
        let feeds = |names: &[String], count: u64| {
            let feed = |(name, component): (&String, &Component)| Feed {
                tensor: name.clone(),
                data_type: component.data_type,
                shape: std::iter::once(count).chain(component.shape.iter().copied()).collect(),
                value: None,
            };
            names.iter().zip(components).map(feed).collect::<Vec<Feed>>()
        };
        let evaluate = |[loss, correct]: &[String; 2]| Signature {
            feeds: feeds(&parts.feeds[0], evaluation_batch),
            fetches: vec![loss.clone(), correct.clone()],
            targets: Vec::new(),
        };
        Signatures {
            init: Signature { targets: parts.init.clone(), ..Signature::default() },
            train: Signature {
                feeds: parts.feeds.iter().flat_map(|names| feeds(names, each)).collect(),
                fetches: parts.loss.iter().cloned().collect(),
                targets: parts.train.clone(),
            },
            evaluate: parts.evaluation.as_ref().filter(|_| evaluation_batch > 0).map(|names| (evaluate(names), evaluation_batch)),
        }
    }
}

/// A tensor for the loss that a step fetches.
fn loss_tensor(fetch: &PlanFetch) -> Result<HostTensor> {
    let PlanFetch { name, data_type, shape } = fetch;
    if shape.rank() != 0 || !matches!(data_type, DataType::Float | DataType::Double) {
        return Err(Error::invalid_argument(format!("'{name}' is {data_type}{shape}, and a loss is a scalar of float or double")));
    }
    HostTensor::zeros(*data_type, shape.clone())
}

/// The value of a loss.
fn number(loss: &HostTensor) -> Result<f32> {
    match loss.data_type() {
        DataType::Double => Ok(loss.as_slice::<f64>()?[0] as f32),
        _ => Ok(loss.as_slice::<f32>()?[0]),
    }
}

/// The largest number up to `most` that divides `count`; 0 for none.
fn largest_divisor(count: u64, most: u64) -> u64 {
    (1..=most).rev().find(|size| count.is_multiple_of(*size)).unwrap_or(0)
}
