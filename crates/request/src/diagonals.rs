//! Diagonals of matrices.

use plimsoll_base::{Error, Result};
use serde::{Deserialize, Serialize};

/// What happens to the diagonals of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiagonalForm {
    /// They are put into matrices of a number. Arguments: diagonals, the number, matrices.
    Matrix,
    /// They are taken out; where one is shorter than it is stored, there is a number. Arguments: matrices, the number, diagonals.
    Part,
    /// They replace those of matrices. Arguments: matrices, diagonals, matrices.
    Set,
    /// All others become zeros. Arguments: matrices, matrices.
    Band,
}

/// Diagonals `lower` to `upper` of matrices: 0 is the main one, and those above it are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "matrices, rows and columns are sizes")]
pub struct Diagonals {
    pub form: DiagonalForm,
    pub matrices: u64,
    pub rows: u64,
    pub columns: u64,
    pub lower: i64,
    pub upper: i64,
    /// Whether diagonals above the main one, and below it, are stored from the left. Of the main one either says so.
    pub from_left: [bool; 2],
}

/// How the diagonals of a matrix are stored: a row each, the uppermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// How many.
    pub count: u64,
    /// The elements of the longest.
    pub length: u64,
}

impl Diagonals {
    /// How its diagonals are stored. A band stores none.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for diagonals that the matrices do not have.
    pub fn stored(&self) -> Result<Stored> {
        let (rows, columns) = (i64::try_from(self.rows), i64::try_from(self.columns));
        let (Ok(rows), Ok(columns)) = (rows, columns) else { return Err(Error::invalid_argument("matrices of too many rows")) };
        if self.form == DiagonalForm::Band {
            return Ok(Stored { count: 0, length: 0 });
        }
        let is_there = |diagonal: i64| (diagonal > -rows && diagonal < columns) || diagonal == 0;
        if self.lower > self.upper || !is_there(self.lower) || !is_there(self.upper) {
            let Diagonals { lower, upper, .. } = self;
            return Err(Error::invalid_argument(format!("diagonals {lower} to {upper} of matrices of {rows} rows and {columns} columns")));
        }
        let length = (rows + self.upper.min(0)).min(columns - self.lower.max(0));
        Ok(Stored { count: self.upper.abs_diff(self.lower) + 1, length: length.max(0) as u64 })
    }

    /// The elements of a diagonal that the matrices have.
    pub fn length_of(&self, diagonal: i64) -> u64 {
        (self.rows as i64 + diagonal.min(0)).min(self.columns as i64 - diagonal.max(0)).max(0) as u64
    }

    /// The place of a diagonal's first element where each is stored as `length` elements.
    pub fn offset(&self, diagonal: i64, length: u64) -> u64 {
        let from_left = (diagonal >= 0 && self.from_left[0]) || (diagonal <= 0 && self.from_left[1]);
        if from_left { 0 } else { length - self.length_of(diagonal) }
    }
}
