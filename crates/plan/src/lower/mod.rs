//! From nodes to works: aliases vanish, known values become constants, variables get versions.
//!
//! Nodes are taken in the graph's order. It decides what a read of a variable sees where TensorFlow leaves it open: all writes by
//! earlier nodes and none by later ones. Beyond that, edges of control are carried on only from works that may fail to works with
//! an effect, and back: see `effects`. The nodes that they make dead are known by then: see `branch`.

mod agree;
mod branch;
mod checkpoint;
mod effects;
mod invariant;
mod joined;
mod list;
mod marks;
mod nested;
mod recipe;
mod repeat;
mod same;
mod several;
mod space;
mod stack;
mod sum;
mod variables;

pub(crate) use checkpoint::settle_saves;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Error, Kind, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, IdVec, Node, NodeId, Output};
use plimsoll_ops::list::of_lists;
use plimsoll_ops::{KernelCx, Lower, Meta};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{Expr, ExprBuilder, Part, PartOperand, Reg, Scalar};

use self::branch::Branches;
pub(crate) use self::variables::state_key;
pub use self::variables::variable_key;
use crate::Request;
use crate::condition::Condition;
use crate::frames::Item;
use crate::infer::Pruned;
use crate::lir::{Arg, FeedId, FetchId, Home, Lir, ValueId, VariableId, View, WorkId, WorkKind};
use crate::plan::{DeviceId, PlanFeed, PlanFetch};
use crate::request::ListTraits;

/// The meaning of an output of a node.
#[derive(Clone, Debug)]
enum Meaning {
    Value(View),
    Known(HostTensor),
    /// A reference or a handle.
    Variable(VariableId),
    /// A tensor in a checkpoint, of whatever shape is asked for.
    Stored(checkpoint::Stored),
    /// A list of tensors.
    List(list::List),
    /// A list all of whose tensors are one tensor.
    Same(same::Same),
    /// A list of which a few tensors are set, for the sum that reads it.
    Placed(sum::Placed),
}

struct Lowering<'a> {
    request: &'a Request<'a>,
    pruned: &'a Pruned,
    lir: Lir,
    meanings: HashMap<Output, Meaning>,
    variables: HashMap<String, VariableId>,
    /// The newest version of every variable so far.
    versions: IdVec<VariableId, ValueId>,
    /// When each of them has been written so far, or seen to be initialised.
    written: IdVec<VariableId, Condition>,
    branches: Branches,
    effects: effects::Effects,
    checkpoints: checkpoint::Checkpoints,
    /// The newest state of every stack, by its StackV2.
    stacks: HashMap<NodeId, list::List>,
    marks: marks::Marks,
    /// The loops around the node at hand, the innermost last.
    inside: Vec<repeat::Inside>,
    /// The device that feeds and fetches are on.
    host: DeviceId,
    /// By node: the device that does its work.
    workers: IdVec<NodeId, DeviceId>,
    /// The nodes that put tensors into a list whose only reader is a sum.
    summed: HashSet<NodeId>,
}

pub(crate) fn lower(request: &Request<'_>, pruned: &Pruned) -> Result<Lir> {
    let host = request.placement.host;
    let mut lowering = Lowering {
        request,
        pruned,
        lir: Lir::new(),
        meanings: HashMap::new(),
        variables: HashMap::new(),
        versions: IdVec::new(),
        written: IdVec::new(),
        branches: Branches::default(),
        effects: effects::Effects::new(request.graph.nodes().len(), pruned),
        checkpoints: checkpoint::Checkpoints::default(),
        stacks: HashMap::new(),
        marks: marks::Marks::new(request.graph, pruned),
        inside: Vec::new(),
        host,
        workers: space::workers(request, pruned),
        summed: sum::summed(request, pruned),
    };
    lowering.feeds()?;
    lowering.lir.nodes.extend(pruned.order.iter().map(|id| (*id, request.placement.devices[*id])));
    lowering.lir.nodes.sort_unstable_by_key(|(id, _)| *id);
    lowering.items(&pruned.frames.items)?;
    lowering.targets();
    lowering.fetches()?;
    lowering.settle_last()?;
    lowering.order_checks();
    agree::join_agreeing(&mut lowering.lir)?;
    lowering.lir.drop_dead()?;
    Ok(lowering.lir)
}

