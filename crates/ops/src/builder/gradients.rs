//! Gradients by TensorFlow's algorithm: from the ys back to the xs, each node by its operation's rule.

use std::collections::HashMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, FuncRef, NodeId, Output, Shape};

use super::GraphBuilder;
use crate::control::symbolic::SYMBOLIC_GRADIENT;
use crate::infer::merge_shapes;
use crate::registry::Gradient;

/// The gradients that have arrived at each tensor, not yet summed.
type Arrived = HashMap<Output, Vec<Output>>;

impl GraphBuilder {
    /// The gradients of the sum of all `ys` with respect to each of `xs`; none where no `y` depends on it. An `x` may be any
    /// tensor: a variable's value, its reference or its resource handle among them.
    ///
    /// The new nodes are named `gradients/NODE_grad/...` and ask for the device of the node whose gradient they compute.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for ys that are no floats; UNIMPLEMENTED, naming the node, where an operation in between has no gradient
    /// here; the errors of gradient rules.
    pub fn gradients(&mut self, ys: &[Output], xs: &[Output]) -> Result<Vec<Option<Output>>> {
        self.gradients_from(ys, &vec![None; ys.len()], xs)
    }

    /// Whether all gradients of a node are computed before any of them is used; not so unless said. Plimsoll needs it never:
    /// it lets no write overtake a read. TensorFlow needs it where *reference* variables are updated in the same run (its
    /// optimizers do it always), for graphs that it is to run.
    pub fn set_gate_gradients(&mut self, gate: bool) {
        self.gate_gradients = gate;
    }

    /// As [`GraphBuilder::gradients`], beginning with these gradients of the `ys`; ones where there is none.
    ///
    /// # Errors
    /// As [`GraphBuilder::gradients`]; INVALID_ARGUMENT where a given gradient has another type or shape than its `y`.
    pub fn gradients_from(&mut self, ys: &[Output], grad_ys: &[Option<Output>], xs: &[Output]) -> Result<Vec<Option<Output>>> {
        if ys.len() != grad_ys.len() {
            return Err(Error::invalid_argument(format!("{} gradients for {} ys", grad_ys.len(), ys.len())));
        }
        self.gradients_through(ys, grad_ys, xs)
    }

    /// The gradients of a function's body by the rules of TensorFlow's runtime, which differ from those of its Python front end:
    /// from the `ys`, each with its gradient, those of the arguments `xs`. A `y` of a type that has no gradient adds nothing. With
    /// `integers` they have gradients, too, and Cast passes them on.
    ///
    /// # Errors
    /// As [`GraphBuilder::gradients_from`].
    pub fn gradients_of_body(&mut self, ys: &[(Output, Output)], xs: &[Output], integers: bool) -> Result<Vec<Option<Output>>> {
        let before = std::mem::replace(&mut self.integer_gradients, integers);
        let ys = ys.iter().filter(|(y, _)| self.is_trainable(*y));
        let (ys, grad_ys): (Vec<Output>, Vec<Option<Output>>) = ys.map(|(y, gradient)| (*y, Some(*gradient))).unzip();
        let found = self.gradients_through(&ys, &grad_ys, xs);
        self.integer_gradients = before;
        found
    }

    /// Whether gradients go through integers: see [`GraphBuilder::gradients_of_body`].
    pub(crate) fn has_integer_gradients(&self) -> bool {
        self.integer_gradients
    }

    fn gradients_through(&mut self, ys: &[Output], grad_ys: &[Option<Output>], xs: &[Output]) -> Result<Vec<Option<Output>>> {
        ys.iter().chain(xs).chain(grad_ys.iter().flatten()).try_for_each(|output| self.check_output(*output))?;
        let order = self.graph.topological()?;
        let reached = self.reached_from(xs, &order);
        self.name_scope("gradients", |b| {
            let mut arrived = Arrived::new();
            for (position, (&y, &given)) in ys.iter().zip(grad_ys).enumerate() {
                let gradient = b.gradient_of_y(position, y, given)?;
                if reached.contains_key(&y) {
                    arrived.entry(y).or_default().push(gradient);
                }
            }
            let mut results = HashMap::new();
            for &node in order.iter().rev() {
                b.gradients_of_node(node, xs, &reached, &mut arrived, &mut results)?;
            }
            Ok(xs.iter().map(|x| results.get(x).copied()).collect())
        })
    }

