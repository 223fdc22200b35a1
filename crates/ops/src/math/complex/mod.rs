//! Complex, Real, Imag, Conj, ComplexAbs, Angle: complex numbers and their parts.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, UnaryOp};

use crate::gradient::from_one;
use crate::infer::{broadcast, same};
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of these operations.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Complex", infer: whole, lower: Lower::Binary(BinaryOp::Complex), gradient: Gradient::Rule(of_complex) },
    OpRules { name: "Real", infer: part, lower: Lower::Unary(UnaryOp::Real), gradient: Gradient::Rule(of_real) },
    OpRules { name: "Imag", infer: part, lower: Lower::Unary(UnaryOp::Imag), gradient: Gradient::Rule(of_imag) },
    OpRules { name: "Conj", infer: same, lower: Lower::Unary(UnaryOp::Conj), gradient: Gradient::Rule(of_conj) },
    OpRules { name: "ComplexAbs", infer: part, lower: Lower::Elementwise(length), gradient: Gradient::Rule(of_length) },
    OpRules { name: "Angle", infer: part, lower: Lower::Elementwise(angle), gradient: Gradient::Rule(of_angle) },
];

fn whole(cx: &mut InferCx<'_>) -> Result<()> {
    fits(cx, DataType::pair)?;
    broadcast(cx)
}

fn part(cx: &mut InferCx<'_>) -> Result<()> {
    fits(cx, DataType::part)?;
    same(cx)
}

/// The types of the input and of the output are attributes that know nothing of each other.
fn fits(cx: &InferCx<'_>, given: fn(DataType) -> Option<DataType>) -> Result<()> {
    let (input, output) = (cx.inputs[0].data_type, cx.outputs[0].data_type);
    if given(input) == Some(output) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{} makes no {output} of {input}", cx.node.op)))
}

fn length(cx: &KernelCx<'_>) -> Result<Expr> {
    of_parts(cx, |builder, re, im| builder.binary(BinaryOp::Hypot, re, im))
}

fn angle(cx: &KernelCx<'_>) -> Result<Expr> {
    of_parts(cx, |builder, re, im| builder.binary(BinaryOp::Atan2, im, re))
}

fn of_parts(cx: &KernelCx<'_>, function: fn(&mut ExprBuilder, Reg, Reg) -> Result<Reg>) -> Result<Expr> {
    let mut builder = ExprBuilder::new();
    let x = builder.input(cx.inputs[0].data_type)?;
    let (re, im) = (builder.unary(UnaryOp::Real, x)?, builder.unary(UnaryOp::Imag, x)?);
    let result = function(&mut builder, re, im)?;
    Ok(builder.finish(vec![result]))
}

type Gradients = Result<Vec<Option<Output>>>;

fn of_complex(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let (re, im) = (g.part("Real", gradient)?, g.part("Imag", gradient)?);
        g.unbroadcast([g.input(0), g.input(1)], [Some(re), Some(im)])
    })
}

fn of_real(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let zero = g.number(gradient, 0.0)?;
        Ok(vec![Some(g.complex(gradient, zero)?)])
    })
}

fn of_imag(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let zero = g.number(gradient, 0.0)?;
        Ok(vec![Some(g.complex(zero, gradient)?)])
    })
}

fn of_conj(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(g.conj(gradient)?)]))
}

/// `dy * x / |x|`, and 0 where `x` is.
fn of_length(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let zero = g.number(gradient, 0.0)?;
        let (dy, length) = (g.complex(gradient, zero)?, g.complex(g.output(0), zero)?);
        let scaled = g.mul(dy, g.input(0))?;
        Ok(vec![Some(g.op("DivNoNan", &[scaled, length])?)])
    })
}

/// `-dy / (im + i re)`.
fn of_angle(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let (re, im) = (g.part("Real", g.input(0))?, g.part("Imag", g.input(0))?);
        let turned = g.complex(im, re)?;
        let inverse = g.op("Reciprocal", &[turned])?;
        let zero = g.number(gradient, 0.0)?;
        let dy = g.complex(gradient, zero)?;
        let neg = g.neg(dy)?;
        Ok(vec![Some(g.mul(neg, inverse)?)])
    })
}
