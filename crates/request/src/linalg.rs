//! Factorisations of square matrices, and what follows from them.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// What is computed of each matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatrixOp {
    /// The lower triangular factor; NaN for a matrix that is not positive definite. Arguments: matrices, factors.
    Cholesky,
    /// The inverse, or that of the transpose; faults for a singular matrix. Arguments: matrices, inverses.
    Inverse {
        /// Of the transpose.
        adjoint: bool,
    },
    /// The solution of a system, or of that of the transpose; faults for a singular matrix. Arguments: matrices, right sides, solutions.
    Solve {
        /// Of the transpose.
        adjoint: bool,
    },
    /// The solution of a system of which a triangle alone is read. Arguments: matrices, right sides, solutions.
    TriangularSolve {
        /// Which triangle of the matrix as it lies.
        lower: bool,
        /// The system of the transpose.
        adjoint: bool,
    },
    /// The determinant. Arguments: matrices, determinants.
    Determinant,
    /// The determinant's sign, and the logarithm of its absolute value. Arguments: matrices, signs, logarithms.
    LogDeterminant,
}

/// An operation on `matrices` square matrices of floats or doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linalg {
    /// The operation.
    pub op: MatrixOp,
    /// The element type.
    pub data_type: DataType,
    /// How many.
    pub matrices: u64,
    /// Their rows.
    pub size: u64,
    /// The columns of each right side; 0 where there is none.
    pub columns: u64,
}

impl Linalg {
    /// Whether some elements make it fail.
    pub fn can_fail(&self) -> bool {
        matches!(self.op, MatrixOp::Inverse { .. } | MatrixOp::Solve { .. })
    }
}
