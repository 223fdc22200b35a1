//! TensorProto and TensorShapeProto, by the rules that the field list does not show. Raw bytes win over typed values. A short list
//! of values repeats its last one. Integers of every size travel as int32, halves as bit patterns in int32.
//!
//! Nothing here allocates more than a small multiple of the bytes that it reads.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, PartialShape, Shape, TensorData};

use crate::flaw::{Flaw, Found};
use crate::message::message;
use crate::wire::{Field, Payload, Reader, put_bytes, put_message, put_varint, write_varint};

message! {
    /// A dimension as it lies on the wire.
    pub struct Dim {
        /// Elements; -1 where that is not known.
        1 size: i64,
    }
    /// A shape as it lies on the wire.
    pub struct TensorShapeProto {
        /// The dimensions.
        2 dim: Vec<Dim>,
        /// Whether not even the rank is known.
        3 unknown_rank: bool,
    }
}

impl TensorShapeProto {
    /// The shape, or none where it says more than [`PartialShape`] holds: named dimensions, sizes below -1, unknown fields.
    pub fn to_partial(&self) -> Option<PartialShape> {
        if !self.carried.is_empty() || (self.unknown_rank && !self.dim.is_empty()) {
            return None;
        }
        if self.unknown_rank {
            return Some(PartialShape::unknown());
        }
        let dim = |dim: &Dim| match dim.size {
            _ if !dim.carried.is_empty() => None,
            -1 => Some(None),
            size => u64::try_from(size).ok().map(Some),
        };
        self.dim.iter().map(dim).collect::<Option<Vec<_>>>().map(|dims| PartialShape(Some(dims)))
    }

    /// The shape of a tensor, which must be known in full. Names of dimensions do not count.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where a size or the rank is open, or the elements do not fit 63 bits.
    pub fn to_shape(&self) -> Result<Shape> {
        if self.unknown_rank {
            return Err(Error::invalid_argument("the shape of a tensor has no rank"));
        }
        let dim = |dim: &Dim| {
            u64::try_from(dim.size).map_err(|_| Error::invalid_argument(format!("the shape of a tensor has a dimension of {}", dim.size)))
        };
        let shape = self.dim.iter().map(dim).collect::<Result<Vec<u64>>>().map(Shape::from)?;
        shape.elements()?;
        Ok(shape)
    }
}

impl From<&PartialShape> for TensorShapeProto {
    fn from(shape: &PartialShape) -> TensorShapeProto {
        let dim = |dim: &Option<u64>| Dim { size: dim.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX)), ..Dim::default() };
        match &shape.0 {
            None => TensorShapeProto { unknown_rank: true, ..TensorShapeProto::default() },
            Some(dims) => TensorShapeProto { dim: dims.iter().map(dim).collect(), ..TensorShapeProto::default() },
        }
    }
}

impl From<&Shape> for TensorShapeProto {
    fn from(shape: &Shape) -> TensorShapeProto {
        TensorShapeProto::from(&PartialShape::from(shape))
    }
}

/// The field that holds the values of a type, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Four bytes for each part of an element (complex numbers have two).
    Fixed32,
    /// Eight bytes for each part of an element.
    Fixed64,
    /// A varint, of which an element keeps the low bytes. Signed 32-bit fields are sign-extended when written.
    Varint { signed: bool },
    /// One byte for each element, all in one string of bytes.
    Bytes,
    /// A string of bytes for each element.
    Strings,
    /// A message for each element.
    Messages,
}

fn form_of(data_type: DataType) -> (u32, Form) {
    use DataType::*;
    match data_type {
        Float => (5, Form::Fixed32),
        Double => (6, Form::Fixed64),
        Int32 | Int16 | Int8 | Qint8 | Qint16 | Qint32 | Int4 | Int2 => (7, Form::Varint { signed: true }),
        Uint8 | Uint16 | Quint8 | Quint16 | Uint4 | Uint2 => (7, Form::Varint { signed: false }),
        String => (8, Form::Strings),
        Complex64 => (9, Form::Fixed32),
        Int64 => (10, Form::Varint { signed: true }),
        Bool => (11, Form::Varint { signed: false }),
        Complex128 => (12, Form::Fixed64),
        Half | Bfloat16 => (13, Form::Varint { signed: false }),
        Resource => (14, Form::Messages),
        Variant => (15, Form::Messages),
        Uint32 => (16, Form::Varint { signed: false }),
        Uint64 => (17, Form::Varint { signed: false }),
        Float8E5m2 | Float8E4m3fn | Float8E4m3fnuz | Float8E4m3b11fnuz | Float8E5m2fnuz | Float4E2m1fn => (18, Form::Bytes),
    }
}

