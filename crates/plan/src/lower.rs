//! From nodes to works: aliases vanish, known values become constants, variables get versions.
//!
//! Nodes are taken in the graph's order, which decides what a read of a variable sees where TensorFlow leaves it open: all
//! writes by earlier nodes and none by later ones. Control edges have then done all that they can do, since variables are
//! the only state: they are not carried further.

use std::collections::HashMap;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, HostTensor, Node, NodeId, Output, Shape};
use plimsoll_kernels::expr::{Expr, ExprBuilder, Reg, Scalar};
use plimsoll_ops::{KernelCx, Lower, Meta};

use crate::Request;
use crate::infer::Pruned;
use crate::lir::{Arg, Home, Lir, ValueId, View, WorkKind};
use crate::plan::{DeviceId, PlanFeed, PlanFetch, PlanVariable, VariableKind};

/// What an output of a node is.
#[derive(Clone, Debug)]
enum Meaning {
    Value(View),
    Known(HostTensor),
    /// A reference or a handle.
    Variable(u32),
}

struct Lowering<'a> {
    request: &'a Request<'a>,
    pruned: &'a Pruned,
    lir: Lir,
    meanings: HashMap<Output, Meaning>,
    variables: HashMap<String, u32>,
    /// The newest version of every variable so far.
    versions: Vec<ValueId>,
    /// Which of them were written so far.
    written: Vec<bool>,
    /// The device that feeds and fetches are on.
    host: DeviceId,
}

pub(crate) fn lower(request: &Request<'_>, pruned: &Pruned) -> Result<Lir> {
    let host = request.placement.host;
    let mut lowering = Lowering {
        request,
        pruned,
        lir: Lir::default(),
        meanings: HashMap::new(),
        variables: HashMap::new(),
        versions: Vec::new(),
        written: Vec::new(),
        host,
    };
    lowering.feeds()?;
    for &id in &pruned.order {
        let node = request.graph.node(id);
        lowering.lir.nodes.push((id, lowering.device(id)));
        lowering.node(id, node).map_err(|error| error.at_node(&node.name))?;
    }
    lowering.lir.nodes.sort_unstable_by_key(|(id, _)| *id);
    lowering.fetches()?;
    Ok(lowering.lir)
}

