//! Runs small graphs node by node: each node by its own kernel, on the bytes at hand.

use std::collections::HashMap;

use plimsoll_base::{Error, Result};
use plimsoll_device::InstructionSet;
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{Call, Fact, GraphBuilder, KernelCx, Lower, Meta, infer_node};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::Expr;

use super::record::{Case, Kind};

/// The builder's node for a case: operands that are fed are placeholders of the shapes that `shape` gives.
/// Returns the node and its operands.
pub fn build(builder: &mut GraphBuilder, case: &Case, shape: impl Fn(&Shape) -> PartialShape) -> Result<(NodeId, Vec<Output>)> {
    let mut inputs = Vec::new();
    for (position, (kind, value)) in case.inputs.iter().enumerate() {
        let (op, attrs) = match kind {
            Kind::Fed => ("Placeholder", vec![("shape", AttrValue::Shape(shape(value.shape())))]),
            Kind::Known => ("Const", vec![("value", AttrValue::Tensor(value.clone()))]),
            Kind::Variable if case.op.contains("Resource") || case.op.contains("VariableOp") => {
                ("VarHandleOp", vec![("shape", AttrValue::Shape(value.shape().into()))])
            }
            Kind::Variable => ("VariableV2", vec![("shape", AttrValue::Shape(value.shape().into()))]),
        };
        let mut node = builder.op(op).name(&format!("in{position}")).attr("dtype", AttrValue::data_type(value.data_type()));
        for (name, value) in attrs {
            node = node.attr(name, value);
        }
        inputs.push(node.build()?);
    }
    let mut node = builder.op(case.op).inputs(inputs.iter().copied());
    for (name, value) in &case.attrs {
        node = node.attr(name, value.clone());
    }
    let node = node.build_node()?;
    Ok((node, inputs))
}

/// Values of a graph's tensors, computed when they are asked for.
pub struct Interpreter<'a> {
    builder: &'a GraphBuilder,
    facts: HashMap<NodeId, Vec<Fact>>,
    values: HashMap<Output, HostTensor>,
    /// Whether some kernel so far says that it can fail.
    pub can_fail: bool,
    /// The requests so far.
    pub requests: Vec<KernelRequest>,
}

