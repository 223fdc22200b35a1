//! What is computed behind a convolution, element by element.

use std::ffi::c_int;

use crate::attributes::kind;
use crate::convolution::{Convolution, Tensor};

/// `cudnnPointwiseMode_t`.
pub const ADD: c_int = 0;
const RELU: c_int = 100;

/// An operation on each element of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct OnEach {
    pub mode: c_int,
    pub from: Tensor,
    pub second: Option<Tensor>,
    pub to: Tensor,
}

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behind(pub Vec<OnEach>);

/// Such as engines compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub residual: Option<Tensor>,
    pub bias: Tensor,
    pub relu: bool,
    pub result: Tensor,
}

impl Behind {
    /// What engines compute of it: a sum with a whole tensor, if any, then one with a bias, and then, if any, a maximum with zero. None for
    /// anything else.
    pub fn finish(&self, convolution: &Convolution) -> Option<Finish> {
        let whole = &convolution.result.sizes;
        let (relu, sums) = match self.0.split_last()? {
            (last, sums) if last.mode == RELU => (true, sums),
            _ => (false, &self.0[..]),
        };
        let is_bias =
            |tensor: &Tensor| tensor.sizes.iter().zip(whole).enumerate().all(|(at, (one, all))| *one == if at == 1 { *all } else { 1 });
        let seconds: Option<Vec<&Tensor>> = sums.iter().map(|sum| sum.second.as_ref().filter(|_| sum.mode == ADD)).collect();
        let (residual, bias) = match seconds?[..] {
            [bias] if is_bias(bias) => (None, bias),
            [residual, bias] if is_bias(bias) && residual.sizes == *whole => (Some(residual.clone()), bias),
            _ => return None,
        };
        if convolution.kind != kind::FORWARD {
            return None;
        }
        Some(Finish { residual, bias: bias.clone(), relu, result: self.0.last()?.to.clone() })
    }
}

impl Finish {
    /// The tensors that are in memory beside input and filter: result, bias, residual.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.result, &self.bias].into_iter().chain(&self.residual)
    }
}
