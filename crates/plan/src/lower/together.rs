//! Nodes that are cheaper together than one by one:
//!
//! - MaxPool remembers where its maxima were, and MaxPoolGrad reads that instead of the pooling's input, which need not be kept.
//! - A ReluGrad behind that, by the pooling's input, only leaves out maxima that are not above 0: the pooling forgets those.
//! - BiasAddGrad and Conv2DBackpropFilter read MaxPoolGrad's inputs (positions, gradient). If they are its only readers, its output
//!   is never made.
//! - Mean over the first axis of ConcatV2 of pieces of one is an average element by element, and nothing is moved. So TensorFlow's
//!   towers average gradients.

use std::collections::{HashMap, HashSet};

use plimsoll_base::{Code, DataType, Result};
use plimsoll_graph::{AttrsExt, HostTensor, Node, NodeId, Output};
use plimsoll_ops::KernelCx;
use plimsoll_ops::nn::conv::filter_of_unpooled;
use plimsoll_ops::nn::max_pool::{grad_by_positions, with_positions};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::pool::PoolSpec;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use super::{Lowering, Meaning, has_effects};
use crate::Request;
use crate::infer::Pruned;
use crate::lir::{Home, ValueId, View, WorkKind};
use crate::prepare::choose;

/// An average of more pieces than this is left as it is.
const MOST_PIECES: usize = 24;

/// The nodes that go together, and their results so far.
#[derive(Default)]
pub(super) struct Together {
    /// Poolings that remember their maxima, and whether only those above 0.
    pools: HashMap<NodeId, bool>,
    /// Gradients, with their pooling.
    gradients: HashMap<NodeId, NodeId>,
    /// ReluGrads that have nothing left to do, with the pooling's gradient that they read.
    relus: HashMap<NodeId, NodeId>,
    /// The positions of poolings.
    positions: HashMap<NodeId, View>,
    /// Gradients that are made from positions.
    made: HashSet<NodeId>,
    /// Their results, with positions and the gradient by the pooling's result.
    unpooled: HashMap<ValueId, (PoolSpec, Vec<View>)>,
    /// Filters' gradients by something that nothing but their kind and BiasAddGrad reads.
    filters: HashSet<NodeId>,
}

impl Together {
    pub(super) fn find(request: &Request<'_>, pruned: &Pruned) -> Together {
        let graph = request.graph;
        let mut together = Together::default();
        let read = read(request, pruned);
        for &id in pruned.order.iter().filter(|id| read.contains(id)) {
            if let Some(pool) = pooling_of(request, pruned, id) {
                together.pools.insert(pool, true);
                together.gradients.insert(id, pool);
            }
        }
        let mut readers: HashMap<Output, Vec<NodeId>> = HashMap::new();
        for &id in pruned.order.iter().filter(|id| !together.gradients.is_empty() && read.contains(id)) {
            for input in graph.node(id).inputs.iter().filter(|input| together.gradients.contains_key(&input.node)) {
                readers.entry(*input).or_default().push(id);
            }
        }
        for (&gradient, pool) in &together.gradients {
            let (output, pooled) = (Output { node: gradient, index: 0 }, graph.node(gradient).inputs[0]);
            let readers = readers.remove(&output).unwrap_or_default();
            let relu = |id: &NodeId| graph.node(*id).op == "ReluGrad" && graph.node(*id).inputs == [output, pooled];
            if !readers.is_empty() && readers.iter().all(relu) && !pruned.is_fetched(output) && !pruned.is_fed(output) {
                together.relus.extend(readers.into_iter().map(|reader| (reader, gradient)));
            } else {
                together.pools.insert(*pool, false);
            }
        }
        let Together { pools, gradients, relus, .. } = &mut together;
        relus.retain(|_, gradient| pools[&gradients[gradient]]);
        together.filters = filters(request, pruned, &read, &together);
        together
    }
}

/// The nodes that something wanted is computed from, or that do something. (Control edges keep more nodes, whose results have no
/// reader.)
fn read(request: &Request<'_>, pruned: &Pruned) -> HashSet<NodeId> {
    let acts = |id: &NodeId| {
        let rules = request.registry.require(&request.graph.node(*id).op);
        pruned.facts[*id].is_empty() || rules.is_ok_and(|rules| has_effects(rules.lower))
    };
    let mut stack: Vec<NodeId> = pruned.order.iter().copied().filter(acts).collect();
    stack.extend(pruned.fetches.iter().map(|fetch| fetch.node).chain(pruned.targets.iter().copied()));
    let mut read = HashSet::new();
    while let Some(id) = stack.pop() {
        if read.insert(id) {
            stack.extend(request.graph.node(id).inputs.iter().map(|input| input.node));
        }
    }
    read
}

