//! Slice: a block of a tensor.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::KernelRequest;
use plimsoll_request::block::{Begin, Block, Outside};
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::of_rank;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of Slice.
pub const RULES: &[OpRules] = &[OpRules { name: "Slice", infer, lower: Lower::Move(prepare), gradient: Gradient::Rule(gradient) }];

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let rank = cx.dims(0).map(<[_]>::len).or_else(|| cx.vector_len(1)).or_else(|| cx.vector_len(2));
    if let Some(rank) = rank
        && [1, 2]
            .into_iter()
            .any(|input| cx.dims(input).is_some_and(|dims| dims.len() != 1 || dims[0].is_some_and(|len| len != rank as u64)))
    {
        return Err(Error::invalid_argument(format!(
            "Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes {} and {} instead.",
            cx.shape(1),
            cx.shape(2)
        )));
    }
    let (Some(rank), Some(sizes)) = (rank, cx.ints(2)) else {
        cx.set(0, of_rank(rank));
        return Ok(());
    };
    let begins = cx.ints(1);
    let mut out = Vec::with_capacity(rank);
    for (axis, &size) in sizes.iter().enumerate() {
        let dim = cx.dims(0).and_then(|dims| dims[axis]).map(|dim| dim as i64);
        let begin = begins.as_ref().map(|begins| begins[axis]);
        if let Some(begin) = begin
            && (begin < 0 || dim.is_some_and(|dim| begin > dim))
        {
            return Err(Error::invalid_argument(format!(
                "Expected begin[{axis}] in [0, {}], but got {begin}",
                dim.map_or_else(|| "?".to_string(), |dim| dim.to_string())
            )));
        }
        let rest = dim.zip(begin).map(|(dim, begin)| dim - begin);
        out.push(match size {
            -1 => rest.map(|rest| rest as u64),
            size if size < 0 || rest.is_some_and(|rest| size > rest) => {
                let rest = rest.map_or_else(|| "?".to_string(), |rest| rest.to_string());
                return Err(Error::invalid_argument(format!("Expected size[{axis}] in [0, {rest}], but got {size}")));
            }
            size => Some(size as u64),
        });
    }
    cx.set_dims(0, out);
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let (element, shape, sizes) = (cx.element(0)?, cx.dims(0).to_vec(), cx.outputs[0].shape.to_vec());
    if let Ok(begin) = cx.ints(1) {
        let begin = begin.iter().map(|begin| *begin as u64).collect();
        return Ok(Call::moving(element, Movement::Slice { shape, begin, sizes }, [0]));
    }
    let block = named(cx, 1, shape, sizes, Outside::Fault)?;
    Ok(Call::new(KernelRequest::Gather(Gather::Block { element, block }), [0, 1]))
}

/// A block of `sizes` elements that begins where the integers of input `begin` say, one for each axis.
pub(crate) fn named(cx: &KernelCx<'_>, begin: usize, shape: Vec<u64>, sizes: Vec<u64>, outside: Outside) -> Result<Block> {
    let rank = shape.len();
    let begins = (0..rank).map(|position| Begin::Named { position, outside }).collect();
    let names = Some((cx.inputs[begin].data_type, cx.inputs[begin].shape.elements()?));
    Ok(Block { shape, begins, strides: vec![1; rank], sizes, names })
}

/// The gradient, with zeros around it.
fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        let (input, begin) = (g.input(0), g.input(1));
        let index = g.data_type(begin);
        let known = g.shape_of(input).complete().zip(g.shape_of(g.output(0)).complete()).zip(g.ints_of(begin));
        let paddings = match known {
            Some(((shape, out), begins)) => {
                let mut paddings = Vec::with_capacity(2 * begins.len());
                for axis in 0..begins.len() {
                    paddings.extend([begins[axis], shape[axis] as i64 - out[axis] as i64 - begins[axis]]);
                }
                g.constant(crate::infer::int_tensor(&paddings, [begins.len() as u64, 2].into(), index)?)?
            }
            None => {
                let (shape, size) = (g.shape_as(input, index)?, g.shape_as(g.output(0), index)?);
                let (end, strides) = (g.op("AddV2", &[begin, size])?, g.op("OnesLike", &[begin])?);
                let whole = g.op("StridedSliceGrad", &[shape, begin, end, strides, gradient])?;
                return Ok(vec![Some(whole), None, None]);
            }
        };
        Ok(vec![Some(g.op("Pad", &[gradient, paddings])?), None, None])
    })
}
