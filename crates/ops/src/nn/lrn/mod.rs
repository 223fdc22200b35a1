//! LRN and LRNGrad: local response normalization over neighbouring channels.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::lrn::LrnSpec;

use super::window::{complete, dims_of, floats, taken_over};
use crate::gradient::from_one;
use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of LRN and LRNGrad.
pub const RULES: &[OpRules] = &[
    OpRules { name: "LRN", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "LRNGrad", infer: infer_grad, lower: Lower::Kernel(prepare_grad), gradient: Gradient::Unknown },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = dims_of(cx.shape(0), 4, || "in must be 4-dimensional".to_string())?;
    cx.set_dims(0, dims);
    Ok(())
}

fn infer_grad(cx: &mut InferCx<'_>) -> Result<()> {
    let mut together = PartialShape(Some(vec![None; 4]));
    for index in 0..3 {
        dims_of(cx.shape(index), 4, || "inputs must be 4-dimensional".to_string())?;
        together = merge_shapes(&together, cx.shape(index))
            .map_err(|_| Error::invalid_argument("input_grads, input_image, and out_image should have the same shape"))?;
    }
    cx.set(0, together);
    Ok(())
}

fn spec(cx: &KernelCx<'_>) -> Result<LrnSpec> {
    let data_type = floats(cx)?;
    if cx.inputs.iter().any(|input| input.shape != cx.outputs[0].shape) {
        return Err(Error::invalid_argument("input_grads, input_image, and out_image should have the same shape"));
    }
    let dims = complete(&cx.outputs[0].shape, 4)?;
    let attrs = cx.attrs();
    let radius = attrs.int("depth_radius")?;
    let (positions, channels) = (&dims[..3], dims[3]);
    let rows = positions.iter().try_fold(1u64, |rows, size| rows.checked_mul(*size));
    Ok(LrnSpec {
        data_type,
        rows: rows.ok_or_else(|| Error::invalid_argument("an image with too many elements"))?,
        channels,
        depth_radius: u64::try_from(radius).map_err(|_| Error::invalid_argument(format!("depth_radius cannot be {radius}")))?,
        bias: attrs.float("bias")?,
        alpha: attrs.float("alpha")?,
        beta: attrs.float("beta")?,
    })
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::Lrn(spec(cx)?), [0]))
}

fn prepare_grad(cx: &KernelCx<'_>) -> Result<Call> {
    Ok(Call::new(KernelRequest::LrnGrad(spec(cx)?), [0, 1, 2]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, dy| {
        let attrs = taken_over(g.attrs(), &["depth_radius", "bias", "alpha", "beta"]);
        Ok(vec![Some(g.op_with("LRNGrad", &[dy, g.input(0), g.output(0)], &attrs)?)])
    })
}
