//! Kernels whose results an expression can finish before they leave the cache.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;

use crate::conv::{ConvSpec, conv2d, conv2d_backprop_input, conv2d_pooled, depthwise_conv2d};
use crate::expr::Expr;
use crate::pool::Pooling;
use crate::product::{ProductSpec, product, product_generic};

/// What is done to every element that an anchor computes before it is written. The element itself is not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// Operand 0 is the anchor's element.
    pub expr: Expr,
    /// The shapes of the further operands, which broadcast to the anchor's shape.
    pub operands: Vec<Vec<u64>>,
}

/// A computation of one tensor from two.
///
/// Arguments: the two, the result; with an epilogue: the two, its further operands, its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Products of matrices of this type.
    Product(DataType, ProductSpec),
    /// A convolution of floats: input, filter.
    Conv2D(ConvSpec),
    /// The gradient of a convolution of floats by its input: filter, gradient by the result.
    Conv2DBackpropInput(ConvSpec),
    /// A convolution of floats, each channel by itself: input, filter.
    DepthwiseConv2D(ConvSpec),
}

impl Anchor {
    /// How many tensors it is computed from. They are read in any order: results never lie where they do.
    pub const INPUTS: usize = 2;

    /// The type of its elements.
    pub fn data_type(&self) -> DataType {
        match self {
            Anchor::Product(data_type, _) => *data_type,
            _ => DataType::Float,
        }
    }

    /// The shape that an epilogue works on. None where there can be no epilogue.
    pub fn shape(&self) -> Option<Vec<u64>> {
        match self {
            Anchor::Product(DataType::Float, spec) if spec.batch == 1 => Some(vec![spec.m, spec.n]),
            Anchor::Product(..) => None,
            Anchor::Conv2D(spec) | Anchor::DepthwiseConv2D(spec) => Some(spec.output().to_vec()),
            Anchor::Conv2DBackpropInput(spec) => Some(spec.input().to_vec()),
        }
    }

    /// Whether a result of an epilogue may hold the anchor's elements for a while, so that no operand may lie there but those that
    /// [`Prepared::in_place`] names.
    pub fn uses_results(&self) -> bool {
        !matches!(self, Anchor::Product(..))
    }

    /// Whether its elements, which nobody else needs, are best pooled at once: where there are images enough to be cut into pieces,
    /// and they stay in the cache.
    pub fn takes(&self, pooling: &Pooling) -> bool {
        let Anchor::Conv2D(spec) = self else { return false };
        let [batch, rows, columns, channels] = spec.output();
        let image = rows.saturating_mul(columns).saturating_mul(channels);
        pooling.spec.input() == spec.output() && batch >= 8 && image <= 128 << 10
    }

    /// The kernel. With a pooling, that follows the epilogue, and its results are the results.
    ///
    /// # Errors
    /// As the kernel's own function; UNIMPLEMENTED for an epilogue or a pooling where there can be none.
    pub fn prepare(&self, epilogue: Option<Epilogue>, pooling: Option<Pooling>) -> Result<Prepared> {
        if let Some(pooling) = pooling {
            return match self {
                Anchor::Conv2D(spec) => conv2d_pooled(*spec, epilogue, pooling),
                _ => Err(Error::unimplemented(format!("{self:?} that is pooled at once"))),
            };
        }
        match self {
            Anchor::Product(DataType::Float, spec) => product(*spec, epilogue),
            Anchor::Product(data_type, spec) if epilogue.is_none() => product_generic(*data_type, spec),
            Anchor::Product(data_type, _) => Err(Error::unimplemented(format!("an epilogue on products of {data_type}"))),
            Anchor::Conv2D(spec) => conv2d(*spec, epilogue),
            Anchor::Conv2DBackpropInput(spec) => conv2d_backprop_input(*spec, epilogue),
            Anchor::DepthwiseConv2D(spec) => depthwise_conv2d(*spec, epilogue),
        }
    }
}
