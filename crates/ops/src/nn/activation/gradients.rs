//! Gradients of activations, each as TensorFlow's `nn_grad.py` builds it.

use plimsoll_base::Result;
use plimsoll_graph::{AttrsExt, NodeId, Output};

use crate::GraphBuilder;
use crate::gradient::from_one;

type Gradients = Result<Vec<Option<Output>>>;

pub(super) fn relu(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| Ok(vec![Some(g.op("ReluGrad", &[dy, g.output(0)])?)]))
}

pub(super) fn relu6(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| Ok(vec![Some(g.op("Relu6Grad", &[dy, g.output(0)])?)]))
}

pub(super) fn leaky_relu(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| {
        let alpha = g.attrs().require("alpha")?.clone();
        Ok(vec![Some(g.op_with("LeakyReluGrad", &[dy, g.input(0)], &[("alpha", alpha)])?)])
    })
}

pub(super) fn elu(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| Ok(vec![Some(g.op("EluGrad", &[dy, g.output(0)])?)]))
}

pub(super) fn selu(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| Ok(vec![Some(g.op("SeluGrad", &[dy, g.output(0)])?)]))
}

pub(super) fn softsign(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| Ok(vec![Some(g.op("SoftsignGrad", &[dy, g.input(0)])?)]))
}

pub(super) fn softplus(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, dy| {
        let sigmoid = g.op("Sigmoid", &[g.input(0)])?;
        Ok(vec![Some(g.mul(dy, sigmoid)?)])
    })
}

pub(super) fn relu_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let features = g.input(1);
        Ok(vec![Some(g.op("ReluGrad", &[grad, features])?), Some(g.zeros_like(features)?)])
    })
}

pub(super) fn relu6_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let features = g.input(1);
        Ok(vec![Some(g.op("Relu6Grad", &[grad, features])?), Some(g.zeros_like(features)?)])
    })
}

pub(super) fn leaky_relu_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let (features, alpha) = (g.input(1), g.attrs().require("alpha")?.clone());
        let to_gradients = g.op_with("LeakyReluGrad", &[grad, features], &[("alpha", alpha)])?;
        Ok(vec![Some(to_gradients), Some(g.zeros_like(features)?)])
    })
}

pub(super) fn elu_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    of_exponential(builder, node, gradients, "EluGrad")
}

pub(super) fn selu_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    of_exponential(builder, node, gradients, "SeluGrad")
}

/// `(op(grad, y), grad * dy where y < 0)`, where `op` of `dy` and `y` is the node.
fn of_exponential(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>], op: &str) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let (dy, y) = (g.input(0), g.input(1));
        let to_gradients = g.op(op, &[grad, y])?;
        let (zero, zeros) = (g.number(y, 0.0)?, g.zeros_like(y)?);
        let (below, product) = (g.op("Less", &[y, zero])?, g.mul(grad, dy)?);
        Ok(vec![Some(to_gradients), Some(g.select(below, product, zeros)?)])
    })
}

/// `(SoftplusGrad(grad, x), grad * dy / (exp(-x) + 2 + exp(x)))`.
pub(super) fn softplus_grad(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, grad| {
        let (dy, x) = (g.input(0), g.input(1));
        let to_gradients = g.op("SoftplusGrad", &[grad, x])?;
        let product = g.mul(grad, dy)?;
        let (neg, two) = (g.neg(x)?, g.number(x, 2.0)?);
        let (falling, rising) = (g.op("Exp", &[neg])?, g.op("Exp", &[x])?);
        let sum = g.op("AddV2", &[falling, two])?;
        let sum = g.op("AddV2", &[sum, rising])?;
        Ok(vec![Some(to_gradients), Some(g.op("RealDiv", &[product, sum])?)])
    })
}
