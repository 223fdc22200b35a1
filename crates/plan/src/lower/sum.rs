//! Sums of lists. A gradient writes one as a sum of the list so far and a new list of which one tensor is set: that one is added
//! where the other list has it, and the new list is never made.
//!
//! As in TensorFlow, a tensor that was never set adds nothing: -0.0 stays -0.0. (The zeros of ZerosLike are set, and are added.)

use std::collections::{HashMap, HashSet};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::list::of_lists;
use plimsoll_ops::{ListOp, Lower};
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::gather::ScatterOp;

use super::list::{Length, List, require_rows};
use super::{Lowering, Meaning};
use crate::Request;
use crate::infer::Pruned;
use crate::lir::{View, WorkKind};

/// A list of which only the rows at some indices are set. A sum is its only reader.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// The node that sets them.
    node: NodeId,
    indices: View,
    tensor: View,
    length: Length,
}

/// The nodes that put tensors into a list whose only reader is a sum. Both run at the same times.
pub(super) fn summed(request: &Request<'_>, pruned: &Pruned) -> HashSet<NodeId> {
    let graph = request.graph;
    let puts = |id: NodeId| {
        let rules = request.registry.get(&graph.node(id).op);
        let is_put = |rules: &plimsoll_ops::OpRules| {
            matches!(rules.lower, Lower::List(ListOp::SetItem { .. } | ListOp::Scatter { .. } | ListOp::Scattered { .. }))
        };
        rules.is_some_and(is_put)
    };
    let mut readers: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    let mut others: HashSet<NodeId> = pruned.fetches.iter().map(|fetch| fetch.node).chain(pruned.targets.iter().copied()).collect();
    for &id in &pruned.order {
        let node = graph.node(id);
        for input in &node.inputs {
            if puts(input.node) {
                readers.entry(input.node).or_default().push(id);
            }
        }
        others.extend(&node.controls);
        if !node.controls.is_empty() {
            others.insert(id);
        }
    }
    let is_sum = |id: NodeId| matches!(of_lists(&graph.node(id).op), Some(ListOp::AddN));
    let together = |a: NodeId, b: NodeId| pruned.frames.of(a) == pruned.frames.of(b) && pruned.alive.node(a) == pruned.alive.node(b);
    let only = |(put, readers): (NodeId, Vec<NodeId>)| match readers[..] {
        [sum] if is_sum(sum) && together(put, sum) && !others.contains(&put) => Some(put),
        _ => None,
    };
    readers.into_iter().filter_map(only).collect()
}

