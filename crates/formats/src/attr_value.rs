//! AttrValue and the maps that hold them.

use std::borrow::Cow;

use plimsoll_graph::{AttrList, AttrValue, Attrs, FuncRef, PartialShape};

use crate::flaw::Found;
use crate::message::{Message, Value, decode};
use crate::tensor_proto::{TensorShapeProto, decode_tensor, write_tensor};
use crate::wire::{Field, Payload, Reader, put_bytes, put_fixed32, put_message, put_varint};

impl Value for AttrValue {
    fn blank() -> Self {
        AttrValue::Unset
    }

    fn absorb(&mut self, field: &Field<'_>) -> Found<()> {
        let fields = field.message()?;
        *self = match decode_attr(fields)? {
            Some(value) => value,
            None => AttrValue::Opaque(fields.rest().into()),
        };
        Ok(())
    }

    fn is_blank(&self) -> bool {
        false
    }

    fn put(&self, out: &mut Vec<u8>, number: u32) {
        put_message(out, number, |out| write_attr(self, out));
    }
}

/// The value; none where [`AttrValue`] cannot say it.
fn decode_attr(fields: Reader<'_>) -> Found<Option<AttrValue>> {
    // Of a oneof the last member counts. A message that stands there twice in a row is merged: its encodings are joined.
    let mut last: Option<(Field<'_>, Cow<'_, [u8]>)> = None;
    for field in fields {
        let field = field?;
        let bytes = match field.payload {
            Payload::Bytes(bytes) => bytes,
            _ => &[],
        };
        let joined = match last.take() {
            Some((before, mut joined)) if before.number == field.number && matches!(field.number, 1 | 7 | 8 | 10) => {
                joined.to_mut().extend_from_slice(bytes);
                joined
            }
            _ => Cow::Borrowed(bytes),
        };
        if !(1..=10).contains(&field.number) {
            return Ok(None);
        }
        last = Some((field, joined));
    }
    let Some((field, joined)) = last else { return Ok(Some(AttrValue::Unset)) };
    let message = || -> Found<Reader<'_>> {
        let fields = field.message()?;
        Ok(if joined.len() == fields.rest().len() { fields } else { fields.over(&joined) })
    };
    Ok(match field.number {
        1 => decode_list(message()?).map_err(|flaw| flaw.within("list"))?.map(|list| AttrValue::List(Box::new(list))),
        2 => Some(AttrValue::Bytes(field.bytes()?.to_vec())),
        3 => Some(AttrValue::Int(field.varint()? as i64)),
        4 => Some(AttrValue::Float(f32::from_bits(field.fixed32()?))),
        5 => Some(AttrValue::Bool(field.varint()? != 0)),
        6 => Some(AttrValue::Type(field.varint()? as i32)),
        7 => decode_shape(message()?).map_err(|flaw| flaw.within("shape"))?.map(AttrValue::Shape),
        8 => decode_tensor(message()?).map_err(|flaw| flaw.within("tensor"))?.map(AttrValue::Tensor),
        9 => Some(AttrValue::Placeholder(field.text()?.to_string())),
        _ => decode_func(message()?).map_err(|flaw| flaw.within("func"))?.map(AttrValue::Func),
    })
}

fn decode_shape(fields: Reader<'_>) -> Found<Option<PartialShape>> {
    Ok(decode::<TensorShapeProto>(fields)?.to_partial())
}

fn decode_list(fields: Reader<'_>) -> Found<Option<AttrList>> {
    let mut list = AttrList::default();
    for field in fields {
        let field = field?;
        let known = match field.number {
            2 => {
                list.bytes.push(field.bytes()?.to_vec());
                true
            }
            3 => list.ints.absorb(&field).map(|()| true)?,
            4 => list.floats.absorb(&field).map(|()| true)?,
            5 => list.bools.absorb(&field).map(|()| true)?,
            6 => list.types.absorb(&field).map(|()| true)?,
            7 => decode_shape(field.message()?)?.map(|shape| list.shapes.push(shape)).is_some(),
            8 => decode_tensor(field.message()?)?.map(|tensor| list.tensors.push(tensor)).is_some(),
            9 => decode_func(field.message()?)?.map(|func| list.funcs.push(func)).is_some(),
            _ => false,
        };
        if !known {
            return Ok(None);
        }
    }
    Ok(Some(list))
}

fn decode_func(fields: Reader<'_>) -> Found<Option<FuncRef>> {
    let mut func = FuncRef::default();
    for field in fields {
        let field = field?;
        match field.number {
            1 => func.name = field.text()?.to_string(),
            2 => func.attrs.absorb(&field)?,
            _ => return Ok(None),
        }
    }
    Ok(Some(func))
}

fn write_attr(value: &AttrValue, out: &mut Vec<u8>) {
    match value {
        AttrValue::Bytes(bytes) => put_bytes(out, 2, bytes),
        AttrValue::Int(value) => put_varint(out, 3, *value as u64),
        AttrValue::Float(value) => put_fixed32(out, 4, value.to_bits()),
        AttrValue::Bool(value) => put_varint(out, 5, u64::from(*value)),
        AttrValue::Type(number) => put_varint(out, 6, i64::from(*number) as u64),
        AttrValue::Shape(shape) => TensorShapeProto::from(shape).put(out, 7),
        AttrValue::Tensor(tensor) => put_message(out, 8, |out| write_tensor(tensor, out)),
        AttrValue::Placeholder(name) => put_bytes(out, 9, name.as_bytes()),
        AttrValue::Func(func) => put_message(out, 10, |out| write_func(func, out)),
        AttrValue::List(list) => put_message(out, 1, |out| write_list(list, out)),
        AttrValue::Unset => {}
        AttrValue::Opaque(encoded) => out.extend_from_slice(encoded),
    }
}

fn write_list(list: &AttrList, out: &mut Vec<u8>) {
    fn put<V: Value>(values: &V, out: &mut Vec<u8>, number: u32) {
        if !values.is_blank() {
            values.put(out, number);
        }
    }
    put(&list.bytes, out, 2);
    put(&list.ints, out, 3);
    put(&list.floats, out, 4);
    put(&list.bools, out, 5);
    put(&list.types, out, 6);
    list.shapes.iter().for_each(|shape| TensorShapeProto::from(shape).put(out, 7));
    list.tensors.iter().for_each(|tensor| put_message(out, 8, |out| write_tensor(tensor, out)));
    list.funcs.iter().for_each(|func| put_message(out, 9, |out| write_func(func, out)));
}

fn write_func(func: &FuncRef, out: &mut Vec<u8>) {
    if !func.name.is_empty() {
        put_bytes(out, 1, func.name.as_bytes());
    }
    if !func.attrs.is_empty() {
        func.attrs.put(out, 2);
    }
}

/// FunctionDef.ArgAttrs: a message of one map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ArgAttrs(pub Attrs);

impl Message for ArgAttrs {
    fn merge(&mut self, fields: Reader<'_>) -> Found<()> {
        for field in fields {
            let field = field?;
            if field.number == 1 {
                self.0.absorb(&field)?;
            }
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        if !self.0.is_empty() {
            self.0.put(out, 1);
        }
    }
}
