//! A training: plans and promise first, then steps.

use std::path::{Path, PathBuf};

use plimsoll::{Callable, DataType, Devices, Error, Feed, HostTensor, Result, Session, Shape, Signature};

use crate::checkpoint::{self, Progress};
use crate::data::{self, BatchSource, DataSet, digits};
use crate::model::{self, Network, OptimizerKind, Towers, TrainingGraph};
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
    /// The mean loss of its batch, before its update.
    pub loss: f32,
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
    graph: TrainingGraph,
    promise: Promise,
    signatures: Signatures,
    /// The step, prepared; not while something else runs, so that plans do not add up.
    train: Option<Callable>,
    is_started: bool,
    source: Box<dyn BatchSource>,
    seed: i64,
    held_out: Box<dyn BatchSource>,
    /// For each tower a tensor for each component.
    batches: Vec<Vec<HostTensor>>,
    loss: HostTensor,
    step: u64,
}

struct Signatures {
    init: Signature,
    train: Signature,
    evaluate: Signature,
    evaluation_batch: u64,
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
    /// INVALID_ARGUMENT where the batch cannot be divided evenly among the towers, or nothing of it is left; what building and
    /// planning say; RESOURCE_EXHAUSTED, with the shortfall, the largest holders and what would help, where the peak of the
    /// training is over a line.
    pub fn with_network(devices: &Devices, network: &Network, data: DataSet, config: &Config) -> Result<Trainer> {
        let Config { towers, batch_size, optimizer, learning_rate, seed } = *config;
        if towers == 0 || batch_size == 0 || batch_size % towers as u64 != 0 {
            return Err(Error::invalid_argument(format!("a batch of {batch_size} cannot be divided evenly among {towers} towers")));
        }
        let rate = learning_rate.unwrap_or(optimizer.default_learning_rate());
        if !rate.is_finite() {
            return Err(Error::invalid_argument(format!("{rate} is no learning rate")));
        }
        let components = data.training.components().to_vec();
        let graph = TrainingGraph::build(devices.registry(), network, &components, &Towers::on_cpus(towers), (optimizer, rate), seed)?;
        let each = batch_size / towers as u64;
        let evaluation_batch = largest_divisor(data.held_out.examples(), EVALUATION_BATCH);
        let signatures = Signatures::new(&graph, &data::batch(&components, 1)?, each, evaluation_batch);
        let session = devices.session(graph.graph.clone())?;
        let plans = [&signatures.init, &signatures.train, &signatures.evaluate].map(|signature| session.plan_signature(signature));
        let promise = Promise::new(devices.specs(), plans.into_iter().collect::<Result<_>>()?);
        promise.check()?;
        let batches = (0..towers).map(|_| data::batch(&components, each)).collect::<Result<Vec<_>>>()?;
        Ok(Trainer {
            session,
            graph,
            promise,
            signatures,
            train: None,
            is_started: false,
            source: data.training,
            seed,
            held_out: data.held_out,
            batches,
            loss: HostTensor::zeros(DataType::Float, Shape::scalar())?,
            step: 0,
        })
    }

    /// The peaks that it will have.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// The graph that trains.
    pub fn graph(&self) -> &TrainingGraph {
        &self.graph
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Steps taken, those before a checkpoint included.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Gives the variables their first values, or those of a checkpoint. Without this the first step does it.
    ///
    /// # Errors
    /// As [`checkpoint::restore`]; what running the graph says.
    pub fn start(&mut self, resume: Option<&Path>) -> Result<()> {
        self.release();
        // The initializer runs before a restore, too: it gives all variables storage, in one piece.
        self.session.callable(&self.signatures.init)?.run(&[])?;
        self.release();
        if let Some(path) = resume {
            let Progress { step, position, seed } = checkpoint::restore(path, &self.session)?;
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
        let fetches = &mut [&mut self.loss];
        let mut feeds = self.batches.iter().flatten();
        let count = self.signatures.train.feeds.len();
        if count <= FEEDS_ON_STACK {
            let mut few: [&HostTensor; FEEDS_ON_STACK] = [&self.batches[0][0]; FEEDS_ON_STACK];
            few.iter_mut().zip(&mut feeds).for_each(|(slot, feed)| *slot = feed);
            train.run_into(&few[..count], fetches)?;
        } else {
            train.run_into(&feeds.collect::<Vec<_>>(), fetches)?;
        }
        self.step += 1;
        Ok(Step { step: self.step, loss: self.loss.as_slice::<f32>()?[0] })
    }

    /// How well the network does on the held-out examples now.
    ///
    /// # Errors
    /// What running the graph says.
    pub fn evaluate(&mut self) -> Result<Evaluation> {
        if !self.is_started {
            self.start(None)?;
        }
        self.release();
        let evaluate = self.session.callable(&self.signatures.evaluate)?;
        let size = self.signatures.evaluation_batch;
        let source = &mut self.held_out;
        source.seek(0);
        let (count, mut batch) = (source.examples(), data::batch(source.components(), size)?);
        let mut outputs = evaluate.outputs()?;
        let (mut loss, mut correct) = (0f64, 0i64);
        for _ in 0..count / size {
            source.next_into(&mut batch)?;
            evaluate.run_into(&batch.iter().collect::<Vec<_>>(), &mut outputs.iter_mut().collect::<Vec<_>>())?;
            loss += f64::from(outputs[0].as_slice::<f32>()?[0]) * size as f64;
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
        checkpoint::save(folder, &self.session, &self.graph, &progress)
    }
}

impl Signatures {
    /// `one` is a batch of one example; towers take batches of `each`.
    fn new(graph: &TrainingGraph, one: &[HostTensor], each: u64, evaluation_batch: u64) -> Signatures {
        let feeds = |names: &[String], count: u64| {
            let feed = |(name, tensor): (&String, &HostTensor)| Feed {
                tensor: name.clone(),
                data_type: tensor.data_type(),
                shape: std::iter::once(count).chain(tensor.shape().iter().copied().skip(1)).collect(),
                value: None,
            };
            names.iter().zip(one).map(feed).collect::<Vec<Feed>>()
        };
        Signatures {
            init: Signature { targets: vec![graph.init.clone()], ..Signature::default() },
            train: Signature {
                feeds: graph.feeds.iter().flat_map(|names| feeds(names, each)).collect(),
                fetches: vec![graph.loss.clone()],
                targets: vec![graph.train.clone()],
            },
            evaluate: Signature {
                feeds: feeds(&graph.feeds[0], evaluation_batch),
                fetches: vec![graph.tower_loss.clone(), graph.tower_correct.clone()],
                targets: Vec::new(),
            },
            evaluation_batch,
        }
    }
}

/// The largest number up to `most` that divides `count`.
fn largest_divisor(count: u64, most: u64) -> u64 {
    (1..=most).rev().find(|size| count.is_multiple_of(*size)).unwrap_or(1)
}
