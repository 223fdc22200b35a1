//! TanhGrad, SigmoidGrad, SqrtGrad, RsqrtGrad, ReciprocalGrad: gradients of operations from their results `y` and `dy`.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, UnaryOp};

use crate::gradient::from_one;
use crate::infer::merge_shapes;
use crate::registry::{Gradient, GradientFn};
use crate::{GraphBuilder, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, expr: fn(&KernelCx<'_>) -> Result<Expr>, gradient: GradientFn) -> OpRules {
    OpRules { name, infer, lower: Lower::Elementwise(expr), gradient: Gradient::Rule(gradient) }
}

/// The rules of these operations.
pub const RULES: &[OpRules] = &[
    rule("TanhGrad", tanh, tanh_gradient),
    rule("SigmoidGrad", sigmoid, sigmoid_gradient),
    rule("SqrtGrad", sqrt, sqrt_gradient),
    rule("RsqrtGrad", rsqrt, rsqrt_gradient),
    rule("ReciprocalGrad", reciprocal, reciprocal_gradient),
    rule("InvGrad", reciprocal, reciprocal_gradient),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = merge_shapes(cx.shape(0), cx.shape(1))?;
    cx.set(0, shape);
    Ok(())
}

/// Instructions on `y`, or its complex conjugate, and `dy`, both of one type.
struct Steps {
    builder: ExprBuilder,
    y: Reg,
    dy: Reg,
}

impl Steps {
    fn new(cx: &KernelCx<'_>) -> Result<Steps> {
        let mut builder = ExprBuilder::new();
        let (mut y, dy) = (builder.input(cx.inputs[0].data_type)?, builder.input(cx.inputs[1].data_type)?);
        if cx.inputs[0].data_type.is_complex() {
            y = builder.unary(UnaryOp::Conj, y)?;
        }
        Ok(Steps { builder, y, dy })
    }

    fn number(&mut self, value: f64) -> Result<Reg> {
        let data_type = self.builder.type_of(self.y);
        if !data_type.is_floating() && !data_type.is_complex() {
            return Err(Error::unimplemented(format!("gradients of {data_type}")));
        }
        self.builder.number(data_type, value)
    }

    fn mul(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(BinaryOp::Mul, a, b)
    }

    fn finish(self, result: Reg) -> Result<Expr> {
        Ok(self.builder.finish(vec![result]))
    }
}

/// `dy * (1 - y*y)`.
fn tanh(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (one, square) = (s.number(1.0)?, s.mul(s.y, s.y)?);
    let rest = s.builder.binary(BinaryOp::Sub, one, square)?;
    let result = s.mul(s.dy, rest)?;
    s.finish(result)
}

/// `dy * y * (1 - y)`.
fn sigmoid(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let one = s.number(1.0)?;
    let product = s.mul(s.dy, s.y)?;
    let rest = s.builder.binary(BinaryOp::Sub, one, s.y)?;
    let result = s.mul(product, rest)?;
    s.finish(result)
}

/// `0.5 * dy / y`, and 0 where `dy` is.
fn sqrt(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let (half, zero) = (s.number(0.5)?, s.number(0.0)?);
    let product = s.mul(half, s.dy)?;
    let quotient = s.builder.binary(BinaryOp::Div, product, s.y)?;
    let none = s.builder.binary(BinaryOp::Equal, s.dy, zero)?;
    let result = s.builder.select(none, zero, quotient)?;
    s.finish(result)
}

/// `-0.5 * (dy * y) * (y * y)`.
fn rsqrt(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let half = s.number(-0.5)?;
    let product = s.mul(s.dy, s.y)?;
    let scaled = s.mul(half, product)?;
    let square = s.mul(s.y, s.y)?;
    let result = s.mul(scaled, square)?;
    s.finish(result)
}

/// `-dy * y * y`.
fn reciprocal(cx: &KernelCx<'_>) -> Result<Expr> {
    let mut s = Steps::new(cx)?;
    let neg = s.builder.unary(UnaryOp::Neg, s.dy)?;
    let product = s.mul(neg, s.y)?;
    let result = s.mul(product, s.y)?;
    s.finish(result)
}

type Gradients = Result<Vec<Option<Output>>>;

/// `(grad * -2 * dy * y, TanhGrad(y, grad))`.
fn tanh_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let product = g.scale(grad, -2.0)?;
        let product = g.mul(product, g.input(1))?;
        let to_y = g.mul(product, g.input(0))?;
        Ok(vec![Some(to_y), Some(g.op("TanhGrad", &[g.input(0), grad])?)])
    })
}

/// `(grad * dy - 2 * grad * dy * y, SigmoidGrad(y, grad))`.
fn sigmoid_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let product = g.mul(grad, g.input(1))?;
        let double = g.scale(product, 2.0)?;
        let scaled = g.mul(double, g.input(0))?;
        let to_y = g.sub(product, scaled)?;
        Ok(vec![Some(to_y), Some(g.op("SigmoidGrad", &[g.input(0), grad])?)])
    })
}

/// `(-(grad / y) * out, 0.5 * grad / y)`.
fn sqrt_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let quotient = g.op("RealDiv", &[grad, g.input(0)])?;
        let conjugate = g.conj(quotient)?;
        let neg = g.neg(conjugate)?;
        let to_y = g.mul(neg, g.output(0))?;
        Ok(vec![Some(to_y), Some(g.scale(quotient, 0.5)?)])
    })
}

/// `(-1.5 * grad * dy * y^2, RsqrtGrad(y, grad))`.
fn rsqrt_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let (y, conjugate) = (g.conj(g.input(0))?, g.conj(grad)?);
        let scaled = g.scale(conjugate, -1.5)?;
        let product = g.mul(scaled, g.input(1))?;
        let square = g.op("Square", &[y])?;
        let to_y = g.mul(product, square)?;
        Ok(vec![Some(to_y), Some(g.op("RsqrtGrad", &[y, grad])?)])
    })
}

/// `(grad * -2 * dy * y, ReciprocalGrad(y, grad))`.
fn reciprocal_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let (y, conjugate) = (g.conj(g.input(0))?, g.conj(grad)?);
        let scaled = g.scale(conjugate, -2.0)?;
        let product = g.mul(scaled, g.input(1))?;
        let to_y = g.mul(product, y)?;
        Ok(vec![Some(to_y), Some(g.op("ReciprocalGrad", &[y, grad])?)])
    })
}
