//! Training graphs: a network on one or several towers, its gradients, its optimizer.

mod apart;
mod cifar10;
mod digits;
mod layers;
mod learner;
mod mnist;
mod towers;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::optimizer::{Adam, GradientDescent, Hyper, Momentum, Optimizer, compute_gradients};
use plimsoll::builder::{Initializer, Reuse, Variable};
use plimsoll::{DataType, Error, Graph, Output, PartialShape, Registry, Result, Values};

use crate::data::Component;
pub use apart::Apart;
pub use cifar10::{CIFAR10, cifar10};
pub use digits::{DIGITS, digits};
use learner::Learner;
pub use mnist::{MNIST, mnist};
pub use towers::Towers;

/// The losses of a network for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// The mean loss of the batch: a float scalar, of which the gradients are taken.
    pub loss: Output,
    /// How many examples of the batch it got right: an int32 scalar.
    pub correct: Output,
}

/// Builds a network on top of the tensors of a batch (one for each component of an example). Its variables come from
/// `get_variable`, so that towers share them.
pub type Network = dyn Fn(&mut GraphBuilder, &[Output]) -> Result<Losses>;

/// A network with the training that suits it.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its layers, in short.
    pub layers: &'static str,
    /// The network.
    pub network: fn(&mut GraphBuilder, &[Output]) -> Result<Losses>,
    /// How it learns where nothing else is said.
    pub optimizer: OptimizerKind,
    /// The rates that suit it: of gradient descent, momentum and Adam.
    pub rates: [f32; 3],
    /// How the rate decays.
    pub decay: Option<Decay>,
    /// The decay of moving averages of all that is learned, where it keeps them.
    pub moving_average: Option<f32>,
}

impl Model {
    /// The network of that name which is built in.
    pub fn named(name: &str) -> Option<&'static Model> {
        [&DIGITS, &MNIST, &CIFAR10].into_iter().find(|model| model.name == name)
    }

    /// The rate that suits it with an optimizer.
    pub fn rate(&self, optimizer: OptimizerKind) -> f32 {
        self.rates[optimizer as usize]
    }
}

/// The learning rate is multiplied by `factor` every so many epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// Passes over the examples to learn from.
    pub epochs: f32,
    /// The factor.
    pub factor: f32,
}

/// How variables learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Plain gradient descent.
    Sgd,
    /// With momentum 0.9.
    Momentum,
    /// Adam, with TensorFlow's betas and epsilon.
    #[default]
    Adam,
}

impl OptimizerKind {
    fn make(self, learning_rate: Hyper) -> Box<dyn Optimizer> {
        match self {
            OptimizerKind::Sgd => Box::new(GradientDescent::new(learning_rate)),
            OptimizerKind::Momentum => Box::new(Momentum::new(learning_rate, 0.9)),
            OptimizerKind::Adam => Box::new(Adam::new(learning_rate)),
        }
    }
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OptimizerKind::Sgd => "sgd",
            OptimizerKind::Momentum => "momentum",
            OptimizerKind::Adam => "adam",
        })
    }
}

impl FromStr for OptimizerKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<OptimizerKind> {
        let kinds = [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam];
        let unknown = || Error::invalid_argument(format!("'{text}' is not an optimizer")).with_remedy("write sgd, momentum or adam");
        kinds.into_iter().find(|kind| kind.to_string() == text).ok_or_else(unknown)
    }
}

/// How a graph learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// How gradients become updates.
    pub optimizer: OptimizerKind,
    /// How fast, at the beginning.
    pub learning_rate: f32,
    /// After how many steps the rate is multiplied, by which factor, again and again.
    pub decay: Option<(f32, f32)>,
    /// The decay of moving averages of all that is learned, where there are some.
    pub moving_average: Option<f32>,
    /// Decides the first values.
    pub seed: i64,
}

/// The parts of a graph that a training runs, feeds and fetches, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The targets that give all variables their first values.
    pub init: Vec<String>,
    /// Files with first values of variables, which then need no initializer.
    pub values: Values,
    /// How steps are taken.
    pub steps: Steps,
    /// The tensors that tell how well the network does, where the graph has them.
    pub evaluation: Option<Scores>,
    /// The same with moving averages in place of the variables.
    pub averaged: Option<Scores>,
    /// Variables that are copies, or are written before they are read: no checkpoint holds them.
    pub copies: Vec<String>,
}

impl Parts {
    /// A graph that is initialised and takes steps; nothing else is known of it.
    pub fn new(init: Vec<String>, steps: Together) -> Parts {
        Parts { init, values: Values::default(), steps: Steps::Together(steps), evaluation: None, averaged: None, copies: Vec::new() }
    }
}

/// How steps are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steps {
    /// All towers together: one run a step.
    Together(Together),
    /// Each tower on its own.
    Apart(Vec<Apart>),
}

/// The feeds, fetches and targets of a step of all towers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// The targets of a step.
    pub train: Vec<String>,
    /// The loss, which every step fetches: a scalar.
    pub loss: Option<String>,
    /// Other scalars of float or double that every step fetches.
    pub metrics: Vec<Score>,
    /// For each tower the tensors that are fed, one for each component of an example in their order.
    pub feeds: Vec<Vec<String>>,
}

/// The feeds and fetches of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scores {
    /// The tensors that are fed, in the order of the components.
    pub feeds: Vec<String>,
    /// What a batch gives.
    pub results: Vec<Score>,
}

/// A number that says how well a network does on a batch: a scalar. One of a float type is a mean over the batch, one of an integer
/// type is how many examples are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// What it is called: `loss`, `accuracy`.
    pub name: String,
    /// The tensor.
    pub tensor: String,
}