impl Lowering<'_> {
    fn device(&self, id: NodeId) -> DeviceId {
        self.request.placement.devices[id]
    }

    fn feeds(&mut self) -> Result<()> {
        for (index, (output, feed)) in self.pruned.feeds.iter().zip(&self.request.signature.feeds).enumerate() {
            self.lir.feeds.push(PlanFeed { tensor: *output, data_type: feed.data_type, shape: feed.shape.clone() });
            let bytes = feed.data_type.bytes_of(feed.shape.elements()?).ok_or_else(|| not_yet(feed.data_type))?;
            let value = self.lir.value(self.host, Home::Feed(index as u32), bytes, output.node);
            let view = View { value, data_type: feed.data_type, shape: feed.shape.clone() };
            let meaning = feed.value.clone().map_or(Meaning::Value(view), Meaning::Known);
            self.meanings.insert(*output, meaning);
        }
        Ok(())
    }

    fn fetches(&mut self) -> Result<()> {
        for (index, (output, name)) in self.pruned.fetches.iter().zip(&self.request.signature.fetches).enumerate() {
            let node = self.request.graph.node(output.node);
            self.fetch(index as u32, *output, name).map_err(|error| error.at_node(&node.name))?;
        }
        Ok(())
    }

    fn fetch(&mut self, index: u32, output: Output, name: &str) -> Result<()> {
        let view = self.read(output, self.host)?;
        self.lir.fetches.push(PlanFetch { name: name.to_string(), data_type: view.data_type, shape: view.shape.clone() });
        let value = &self.lir.values[view.value];
        // A value that a kernel makes is made where the caller will find it; everything else is copied there.
        let made_here = value.home == Home::Arena && value.device == self.host;
        if made_here {
            self.lir.values[view.value].home = Home::Fetch(index);
            if let Some(work) = self.lir.definitions()[view.value] {
                self.lir.works[work].is_root = true;
            }
            return Ok(());
        }
        let copy = self.lir.value(self.host, Home::Fetch(index), value.bytes, output.node);
        let device = self.host;
        self.lir.work(WorkKind::Copy, device, vec![output.node], vec![view], vec![copy]).is_root = true;
        Ok(())
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let rules = self.request.registry.require(&node.op)?;
        let facts = &self.pruned.facts[id];
        let open: Vec<usize> = (0..facts.len()).filter(|index| !self.is_settled(id, *index)).collect();
        if open.is_empty() && !facts.is_empty() && !has_effects(rules.lower) {
            return Ok(());
        }
        match rules.lower {
            Lower::Nothing | Lower::Const | Lower::Placeholder => Ok(()),
            Lower::Variable => self.variable(id, node),
            Lower::PlaceholderWithDefault | Lower::Alias => open.into_iter().try_for_each(|index| self.alias(id, node, index)),
            Lower::ReadVariable => {
                let variable = self.variable_of(node, 0)?;
                let view = self.read_variable(variable, id, self.pruned.facts[id][0].shape.complete())?;
                self.define(id, 0, Meaning::Value(view));
                Ok(())
            }
            Lower::IsInitialized => self.is_initialized(id, node),
            Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
                let (inputs, outputs) = (self.input_metas(node, &[])?, self.output_metas(id)?);
                let values = self.values(node);
                let cx = KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values };
                let expr = rules.lower.expression(&cx)?.ok_or_else(|| Error::internal("an elementwise operation without expression"))?;
                self.expression(id, node, &expr, &outputs)
            }
            Lower::Product(make) => {
                let (inputs, outputs) = (self.input_metas(node, &[])?, self.output_metas(id)?);
                let values = self.values(node);
                let spec = make(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                self.product(id, node, spec, &inputs, &outputs)
            }
            Lower::Kernel(prepare) | Lower::Move(prepare) => {
                let (inputs, outputs) = (self.input_metas(node, &[])?, self.output_metas(id)?);
                let values = self.values(node);
                let call = prepare(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let views = self.read_inputs(id, node, &call.inputs)?;
                let results = self.results(id, &outputs);
                let args = (0..views.len()).map(Arg::Input).chain((0..results.len()).map(Arg::Output)).collect();
                self.work(id, WorkKind::Kernel { prepared: call.prepared, args }, views, results, false);
                Ok(())
            }
            Lower::Stateful(prepare) => {
                let (inputs, outputs) = (self.input_metas(node, &[])?, self.output_metas(id)?);
                let values = self.values(node);
                let call = prepare(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let state = self.state(id, node, call.state);
                let mut views = vec![self.current(state)];
                views.extend(self.read_inputs(id, node, &call.inputs)?);
                let mut results = vec![self.write(state, id)];
                results.extend(self.results(id, &outputs));
                let args = (1..views.len()).map(Arg::Input).chain((0..results.len()).map(Arg::Output));
                self.work(id, WorkKind::Kernel { prepared: call.prepared, args: args.collect() }, views, results, true);
                Ok(())
            }
            Lower::Assign => self.assign(id, node),
            Lower::Update(make) => {
                let written = self.variable_inputs(node);
                let (inputs, outputs) = (self.input_metas(node, &written)?, self.output_metas(id).unwrap_or_default());
                let values = self.values(node);
                let update = make(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                self.update(id, node, update)
            }
            Lower::UpdateInPlace(prepare) => {
                let written = self.variable_inputs(node);
                let (inputs, outputs) = (self.input_metas(node, &written)?, self.output_metas(id).unwrap_or_default());
                let values = self.values(node);
                let call = prepare(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let variable = self.variable_of(node, 0)?;
                let mut views = vec![self.read_variable(variable, id, None)?];
                views.extend(self.read_inputs(id, node, &call.inputs[1..])?);
                let result = self.write(variable, id);
                let inputs = (1..views.len()).map(Arg::Input);
                let args = std::iter::once(Arg::Output(0)).chain(inputs).chain(std::iter::once(Arg::Output(0))).collect();
                self.work(id, WorkKind::Kernel { prepared: call.prepared, args }, views, vec![result], true);
                self.define_reference(id, variable);
                Ok(())
            }
        }
    }

    /// Whether output `index` needs no work: it is fed, or known, or nobody could read it.
    fn is_settled(&mut self, id: NodeId, index: usize) -> bool {
        let output = Output { node: id, index: index as u32 };
        if self.meanings.contains_key(&output) {
            return true;
        }
        let Some(value) = &self.pruned.facts[id][index].value else { return false };
        self.meanings.insert(output, Meaning::Known(value.clone()));
        true
    }

    fn define(&mut self, id: NodeId, index: usize, meaning: Meaning) {
        self.meanings.entry(Output { node: id, index: index as u32 }).or_insert(meaning);
    }

    fn define_reference(&mut self, id: NodeId, variable: u32) {
        if self.pruned.facts[id].first().is_some_and(|fact| fact.is_ref) {
            self.define(id, 0, Meaning::Variable(variable));
        }
    }

    fn meaning(&self, output: Output) -> Result<&Meaning> {
        self.meanings.get(&output).ok_or_else(|| {
            Error::unimplemented(format!("not yet: {} has no value that can be planned", self.request.graph.tensor_name(output)))
        })
    }

    /// A tensor as a value that works on `device` can read. (Values of other devices are copied later.)
    fn read(&mut self, output: Output, device: DeviceId) -> Result<View> {
        match self.meaning(output)?.clone() {
            Meaning::Value(view) => Ok(view),
            Meaning::Known(tensor) => {
                tensor.data_type().size().ok_or_else(|| not_yet(tensor.data_type()))?;
                let name = &self.request.graph.node(output.node).name;
                let value = self.lir.constant(&tensor, device, output.node, name)?;
                Ok(View { value, data_type: tensor.data_type(), shape: tensor.shape().clone() })
            }
            Meaning::Variable(variable) => self.read_variable(variable, output.node, None),
        }
    }

    fn read_inputs(&mut self, id: NodeId, node: &Node, inputs: &[usize]) -> Result<Vec<View>> {
        let device = self.device(id);
        let reading = |lowering: &mut Self, input: usize| match lowering.meaning(node.inputs[input])?.clone() {
            Meaning::Variable(variable) => lowering.read_variable(variable, id, None),
            _ => lowering.read(node.inputs[input], device),
        };
        inputs.iter().map(|input| reading(self, *input)).collect()
    }

    fn values(&self, node: &Node) -> Vec<Option<HostTensor>> {
        let known = |input: &Output| match self.meanings.get(input) {
            Some(Meaning::Known(tensor)) => Some(tensor.clone()),
            _ => None,
        };
        node.inputs.iter().map(known).collect()
    }

    /// Types and shapes of the inputs; for variable arguments those of the variable.
    fn input_metas(&self, node: &Node, _variables: &[usize]) -> Result<Vec<Meta>> {
        let meta = |input: &Output| match self.meaning(*input)? {
            Meaning::Value(view) => Ok(Meta { data_type: view.data_type, shape: view.shape.clone() }),
            Meaning::Known(tensor) => Ok(Meta { data_type: tensor.data_type(), shape: tensor.shape().clone() }),
            Meaning::Variable(variable) => {
                let variable = &self.lir.variables[*variable as usize];
                Ok(Meta { data_type: variable.data_type, shape: variable.shape.clone() })
            }
        };
        node.inputs.iter().map(meta).collect()
    }

    fn output_metas(&self, id: NodeId) -> Result<Vec<Meta>> {
        let facts = self.pruned.facts[id].iter().enumerate();
        let meta = |(index, fact): (usize, &plimsoll_ops::Fact)| {
            fact.data_type.size().ok_or_else(|| not_yet(fact.data_type))?;
            let shape = fact.shape.complete().ok_or_else(|| {
                Error::unimplemented(format!("not yet: the shape {} of output {index} is known only when the graph runs", fact.shape))
            })?;
            shape.elements()?;
            Ok(Meta { data_type: fact.data_type, shape })
        };
        facts.map(meta).collect()
    }

    /// New values for all outputs of a node that are not fed.
    fn results(&mut self, id: NodeId, outputs: &[Meta]) -> Vec<ValueId> {
        let device = self.device(id);
        let mut results = Vec::with_capacity(outputs.len());
        for (index, meta) in outputs.iter().enumerate() {
            let value = self.lir.value(device, Home::Arena, meta.bytes(), id);
            self.define(id, index, Meaning::Value(View { value, data_type: meta.data_type, shape: meta.shape.clone() }));
            results.push(value);
        }
        results
    }

    fn work(&mut self, id: NodeId, kind: WorkKind, inputs: Vec<View>, outputs: Vec<ValueId>, is_root: bool) {
        let device = self.device(id);
        self.lir.work(kind, device, vec![id], inputs, outputs).is_root = is_root;
    }

    fn alias(&mut self, id: NodeId, node: &Node, index: usize) -> Result<()> {
        let meaning = match self.meaning(node.inputs[index])?.clone() {
            // A reference through an operation that takes values is read here and now.
            Meaning::Variable(variable)
                if !self.pruned.facts[id][index].is_ref && self.pruned.facts[id][index].data_type != DataType::Resource =>
            {
                Meaning::Value(self.read_variable(variable, id, None)?)
            }
            other => other,
        };
        let meaning = match meaning {
            Meaning::Value(view) => {
                let fact = &self.pruned.facts[id][index];
                let shape = fact.shape.complete().ok_or_else(|| {
                    Error::unimplemented(format!("not yet: the shape {} of output {index} is known only when the graph runs", fact.shape))
                })?;
                if shape.elements()? != view.elements() {
                    return Err(Error::invalid_argument(format!("a tensor of shape {} cannot be seen as {shape}", view.shape)));
                }
                Meaning::Value(View { value: view.value, data_type: fact.data_type, shape })
            }
            Meaning::Known(tensor) => match self.pruned.facts[id][index].shape.complete() {
                Some(shape) => Meaning::Known(tensor.reshaped(shape)?),
                None => Meaning::Known(tensor),
            },
            variable => variable,
        };
        self.define(id, index, meaning);
        Ok(())
    }

    /// An elementwise work; known splats become numbers in the expression.
    fn expression(&mut self, id: NodeId, node: &Node, expr: &Expr, outputs: &[Meta]) -> Result<()> {
        let inputs: Vec<Output> = node.inputs.clone();
        let (expr, views) = self.operands(id, expr, &inputs)?;
        let results = self.results(id, outputs);
        let shape = outputs[0].shape.clone();
        self.work(id, WorkKind::Expr { expr, shape }, views, results, false);
        Ok(())
    }

    /// The expression with known splats inside, and its remaining operands.
    fn operands(&mut self, id: NodeId, expr: &Expr, inputs: &[Output]) -> Result<(Expr, Vec<View>)> {
        let mut builder = ExprBuilder::new();
        let mut views: Vec<View> = Vec::new();
        let mut registers: Vec<Reg> = Vec::new();
        let mut view_registers: Vec<Reg> = Vec::new();
        let device = self.device(id);
        for input in inputs {
            let meaning = self.meaning(*input)?.clone();
            if let Meaning::Known(tensor) = &meaning
                && let Some(scalar) = tensor.splat().and_then(|bytes| Scalar::from_le_bytes(tensor.data_type(), bytes))
            {
                registers.push(builder.constant(scalar));
                continue;
            }
            let view = match meaning {
                Meaning::Variable(variable) => self.read_variable(variable, id, None)?,
                _ => self.read(*input, device)?,
            };
            // The same tensor twice is one operand.
            match views.iter().position(|other| *other == view) {
                Some(position) => registers.push(view_registers[position]),
                None => {
                    let register = builder.input(view.data_type)?;
                    registers.push(register);
                    view_registers.push(register);
                    views.push(view);
                }
            }
        }
        let results = builder.inline(expr, &registers)?;
        Ok((builder.finish(results), views))
    }

    fn product(
        &mut self,
        id: NodeId,
        node: &Node,
        spec: plimsoll_kernels::product::ProductSpec,
        inputs: &[Meta],
        outputs: &[Meta],
    ) -> Result<()> {
        let views = self.read_inputs(id, node, &[0, 1])?;
        let results = self.results(id, outputs);
        let kind = if inputs[0].data_type == DataType::Float {
            WorkKind::Product { spec, epilogue: None }
        } else {
            let prepared = plimsoll_kernels::product::product_generic(inputs[0].data_type, &spec)?;
            WorkKind::Kernel { prepared, args: vec![Arg::Input(0), Arg::Input(1), Arg::Output(0)] }
        };
        self.work(id, kind, views, results, false);
        Ok(())
    }

    fn variable(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let fact = &self.pruned.facts[id][0];
        let (data_type, shape, kind) = match &fact.handle {
            Some((data_type, shape)) => (*data_type, shape, VariableKind::Resource),
            None => (fact.data_type, &fact.shape, VariableKind::Reference),
        };
        let shape = shape.complete().ok_or_else(|| Error::unimplemented(format!("not yet: a variable of shape {shape}")))?;
        let text = |name: &str| match node.attrs.get(name) {
            Some(AttrValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let (container, shared) = (text("container"), text("shared_name"));
        let key = format!("{container};{}", if shared.is_empty() { &node.name } else { &shared });
        let variable = self.new_variable(key, id, node, kind, data_type, shape, None)?;
        self.define(id, 0, Meaning::Variable(variable));
        Ok(())
    }

    fn state(&mut self, id: NodeId, node: &Node, initial: Vec<u8>) -> u32 {
        let shape = Shape::from([initial.len() as u64]);
        self.new_variable(format!("state;{}", node.name), id, node, VariableKind::State, DataType::Uint8, shape, Some(initial))
            .expect("a node has one state")
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a variable")]
    fn new_variable(
        &mut self,
        key: String,
        id: NodeId,
        node: &Node,
        kind: VariableKind,
        data_type: DataType,
        shape: Shape,
        initial: Option<Vec<u8>>,
    ) -> Result<u32> {
        let device = self.device(id);
        if let Some(&known) = self.variables.get(&key) {
            let variable = &self.lir.variables[known as usize];
            if variable.data_type != data_type || variable.shape != shape || variable.kind != kind || variable.device != device {
                return Err(Error::invalid_argument(format!("variable '{}' is declared twice, and not alike: {}", key, variable.name)));
            }
            return Ok(known);
        }
        let bytes = data_type.bytes_of(shape.elements()?).ok_or_else(|| not_yet(data_type))?;
        let index = self.lir.variables.len() as u32;
        let name = node.name.clone();
        self.variables.insert(key.clone(), index);
        let variable =
            PlanVariable { key, name, kind, data_type, shape, device, initial, read_first_by: None, assigned_by: None, written: false };
        self.lir.variables.push(variable);
        let value = self.lir.value(device, Home::Variable(index), bytes, id);
        self.versions.push(value);
        self.written.push(false);
        Ok(index)
    }

    /// The inputs of a node that are references or handles.
    fn variable_inputs(&self, node: &Node) -> Vec<usize> {
        (0..node.inputs.len()).filter(|input| matches!(self.meanings.get(&node.inputs[*input]), Some(Meaning::Variable(_)))).collect()
    }

    fn variable_of(&self, node: &Node, input: usize) -> Result<u32> {
        match self.meaning(node.inputs[input])? {
            Meaning::Variable(variable) => Ok(*variable),
            _ => Err(Error::invalid_argument(format!("input {input} of {} is no variable (a fed value cannot be assigned)", node.op))),
        }
    }

    /// The variable as the nodes so far leave it, seen as a value.
    fn current(&self, variable: u32) -> View {
        let known = &self.lir.variables[variable as usize];
        View { value: self.versions[variable as usize], data_type: known.data_type, shape: known.shape.clone() }
    }

    fn read_variable(&mut self, variable: u32, reader: NodeId, shape: Option<Shape>) -> Result<View> {
        let view = self.current(variable);
        if let Some(shape) = shape
            && shape != view.shape
        {
            return Err(Error::invalid_argument(format!("the variable has shape {}, not {shape}", view.shape)));
        }
        if !self.written[variable as usize] {
            self.lir.variables[variable as usize].read_first_by.get_or_insert(reader);
        }
        Ok(view)
    }

    /// The next version of a variable.
    fn write(&mut self, variable: u32, writer: NodeId) -> ValueId {
        let old = self.versions[variable as usize];
        let Value { device, home, bytes } = Value::of(&self.lir, old);
        let new = self.lir.value(device, home, bytes, writer);
        self.lir.next_version.push((old, new));
        self.versions[variable as usize] = new;
        self.written[variable as usize] = true;
        self.lir.variables[variable as usize].written = true;
        new
    }

    fn is_initialized(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let variable = self.variable_of(node, 0)?;
        let meaning = if self.written[variable as usize] {
            Meaning::Known(HostTensor::from_bools(Shape::scalar(), &[true])?)
        } else {
            let device = self.lir.variables[variable as usize].device;
            let value = self.lir.value(device, Home::Flag(variable), 1, id);
            Meaning::Value(View { value, data_type: DataType::Bool, shape: Shape::scalar() })
        };
        self.define(id, 0, meaning);
        Ok(())
    }

    fn assign(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let variable = self.variable_of(node, 0)?;
        let (data_type, shape) = {
            let known = &self.lir.variables[variable as usize];
            (known.data_type, known.shape.clone())
        };
        let meaning = self.meaning(node.inputs[1])?.clone();
        let given = match &meaning {
            Meaning::Known(tensor) => Meta { data_type: tensor.data_type(), shape: tensor.shape().clone() },
            Meaning::Value(view) => Meta { data_type: view.data_type, shape: view.shape.clone() },
            Meaning::Variable(source) => Meta {
                data_type: self.lir.variables[*source as usize].data_type,
                shape: self.lir.variables[*source as usize].shape.clone(),
            },
        };
        if given.data_type != data_type {
            return Err(Error::invalid_argument(format!(
                "Trying to assign variable with wrong dtype. Expected {data_type} got {}",
                given.data_type
            )));
        }
        if given.shape != shape {
            return Err(Error::invalid_argument(format!(
                "Assign requires shapes of both tensors to match. lhs shape= {shape} rhs shape= {}",
                given.shape
            )));
        }
        let splat = match &meaning {
            Meaning::Known(tensor) => tensor.splat().and_then(|bytes| Scalar::from_le_bytes(data_type, bytes)),
            _ => None,
        };
        let was_written = self.written[variable as usize];
        let mut builder = ExprBuilder::new();
        let (kind, views) = if let Some(scalar) = splat {
            let value = builder.constant(scalar);
            (WorkKind::Expr { expr: builder.finish(vec![value]), shape }, Vec::new())
        } else {
            let view = match meaning {
                Meaning::Variable(source) => self.read_variable(source, id, None)?,
                _ => self.read(node.inputs[1], self.device(id))?,
            };
            match builder.input(data_type) {
                // Only what a kernel makes is worth joining with the kernel; the rest is a plain copy.
                Ok(value) if self.lir.values[view.value].home == Home::Arena => {
                    (WorkKind::Expr { expr: builder.finish(vec![value]), shape }, vec![view])
                }
                _ => (WorkKind::Copy, vec![view]),
            }
        };
        let result = self.write(variable, id);
        self.work(id, kind, views, vec![result], true);
        if !was_written {
            // Filled in with the command's place when the queues are made.
            self.lir.variables[variable as usize].assigned_by = Some((0, 0));
        }
        self.define_reference(id, variable);
        Ok(())
    }

    fn update(&mut self, id: NodeId, node: &Node, update: plimsoll_ops::Update) -> Result<()> {
        let targets = update.writes.iter().map(|input| self.variable_of(node, *input)).collect::<Result<Vec<u32>>>()?;
        let inputs: Vec<Output> = node.inputs.clone();
        let (expr, views) = self.operands(id, &update.expr, &inputs)?;
        let shape = self.lir.variables[targets[0] as usize].shape.clone();
        for &target in &targets {
            let variable = &self.lir.variables[target as usize];
            if variable.shape != shape {
                return Err(Error::invalid_argument(format!("variables {} and {shape} of one update differ in shape", variable.shape)));
            }
            if variable.device != self.device(id) {
                return Err(Error::invalid_argument(format!("variable '{}' is on another device than its update", variable.name)));
            }
        }
        let results = targets.iter().map(|target| self.write(*target, id)).collect();
        self.work(id, WorkKind::Expr { expr, shape }, views, results, true);
        self.define_reference(id, targets[0]);
        Ok(())
    }
}

struct Value {
    device: DeviceId,
    home: Home,
    bytes: u64,
}

impl Value {
    fn of(lir: &Lir, id: ValueId) -> Value {
        let value = &lir.values[id];
        Value { device: value.device, home: value.home, bytes: value.bytes }
    }
}

fn has_effects(lower: Lower) -> bool {
    matches!(lower, Lower::Assign | Lower::Update(_) | Lower::UpdateInPlace(_) | Lower::Stateful(_) | Lower::Variable)
}

fn not_yet(data_type: DataType) -> Error {
    Error::unimplemented(format!("not yet: values of type {data_type} in a plan"))
}
