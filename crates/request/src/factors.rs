//! Matrices taken apart into products of others.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// What is computed of each matrix. Each column of a matrix of vectors is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FactorOp {
    /// An orthogonal matrix and an upper triangular one. Arguments: matrices; Q, R.
    Qr {
        /// Q is square, and R as large as the matrix.
        full: bool,
    },
    /// Singular values, descending, and left and right vectors; all are NaN where an element is infinite or no number. Arguments: matrices;
    /// values, left vectors, right vectors (both without elements where they are not wanted).
    Svd {
        /// Vectors are wanted.
        vectors: bool,
        /// As many vectors as rows and columns.
        full: bool,
    },
    /// Eigenvalues of symmetric matrices, ascending, of which the lower triangle is read. Faults where an element is infinite or no
    /// number. Arguments: matrices; values, vectors (without elements where they are not wanted).
    SelfAdjointEig {
        /// Vectors are wanted.
        vectors: bool,
    },
    /// Eigenvalues of any square matrices, complex. Faults as [`FactorOp::SelfAdjointEig`], with its arguments.
    Eig {
        /// Vectors are wanted.
        vectors: bool,
    },
    /// A lower triangular matrix with ones on its diagonal and an upper triangular one, in one, of the matrix with its rows exchanged.
    /// Faults for a singular matrix. Arguments: matrices; factors, the row that each row was.
    Lu {
        /// The type of rows' numbers.
        index_type: DataType,
    },
}

/// Factors of `matrices` matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// Which.
    pub op: FactorOp,
    /// The element type.
    pub data_type: DataType,
    /// How many matrices.
    pub matrices: u64,
    /// Their rows.
    pub rows: u64,
    /// Their columns. Square matrices have as many.
    pub columns: u64,
}

impl Factors {
    /// Whether some elements make it fail.
    pub fn can_fail(&self) -> bool {
        matches!(self.op, FactorOp::SelfAdjointEig { .. } | FactorOp::Eig { .. } | FactorOp::Lu { .. })
    }

    /// Types and shapes of the results of one matrix.
    pub fn results(&self) -> Vec<(DataType, Vec<u64>)> {
        let (rows, columns) = (self.rows, self.columns);
        let least = rows.min(columns);
        let own = |shape: &[u64]| (self.data_type, shape.to_vec());
        match self.op {
            FactorOp::Qr { full } => {
                let inner = if full { rows } else { least };
                vec![own(&[rows, inner]), own(&[inner, columns])]
            }
            FactorOp::Svd { vectors: false, .. } => vec![own(&[least]), own(&[0]), own(&[0])],
            FactorOp::Svd { full, .. } => {
                let many = |size: u64| if full { size } else { least };
                vec![own(&[least]), own(&[rows, many(rows)]), own(&[columns, many(columns)])]
            }
            FactorOp::SelfAdjointEig { vectors: false } => vec![own(&[rows]), own(&[0])],
            FactorOp::SelfAdjointEig { vectors: true } => vec![own(&[rows]), own(&[rows, rows])],
            FactorOp::Eig { vectors } => {
                let pair = self.data_type.pair().unwrap_or(self.data_type);
                let shape = if vectors { vec![rows, rows] } else { vec![0] };
                vec![(pair, vec![rows]), (pair, shape)]
            }
            FactorOp::Lu { index_type } => vec![own(&[rows, rows]), (index_type, vec![rows])],
        }
    }
}
