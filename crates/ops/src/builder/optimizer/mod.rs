//! Optimizers: gradients become updates of variables, in TensorFlow 1's nodes.
//!
//! An optimizer makes its slots (a variable's momentum, say) when it first meets the variable, and uses them again. So several
//! `apply_gradients` of one optimizer share slots, as asynchronous towers need.

mod adam;
mod average;
mod gradient_descent;
mod momentum;
mod slots;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, Shape};

use super::functions::splat;
use super::{GraphBuilder, Variable};
pub use adam::Adam;
pub use average::{ExponentialMovingAverage, average_gradients, exponential_decay};
pub use gradient_descent::GradientDescent;
pub use momentum::Momentum;

/// A number that an optimizer is told: fixed, or a tensor of the graph (a learning rate that decays).
#[derive(Clone, Copy, Debug)]
pub enum Hyper {
    /// Always this.
    Fixed(f32),
    /// A scalar of the graph.
    Tensor(Output),
}

impl From<f32> for Hyper {
    fn from(value: f32) -> Hyper {
        Hyper::Fixed(value)
    }
}

impl From<Output> for Hyper {
    fn from(tensor: Output) -> Hyper {
        Hyper::Tensor(tensor)
    }
}

/// Turns gradients into updates.
pub trait Optimizer {
    /// TensorFlow's name of it: the name of its operation where none is given, and of its slots.
    fn name(&self) -> &'static str;

    /// Makes the slots of these variables that it does not have yet.
    #[doc(hidden)]
    fn create_slots(&mut self, builder: &mut GraphBuilder, variables: &[Variable]) -> Result<()>;

    /// Makes the constants that all updates share, in the name scope of the operation.
    #[doc(hidden)]
    fn prepare(&mut self, builder: &mut GraphBuilder) -> Result<()>;

    /// The update of one variable.
    #[doc(hidden)]
    fn update(&mut self, builder: &mut GraphBuilder, gradient: Output, variable: &Variable) -> Result<NodeId>;

    /// Makes the nodes after all updates; returns further nodes that have to run.
    #[doc(hidden)]
    fn finish(&mut self, _builder: &mut GraphBuilder, _updates: &[NodeId]) -> Result<Vec<NodeId>> {
        Ok(Vec::new())
    }

    /// A node of that name (the optimizer's where it is empty) that has run when every variable has been updated.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there are no gradients, or one has not its variable's type and shape.
    fn apply_gradients(&mut self, builder: &mut GraphBuilder, gradients: &[(Output, Variable)], name: &str) -> Result<NodeId> {
        apply(self, builder, gradients, None, name)
    }

    /// As `apply_gradients`, and then 1 is added to `step`, a variable of integers.
    ///
    /// # Errors
    /// As `apply_gradients`.
    fn apply_gradients_and_count(
        &mut self,
        builder: &mut GraphBuilder,
        gradients: &[(Output, Variable)],
        step: &Variable,
        name: &str,
    ) -> Result<NodeId> {
        apply(self, builder, gradients, Some(step), name)
    }

    /// The gradients of `loss` for these variables; those it does not depend on are left out.
    ///
    /// # Errors
    /// As [`GraphBuilder::gradients`].
    fn compute_gradients(&self, builder: &mut GraphBuilder, loss: Output, variables: &[Variable]) -> Result<Vec<(Output, Variable)>> {
        compute_gradients(builder, loss, variables)
    }

    /// A node that makes the loss smaller by changing these variables: `compute_gradients`, then `apply_gradients`.
    ///
    /// # Errors
    /// As both; INVALID_ARGUMENT where the loss depends on none of the variables.
    fn minimize(&mut self, builder: &mut GraphBuilder, loss: Output, variables: &[Variable], name: &str) -> Result<NodeId> {
        let gradients = compute_gradients(builder, loss, variables)?;
        apply(self, builder, &gradients, None, name)
    }
}

/// The gradients of `loss` for these variables; those it does not depend on are left out.
///
/// # Errors
/// As [`GraphBuilder::gradients`].
pub fn compute_gradients(builder: &mut GraphBuilder, loss: Output, variables: &[Variable]) -> Result<Vec<(Output, Variable)>> {
    let handles: Vec<Output> = variables.iter().map(|variable| variable.handle).collect();
    let gradients = builder.gradients(&[loss], &handles)?;
    Ok(gradients.into_iter().zip(variables).filter_map(|(gradient, variable)| Some((gradient?, variable.clone()))).collect())
}

fn apply(
    optimizer: &mut (impl Optimizer + ?Sized),
    builder: &mut GraphBuilder,
    gradients: &[(Output, Variable)],
    step: Option<&Variable>,
    name: &str,
) -> Result<NodeId> {
    if gradients.is_empty() {
        return Err(Error::invalid_argument("no variable has a gradient: there is nothing to learn"));
    }
    let variables: Vec<Variable> = gradients.iter().map(|(_, variable)| variable.clone()).collect();
    optimizer.create_slots(builder, &variables)?;
    let name = if name.is_empty() { optimizer.name() } else { name };
    builder.name_scope(name, |b| {
        let absolute = format!("{}/", b.current_name_scope());
        optimizer.prepare(b)?;
        let mut updates = Vec::with_capacity(gradients.len());
        for (gradient, variable) in gradients {
            let update = |b: &mut GraphBuilder| b.colocate_with(variable.handle.node, |b| optimizer.update(b, *gradient, variable));
            updates.push(b.name_scope(&format!("update_{}", variable.name), update)?);
        }
        let more = optimizer.finish(b, &updates)?;
        updates.extend(more);
        let Some(step) = step else { return b.group(&updates, &absolute) };
        let updated = b.group(&updates, "update")?;
        b.control_dependencies(&[updated], |b| {
            b.colocate_with(step.handle.node, |b| {
                let one = b.constant(splat(step.data_type, &Shape::scalar(), 1.0)?).build()?;
                b.update_variable("AssignAdd", step, one).name(&absolute).build_node()
            })
        })
    })
}
