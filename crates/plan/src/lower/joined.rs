//! Lists from tensors and from other lists as a whole; lists of which a condition chooses one.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::ListOp;
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::gather::ScatterOp;
use plimsoll_request::movement::Movement;

use super::list::{Length, List};
use super::{Lowering, Meaning};
use crate::lir::{View, WorkKind};

impl Lowering<'_> {
    /// A list of zeros with the rows of a tensor at indices.
    pub(super) fn scattered(&mut self, id: NodeId, node: &Node, op: ListOp, (indices, tensor): (usize, usize)) -> Result<()> {
        let of = Output { node: id, index: 0 };
        let length = self.known_length(of)?;
        let (indices, tensor) = (self.read_input(id, node, indices)?, self.read_input(id, node, tensor)?);
        if indices.shape.first() != tensor.shape.first() {
            let message = "Expected number of values to match number of indices";
            return Err(Error::invalid_argument(format!("{message}, but got {} and {}", tensor.shape, indices.shape)));
        }
        if self.is_placed(id, node, op)? {
            return self.place(id, indices, tensor);
        }
        let rows = self.rows(id, &List { rows: None, length: Length::Known(length) }, of)?;
        let rows = if length == 0 { rows } else { self.scatter(id, ScatterOp::Update, rows, indices, tensor)? };
        self.define(id, 0, Meaning::List(List { rows: Some(rows), length: Length::Known(length) }));
        Ok(())
    }

    /// The list that an optional has, where an operation makes one of it or takes it out.
    pub(super) fn list_inside(&self, node: &Node, op: ListOp) -> Option<Output> {
        let input = *node.inputs.first()?;
        let list = self.list_fact(input).ok()?;
        match op {
            ListOp::Present { .. } => Some(input),
            ListOp::Value { .. } if list.has_list => Some(input),
            _ => None,
        }
    }

    /// A node whose result is the list that an optional has.
    pub(super) fn optional_list(&mut self, id: NodeId, of: Output, op: ListOp) -> Result<()> {
        match (op, self.length(of)?) {
            (ListOp::Value { .. }, Length::Value(length)) => self.require_length(id, length, Requirement::Present)?,
            (ListOp::Value { .. }, Length::Absent) => return self.no_value(id),
            _ => {}
        }
        self.alias(id, of, 0)
    }

    /// A node that fails where it runs.
    pub(super) fn fail(&mut self, id: NodeId, requirement: Requirement) -> Result<()> {
        let no = HostTensor::from_bools(Shape::scalar(), &[false])?;
        let name = &self.request.graph.node(id).name;
        let value = self.lir.constant(&no, self.device(id), Output { node: id, index: 0 }, name)?;
        let no = View { value, data_type: DataType::Bool, shape: Shape::scalar() };
        self.work(id, WorkKind::request(KernelRequest::Require(requirement), 1, 0), vec![no], Vec::new(), true);
        Ok(())
    }

    /// A pop from a list that has no tensors, in a loop or a condition: it fails where it runs.
    pub(super) fn pop_nothing(&mut self, id: NodeId) -> Result<()> {
        self.define(id, 0, Meaning::List(List { rows: None, length: Length::Known(0) }));
        self.nothing_there(id, 1, Requirement::ListNotEmpty)
    }

    /// The value of an optional that has none.
    pub(super) fn no_value(&mut self, id: NodeId) -> Result<()> {
        if self.inside.is_empty() && self.branches.guard.is_none() {
            return Err(Error::invalid_argument("The given optional does not have a value."));
        }
        self.nothing_there(id, 0, Requirement::Present)
    }

    /// Output `output` of a node that fails where it runs.
    pub(super) fn nothing_there(&mut self, id: NodeId, output: usize, requirement: Requirement) -> Result<()> {
        self.fail(id, requirement)?;
        let item = match &self.pruned.facts[id][output].list {
            Some(_) => Meaning::List(List { rows: None, length: Length::Known(0) }),
            None => {
                let meta = self.output_metas(id)?.swap_remove(output);
                Meaning::Known(super::list::zeros(meta.data_type, meta.shape)?)
            }
        };
        self.define(id, output, item);
        Ok(())
    }

    fn known_length(&self, of: Output) -> Result<u64> {
        let length = self.list_fact(of)?.length;
        length.ok_or_else(|| Error::needs_values("not yet: a list whose size is known only when the graph runs"))
    }

    /// The tensors of a list whose length is known, and nothing behind them.
    fn just_rows(&mut self, id: NodeId, of: Output) -> Result<(u64, Option<View>)> {
        let list = self.list(of)?;
        let Length::Known(length) = list.length else {
            return Err(Error::needs_values("not yet: as many tensors of a list as are known only when the graph runs"));
        };
        let rows = list.rows.map(|rows| self.first_rows(id, rows, length)).transpose()?;
        Ok((length, rows))
    }

    pub(super) fn join(&mut self, id: NodeId, lists: [Output; 2]) -> Result<()> {
        let mut length: u64 = 0;
        let mut parts: Vec<View> = Vec::new();
        let mut is_zero = true;
        for of in lists {
            let (more, rows) = self.just_rows(id, of)?;
            is_zero &= rows.is_none();
            length = length.checked_add(more).ok_or_else(|| Error::invalid_argument("a list that is too long"))?;
            if more == 0 {
                continue;
            }
            let rows = match rows {
                Some(rows) => rows,
                None => {
                    let list = List { rows: None, length: Length::Known(more) };
                    let rows = self.rows(id, &list, Output { node: id, index: 0 })?;
                    self.first_rows(id, rows, more)?
                }
            };
            parts.push(rows);
        }
        let rows = match &parts[..] {
            _ if is_zero => None,
            [] => None,
            [one] => Some(one.clone()),
            [one, ..] => {
                let (data_type, shape) = self.rows_shape(Output { node: id, index: 0 })?;
                let element = data_type.size().ok_or_else(|| super::not_yet(one.data_type))?;
                let movement = Movement::Concat { shapes: parts.iter().map(|part| part.shape.to_vec()).collect(), axis: 0 };
                let kind = WorkKind::request(KernelRequest::Movement { element, movement }, parts.len(), 1);
                Some(self.made(id, kind, parts.clone(), data_type, shape)?)
            }
        };
        self.define(id, 0, Meaning::List(List { rows, length: Length::Known(length) }));
        Ok(())
    }

    pub(super) fn resize(&mut self, id: NodeId, of: Output) -> Result<()> {
        let size = self.known_length(Output { node: id, index: 0 })?;
        let (_, rows) = self.just_rows(id, of)?;
        let length = Length::Known(size);
        // They are cut, or filled up with zeros, to the room of the result.
        let rows = match rows {
            Some(rows) => Some(self.rows(id, &List { rows: Some(rows), length: length.clone() }, Output { node: id, index: 0 })?),
            None => None,
        };
        self.define(id, 0, Meaning::List(List { rows, length }));
        Ok(())
    }

    pub(super) fn split_list(&mut self, id: NodeId, node: &Node, tensor: usize) -> Result<()> {
        let of = Output { node: id, index: 0 };
        let length = self.known_length(of)?;
        let (data_type, shape) = self.rows_shape(of)?;
        let tensor = self.read_input(id, node, tensor)?;
        if tensor.data_type != data_type || tensor.elements() != shape.elements()? {
            return Err(Error::invalid_argument(format!("{}{} is split into {shape}", tensor.data_type, tensor.shape)));
        }
        self.define(id, 0, Meaning::List(List { rows: Some(View { shape, ..tensor }), length: Length::Known(length) }));
        Ok(())
    }

    pub(super) fn concat(&mut self, id: NodeId, of: Output) -> Result<()> {
        let (_, rows) = self.just_rows(id, of)?;
        let meta = self.output_metas(id)?.swap_remove(0);
        let meaning = match rows {
            Some(rows) if rows.elements() == meta.shape.elements()? => Meaning::Value(View { shape: meta.shape, ..rows }),
            Some(rows) => return Err(Error::invalid_argument(format!("{} is joined to {}", rows.shape, meta.shape))),
            None => Meaning::Known(super::list::zeros(meta.data_type, meta.shape)?),
        };
        self.define(id, 0, meaning);
        // The lengths are known where the tensor's shape is.
        Ok(())
    }
}
