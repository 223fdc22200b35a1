//! Companions of optimizers: decaying rates, means over towers, moving averages of variables.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output, Shape};

use super::slots::Slots;
use crate::builder::functions::splat;
use crate::builder::{GraphBuilder, Initializer, Variable};

/// `rate * decay_rate ^ (step / decay_steps)`, where a staircase rounds the quotient down: a float.
///
/// # Errors
/// The errors of making nodes.
pub fn exponential_decay(
    builder: &mut GraphBuilder,
    rate: f32,
    step: &Variable,
    decay_steps: f32,
    decay_rate: f32,
    staircase: bool,
) -> Result<Output> {
    builder.name_scope("ExponentialDecay", |b| {
        let absolute = format!("{}/", b.current_name_scope());
        let initial = constant(b, "initial_learning_rate", rate)?;
        let steps = constant(b, "decay_steps", decay_steps)?;
        let base = constant(b, "decay_rate", decay_rate)?;
        let done = as_float(b, step.value, "Cast")?;
        let mut quotient = b.div(done, steps).build()?;
        if staircase {
            quotient = b.op("Floor").input(quotient).build()?;
        }
        let power = b.op("Pow").inputs([base, quotient]).build()?;
        b.mul(initial, power).name(&absolute).build()
    })
}

/// For each variable the mean of the towers' gradients. Every tower has the same variables in the same order.
///
/// # Errors
/// INVALID_ARGUMENT where towers differ in their variables; the errors of making nodes.
pub fn average_gradients(builder: &mut GraphBuilder, towers: &[Vec<(Output, Variable)>]) -> Result<Vec<(Output, Variable)>> {
    let Some(first) = towers.first() else { return Ok(Vec::new()) };
    let mut means = Vec::with_capacity(first.len());
    for (position, (_, variable)) in first.iter().enumerate() {
        let mut expanded = Vec::with_capacity(towers.len());
        for tower in towers {
            match tower.get(position) {
                Some((gradient, other)) if other.handle == variable.handle && tower.len() == first.len() => {
                    expanded.push(builder.expand_dims(*gradient, 0).build()?);
                }
                _ => return Err(Error::invalid_argument(format!("the towers do not all have a gradient for variable {}", variable.name))),
            }
        }
        let all = builder.concat(expanded, 0).build()?;
        means.push((builder.reduce_mean(all, Some(&[0])).build()?, variable.clone()));
    }
    Ok(means)
}

/// Averages of variables that follow them slowly: `average -= (1 - decay) * (average - variable)`.
#[derive(Debug)]
pub struct ExponentialMovingAverage {
    decay: f32,
    step: Option<Variable>,
    slots: Slots,
}

/// The name of the operation and of the averages.
const NAME: &str = "ExponentialMovingAverage";

impl ExponentialMovingAverage {
    /// Averages with this decay, which is near 1.
    pub fn new(decay: f32) -> ExponentialMovingAverage {
        ExponentialMovingAverage { decay, step: None, slots: Slots::default() }
    }

    /// The decay is `(1 + step) / (10 + step)` while that is smaller.
    pub fn num_updates(mut self, step: &Variable) -> ExponentialMovingAverage {
        self.step = Some(step.clone());
        self
    }

    /// A node that has run when every average has been moved. An average begins as its variable does. The variables are read after
    /// the control dependencies of the scope: make it inside `control_dependencies(&[train], ...)` to average the step's results.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for variables that are not float32; the errors of making nodes.
    pub fn apply(&mut self, builder: &mut GraphBuilder, variables: &[Variable]) -> Result<NodeId> {
        for variable in variables {
            if variable.data_type != DataType::Float {
                return Err(Error::invalid_argument(format!(
                    "variable {} is {}: only float is averaged",
                    variable.name, variable.data_type
                )));
            }
            let initializer = Initializer::Tensor(variable.initial_value.unwrap_or(variable.value));
            self.slots.create(builder, variable, "average", NAME, &initializer)?;
        }
        builder.name_scope(NAME, |b| {
            let absolute = format!("{}/", b.current_name_scope());
            let decay = self.decay_now(b)?;
            let mut updates = Vec::with_capacity(variables.len());
            for variable in variables {
                let average = self.slots.get(variable, "average")?.clone();
                updates.push(b.name_scope("AssignMovingAvg", |b| {
                    let absolute = format!("{}/", b.current_name_scope());
                    let one = constant(b, "sub/x", 1.0)?;
                    let rate = b.sub(one, decay).build()?;
                    let (old, new) = (b.read(&average)?, b.read(variable)?);
                    let distance = b.sub(old, new).build()?;
                    let change = b.mul(distance, rate).build()?;
                    b.update_variable("AssignSub", &average, change).name(&absolute).build_node()
                })?);
            }
            b.group(&updates, &absolute)
        })
    }

    /// The average of a variable that `apply` has seen.
    pub fn average(&self, variable: &Variable) -> Option<&Variable> {
        self.slots.get(variable, "average").ok()
    }

    fn decay_now(&self, b: &mut GraphBuilder) -> Result<Output> {
        let decay = constant(b, "decay", self.decay)?;
        let Some(step) = &self.step else { return Ok(decay) };
        let step = b.read(step)?;
        let step = as_float(b, step, "num_updates")?;
        let (one, ten) = (constant(b, "add/x", 1.0)?, constant(b, "add_1/x", 10.0)?);
        let (over, under) = (b.add(one, step).build()?, b.add(ten, step).build()?);
        let early = b.div(over, under).build()?;
        b.op("Minimum").inputs([decay, early]).build()
    }
}

fn constant(builder: &mut GraphBuilder, name: &str, value: f32) -> Result<Output> {
    builder.constant(splat(DataType::Float, &Shape::scalar(), f64::from(value))?).name(name).build()
}

fn as_float(builder: &mut GraphBuilder, x: Output, name: &str) -> Result<Output> {
    if builder.data_type(x) == DataType::Float { Ok(x) } else { builder.cast(x, DataType::Float).name(name).build() }
}