    /// The tensors through which an infinitesimal change of an x can pass, and whether it comes from an x before them.
    fn reached_from(&self, xs: &[Output], order: &[NodeId]) -> HashMap<Output, bool> {
        let mut reached: HashMap<Output, bool> = xs.iter().filter(|x| self.is_trainable(**x)).map(|x| (*x, false)).collect();
        loop {
            let before = reached.len();
            for &node in order {
                if !self.node(node).inputs.iter().any(|input| reached.contains_key(input)) {
                    continue;
                }
                for index in 0..self.output_count(node) as u32 {
                    let output = Output { node, index };
                    if self.is_trainable(output) {
                        reached.insert(output, true);
                    }
                }
            }
            // In the order, the end of a loop comes after its beginning.
            let goes_on =
                |node: &&NodeId| self.node(**node).op == "NextIteration" && reached.contains_key(&Output { node: **node, index: 0 });
            if reached.len() == before || !order.iter().any(|node| goes_on(&node)) {
                return reached;
            }
        }
    }

    /// `given`, or ones in the shape of `y`.
    fn gradient_of_y(&mut self, position: usize, y: Output, given: Option<Output>) -> Result<Output> {
        let at = |b: &GraphBuilder, error: Error| error.at_node(&b.node(y.node).name);
        let fact = self.fact(y);
        let (data_type, shape) = (fact.data_type, fact.shape.complete());
        if !data_type.is_floating() && !data_type.is_complex() && !self.integer_gradients {
            let error = Error::invalid_argument(format!("gradients begin at floats, and {} is {data_type}", self.graph.tensor_name(y)));
            return Err(at(self, error));
        }
        if let Some(given) = given {
            let other = self.fact(given);
            if other.data_type != data_type {
                let error = Error::invalid_argument(format!("the gradient that is given for it is {}, not {data_type}", other.data_type));
                return Err(at(self, error));
            }
            merge_shapes(&other.shape, &self.fact(y).shape).map_err(|error| at(self, error))?;
            return Ok(given);
        }
        self.on_device_of(y.node, |b| {
            let dims = match shape {
                Some(shape) => {
                    let dims: Vec<i64> = shape.iter().map(|dim| *dim as i64).collect();
                    b.constant(super::functions::int_vector(&dims)).name("Shape").build()?
                }
                None => b.shape(y).build()?,
            };
            let one = super::functions::splat(data_type, &Shape::scalar(), 1.0)?;
            b.name_scope(&format!("grad_ys_{position}"), |b| {
                let name = format!("{}/", b.current_name_scope());
                let one = b.constant(one).build()?;
                b.fill(dims, one).name(&name).build()
            })
        })?
    }

