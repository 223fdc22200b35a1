//! Lists from tensors and from other lists as a whole: joined, split, scattered, resized, and the gradients of TensorArrays.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, PartialShape};

use super::{check_type, list_at, of_length, other_than_said, refined, set_list, several_shapes, stated, stated_of, within};
use crate::infer::{int_vector, merge_shapes};
use crate::{Each, InferCx, ListFact};

/// TensorListScatter(tensor, indices, element_shape) and TensorListScatterV2, which also says how many tensors there are.
pub(super) fn scattered(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(rows) = cx.with_rank_at_least(0, 1)? else { return Ok(()) };
    cx.with_rank(1, 1)?;
    let said = if cx.inputs.len() > 3 { cx.int(3) } else { Some(-1) };
    let length = match said.map(u64::try_from) {
        Some(Err(_)) => match cx.ints(1) {
            Some(indices) => Some(longest(&indices)?),
            None => None,
        },
        other => other.and_then(Result::ok),
    };
    let list = of_length(cx.attrs().data_type("element_dtype")?, PartialShape(Some(rows[1..].to_vec())), length);
    let list = stated_of(list, stated(cx, 2)?)?;
    set_list(cx, 0, Some(list));
    Ok(())
}

/// How many tensors a list has that is written at indices.
fn longest(indices: &[i64]) -> Result<u64> {
    let highest = indices.iter().try_fold(0, |length, index| {
        let index = u64::try_from(*index)
            .map_err(|_| Error::invalid_argument(format!("Indices in TensorListScatter must all be non-negative, but got {index}")))?;
        Ok::<_, Error>(index.saturating_add(1).max(length))
    })?;
    match i32::try_from(highest) {
        Ok(_) => Ok(highest),
        Err(_) => Err(Error::invalid_argument(format!("a list of {highest} tensors"))),
    }
}

pub(super) fn join(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some(first), Some(second)) = (cx.list(0), cx.list(1)) else { return Ok(()) };
    if first.data_type != second.data_type {
        return Err(Error::invalid_argument(format!("a list of {} and one of {}", first.data_type, second.data_type)));
    }
    let different = || Error::invalid_argument("input_a and input_b TensorList element shapes are not identical");
    merge_shapes(&first.said.shape, &second.said.shape).map_err(|_| different())?;
    let item = merge_shapes(&first.item, &second.item).map_err(|_| several_shapes(&first.item, &second.item))?;
    if first.is_nested() || second.is_nested() {
        return Err(Error::unimplemented("not yet: lists of lists that are joined"));
    }
    let length = first.length.zip(second.length).and_then(|(first, second)| first.checked_add(second));
    let said = first.said.clone();
    set_list(cx, 0, Some(ListFact { said, ..of_length(first.data_type, item, length) }));
    Ok(())
}

pub(super) fn resize(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    let negative = |size: i64| Error::invalid_argument(format!("TensorListSlice expects size to be non-negative. Got: {size}"));
    let size = cx.int(1).map(|size| u64::try_from(size).map_err(|_| negative(size))).transpose()?;
    let list = cx.list(0).map(|list| ListFact {
        inner: list.inner.clone(),
        said: list.said.clone(),
        ..of_length(list.data_type, list.item.clone(), size)
    });
    set_list(cx, 0, list);
    Ok(())
}

/// What a list of parts of tensor `tensor` is, which are as long as input `lengths` says.
///
/// # Errors
/// Where they are not of one length: what `several` says of the shapes of two of them.
fn parts(
    cx: &InferCx<'_>,
    (tensor, lengths): (usize, usize),
    several: fn(&PartialShape, &PartialShape) -> Error,
) -> Result<Option<ListFact>> {
    let data_type = cx.inputs[tensor].data_type;
    let Some(rows) = cx.with_rank_at_least(tensor, 1)? else { return Ok(None) };
    let count = cx.with_rank(lengths, 1)?.and_then(|dims| dims[0]);
    let (mut first, mut known) = (None, count);
    if let Some(sizes) = cx.ints(lengths) {
        let sizes = sizes.iter().map(|size| u64::try_from(*size)).collect::<Result<Vec<u64>, _>>();
        let sizes = sizes.map_err(|_| Error::invalid_argument("the length of a part is negative"))?;
        let sum = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
        if rows[0].is_some_and(|rows| rows != sum) {
            return Err(Error::invalid_argument(format!(
                "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {sum} and value's shape is: {}",
                cx.shape(tensor)
            )));
        }
        first = sizes.first().copied();
        if let Some(other) = sizes.iter().find(|size| Some(**size) != first) {
            let part = |size: Option<u64>| PartialShape(Some([&[size], &rows[1..]].concat()));
            return Err(several(&part(first), &part(Some(*other))));
        }
        known = Some(sizes.len() as u64);
    }
    Ok(Some(of_length(data_type, PartialShape(Some([&[first], &rows[1..]].concat())), known)))
}

