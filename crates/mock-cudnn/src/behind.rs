//! What is computed behind a convolution: element by element, and of each channel.

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

/// The sum and the sum of squares of each channel of a tensor. cuDNN takes such descriptors without tensors, too, and has no engine for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    pub of: Option<Tensor>,
    pub sums: Option<Tensor>,
    pub squares: Option<Tensor>,
}

/// Operations on each element, in order, and statistics of what they make.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behind {
    pub each: Vec<OnEach>,
    pub statistics: Option<Statistics>,
}

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
    /// Sums and sums of squares.
    pub statistics: Option<[Tensor; 2]>,
    pub result: Tensor,
}

/// A number for each channel.
fn is_bias(tensor: &Tensor, whole: &[i64]) -> bool {
    tensor.sizes.iter().zip(whole).enumerate().all(|(at, (one, all))| *one == if at == 1 { *all } else { 1 })
}

impl Behind {
    pub fn is_empty(&self) -> bool {
        self.each.is_empty() && self.statistics.is_none()
    }

    /// What engines compute of it; none for anything else.
    pub fn finish(&self, convolution: &Convolution) -> Option<Finish> {
        if let Some(Statistics { of, sums, squares }) = &self.statistics {
            let (result, both) = (&convolution.result, [sums.clone()?, squares.clone()?]);
            let are_its = both.iter().all(|tensor| is_bias(tensor, &result.sizes) && tensor.data_type == 0 && !tensor.is_virtual);
            let is_its = of.as_ref() == Some(result) && !result.is_virtual && are_its;
            let is_it = is_its && convolution.kind == kind::FORWARD && self.each.is_empty();
            return is_it.then(|| Finish { statistics: Some(both), ..Finish::of(result) });
        }
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
        let (relu, sums) = match self.each.split_last()? {
            (last, sums) if last.mode == RELU => (true, sums),
            _ => (false, &self.each[..]),
        };
        let seconds: Option<Vec<&Tensor>> = sums.iter().map(|sum| sum.second.as_ref().filter(|_| sum.mode == ADD)).collect();
        let (residual, bias) = match seconds?[..] {
            [bias] if is_bias(bias, whole) => (None, bias),
            [residual, bias] if is_bias(bias, whole) && residual.sizes == *whole => (Some(residual.clone()), bias),
            _ => return None,
        };
        Some(Finish { residual, bias: Some(bias.clone()), relu, ..Finish::of(&self.each.last()?.to) })
    }

    /// A sum with a whole tensor, if any, then a choice: the sum where features are above a zero that is said, and else that.
    fn finish_gradient(&self, whole: &[i64]) -> Option<Finish> {
        let (residual, [greater, select]) = match &self.each[..] {
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
        is_it.then(|| Finish { residual, features: Some(features), zero: Some(zero), ..Finish::of(&select.to) })
    }
}

impl Finish {
    /// Nothing, with that result.
    fn of(result: &Tensor) -> Finish {
        Finish { residual: None, bias: None, relu: false, features: None, zero: None, statistics: None, result: result.clone() }
    }

    /// The tensors that are in memory beside what the convolution reads: result, bias, residual, features, sums, sums of squares.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let sums = self.statistics.iter().flatten();
        [&self.result].into_iter().chain(&self.bias).chain(&self.residual).chain(&self.features).chain(sums)
    }
}
