//! Lists of tensors: TensorLists, and TensorArrays as their flows have them.
//!
//! A list is a value: an operation that changes one gives another. All tensors of a list have one shape and type here, and a list has
//! room for as many as are known before it runs: it is one tensor, with its tensors as rows.
//!
//! Source of the rules: TensorFlow's `list_kernels` and `tensor_array_ops`. What was never set is zero.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrsExt, HostTensor, PartialShape, Shape};

use crate::infer::{InferFn, dim_of, int_vector, merge_shapes, shape_of_ints};
use crate::registry::Gradient;
use crate::{Each, InferCx, ListFact, ListOp, Lower, OpRules};

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
    rule("TensorListPushBack", push_back, ListOp::PushBack { list: 0, item: 1 }),
    rule("TensorListPopBack", pop_back, ListOp::PopBack { list: 0 }),
    rule("TensorListLength", length, ListOp::Length { list: 0 }),
    OpRules { name: "TensorListElementShape", infer: element_shape, lower: Lower::Nothing, gradient: Gradient::Unknown },
    rule("TensorArrayV3", array, ListOp::New { to: 1 }),
    rule("TensorArrayReadV3", |cx| read(cx, 2), ListOp::GetItem { list: 2, index: 1 }),
    rule("TensorArrayGatherV3", array_gather, ListOp::Gather { list: 2, indices: 1 }),
    rule("TensorArrayWriteV3", array_write, ListOp::SetItem { list: 3, index: 1, item: 2 }),
    rule("TensorArrayScatterV3", |cx| scatter(cx, 3, 2), ListOp::Scatter { list: 3, indices: 1, tensor: 2 }),
    rule("TensorArraySizeV3", |cx| count(cx, 1), ListOp::Length { list: 1 }),
    OpRules { name: "TensorArrayCloseV3", infer: crate::infer::unknown, lower: Lower::Nothing, gradient: Gradient::Unknown },
]];

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
    let (data_type, item) = (cx.attrs().data_type("element_dtype")?, stated(cx, 0)?);
    set_list(cx, 0, Some(ListFact { data_type, item, room, length: Some(0), each: Each::Nothing }));
    Ok(())
}

fn reserve(cx: &mut InferCx<'_>) -> Result<()> {
    let count = size(cx, 1)?;
    let (data_type, item) = (cx.attrs().data_type("element_dtype")?, stated(cx, 0)?);
    set_list(cx, 0, Some(ListFact { data_type, item, room: count, length: count, each: Each::Unknown }));
    Ok(())
}

fn from_tensor(cx: &mut InferCx<'_>) -> Result<()> {
    let tensor = cx.with_rank_at_least(0, 1)?.map(<[Option<u64>]>::to_vec);
    let data_type = cx.attrs().data_type("element_dtype")?;
    let list = tensor.map(|dims| {
        let list =
            ListFact { data_type, item: PartialShape(Some(dims[1..].to_vec())), room: dims[0], length: dims[0], each: Each::Unknown };
        Ok::<_, Error>(ListFact { item: within(&list, &stated(cx, 1)?)?, ..list })
    });
    let list = list.transpose()?;
    set_list(cx, 0, list);
    Ok(())
}

/// The shape of the tensors of a list where each has to be of the shape `item`, too.
fn within(list: &ListFact, item: &PartialShape) -> Result<PartialShape> {
    merge_shapes(&list.item, item).map_err(|_| {
        Error::invalid_argument(format!("Tried to read or set a tensor of shape {item} in a list of tensors of shape {}", list.item))
    })
}

