//! Plain gradient descent.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};

use super::slots::{Numbers, apply_op};
use super::{Hyper, Optimizer};
use crate::builder::{GraphBuilder, Variable};

/// `variable -= learning_rate * gradient`.
#[derive(Debug)]
pub struct GradientDescent {
    learning_rate: Hyper,
    numbers: Numbers,
}

impl GradientDescent {
    /// Plain gradient descent.
    pub fn new(learning_rate: impl Into<Hyper>) -> GradientDescent {
        GradientDescent { learning_rate: learning_rate.into(), numbers: Numbers::default() }
    }
}

impl Optimizer for GradientDescent {
    fn name(&self) -> &'static str {
        "GradientDescent"
    }

    fn create_slots(&mut self, _builder: &mut GraphBuilder, _variables: &[Variable]) -> Result<()> {
        Ok(())
    }

    fn prepare(&mut self, builder: &mut GraphBuilder) -> Result<()> {
        self.numbers.prepare(builder, &[("learning_rate", self.learning_rate)])
    }

    fn update(&mut self, builder: &mut GraphBuilder, gradient: Output, variable: &Variable) -> Result<NodeId> {
        let numbers = self.numbers.in_type(builder, variable.data_type)?;
        let op = apply_op(variable.kind, "ApplyGradientDescent");
        builder.op(&op).inputs([variable.handle, numbers[0], gradient]).build_node()
    }
}
