//! Optimizers: gradients become updates of variables, in TensorFlow 1's nodes.
//!
//! An optimizer makes its slots (a variable's momentum, say) when it first meets the variable, and uses them again: several
//! `apply_gradients` of one optimizer, as asynchronous towers make them, share slots.

use std::collections::HashMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, Shape};

use super::functions::splat;
use super::variable::NewVariable;
use super::{GraphBuilder, Initializer, Variable, VariableKind};

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

/// What turns gradients into updates.
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

    /// What comes after all updates; further nodes that have to run.
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

/// Numbers of an optimizer, made once for each operation and type that asks.
#[derive(Debug, Default)]
struct Numbers(HashMap<DataType, Vec<Output>>);

impl Numbers {
    /// The float constants of these names, made in the name scope at hand.
    fn prepare(&mut self, builder: &mut GraphBuilder, hypers: &[(&str, Hyper)]) -> Result<()> {
        self.0.clear();
        let mut outputs = Vec::with_capacity(hypers.len());
        for (name, hyper) in hypers {
            outputs.push(match hyper {
                Hyper::Fixed(value) => builder.constant(splat(DataType::Float, &Shape::scalar(), f64::from(*value))?).name(name).build()?,
                Hyper::Tensor(tensor) => *tensor,
            });
        }
        self.0.insert(DataType::Float, outputs);
        Ok(())
    }

    /// The numbers in a variable's type.
    fn in_type(&mut self, builder: &mut GraphBuilder, data_type: DataType) -> Result<Vec<Output>> {
        let numbers = self.0.get(&DataType::Float).cloned().unwrap_or_default();
        numbers
            .into_iter()
            .map(|number| if builder.data_type(number) == data_type { Ok(number) } else { builder.cast(number, data_type).build() })
            .collect()
    }
}

/// The slots of an optimizer: a variable and a slot's name give a variable.
#[derive(Debug, Default)]
struct Slots(HashMap<(NodeId, &'static str), Variable>);

impl Slots {
    /// Zeros of the variable's type and shape, placed with it.
    fn create(&mut self, builder: &mut GraphBuilder, variable: &Variable, slot: &'static str, optimizer: &str) -> Result<()> {
        if self.0.contains_key(&(variable.handle.node, slot)) {
            return Ok(());
        }
        let name = format!("{}/{optimizer}", variable.name);
        let made = builder.make_variable(&NewVariable {
            name: &name,
            kind: variable.kind,
            data_type: variable.data_type,
            shape: variable.shape.clone(),
            initializer: &Initializer::Zeros,
            trainable: false,
            slot_of: Some(variable.handle.node),
        })?;
        self.0.insert((variable.handle.node, slot), made);
        Ok(())
    }

    fn get(&self, variable: &Variable, slot: &'static str) -> Result<&Variable> {
        self.0.get(&(variable.handle.node, slot)).ok_or_else(|| Error::internal(format!("variable {} has no slot {slot}", variable.name)))
    }
}

/// The operation that applies an update, in the form for the kind of variable.
fn apply_op(kind: VariableKind, op: &str) -> String {
    match kind {
        VariableKind::Reference => op.to_string(),
        VariableKind::Resource => format!("Resource{op}"),
    }
}

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
        variables.iter().try_for_each(|variable| self.slots.create(builder, variable, "momentum", "Momentum"))
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

    /// What keeps the divisor from 0.
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
            self.slots.create(builder, variable, "m", "Adam")?;
            self.slots.create(builder, variable, "v", "Adam")?;
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