/// The list at input `list`, whose tensors are of the shape `item`, too.
fn refined(cx: &InferCx<'_>, list: usize, item: &PartialShape) -> Result<Option<ListFact>> {
    cx.list(list).map(|list| Ok(ListFact { item: within(list, item)?, ..list.clone() })).transpose()
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
    let item = refined(cx, 0, &stated)?.map_or(stated, |list| list.item);
    cx.set(0, item);
    Ok(())
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

/// A list that grows does so where the index is known; elsewhere it has the room that something else says.
fn write(cx: &mut InferCx<'_>, list: usize, item: usize, grows: bool) -> Result<()> {
    cx.with_rank(1, 0)?;
    let mut list = refined(cx, list, cx.shape(item))?.map(|list| ListFact { each: Each::Unknown, ..list });
    if let (Some(list), Some(Ok(index)), true) = (&mut list, cx.int(1).map(u64::try_from), grows)
        && let Some(end) = index.checked_add(1)
    {
        list.length = list.length.map(|length| length.max(end));
        list.room = list.room.max(list.length);
    }
    set_list(cx, 0, list);
    Ok(())
}

fn scatter_into(cx: &mut InferCx<'_>) -> Result<()> {
    scatter(cx, 0, 1)
}

fn scatter(cx: &mut InferCx<'_>, list: usize, tensor: usize) -> Result<()> {
    let item = cx.with_rank_at_least(tensor, 1)?.map_or_else(PartialShape::unknown, |dims| PartialShape(Some(dims[1..].to_vec())));
    let list = refined(cx, list, &item)?.map(|list| ListFact { each: Each::Unknown, ..list });
    set_list(cx, 0, list);
    Ok(())
}

fn push_back(cx: &mut InferCx<'_>) -> Result<()> {
    let list = refined(cx, 0, cx.shape(1))?;
    let item = cx.inputs[1].value.as_ref().filter(|value| value.elements() <= MOST_KNOWN);
    let item = item.map_or(Each::Unknown, |value| Each::Known(value.clone()));
    let list = list.map(|list| {
        let length = list.length.and_then(|length| length.checked_add(1));
        let room = list.room.map(|room| length.map_or(room, |length| room.max(length)));
        ListFact { length, room, each: list.each.or(&item), ..list }
    });
    set_list(cx, 0, list);
    Ok(())
}

fn pop_back(cx: &mut InferCx<'_>) -> Result<()> {
    let stated = stated(cx, 1)?;
    let list = refined(cx, 0, &stated)?;
    cx.set(1, list.as_ref().map_or(stated, |list| list.item.clone()));
    if let Some(Each::Known(value)) = list.as_ref().map(|list| &list.each) {
        cx.set_value(1, value.clone());
    }
    // An empty list is refused when it is planned: in a loop more may be known of it by then.
    let list = list.map(|list| ListFact { length: list.length.and_then(|length| length.checked_sub(1)), ..list });
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
    let Some(item) = cx.list(0).map(|list| list.item.clone()) else { return Ok(()) };
    let Some(dims) = item.0 else { return Ok(()) };
    let dims: Vec<i64> = dims.iter().map(|dim| dim.map_or(-1, |dim| i64::try_from(dim).unwrap_or(i64::MAX))).collect();
    let data_type = cx.outputs[0].data_type;
    cx.set_value(0, int_vector(&dims, data_type)?);
    Ok(())
}

fn array_write(cx: &mut InferCx<'_>) -> Result<()> {
    write(cx, 3, 2, false)
}

fn array(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.attrs().bool("dynamic_size").unwrap_or(false) {
        return Err(Error::unimplemented("not yet: a TensorArray of dynamic size"));
    }
    let count = size(cx, 0)?;
    let item = cx.attrs().shape("element_shape").cloned().unwrap_or_else(|_| PartialShape::unknown());
    let data_type = cx.attrs().data_type("dtype")?;
    set_list(cx, 1, Some(ListFact { data_type, item, room: count, length: count, each: Each::Unknown }));
    Ok(())
}

fn read(cx: &mut InferCx<'_>, list: usize) -> Result<()> {
    cx.with_rank(1, 0)?;
    if let Some(item) = cx.list(list).map(|list| list.item.clone()) {
        cx.set(0, item);
    }
    Ok(())
}

fn array_gather(cx: &mut InferCx<'_>) -> Result<()> {
    let stated = cx.attrs().shape("element_shape").cloned().unwrap_or_else(|_| PartialShape::unknown());
    let Some(list) = refined(cx, 2, &stated)? else { return Ok(()) };
    let count = cx.with_rank(1, 1)?.and_then(|dims| dims[0]);
    cx.set(0, list.rows(count));
    Ok(())
}

/// What the lists at `inputs` are together, for an operation that gives a list like them.
///
/// # Errors
/// INVALID_ARGUMENT where their tensors differ.
pub fn together(inputs: &[crate::Fact]) -> Result<Option<ListFact>> {
    let lists: Option<Vec<&ListFact>> = inputs.iter().map(|input| input.list.as_ref()).collect();
    let Some([first, others @ ..]) = lists.as_deref() else { return Ok(None) };
    others.iter().try_fold((*first).clone(), |all, other| all.and(other)).map(Some)
}

/// What ZerosLike and AddN do with lists.
pub fn of_lists(op: &str) -> Option<ListOp> {
    match op {
        "ZerosLike" => Some(ListOp::Zeros { list: 0 }),
        "AddN" => Some(ListOp::AddN),
        _ => None,
    }
}
