//! Adam.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output, Shape};

use super::slots::{Numbers, Slots, apply_op};
use super::{Hyper, Optimizer};
use crate::builder::variable::NewVariable;
use crate::builder::{GraphBuilder, Initializer, Variable, VariableKind};

/// Adam, with the powers of its betas as variables of their own.
#[derive(Debug)]
pub struct Adam {
    learning_rate: Hyper,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    numbers: Numbers,
    slots: Slots,
    powers: Option<[Variable; 2]>,
}

impl Adam {
    /// Adam with TensorFlow's betas 0.9 and 0.999 and epsilon 1e-8.
    pub fn new(learning_rate: impl Into<Hyper>) -> Adam {
        Adam {
            learning_rate: learning_rate.into(),
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            numbers: Numbers::default(),
            slots: Slots::default(),
            powers: None,
        }
    }

    /// How slowly the two moments follow the gradient.
    pub fn betas(mut self, beta1: f32, beta2: f32) -> Adam {
        (self.beta1, self.beta2) = (beta1, beta2);
        self
    }

    /// The term that keeps the divisor from 0.
    pub fn epsilon(mut self, epsilon: f32) -> Adam {
        self.epsilon = epsilon;
        self
    }

    fn powers(&self) -> Result<[Variable; 2]> {
        self.powers.clone().ok_or_else(|| Error::internal("Adam has no powers of its betas"))
    }
}

impl Optimizer for Adam {
    fn name(&self) -> &'static str {
        "Adam"
    }

    fn create_slots(&mut self, builder: &mut GraphBuilder, variables: &[Variable]) -> Result<()> {
        if self.powers.is_none()
            && let Some(first) = variables.iter().min_by(|a, b| a.name.cmp(&b.name))
        {
            let mut power = |name: &str, value: f32| {
                builder.make_variable(&NewVariable {
                    name,
                    kind: first.kind,
                    data_type: DataType::Float,
                    shape: Shape::scalar(),
                    initializer: &Initializer::Constant(f64::from(value)),
                    trainable: false,
                    slot_of: Some(first.handle.node),
                })
            };
            self.powers = Some([power("beta1_power", self.beta1)?, power("beta2_power", self.beta2)?]);
        }
        for variable in variables {
            self.slots.create(builder, variable, "m", "Adam", &Initializer::Zeros)?;
            self.slots.create(builder, variable, "v", "Adam", &Initializer::Zeros)?;
        }
        Ok(())
    }

    fn prepare(&mut self, builder: &mut GraphBuilder) -> Result<()> {
        let [beta1, beta2, epsilon] = [self.beta1, self.beta2, self.epsilon].map(Hyper::Fixed);
        let hypers = [("learning_rate", self.learning_rate), ("beta1", beta1), ("beta2", beta2), ("epsilon", epsilon)];
        self.numbers.prepare(builder, &hypers)
    }

    fn update(&mut self, builder: &mut GraphBuilder, gradient: Output, variable: &Variable) -> Result<NodeId> {
        let mut powers = Vec::with_capacity(2);
        for power in self.powers()? {
            // A resource is read under the control dependencies at hand, a reference by its one read.
            let value = if power.kind == VariableKind::Resource { builder.read(&power)? } else { power.value };
            powers.push(if variable.data_type == DataType::Float { value } else { builder.cast(value, variable.data_type).build()? });
        }
        let numbers = self.numbers.in_type(builder, variable.data_type)?;
        let (m, v) = (self.slots.get(variable, "m")?.handle, self.slots.get(variable, "v")?.handle);
        let node = builder.op(&apply_op(variable.kind, "ApplyAdam"));
        node.inputs([variable.handle, m, v]).inputs(powers).inputs(numbers).input(gradient).build_node()
    }

    fn finish(&mut self, builder: &mut GraphBuilder, updates: &[NodeId]) -> Result<Vec<NodeId>> {
        let powers = self.powers()?;
        let betas = self.numbers.in_type(builder, DataType::Float)?;
        builder.control_dependencies(updates, |b| {
            let mut nodes = Vec::with_capacity(2);
            for (power, beta) in powers.iter().zip([betas[1], betas[2]]) {
                nodes.push(b.colocate_with(power.handle.node, |b| {
                    let value = if power.kind == VariableKind::Resource { b.read(power)? } else { power.value };
                    let next = b.mul(value, beta).build()?;
                    b.assign(power, next)
                })?);
            }
            Ok(nodes)
        })
    }
}
