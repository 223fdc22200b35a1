//! Tile: a tensor repeated along each axis.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Tile.
pub const RULES: &[OpRules] = &[OpRules { name: "Tile", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 1)?;
    let Some(dims) = cx.dims(0) else {
        cx.set(0, of_rank(cx.vector_len(1)));
        return Ok(());
    };
    let Some(multiples) = cx.ints(1) else {
        cx.set(0, of_rank(Some(dims.len())));
        return Ok(());
    };
    if multiples.len() != dims.len() {
        return Err(Error::invalid_argument(format!(
            "Expected multiples argument to be a vector of length {} but got length {}",
            dims.len(),
            multiples.len()
        )));
    }
    let mut tiled = Vec::with_capacity(dims.len());
    for (axis, (dim, &multiple)) in dims.iter().zip(&multiples).enumerate() {
        let factor =
            u64::try_from(multiple).map_err(|_| Error::invalid_argument(format!("Expected multiples[{axis}] >= 0, but got {multiple}")))?;
        let product = dim.map(|dim| dim.checked_mul(factor).ok_or_else(|| Error::invalid_argument("the tiled shape overflows")));
        tiled.push(product.transpose()?);
    }
    cx.set_dims(0, tiled);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let multiples: Vec<u64> = cx.ints(1)?.iter().map(|multiple| *multiple as u64).collect();
    Ok(Call::moving(cx.element(0)?, Movement::Tile { shape: cx.dims(0).to_vec(), multiples }, [0]))
}

/// Every repetition's gradient, summed: the gradient in the shape `[m0, d0, m1, d1, …]` over the even axes.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (input, multiples) = (g.input(0), g.input(1));
        let (split, axes) = match (g.shape_of(input).complete(), g.ints_of(multiples)) {
            (Some(shape), Some(multiples)) => {
                let split: Vec<i64> = multiples.iter().zip(shape.dims()).flat_map(|(multiple, dim)| [*multiple, *dim as i64]).collect();
                let axes: Vec<i64> = (0..split.len() as i64).step_by(2).collect();
                (g.ints(&split)?, g.ints(&axes)?)
            }
            _ => {
                let shape = g.shape_as(input, g.data_type(multiples))?;
                let rows = g.op("Pack", &[multiples, shape])?;
                let swap = g.ints(&[1, 0])?;
                let pairs = g.op("Transpose", &[rows, swap])?;
                let flat = g.ints(&[-1])?;
                let split = g.reshape(pairs, flat)?;
                let (zero, two) = (g.int(0)?, g.int(2)?);
                let size = g.op_with("Size", &[split], &[("out_type", plimsoll_graph::AttrValue::data_type(DataType::Int32))])?;
                (split, g.op("Range", &[zero, size, two])?)
            }
        };
        let parts = g.reshape(gradient, split)?;
        let sum = g.sum(parts, axes, false)?;
        Ok(vec![Some(sum), None])
    })
}