/// An expression with more operands is several works.
const MOST_OPERANDS: usize = 32;
/// So is one with more steps.
const MOST_STEPS: usize = 512;
/// So many operands has one of them, about: in AddN the sum so far and three groups of eight.
const PART_OPERANDS: usize = 25;

impl Lowering<'_> {
    fn device(&self, id: NodeId) -> DeviceId {
        self.workers[id]
    }

    fn feeds(&mut self) -> Result<()> {
        for (position, (output, feed)) in self.pruned.feeds.iter().zip(&self.request.signature.feeds).enumerate() {
            let bytes = match &feed.value {
                Some(value) => Bytes(value.byte_len()),
                None if feed.data_type.size().is_none() => return Err(not_yet(feed.data_type).with_kind(Kind::NeedsValues)),
                None => feed.shape.bytes(feed.data_type)?,
            };
            let id: FeedId = self.lir.feeds.push(PlanFeed { tensor: *output, data_type: feed.data_type, shape: feed.shape.clone(), bytes });
            let meaning = match &feed.value {
                Some(value) => Meaning::Known(value.clone()),
                None => {
                    let value = self.lir.param(self.host, Home::Feed(id), bytes.0, output.node);
                    let view = View { value, data_type: feed.data_type, shape: feed.shape.clone() };
                    match self.request.signature.lists.contains(&position) {
                        true => {
                            let list = list::List::of_rows(view);
                            if self.request.graph.node(output.node).op == "StackV2" {
                                self.stacks.insert(output.node, list.clone());
                            }
                            Meaning::List(list)
                        }
                        false => Meaning::Value(view),
                    }
                }
            };
            self.meanings.insert(*output, meaning);
        }
        Ok(())
    }

    /// Nodes and loops, one behind another.
    fn items(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            match *item {
                Item::Node(id) => {
                    let node = self.request.graph.node(id);
                    let first = self.lir.works.len();
                    self.node(id, node).map_err(|error| error.at_node(&node.name))?;
                    self.set_flags(first)?;
                    self.settle_effects(id, node, first)?;
                    self.take_in(first)?;
                }
                Item::Loop(frame) => {
                    let first = self.pruned.frames.get(frame).enters.first().copied();
                    let at = |error: Error| first.map_or(error.clone(), |id| error.at_node(&self.request.graph.node(id).name));
                    self.repeat(frame).map_err(at)?;
                }
            }
        }
        Ok(())
    }

    /// Targets run even without readers of their values: they may fail.
    fn targets(&mut self) {
        let definitions = self.lir.definitions();
        for &target in &self.pruned.targets {
            for index in 0..self.pruned.facts[target].len() as u32 {
                let Some(Meaning::Value(view)) = self.meanings.get(&Output { node: target, index }) else { continue };
                if let Some(work) = definitions[view.value] {
                    self.lir.works[work].is_root = true;
                }
            }
        }
    }

    fn fetches(&mut self) -> Result<()> {
        let mut made = Made::default();
        for (output, name) in self.pruned.fetches.iter().zip(&self.request.signature.fetches) {
            let node = self.request.graph.node(output.node);
            let first = self.lir.works.len();
            self.fetch(*output, name, &mut made).map_err(|error| error.at_node(&node.name))?;
            self.settle_effects_after(output.node, first)?;
        }
        Ok(())
    }

    fn fetch(&mut self, output: Output, name: &str, made: &mut Made) -> Result<()> {
        self.require_alive(self.lir.fetches.next_id(), output)?;
        let position = self.lir.fetches.next_id().index();
        let view = match self.meaning(output)? {
            Meaning::List(_) | Meaning::Same(_) if self.request.signature.lengths.contains(&position) => {
                let length = self.state_of(output)?.length;
                self.number(output.node, &length)?
            }
            Meaning::List(_) | Meaning::Same(_) if self.has_length(output) => self.all_room(output)?,
            Meaning::List(_) | Meaning::Same(_) => self.whole_list(output)?,
            _ => self.read(output, self.host)?,
        };
        let bytes = view.shape.bytes(view.data_type)?;
        let list = self.pruned.facts[output.node].get(output.index as usize).and_then(|fact| fact.list.as_ref());
        let is_list = self.request.signature.is_stage && !self.request.signature.lengths.contains(&position);
        let list = list.filter(|list| is_list && list.inner.is_some());
        let traits = list.map(|list| Arc::new(ListTraits::of(list)));
        let (name, data_type, shape) = (name.to_string(), view.data_type, view.shape.clone());
        let id: FetchId = self.lir.fetches.push(PlanFetch { name, data_type, shape, bytes, traits });
        let value = &self.lir.values[view.value];
        // A value that a kernel makes is made where the caller will find it; everything else is copied there.
        let made_here = value.home == Home::Arena && value.device == self.host;
        if made_here {
            self.lir.values[view.value].home = Home::Fetch(id);
            if let Some(work) = made.by(&self.lir, view.value) {
                self.lir.works[work].is_root = true;
            }
            return Ok(());
        }
        let copy = self.lir.value(self.host, Home::Fetch(id), value.bytes, output.node);
        let device = self.host;
        let work = self.lir.work(WorkKind::Copy, device, vec![output.node], vec![view], vec![copy]);
        self.lir.works[work].is_root = true;
        Ok(())
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let rules = self.request.registry.require(&node.op)?;
        if self.is_loop_switch(node) {
            // In an iteration its predicate holds.
            return if self.is_settled(id, 1) { Ok(()) } else { self.alias(id, node.inputs[0], 1) };
        }
        if !self.enter(id, node, rules.lower)? {
            return Ok(());
        }
        if let Some(error) = self.pruned.refused.get(&id) {
            return Err(error.clone().with_kind(Kind::NeedsValues));
        }
        let facts = &self.pruned.facts[id];
        let open: Vec<usize> = (0..facts.len()).filter(|index| !self.is_settled(id, *index)).collect();
        if open.is_empty() && !facts.is_empty() && !has_effects(rules.lower) {
            return Ok(());
        }
        self.check_handles(id, node)?;
        let is_list = |input: &Output| matches!(self.meanings.get(input), Some(Meaning::List(_) | Meaning::Same(_) | Meaning::Placed(_)));
        if let (Some(op), true) = (of_lists(&node.op), node.inputs.iter().any(is_list)) {
            return self.list_op(id, node, op);
        }
        match rules.lower {
            Lower::Nothing | Lower::ControlTrigger | Lower::Const | Lower::Placeholder => Ok(()),
            Lower::Variable => self.variable(id, node),
            Lower::PlaceholderWithDefault | Lower::Alias => {
                open.into_iter().try_for_each(|index| self.alias(id, node.inputs[index], index))
            }
            Lower::Switch => open.into_iter().try_for_each(|index| self.alias(id, node.inputs[0], index)),
            Lower::Merge => self.merge(id, node),
            Lower::ReadVariable => {
                let variable = self.variable_of(node, 0)?;
                let view = self.read_variable(variable, id, self.pruned.facts[id][0].shape.complete())?;
                self.define(id, 0, Meaning::Value(view));
                Ok(())
            }
            Lower::IsInitialized => self.is_initialized(id, node),
            Lower::Unary(_) | Lower::Binary(_) | Lower::Elementwise(_) => {
                let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
                let values = self.values(node);
                let cx = KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values };
                let expr = rules.lower.expression(&cx)?.ok_or_else(|| Error::internal("an elementwise operation without expression"))?;
                if expr.is_identity() && inputs.len() == 1 {
                    // A Cast to the type that it has already.
                    return self.alias(id, node.inputs[0], 0);
                }
                self.expression(id, node, &expr, &outputs)
            }
            Lower::Anchor(make) => {
                let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
                let values = self.values(node);
                let call = make(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let views = self.read_inputs(id, node, &call.inputs)?;
                let results = self.results(id, &outputs)?;
                if call.anchor.shape().is_none() {
                    // No expression can be fused into it.
                    let request = KernelRequest::Anchor { anchor: call.anchor, epilogue: None, pooling: None };
                    self.request(id, request, views, results, false);
                    return Ok(());
                }
                self.work(id, WorkKind::Anchor { anchor: call.anchor, epilogue: None }, views, results, false);
                Ok(())
            }
            Lower::Kernel(prepare) | Lower::Move(prepare) => {
                let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
                let values = self.values(node);
                let call = prepare(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let views = self.read_inputs(id, node, &call.inputs)?;
                let results = self.results(id, &outputs)?;
                // A node without results is there for its checks.
                let is_root = results.is_empty();
                self.request(id, call.request, views, results, is_root);
                Ok(())
            }
            Lower::Recipe(make) => {
                let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
                let values = self.values(node);
                let recipe = make(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                self.recipe(id, node, &recipe)
            }
            Lower::Stateful(prepare) => {
                let (inputs, outputs) = (self.metas(&node.inputs)?, self.output_metas(id)?);
                let values = self.values(node);
                let call = prepare(&KernelCx { node, inputs: &inputs, outputs: &outputs, values: &values })?;
                let bytes = call.state.len() as u64;
                let state = self.state(id, node, call.state)?;
                let now = self.current(state)?;
                if let Some(before) = call.before {
                    let next = self.write(state, id)?;
                    let value = self.lir.value(self.device(id), Home::Arena, bytes, id);
                    let was = View { value, ..now.clone() };
                    let args = Arg::all(0, 2);
                    self.work(id, WorkKind::Request { request: Arc::new(before), args }, vec![now], vec![next, value], true);
                    let views = self.read_inputs(id, node, &call.inputs)?.into_iter().chain([was]).collect();
                    let results = self.results(id, &outputs)?;
                    self.request(id, call.request, views, results, false);
                    return Ok(());
                }
                let mut views = vec![now];
                views.extend(self.read_inputs(id, node, &call.inputs)?);
                let mut results = vec![self.write(state, id)?];
                results.extend(self.results(id, &outputs)?);
                let args = (1..views.len()).map(Arg::Input).chain((0..results.len()).map(Arg::Output)).collect();
                self.work(id, WorkKind::Request { request: Arc::new(call.request), args }, views, results, true);
                Ok(())
            }
            Lower::Counted(_) => Err(Error::needs_values(format!("not yet: the sizes of {} are known only when the graph runs", node.op))),
            Lower::List(op) => match self.list_inside(node, op) {
                Some(list) => self.optional_list(id, list, op),
                None => {
                    self.check_access(id, node)?;
                    self.list_op(id, node, op)
                }
            },
            Lower::Restore => self.restore(id, node),
            Lower::Save => self.save(id, node),
            Lower::Assign | Lower::Update(_) | Lower::UpdateInPlace(_) => self.change(id, node, rules.lower),
        }
    }

    /// Whether output `index` needs no work: it is fed, or known, or cannot be read.
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

    fn define_reference(&mut self, id: NodeId, variable: VariableId) {
        if self.pruned.facts[id].first().is_some_and(|fact| fact.is_ref) {
            self.define(id, 0, Meaning::Variable(variable));
        }
    }

    fn meaning(&self, output: Output) -> Result<&Meaning> {
        self.meanings.get(&output).ok_or_else(|| {
            let message = format!("not yet: {} has no value that can be planned", self.request.graph.tensor_name(output));
            // What is computed from shapes only has a value where these are known.
            let facts = |output: &Output| self.pruned.facts[output.node].get(output.index as usize);
            let has_no_size = |output: &Output| facts(output).is_some_and(|fact| fact.shape.complete().is_none());
            let is_late = has_no_size(&output) || self.request.graph.node(output.node).inputs.iter().any(has_no_size);
            if is_late { Error::needs_values(message) } else { Error::unimplemented(message) }
        })
    }

    /// A tensor as a value that works on `device` can read. (Values of other devices are copied later.)
    fn read(&mut self, output: Output, device: DeviceId) -> Result<View> {
        match self.meaning(output)?.clone() {
            Meaning::Value(view) => Ok(view),
            Meaning::Known(tensor) => {
                tensor.data_type().size().ok_or_else(|| not_yet(tensor.data_type()))?;
                let of = self.known_as(output, &tensor);
                let name = &self.request.graph.node(of.node).name;
                let value = self.lir.constant(&tensor, device, of, name)?;
                Ok(View { value, data_type: tensor.data_type(), shape: tensor.shape().clone() })
            }
            Meaning::Variable(variable) => self.read_variable(variable, output.node, None),
            Meaning::Stored(_) => Err(self.shape_of_stored(output)),
            Meaning::List(_) | Meaning::Same(_) | Meaning::Placed(_) => Err(self.is_list(output)),
        }
    }

    /// The tensor that always has these elements where another one has them now: what goes round in a loop is known before the first
    /// iteration, say.
    fn known_as(&self, output: Output, elements: &HostTensor) -> Output {
        let graph = self.request.graph;
        let has_them = |tensor: &Output| {
            let fact = self.pruned.facts[tensor.node].get(tensor.index as usize);
            fact.is_some_and(|fact| fact.value.as_ref() == Some(elements))
        };
        let mut open = vec![output];
        for _ in 0..MOST_STEPS {
            let Some(tensor) = open.pop().filter(|tensor| !has_them(tensor)) else { break };
            let node = graph.node(tensor.node);
            match node.op.as_str() {
                "Merge" | "RefMerge" => open.extend(node.inputs.iter().copied()),
                _ => open.extend(node.inputs.first().copied()),
            }
            if let Some(found) = open.iter().find(|tensor| has_them(tensor)) {
                return *found;
            }
        }
        output
    }

    fn is_list(&self, output: Output) -> Error {
        Error::unimplemented(format!("not yet: the list of tensors {} as a value", self.request.graph.tensor_name(output)))
    }

    fn shape_of_stored(&self, output: Output) -> Error {
        let name = self.request.graph.tensor_name(output);
        Error::unimplemented(format!("not yet: {name} comes from a checkpoint, and no variable that it is assigned to says its shape"))
    }

    fn read_inputs(&mut self, id: NodeId, node: &Node, inputs: &[usize]) -> Result<Vec<View>> {
        inputs.iter().map(|input| self.read_input(id, node, *input)).collect()
    }

    fn read_input(&mut self, id: NodeId, node: &Node, input: usize) -> Result<View> {
        match self.meaning(node.inputs[input])?.clone() {
            Meaning::Variable(variable) => self.read_variable(variable, id, None),
            _ => self.read(node.inputs[input], self.device(id)),
        }
    }

    fn values(&self, node: &Node) -> Vec<Option<HostTensor>> {
        let known = |input: &Output| match self.meanings.get(input) {
            Some(Meaning::Known(tensor)) => Some(tensor.clone()),
            _ => None,
        };
        node.inputs.iter().map(known).collect()
    }

    /// Types and shapes of tensors; for references and handles those of the variable.
    fn metas(&self, inputs: &[Output]) -> Result<Vec<Meta>> {
        let meta = |input: &Output| match self.meaning(*input)? {
            Meaning::Value(view) => Ok(Meta { data_type: view.data_type, shape: view.shape.clone() }),
            Meaning::Known(tensor) => Ok(Meta { data_type: tensor.data_type(), shape: tensor.shape().clone() }),
            Meaning::Variable(variable) => {
                let variable = &self.lir.variables[*variable];
                Ok(Meta { data_type: variable.data_type, shape: variable.shape.clone() })
            }
            Meaning::Stored(_) => Err(self.shape_of_stored(*input)),
            Meaning::List(_) | Meaning::Same(_) | Meaning::Placed(_) => Err(self.is_list(*input)),
        };
        inputs.iter().map(meta).collect()
    }

    fn output_metas(&self, id: NodeId) -> Result<Vec<Meta>> {
        let facts = self.pruned.facts[id].iter().enumerate();
        let meta = |(index, fact): (usize, &plimsoll_ops::Fact)| {
            let shape = fact.shape.complete().ok_or_else(|| {
                Error::needs_values(format!("not yet: the shape {} of output {index} is known only when the graph runs", fact.shape))
            })?;
            shape.bytes(fact.data_type)?;
            Ok(Meta { data_type: fact.data_type, shape })
        };
        facts.map(meta).collect()
    }

    /// New values for all outputs of a node that are not fed.
    fn results(&mut self, id: NodeId, outputs: &[Meta]) -> Result<Vec<ValueId>> {
        let device = self.device(id);
        let mut results = Vec::with_capacity(outputs.len());
        for (index, meta) in outputs.iter().enumerate() {
            let value = self.lir.value(device, Home::Arena, meta.bytes()?, id);
            self.define(id, index, Meaning::Value(View { value, data_type: meta.data_type, shape: meta.shape.clone() }));
            results.push(value);
        }
        Ok(results)
    }

    fn work(&mut self, id: NodeId, kind: WorkKind, inputs: Vec<View>, outputs: Vec<ValueId>, is_root: bool) {
        let device = self.device(id);
        let guard = self.branches.guard;
        let work = self.lir.work(kind, device, vec![id], inputs, outputs);
        let work = &mut self.lir.works[work];
        (work.is_root, work.guard) = (is_root, guard);
    }

    /// A request whose arguments are all inputs, then all results.
    fn request(&mut self, id: NodeId, request: KernelRequest, inputs: Vec<View>, results: Vec<ValueId>, is_root: bool) {
        self.work(id, WorkKind::request(request, inputs.len(), results.len()), inputs, results, is_root);
    }

    /// Output `index` is `source`, seen as the output's type and shape.
    fn alias(&mut self, id: NodeId, source: Output, index: usize) -> Result<()> {
        let meaning = match self.meaning(source)?.clone() {
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
                    Error::needs_values(format!("not yet: the shape {} of output {index} is known only when the graph runs", fact.shape))
                })?;
                // In bytes: an alias may give them another type.
                let bytes = fact.data_type.bytes_of(shape.elements()?);
                if bytes != view.data_type.bytes_of(view.elements()) {
                    return Err(Error::invalid_argument(format!("a tensor of shape {} cannot be seen as {shape}", view.shape)));
                }
                Meaning::Value(View { value: view.value, data_type: fact.data_type, shape })
            }
            Meaning::Known(tensor) => match self.pruned.facts[id][index].shape.complete() {
                Some(shape) => Meaning::Known(tensor.reshaped(shape)?),
                None => Meaning::Known(tensor),
            },
            other => other,
        };
        self.define(id, index, meaning);
        self.refer_alike(source, Output { node: id, index: index as u32 });
        Ok(())
    }

    /// An elementwise work; known splats become numbers in the expression.
    fn expression(&mut self, id: NodeId, node: &Node, expr: &Expr, outputs: &[Meta]) -> Result<()> {
        let inputs: Vec<Output> = node.inputs.clone();
        let (expr, views) = self.operands(id, expr, &inputs)?;
        let shape = outputs[0].shape.clone();
        let is_large = views.len() > MOST_OPERANDS || expr.instrs().len() > MOST_STEPS;
        let parts = if is_large { expr.split(PART_OPERANDS)? } else { Vec::new() };
        let Some((last, first)) = parts.split_last() else {
            let results = self.results(id, outputs)?;
            self.work(id, WorkKind::Expr { expr, shape }, views, results, false);
            return Ok(());
        };
        let mut made: Vec<Vec<View>> = Vec::with_capacity(first.len());
        let inputs = |part: &Part, made: &[Vec<View>]| {
            let view = |operand: &PartOperand| match *operand {
                PartOperand::Input(input) => views[input].clone(),
                PartOperand::Made { part, result } => made[part][result].clone(),
            };
            part.operands.iter().map(view).collect::<Vec<View>>()
        };
        for part in first {
            let mut results = Vec::new();
            for data_type in part.expr.output_types() {
                let meta = Meta { data_type, shape: shape.clone() };
                let value = self.lir.value(self.device(id), Home::Arena, meta.bytes()?, id);
                results.push(View { value, data_type, shape: shape.clone() });
            }
            let outputs = results.iter().map(|view| view.value).collect();
            self.work(id, WorkKind::Expr { expr: part.expr.clone(), shape: shape.clone() }, inputs(part, &made), outputs, false);
            made.push(results);
        }
        let results = self.results(id, outputs)?;
        self.work(id, WorkKind::Expr { expr: last.expr.clone(), shape }, inputs(last, &made), results, false);
        Ok(())
    }

    /// The expression with known splats inside, and its remaining operands.
    fn operands(&mut self, id: NodeId, expr: &Expr, inputs: &[Output]) -> Result<(Expr, Vec<View>)> {
        inline(expr, inputs.iter().map(|input| self.operand(id, *input)).collect::<Result<Vec<_>>>()?)
    }

    /// A tensor as an operand of an expression.
    fn operand(&mut self, id: NodeId, input: Output) -> Result<Operand> {
        match self.meaning(input)?.clone() {
            Meaning::Known(tensor) => match scalar_of(&tensor) {
                Some(scalar) => Ok(Operand::Scalar(scalar)),
                None => self.read(input, self.device(id)).map(Operand::View),
            },
            Meaning::Variable(variable) => self.read_variable(variable, id, None).map(Operand::View),
            _ => self.read(input, self.device(id)).map(Operand::View),
        }
    }

    /// Whether a tensor is known and all its elements are one number.
    fn is_splat(&self, input: Output) -> bool {
        matches!(self.meanings.get(&input), Some(Meaning::Known(tensor)) if scalar_of(tensor).is_some())
    }
}

