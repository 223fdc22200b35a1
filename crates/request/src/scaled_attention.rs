//! Attention of narrow floats, as engines of cards have it, and its gradient.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

/// `softmax(scale Q K^T + bias) V` for the heads of each example, in floats; the shares are rounded before they weigh the rows of V.
/// Q is `[batch, heads, rows, width]`, K `[batch, heads, keys, width]`, V `[batch, heads, keys, value_width]`, and the result
/// `[batch, heads, rows, value_width]`. Each lies dense, heads or rows first. A gradient lies as the tensor that it is by.
///
/// Arguments: Q, K, V, the bias where there is one, what is kept where shares drop out, the result, and with `sums` the logarithm of the sum of
/// each row's exponentials: floats `[batch, heads, rows]`.
///
/// Those of the gradient: Q, K, V, the bias where there is one, what is kept where shares drop out, the result, these logarithms, the gradient by
/// the result; the gradients by Q, K and V. The shares are computed anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaledAttention {
    /// The type of Q, K, V, the result and all gradients: half or bfloat16.
    pub data_type: DataType,
    /// Examples.
    pub batch: u64,
    /// Heads of each.
    pub heads: u64,
    /// Rows of Q of a head.
    pub rows: u64,
    /// Rows of K and V of a head.
    pub keys: u64,
    /// Columns of Q and K.
    pub width: u64,
    /// Columns of V.
    pub value_width: u64,
    /// What scores are multiplied by.
    pub scale: f32,
    /// What is added to scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<ScoreBias>,
    /// What shares are multiplied by: only of an attention whose logarithms are a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptShares>,
    /// Whether the logarithms are a result: always of the gradient's attention.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sums: bool,
    /// How Q, K, V and the result lie.
    #[serde(default, skip_serializing_if = "is_by_heads")]
    pub lies: [Lies; 4],
}

/// How the dimensions of a tensor lie, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lies {
    /// Examples, heads, rows, columns.
    #[default]
    ByHeads,
    /// Examples, rows, heads, columns: what a projection to all heads makes.
    ByRows,
}

impl Lies {
    /// The distances between elements of a tensor of `[batch, heads, rows, columns]` along these.
    pub fn distances(self, [_, heads, rows, columns]: [u64; 4]) -> [u64; 4] {
        let whole = heads.saturating_mul(rows).saturating_mul(columns);
        match self {
            Lies::ByHeads => [whole, rows.saturating_mul(columns), columns, 1],
            Lies::ByRows => [whole, columns, heads.saturating_mul(columns), 1],
        }
    }
}

fn is_by_heads(lies: &[Lies; 4]) -> bool {
    *lies == [Lies::ByHeads; 4]
}

/// A tensor that is added to scores: a mask, or what positions are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoreBias {
    /// Float, or the type of the others.
    pub data_type: DataType,
    /// Each is the size of the scores, `[batch, heads, rows, keys]`, or 1.
    pub sizes: [u64; 4],
}

/// A tensor and a number by which shares are multiplied, in floats, before they are rounded: with zeros in the tensor these shares drop out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptShares {
    /// Float, or the type of the others.
    pub data_type: DataType,
    /// Each is the size of the scores, `[batch, heads, rows, keys]`, or 1.
    pub sizes: [u64; 4],
    /// The number.
    pub factor: f32,
}

impl ScaledAttention {
    /// The sizes of Q and of the gradient by it; those of K; of V; of the result.
    pub fn sizes(&self) -> [[u64; 4]; 4] {
        let ScaledAttention { batch, heads, rows, keys, width, value_width, .. } = *self;
        [[rows, width], [keys, width], [keys, value_width], [rows, value_width]].map(|[rows, width]| [batch, heads, rows, width])
    }

    /// The distances between elements along these sizes: of Q, K, V and the result.
    pub fn distances(&self) -> [[u64; 4]; 4] {
        let (sizes, lies) = (self.sizes(), self.lies);
        std::array::from_fn(|at| lies[at].distances(sizes[at]))
    }

    /// The sizes of the scores.
    pub fn scores(&self) -> [u64; 4] {
        [self.batch, self.heads, self.rows, self.keys]
    }

    /// The sizes of the logarithms.
    pub fn of_sums(&self) -> [u64; 4] {
        [self.batch, self.heads, self.rows, 1]
    }

    /// # Errors
    /// INVALID_ARGUMENT for other types, a number that is none, a bias or kept shares of other sizes, and kept shares without logarithms.
    pub fn check(&self) -> Result<()> {
        let is_narrow = |data_type| matches!(data_type, DataType::Half | DataType::Bfloat16);
        let is_fine = |data_type, sizes: [u64; 4]| {
            let is_of_type = data_type == DataType::Float || data_type == self.data_type;
            is_of_type && sizes.into_iter().zip(self.scores()).all(|(size, all)| size == 1 || size == all)
        };
        let is_biased = self.bias.is_none_or(|ScoreBias { data_type, sizes }| is_fine(data_type, sizes));
        let are_kept =
            self.kept.is_none_or(|KeptShares { data_type, sizes, factor }| is_fine(data_type, sizes) && factor.is_finite() && self.sums);
        if !is_narrow(self.data_type) || !self.scale.is_finite() || !is_biased || !are_kept {
            return Err(Error::invalid_argument("an attention of other types, or with another bias or kept shares than scores take"));
        }
        Ok(())
    }
}
