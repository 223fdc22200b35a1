//! ReverseSequence: the first elements of each sequence turned round.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, AttrsExt, NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::gather::Gather;

use crate::gradient::from_one;
use crate::registry::Gradient;
use crate::{GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules, Recipe};

/// The rules of ReverseSequence.
pub const RULES: &[OpRules] =
    &[OpRules { name: "ReverseSequence", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) }];

/// The dimensions of sequences and of the batch.
fn dims(attrs: &plimsoll_graph::Attrs, rank: usize) -> Result<(usize, usize)> {
    let of = |name: &str| {
        let dim = attrs.int(name)?;
        let inside = usize::try_from(dim).ok().filter(|dim| *dim < rank);
        inside.ok_or_else(|| Error::invalid_argument(format!("{name} must be in [0, {rank}), the input's dimensions, got {dim}")))
    };
    let (sequence, batch) = (of("seq_dim")?, of("batch_dim")?);
    if sequence == batch {
        return Err(Error::invalid_argument(format!("batch_dim == seq_dim == {batch}")));
    }
    Ok((sequence, batch))
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let lengths = cx.with_rank(1, 1)?;
    if let Some(input) = cx.dims(0) {
        let (_, batch) = dims(cx.attrs(), input.len())?;
        if let (Some(batch), Some([Some(lengths)])) = (input[batch], lengths)
            && batch != *lengths
        {
            return Err(Error::invalid_argument(format!("Length of seq_lens != input.dims({batch}), ({lengths} vs. {batch})")));
        }
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

/// Element `j` of a sequence of length `l` is element `l - 1 - j` where `j < l`.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let mut recipe = Recipe::new();
    let (input, lengths) = (recipe.input(cx, 0), recipe.input(cx, 1));
    let rank = input.dims().len();
    let (sequence, batch) = dims(cx.attrs(), rank)?;
    if input.meta.shape.elements()? == 0 {
        return Ok(recipe.finish([input]));
    }
    let perm: Vec<usize> = [batch, sequence].into_iter().chain((0..rank).filter(|dim| ![batch, sequence].contains(dim))).collect();
    let rows = recipe.transposed(&input, &perm)?;
    let params = rows.dims().to_vec();
    let (count, length, index_type) = (params[0], params[1], lengths.data_type());

    let mut e = ExprBuilder::new();
    let (own, zero, most) = (e.input(index_type)?, e.number(index_type, 0.0)?, e.number(index_type, length as f64)?);
    let (from, to) = (e.binary(BinaryOp::GreaterEqual, own, zero)?, e.binary(BinaryOp::LessEqual, own, most)?);
    let valid = e.binary(BinaryOp::LogicalAnd, from, to)?;
    let valid = recipe.expression(e.finish(vec![valid]), [lengths.clone()], [count]).swap_remove(0);
    recipe.require(Requirement::SequenceLengths, valid);

    let places = recipe.numbered(index_type, length)?;
    let mut e = ExprBuilder::new();
    let (own, place, one) = (e.input(index_type)?, e.input(index_type)?, e.number(index_type, 1.0)?);
    let last = e.binary(BinaryOp::Sub, own, one)?;
    let turned = e.binary(BinaryOp::Sub, last, place)?;
    let inside = e.binary(BinaryOp::Less, place, own)?;
    let index = e.select(inside, turned, place)?;
    let operands = [lengths.reshaped([count, 1])?, places.reshaped([1, length])?];
    let indices = recipe.expression(e.finish(vec![index]), operands, [count, length]).swap_remove(0);

    let element = rows.meta.element()? as usize;
    let request = Gather::Take { element, params, indices: vec![count, length], axis: 1, batch_dims: 1, index_type };
    let meta = Meta::clone(&rows.meta);
    let turned = recipe.one(KernelRequest::Gather(request), [rows, indices], meta);
    let mut back = vec![0; rank];
    perm.iter().enumerate().for_each(|(to, from)| back[*from] = to);
    let result = recipe.transposed(&turned, &back)?;
    Ok(recipe.finish([result]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let attr = |name| -> Result<(&str, AttrValue)> { Ok((name, AttrValue::Int(g.attrs().int(name)?))) };
        let attrs = [attr("seq_dim")?, attr("batch_dim")?];
        Ok(vec![Some(g.op_with("ReverseSequence", &[gradient, g.input(1)], &attrs)?), None])
    })
}