/// An operand of an expression.
enum Operand {
    /// Known: it becomes part of the expression.
    Scalar(Scalar),
    View(View),
}

fn scalar_of(tensor: &HostTensor) -> Option<Scalar> {
    Scalar::from_le_bytes(tensor.data_type(), tensor.splat()?)
}

/// The expression with scalars inside, and the tensors that it still reads. The same tensor twice is one operand.
fn inline(expr: &Expr, operands: Vec<Operand>) -> Result<(Expr, Vec<View>)> {
    let mut builder = ExprBuilder::new();
    let mut views: Vec<View> = Vec::new();
    let mut registers: Vec<Reg> = Vec::new();
    let mut known: HashMap<View, Reg> = HashMap::new();
    for operand in operands {
        let view = match operand {
            Operand::Scalar(scalar) => {
                registers.push(builder.constant(scalar));
                continue;
            }
            Operand::View(view) => view,
        };
        match known.get(&view) {
            Some(register) => registers.push(*register),
            None => {
                let register = builder.input(view.data_type)?;
                registers.push(register);
                known.insert(view.clone(), register);
                views.push(view);
            }
        }
    }
    let results = builder.inline(expr, &registers)?;
    Ok((builder.finish(results), views))
}

/// Which work makes a value, kept while works are added.
#[derive(Default)]
struct Made {
    by: HashMap<ValueId, WorkId>,
    seen: usize,
}

impl Made {
    fn by(&mut self, lir: &Lir, value: ValueId) -> Option<WorkId> {
        for id in (self.seen..lir.works.len()).map(WorkId::from_index) {
            self.by.extend(lir.works[id].outputs.iter().map(|output| (*output, id)));
        }
        self.seen = lir.works.len();
        self.by.get(&value).copied()
    }
}

fn has_effects(lower: Lower) -> bool {
    matches!(
        lower,
        Lower::Restore | Lower::Save | Lower::Assign | Lower::Update(_) | Lower::UpdateInPlace(_) | Lower::Stateful(_) | Lower::Variable
    )
}

fn not_yet(data_type: DataType) -> Error {
    Error::unimplemented(format!("not yet: values of type {data_type} in a plan"))
}