pub(super) fn split(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(list) = parts(cx, (0, 2), several_shapes)? else { return Ok(()) };
    let list = stated_of(list, stated(cx, 1)?)?;
    set_list(cx, 0, Some(list));
    Ok(())
}

pub(super) fn array_split(cx: &mut InferCx<'_>) -> Result<()> {
    let array = cx.list(list_at(cx.inputs, 3));
    let is_one = array.is_some_and(|array| array.said.is_one);
    let Some(list) = parts(cx, (1, 2), if is_one { other_than_said } else { several_shapes })? else { return Ok(()) };
    let list = match array {
        Some(array) => {
            if let (Some(size), Some(parts)) = (array.length, list.length)
                && size != parts
                && !array.grows
            {
                return Err(Error::invalid_argument(format!(
                    "TensorArray's size is not equal to the size of lengths ({size} vs. {parts})"
                )));
            }
            let is_full = !array.is_sum && list.length.is_some();
            let (item, said) = (within(array, &list.item)?, array.said.clone());
            ListFact { item, said, grows: array.grows, is_sum: array.is_sum, is_full, ..list }
        }
        None => list,
    };
    set_list(cx, 0, Some(list));
    Ok(())
}

/// The tensors of a list as one, and their lengths; all but the first dimension of `item` is said of them.
fn joined(cx: &mut InferCx<'_>, list: usize, item: &PartialShape) -> Result<()> {
    let Some(list) = cx.list(list) else { return Ok(()) };
    let rest = PartialShape(item.0.as_ref().and_then(|dims| dims.get(1..)).map(|rest| [&[None], rest].concat()));
    let item = within(list, &rest)?;
    let Some(dims) = item.0 else { return Ok(()) };
    let Some((first, rest)) = dims.split_first() else {
        return Err(Error::invalid_argument("Concat saw a scalar shape; should have been at least vector"));
    };
    let all = first
        .zip(list.length)
        .map(|(size, length)| size.checked_mul(length).ok_or_else(|| Error::invalid_argument("too many rows for one tensor")));
    cx.set_dims(0, [&[all.transpose()?], rest].concat());
    cx.set_dims(1, vec![list.length]);
    if let (Some(size), Some(length)) = (*first, list.length.filter(|length| *length <= super::MOST_KNOWN)) {
        let size = i64::try_from(size).map_err(|_| Error::invalid_argument("too many rows for one tensor"))?;
        let data_type = cx.outputs[1].data_type;
        cx.set_value(1, int_vector(&vec![size; usize::try_from(length).unwrap_or(0)], data_type)?);
    }
    Ok(())
}

pub(super) fn concat(cx: &mut InferCx<'_>) -> Result<()> {
    let item = match cx.inputs.len() {
        1 => cx.attrs().shape("element_shape").cloned().unwrap_or_else(|_| PartialShape::unknown()),
        _ => stated(cx, 1)?,
    };
    joined(cx, 0, &item)
}

pub(super) fn array_concat(cx: &mut InferCx<'_>) -> Result<()> {
    check_type(cx, list_at(cx.inputs, 1))?;
    let rest = cx.attrs().shape("element_shape_except0").cloned().unwrap_or_else(|_| PartialShape::unknown());
    let item = PartialShape(rest.0.map(|rest| [&[None], &rest[..]].concat()));
    joined(cx, list_at(cx.inputs, 1), &item)
}

/// The gradient of the TensorArray whose flow is at input 1: zeros of the shape of its tensors, and as many.
pub(super) fn gradient(cx: &mut InferCx<'_>) -> Result<()> {
    let list = refined(cx, 1, &PartialShape::unknown())?;
    let list = list.map(|list| ListFact { each: Each::Unknown, is_sum: true, is_full: false, grows: false, ..list });
    // The handle has it, too: the operations that write into the gradient may be given any flow.
    cx.outputs[0].list = list.clone();
    set_list(cx, 1, list);
    Ok(())
}