/// The tensor that these fields make; none where it says more than [`HostTensor`] holds (an unknown type, unknown fields).
///
/// # Errors
/// INVALID_ARGUMENT for open shapes and for raw bytes of the wrong length.
pub(crate) fn decode_tensor(fields: Reader<'_>) -> Found<Option<HostTensor>> {
    let (mut number, mut shape, mut content, mut strange) = (0i32, TensorShapeProto::default(), None, false);
    for field in fields {
        let field = field?;
        match field.number {
            1 => number = field.varint()? as i32,
            2 => crate::message::Value::absorb(&mut shape, &field).map_err(|flaw| flaw.within("tensor_shape"))?,
            3 => strange |= field.varint()? != 0,
            4 => content = Some(field),
            5..=18 => {}
            _ => strange = true,
        }
    }
    let Some(data_type) = DataType::from_number(number).filter(|_| !strange && shape.carried.is_empty()) else { return Ok(None) };
    if shape.dim.iter().any(|dim| !dim.carried.is_empty()) {
        return Ok(None);
    }
    let shape = shape.to_shape().map_err(|error| Flaw::from(error).within("tensor_shape"))?;
    if let Some(field) = content {
        let bytes = field.bytes().map_err(|flaw| flaw.within("tensor_content"))?;
        if !bytes.is_empty() {
            return from_content(data_type, shape, bytes, fields).map_err(|flaw| flaw.at(field.offset).within("tensor_content"));
        }
    }
    let (number, form) = form_of(data_type);
    match form {
        Form::Messages => return Ok(Some(HostTensor::opaque(data_type, shape, fields.rest()))),
        Form::Strings => return from_string_values(shape, fields, number),
        _ => {}
    }
    let size = data_type.size().expect("only strings and messages have no size");
    let mut leading = Vec::new();
    for field in fields {
        let field = field?;
        if field.number == number {
            read_values(&field, form, size, &mut leading).map_err(|flaw| flaw.within("values"))?;
        }
    }
    Ok(Some(HostTensor::from_leading(data_type, shape, &leading)?))
}

/// The elements of a TensorProto that says neither its type nor its shape, as checkpoints of version 1 hold them: `give` gets their
/// bytes, in order. Fixed-size numbers are handed out where they lie.
///
/// # Errors
/// DATA_LOSS for fields that are no values of the type; UNIMPLEMENTED for elements without a fixed size; the error of `give`.
pub(crate) fn each_value(data_type: DataType, fields: Reader<'_>, give: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (number, form) = form_of(data_type);
    let size = data_type.size().ok_or_else(|| Error::unimplemented(format!("a {data_type} tensor cannot be restored here")))?;
    for field in fields {
        let field = field.map_err(Error::from)?;
        if field.number != number {
            continue;
        }
        if let (Form::Fixed32 | Form::Fixed64 | Form::Bytes, Payload::Bytes(bytes)) = (form, field.payload) {
            give(bytes)?;
            continue;
        }
        // Numbers of varying length are turned a few at a time.
        let (mut batch, mut result) = (Vec::with_capacity(BATCH + 8), Ok(()));
        let values = match form {
            Form::Varint { .. } => field.varints(|value| {
                batch.extend_from_slice(&value.to_le_bytes()[..size]);
                if batch.len() >= BATCH && result.is_ok() {
                    result = give(&batch);
                    batch.clear();
                }
            }),
            form => read_values(&field, form, size, &mut batch),
        };
        values.map_err(Error::from)?;
        result?;
        give(&batch)?;
    }
    Ok(())
}

/// Bytes of numbers that are turned at a time.
const BATCH: usize = 16 << 10;

/// The strings of a TensorProto that says neither its type nor its shape.
pub(crate) fn string_values(fields: Reader<'_>) -> Result<Vec<Vec<u8>>> {
    let (number, _) = form_of(DataType::String);
    let mut strings = Vec::new();
    for field in fields {
        let field = field.map_err(Error::from)?;
        if field.number == number {
            strings.push(field.bytes().map_err(Error::from)?.to_vec());
        }
    }
    Ok(strings)
}

fn read_values(field: &Field<'_>, form: Form, size: usize, leading: &mut Vec<u8>) -> Found<()> {
    match form {
        Form::Fixed32 => field.fixed32s(leading),
        Form::Fixed64 => field.fixed64s(leading),
        Form::Bytes => {
            leading.extend_from_slice(field.bytes()?);
            Ok(())
        }
        _ => field.varints(|value| leading.extend_from_slice(&value.to_le_bytes()[..size])),
    }
}

