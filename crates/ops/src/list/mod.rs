//! Lists of tensors: TensorLists, and TensorArrays as their flows have them.
//!
//! A list is a value: an operation that changes one gives another. All tensors of a list have one shape and type here, and a list has
//! room for as many as are known before it runs: it is one tensor, with its tensors as rows.
//!
//! Source of the rules: TensorFlow's `list_kernels` and `tensor_array_ops`. What was never set is zero.

mod joined;
pub mod nested;
mod optional;

use std::collections::BTreeSet;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, PartialShape, Shape};

use crate::infer::{InferFn, dim_of, int_vector, merge_shapes, shape_of_ints};
use crate::registry::Gradient;
use crate::{Each, InferCx, ListFact, ListOp, Lower, OpRules, Said};

/// Larger tensors than this are not kept in mind.
const MOST_KNOWN: u64 = 1024;

const fn rule(name: &'static str, infer: InferFn, op: ListOp) -> OpRules {
    OpRules { name, infer, lower: Lower::List(op), gradient: Gradient::Unknown }
}

/// The rules of lists.
pub const RULES: &[&[OpRules]] = &[&[
    rule("EmptyTensorList", empty, ListOp::New { to: 0 }),
    rule("TensorListReserve", reserve, ListOp::New { to: 0 }),
    rule("TensorListFromTensor", from_tensor, ListOp::FromTensor { tensor: 0 }),
    rule("TensorListStack", stack, ListOp::Stack { list: 0 }),
    rule("TensorListGetItem", get_item, ListOp::GetItem { list: 0, index: 1 }),
    rule("TensorListGather", gather, ListOp::Gather { list: 0, indices: 1 }),
    rule("TensorListSetItem", set_item, ListOp::SetItem { list: 0, index: 1, item: 2 }),
    rule("TensorListScatterIntoExistingList", scatter_into, ListOp::Scatter { list: 0, indices: 2, tensor: 1 }),
    rule("TensorListScatter", joined::scattered, ListOp::Scattered { indices: 1, tensor: 0 }),
    rule("TensorListScatterV2", joined::scattered, ListOp::Scattered { indices: 1, tensor: 0 }),
    rule("TensorListConcatLists", joined::join, ListOp::Join { first: 0, second: 1 }),
    rule("TensorListResize", joined::resize, ListOp::Resize { list: 0 }),
    rule("TensorListSplit", joined::split, ListOp::Split { tensor: 0 }),
    rule("TensorListConcat", joined::concat, ListOp::Concat { list: 0 }),
    rule("TensorListConcatV2", joined::concat, ListOp::Concat { list: 0 }),
    rule("TensorListPushBack", push_back, ListOp::PushBack { list: 0, item: 1 }),
    rule("TensorListPopBack", pop_back, ListOp::PopBack { list: 0 }),
    rule("TensorListLength", length, ListOp::Length { list: 0 }),
    OpRules { name: "TensorListElementShape", infer: element_shape, lower: Lower::Nothing, gradient: Gradient::Unknown },
    rule("TensorArrayV3", array, ListOp::New { to: 1 }),
    rule("TensorArrayReadV3", |cx| read(cx, list_at(cx.inputs, 2)), ListOp::GetItem { list: 2, index: 1 }),
    rule("TensorArrayGatherV3", array_gather, ListOp::Gather { list: 2, indices: 1 }),
    rule("TensorArrayWriteV3", array_write, ListOp::SetItem { list: 3, index: 1, item: 2 }),
    rule("TensorArrayScatterV3", array_scatter, ListOp::Scatter { list: 3, indices: 1, tensor: 2 }),
    rule("TensorArraySplitV3", joined::array_split, ListOp::Split { tensor: 1 }),
    rule("TensorArrayConcatV3", joined::array_concat, ListOp::Concat { list: 1 }),
    rule("TensorArrayGradV3", joined::gradient, ListOp::Gradient { list: 1 }),
    rule("TensorArraySizeV3", |cx| count(cx, list_at(cx.inputs, 1)), ListOp::Length { list: 1 }),
    rule("OptionalFromValue", optional::present, ListOp::Present { item: 0 }),
    rule("OptionalNone", optional::absent, ListOp::Absent),
    rule("OptionalGetValue", optional::value, ListOp::Value { list: 0 }),
    rule("StackV2", crate::infer::scalar, ListOp::NewStack),
    rule("StackPushV2", pushed_on, ListOp::PushOn { stack: 0, item: 1 }),
    rule("StackPopV2", popped_off, ListOp::PopOff { stack: 0 }),
    OpRules { name: "StackCloseV2", infer: crate::infer::unknown, lower: Lower::Nothing, gradient: Gradient::Unknown },
    OpRules { name: "TensorArrayCloseV3", infer: crate::infer::unknown, lower: Lower::Nothing, gradient: Gradient::Unknown },
]];

