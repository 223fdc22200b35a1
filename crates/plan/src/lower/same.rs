//! Lists all of whose tensors are one tensor. A gradient makes them: an iteration pushes the weights that it reads, which are the
//! same in each. Such a list is the tensor and a length. It has rows only where something other than a push or a pop reads it.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output, Shape};
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::ExprBuilder;

use super::invariant::Invariants;
use super::list::{Length, List};
use super::{Lowering, Meaning};
use crate::frames::Round;
use crate::lir::{View, WorkKind};

/// A list all of whose tensors are one tensor.
#[derive(Clone, Debug)]
pub(super) struct Same {
    pub item: One,
    pub length: Length,
}

/// A tensor.
#[derive(Clone, Debug)]
pub(super) enum One {
    Value(View),
    Known(plimsoll_graph::HostTensor),
}

impl One {
    fn of(meaning: &Meaning) -> Option<One> {
        match meaning {
            Meaning::Value(view) => Some(One::Value(view.clone())),
            Meaning::Known(tensor) => Some(One::Known(tensor.clone())),
            _ => None,
        }
    }

    fn meaning(&self) -> Meaning {
        match self {
            One::Value(view) => Meaning::Value(view.clone()),
            One::Known(tensor) => Meaning::Known(tensor.clone()),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            One::Value(view) => view.data_type,
            One::Known(tensor) => tensor.data_type(),
        }
    }

    fn shape(&self) -> &Shape {
        match self {
            One::Value(view) => &view.shape,
            One::Known(tensor) => tensor.shape(),
        }
    }

    /// Whether it is the same tensor.
    pub fn is(&self, other: &One) -> bool {
        match (self, other) {
            (One::Value(a), One::Value(b)) => a == b,
            (One::Known(a), One::Known(b)) => a == b,
            _ => false,
        }
    }
}

/// Chains of nodes longer than this are not followed.
const MOST_STEPS: usize = 256;

impl Lowering<'_> {
    /// The number of tensors of a list.
    pub(super) fn length(&mut self, output: Output) -> Result<Length> {
        match self.meaning(output)? {
            Meaning::Same(same) => Ok(same.length.clone()),
            _ => Ok(self.list(output)?.length),
        }
    }

    /// The list with its tensors as rows.
    pub(super) fn rows_of_same(&mut self, output: Output, Same { item, length }: Same) -> Result<List> {
        let (data_type, shape) = self.rows_shape(output)?;
        let id = output.node;
        let view = match item {
            One::Value(view) => view,
            One::Known(tensor) => {
                let name = &self.request.graph.node(id).name;
                let value = self.lir.constant(&tensor, self.device(id), output, name)?;
                View { value, data_type: tensor.data_type(), shape: tensor.shape().clone() }
            }
        };
        let mut builder = ExprBuilder::new();
        let tensor = builder.input(view.data_type)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![tensor]), shape: shape.clone() };
        let rows = self.made(id, kind, vec![view], data_type, shape)?;
        Ok(List { rows: Some(rows), length })
    }

    /// A list with one more of the same tensor, if it is.
    pub(super) fn push_same(&mut self, id: NodeId, list: Output, item: Output) -> Result<Option<Meaning>> {
        let Meaning::Same(same) = self.meaning(list)?.clone() else { return Ok(None) };
        if !One::of(self.meaning(item)?).is_some_and(|item| item.is(&same.item)) {
            return Ok(None);
        }
        let length = self.longer(id, &same.length, 1)?;
        Ok(Some(Meaning::Same(Same { length, ..same })))
    }

    /// Takes the last tensor of such a list. Whether it is one.
    pub(super) fn pop_same(&mut self, id: NodeId, list: Output) -> Result<bool> {
        let Meaning::Same(same) = self.meaning(list)?.clone() else { return Ok(false) };
        let wanted = &self.pruned.facts[id][1];
        if wanted.data_type != same.item.data_type() || wanted.shape.complete().is_some_and(|shape| shape != *same.item.shape()) {
            let message = format!("{}{} is popped from a list of {}", wanted.data_type, wanted.shape, same.item.shape());
            return Err(Error::invalid_argument(message));
        }
        let length = self.longer(id, &same.length, -1)?;
        if let Length::Value(left) = &length {
            self.require_length(id, left.clone(), Requirement::ListNotEmpty)?;
        }
        self.define(id, 1, same.item.meaning());
        self.define(id, 0, Meaning::Same(Same { length, ..same }));
        Ok(true)
    }

    /// The list that goes round, as it comes in, where iterations only push that one tensor, and pop.
    pub(super) fn same_in_loop(&self, round: Round, invariants: &Invariants) -> Result<Option<Same>> {
        let merge = Output { node: round.merge, index: 0 };
        let (mut item, length) = match self.meaning(merge)? {
            Meaning::Same(same) => (Some(same.item.clone()), same.length.clone()),
            Meaning::List(List { rows: None, length: Length::Known(0) }) => (None, Length::Known(0)),
            _ => return Ok(None),
        };
        let graph = self.request.graph;
        let mut here = graph.node(round.next).inputs.first().copied();
        for _ in 0..MOST_STEPS {
            let Some(list) = here.filter(|list| *list != merge) else { break };
            let node = graph.node(list.node);
            here = match (node.op.as_str(), &node.inputs[..]) {
                ("Identity", [list, ..]) => Some(*list),
                ("Switch", [given, _]) if list.index == 1 && *given == merge => Some(merge),
                ("TensorListPopBack", [list, ..]) if here.is_some_and(|here| here.index == 0) => Some(*list),
                ("TensorListPushBack", [list, pushed]) => {
                    let fact = &self.pruned.facts[pushed.node][pushed.index as usize];
                    let pushed = match &fact.value {
                        Some(value) => Some(One::Known(value.clone())),
                        None if invariants.has(*pushed) => self.meanings.get(pushed).and_then(One::of),
                        None => None,
                    };
                    let Some(pushed) = pushed else { return Ok(None) };
                    if !item.get_or_insert_with(|| pushed.clone()).is(&pushed) {
                        return Ok(None);
                    }
                    Some(*list)
                }
                _ => return Ok(None),
            };
        }
        let is_of_type = |item: &One| self.list_fact(merge).is_ok_and(|list| list.data_type == item.data_type());
        Ok(item.filter(|item| here == Some(merge) && is_of_type(item)).map(|item| Same { item, length }))
    }
}
