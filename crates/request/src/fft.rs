//! Discrete Fourier transforms of rows.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// Which transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FftForm {
    /// Of complex numbers.
    Forward,
    /// The inverse of [`FftForm::Forward`]: divided by the length.
    Inverse,
    /// Of real numbers: the first `length / 2 + 1` results, which the others are conjugates of.
    Real,
    /// The inverse of [`FftForm::Real`].
    InverseReal,
}

/// A transform of each row, cut off or filled up with zeros to as many numbers as the transform takes. Arguments: rows, results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fft {
    /// Which transform.
    pub form: FftForm,
    /// The type of real numbers, and of the parts of complex ones: float or double.
    pub part: DataType,
    /// How many rows.
    pub rows: u64,
    /// Numbers of a row.
    pub row: u64,
    /// The points of the transform.
    pub length: u64,
}

impl Fft {
    /// The numbers of a row that the transform takes.
    pub fn taken(&self) -> u64 {
        if self.form == FftForm::InverseReal { half(self.length) } else { self.length }
    }

    /// The numbers that the transform gives for a row.
    pub fn given(&self) -> u64 {
        if self.form == FftForm::Real { half(self.length) } else { self.length }
    }

    /// The types of arguments and results; none for parts that complex numbers do not have.
    pub fn types(&self) -> Option<[DataType; 2]> {
        let pair = self.part.pair()?;
        Some(match self.form {
            FftForm::Forward | FftForm::Inverse => [pair, pair],
            FftForm::Real => [self.part, pair],
            FftForm::InverseReal => [pair, self.part],
        })
    }
}

/// The complex numbers that so many real ones become.
fn half(length: u64) -> u64 {
    if length == 0 { 0 } else { length / 2 + 1 }
}
