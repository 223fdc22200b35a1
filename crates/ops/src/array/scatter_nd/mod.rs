//! ScatterNd, TensorScatterUpdate and their kin: slices that vectors of integers name, combined with updates.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, NodeId, Output, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{ExprBuilder, Scalar};
use plimsoll_request::gather::{Gather, ScatterOp};

use crate::array::fill::stated_shape;
use crate::array::gather_nd::{depth_of, ignores, split};
use crate::gradient::{Grad, from_one};
use crate::infer::{merge_shapes, of_rank};
use crate::recipe::Recipe;
use crate::registry::{Gradient, GradientFn};
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, Meta, OpRules};

const fn tensor(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>, gradient: GradientFn) -> OpRules {
    OpRules { name, infer: onto, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }
}

const fn variable(name: &'static str, prepare: fn(&KernelCx<'_>) -> Result<Call>) -> OpRules {
    OpRules { name, infer: onto, lower: Lower::UpdateInPlace(prepare), gradient: Gradient::Stops }
}

/// The rules of scatters by vectors of integers.
pub const RULES: &[OpRules] = &[
    OpRules { name: "ScatterNd", infer, lower: Lower::Recipe(recipe), gradient: Gradient::Rule(gradient) },
    tensor("TensorScatterUpdate", |cx| prepare(cx, ScatterOp::Update), gradient_update),
    tensor("TensorScatterAdd", |cx| prepare(cx, ScatterOp::Add), gradient_add),
    tensor("TensorScatterSub", |cx| prepare(cx, ScatterOp::Sub), gradient_sub),
    tensor("TensorScatterMin", |cx| prepare(cx, ScatterOp::Min), gradient_chosen),
    tensor("TensorScatterMax", |cx| prepare(cx, ScatterOp::Max), gradient_chosen),
    tensor("ScatterNdNonAliasingAdd", |cx| prepare(cx, ScatterOp::Add), gradient_add),
    variable("ResourceScatterNdUpdate", |cx| prepare(cx, ScatterOp::Update)),
    variable("ResourceScatterNdAdd", |cx| prepare(cx, ScatterOp::Add)),
    variable("ResourceScatterNdSub", |cx| prepare(cx, ScatterOp::Sub)),
    variable("ResourceScatterNdMin", |cx| prepare(cx, ScatterOp::Min)),
    variable("ResourceScatterNdMax", |cx| prepare(cx, ScatterOp::Max)),
    variable("ScatterNdUpdate", |cx| prepare(cx, ScatterOp::Update)),
    variable("ScatterNdAdd", |cx| prepare(cx, ScatterOp::Add)),
    variable("ScatterNdSub", |cx| prepare(cx, ScatterOp::Sub)),
    variable("ScatterNdMin", |cx| prepare(cx, ScatterOp::Min)),
    variable("ScatterNdMax", |cx| prepare(cx, ScatterOp::Max)),
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(2, 1)?;
    let shape = stated_shape(cx, 2)?;
    check(cx, &shape, 0, 1)?;
    cx.set(0, shape);
    Ok(())
}

fn onto(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = match &cx.inputs[0].handle {
        Some((_, shape)) => shape.clone(),
        None if cx.outputs.is_empty() => of_rank(None),
        None => cx.shape(0).clone(),
    };
    check(cx, &shape, 1, 2)?;
    if !cx.outputs.is_empty() {
        cx.set(0, shape);
    }
    Ok(())
}

/// The updates at input `updates` are of the shape `indices[..-1] + shape[depth..]`; scalars go to all slices.
fn check(cx: &InferCx<'_>, shape: &PartialShape, indices: usize, updates: usize) -> Result<()> {
    let (Some(dims), Some(index), Some(update)) = (&shape.0, cx.dims(indices), cx.dims(updates)) else { return Ok(()) };
    let Some(depth) = depth_of(index, dims)? else { return Ok(()) };
    let wanted = PartialShape(Some([&index[..index.len() - 1], &dims[depth..]].concat()));
    let one = update.is_empty() && cx.node.op.starts_with("Tensor");
    if !one && merge_shapes(&wanted, cx.shape(updates)).is_err() {
        return Err(Error::invalid_argument(format!(
            "Must have updates.shape = indices.shape[:-1] + shape[{depth}:], got updates.shape {}, indices.shape {}, shape {shape}",
            cx.shape(updates),
            cx.shape(indices)
        )));
    }
    Ok(())
}