impl<'a> Interpreter<'a> {
    /// Nothing is computed yet; `feeds` are the placeholders' values (or variables').
    pub fn new(builder: &'a GraphBuilder, feeds: impl IntoIterator<Item = (Output, HostTensor)>) -> Interpreter<'a> {
        let values: HashMap<Output, HostTensor> = feeds.into_iter().collect();
        let facts = values.iter().map(|(output, value)| {
            let mut fact = builder.fact(*output).clone();
            match &mut fact.handle {
                Some((_, shape)) => *shape = value.shape().into(),
                None => fact.shape = value.shape().into(),
            }
            (output.node, vec![fact])
        });
        Interpreter { builder, facts: facts.collect(), values, can_fail: false, requests: Vec::new() }
    }

    /// The facts about a node's outputs when the shapes (not the values) of all feeds are known.
    pub fn facts(&mut self, node: NodeId) -> Result<Vec<Fact>> {
        if let Some(facts) = self.facts.get(&node) {
            return Ok(facts.clone());
        }
        let inputs = self.input_facts(node)?;
        let registry = self.builder.registry();
        let node_ = self.builder.node(node);
        let facts = infer_node(registry, &*registry.table().require(&node_.op)?, node_, &inputs)?;
        self.facts.insert(node, facts.clone());
        Ok(facts)
    }

    fn input_facts(&mut self, node: NodeId) -> Result<Vec<Fact>> {
        let inputs = &self.builder.node(node).inputs;
        inputs.iter().map(|input| self.facts(input.node).map(|facts| facts[input.index as usize].clone())).collect()
    }

    /// A tensor's value.
    pub fn value(&mut self, output: Output) -> Result<HostTensor> {
        if !self.values.contains_key(&output) {
            for (index, value) in self.run(output.node)?.into_iter().enumerate() {
                self.values.insert(Output { node: output.node, index: index as u32 }, value);
            }
        }
        Ok(self.values[&output].clone())
    }

    fn run(&mut self, node: NodeId) -> Result<Vec<HostTensor>> {
        let facts = self.facts(node)?;
        if let Some(values) = facts.iter().map(|fact| fact.value.clone()).collect::<Option<Vec<_>>>()
            && !facts.is_empty()
        {
            return values.iter().map(HostTensor::dense).collect();
        }
        let lower = self.builder.registry().require(&self.builder.node(node).op)?.lower;
        if let Lower::Counted(compute) = lower {
            let node = self.builder.node(node).clone();
            let inputs = node.inputs.iter().map(|input| self.value(*input)?.dense()).collect::<Result<Vec<_>>>()?;
            return compute(&node, &inputs.iter().collect::<Vec<_>>());
        }
        let prepared = Preparation::new(self, node)?;
        prepared.run(self, node, lower)
    }

    /// The result of a stateful operation when it first runs.
    pub fn first_draw(&mut self, node: NodeId) -> Result<Vec<HostTensor>> {
        let prepared = Preparation::new(self, node)?;
        let Lower::Stateful(prepare) = self.builder.registry().require(&self.builder.node(node).op)?.lower else {
            return Err(Error::internal("not a stateful operation"));
        };
        let call = prepare(&prepared.cx(self.builder, node))?;
        assert!(call.state.iter().all(|byte| *byte == 0), "the kernel's first output begins as zeros");
        let state = Meta { data_type: plimsoll_base::DataType::Uint8, shape: [call.state.len() as u64].into() };
        let Some(before) = call.before else {
            let outputs = [&[state], &prepared.outputs[..]].concat();
            let mut results = prepared.call(self, node, Call::new(call.request, call.inputs), &outputs)?;
            results.remove(0);
            return Ok(results);
        };
        let was = prepared.answer(self, &before, &[], &[state.clone(), state])?.remove(1);
        let inputs: Vec<Output> = call.inputs.iter().map(|input| self.builder.node(node).inputs[*input]).collect();
        let mut tensors = inputs.into_iter().map(|input| self.value(input)).collect::<Result<Vec<_>>>()?;
        tensors.push(was);
        prepared.answer(self, &call.request, &tensors.iter().collect::<Vec<_>>(), &prepared.outputs)
    }

    /// The effect of an update on its variables: the operands' values after it, by their positions.
    pub fn update(&mut self, node: NodeId) -> Result<Vec<(usize, HostTensor)>> {
        let prepared = Preparation::new(self, node)?;
        let lower = self.builder.registry().require(&self.builder.node(node).op)?.lower;
        let cx = prepared.cx(self.builder, node);
        match lower {
            Lower::Update(make) => {
                let update = make(&cx)?;
                let metas: Vec<Meta> = update.writes.iter().map(|input| prepared.inputs[*input].clone()).collect();
                let results = prepared.expression(self, node, &update.expr, &metas)?;
                Ok(update.writes.into_iter().zip(results).collect())
            }
            Lower::UpdateInPlace(prepare) => {
                let call = prepare(&cx)?;
                let changed = call.inputs[..call.request.arguments()?.outputs.len()].to_vec();
                let metas: Vec<Meta> = changed.iter().map(|input| prepared.inputs[*input].clone()).collect();
                let results = prepared.call(self, node, call, &metas)?;
                Ok(changed.into_iter().zip(results).collect())
            }
            other => Err(Error::internal(format!("{other:?} is no update"))),
        }
    }
}

/// The facts for preparing a kernel for a node.
struct Preparation {
    inputs: Vec<Meta>,
    outputs: Vec<Meta>,
    values: Vec<Option<HostTensor>>,
}

impl Preparation {
    fn new(interpreter: &mut Interpreter<'_>, node: NodeId) -> Result<Preparation> {
        let facts = interpreter.input_facts(node)?;
        let meta = |fact: &Fact| {
            let (data_type, shape) = fact.handle.clone().unwrap_or((fact.data_type, fact.shape.clone()));
            let shape = shape.complete().ok_or_else(|| Error::internal(format!("the shape {shape} is not complete")))?;
            Ok(Meta { data_type, shape })
        };
        let outputs = interpreter.facts(node)?;
        Ok(Preparation {
            inputs: facts.iter().map(meta).collect::<Result<_>>()?,
            outputs: outputs.iter().map(meta).collect::<Result<_>>()?,
            values: facts.into_iter().map(|fact| fact.value).collect(),
        })
    }

