//! Rows of variables that change together: sparse updates of optimizers.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::expr::Expr;

/// What an operand of a row's expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowOperand {
    /// The row of a variable of `rows` rows.
    Variable,
    /// The row that belongs to the index.
    Update,
    /// One number, for all rows.
    Scalar,
}

/// An expression on rows that indices name, for one index after the other: a row that is named twice changes twice.
///
/// Arguments: the operands, variables first; the indices; then, as outputs, the variables afterwards, which are meant to lie where the
/// variables do. At run time a fault for an index outside; the variables are then as before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateRows {
    /// What becomes of each element. Its results are the variables, in order.
    pub expr: Expr,
    /// Its operands.
    pub operands: Vec<RowOperand>,
    /// Rows of the variables.
    pub rows: u64,
    /// Elements of a row.
    pub inner: u64,
    /// How many indices.
    pub indices: u64,
    /// Int32 or int64.
    pub index_type: DataType,
}

impl UpdateRows {
    /// How many variables there are.
    pub fn variables(&self) -> usize {
        self.operands.iter().take_while(|operand| **operand == RowOperand::Variable).count()
    }

    /// Checks that the expression is one of these operands, and that its results are the variables.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is not.
    pub fn check(&self) -> Result<()> {
        let variables = self.variables();
        let fits = self.expr.inputs().len() == self.operands.len()
            && !self.operands[variables..].contains(&RowOperand::Variable)
            && variables > 0
            && self.expr.output_types() == self.expr.inputs()[..variables];
        if fits { Ok(()) } else { Err(Error::invalid_argument("an expression whose results are not the rows of its variables")) }
    }
}