fn request(cx: &KernelCx<'_>, op: ScatterOp, shape: &[u64], indices: usize, updates: usize) -> Result<KernelRequest> {
    let (count, depth) = split(cx.dims(indices))?;
    // A scalar for slices of several elements, or for several slices.
    let scalar_updates = cx.dims(updates).is_empty() && !(count == 1 && depth == shape.len());
    Ok(KernelRequest::Gather(Gather::Scatter {
        op,
        data_type: cx.inputs[updates].data_type,
        index_type: cx.inputs[indices].data_type,
        shape: shape.to_vec(),
        indices: count,
        depth,
        scalar_updates,
        ignore: ignores(cx.attrs())?,
        in_place: false,
    }))
}

fn prepare(cx: &KernelCx<'_>, op: ScatterOp) -> Result<Call> {
    let (variable, updates) = (cx.inputs[0].data_type, cx.inputs[2].data_type);
    if variable != updates {
        return Err(Error::invalid_argument(format!("updates of {updates} for a variable of {variable}")));
    }
    Ok(Call::new(request(cx, op, cx.dims(0), 1, 2)?, [0, 1, 2]))
}

/// Zeros, to which the updates are added.
fn recipe(cx: &KernelCx<'_>) -> Result<Recipe> {
    let Meta { data_type, shape } = cx.outputs[0].clone();
    let mut recipe = Recipe::new();
    let mut zeros = ExprBuilder::new();
    let zero = Scalar::from_f64(data_type, 0.0).ok_or_else(|| Error::unimplemented(format!("ScatterNd of {data_type}")))?;
    let zero = zeros.constant(zero);
    let zeros = recipe.expression(zeros.finish(vec![zero]), [], shape.clone()).swap_remove(0);
    let scatter = request(cx, ScatterOp::Add, shape.dims(), 0, 1)?;
    let inputs = [zeros, recipe.input(cx, 0), recipe.input(cx, 1)];
    let result = recipe.one(scatter, inputs, cx.outputs[0].clone());
    Ok(recipe.finish([result]))
}

type Gradients = Result<Vec<Option<Output>>>;

fn policy(g: &Grad<'_>) -> Vec<(&'static str, AttrValue)> {
    g.attrs().get("bad_indices_policy").map(|policy| ("bad_indices_policy", policy.clone())).into_iter().collect()
}

fn taken(g: &mut Grad<'_>, from: Output) -> Result<Output> {
    let indices = g.input(if g.op_name() == "ScatterNd" { 0 } else { 1 });
    let policy = policy(g);
    g.op_with("GatherNd", &[from, indices], &policy)
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![None, Some(taken(g, gradient)?), None]))
}

/// None for the slices that were replaced.
fn gradient_update(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let (zeros, policy) = (g.zeros_like(g.input(2))?, policy(g));
        let rest = g.op_with("TensorScatterUpdate", &[gradient, g.input(1), zeros], &policy)?;
        Ok(vec![Some(rest), None, Some(taken(g, gradient)?)])
    })
}

fn gradient_add(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| Ok(vec![Some(gradient), None, Some(taken(g, gradient)?)]))
}

fn gradient_sub(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let part = taken(g, gradient)?;
        Ok(vec![Some(gradient), None, Some(g.neg(part)?)])
    })
}

/// The gradient goes to the tensor's element and the updates that equal the result, in equal parts.
fn gradient_chosen(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Gradients {
    from_one(builder, node, gradients, |g, gradient| {
        let (tensor, indices, updates, result) = (g.input(0), g.input(1), g.input(2), g.output(0));
        let equal = |g: &mut Grad<'_>, x: Output, y: Output| {
            let equal = g.op("Equal", &[x, y])?;
            let data_type = AttrValue::data_type(g.data_type(tensor));
            g.op_with("Cast", &[equal], &[("DstT", data_type)])
        };
        let own = equal(g, tensor, result)?;
        let found = taken(g, result)?;
        let new = equal(g, updates, found)?;
        let policy = policy(g);
        let all = g.op_with("TensorScatterAdd", &[own, indices, new], &policy)?;
        let to_tensor = g.mul(gradient, own)?;
        let share = g.op("RealDiv", &[gradient, all])?;
        let part = taken(g, share)?;
        Ok(vec![Some(g.op("RealDiv", &[to_tensor, all])?), None, Some(g.mul(part, new)?)])
    })
}
