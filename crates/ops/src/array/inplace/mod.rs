//! InplaceUpdate, InplaceAdd and InplaceSub: rows of a tensor that others replace, or are combined with.
//!
//! TensorFlow writes into the memory of the operand. Here the operand stays as it is; where nothing else reads it, the result lies
//! in its place.

use plimsoll_base::{Error, Result};
use plimsoll_graph::PartialShape;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::gather::{Gather, ScatterOp};

use crate::infer::merge_shapes;
use crate::registry::Gradient;
use crate::{InferCx, KernelCx, Lower, OpRules, Recipe};

const fn rule(name: &'static str, make: fn(&KernelCx<'_>) -> Result<Recipe>) -> OpRules {
    OpRules { name, infer, lower: Lower::Recipe(make), gradient: Gradient::Unknown }
}

/// The rules of rows replaced in place.
pub const RULES: &[OpRules] = &[
    rule("InplaceUpdate", |cx| recipe(cx, ScatterOp::Update)),
    rule("InplaceAdd", |cx| recipe(cx, ScatterOp::Add)),
    rule("InplaceSub", |cx| recipe(cx, ScatterOp::Sub)),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let (x, i) = (cx.with_rank_at_least(0, 1)?, cx.with_rank(1, 1)?);
    if let (Some(x), Some(i)) = (x, i) {
        let wanted = PartialShape(Some([i, &x[1..]].concat()));
        if merge_shapes(&wanted, cx.shape(2)).is_err() {
            return Err(Error::invalid_argument(format!(
                "i and x shape doesn't match v: {} instead of {wanted} for x of shape {}",
                cx.shape(2),
                cx.shape(0)
            )));
        }
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// A row's number counts modulo the number of rows.
fn recipe(cx: &KernelCx<'_>, op: ScatterOp) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (x, i, v) = (recipe.input(cx, 0), recipe.input(cx, 1), recipe.input(cx, 2));
    let (data_type, index_type, count) = (x.data_type(), i.data_type(), i.dims()[0]);
    let shape = x.dims().to_vec();
    if shape[0] == 0 && count > 0 {
        return Err(Error::invalid_argument(format!("{} has no rows that i could name", x.meta.shape)));
    }
    let mut e = ExprBuilder::new();
    let (row, rows) = (e.input(index_type)?, e.number(index_type, shape[0].max(1) as f64)?);
    let row = e.binary(BinaryOp::FloorMod, row, rows)?;
    let rows = recipe.expression(e.finish(vec![row]), [i], [count]).swap_remove(0);
    let request = Gather::Scatter {
        op,
        data_type,
        index_type,
        shape,
        indices: count,
        depth: 1,
        scalar_updates: false,
        ignore: false,
        in_place: false,
    };
    let result = recipe.one(KernelRequest::Gather(request), [x, rows, v], cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}
