//! Gradient descent with momentum.

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, NodeId, Output};

use super::slots::{Numbers, Slots, apply_op};
use super::{Hyper, Optimizer};
use crate::builder::{GraphBuilder, Initializer, Variable};

/// `accumulation = momentum * accumulation + gradient; variable -= learning_rate * accumulation`.
#[derive(Debug)]
pub struct Momentum {
    learning_rate: Hyper,
    momentum: Hyper,
    nesterov: bool,
    numbers: Numbers,
    slots: Slots,
}

impl Momentum {
    /// Gradient descent with momentum.
    pub fn new(learning_rate: impl Into<Hyper>, momentum: impl Into<Hyper>) -> Momentum {
        Momentum {
            learning_rate: learning_rate.into(),
            momentum: momentum.into(),
            nesterov: false,
            numbers: Numbers::default(),
            slots: Slots::default(),
        }
    }

    /// Whether Nesterov's form is used.
    pub fn nesterov(mut self, nesterov: bool) -> Momentum {
        self.nesterov = nesterov;
        self
    }
}

impl Optimizer for Momentum {
    fn name(&self) -> &'static str {
        "Momentum"
    }

    fn create_slots(&mut self, builder: &mut GraphBuilder, variables: &[Variable]) -> Result<()> {
        variables.iter().try_for_each(|variable| self.slots.create(builder, variable, "momentum", "Momentum", &Initializer::Zeros))
    }

    fn prepare(&mut self, builder: &mut GraphBuilder) -> Result<()> {
        self.numbers.prepare(builder, &[("learning_rate", self.learning_rate), ("momentum", self.momentum)])
    }

    fn update(&mut self, builder: &mut GraphBuilder, gradient: Output, variable: &Variable) -> Result<NodeId> {
        let numbers = self.numbers.in_type(builder, variable.data_type)?;
        let slot = self.slots.get(variable, "momentum")?.handle;
        let node = builder.op(&apply_op(variable.kind, "ApplyMomentum"));
        let node = node.inputs([variable.handle, slot, numbers[0], gradient, numbers[1]]);
        node.attr("use_nesterov", AttrValue::Bool(self.nesterov)).build_node()
    }
}
