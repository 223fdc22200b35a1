//! Reads the files of `data/op_values`, which `scripts/record_op_values.py` writes.

use std::fs;
use std::str::FromStr;
use std::sync::OnceLock;

use plimsoll_base::{Bf16, DataType, F16};
use plimsoll_graph::{AttrList, AttrValue, HostTensor, PartialShape, Shape};

/// All files, read once.
fn record() -> &'static str {
    static RECORD: OnceLock<String> = OnceLock::new();
    RECORD.get_or_init(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/op_values");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    })
}

/// How an operand is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// When the graph runs.
    Fed,
    /// When the graph is built.
    Known,
    /// A variable holds it.
    Variable,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Case {
    /// The line, for messages (without the values).
    pub text: &'static str,
    pub op: &'static str,
    pub attrs: Vec<(&'static str, AttrValue)>,
    pub inputs: Vec<(Kind, HostTensor)>,
    /// The last columns, not yet read.
    pub rest: Vec<&'static str>,
}

/// The lines of that kind: `op`, `grad`, `apply`, `error`.
pub fn cases(kind: &str) -> Vec<Case> {
    let lines = record().lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    lines.map(|line| case(line).unwrap_or_else(|| panic!("cannot read: {line}"))).collect()
}

fn case(line: &'static str) -> Option<Case> {
    let mut columns = line.split(" |").map(|column| column.strip_prefix(' ').unwrap_or(column));
    let (op, attrs, inputs) = (columns.next()?, columns.next()?, columns.next()?);
    let attrs = attrs.split(',').filter(|attr| !attr.is_empty()).map(attr).collect::<Option<Vec<_>>>()?;
    let text = &line[..line.len().min(160)];
    Some(Case { text, op, attrs, inputs: tensors(inputs, operand)?, rest: columns.collect() })
}

fn attr(text: &'static str) -> Option<(&'static str, AttrValue)> {
    let (name, rest) = text.split_once(':')?;
    let (kind, value) = rest.split_once('=')?;
    let value = match kind {
        "bool" => AttrValue::Bool(value == "true"),
        "int" => AttrValue::Int(value.parse().ok()?),
        "float" => AttrValue::Float(value.parse().ok()?),
        "type" => AttrValue::data_type(DataType::from_name(value)?),
        "shape" => AttrValue::Shape(PartialShape(Some(numbers::<u64>(value)?.into_iter().map(Some).collect()))),
        "text" => AttrValue::text(value.replace('&', ",")),
        "texts" => AttrValue::texts(&value.split('/').collect::<Vec<&str>>()),
        "floats" => {
            let floats = value.split('/').map(|number| number.parse().ok()).collect::<Option<Vec<f32>>>()?;
            AttrValue::List(Box::new(AttrList { floats, ..AttrList::default() }))
        }
        _ => AttrValue::ints(numbers::<i64>(value)?),
    };
    Some((name, value))
}

/// The tensors of a column.
pub fn tensors<T>(column: &'static str, read: fn(&'static str) -> Option<T>) -> Option<Vec<T>> {
    column.split(';').filter(|text| !text.is_empty()).map(read).collect()
}

fn operand(text: &'static str) -> Option<(Kind, HostTensor)> {
    let known = text.strip_prefix('!').map(|rest| (Kind::Known, rest));
    let variable = text.strip_prefix("var ").map(|rest| (Kind::Variable, rest));
    let (kind, text) = known.or(variable).unwrap_or((Kind::Fed, text));
    Some((kind, tensor(text)?))
}

/// `type[dims]=numbers`, where `...` repeats the number before it.
pub fn tensor(text: &'static str) -> Option<HostTensor> {
    let (head, values) = text.split_once('=')?;
    let (name, dims) = head.strip_suffix(']')?.split_once('[')?;
    let shape = Shape::from(dims.split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().ok()).collect::<Option<Vec<u64>>>()?);
    let bytes = match DataType::from_name(name)? {
        DataType::Half => bytes(values, |value: f32| F16::from_f32(value).to_bits().to_le_bytes())?,
        DataType::Bfloat16 => bytes(values, |value: f32| Bf16::from_f32(value).to_bits().to_le_bytes())?,
        // The parts of complex numbers, one after the other.
        DataType::Float | DataType::Complex64 => bytes(values, f32::to_le_bytes)?,
        DataType::Double | DataType::Complex128 => bytes(values, f64::to_le_bytes)?,
        DataType::Int32 | DataType::Qint32 => bytes(values, i32::to_le_bytes)?,
        DataType::Int64 => bytes(values, i64::to_le_bytes)?,
        DataType::Int8 | DataType::Qint8 => bytes(values, i8::to_le_bytes)?,
        DataType::Int16 | DataType::Qint16 => bytes(values, i16::to_le_bytes)?,
        DataType::Uint16 | DataType::Quint16 => bytes(values, u16::to_le_bytes)?,
        DataType::Uint32 => bytes(values, u32::to_le_bytes)?,
        DataType::Uint64 => bytes(values, u64::to_le_bytes)?,
        DataType::Uint8 | DataType::Quint8 | DataType::Bool => bytes(values, u8::to_le_bytes)?,
        _ => return None,
    };
    HostTensor::from_leading(DataType::from_name(name)?, shape, &bytes).ok()?.dense().ok()
}

fn bytes<T: FromStr, const N: usize>(values: &str, encode: fn(T) -> [u8; N]) -> Option<Vec<u8>> {
    let values = values.strip_suffix("...").unwrap_or(values);
    Some(
        values
            .split(',')
            .filter(|value| !value.is_empty())
            .map(|value| value.parse().ok())
            .collect::<Option<Vec<T>>>()?
            .into_iter()
            .flat_map(encode)
            .collect(),
    )
}

fn numbers<T: FromStr>(values: &str) -> Option<Vec<T>> {
    values.split('/').filter(|value| !value.is_empty()).map(|value| value.parse().ok()).collect()
}
