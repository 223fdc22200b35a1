//! The learning part: an optimizer with a rate that may decay, the count of steps, moving averages.

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::Variable;
use plimsoll::builder::optimizer::{ExponentialMovingAverage, Hyper, Optimizer, exponential_decay};
use plimsoll::{NodeId, Output, Result};

use super::Recipe;

/// The ops that a recipe makes of gradients. One serves any number of towers: they share the optimizer's slots and the averages.
pub(super) struct Learner {
    optimizer: Box<dyn Optimizer>,
    average: Option<ExponentialMovingAverage>,
    step: Variable,
}

impl Learner {
    /// The learner of a recipe, counting in `step`.
    ///
    /// # Errors
    /// The errors of making nodes.
    pub fn new(b: &mut GraphBuilder, recipe: &Recipe, step: &Variable) -> Result<Learner> {
        let rate = match recipe.decay {
            None => Hyper::Fixed(recipe.learning_rate),
            Some((steps, factor)) => exponential_decay(b, recipe.learning_rate, step, steps, factor, true)?.into(),
        };
        Ok(Learner {
            optimizer: recipe.optimizer.make(rate),
            average: recipe.moving_average.map(|decay| ExponentialMovingAverage::new(decay).num_updates(step)),
            step: step.clone(),
        })
    }

    /// The variable that counts.
    pub fn step(&self) -> &Variable {
        &self.step
    }

    /// A node of that name that has run when the gradients were applied, the step was counted, and then the averages moved.
    ///
    /// # Errors
    /// The errors of making nodes.
    pub fn learn(&mut self, b: &mut GraphBuilder, gradients: &[(Output, Variable)], name: &str) -> Result<NodeId> {
        let Some(average) = &mut self.average else {
            return self.optimizer.apply_gradients_and_count(b, gradients, &self.step, name);
        };
        let applied = self.optimizer.apply_gradients_and_count(b, gradients, &self.step, "")?;
        let variables: Vec<Variable> = gradients.iter().map(|(_, variable)| variable.clone()).collect();
        let averaged = b.control_dependencies(&[applied], |b| average.apply(b, &variables))?;
        b.group(&[averaged], name)
    }

    /// The moving average of a variable, where there is one.
    pub fn average(&self, variable: &Variable) -> Option<&Variable> {
        self.average.as_ref()?.average(variable)
    }
}
