//! Local response normalization over neighbouring channels.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// `y[c] = x[c] * n[c]^-beta` with `n[c] = bias + alpha * sum(x[c - depth_radius ..= c + depth_radius]^2)`, for each of `rows` rows
/// of channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LrnSpec {
    /// The elements of all tensors.
    pub data_type: DataType,
    /// Positions: images times rows times columns.
    pub rows: u64,
    /// Channels.
    pub channels: u64,
    /// Neighbours on each side.
    pub depth_radius: u64,
    /// Added to the divisor, usually to stay away from 0.
    #[serde(with = "crate::bits")]
    pub bias: f32,
    /// The factor of the sum.
    #[serde(with = "crate::bits")]
    pub alpha: f32,
    /// The exponent.
    #[serde(with = "crate::bits")]
    pub beta: f32,
}
