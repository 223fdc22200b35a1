//! Optionals: what gradients read of a branch that may not have run. One is a list of one tensor, or of none.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrValue, PartialShape};

use super::{of_length, set_list};
use crate::infer::merge_shapes;
use crate::{InferCx, ListFact};

/// OptionalFromValue(components).
pub(super) fn present(cx: &mut InferCx<'_>) -> Result<()> {
    let [item] = cx.inputs else { return Err(Error::unimplemented("not yet: an optional of several tensors")) };
    if let Some(list) = &item.list {
        if list.has_list {
            return Err(Error::unimplemented("not yet: an optional of an optional of a list"));
        }
        let list = ListFact { has_list: true, ..list.clone() };
        set_list(cx, 0, Some(list));
        return Ok(());
    }
    let list = of_length(item.data_type, item.shape.clone(), Some(1));
    set_list(cx, 0, Some(list));
    Ok(())
}

/// OptionalNone(): of no type, until it is merged with another one.
pub(super) fn absent(cx: &mut InferCx<'_>) -> Result<()> {
    set_list(cx, 0, Some(of_length(DataType::Variant, PartialShape::unknown(), Some(0))));
    Ok(())
}

/// OptionalGetValue(optional).
pub(super) fn value(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.outputs.len() != 1 {
        return Err(Error::unimplemented("not yet: an optional of several tensors"));
    }
    let stated = match cx.attrs().get("output_shapes") {
        Some(AttrValue::List(list)) => list.shapes.first().cloned(),
        _ => None,
    };
    let Some(list) = cx.list(0) else {
        cx.set(0, stated.unwrap_or_else(PartialShape::unknown));
        return Ok(());
    };
    if cx.outputs[0].data_type == DataType::Variant && (list.has_list || list.length == Some(0)) {
        // Where there is no value the node fails.
        let list = ListFact { has_list: false, ..list.clone() };
        set_list(cx, 0, Some(list));
        return Ok(());
    }
    if list.has_list {
        return Err(Error::invalid_argument(format!("an optional of a list is read as {}", cx.outputs[0].data_type)));
    }
    if list.data_type != cx.outputs[0].data_type && list.data_type != DataType::Variant {
        return Err(Error::invalid_argument(format!("an optional of {} is read as {}", list.data_type, cx.outputs[0].data_type)));
    }
    let item = stated
        .map_or(Ok(list.item.clone()), |stated| merge_shapes(&list.item, &stated).map_err(|_| super::other_than_said(&list.item, &stated)));
    cx.set(0, item?);
    Ok(())
}
