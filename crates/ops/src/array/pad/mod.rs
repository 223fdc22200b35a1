//! Pad and PadV2: a border of one number around a tensor.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::{of_rank, rank_of};
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Pad and PadV2.
pub const RULES: &[OpRules] = &[
    OpRules { name: "Pad", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
    OpRules { name: "PadV2", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) },
];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let rank = cx.dims(0).map(<[_]>::len).or_else(|| cx.dims(1)?.first().copied().flatten().and_then(rank_of));
    if cx.dims(1).is_some_and(|dims| dims.len() != 2 || dims[1].is_some_and(|two| two != 2)) {
        return Err(Error::invalid_argument(format!("paddings must be a matrix with 2 columns: {}", cx.shape(1))));
    }
    let rows = cx.dims(1).and_then(|dims| dims[0]);
    if rank.zip(rows).is_some_and(|(rank, rows)| rank as u64 != rows) {
        return Err(Error::invalid_argument(format!(
            "The first dimension of paddings must be the rank of inputs{} {}",
            cx.shape(1),
            cx.shape(0)
        )));
    }
    let (Some(dims), Some(paddings)) = (cx.dims(0), cx.ints(1)) else {
        cx.set(0, of_rank(rank));
        return Ok(());
    };
    let mut padded = Vec::with_capacity(dims.len());
    for (dim, pair) in dims.iter().zip(paddings.chunks_exact(2)) {
        let (Ok(before), Ok(after)) = (u64::try_from(pair[0]), u64::try_from(pair[1])) else {
            return Err(Error::invalid_argument(format!("Paddings must be non-negative: {} {}", pair[0], pair[1])));
        };
        let add = |dim: u64| dim.checked_add(before)?.checked_add(after);
        padded.push(dim.map(|dim| add(dim).ok_or_else(|| Error::invalid_argument("the padded shape overflows"))).transpose()?);
    }
    cx.set_dims(0, padded);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let paddings: Vec<(u64, u64)> = cx.ints(1)?.chunks_exact(2).map(|pair| (pair[0] as u64, pair[1] as u64)).collect();
    let (size, shape) = (cx.element(0)?, cx.dims(0));
    if cx.inputs.len() > 2 {
        cx.require_one(2, "constant_values")?;
    }
    let known = match cx.values.get(2) {
        None => Some(vec![0; size]),
        Some(value) => value.as_ref().and_then(|value| value.splat()).map(<[u8]>::to_vec),
    };
    let inputs = if known.is_some() { vec![0] } else { vec![0, 2] };
    Ok(Call::moving(size, Movement::Pad { shape: shape.to_vec(), paddings, value: known }, inputs))
}

/// The block of the gradient that is not border.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (input, paddings) = (g.input(0), g.input(1));
        let index = g.data_type(paddings);
        let begin = match g.ints_of(paddings) {
            Some(paddings) => {
                let befores: Vec<i64> = paddings.iter().step_by(2).copied().collect();
                g.constant(crate::infer::int_vector(&befores, index)?)?
            }
            None => {
                let rank = g.op("Rank", &[input])?;
                let (one, origin, flat) = (g.int(1)?, g.ints(&[0, 0])?, g.ints(&[-1])?);
                let column = g.op("Pack", &[rank, one])?;
                let before = g.op("Slice", &[paddings, origin, column])?;
                g.reshape(before, flat)?
            }
        };
        let size = g.shape_as(input, index)?;
        let mut result = vec![None; g.input_count()];
        result[0] = Some(g.op("Slice", &[gradient, begin, size])?);
        Ok(result)
    })
}
