//! Stacks: lists with a state. The loops that push on a stack or pop from it carry its state as they carry a list that goes round.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Node, NodeId, Output, Shape};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::gather::{Gather, ScatterOp};

use super::list::{Length, List};
use super::{Lowering, Meaning};
use crate::frames::FrameId;
use crate::lir::{Home, View, WorkKind};
use crate::widen::stack_of;

impl Lowering<'_> {
    pub(super) fn new_stack(&mut self, id: NodeId) -> Result<()> {
        let empty = List { rows: None, length: Length::Known(0) };
        self.stacks.insert(id, empty.clone());
        self.define(id, 0, Meaning::List(empty));
        Ok(())
    }

    /// The list that a tensor is; of a stack, its newest state.
    pub(super) fn state_of(&mut self, output: Output) -> Result<List> {
        self.stacks.get(&output.node).cloned().map_or_else(|| self.list(output), Ok)
    }

    /// Whether the number of a list's tensors is fetched, too: see [`crate::Signature::lengths`].
    pub(super) fn has_length(&self, output: Output) -> bool {
        self.request.signature.lengths.iter().any(|position| self.pruned.fetches.get(*position) == Some(&output))
    }

    /// The rows of a list that is fetched, with all its room.
    pub(super) fn all_room(&mut self, output: Output) -> Result<View> {
        let list = self.state_of(output)?;
        self.rows(output.node, &list, output)
    }

    /// The stack that a handle stands for.
    fn stack_at(&self, handle: Output) -> Result<NodeId> {
        stack_of(self.request.graph, handle)
            .filter(|stack| self.stacks.contains_key(stack))
            .ok_or_else(|| Error::unimplemented("not yet: a handle that stands for one of several stacks"))
    }

    pub(super) fn push_on(&mut self, id: NodeId, node: &Node, (stack, item): (usize, usize)) -> Result<()> {
        let stack = self.stack_at(node.inputs[stack])?;
        let of = Output { node: stack, index: 0 };
        // What nothing pops need not be kept.
        if self.list_fact(of).is_ok() {
            let item = self.read_input(id, node, item)?;
            let list = self.stacks[&stack].clone();
            let rows = self.rows(id, &list, of)?;
            if item.data_type != rows.data_type {
                return Err(Error::invalid_argument(format!("Must have type {} but got {}", rows.data_type, item.data_type)));
            }
            let index = self.number(id, &list.length)?;
            if self.branches.guard.is_some() && !self.may_change(id, rows.value) {
                return Err(Error::unimplemented("not yet: a push on a stack in a condition outside of a loop"));
            }
            let rows = self.scatter(id, ScatterOp::Update, rows, index, item)?;
            let length = self.if_alive(id, &list.length, 1)?;
            self.stacks.insert(stack, List { rows: Some(rows), length });
        }
        self.alias(id, node.inputs[item], 0)
    }

    pub(super) fn pop_off(&mut self, id: NodeId, node: &Node, stack: usize) -> Result<()> {
        if let Some(flow) = self.pruned.facts[id].first().and_then(|fact| fact.list.as_ref()) {
            // The flow of a TensorArray says which one it is, and no more.
            let length = flow.length.ok_or_else(|| Error::needs_values("not yet: a list whose size is known only when the graph runs"))?;
            self.define(id, 0, Meaning::List(List { rows: None, length: Length::Known(length) }));
            return Ok(());
        }
        if self.pruned.facts[id].first().is_some_and(|fact| fact.data_type == DataType::Resource) {
            // The handle of a TensorArray stands for nothing.
            self.define(id, 0, Meaning::List(List { rows: None, length: Length::Known(0) }));
            return Ok(());
        }
        let stack = self.stack_at(node.inputs[stack])?;
        let of = Output { node: stack, index: 0 };
        if self.list_fact(of).is_err() {
            return Err(Error::unimplemented("not yet: a stack that several nodes push on"));
        }
        let list = self.stacks[&stack].clone();
        if matches!(list.length, Length::Known(0)) && (!self.inside.is_empty() || self.branches.guard.is_some()) {
            // The side of a condition that has never run.
            return self.nothing_there(id, 0, Requirement::ListNotEmpty);
        }
        let rows = self.rows(id, &list, of)?;
        let length = self.longer(id, &list.length, -1)?;
        let index = self.number(id, &length)?;
        let meta = self.output_metas(id)?.swap_remove(0);
        let element = meta.element()? as usize;
        let (params, index_type) = (rows.shape.to_vec(), index.data_type);
        let request = Gather::Take { element, params, indices: Vec::new(), axis: 0, batch_dims: 0, index_type };
        let value = self.lir.value(self.device(id), Home::Arena, meta.bytes()?, id);
        self.work(id, WorkKind::request(KernelRequest::Gather(request), 2, 1), vec![rows.clone(), index], vec![value], false);
        let length = self.if_alive(id, &list.length, -1)?;
        self.stacks.insert(stack, List { rows: Some(rows), length });
        self.define(id, 0, Meaning::Value(View { value, data_type: meta.data_type, shape: meta.shape }));
        Ok(())
    }

    /// The length of a stack behind a push or a pop, which may be in a condition.
    fn if_alive(&mut self, id: NodeId, length: &Length, by: i32) -> Result<Length> {
        let Some(guard) = self.branches.guard else { return self.longer(id, length, by) };
        let length = self.number(id, length)?;
        let mut builder = ExprBuilder::new();
        let (old, is_alive, by) = (builder.input(DataType::Int32)?, builder.input(DataType::Bool)?, builder.constant(Scalar::I32(by)));
        let next = builder.binary(BinaryOp::Add, old, by)?;
        let result = builder.select(is_alive, next, old)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![result]), shape: Shape::scalar() };
        let is_alive = View { value: guard, data_type: DataType::Bool, shape: Shape::scalar() };
        // The length is one, whether or not the node is alive.
        self.branches.guard = None;
        let made = self.made(id, kind, vec![length, is_alive], DataType::Int32, Shape::scalar());
        self.branches.guard = Some(guard);
        made.map(Length::Value)
    }

    /// The stacks from around a loop that it pushes on or pops from, each with the first node that does.
    pub(super) fn stacks_of(&self, frame: FrameId) -> Vec<(NodeId, NodeId)> {
        let (graph, pruned) = (self.request.graph, self.pruned);
        let mut stacks: Vec<(NodeId, NodeId)> = Vec::new();
        for id in pruned.frames.nodes(frame) {
            let node = graph.node(id);
            if !matches!(node.op.as_str(), "StackPushV2" | "StackPopV2") {
                continue;
            }
            let Some(stack) = node.inputs.first().and_then(|handle| stack_of(graph, *handle)) else { continue };
            let is_kept = self.stacks.contains_key(&stack) && self.list_fact(Output { node: stack, index: 0 }).is_ok();
            if is_kept && stacks.iter().all(|(other, _)| *other != stack) {
                stacks.push((stack, id));
            }
        }
        stacks
    }
}