    fn cx<'a>(&'a self, builder: &'a GraphBuilder, node: NodeId) -> KernelCx<'a> {
        KernelCx { node: builder.node(node), inputs: &self.inputs, outputs: &self.outputs, values: &self.values }
    }

    fn run(&self, interpreter: &mut Interpreter<'_>, node: NodeId, lower: Lower) -> Result<Vec<HostTensor>> {
        let cx = self.cx(interpreter.builder, node);
        match lower {
            Lower::Alias => {
                let inputs = interpreter.builder.node(node).inputs.clone();
                let reshape = |(input, meta): (&Output, &Meta)| {
                    let value = interpreter.value(*input)?;
                    HostTensor::from_bytes(meta.data_type, meta.shape.clone(), value.bytes().unwrap_or_default())
                };
                inputs.iter().zip(&self.outputs).map(reshape).collect()
            }
            Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
                let expr = lower.expression(&cx)?.ok_or_else(|| Error::internal("no expression"))?;
                self.expression(interpreter, node, &expr, &self.outputs)
            }
            Lower::Anchor(make) => {
                let call = make(&cx)?;
                let request = KernelRequest::Anchor { anchor: call.anchor, epilogue: None, pooling: None };
                self.call(interpreter, node, Call::new(request, call.inputs), &self.outputs)
            }
            Lower::Kernel(prepare) | Lower::Move(prepare) => self.call(interpreter, node, prepare(&cx)?, &self.outputs),
            Lower::Recipe(make) => {
                let inputs = interpreter.builder.node(node).inputs.clone();
                let inputs = inputs.into_iter().map(|input| interpreter.value(input)?.dense()).collect::<Result<Vec<_>>>()?;
                let results = make(&cx)?
                    .evaluate(&inputs, |request, inputs, outputs| self.answer(interpreter, request, inputs, outputs).map(Some))?;
                results.ok_or_else(|| Error::internal("a recipe without an answer"))
            }
            other => Err(Error::internal(format!("{other:?} is not interpreted"))),
        }
    }

    fn expression(&self, interpreter: &mut Interpreter<'_>, node: NodeId, expr: &Expr, outputs: &[Meta]) -> Result<Vec<HostTensor>> {
        let operands = self.inputs.iter().map(|meta| meta.shape.to_vec()).collect();
        let request = KernelRequest::Expr { expr: expr.clone(), shape: outputs[0].shape.to_vec(), operands };
        self.call(interpreter, node, Call::new(request, (0..self.inputs.len()).collect::<Vec<_>>()), outputs)
    }

    fn call(&self, interpreter: &mut Interpreter<'_>, node: NodeId, call: Call, outputs: &[Meta]) -> Result<Vec<HostTensor>> {
        let inputs: Vec<Output> = call.inputs.iter().map(|input| interpreter.builder.node(node).inputs[*input]).collect();
        let tensors = inputs.into_iter().map(|input| interpreter.value(input)).collect::<Result<Vec<_>>>()?;
        self.answer(interpreter, &call.request, &tensors.iter().collect::<Vec<_>>(), outputs)
    }

    fn answer(
        &self,
        interpreter: &mut Interpreter<'_>,
        request: &KernelRequest,
        inputs: &[&HostTensor],
        outputs: &[Meta],
    ) -> Result<Vec<HostTensor>> {
        interpreter.can_fail |= request.can_fail();
        let tensors = inputs.iter().map(|input| input.dense()).collect::<Result<Vec<_>>>()?;
        let bytes: Vec<&[u8]> = tensors.iter().map(|tensor| tensor.bytes().unwrap_or_default()).collect();
        let sizes = outputs.iter().map(Meta::bytes).collect::<Result<Vec<u64>>>()?;
        let said = request.arguments()?;
        assert!(said.inputs.iter().zip(&bytes).all(|(said, bytes)| *said == bytes.len() as u64), "{request:?}: {said:?}");
        assert_eq!((said.inputs.len(), &said.outputs), (bytes.len(), &sizes), "{request:?}");
        interpreter.requests.push(request.clone());
        let results = CpuKernels.evaluate_on(InstructionSet::detect(), request, &bytes, &sizes)?;
        results.iter().zip(outputs).map(|(bytes, meta)| HostTensor::from_bytes(meta.data_type, meta.shape.clone(), bytes)).collect()
    }
}