/// The shape of tensors that input 0 states. Of lists it says nothing.
fn stated_item(cx: &InferCx<'_>) -> Result<PartialShape> {
    let stated = stated(cx, 0)?;
    let is_list = cx.attrs().data_type("element_dtype")? == DataType::Variant;
    Ok(if is_list { PartialShape::unknown() } else { stated })
}

fn scalar() -> PartialShape {
    (&Shape::scalar()).into()
}

/// The shape that input `index` states; a scalar of -1 states nothing.
fn stated(cx: &InferCx<'_>, index: usize) -> Result<PartialShape> {
    match (cx.dims(index), cx.ints(index)) {
        (Some([]), Some(ints)) if ints == [-1] => Ok(PartialShape::unknown()),
        (Some([]), Some(ints)) => {
            Err(Error::invalid_argument(format!("an element shape has to be a vector or -1, not the scalar {}", ints[0])))
        }
        (_, Some(ints)) => shape_of_ints(&ints),
        (_, None) => match cx.some_ints(index) {
            Some(dims) => {
                let dim = |dim: Option<i64>| dim.map_or(Ok(None), dim_of);
                Ok(PartialShape(Some(dims.into_iter().map(dim).collect::<Result<_>>()?)))
            }
            None => Ok(PartialShape::unknown()),
        },
    }
}

/// A list of so many tensors, whose operation says a shape.
fn said(data_type: DataType, shape: PartialShape, length: Option<u64>) -> ListFact {
    ListFact { said: Said { shape: shape.clone(), is_one: false }, ..of_length(data_type, shape, length) }
}

/// A list of so many tensors, of which nothing but the shape is known.
fn of_length(data_type: DataType, item: PartialShape, length: Option<u64>) -> ListFact {
    ListFact {
        data_type,
        said: Said::NOTHING,
        item,
        room: length,
        limit: None,
        length,
        most: length,
        least: length.unwrap_or(0),
        is_enough: false,
        each: Each::Unknown,
        grows: false,
        is_sum: false,
        is_full: false,
        has_list: false,
        inner: None,
    }
}

fn set_list(cx: &mut InferCx<'_>, output: usize, list: Option<ListFact>) {
    cx.set(output, scalar());
    cx.outputs[output].list = list;
}

fn size(cx: &InferCx<'_>, index: usize) -> Result<Option<u64>> {
    cx.with_rank(index, 0)?;
    let negative =
        |size: i64| Error::invalid_argument(format!("The num_elements to reserve must be a non negative number, but got {size}"));
    cx.int(index).map(|size| u64::try_from(size).map_err(|_| negative(size))).transpose()
}

fn empty(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    let room = cx.int(1).and_then(|most| u64::try_from(most).ok());
    let (data_type, item) = (cx.attrs().data_type("element_dtype")?, stated_item(cx)?);
    set_list(
        cx,
        0,
        Some(ListFact { room, limit: room, length: Some(0), most: Some(0), each: Each::Nothing, ..said(data_type, item, None) }),
    );
    Ok(())
}

fn reserve(cx: &mut InferCx<'_>) -> Result<()> {
    let count = size(cx, 1)?;
    let (data_type, item) = (cx.attrs().data_type("element_dtype")?, stated_item(cx)?);
    set_list(cx, 0, Some(said(data_type, item, count)));
    Ok(())
}

fn from_tensor(cx: &mut InferCx<'_>) -> Result<()> {
    let tensor = cx.with_rank_at_least(0, 1)?.map(<[Option<u64>]>::to_vec);
    let data_type = cx.attrs().data_type("element_dtype")?;
    let list = tensor.map(|dims| stated_of(of_length(data_type, PartialShape(Some(dims[1..].to_vec())), dims[0]), stated(cx, 1)?));
    let list = list.transpose()?;
    set_list(cx, 0, list);
    Ok(())
}

