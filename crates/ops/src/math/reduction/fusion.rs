//! Fusions of reductions.

use plimsoll_base::DataType;
use plimsoll_graph::Shape;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Scalar};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};

/// Mean over the first axis of ConcatV2 of pieces of one, which is how TensorFlow's towers average gradients: an average element
/// by element, and nothing is moved.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "mean_of_concat", stage: Stage::Lowered, find: mean_of_concat }];

/// An average of more pieces than this is left as it is.
const MOST_PIECES: usize = 24;

fn mean_of_concat(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let Computes::Request(KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Mean, axes, .. })) = works.computes(work) else {
        return None;
    };
    let [all] = works.inputs(work) else { return None };
    let concat = works.maker(all.value)?;
    let Computes::Request(KernelRequest::Movement { movement: Movement::Concat { shapes, axis: 0 }, .. }) = works.computes(concat) else {
        return None;
    };
    let pieces = works.inputs(concat);
    let data_type = all.data_type;
    let is_one = |piece: &View| piece.shape.first() == Some(&1) && piece.data_type == data_type;
    let is_float = matches!(data_type, DataType::Float | DataType::Double);
    let is_whole = all.shape.first() == Some(&(shapes.len() as u64)) && axes[..] == [0];
    if works.op(concat) != "ConcatV2" || !is_float || !is_whole {
        return None;
    }
    if !(2..=MOST_PIECES).contains(&pieces.len()) || !pieces.iter().all(is_one) {
        return None;
    }
    let shape = Shape::new(&pieces[0].shape[1..]);
    let mut views: Vec<View> = Vec::new();
    let mut order: Vec<usize> = Vec::new();
    for piece in pieces {
        // The axis of one is gone; the same tensor twice is one operand.
        let view = View { shape: shape.clone(), ..piece.clone() };
        let known = views.iter().position(|other| *other == view);
        order.push(known.unwrap_or(views.len()));
        if known.is_none() {
            views.push(view);
        }
    }
    let becomes = Becomes::Expr(average(data_type, views.len(), &order).ok()?, shape);
    Some(Patch::new(works).change(work, becomes, views, works.outputs(work).to_vec()))
}

/// The average of operands, in that order.
fn average(data_type: DataType, operands: usize, order: &[usize]) -> plimsoll_base::Result<Expr> {
    let mut builder = ExprBuilder::new();
    let operands = (0..operands).map(|_| builder.input(data_type)).collect::<plimsoll_base::Result<Vec<_>>>()?;
    let mut sum = operands[order[0]];
    for operand in &order[1..] {
        sum = builder.binary(BinaryOp::Add, sum, operands[*operand])?;
    }
    let count = Scalar::from_f64(data_type, order.len() as f64).ok_or_else(|| plimsoll_base::Error::internal("an average of floats"))?;
    let count = builder.constant(count);
    let average = builder.binary(BinaryOp::Div, sum, count)?;
    Ok(builder.finish(vec![average]))
}
