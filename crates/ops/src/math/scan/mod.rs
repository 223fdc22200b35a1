//! Cumsum and Cumprod: running sums and products along an axis.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::reduce::{Reduction, ScanOp};

use crate::gradient::{Grad, from_one};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

const fn rule(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>, gradient: Gradient) -> OpRules {
    OpRules { name, infer, lower: Lower::Kernel(prepare), gradient }
}

/// The rules of running sums and products.
pub const RULES: &[OpRules] = &[
    rule("Cumsum", |cx| prepare(cx, ScanOp::Sum), Gradient::Rule(cumsum)),
    rule("Cumprod", |cx| prepare(cx, ScanOp::Prod), Gradient::Rule(cumprod)),
];

fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let position = if axis < 0 { axis + rank as i64 } else { axis };
    let fits = usize::try_from(position).ok().filter(|axis| *axis < rank);
    fits.ok_or_else(|| {
        Error::invalid_argument(format!("ScanOp: Expected scan axis in the range [{}, {rank}), but got {axis}", -(rank as i64)))
    })
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(dims), Some(axis)) = (cx.dims(0), cx.int(1)) {
        axis_in(axis, dims.len())?;
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>, op: ScanOp) -> Result<Call> {
    let axis = axis_in(cx.int(1)?, cx.dims(0).len())?;
    let (exclusive, reverse) = (cx.attrs().bool("exclusive")?, cx.attrs().bool("reverse")?);
    let (data_type, shape) = (cx.inputs[0].data_type, cx.dims(0).to_vec());
    Ok(Call::new(KernelRequest::Reduction(Reduction::Scan { op, data_type, shape, axis, exclusive, reverse }), [0]))
}

/// A sum of `x` along the same axis, as exclusive, the other way.
fn sum_back(g: &mut Grad<'_>, x: Output) -> Result<Output> {
    let (exclusive, reverse) = (g.attrs().bool("exclusive")?, g.attrs().bool("reverse")?);
    let attrs = [("exclusive", AttrValue::Bool(exclusive)), ("reverse", AttrValue::Bool(!reverse))];
    g.op_with("Cumsum", &[x, g.input(1)], &attrs)
}

fn cumsum(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(sum_back(g, gradient)?), None]))
}

/// As TensorFlow's: 0 for elements that are 0.
fn cumprod(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let product = g.mul(g.output(0), gradient)?;
        let sum = sum_back(g, product)?;
        Ok(vec![Some(g.op("DivNoNan", &[sum, g.input(0)])?), None])
    })
}