/// The shape of the tensors of a list where each has to be of the shape `item`, too.
///
/// # Errors
/// INVALID_ARGUMENT where the list's operation says another one; UNIMPLEMENTED where only its other tensors have another one.
fn within(list: &ListFact, item: &PartialShape) -> Result<PartialShape> {
    let Said { shape, is_one } = &list.said;
    merge_shapes(shape, item).map_err(|_| other_than_said(shape, item))?;
    merge_shapes(&list.item, item).map_err(|_| if *is_one { other_than_said(&list.item, item) } else { several_shapes(&list.item, item) })
}

/// A list of tensors of which an operation states a shape.
///
/// # Errors
/// INVALID_ARGUMENT where they have another one.
fn stated_of(list: ListFact, stated: PartialShape) -> Result<ListFact> {
    let item = merge_shapes(&list.item, &stated).map_err(|_| other_than_said(&list.item, &stated))?;
    Ok(ListFact { item, said: Said { shape: stated, ..list.said }, ..list })
}

fn other_than_said(said: &PartialShape, item: &PartialShape) -> Error {
    Error::invalid_argument(format!("Tried to read or set a tensor of shape {item} in a list of tensors of shape {said}"))
}

/// TensorFlow has lists whose tensors have several shapes.
pub(crate) fn several_shapes(one: &PartialShape, other: &PartialShape) -> Error {
    Error::unimplemented(format!("not yet: a list of tensors of several shapes: {one} and {other}"))
        .with_remedy("pad the tensors to one shape, or keep those of each shape in a list of their own")
}

/// The list at input `list`, whose tensors are of the shape `item`, too.
fn refined(cx: &InferCx<'_>, list: usize, item: &PartialShape) -> Result<Option<ListFact>> {
    let refine = |list: &ListFact| {
        // A list in which nothing was ever put may be one of tensors.
        if list.inner.is_some() || list.is_nested() && list.length != Some(0) {
            return Err(Error::unimplemented("not yet: a list of lists where tensors are needed"));
        }
        Ok(ListFact { item: within(list, item)?, ..list.clone() })
    };
    cx.list(list).map(refine).transpose()
}

fn stack(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(list) = refined(cx, 0, &stated(cx, 1)?)? else { return Ok(()) };
    let said = cx.attrs().int("num_elements")?;
    if let (Some(length), Ok(said)) = (list.length, u64::try_from(said))
        && length != said
    {
        return Err(Error::invalid_argument(format!(
            "Operation expected a list with {said} elements but got a list with {length} elements."
        )));
    }
    let length = list.length.or(u64::try_from(said).ok());
    cx.set(0, list.rows(length));
    Ok(())
}

fn get_item(cx: &mut InferCx<'_>) -> Result<()> {
    cx.with_rank(1, 0)?;
    let stated = stated(cx, 2)?;
    nested::read_from(cx, 0, stated, 0).map(drop)
}

fn gather(cx: &mut InferCx<'_>) -> Result<()> {
    let stated = stated(cx, 2)?;
    let Some(list) = refined(cx, 0, &stated)? else { return Ok(()) };
    let count = cx.with_rank(1, 1)?.and_then(|dims| dims[0]);
    cx.set(0, list.rows(count));
    Ok(())
}

fn set_item(cx: &mut InferCx<'_>) -> Result<()> {
    let grows = cx.attrs().bool("resize_if_index_out_of_bounds").unwrap_or(false);
    write(cx, 0, 2, grows)
}

/// Where only the run knows the index of a list that grows, nothing bounds the list, unless a loop counts it.
fn write(cx: &mut InferCx<'_>, list: usize, item: usize, grows: bool) -> Result<()> {
    cx.with_rank(1, 0)?;
    let mut list = nested::with_item(cx, list, item)?.map(|list| ListFact { each: Each::Unknown, ..list });
    if let Some(list) = list.as_mut().filter(|list| list.grows || grows) {
        match cx.int(1).map(u64::try_from) {
            Some(Ok(index)) => grow_to(list, index.saturating_add(1)),
            Some(Err(_)) => {}
            None => (list.length, list.most) = (None, None),
        }
    }
    set_list(cx, 0, list);
    Ok(())
}

