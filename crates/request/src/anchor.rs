//! Computations whose results an expression can finish before they leave the cache.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

use crate::conv::ConvSpec;
use crate::expr::Expr;
use crate::product::ProductSpec;

/// The expression for every element that an anchor computes, before it is written. The element itself is not kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epilogue {
    /// Operand 0 is the anchor's element.
    pub expr: Expr,
    /// The shapes of the further operands, which broadcast to the anchor's shape.
    pub operands: Vec<Vec<u64>>,
}

/// A computation of one tensor from two.
///
/// Arguments: the two, the result; with an epilogue: the two, its further operands, its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Anchor {
    /// Products of matrices of this type: A, B.
    Product(DataType, ProductSpec),
    /// A convolution: input, filter.
    Conv(ConvSpec),
    /// The gradient of a convolution by its input: filter, gradient by the result.
    ConvBackpropInput(ConvSpec),
    /// A convolution, each channel by itself: input, filter.
    DepthwiseConv(ConvSpec),
}

impl Anchor {
    /// How many tensors it is computed from. They are read in any order: results never lie where they do.
    pub const INPUTS: usize = 2;

    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        match self {
            Anchor::Product(data_type, _) => *data_type,
            Anchor::Conv(spec) | Anchor::ConvBackpropInput(spec) | Anchor::DepthwiseConv(spec) => spec.data_type,
        }
    }

    /// The shape that an epilogue works on. None where there can be no epilogue: it is for floats, and for types of two bytes where a device finishes
    /// these.
    pub fn shape(&self) -> Option<Vec<u64>> {
        match self {
            _ if !matches!(self.data_type(), DataType::Float | DataType::Half | DataType::Bfloat16) => None,
            Anchor::Product(_, spec) if spec.batch == 1 && spec.places.is_none() => Some(vec![spec.m, spec.n]),
            Anchor::Product(..) => None,
            Anchor::Conv(spec) | Anchor::DepthwiseConv(spec) => Some(spec.output()),
            Anchor::ConvBackpropInput(spec) => Some(spec.input()),
        }
    }

    /// Whether results are rounded to a type of fewer bits than sums have: an epilogue that works on sums has other bits than one on results.
    pub fn rounds(&self) -> bool {
        self.data_type() != DataType::Float
    }

    /// Whether a result of an epilogue may hold the anchor's elements for a while. Then no operand may lie there but those that a
    /// variant names as pairs in place.
    pub fn uses_results(&self) -> bool {
        !matches!(self, Anchor::Product(..))
    }
}
