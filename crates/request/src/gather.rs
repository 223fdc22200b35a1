//! Rows and elements that indices name. Index types are int32 and int64.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

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
    /// `ScatterAdd` and its kin: rows of a variable of `shape` combined with updates, in the order of the indices. Arguments:
    /// the variable, indices (so many), updates (`[indices] + shape[1..]`, or one scalar), output: the variable afterwards,
    /// which is meant to lie where the variable does. After a fault the variable is as before.
    Scatter { op: ScatterOp, data_type: DataType, index_type: DataType, shape: Vec<u64>, indices: u64, scalar_updates: bool },
}
