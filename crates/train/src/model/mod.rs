//! Training graphs: a network on one or several towers, its gradients, its optimizer.

mod digits;
mod towers;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll::builder::optimizer::{Adam, GradientDescent, Momentum, Optimizer, compute_gradients};
use plimsoll::builder::{Initializer, Variable};
use plimsoll::{DataType, Error, Result};
use plimsoll::{Graph, Output, PartialShape};
use plimsoll::{GraphBuilder, Registry};

use crate::data::Component;
pub use digits::digits;
pub use towers::Towers;

/// What a network says of a batch.
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
    /// The rate that suits small networks.
    pub fn default_learning_rate(self) -> f32 {
        match self {
            OptimizerKind::Sgd => 0.5,
            OptimizerKind::Momentum => 0.1,
            OptimizerKind::Adam => 0.002,
        }
    }

    fn make(self, learning_rate: f32) -> Box<dyn Optimizer> {
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
        let unknown = || Error::invalid_argument(format!("'{text}' is no optimizer")).with_remedy("write sgd, momentum or adam");
        kinds.into_iter().find(|kind| kind.to_string() == text).ok_or_else(unknown)
    }
}

/// What of a graph a training runs, feeds and fetches, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The targets that give all variables their first values.
    pub init: Vec<String>,
    /// The targets of a step.
    pub train: Vec<String>,
    /// The loss, which every step fetches: a scalar.
    pub loss: Option<String>,
    /// For each tower the tensors that are fed, one for each component of an example in their order.
    pub feeds: Vec<Vec<String>>,
    /// What is fetched to evaluate a batch that the first tower is fed: its mean loss, and how many of its examples are right.
    pub evaluation: Option<[String; 2]>,
}

/// A graph that trains.
#[derive(Clone, Debug)]
pub struct TrainingGraph {
    /// The graph.
    pub graph: Graph,
    /// What of it is run.
    pub parts: Parts,
    /// All variables, the optimizer's and the count of steps among them.
    pub variables: Vec<Variable>,
}

/// The variable that counts steps.
pub const GLOBAL_STEP: &str = "global_step";

impl TrainingGraph {
    /// The graph of a network on towers: its variables begin as the seed says, gradients are averaged and applied once a
    /// step. Placeholders take batches of any size.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no towers; what building the network says.
    pub fn build(
        registry: &Arc<Registry>,
        network: &Network,
        components: &[Component],
        towers: &Towers,
        optimizer: (OptimizerKind, f32),
        seed: i64,
    ) -> Result<TrainingGraph> {
        let mut b = GraphBuilder::new(registry.clone());
        b.set_seed(Some(seed));
        let on_variables = towers.variables.clone();
        let step = b.device(&on_variables, |b| b.get_untrained_variable(GLOBAL_STEP, DataType::Int64, [], &Initializer::Zeros))?;
        let mut feeds: Vec<Vec<Output>> = Vec::new();
        let losses = towers.build(&mut b, |b| {
            let inputs = components.iter().map(|component| placeholder(b, component)).collect::<Result<Vec<_>>>()?;
            feeds.push(inputs.clone());
            network(b, &inputs)
        })?;
        let variables = b.trainable_variables();
        let gradients = losses.iter().map(|tower| compute_gradients(&mut b, tower.loss, &variables)).collect::<Result<Vec<_>>>()?;
        let (loss, train) = b.device(&on_variables, |b| {
            let loss = towers::mean(b, &losses.iter().map(|tower| tower.loss).collect::<Vec<_>>(), "loss")?;
            let gradients = towers::mean_gradients(b, gradients)?;
            let train = optimizer.0.make(optimizer.1).apply_gradients_and_count(b, &gradients, &step, "train")?;
            Ok::<_, Error>((loss, train))
        })?;
        let init = b.global_variables_initializer()?;
        let tensor = |output: Output| b.graph().tensor_name(output);
        let parts = Parts {
            init: vec![b.node(init).name.clone()],
            train: vec![b.node(train).name.clone()],
            loss: Some(tensor(loss)),
            feeds: feeds.iter().map(|tower| tower.iter().map(|output| tensor(*output)).collect()).collect(),
            evaluation: Some([tensor(losses[0].loss), tensor(losses[0].correct)]),
        };
        Ok(TrainingGraph { parts, variables: b.variables().to_vec(), graph: b.finish() })
    }
}

fn placeholder(b: &mut GraphBuilder, component: &Component) -> Result<Output> {
    let dims = std::iter::once(None).chain(component.shape.iter().map(|dim| Some(*dim))).collect();
    b.placeholder(&component.name, component.data_type, PartialShape(Some(dims))).build()
}

#[cfg(test)]
mod tests;
