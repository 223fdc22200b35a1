//! Transpose and InvertPermutation.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::expr::UnaryOp;
use plimsoll_request::movement::Movement;

use crate::gradient::{Grad, from_one};
use crate::infer::{int_vector, of_rank};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules, Recipe};

/// The rules of Transpose and InvertPermutation.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Transpose", infer: transpose, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "ConjugateTranspose", infer: transpose, lower: Lower::Recipe(conjugate), gradient: Gradient::Rule(conjugate_gradient) },
    OpRules { name: "InvertPermutation", infer: invert, lower: Lower::Kernel(late), gradient: Gradient::Stops },
];

/// The permutation of `rank` axes that these integers are; negative ones count from the end.
fn permutation(ints: &[i64], rank: usize) -> Result<Vec<usize>> {
    if ints.len() != rank {
        return Err(Error::invalid_argument(format!(
            "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
            ints.len()
        )));
    }
    let mut seen = vec![false; rank];
    let mut axes = Vec::with_capacity(rank);
    for &int in ints {
        let axis = usize::try_from(if int < 0 { int + rank as i64 } else { int }).ok().filter(|axis| *axis < rank);
        let axis = axis.ok_or_else(|| Error::invalid_argument(format!("{int} is out of range [0 .. {rank})")))?;
        seen[axis] = true;
        axes.push(axis);
    }
    match seen.iter().position(|seen| !seen) {
        None => Ok(axes),
        Some(missing) => {
            let list: Vec<String> = ints.iter().map(i64::to_string).collect();
            Err(Error::invalid_argument(format!("{missing} is missing from {{{}}}.", list.join(","))))
        }
    }
}

fn transpose(cx: &mut InferCx<'_>) -> Result<()> {
    let rank = cx.dims(0).map(<[_]>::len).or_else(|| cx.vector_len(1));
    match (cx.dims(0), cx.ints(1)) {
        (Some(dims), Some(ints)) => {
            let axes = permutation(&ints, dims.len())?;
            cx.set_dims(0, axes.iter().map(|axis| dims[*axis]).collect());
        }
        _ => cx.set(0, of_rank(rank)),
    }
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let axes = permutation(&cx.ints(1)?, cx.dims(0).len())?;
    Ok(Call::moving(cx.element(0)?, Movement::Transpose { shape: cx.dims(0).to_vec(), perm: axes }, [0]))
}

/// The transpose of the complex conjugates; of other types, the transpose.
fn conjugate(cx: &KernelCx<'_>) -> Result<Recipe> {
    let axes = permutation(&cx.ints(1)?, cx.dims(0).len())?;
    let mut recipe = Recipe::new();
    let turned = recipe.transposed(&recipe.input(cx, 0), &axes)?;
    let result = if turned.data_type().is_complex() { recipe.unary(UnaryOp::Conj, &turned)? } else { turned };
    Ok(recipe.finish([result]))
}

fn conjugate_gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let back = inverse_of(g, g.input(1))?;
        Ok(vec![Some(g.op("ConjugateTranspose", &[gradient, back])?), None])
    })
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let back = inverse_of(g, g.input(1))?;
        Ok(vec![Some(g.op("Transpose", &[gradient, back])?), None])
    })
}

/// The permutation that takes another back.
fn inverse_of(g: &mut Grad<'_>, permuted: Output) -> Result<Output> {
    match g.ints_of(permuted) {
        // A constant of our own: negative axes count from the end, which InvertPermutation does not know.
        Some(ints) => {
            let axes: Vec<i64> = permutation(&ints, ints.len())?.iter().map(|axis| *axis as i64).collect();
            g.ints(&inverse(&axes)?)
        }
        None => g.op("InvertPermutation", &[permuted]),
    }
}

fn inverse(ints: &[i64]) -> Result<Vec<i64>> {
    let mut inverse = vec![-1; ints.len()];
    for (position, &int) in ints.iter().enumerate() {
        let place = usize::try_from(int).ok().and_then(|int| inverse.get_mut(int));
        let place = place.ok_or_else(|| Error::invalid_argument(format!("{int} is not between 0 and {}", ints.len())))?;
        if *place != -1 {
            return Err(Error::invalid_argument(format!("{int} is duplicated in the input.")));
        }
        *place = position as i64;
    }
    Ok(inverse)
}

fn invert(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(0, 1)?;
    match cx.ints(0) {
        Some(ints) => {
            let value = int_vector(&inverse(&ints)?, cx.outputs[0].data_type)?;
            cx.set_value(0, value);
        }
        None => cx.set(0, cx.shape(0).clone()),
    }
    Ok(())
}

/// There is no kernel: permutations are known when the plan is made.
fn late(cx: &KernelCx<'_>) -> Result<Call> {
    cx.ints(0)?;
    Err(Error::internal("the permutation is known, and nobody used its inverse"))
}
