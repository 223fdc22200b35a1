//! Tables of costs: what the kernels of a device take, so that predictions and decisions read numbers instead of a clock.
//!
//! A [`CostTable`] has the rates of each [`Class`] of kernels, for an instruction set and the caches of a machine. The committed
//! tables are in `device/data/costs.json`; the command `calibrate` writes others, by measuring or from profiles. [`Costs`] are an input of planning: two plans with
//! the same costs are the same plan, wherever they are made.

mod fit;
mod measured;
mod table;

pub use fit::{Sample, fit};
pub use measured::{MeasuredKernel, MeasuredKernels};
pub use table::{Caches, CostTable, Costs, Rates};

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of loop that a kernel spends its time in. Kernels of one class have the same rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Expressions of elements.
    Expression,
    /// Products of float matrices.
    Product,
    /// Products of other types.
    GenericProduct,
    /// Convolutions, and their gradients by the input.
    Convolution,
    /// Convolutions with fewer multiplications, and their gradients.
    Winograd,
    /// Gradients of convolutions by the filter.
    FilterGradient,
    /// Convolutions of each channel by itself, and their gradients.
    Depthwise,
    /// Poolings and their gradients.
    Pooling,
    /// Reductions.
    Reduction,
    /// Elements moved: copies, concatenations, slices, transpositions.
    Movement,
    /// Rows and elements that indices name.
    Gather,
    /// Batch and local response normalisations, and their gradients.
    Normalization,
    /// Softmax and losses.
    Loss,
    /// Random numbers.
    Random,
    /// Kernels of no other class.
    #[default]
    Other,
}

impl Class {
    /// All of them, in the order of tables.
    pub const ALL: [Class; 15] = [
        Class::Expression,
        Class::Product,
        Class::GenericProduct,
        Class::Convolution,
        Class::Winograd,
        Class::FilterGradient,
        Class::Depthwise,
        Class::Pooling,
        Class::Reduction,
        Class::Movement,
        Class::Gather,
        Class::Normalization,
        Class::Loss,
        Class::Random,
        Class::Other,
    ];
}

/// As in files: `filter_gradient`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Expression => "expression",
            Class::Product => "product",
            Class::GenericProduct => "generic_product",
            Class::Convolution => "convolution",
            Class::Winograd => "winograd",
            Class::FilterGradient => "filter_gradient",
            Class::Depthwise => "depthwise",
            Class::Pooling => "pooling",
            Class::Reduction => "reduction",
            Class::Movement => "movement",
            Class::Gather => "gather",
            Class::Normalization => "normalization",
            Class::Loss => "loss",
            Class::Random => "random",
            Class::Other => "other",
        })
    }
}

/// The part of a kernel's work that its [`Class`] prices, beside the bytes of its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The class.
    pub class: Class,
    /// Arithmetic operations of the main loop, with those of lanes that hold no element.
    pub issued: f64,
    /// Arithmetic operations of the expression behind the main loop.
    pub elementwise: f64,
}
