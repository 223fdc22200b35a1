//! Gradients of arithmetic, each as TensorFlow's `math_grad.py` builds it: both operands' gradients in the result's shape,
//! summed down to the operands' shapes where these were broadcast.

use plimsoll_base::Result;
use plimsoll_graph::{AttrValue, NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::{Grad, from_one};

type Gradients = Result<Vec<Option<Output>>>;

macro_rules! gradients {
    ($($(#[$doc:meta])* $name:ident($g:ident, $dz:ident, $x:ident, $y:ident) => $body:block)*) => {
        $($(#[$doc])* pub(super) fn $name(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
            from_one(builder, node, gradients, |$g, $dz| {
                let ($x, $y) = ($g.input(0), $g.input(1));
                let (to_x, to_y): (Output, Output) = $body;
                $g.unbroadcast([$x, $y], [Some(to_x), Some(to_y)])
            })
        })*
    };
}

gradients! {
    add(g, dz, x, y) => { (dz, dz) }
    sub(g, dz, x, y) => { (dz, g.neg(dz)?) }
    mul(g, dz, x, y) => {
        let (x, y) = (g.conj(x)?, g.conj(y)?);
        (g.mul(dz, y)?, g.mul(x, dz)?)
    }
    /// Of complex numbers, too, without their conjugates, as in TensorFlow.
    mul_no_nan(g, dz, x, y) => { (g.op("MulNoNan", &[dz, y])?, g.op("MulNoNan", &[x, dz])?) }
    div(g, dz, x, y) => { quotient(g, dz, "Div")? }
    real_div(g, dz, x, y) => { quotient(g, dz, "RealDiv")? }
    div_no_nan(g, dz, x, y) => { quotient(g, dz, "DivNoNan")? }
    floor_mod(g, dz, x, y) => {
        let floor = g.op("FloorDiv", &[x, y])?;
        let neg = g.neg(floor)?;
        (dz, g.mul(dz, neg)?)
    }
    maximum(g, dz, x, y) => { chosen(g, dz, "GreaterEqual")? }
    minimum(g, dz, x, y) => { chosen(g, dz, "LessEqual")? }
    /// `dz * y * x^(y-1)` and `dz * z * log(x)`, where the logarithm counts as 0 unless `x > 0`.
    pow(g, dz, x, y) => {
        let one = g.number(y, 1.0)?;
        let exponent = g.sub(y, one)?;
        let power = g.op("Pow", &[x, exponent])?;
        let scaled = g.mul(dz, y)?;
        let to_x = g.mul(scaled, power)?;
        let zero = g.number(x, 0.0)?;
        let mask = g.op("Greater", &[x, zero])?;
        let ones = g.op("OnesLike", &[x])?;
        let safe = g.select(mask, x, ones)?;
        let log = g.op("Log", &[safe])?;
        let zeros = g.zeros_like(x)?;
        let log = g.select(mask, log, zeros)?;
        let product = g.mul(dz, g.output(0))?;
        (to_x, g.mul(product, log)?)
    }
    /// `2 * dz * (x - y)` and its negative.
    squared_difference(g, dz, x, y) => {
        let double = g.scale(dz, 2.0)?;
        let difference = g.sub(x, y)?;
        let to_x = g.mul(double, difference)?;
        (to_x, g.neg(to_x)?)
    }
    /// `x * dz / (y^2 + x^2)` and `-y * dz / (y^2 + x^2)` for the angle of the point with `y` first.
    atan2(g, dz, y, x) => {
        let (square_y, square_x) = (g.op("Square", &[y])?, g.op("Square", &[x])?);
        let sum = g.op("AddV2", &[square_y, square_x])?;
        let inverse = g.op("RealDiv", &[dz, sum])?;
        let to_y = g.mul(x, inverse)?;
        let neg = g.neg(y)?;
        (to_y, g.mul(neg, inverse)?)
    }
    igamma(g, dz, a, x) => { slopes_of_igamma(g, dz)? }
    igammac(g, dz, a, x) => {
        let (to_a, to_x) = slopes_of_igamma(g, dz)?;
        (g.neg(to_a)?, g.neg(to_x)?)
    }
    /// All goes to the number; nothing to where it is going.
    next_after(g, dz, x, y) => { (dz, g.zeros_like(dz)?) }
    xdivy(g, dz, x, y) => {
        let not_zero = one_unless_zero(g, x)?;
        let by_x = g.op("Xdivy", &[not_zero, y])?;
        let (neg, square) = (g.neg(x)?, g.op("Square", &[y])?);
        let by_y = g.op("Xdivy", &[neg, square])?;
        (g.mul(by_x, dz)?, g.mul(by_y, dz)?)
    }
    xlogy(g, dz, x, y) => {
        let not_zero = one_unless_zero(g, x)?;
        let (by_x, by_y) = (g.op("Xlogy", &[not_zero, y])?, g.op("Xdivy", &[x, y])?);
        (g.mul(by_x, dz)?, g.mul(by_y, dz)?)
    }
    xlog1py(g, dz, x, y) => {
        let not_zero = one_unless_zero(g, x)?;
        let one = g.number(y, 1.0)?;
        let sum = g.op("AddV2", &[y, one])?;
        let (by_x, by_y) = (g.op("Xlog1py", &[not_zero, y])?, g.op("Xdivy", &[x, sum])?);
        (g.mul(by_x, dz)?, g.mul(by_y, dz)?)
    }
}

/// The slopes of the lower incomplete gamma function, times `dz`: by `a` an operation of its own; by `x` in logarithms, for gamma of `a`
/// can be large.
fn slopes_of_igamma(g: &mut Grad<'_>, dz: Output) -> Result<(Output, Output)> {
    let (a, x) = (g.input(0), g.input(1));
    let by_a = g.op("IgammaGradA", &[a, x])?;
    let (neg, one, log, lgamma) = (g.neg(x)?, g.number(a, 1.0)?, g.op("Log", &[x])?, g.op("Lgamma", &[a])?);
    let before = g.sub(a, one)?;
    let power = g.mul(before, log)?;
    let sum = g.op("AddV2", &[neg, power])?;
    let sum = g.sub(sum, lgamma)?;
    let by_x = g.op("Exp", &[sum])?;
    Ok((g.mul(by_a, dz)?, g.mul(by_x, dz)?))
}

/// None by the order, as in TensorFlow; `dz` times the next derivative by `x`.
pub(super) fn polygamma(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dz| {
        let (n, x) = (g.input(0), g.input(1));
        let one = g.number(n, 1.0)?;
        let next = g.op("AddV2", &[n, one])?;
        let slope = g.op("Polygamma", &[next, x])?;
        let to_x = g.mul(slope, dz)?;
        g.unbroadcast([n, x], [None, Some(to_x)])
    })
}

/// None by the exponent, as in TensorFlow; `-x * zeta(x + 1, q) * dz` by `q`.
pub(super) fn zeta(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dz| {
        let (x, q) = (g.input(0), g.input(1));
        let (one, neg) = (g.number(x, 1.0)?, g.neg(x)?);
        let next = g.op("AddV2", &[x, one])?;
        let next = g.op("Zeta", &[next, q])?;
        let slope = g.mul(neg, next)?;
        let to_q = g.mul(slope, dz)?;
        g.unbroadcast([x, q], [None, Some(to_q)])
    })
}

/// 1 where `x` is not 0, else 0.
fn one_unless_zero(g: &mut Grad<'_>, x: Output) -> Result<Output> {
    let zero = g.number(x, 0.0)?;
    let mask = g.op("NotEqual", &[x, zero])?;
    let data_type = AttrValue::data_type(g.data_type(x));
    g.op_with("Cast", &[mask], &[("DstT", data_type)])
}

/// `dz / y` and `dz * (-x / y / y)`.
fn quotient(g: &mut Grad<'_>, dz: Output, op: &str) -> Result<(Output, Output)> {
    let (x, y) = (g.conj(g.input(0))?, g.conj(g.input(1))?);
    let to_x = g.op(op, &[dz, y])?;
    let neg = g.neg(x)?;
    let once = g.op(op, &[neg, y])?;
    let twice = g.op(op, &[once, y])?;
    Ok((to_x, g.mul(dz, twice)?))
}

/// The gradient goes to the operand that was chosen; to the first where they are equal.
fn chosen(g: &mut Grad<'_>, dz: Output, first: &str) -> Result<(Output, Output)> {
    let mask = g.op(first, &[g.input(0), g.input(1)])?;
    let zeros = g.zeros_like(dz)?;
    Ok((g.select(mask, dz, zeros)?, g.select(mask, zeros, dz)?))
}
