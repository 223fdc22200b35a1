//! Softmax and LogSoftmax over the last dimension.

mod fusion;
mod scaled;

use plimsoll_base::Result;
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::nn::Nn;

use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

pub use fusion::FUSIONS;

/// The rules of Softmax and LogSoftmax.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Softmax", infer, lower: Lower::Kernel(softmax), gradient: Gradient::Rule(softmax_gradient) },
    OpRules { name: "LogSoftmax", infer, lower: Lower::Kernel(log_softmax), gradient: Gradient::Rule(log_softmax_gradient) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank_at_least(0, 1)?;
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// Rows and their length; no rows where they are empty.
fn rows(cx: &KernelCx<'_>) -> (u64, u64) {
    let dims = cx.dims(0);
    let (last, leading) = dims.split_last().map_or((1, &[][..]), |(last, leading)| (*last, leading));
    if last == 0 {
        return (0, 0);
    }
    (leading.iter().fold(1, |product: u64, dim| product.saturating_mul(*dim)), last)
}

fn softmax(cx: &KernelCx<'_>) -> Result<Call> {
    let (rows, classes) = rows(cx);
    Ok(Call::new(KernelRequest::Nn(Nn::Softmax { log: false, data_type: cx.inputs[0].data_type, rows, classes }), [0]))
}

fn log_softmax(cx: &KernelCx<'_>) -> Result<Call> {
    let (rows, classes) = rows(cx);
    Ok(Call::new(KernelRequest::Nn(Nn::Softmax { log: true, data_type: cx.inputs[0].data_type, rows, classes }), [0]))
}

fn row_sums(g: &mut Grad<'_>, x: Output) -> Result<Output> {
    let last = g.ints(&[-1])?;
    g.sum(x, last, true)
}

/// `(dy - sum(dy * y)) * y`.
fn softmax_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let product = g.mul(dy, g.output(0))?;
        let sums = row_sums(g, product)?;
        let rest = g.sub(dy, sums)?;
        Ok(vec![Some(g.mul(rest, g.output(0))?)])
    })
}

/// `dy - sum(dy) * exp(y)`.
fn log_softmax_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let softmax = g.op("Exp", &[g.output(0)])?;
        let sums = row_sums(g, dy)?;
        let scaled = g.mul(sums, softmax)?;
        Ok(vec![Some(g.sub(dy, scaled)?)])
    })
}