impl Score {
    /// The score of that name.
    pub fn new(name: impl Into<String>, tensor: impl Into<String>) -> Score {
        Score { name: name.into(), tensor: tensor.into() }
    }
}

/// The variable that counts steps.
pub const GLOBAL_STEP: &str = "global_step";
/// A graph that trains.
#[derive(Clone, Debug)]
pub struct TrainingGraph {
    /// The graph.
    pub graph: Graph,
    /// The parts of it that are run.
    pub parts: Parts,
    /// The variables, the optimizer's and the count of steps among them, without those that are copies.
    pub variables: Vec<Variable>,
}

impl TrainingGraph {
    /// The graph of a network on towers that step together: gradients are averaged and applied once a step. Placeholders take
    /// batches of any size.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no towers; the errors of building the network.
    pub fn together(
        registry: &Arc<Registry>,
        network: &Network,
        components: &[Component],
        towers: &Towers,
        recipe: &Recipe,
    ) -> Result<TrainingGraph> {
        let (mut b, mut learner) = begin(registry, towers, recipe)?;
        let mut feeds: Vec<Vec<Output>> = Vec::new();
        let built = towers.build(&mut b, |b| {
            let inputs = placeholders(b, components)?;
            let losses = network(b, &inputs)?;
            feeds.push(inputs);
            let variables = b.trainable_variables();
            Ok((losses, compute_gradients(b, losses.loss, &variables)?))
        })?;
        let (losses, gradients): (Vec<Losses>, Vec<_>) = built.into_iter().unzip();
        let (loss, train) = b.device(&towers.variables, |b| {
            let loss = towers::mean(b, &losses.iter().map(|tower| tower.loss).collect::<Vec<_>>(), "loss")?;
            let gradients = towers::mean_gradients(b, gradients)?;
            Ok::<_, Error>((loss, learner.learn(b, &gradients, "train")?))
        })?;
        let evaluation = scores(&b, &feeds[0], &losses[0]);
        let averaged = averaged(&mut b, network, components, towers, &learner)?;
        let together = Together {
            train: vec![b.node(train).name.clone()],
            loss: Some(b.graph().tensor_name(loss)),
            metrics: Vec::new(),
            feeds: feeds.iter().map(|tower| names(&b, tower)).collect(),
        };
        finish(b, Steps::Together(together), evaluation, averaged, &[])
    }
}

/// A builder with the counting variable, and the learner.
fn begin(registry: &Arc<Registry>, towers: &Towers, recipe: &Recipe) -> Result<(GraphBuilder, Learner)> {
    let mut b = GraphBuilder::new(registry.clone());
    b.set_seed(Some(recipe.seed));
    let learner = b.device(&towers.variables, |b| {
        let step = b.get_untrained_variable(GLOBAL_STEP, DataType::Int64, [], &Initializer::Zeros)?;
        Learner::new(b, recipe, &step)
    })?;
    Ok((b, learner))
}

/// Scores with the moving averages, on the device of the variables.
fn averaged(
    b: &mut GraphBuilder,
    network: &Network,
    components: &[Component],
    towers: &Towers,
    learner: &Learner,
) -> Result<Option<Scores>> {
    let pairs: Vec<(Variable, Variable)> =
        b.trainable_variables().into_iter().filter_map(|variable| Some((variable.clone(), learner.average(&variable)?.clone()))).collect();
    if pairs.is_empty() {
        return Ok(None);
    }
    let build = |b: &mut GraphBuilder| {
        let inputs = placeholders(b, components)?;
        let losses = b.variable_scope("", Reuse::Yes, |b| network(b, &inputs))?;
        Ok::<_, Error>(scores(b, &inputs, &losses))
    };
    let pairs = pairs.iter().map(|(variable, average)| (variable, average));
    b.device(&towers.variables, |b| b.name_scope("averaged", |b| b.with_stand_ins(pairs, build))).map(Some)
}

/// Adds the initializer. `copies` are variables that are not saved.
fn finish(mut b: GraphBuilder, steps: Steps, evaluation: Scores, averaged: Option<Scores>, copies: &[Variable]) -> Result<TrainingGraph> {
    let init = b.global_variables_initializer()?;
    let variables = b.variables().iter().filter(|variable| !copies.contains(variable)).cloned().collect();
    let copies = copies.iter().map(|variable| variable.name.clone()).collect();
    let parts =
        Parts { init: vec![b.node(init).name.clone()], values: Values::default(), steps, evaluation: Some(evaluation), averaged, copies };
    Ok(TrainingGraph { parts, variables, graph: b.finish() })
}

fn scores(b: &GraphBuilder, inputs: &[Output], losses: &Losses) -> Scores {
    let tensor = |output: Output| b.graph().tensor_name(output);
    let results = vec![Score::new("loss", tensor(losses.loss)), Score::new("accuracy", tensor(losses.correct))];
    Scores { feeds: names(b, inputs), results }
}

fn names(b: &GraphBuilder, outputs: &[Output]) -> Vec<String> {
    outputs.iter().map(|output| b.graph().tensor_name(*output)).collect()
}

fn placeholders(b: &mut GraphBuilder, components: &[Component]) -> Result<Vec<Output>> {
    let placeholder = |component: &Component| {
        let dims = std::iter::once(None).chain(component.shape.iter().map(|dim| Some(*dim))).collect();
        b.placeholder(&component.name, component.data_type, PartialShape(Some(dims))).build()
    };
    components.iter().map(placeholder).collect()
}

#[cfg(test)]
mod tests;
