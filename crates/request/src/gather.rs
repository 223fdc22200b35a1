//! Rows and elements that indices name. Index types are int32 and int64.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

use crate::block::Block;

/// How rows of a segment are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SegmentOp {
    /// `UnsortedSegmentSum`; an empty segment is 0.
    Sum,
    /// `UnsortedSegmentProd`; an empty segment is 1.
    Prod,
    /// `UnsortedSegmentMax`; an empty segment is the lowest finite number.
    Max,
    /// `UnsortedSegmentMin`; an empty segment is the highest finite number.
    Min,
}

/// The operation of a scatter on a row of the variable and one of the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are TensorFlow's: ScatterAdd, ResourceScatterAdd, ..")]
pub enum ScatterOp {
    /// The update replaces the row; of several the last one stays.
    Update,
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// Marks elements of a TensorArray, or asks for their marks. Rows and updates are bytes, 0 or 1; an update of 0 does nothing.
    Mark(Access),
}

/// Accesses to an element of a TensorArray that may fail because of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Access {
    /// It is written: a fault where it is marked, which it is then.
    Write,
    /// It is read and cleared: a fault where it is marked, which it is then.
    Read,
    /// It is read: a fault where it is not marked as written.
    ReadWritten,
}

impl Access {
    /// The words of the fault; `{0}` is the number of the element.
    pub const fn refusal(self) -> &'static str {
        match self {
            Access::Write => "Could not write to TensorArray index {0} because it has already been written to.",
            Access::Read => {
                "Could not read index {0} twice because it was cleared after a previous read (perhaps try setting clear_after_read = false?)."
            }
            Access::ReadWritten => {
                "Could not read from TensorArray index {0}, which was not written. Furthermore, the element shape is not fully defined."
            }
        }
    }
}

/// The rows or elements that are read or written by index. At run time a fault for an index outside, unless another thing is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "element: bytes of one; the other fields are said above them")]
pub enum Gather {
    /// `GatherV2`: the slices of `params` along `axis` that `indices` name; the first `batch_dims` dimensions of both are one.
    /// Arguments: params, indices, output of `params[..axis] + indices[batch_dims..] + params[axis + 1..]`.
    Take { element: usize, params: Vec<u64>, indices: Vec<u64>, axis: usize, batch_dims: usize, index_type: DataType },
    /// `OneHot`: a new dimension `axis` of `depth` elements, `on` at the index and `off` elsewhere; all `off` where the index is
    /// not in `0..depth`. The index type may be uint8, too. Arguments: indices of `shape`, on and off (scalars), output.
    OneHot { element: usize, index_type: DataType, shape: Vec<u64>, depth: u64, axis: usize },
    /// `UnsortedSegmentSum` and its kin: row `i` of data goes into row `ids[i]` of `segments` rows. `ids_shape` is a prefix of
    /// `shape`; rows with a negative id are dropped. Arguments: data, ids, output `[segments] + shape[ids rank..]`.
    Segment { op: SegmentOp, data_type: DataType, index_type: DataType, shape: Vec<u64>, ids_shape: Vec<u64>, segments: u64 },
    /// `ScatterAdd`, `ScatterNdAdd` and their kin: slices of a variable of `shape` combined with updates, in the order of the
    /// indices. An index is `depth` integers, one for each of the first dimensions. Arguments: the variable, indices (so many),
    /// updates (`[indices] + shape[depth..]`, or one scalar), output: the variable afterwards, which is meant to lie where the
    /// variable does, and does where `in_place`. After a fault the variable is as before. With `ignore` an index outside takes no effect.
    Scatter {
        op: ScatterOp,
        data_type: DataType,
        index_type: DataType,
        shape: Vec<u64>,
        indices: u64,
        depth: usize,
        scalar_updates: bool,
        ignore: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_place: bool,
    },
    /// `GatherNd`: the slices of `params` that so many indices name, of `depth` integers each, one for each of the first
    /// dimensions. With `ignore` an index outside gives zeros. Arguments: params, indices, output
    /// `[indices] + params[depth..]`.
    TakeNd { element: usize, params: Vec<u64>, indices: u64, depth: usize, index_type: DataType, ignore: bool },
    /// `Slice`, `StridedSlice` and `XlaDynamicSlice` from where integers say. Arguments: the tensor, the names where there are
    /// some, output: the block.
    Block { element: usize, block: Block },
    /// A tensor with a block replaced: of zeros, or of another tensor where `onto`. The block is written from a tensor `from`,
    /// whose dimensions of 1 are repeated. Arguments: the other tensor where `onto`, the names where there are some, the elements
    /// of the block, output: the tensor, which is meant to lie where the other one does. After a fault that one is as before.
    Embed { element: usize, block: Block, from: Vec<u64>, onto: bool },
    /// `LowerBound`, or `UpperBound` where `upper`: in each of `rows` sorted rows of `sorted` elements the place of the first that is
    /// not less than each of `values` values, or greater. Arguments: the sorted rows, values, output of `index_type`.
    Bound { data_type: DataType, index_type: DataType, rows: u64, sorted: u64, values: u64, upper: bool },
}