impl Lowering<'_> {
    /// Whether a list is left to the sum that reads it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the node's result is no list.
    pub(super) fn is_placed(&self, id: NodeId, node: &Node, op: ListOp) -> Result<bool> {
        if !self.summed.contains(&id) {
            return Ok(false);
        }
        let fact = self.pruned.facts[id].iter().find_map(|fact| fact.list.as_ref());
        let Some(fact) = fact.filter(|fact| !fact.is_nested() && fact.inner.is_none()) else { return Ok(false) };
        if self.grows(id, node) {
            return Ok(false);
        }
        // One index twice means one addition, unless what is put there is summed anyway.
        let differ = |indices: usize| {
            let Output { node, index } = node.inputs[indices];
            fact.is_sum || self.pruned.facts[node][index as usize].value.as_ref().is_some_and(are_distinct)
        };
        Ok(match op {
            ListOp::SetItem { list, .. } => self.is_unset(node.inputs[list]),
            ListOp::Scatter { list, indices, .. } => self.is_unset(node.inputs[list]) && differ(indices),
            ListOp::Scattered { indices, .. } => differ(indices),
            _ => false,
        })
    }

    /// Whether no tensor of a list was ever set.
    fn is_unset(&self, list: Output) -> bool {
        let is_zero = matches!(self.meanings.get(&list), Some(Meaning::List(List { rows: None, .. })));
        is_zero && matches!(self.origin(list), Some(ListOp::New { .. } | ListOp::Gradient { .. }))
    }

    /// What makes a list.
    fn origin(&self, list: Output) -> Option<ListOp> {
        let graph = self.request.graph;
        let mut here = graph.node(list.node);
        while let ("Identity" | "Enter", Some(from)) = (here.op.as_str(), here.inputs.first()) {
            here = graph.node(from.node);
        }
        match self.request.registry.get(&here.op)?.lower {
            Lower::List(op) => Some(op),
            _ => of_lists(&here.op),
        }
    }

    /// The list of a node is what it puts into one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the node's result is no list.
    pub(super) fn place(&mut self, id: NodeId, indices: View, tensor: View) -> Result<()> {
        let length = self.list_fact(Output { node: id, index: 0 })?.length;
        let length =
            length.map(Length::Known).ok_or_else(|| Error::needs_values("not yet: a list whose size is known only when the graph runs"))?;
        self.define(id, 0, Meaning::Placed(Placed { node: id, indices, tensor, length }));
        Ok(())
    }

    /// The list with its tensors as rows.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where a tensor is of another shape than those of the list.
    pub(super) fn rows_of_placed(&mut self, output: Output, placed: Placed) -> Result<List> {
        let length = placed.length.clone();
        let rows = self.rows(placed.node, &List { rows: None, length: length.clone() }, output)?;
        let rows = if rows.elements() == 0 { rows } else { self.put(placed.node, ScatterOp::Update, rows, placed)? };
        Ok(List { rows: Some(rows), length })
    }

    /// Rows with what a list puts there, on the device of the node `at`.
    fn put(&mut self, at: NodeId, op: ScatterOp, rows: View, placed: Placed) -> Result<View> {
        require_rows(&rows, &placed.indices, &placed.tensor)?;
        self.scatter(at, op, rows, placed.indices, placed.tensor)
    }

    /// The sums of the tensors of lists, from left to right.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for lists that do not fit.
    pub(super) fn sum(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let of = Output { node: id, index: 0 };
        let first = *node.inputs.first().ok_or_else(|| Error::invalid_argument("a sum of no lists"))?;
        let length = match self.meaning(first)? {
            Meaning::Placed(placed) => placed.length.clone(),
            _ => self.list_like(first, of)?.length,
        };
        let is_zero = |input: &Output| matches!(self.meanings.get(input), Some(Meaning::List(List { rows: None, .. })));
        let adds_zeros = !node.inputs.iter().all(is_zero);
        let mut sum = Sum { whole: Vec::new(), placed: None };
        for input in &node.inputs {
            if let Meaning::Placed(placed) = self.meaning(*input)?.clone() {
                match (sum.whole.is_empty(), sum.placed.take()) {
                    (true, None) => sum.placed = Some((placed, *input)),
                    (true, Some((first, of))) => {
                        let rows = self.rows_of_placed(of, first)?.rows;
                        sum.whole.extend(rows);
                        self.add_placed(id, &mut sum, placed, *input)?;
                    }
                    (false, _) => self.add_placed(id, &mut sum, placed, *input)?,
                }
                continue;
            }
            let list = self.list_like(*input, of)?;
            match list.rows {
                Some(rows) => sum.whole.push(rows),
                // -0.0 and a zero that was set are 0.0.
                None if adds_zeros && matches!(self.origin(*input), Some(ListOp::Zeros { .. })) => {
                    let rows = self.rows(id, &list, *input)?;
                    sum.whole.push(rows);
                }
                None => continue,
            }
            if let Some((placed, of)) = sum.placed.take() {
                self.add_placed(id, &mut sum, placed, of)?;
            }
        }
        let rows = match sum.placed {
            Some((placed, of)) => self.rows_of_placed(of, placed)?.rows,
            None => self.whole(id, sum.whole)?,
        };
        self.define(id, 0, Meaning::List(List { rows, length }));
        Ok(())
    }

    /// Adds rows to the sum of the lists so far.
    fn add_placed(&mut self, id: NodeId, sum: &mut Sum, placed: Placed, of: Output) -> Result<()> {
        let Some(rows) = self.whole(id, std::mem::take(&mut sum.whole))? else {
            return Err(Error::internal("a sum of no lists"));
        };
        let (data_type, shape) = self.rows_shape(of)?;
        require_alike((rows.data_type, &rows.shape), (data_type, &shape))?;
        // Where the sum is: the list that was to be added may be on another device.
        let at = if self.device(placed.node) == self.device(id) { placed.node } else { id };
        let rows = if rows.elements() == 0 { rows } else { self.put(at, ScatterOp::Add, rows, placed)? };
        sum.whole.push(rows);
        Ok(())
    }

    /// The sum of some lists with all their tensors.
    fn whole(&mut self, id: NodeId, views: Vec<View>) -> Result<Option<View>> {
        let [one, others @ ..] = &views[..] else { return Ok(None) };
        if others.is_empty() {
            return Ok(Some(one.clone()));
        }
        if self.list_fact(Output { node: id, index: 0 })?.is_nested() {
            return Err(Error::unimplemented("not yet: a sum of lists of lists"));
        }
        others.iter().try_for_each(|other| require_alike((one.data_type, &one.shape), (other.data_type, &other.shape)))?;
        let mut builder = ExprBuilder::new();
        let mut sum = builder.input(one.data_type)?;
        for _ in others {
            let next = builder.input(one.data_type)?;
            sum = builder.binary(BinaryOp::Add, sum, next)?;
        }
        let kind = WorkKind::Expr { expr: builder.finish(vec![sum]), shape: one.shape.clone() };
        self.made(id, kind, views.clone(), one.data_type, one.shape.clone()).map(Some)
    }
}

/// A sum under way.
struct Sum {
    /// The lists with all their tensors that are not added yet.
    whole: Vec<View>,
    /// The rows of the first operand, where no list with all its tensors came yet.
    placed: Option<(Placed, Output)>,
}

/// Lists are added tensor by tensor.
fn require_alike(one: (DataType, &Shape), other: (DataType, &Shape)) -> Result<()> {
    if one != other {
        return Err(Error::invalid_argument(format!("a sum of lists of {} and {}", one.1, other.1)));
    }
    Ok(())
}

/// Whether no two of some integers are equal.
fn are_distinct(indices: &HostTensor) -> bool {
    let Some(indices) = indices.to_i64s() else { return false };
    let mut seen = HashSet::with_capacity(indices.len());
    indices.into_iter().all(|index| seen.insert(index))
}
