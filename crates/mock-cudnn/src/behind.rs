//! What is computed behind a convolution, element by element.

use std::ffi::c_int;

use crate::attributes::kind;
use crate::convolution::{Convolution, Tensor};

/// `cudnnPointwiseMode_t`.
pub const ADD: c_int = 0;
const RELU: c_int = 100;
pub const GREATER: c_int = 302;
pub const SELECT: c_int = 601;

/// An operation on each element of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct OnEach {
    pub mode: c_int,
    pub from: Tensor,
    pub second: Option<Tensor>,
    /// Truths that choose between them.
    pub choice: Option<Tensor>,
    pub to: Tensor,
}

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behind(pub Vec<OnEach>);

/// Such as engines compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    pub residual: Option<Tensor>,
    pub bias: Option<Tensor>,
    pub relu: bool,
    /// What is above zero where something is left.
    pub features: Option<Tensor>,
    /// The zero that features are compared with, and that is elsewhere.
    pub zero: Option<Tensor>,
    pub result: Tensor,
}

/// A number for each channel.
fn is_bias(tensor: &Tensor, whole: &[i64]) -> bool {
    tensor.sizes.iter().zip(whole).enumerate().all(|(at, (one, all))| *one == if at == 1 { *all } else { 1 })
}

impl Behind {
    /// What engines compute of it; none for anything else.
    pub fn finish(&self, convolution: &Convolution) -> Option<Finish> {
        match convolution.kind {
            kind::FORWARD => {
                let whole = &convolution.result.sizes;
                self.finish_forward(whole).or_else(|| self.finish_gradient(whole))
            }
            kind::BY_INPUT => self.finish_gradient(&convolution.input.sizes),
            _ => None,
        }
    }

    /// A sum with a whole tensor, if any, then one with a bias, and then, if any, a maximum with zero.
    fn finish_forward(&self, whole: &[i64]) -> Option<Finish> {
        let (relu, sums) = match self.0.split_last()? {
            (last, sums) if last.mode == RELU => (true, sums),
            _ => (false, &self.0[..]),
        };
        let seconds: Option<Vec<&Tensor>> = sums.iter().map(|sum| sum.second.as_ref().filter(|_| sum.mode == ADD)).collect();
        let (residual, bias) = match seconds?[..] {
            [bias] if is_bias(bias, whole) => (None, bias),
            [residual, bias] if is_bias(bias, whole) && residual.sizes == *whole => (Some(residual.clone()), bias),
            _ => return None,
        };
        Some(Finish { residual, bias: Some(bias.clone()), relu, features: None, zero: None, result: self.0.last()?.to.clone() })
    }

    /// A sum with a whole tensor, if any, then a choice: the sum where features are above a zero that is said, and else that.
    fn finish_gradient(&self, whole: &[i64]) -> Option<Finish> {
        let (residual, [greater, select]) = match &self.0[..] {
            [greater, select] => (None, [greater, select]),
            [sum, greater, select] if sum.mode == ADD => (Some(sum.second.clone()?), [greater, select]),
            _ => return None,
        };
        let (zero, features) = (greater.second.clone()?, greater.from.clone());
        let are_whole = residual.iter().chain([&features]).all(|tensor| tensor.sizes == *whole);
        let is_it = (greater.mode, select.mode) == (GREATER, SELECT)
            && zero.is_said
            && select.second.as_ref() == Some(&zero)
            && select.choice.as_ref() == Some(&greater.to)
            && are_whole;
        is_it.then(|| Finish { residual, bias: None, relu: false, features: Some(features), zero: Some(zero), result: select.to.clone() })
    }
}

impl Finish {
    /// The tensors that are in memory beside what the convolution reads: result, bias, residual, features.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        [&self.result].into_iter().chain(&self.bias).chain(&self.residual).chain(&self.features)
    }
}