    /// Sums the gradients that have arrived at the node's outputs and sends them on to its inputs.
    fn gradients_of_node(
        &mut self,
        node: NodeId,
        xs: &[Output],
        reached: &HashMap<Output, bool>,
        arrived: &mut Arrived,
        results: &mut HashMap<Output, Output>,
    ) -> Result<()> {
        let outputs = (0..self.output_count(node) as u32).map(|index| Output { node, index });
        let waiting: Vec<(Output, Vec<Output>)> = outputs.filter_map(|output| arrived.remove_entry(&output)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut gradients = vec![None; self.output_count(node)];
        for (output, parts) in waiting {
            let sum = self.sum_of(&parts)?;
            gradients[output.index as usize] = Some(sum);
            if xs.contains(&output) {
                results.insert(output, sum);
            }
        }
        if !self.node(node).inputs.iter().any(|input| reached.contains_key(input)) {
            return Ok(());
        }
        let to_inputs = self.on_device_of(node, |b| b.apply_rule(node, &gradients)).and_then(|gradients| gradients);
        let to_inputs = to_inputs.map_err(|error| error.at_node(&self.node(node).name))?;
        for (position, gradient) in to_inputs.into_iter().enumerate() {
            let input = self.node(node).inputs[position];
            if let (Some(gradient), true) = (gradient, reached.contains_key(&input)) {
                self.check_gradient(node, position, input, gradient)?;
                arrived.entry(input).or_default().push(gradient);
            }
        }
        Ok(())
    }

    fn apply_rule(&mut self, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
        let (name, op, inputs) = (self.node(node).name.clone(), self.node(node).op.clone(), self.node(node).inputs.len());
        match self.registry.get(&op).map(|rules| rules.gradient) {
            Some(Gradient::Stops) => Ok(vec![None; inputs]),
            Some(Gradient::Rule(rule)) => self.name_scope(&format!("{name}_grad"), |b| {
                let to_inputs = rule(b, node, gradients)?;
                if to_inputs.len() != inputs {
                    return Err(Error::internal(format!("the gradient of {op} is for {} inputs, not {inputs}", to_inputs.len())));
                }
                b.gated(to_inputs)
            }),
            _ => match self.called(node) {
                Some(func) => self.name_scope(&format!("{name}_grad"), |b| b.gradient_of_call(node, func, gradients)),
                None => Err(Error::unimplemented(format!("No gradient defined for operation '{name}' (op type: {op})"))),
            },
        }
    }

    /// The function that a node calls.
    fn called(&self, node: NodeId) -> Option<FuncRef> {
        let node = self.node(node);
        match node.op.as_str() {
            "PartitionedCall" | "StatefulPartitionedCall" => node.attrs.func("f").ok().cloned(),
            op => self.functions.contains_key(op).then(|| FuncRef { name: op.to_string(), attrs: node.attrs.clone() }),
        }
    }

    /// SymbolicGradient, as TensorFlow's `_SymGrad` makes it: the arguments of a call and the gradients of all its results in, the
    /// gradients of its arguments out.
    fn gradient_of_call(&mut self, node: NodeId, func: FuncRef, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
        let arguments = self.node(node).inputs.clone();
        let mut inputs = arguments.clone();
        for (index, gradient) in (0..).zip(gradients) {
            inputs.push(match gradient {
                Some(gradient) => *gradient,
                None => self.op("ZerosLike").input(Output { node, index }).build()?,
            });
        }
        // The gradient of a handle is that of its variable.
        let of = |argument: &Output| match &self.fact(*argument).handle {
            Some((data_type, _)) => *data_type,
            None if self.data_type(*argument) == DataType::Resource => DataType::Float,
            None => self.data_type(*argument),
        };
        let results: Vec<DataType> = arguments.iter().map(of).collect();
        let made = self.op(SYMBOLIC_GRADIENT).inputs(inputs).attr("Tout", AttrValue::data_types(&results));
        let made = made.attr("f", AttrValue::Func(func)).build_node()?;
        Ok((0..arguments.len() as u32).map(|index| Some(Output { node: made, index })).collect())
    }

    /// Whether a tensor can change by a little.
    fn is_trainable(&self, tensor: Output) -> bool {
        let data_type = self.data_type(tensor);
        let is_other = matches!(data_type, DataType::Complex64 | DataType::Complex128 | DataType::Resource | DataType::Variant);
        data_type.is_floating() || is_other || self.integer_gradients && data_type.is_integer()
    }

    /// The same gradients, each after all of them, if that is asked for and there are several.
    fn gated(&mut self, gradients: Vec<Option<Output>>) -> Result<Vec<Option<Output>>> {
        let nodes: Vec<NodeId> = gradients.iter().flatten().map(|gradient| gradient.node).collect();
        if !self.gate_gradients || nodes.len() < 2 {
            return Ok(gradients);
        }
        self.name_scope("tuple", |b| {
            let all = b.no_device(|b| b.group(&nodes, "group_deps"))?;
            let mut gate =
                |gradient: Output| b.colocate_with(gradient.node, |b| b.identity(gradient).name("control_dependency").control(all).build());
            gradients.into_iter().map(|gradient| gradient.map(&mut gate).transpose()).collect()
        })
    }

    /// The gradient must have its tensor's type and shape; a dimension known of one is known of both then.
    fn check_gradient(&mut self, node: NodeId, position: usize, input: Output, gradient: Output) -> Result<()> {
        self.check_output(gradient)?;
        let (wanted, given) = (self.fact(input), self.fact(gradient));
        if wanted.data_type == DataType::Resource {
            return Ok(());
        }
        let shape = merge_shapes(&given.shape, &wanted.shape).ok().filter(|_| wanted.data_type == given.data_type);
        let Some(shape) = shape else {
            let node = self.node(node);
            let text = format!(
                "the gradient of input {position} of {} is {}{}, the input {}{}",
                node.op, given.data_type, given.shape, wanted.data_type, wanted.shape
            );
            return Err(Error::internal(text).at_node(&node.name));
        };
        self.refine_shape(gradient, shape);
        Ok(())
    }

    fn sum_of(&mut self, parts: &[Output]) -> Result<Output> {
        match parts {
            [only] => Ok(*only),
            _ => {
                let parts = parts.to_vec();
                self.on_device_of(parts[0].node, |b| b.add_n(parts).build())?
            }
        }
    }

    /// Runs `body` where new nodes ask for the device of `node`; where it asks for none, for the scope's.
    fn on_device_of<R>(&mut self, node: NodeId, body: impl FnOnce(&mut GraphBuilder) -> R) -> Result<R> {
        let device = self.node(node).device.clone();
        if device.is_empty() {
            return Ok(body(self));
        }
        let device = super::scope::parse_device(&device).map_err(|error| error.at_node(&self.node(node).name))?;
        Ok(self.scoped(|scope| scope.device = Ok(device), body))
    }
}
