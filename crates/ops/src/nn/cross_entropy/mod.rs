//! SoftmaxCrossEntropyWithLogits, dense and sparse: the loss of each row, and its gradient as a second output.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::nn::Nn;

use crate::gradient::Grad;
use crate::infer::broadcast_shapes;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of both losses.
pub const RULES: &[OpRules] = &[
    OpRules {
        name: "SoftmaxCrossEntropyWithLogits",
        infer: dense,
        lower: Lower::Kernel(prepare_dense),
        gradient: Gradient::Rule(dense_gradient),
    },
    OpRules {
        name: "SparseSoftmaxCrossEntropyWithLogits",
        infer: sparse,
        lower: Lower::Kernel(prepare_sparse),
        gradient: Gradient::Rule(sparse_gradient),
    },
];

fn dense(cx: &mut InferCx<'_>) -> Result<()> {
    let together = broadcast_shapes(cx.shape(0), cx.shape(1)).map_err(|_| {
        Error::invalid_argument(format!("logits and labels must be broadcastable: logits_size={} labels_size={}", cx.shape(0), cx.shape(1)))
    })?;
    let dims = match together.0 {
        Some(dims) if dims.len() != 2 => {
            return Err(Error::invalid_argument("logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"));
        }
        dims => dims.unwrap_or_else(|| vec![None; 2]),
    };
    cx.set_dims(0, vec![dims[0]]);
    cx.set_dims(1, dims);
    Ok(())
}

fn sparse(cx: &mut InferCx<'_>) -> Result<()> {
    let clash =
        |what: &str, rank: &str, shape: &PartialShape| Error::invalid_argument(format!("{what} must be {rank}, but got shape {shape}"));
    let (logits, labels) = (cx.dims(0), cx.dims(1));
    if logits.is_some_and(|dims| dims.len() != 2) {
        return Err(clash("logits", "2-D", cx.shape(0)));
    }
    if labels.is_some_and(|dims| dims.len() != 1) {
        return Err(clash("labels", "1-D", cx.shape(1)));
    }
    let (rows, classes) = logits.map_or((None, None), |dims| (dims[0], dims[1]));
    let labels = labels.and_then(|dims| dims[0]);
    if rows.zip(labels).is_some_and(|(rows, labels)| rows != labels) {
        return Err(Error::invalid_argument(format!(
            "logits and labels must have the same first dimension, got logits shape {} and labels shape {}",
            cx.shape(0),
            cx.shape(1)
        )));
    }
    if classes == Some(0) {
        return Err(Error::invalid_argument(format!("Must have at least one class, but got logits shape {}", cx.shape(0))));
    }
    let rows = rows.or(labels);
    cx.set_dims(0, vec![rows]);
    cx.set_dims(1, vec![rows, classes]);
    Ok(())
}

fn prepare_dense(cx: &KernelCx<'_>) -> Result<Call> {
    let out = cx.outputs[1].shape.dims();
    if cx.dims(0) != out || cx.dims(1) != out {
        return Err(Error::unimplemented("not yet: a cross entropy whose logits and labels broadcast"));
    }
    Ok(Call::new(
        KernelRequest::Nn(Nn::CrossEntropy { data_type: cx.inputs[0].data_type, label_type: None, batch: out[0], classes: out[1] }),
        [0, 1],
    ))
}

fn prepare_sparse(cx: &KernelCx<'_>) -> Result<Call> {
    let out = cx.outputs[1].shape.dims();
    Ok(Call::new(
        KernelRequest::Nn(Nn::CrossEntropy {
            data_type: cx.inputs[0].data_type,
            label_type: Some(cx.inputs[1].data_type),
            batch: out[0],
            classes: out[1],
        }),
        [0, 1],
    ))
}

/// `grad_loss * backprop`, and the second derivative where the second output is used.
fn logits_gradient(g: &mut Grad<'_>, gradients: &[Option<Output>]) -> Result<Option<Output>> {
    let mut total = None;
    if let Some(loss) = gradients.first().copied().flatten() {
        let column = column(g, loss)?;
        total = Some(g.mul(column, g.output(1))?);
    }
    if let Some(gradient) = gradients.get(1).copied().flatten() {
        let softmax = g.op("Softmax", &[g.input(0)])?;
        let product = g.mul(gradient, softmax)?;
        let last = g.ints(&[1])?;
        let inner = g.sum(product, last, true)?;
        let rest = g.sub(gradient, inner)?;
        let second = g.mul(rest, softmax)?;
        total = Some(match total {
            Some(first) => g.op("AddV2", &[first, second])?,
            None => second,
        });
    }
    Ok(total)
}

/// A vector as a column, to multiply the rows of a matrix by.
fn column(g: &mut Grad<'_>, vector: Output) -> Result<Output> {
    let last = g.int(-1)?;
    g.op("ExpandDims", &[vector, last])
}

fn dense_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    let to_logits = logits_gradient(&mut g, gradients)?;
    let to_labels = match gradients.first().copied().flatten() {
        Some(loss) => {
            let column = column(&mut g, loss)?;
            let log = g.op("LogSoftmax", &[g.input(0)])?;
            let neg = g.neg(log)?;
            Some(g.mul(column, neg)?)
        }
        None => None,
    };
    Ok(vec![to_logits, to_labels])
}

fn sparse_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    let mut g = Grad::new(builder, node);
    Ok(vec![logits_gradient(&mut g, gradients)?, None])
}