/// The list has so many tensors at least.
fn grow_to(list: &mut ListFact, end: u64) {
    list.length = list.length.map(|length| length.max(end));
    list.most = list.most.map(|most| most.max(end));
    list.least = list.least.max(end);
    list.room = list.room.max(list.length);
}

fn scatter_into(cx: &mut InferCx<'_>) -> Result<()> {
    scatter(cx, 0, (1, 2), true)
}

fn scatter(cx: &mut InferCx<'_>, list: usize, (tensor, indices): (usize, usize), grows: bool) -> Result<()> {
    let item = cx.with_rank_at_least(tensor, 1)?.map_or_else(PartialShape::unknown, |dims| PartialShape(Some(dims[1..].to_vec())));
    let mut list = refined(cx, list, &item)?.map(|list| ListFact { each: Each::Unknown, ..list });
    if let Some(list) = list.as_mut().filter(|list| list.grows || grows)
        && let Some(highest) = cx.ints(indices).and_then(|indices| indices.into_iter().max())
    {
        grow_to(list, u64::try_from(highest).map_or(0, |highest| highest.saturating_add(1)));
    }
    set_list(cx, 0, list);
    Ok(())
}

fn push_back(cx: &mut InferCx<'_>) -> Result<()> {
    let list = nested::with_item(cx, 0, 1)?;
    let item = cx.inputs[1].value.as_ref().filter(|value| value.elements() <= MOST_KNOWN);
    let item = item.map_or(Each::Unknown, |value| Each::Known(value.clone()));
    if let Some(ListFact { length: Some(length), limit: Some(limit), .. }) = list
        && length >= limit
    {
        return Err(Error::invalid_argument(format!("Tried to push item into a full list list size: {length} max_num_elements: {limit}")));
    }
    let list = list.map(|list| {
        let length = list.length.and_then(|length| length.checked_add(1));
        let most = list.most.and_then(|most| most.checked_add(1));
        let room = if list.limit.is_some() || list.is_enough { list.room } else { list.room.max(length).max(most) };
        ListFact { length, most, least: list.least.saturating_add(1), room, each: list.each.or(&item), ..list }
    });
    set_list(cx, 0, list);
    Ok(())
}

fn pop_back(cx: &mut InferCx<'_>) -> Result<()> {
    let stated = stated(cx, 1)?;
    let list = nested::read_from(cx, 0, stated, 1)?;
    if let Some(Each::Known(value)) = list.as_ref().map(|list| &list.each) {
        cx.set_value(1, value.clone());
    }
    // An empty list is refused when it is planned: in a loop more may be known of it by then.
    let fewer = |length: Option<u64>| length.map(|length| length.saturating_sub(1));
    let list = list.map(|list| ListFact {
        length: list.length.and_then(|length| length.checked_sub(1)),
        most: fewer(list.most),
        least: list.least.saturating_sub(1),
        ..list
    });
    set_list(cx, 0, list);
    Ok(())
}

fn length(cx: &mut InferCx<'_>) -> Result<()> {
    count(cx, 0)
}

fn count(cx: &mut InferCx<'_>, list: usize) -> Result<()> {
    cx.set(0, scalar());
    if let Some(length) = cx.list(list).and_then(|list| list.length) {
        let length = i32::try_from(length).map_err(|_| Error::invalid_argument(format!("a list of {length} tensors")))?;
        cx.set_value(0, HostTensor::scalar(length));
    }
    Ok(())
}

fn element_shape(cx: &mut InferCx<'_>) -> Result<()> {
    let item = |list: &ListFact| if list.is_nested() { scalar() } else { list.item.clone() };
    let Some(item) = cx.list(0).map(item) else { return Ok(()) };
    let Some(dims) = item.0 else { return Ok(()) };
    let dims: Vec<i64> = dims.iter().map(|dim| dim.map_or(-1, |dim| i64::try_from(dim).unwrap_or(i64::MAX))).collect();
    let data_type = cx.outputs[0].data_type;
    cx.set_value(0, int_vector(&dims, data_type)?);
    Ok(())
}

fn pushed_on(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set(0, cx.shape(1).clone());
    Ok(())
}

/// What a stack is given is known from all of its graph only: whoever has that says it of the handle.
fn popped_off(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(stack) = cx.list(0) {
        cx.set(0, stack.item.clone());
    }
    Ok(())
}