/// The Conv2DBackpropFilters of gradients of poolings that nothing else reads but BiasAddGrad: there they need not be made.
fn filters(request: &Request<'_>, pruned: &Pruned, read: &HashSet<NodeId>, together: &Together) -> HashSet<NodeId> {
    // Every tensor that is such a gradient, with where it comes from.
    let mut same: HashMap<Output, NodeId> = HashMap::new();
    let mut found: Vec<(NodeId, NodeId)> = Vec::new();
    let mut needed: HashSet<NodeId> = HashSet::new();
    for &id in pruned.order.iter().filter(|id| !together.gradients.is_empty() && read.contains(id)) {
        let node = request.graph.node(id);
        let output = Output { node: id, index: 0 };
        if together.gradients.contains_key(&id) {
            same.insert(output, id);
        }
        for (position, input) in node.inputs.iter().enumerate() {
            let Some(&from) = same.get(input) else { continue };
            match (node.op.as_str(), position) {
                ("Identity", 0) => _ = same.insert(output, from),
                ("ReluGrad", 0) if together.relus.contains_key(&id) => _ = same.insert(output, from),
                ("BiasAddGrad", 0) => {}
                ("Conv2DBackpropFilter", 2) => found.push((id, from)),
                _ => _ = needed.insert(from),
            }
        }
    }
    needed.extend(pruned.fetches.iter().filter_map(|fetch| same.get(fetch)));
    found.into_iter().filter(|(_, from)| !needed.contains(from)).map(|(id, _)| id).collect()
}

/// The MaxPool that `id` is the gradient of, where that runs and nothing in between is fed.
fn pooling_of(request: &Request<'_>, pruned: &Pruned, id: NodeId) -> Option<NodeId> {
    let node = request.graph.node(id);
    let (pooled, output) = (*node.inputs.first()?, *node.inputs.get(1)?);
    let pool = request.graph.node(output.node);
    let same = |name: &str| node.attrs.get(name) == pool.attrs.get(name);
    let fits = node.op == "MaxPoolGrad"
        && pool.op == "MaxPool"
        && pool.inputs == [pooled]
        && ["ksize", "strides", "padding", "explicit_paddings", "data_format"].into_iter().all(same)
        && !pruned.is_fed(output)
        // A variable may have changed in between.
        && !pruned.facts[pooled.node][pooled.index as usize].is_ref;
    fits.then_some(output.node)
}

