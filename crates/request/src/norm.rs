//! Batch normalization and its gradient, channels last.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// Sizes and numbers of a batch normalization.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNormSpec {
    /// The elements of the images and of the gradients by them; all else is floats.
    pub data_type: DataType,
    /// Positions: images times rows times columns.
    pub rows: u64,
    /// Channels.
    pub channels: u64,
    /// Added to variances.
    #[serde(with = "crate::bits")]
    pub epsilon: f32,
    /// How much of the running statistics this batch becomes; 1 is all of it, and nothing else is read then.
    #[serde(with = "crate::bits")]
    pub exponential_avg_factor: f32,
}
