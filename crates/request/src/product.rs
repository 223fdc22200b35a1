//! Products of matrices.

use serde::{Deserialize, Serialize};

/// `C = op(A) op(B)`, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductSpec {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// The length of the sum.
    pub k: u64,
    /// A lies as k rows of m.
    pub transpose_a: bool,
    /// B lies as n rows of k.
    pub transpose_b: bool,
    /// How many products, one after the other; each argument is as many matrices.
    pub batch: u64,
}