fn from_content(data_type: DataType, shape: Shape, bytes: &[u8], fields: Reader<'_>) -> Found<Option<HostTensor>> {
    match form_of(data_type).1 {
        Form::Messages => Ok(Some(HostTensor::opaque(data_type, shape, fields.rest()))),
        Form::Strings => Ok(Some(HostTensor::from_strings(shape.clone(), split_strings(bytes, shape.elements()?)?)?)),
        _ => Ok(Some(HostTensor::from_bytes(data_type, shape, bytes)?)),
    }
}

/// TensorFlow's coding of strings as raw content: the length of each as a varint, then all bytes.
fn split_strings(bytes: &[u8], count: u64) -> Found<Vec<Vec<u8>>> {
    let short = || Flaw::invalid(format!("{} bytes are not {count} strings", bytes.len()));
    if count > bytes.len() as u64 {
        return Err(short());
    }
    let (mut rest, mut lengths) = (bytes, Vec::new());
    for _ in 0..count {
        let (length, taken) = crate::wire::read_varint(rest).ok_or_else(short)?;
        lengths.push(usize::try_from(length).map_err(|_| short())?);
        rest = &rest[taken..];
    }
    let mut strings = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (string, after) = rest.split_at_checked(length).ok_or_else(short)?;
        strings.push(string.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok(strings) } else { Err(short()) }
}

/// The strings of a tensor. One that would repeat its last string far beyond the size of its bytes stays encoded.
fn from_string_values(shape: Shape, fields: Reader<'_>, number: u32) -> Found<Option<HostTensor>> {
    let count = shape.elements()?;
    if count > fields.rest().len() as u64 + 16 {
        return Ok(Some(HostTensor::opaque(DataType::String, shape, fields.rest())));
    }
    let (mut strings, mut seen) = (Vec::new(), 0u64);
    for field in fields {
        let field = field?;
        if field.number == number {
            let bytes = field.bytes().map_err(|flaw| flaw.within("string_val"))?;
            seen += 1;
            if seen <= count {
                strings.push(bytes.to_vec());
            }
        }
    }
    let last: Vec<u8> = strings.last().cloned().unwrap_or_default();
    let missing = count as usize - strings.len();
    if last.len().saturating_mul(missing) > 16 * fields.rest().len() {
        return Ok(Some(HostTensor::opaque(DataType::String, shape, fields.rest())));
    }
    strings.resize(strings.len() + missing, last);
    Ok(Some(HostTensor::from_strings(shape, strings)?))
}

/// Writes a tensor as a TensorProto. Values keep their bits, and compressed values stay compressed. One element, and repeated
/// elements, are written as typed values, everything else as raw content.
pub(crate) fn write_tensor(tensor: &HostTensor, out: &mut Vec<u8>) {
    if let TensorData::Opaque(encoded) = tensor.data() {
        out.extend_from_slice(encoded);
        return;
    }
    if let Some(dense) = tensor.panels().and_then(|_| tensor.dense().ok()) {
        return write_tensor(&dense, out);
    }
    let data_type = tensor.data_type();
    put_varint(out, 1, data_type.number() as u64);
    put_message(out, 2, |out| crate::message::Message::write(&TensorShapeProto::from(tensor.shape()), out));
    let (number, form) = form_of(data_type);
    match tensor.data() {
        TensorData::Dense(_) if tensor.elements() > 1 => put_bytes(out, 4, tensor.bytes().unwrap_or_default()),
        TensorData::Dense(_) => write_values(out, number, form, data_type, tensor.bytes().unwrap_or_default()),
        TensorData::Repeated(leading) => write_values(out, number, form, data_type, leading),
        TensorData::Strings(strings) => strings.iter().for_each(|string| put_bytes(out, number, string)),
        TensorData::Opaque(_) | TensorData::Panels(_) => {}
    }
}

fn write_values(out: &mut Vec<u8>, number: u32, form: Form, data_type: DataType, bytes: &[u8]) {
    // Strings and messages are written elsewhere.
    let Some(size) = data_type.size().filter(|_| !bytes.is_empty()) else { return };
    let as_number = |element: &[u8], signed: bool| {
        let mut wide = [0; 8];
        wide[..element.len()].copy_from_slice(element);
        if signed && element.last().is_some_and(|byte| byte & 0x80 != 0) {
            wide[element.len()..].fill(0xff);
        }
        u64::from_le_bytes(wide)
    };
    match form {
        Form::Fixed32 | Form::Fixed64 | Form::Bytes => put_bytes(out, number, bytes),
        Form::Varint { signed } => {
            put_message(out, number, |out| bytes.chunks_exact(size).for_each(|element| write_varint(out, as_number(element, signed))))
        }
        Form::Strings | Form::Messages => {}
    }
}
