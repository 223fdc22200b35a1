//! Towers that do not wait for each other: each takes a copy of the variables, computes gradients with it, and applies them.

use std::sync::Arc;

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::optimizer::compute_gradients;
use plimsoll::builder::{Initializer, Reuse, Variable};
use plimsoll::{Output, Registry, Result};

use super::{Network, Recipe, Steps, Towers, TrainingGraph, averaged, begin, finish, placeholders, scores};
use crate::data::Component;

/// The runs of one tower, one after the other: feeds, fetches and targets. Between the runs other towers may change the variables,
/// so each run is a signature of its own. A tower computes with copies on its own device, which no other tower touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The target that copies the variables to the tower.
    pub pull: String,
    /// The number of steps that were in the copied variables: fetched with `pull`.
    pub pulled: String,
    /// The tensors that are fed, in the order of the components.
    pub feeds: Vec<String>,
    /// The target that computes gradients with the copies and keeps them on the tower.
    pub compute: String,
    /// The loss of the batch: fetched with `compute`.
    pub loss: String,
    /// The target that applies the gradients to the variables, counts the step and moves the averages.
    pub push: String,
    /// The number of steps with this one: fetched with `push`.
    pub pushed: String,
}

impl TrainingGraph {
    /// The graph of a network on towers of which each applies its own gradients. Placeholders take batches of any size.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no towers; the errors of building the network.
    pub fn apart(
        registry: &Arc<Registry>,
        network: &Network,
        components: &[Component],
        towers: &Towers,
        recipe: &Recipe,
    ) -> Result<TrainingGraph> {
        let (mut b, mut learner) = begin(registry, towers, recipe)?;
        // The network on the variables themselves: it makes them, and it is the one that is evaluated.
        let evaluation = b.device(&towers.variables, |b| {
            b.name_scope("evaluation", |b| {
                let inputs = placeholders(b, components)?;
                let losses = network(b, &inputs)?;
                Ok::<_, plimsoll::Error>(scores(b, &inputs, &losses))
            })
        })?;
        let variables = b.trainable_variables();
        let mut copies = Vec::new();
        let apart = towers.build(&mut b, |b| {
            let local = twins(b, "copies", &variables)?;
            let kept = twins(b, "gradients_kept", &variables)?;
            let pulls = variables.iter().zip(&local).map(|(variable, copy)| b.assign(copy, variable.value)).collect::<Result<Vec<_>>>()?;
            let pull = b.group(&pulls, "pull")?;
            let inputs = placeholders(b, components)?;
            let stand_ins = variables.iter().zip(&local);
            let losses = b.with_stand_ins(stand_ins, |b| b.variable_scope("", Reuse::Yes, |b| network(b, &inputs)))?;
            let mut computed = Vec::new();
            let mut gradients: Vec<(Output, Variable)> = Vec::new();
            for (gradient, copy) in compute_gradients(b, losses.loss, &local)? {
                let Some(index) = local.iter().position(|local| local.handle == copy.handle) else { continue };
                computed.push(b.assign(&kept[index], gradient)?);
                gradients.push((kept[index].value, variables[index].clone()));
            }
            let compute = b.group(&computed, "compute")?;
            let (push, pushed) = b.device(&towers.variables, |b| {
                let push = learner.learn(b, &gradients, "push")?;
                let step = learner.step().clone();
                Ok::<_, plimsoll::Error>((push, b.control_dependencies(&[push], |b| b.read(&step))?))
            })?;
            copies.extend(local.into_iter().chain(kept));
            let tensor = |output: Output| b.graph().tensor_name(output);
            let node = |id| b.node(id).name.clone();
            Ok(Apart {
                pull: node(pull),
                pulled: tensor(learner.step().value),
                feeds: inputs.iter().map(|input| tensor(*input)).collect(),
                compute: node(compute),
                loss: tensor(losses.loss),
                push: node(push),
                pushed: tensor(pushed),
            })
        })?;
        let averaged = averaged(&mut b, network, components, towers, &learner)?;
        finish(b, Steps::Apart(apart), evaluation, averaged, &copies)
    }
}

/// For each variable one of its type and shape, here, of zeros, under its name in a scope.
fn twins(b: &mut GraphBuilder, scope: &str, variables: &[Variable]) -> Result<Vec<Variable>> {
    let twin = |b: &mut GraphBuilder, variable: &Variable| {
        b.untrained_variable(&variable.name, variable.data_type, variable.shape.clone(), &Initializer::Zeros)
    };
    b.name_scope(scope, |b| variables.iter().map(|variable| twin(b, variable)).collect())
}