impl Lowering<'_> {
    /// Lowers a node that goes together with others. Whether it was one.
    pub(super) fn together(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        match node.op.as_str() {
            "MaxPool" => self.pool(id, node),
            "MaxPoolGrad" => self.pool_gradient(id, node),
            "ReluGrad" => self.relu_gradient(id),
            "BiasAddGrad" => self.bias_gradient(id, node),
            "Conv2DBackpropFilter" => self.filter_gradient(id, node),
            "Mean" => self.average(id, node),
            _ => Ok(false),
        }
    }

    fn pool(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        let Some(&positive) = self.together.pools.get(&id) else { return Ok(false) };
        let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
        let values = self.values(node);
        let (call, meta) = with_positions(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values }, positive)?;
        let views = self.read_inputs(id, node, &[0])?;
        let mut results = self.results(id, &outputs)?;
        let positions = self.lir.value(self.device(id), Home::Arena, meta.bytes()?, id);
        results.push(positions);
        self.together.positions.insert(id, View { value: positions, data_type: meta.data_type, shape: meta.shape });
        self.kernel(id, call.request, views, results, false)?;
        Ok(true)
    }

    fn pool_gradient(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        let pool = self.together.gradients.get(&id);
        let Some(positions) = pool.and_then(|pool| self.together.positions.get(pool)).cloned() else { return Ok(false) };
        let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
        let values = self.values(node);
        let (request, spec) = grad_by_positions(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
        let mut views = vec![positions];
        views.extend(self.read_inputs(id, node, &[2])?);
        let results = self.results(id, &outputs)?;
        self.together.unpooled.insert(results[0], (spec, views.clone()));
        self.kernel(id, request, views, results, false)?;
        self.together.made.insert(id);
        Ok(true)
    }

    fn relu_gradient(&mut self, id: NodeId) -> Result<bool> {
        let Some(&gradient) = self.together.relus.get(&id).filter(|gradient| self.together.made.contains(gradient)) else {
            return Ok(false);
        };
        let meaning = self.meaning(Output { node: gradient, index: 0 })?.clone();
        self.define(id, 0, meaning);
        Ok(true)
    }

    /// Elements that pooling leaves out have no gradient by the bias either: the gradient by the pooling's result has all terms.
    fn bias_gradient(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        let Some((_, views)) = self.unpooled(node.inputs[0]) else { return Ok(false) };
        let [positions, gradient] = &views[..] else { return Ok(false) };
        let last = node.attrs.text("data_format").is_ok_and(|format| format == "NHWC");
        if positions.data_type != DataType::Uint8 || gradient.data_type != DataType::Float || !last {
            return Ok(false);
        }
        let outputs = self.output_metas(id)?;
        let mut builder = ExprBuilder::new();
        let (place, value) = (builder.input(DataType::Uint8)?, builder.input(DataType::Float)?);
        let (nowhere, zero) = (builder.constant(Scalar::U8(u8::MAX)), builder.constant(Scalar::F32(0.0)));
        let is_somewhere = builder.binary(BinaryOp::NotEqual, place, nowhere)?;
        let kept = builder.select(is_somewhere, value, zero)?;
        let (expr, shape) = (builder.finish(vec![kept]), gradient.shape.clone());
        let axes: Vec<usize> = (0..shape.len().saturating_sub(1)).collect();
        let data_type = DataType::Float;
        let request = Reduction::Reduce { op: ReduceOp::Sum, data_type, shape: shape.to_vec(), axes, divided: false };
        let between = self.lir.value(self.device(id), Home::Arena, 4 * gradient.elements(), id);
        self.work(id, WorkKind::Expr { expr, shape: shape.clone() }, views, vec![between], false);
        let results = self.results(id, &outputs)?;
        let between = View { value: between, data_type, shape };
        self.kernel(id, KernelRequest::Reduction(request), vec![between], results, false)?;
        Ok(true)
    }

    fn filter_gradient(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        if !self.together.filters.contains(&id) {
            return Ok(false);
        }
        let Some((pool, unpooled)) = self.unpooled(node.inputs[2]) else { return Ok(false) };
        let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
        let values = self.values(node);
        let cx = KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values };
        let Some(call) = filter_of_unpooled(&cx, pool)? else { return Ok(false) };
        // Where the device does not do both at once, one after the other is better.
        match choose(self.request, self.device(id), &call.request) {
            Err(error) if error.code() == Code::Unimplemented => return Ok(false),
            chosen => chosen?,
        };
        let mut views = self.read_inputs(id, node, &call.inputs)?;
        views.extend(unpooled);
        let results = self.results(id, &outputs)?;
        self.kernel(id, call.request, views, results, false)?;
        Ok(true)
    }

    /// The pooling whose gradient a tensor is, with positions and the gradient by its result.
    fn unpooled(&self, output: Output) -> Option<(PoolSpec, Vec<View>)> {
        let Some(Meaning::Value(view)) = self.meanings.get(&output) else { return None };
        let (spec, views) = self.together.unpooled.get(&view.value)?;
        (view.shape.dims() == spec.input()).then(|| (*spec, views.clone()))
    }

    fn average(&mut self, id: NodeId, node: &Node) -> Result<bool> {
        let Some(pieces) = self.pieces(node) else { return Ok(false) };
        let outputs = self.output_metas(id)?;
        let data_type = outputs[0].data_type;
        let mut builder = ExprBuilder::new();
        let operands = pieces.iter().map(|_| builder.input(data_type)).collect::<Result<Vec<_>>>()?;
        let Some(count) = Scalar::from_f64(data_type, pieces.len() as f64) else { return Ok(false) };
        let mut sum = operands[0];
        for operand in &operands[1..] {
            sum = builder.binary(BinaryOp::Add, sum, *operand)?;
        }
        let count = builder.constant(count);
        let average = builder.binary(BinaryOp::Div, sum, count)?;
        let (expr, mut views) = self.operands(id, &builder.finish(vec![average]), &pieces)?;
        // The axis of one is gone.
        views.iter_mut().for_each(|view| view.shape = outputs[0].shape.clone());
        let results = self.results(id, &outputs)?;
        self.work(id, WorkKind::Expr { expr, shape: outputs[0].shape.clone() }, views, results, false);
        Ok(true)
    }

    /// The tensors, each with as many elements as the result, whose average a Mean is.
    fn pieces(&self, mean: &Node) -> Option<Vec<Output>> {
        let (all, axes) = (*mean.inputs.first()?, self.values(mean).pop()??);
        let concat = self.request.graph.node(all.node);
        if concat.op != "ConcatV2" || !matches!(self.meanings.get(&all), Some(Meaning::Value(_))) || self.pruned.is_fed(all) {
            return None;
        }
        let rank = self.pruned.facts[all.node].first()?.shape.0.as_ref()?.len() as i64;
        let first = |axes: &HostTensor| matches!(axes.to_i64s()?[..], [axis] if axis == 0 || axis == -rank).then_some(());
        first(&axes)?;
        first(self.values(concat).last()?.as_ref()?)?;
        let (_, pieces) = concat.inputs.split_last()?;
        let one = |piece: &Output| match self.meanings.get(piece) {
            Some(Meaning::Value(view)) => view.shape.first() == Some(&1) && matches!(view.data_type, DataType::Float | DataType::Double),
            _ => false,
        };
        ((2..=MOST_PIECES).contains(&pieces.len()) && pieces.iter().all(one)).then(|| pieces.to_vec())
    }
}