/// A scatter at each index fills a TensorArray.
fn array_scatter(cx: &mut InferCx<'_>) -> Result<()> {
    scatter(cx, list_at(cx.inputs, 3), (2, 1), false)?;
    let indices = cx.ints(1).map(|indices| indices.into_iter().collect::<BTreeSet<i64>>());
    if let (Some(indices), Some(list)) = (indices, &mut cx.outputs[0].list) {
        list.is_full |= !list.is_sum && list.length == Some(indices.len() as u64) && indices.first().is_none_or(|first| *first == 0);
    }
    Ok(())
}

fn array_write(cx: &mut InferCx<'_>) -> Result<()> {
    write(cx, list_at(cx.inputs, 3), 2, false)
}

/// The input that is the list, for an operation whose flow is input `flow`. The flow of a gradient begins as that of the TensorArray,
/// whose gradient the handle at input 0 is.
pub fn list_at(inputs: &[crate::Fact], flow: usize) -> usize {
    let is_sum = |input: usize| inputs.get(input).and_then(|fact| fact.list.as_ref()).is_some_and(|list| list.is_sum);
    if is_sum(0) && !is_sum(flow) { 0 } else { flow }
}

fn array(cx: &mut InferCx<'_>) -> Result<()> {
    let count = size(cx, 0)?;
    let item = cx.attrs().shape("element_shape").cloned().unwrap_or_else(|_| PartialShape::unknown());
    let data_type = cx.attrs().data_type("dtype")?;
    let grows = cx.attrs().bool("dynamic_size").unwrap_or(false);
    let list = said(data_type, item, count);
    let is_one = cx.attrs().bool("identical_element_shapes").unwrap_or(false);
    set_list(cx, 1, Some(ListFact { grows, said: Said { is_one, ..list.said }, ..list }));
    Ok(())
}

/// A TensorArray gives tensors of its own type only.
fn check_type(cx: &InferCx<'_>, list: usize) -> Result<()> {
    match (cx.list(list), cx.attrs().data_type("dtype")) {
        (Some(list), Ok(wanted)) if list.data_type != wanted => {
            Err(Error::invalid_argument(format!("TensorArray dtype is {} but Op requested dtype {wanted}.", list.data_type)))
        }
        _ => Ok(()),
    }
}

fn read(cx: &mut InferCx<'_>, list: usize) -> Result<()> {
    cx.with_rank(1, 0)?;
    check_type(cx, list)?;
    if let Some(item) = cx.list(list).map(|list| list.item.clone()) {
        cx.set(0, item);
    }
    Ok(())
}

fn array_gather(cx: &mut InferCx<'_>) -> Result<()> {
    check_type(cx, list_at(cx.inputs, 2))?;
    let stated = cx.attrs().shape("element_shape").cloned().unwrap_or_else(|_| PartialShape::unknown());
    let Some(list) = refined(cx, list_at(cx.inputs, 2), &stated)? else { return Ok(()) };
    let count = cx.with_rank(1, 1)?.and_then(|dims| dims[0]);
    cx.set(0, list.rows(count));
    Ok(())
}

/// What the lists at `inputs` are together, for an operation that gives a list like them. The flow of no TensorArray, a number, is a
/// list of zeros where others are lists.
///
/// # Errors
/// INVALID_ARGUMENT where their tensors differ.
pub fn together(inputs: &[crate::Fact]) -> Result<Option<ListFact>> {
    let is_number = |fact: &crate::Fact| fact.data_type == DataType::Float;
    if !inputs.iter().all(|input| input.list.is_some() || is_number(input)) {
        return Ok(None);
    }
    let mut lists = inputs.iter().filter_map(|input| input.list.as_ref());
    let Some(first) = lists.next() else { return Ok(None) };
    let both = |all: ListFact, other: &ListFact| {
        let both = all.and(other)?;
        // Flows of one gradient, which is as long for each of them: the longest is the one of which most is known by now.
        let length = if both.is_sum { all.length.max(other.length) } else { both.length };
        Ok(ListFact { length, ..both })
    };
    lists.try_fold(first.clone(), both).map(Some)
}

/// What operations do with lists that are there for numbers.
pub fn of_lists(op: &str) -> Option<ListOp> {
    match op {
        "ZerosLike" => Some(ListOp::Zeros { list: 0 }),
        "Add" | "AddV2" | "AddN" => Some(ListOp::AddN),
        _ => None,
    }
}
