//! Gradients of operations on one value, each as TensorFlow's `math_grad.py` builds it.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

type Gradients = Result<Vec<Option<Output>>>;

macro_rules! gradients {
    ($($(#[$doc:meta])* $name:ident($g:ident, $dy:ident) => $body:block)*) => {
        $($(#[$doc])* pub(super) fn $name(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
            from_one(builder, node, gradients, |$g, $dy| Ok(vec![Some($body)]))
        })*
    };
}

gradients! {
    neg(g, dy) => { g.neg(dy)? }
    abs(g, dy) => {
        let sign = g.op("Sign", &[g.input(0)])?;
        g.mul(dy, sign)?
    }
    /// Zeros.
    sign(g, _dy) => { g.zeros_like(g.input(0))? }
    square(g, dy) => {
        let x = g.conj(g.input(0))?;
        let double = g.scale(x, 2.0)?;
        g.mul(dy, double)?
    }
    sqrt(g, dy) => { g.op("SqrtGrad", &[g.output(0), dy])? }
    rsqrt(g, dy) => { g.op("RsqrtGrad", &[g.output(0), dy])? }
    reciprocal(g, dy) => { g.op("ReciprocalGrad", &[g.output(0), dy])? }
    exp(g, dy) => {
        let y = g.conj(g.output(0))?;
        g.mul(dy, y)?
    }
    expm1(g, dy) => {
        let exp = g.op("Exp", &[g.input(0)])?;
        g.mul(dy, exp)?
    }
    log(g, dy) => {
        let x = g.conj(g.input(0))?;
        let inverse = g.op("Reciprocal", &[x])?;
        g.mul(dy, inverse)?
    }
    log1p(g, dy) => {
        let one = g.number(g.input(0), 1.0)?;
        let sum = g.op("AddV2", &[one, g.input(0)])?;
        let inverse = g.op("Reciprocal", &[sum])?;
        g.mul(dy, inverse)?
    }
    tanh(g, dy) => { g.op("TanhGrad", &[g.output(0), dy])? }
    sigmoid(g, dy) => { g.op("SigmoidGrad", &[g.output(0), dy])? }
    erf(g, dy) => { bell(g, dy, FRAC_2_SQRT_PI)? }
    erfc(g, dy) => { bell(g, dy, -FRAC_2_SQRT_PI)? }
    /// `dy * sqrt(pi) / 2 * exp(erfinv(x)^2)`.
    erfinv(g, dy) => {
        let square = g.op("Square", &[g.output(0)])?;
        let exp = g.op("Exp", &[square])?;
        let slope = g.scale(exp, PI.sqrt() / 2.0)?;
        g.mul(dy, slope)?
    }
    /// `dy * sqrt(2 pi) * exp(ndtri(x)^2 / 2)`.
    ndtri(g, dy) => {
        let square = g.op("Square", &[g.output(0)])?;
        let half = g.scale(square, 0.5)?;
        let exp = g.op("Exp", &[half])?;
        let slope = g.scale(exp, (2.0 * PI).sqrt())?;
        g.mul(dy, slope)?
    }
    sin(g, dy) => {
        let x = g.conj(g.input(0))?;
        let cos = g.op("Cos", &[x])?;
        g.mul(dy, cos)?
    }
    cos(g, dy) => {
        let x = g.conj(g.input(0))?;
        let sin = g.op("Sin", &[x])?;
        let neg = g.neg(dy)?;
        g.mul(neg, sin)?
    }
    /// `dy / cos(x)^2`.
    tan(g, dy) => {
        let cos = g.op("Cos", &[g.input(0)])?;
        let secant = g.op("Reciprocal", &[cos])?;
        let square = g.op("Square", &[secant])?;
        g.mul(square, dy)?
    }
    /// `dy / sqrt(1 - x^2)`.
    asin(g, dy) => {
        let slope = slope_of_arcs(g)?;
        g.mul(dy, slope)?
    }
    /// `-dy / sqrt(1 - x^2)`.
    acos(g, dy) => {
        let slope = slope_of_arcs(g)?;
        let neg = g.neg(dy)?;
        g.mul(neg, slope)?
    }
    /// `dy / (1 + x^2)`.
    atan(g, dy) => {
        let (square, one) = (g.op("Square", &[g.input(0)])?, g.number(dy, 1.0)?);
        let sum = g.op("AddV2", &[one, square])?;
        let inverse = g.op("Reciprocal", &[sum])?;
        g.mul(dy, inverse)?
    }
    sinh(g, dy) => {
        let x = g.conj(g.input(0))?;
        let cosh = g.op("Cosh", &[x])?;
        g.mul(dy, cosh)?
    }
    cosh(g, dy) => {
        let x = g.conj(g.input(0))?;
        let sinh = g.op("Sinh", &[x])?;
        g.mul(dy, sinh)?
    }
    asinh(g, dy) => {
        let cosh = g.op("Cosh", &[g.output(0)])?;
        g.op("RealDiv", &[dy, cosh])?
    }
    acosh(g, dy) => {
        let sinh = g.op("Sinh", &[g.output(0)])?;
        g.op("RealDiv", &[dy, sinh])?
    }
    /// `dy / (1 - x^2)`.
    atanh(g, dy) => {
        let (square, one) = (g.op("Square", &[g.input(0)])?, g.number(dy, 1.0)?);
        let rest = g.sub(one, square)?;
        let inverse = g.op("Reciprocal", &[rest])?;
        g.mul(dy, inverse)?
    }
    lgamma(g, dy) => {
        let digamma = g.op("Digamma", &[g.input(0)])?;
        g.mul(dy, digamma)?
    }
    digamma(g, dy) => {
        let one = g.number(g.input(0), 1.0)?;
        let slope = g.op("Polygamma", &[one, g.input(0)])?;
        g.mul(dy, slope)?
    }
}

/// `1 / sqrt(1 - x^2)`.
fn slope_of_arcs(g: &mut Grad<'_>) -> Result<Output> {
    let (square, one) = (g.op("Square", &[g.input(0)])?, g.number(g.input(0), 1.0)?);
    let rest = g.sub(one, square)?;
    let root = g.op("Sqrt", &[rest])?;
    g.op("Reciprocal", &[root])
}

/// `dy * factor * exp(-x^2)`.
fn bell(g: &mut Grad<'_>, dy: Output, factor: f64) -> Result<Output> {
    let scaled = g.scale(dy, factor)?;
    let square = g.op("Square", &[g.input(0)])?;
    let neg = g.neg(square)?;
    let exp = g.op("Exp", &[neg])?;
    g.mul(scaled, exp)
}
