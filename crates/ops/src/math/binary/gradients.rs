//! Gradients of arithmetic, each as TensorFlow's `math_grad.py` builds it: both operands' gradients in the result's shape,
//! summed down to the operands' shapes where these were broadcast.

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};

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
    mul(g, dz, x, y) => { (g.mul(dz, y)?, g.mul(x, dz)?) }
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
}

/// `dz / y` and `dz * (-x / y / y)`.
fn quotient(g: &mut Grad<'_>, dz: Output, op: &str) -> Result<(Output, Output)> {
    let (x, y) = (g.input(0), g.input(1));
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
