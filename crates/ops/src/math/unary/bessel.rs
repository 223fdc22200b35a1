//! Gradients of Bessel functions and integrals, each as TensorFlow's `math_grad.py` builds it.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

type Gradients = Result<Vec<Option<Output>>>;

/// The gradient is `dy` times a slope.
macro_rules! slopes {
    ($($(#[$doc:meta])* $name:ident($g:ident, $x:ident, $y:ident) => $body:block)*) => {
        $($(#[$doc])* pub(super) fn $name(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
            from_one(builder, node, gradients, |$g, dy| {
                let ($x, $y) = ($g.input(0), $g.output(0));
                let slope = $body;
                Ok(vec![Some($g.mul(dy, slope)?)])
            })
        })*
    };
}

slopes! {
    i0(g, x, _y) => { g.op("BesselI1", &[x])? }
    i0e(g, x, y) => {
        let (next, sign) = (g.op("BesselI1e", &[x])?, g.op("Sign", &[x])?);
        let own = g.mul(sign, y)?;
        g.sub(next, own)?
    }
    /// 1 at 0, where the quotient is NaN.
    i1(g, x, y) => {
        let (before, quotient) = (g.op("BesselI0", &[x])?, g.op("Div", &[y, x])?);
        let slope = g.sub(before, quotient)?;
        unless_zero(g, x, slope, 1.0)?
    }
    /// 1/2 at 0.
    i1e(g, x, y) => {
        let (before, sign, inverse) = (g.op("BesselI0e", &[x])?, g.op("Sign", &[x])?, g.op("Reciprocal", &[x])?);
        let sum = g.op("AddV2", &[sign, inverse])?;
        let own = g.mul(y, sum)?;
        let slope = g.sub(before, own)?;
        unless_zero(g, x, slope, 0.5)?
    }
    j0(g, x, _y) => {
        let next = g.op("BesselJ1", &[x])?;
        g.neg(next)?
    }
    /// 1/2 at 0.
    j1(g, x, y) => {
        let (before, quotient) = (g.op("BesselJ0", &[x])?, g.op("Div", &[y, x])?);
        let slope = g.sub(before, quotient)?;
        unless_zero(g, x, slope, 0.5)?
    }
    k0(g, x, _y) => {
        let next = g.op("BesselK1", &[x])?;
        g.neg(next)?
    }
    k0e(g, x, y) => {
        let next = g.op("BesselK1e", &[x])?;
        g.sub(y, next)?
    }
    k1(g, x, y) => {
        let (before, quotient) = (g.op("BesselK0", &[x])?, g.op("Div", &[y, x])?);
        let neg = g.neg(before)?;
        g.sub(neg, quotient)?
    }
    k1e(g, x, y) => {
        let (before, inverse, one) = (g.op("BesselK0e", &[x])?, g.op("Reciprocal", &[x])?, g.number(x, 1.0)?);
        let rest = g.sub(one, inverse)?;
        let own = g.mul(y, rest)?;
        g.sub(own, before)?
    }
    y0(g, x, _y) => {
        let next = g.op("BesselY1", &[x])?;
        g.neg(next)?
    }
    y1(g, x, y) => {
        let (before, quotient) = (g.op("BesselY0", &[x])?, g.op("Div", &[y, x])?);
        g.sub(before, quotient)?
    }
    /// `1 - 2 x y`.
    dawsn(g, x, y) => {
        let (double, one) = (g.scale(x, 2.0)?, g.number(x, 1.0)?);
        let product = g.mul(double, y)?;
        g.sub(one, product)?
    }
    /// `exp(x) / x`.
    expint(g, x, _y) => {
        let exp = g.op("Exp", &[x])?;
        g.op("RealDiv", &[exp, x])?
    }
    /// `cos(pi / 2 x^2)`.
    fresnel_cos(g, x, _y) => {
        let (square, quarter) = (g.op("Square", &[x])?, std::f64::consts::FRAC_PI_2);
        let angle = g.scale(square, quarter)?;
        g.op("Cos", &[angle])?
    }
    /// `sin(pi / 2 x^2)`.
    fresnel_sin(g, x, _y) => {
        let (square, quarter) = (g.op("Square", &[x])?, std::f64::consts::FRAC_PI_2);
        let angle = g.scale(square, quarter)?;
        g.op("Sin", &[angle])?
    }
    /// `log(x) / (1 - x)`, and -1 at 1.
    spence(g, x, _y) => {
        let (log, one) = (g.op("Log", &[x])?, g.number(x, 1.0)?);
        let rest = g.sub(one, x)?;
        let slope = g.op("RealDiv", &[log, rest])?;
        let at_one = g.op("Equal", &[x, one])?;
        let ones = g.op("OnesLike", &[x])?;
        let down = g.neg(ones)?;
        g.select(at_one, down, slope)?
    }
}

/// The slope, and `at_zero` where `x` is 0.
fn unless_zero(g: &mut Grad<'_>, x: Output, slope: Output, at_zero: f64) -> Result<Output> {
    let zero = g.number(x, 0.0)?;
    let is_zero = g.op("Equal", &[x, zero])?;
    let ones = g.op("OnesLike", &[x])?;
    let imputed = g.scale(ones, at_zero)?;
    g.select(is_zero, imputed, slope)
}
