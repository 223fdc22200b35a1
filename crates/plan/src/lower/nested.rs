//! Lists of lists: blocks of bytes (see [`plimsoll_ops::list::nested`]), which are put together when a list is put into another one, and
//! taken apart when it is read.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{Node, NodeId, Output, Shape};
use plimsoll_ops::ListFact;
use plimsoll_ops::list::nested::LENGTH_BYTES;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use super::list::{Length, List};
use super::{Lowering, Meaning};
use crate::lir::{View, WorkKind};

impl Lowering<'_> {
    /// What a node puts into a list: the tensor at input `item`, or the block of the list there.
    pub(super) fn item(&mut self, id: NodeId, node: &Node, item: usize) -> Result<View> {
        let of = node.inputs[item];
        if self.list_fact(of).is_err() {
            return self.read_input(id, node, item);
        }
        let outer = self.pruned.facts[id].iter().find_map(|fact| fact.list.as_ref());
        let inner = outer.and_then(|list| list.inner.as_deref()).ok_or_else(|| Error::internal("a list is put where none belongs"))?;
        let list = self.list(of)?;
        let (data_type, shape) = block_of(inner)?;
        let rows = match list.rows {
            Some(_) => self.rows(id, &list, of)?,
            None => return self.block(id, &list.length, None, shape.bytes(data_type)?.0),
        };
        if rows.data_type != data_type || rows.shape.dims().get(1..) != shape.dims().get(1..) && inner.inner.is_none() {
            return Err(Error::invalid_argument(format!("a list of {} where there are those of {shape}", rows.shape)));
        }
        let room = shape.first().copied().unwrap_or(0);
        let rows = match inner.inner.is_some() && rows.shape.dims().get(1..) != shape.dims().get(1..) {
            true => self.larger_blocks(id, rows, shape)?,
            false if rows.shape.first().is_some_and(|rows| *rows > room) => self.first_rows(id, rows, room)?,
            false => self.padded(id, rows, room)?,
        };
        let bytes = rows.shape.bytes(rows.data_type)?.0;
        self.block(id, &list.length, Some(rows), bytes)
    }

    /// A length, and rows of so many bytes.
    fn block(&mut self, id: NodeId, length: &Length, rows: Option<View>, bytes: u64) -> Result<View> {
        let length = self.number(id, length)?;
        let head = View { data_type: DataType::Uint8, shape: Shape::from([LENGTH_BYTES]), ..length };
        let shape = Shape::from([LENGTH_BYTES + bytes]);
        let (movement, inputs) = match rows {
            Some(rows) => {
                let rows = View { data_type: DataType::Uint8, shape: Shape::from([bytes]), ..rows };
                (Movement::Concat { shapes: vec![vec![LENGTH_BYTES], vec![bytes]], axis: 0 }, vec![head, rows])
            }
            None => {
                let (shape, paddings) = (vec![LENGTH_BYTES], vec![(0, bytes)]);
                (Movement::Pad { shape, paddings, value: Some(vec![0]) }, vec![head])
            }
        };
        let kind = WorkKind::request(KernelRequest::Movement { element: 1, movement }, inputs.len(), 1);
        self.made(id, kind, inputs, DataType::Uint8, shape)
    }

    /// Blocks with more room: zeros behind each of them, and behind all.
    pub(super) fn larger_blocks(&mut self, id: NodeId, blocks: View, wanted: Shape) -> Result<View> {
        let [few, small] = blocks.shape.dims() else { return Err(Error::internal("blocks are rows of bytes")) };
        let &[many, large] = wanted.dims() else { return Err(Error::internal("blocks are rows of bytes")) };
        let refused = || Error::invalid_argument(format!("blocks of {} bytes where there are {wanted}", blocks.shape));
        let (more, larger) = (many.saturating_sub(*few), large.checked_sub(*small).ok_or_else(refused)?);
        let few = (*few).min(many);
        let blocks = self.first_rows(id, blocks, few)?;
        let movement = Movement::Pad { shape: blocks.shape.to_vec(), paddings: vec![(0, more), (0, larger)], value: Some(vec![0]) };
        let kind = WorkKind::request(KernelRequest::Movement { element: 1, movement }, 1, 1);
        self.made(id, kind, vec![blocks], DataType::Uint8, wanted)
    }

    /// Output `output` is the list that another one has at an index.
    pub(super) fn get_list(&mut self, id: NodeId, of: Output, index: View, output: usize) -> Result<()> {
        let unknown = || Error::needs_values("not yet: a list of lists, of which none is known");
        let inner = self.list_fact(of)?.inner.ok_or_else(unknown)?;
        let (data_type, shape) = block_of(&inner)?;
        let list = self.list(of)?;
        let blocks = self.rows(id, &list, of)?;
        let bytes = LENGTH_BYTES + shape.bytes(data_type)?.0;
        let request = Gather::Take {
            element: 1,
            params: blocks.shape.to_vec(),
            indices: Vec::new(),
            axis: 0,
            batch_dims: 0,
            index_type: index.data_type,
        };
        if blocks.shape.dims().get(1) != Some(&bytes) {
            return Err(Error::internal(format!("a block of {bytes} bytes among {}", blocks.shape)));
        }
        let kind = WorkKind::request(KernelRequest::Gather(request), 2, 1);
        let block = self.made(id, kind, vec![blocks, index], DataType::Uint8, Shape::from([bytes]))?;
        let length = match inner.length {
            Some(length) => Length::Known(length),
            None => Length::Value(self.part(id, &block, 0, (DataType::Int32, Shape::scalar()))?),
        };
        let rows = self.part(id, &block, LENGTH_BYTES, (data_type, shape))?;
        self.define(id, output, Meaning::List(List { rows: Some(rows), length }));
        Ok(())
    }

    /// Bytes of a block from `begin` on, as a tensor.
    fn part(&mut self, id: NodeId, block: &View, begin: u64, (data_type, shape): (DataType, Shape)) -> Result<View> {
        let bytes = shape.bytes(data_type)?.0;
        let movement = Movement::Slice { shape: block.shape.to_vec(), begin: vec![begin], sizes: vec![bytes] };
        let kind = WorkKind::request(KernelRequest::Movement { element: 1, movement }, 1, 1);
        let part = self.made(id, kind, vec![block.clone()], DataType::Uint8, Shape::from([bytes]))?;
        Ok(View { data_type, shape, ..part })
    }

    /// Zeros like a list of lists have the lengths of these.
    pub(super) fn refuse_unknown_lengths(&self, of: Output) -> Result<()> {
        match self.list_fact(of)?.inner {
            Some(inner) if inner.length.is_none() || inner.is_nested() => {
                Err(Error::unimplemented("not yet: zeros like lists of lists whose lengths are known only when the graph runs"))
            }
            _ => Ok(()),
        }
    }
}

/// Type and shape of the rows in a block.
fn block_of(inner: &ListFact) -> Result<(DataType, Shape)> {
    let rows = inner.rows(inner.block_rows()).complete();
    let rows = rows.ok_or_else(|| Error::needs_values("not yet: a list of lists whose size is known only when the graph runs"))?;
    Ok((inner.stored_type(), rows))
}
