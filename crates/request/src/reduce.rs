//! Reductions, running sums, and places of the largest.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// The reduction; the names are TensorFlow's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// The sum; integers wrap. Of nothing: 0.
    Sum,
    /// The sum divided by the count; of integers the sum is 64 bits wide and the quotient rounds towards zero.
    /// Of nothing: NaN, or 0 for integers.
    Mean,
    /// The product; integers wrap. Of nothing: 1.
    Prod,
    /// The largest; NaN if there is one. Of nothing: minus infinity or the smallest integer.
    Max,
    /// The smallest; NaN if there is one. Of nothing: infinity or the largest integer.
    Min,
    /// Whether all are true; bool only.
    All,
    /// Whether any is true; bool only.
    Any,
}

/// The operation on an element and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScanOp {
    /// `Cumsum`; integers wrap.
    Sum,
    /// `Cumprod`; integers wrap.
    Prod,
}

/// The sizes, and the axes that are reduced (each below the rank; order and repetition do not matter).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "shape and data_type: of the input; the other fields are said above them")]
pub enum Reduction {
    /// Arguments: input, output with the axes that are kept, in their order. Types: float, double, int32, int64, uint8 for the
    /// numeric operations, bool for `All` and `Any`.
    /// Large sums may be `divided` into parts, which changes their last bits.
    Reduce { op: ReduceOp, data_type: DataType, shape: Vec<u64>, axes: Vec<usize>, divided: bool },
    /// As `Reduce`, of a tensor that is some rows of one of `all` rows: elements are put together in the order in which the whole one's are.
    /// The first axis is kept.
    ReduceSome { op: ReduceOp, data_type: DataType, shape: Vec<u64>, axes: Vec<usize>, all: u64 },
    /// `L2Loss`: half the sum of the squares. Arguments: input, output (one element). Float or double.
    HalfSquares { data_type: DataType, shape: Vec<u64> },
    /// `ArgMax`, or `ArgMin` where `smallest`: the index along `axis`, the first of equal ones. A NaN is never chosen.
    /// Arguments: input, output of `output_type` (int32 or int64) with the other axes.
    Arg { smallest: bool, data_type: DataType, output_type: DataType, shape: Vec<u64>, axis: usize },
    /// Sums or products of the elements up to each one along `axis`, in order. With `exclusive` an element is not part of its own
    /// result; with `reverse` the order is from the end. Arguments: input, output of the same shape.
    Scan { op: ScanOp, data_type: DataType, shape: Vec<u64>, axis: usize, exclusive: bool, reverse: bool },
    /// `InTopK`; `InTopKV2` where `k` is none: it is the third input then, a scalar of `target_type`. Arguments: predictions,
    /// float `[batch, classes]`; targets, int32 or int64 `[batch]`; k where it is an input; output, bool `[batch]`.
    InTopK { target_type: DataType, batch: u64, classes: u64, k: Option<i64> },
    /// `TopKV2`: the `k` largest of each row, the largest first, of equal ones the first, and their places. A NaN counts as the
    /// smallest. Arguments: input `[rows, classes]`, values `[rows, k]`, places `[rows, k]` of `index_type`.
    TopK { data_type: DataType, index_type: DataType, rows: u64, classes: u64, k: u64 },
}
