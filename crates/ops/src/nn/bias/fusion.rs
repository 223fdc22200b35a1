//! Fusions of BiasAddGrad.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar};
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};
use crate::nn::max_pool::fusion::grad_by_positions;

/// BiasAddGrad of what MaxPoolGrad computes reads what that reads: the gradient by the pooling's output has all that is added,
/// but for windows without position.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "bias_add_grad_of_max_pool_grad", stage: Stage::Lowered, find: of_max_pool_grad }];

fn of_max_pool_grad(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Sum, shape, axes, .. })) = works.computes(work) else {
        return None;
    };
    let [summed] = works.inputs(work) else { return None };
    let is_by_channel = axes.iter().copied().eq(0..shape.len().saturating_sub(1));
    if works.op(work) != "BiasAddGrad" || !is_by_channel {
        return None;
    }
    let (spec, positions, gradient) = grad_by_positions(works, works.maker(summed.value)?)?;
    if positions.data_type != DataType::Uint8 || gradient.data_type != DataType::Float || summed.shape.dims() != &spec.input()[..] {
        return None;
    }
    let mut patch = Patch::new(works);
    let kept = patch.value(DataType::Float.bytes_of(gradient.elements())?);
    let patch =
        patch.add(work, Becomes::Expr(kept_expr().ok()?, gradient.shape.clone()), vec![positions.clone(), gradient.clone()], vec![kept]);
    let (shape, axes) = (gradient.shape.to_vec(), axes.clone());
    let sum = Reduction::Reduce { op: ReduceOp::Sum, data_type: DataType::Float, shape, axes, divided: true };
    let view = View { value: kept, data_type: DataType::Float, shape: gradient.shape.clone() };
    Some(patch.change(work, Becomes::Request(KernelRequest::Reduction(sum)), vec![view], works.outputs(work).to_vec()))
}

/// The second operand where the first is a position, else 0.
fn kept_expr() -> plimsoll_base::Result<Expr> {
    let mut builder = ExprBuilder::new();
    let (place, value) = (builder.input(DataType::Uint8)?, builder.input(DataType::Float)?);
    let (nowhere, zero) = (builder.constant(Scalar::U8(u8::MAX)), builder.constant(Scalar::F32(0.0)));
    let is_somewhere = builder.binary(BinaryOp::NotEqual, place, nowhere)?;
    let kept = builder.select(is_somewhere, value, zero)?;
    Ok(builder.finish(vec![kept]))
}
