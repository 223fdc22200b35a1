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
