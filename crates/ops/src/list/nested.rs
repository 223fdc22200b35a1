//! Lists of lists: what gradients of nested loops push. A list that is a tensor of another one is a block of bytes there, a tensor of
//! `uint8`: its length as an int32, then its rows with all their room. Blocks of one list are as large as the largest of them.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::PartialShape;

use crate::infer::merge_shapes;
use crate::{Each, InferCx, ListFact};

/// Bytes of a block before the rows: the length.
pub const LENGTH_BYTES: u64 = 4;

impl ListFact {
    /// The type that its rows have in memory. Of a list of lists of which none is known there are no rows yet.
    pub fn stored_type(&self) -> DataType {
        if self.data_type == DataType::Variant { DataType::Uint8 } else { self.data_type }
    }

    /// Whether its tensors are lists, or may be.
    pub fn is_nested(&self) -> bool {
        self.inner.is_some() || self.data_type == DataType::Variant
    }

    /// How many rows a block of it has.
    pub fn block_rows(&self) -> Option<u64> {
        self.room.filter(|_| self.limit.is_some() || self.most.is_some())
    }

    /// The bytes of a block of it.
    fn block(&self) -> Option<u64> {
        let rows = self.rows(self.block_rows()).complete()?;
        rows.bytes(self.stored_type()).ok()?.0.checked_add(LENGTH_BYTES)
    }

    /// Its inner list, which lies in a block of so many bytes.
    #[must_use]
    pub fn in_block(&self, bytes: u64) -> ListFact {
        let row = PartialShape(self.item.0.clone()).complete().and_then(|item| item.bytes(self.stored_type()).ok());
        let room = match row {
            Some(row) if row.0 > 0 => bytes.checked_sub(LENGTH_BYTES).map(|bytes| bytes / row.0),
            _ => self.room,
        };
        ListFact { room, most: room, ..self.clone() }
    }

    /// What its tensors are, as if none of them had been seen: only what decides the size of a block is kept.
    pub fn forget_lists(&mut self) {
        if let Some(inner) = &mut self.inner {
            (inner.length, inner.most, inner.least, inner.each) = (None, Some(0), u64::MAX, Each::Nothing);
            inner.forget_lists();
        }
    }

    /// Whether it is of no list that has been seen: it contradicts nothing.
    pub(crate) fn is_unseen(&self) -> bool {
        self.least == u64::MAX
    }

    /// Whether nothing is known of it: it is one or another, as a condition says.
    pub fn is_any(&self) -> bool {
        self.data_type == DataType::Variant && self.inner.is_none() && self.length.is_none() && !self.is_unseen()
    }

    /// The list, where lists as the given one are among its tensors.
    ///
    /// # Errors
    /// UNIMPLEMENTED where its tensors are no lists, or lists of another kind.
    pub fn of_lists(&self, item: &ListFact) -> Result<ListFact> {
        let inner = match &self.inner {
            Some(inner) => inner.and(item)?,
            None if self.data_type == DataType::Variant => item.clone(),
            None => return Err(Error::unimplemented(format!("not yet: a list of {} and of lists", self.data_type))),
        };
        let inner = ListFact { is_enough: false, ..inner };
        let item = PartialShape(Some(vec![inner.block()]));
        Ok(ListFact { data_type: DataType::Uint8, item, inner: Some(Box::new(inner)), ..self.clone() })
    }
}

/// The list at input `list`, where input `item` is among its tensors.
pub(super) fn with_item(cx: &InferCx<'_>, list: usize, item: usize) -> Result<Option<ListFact>> {
    match (cx.list(list), cx.list(item)) {
        (Some(list), Some(item)) => list.of_lists(item).map(Some),
        // A list of which nothing is known yet.
        (Some(list), None) if cx.inputs[item].data_type == DataType::Variant => Ok(Some(list.clone())),
        _ => super::refined(cx, list, cx.shape(item)),
    }
}

/// The list at input `list`, whose tensors are said to be of a shape; and output `output`, which is one of them.
pub(super) fn read_from(cx: &mut InferCx<'_>, list: usize, stated: PartialShape, output: usize) -> Result<Option<ListFact>> {
    let Some(list) = cx.list(list) else {
        cx.set(output, stated);
        return Ok(None);
    };
    if !list.is_nested() {
        let said = &list.said.shape;
        // A pop is not held against what the list's operation says.
        if output == 0 && merge_shapes(said, &stated).is_err() {
            return Err(super::other_than_said(said, &stated));
        }
        let item = merge_shapes(&list.item, &stated).map_err(|_| super::several_shapes(&list.item, &stated))?;
        let list = ListFact { item, ..list.clone() };
        cx.set(output, list.item.clone());
        return Ok(Some(list));
    }
    cx.set(output, super::scalar());
    cx.outputs[output].list = list.inner.as_deref().cloned();
    Ok(Some(list.clone()))
}
