//! Attributes from Python's values and back. Types go by their wire numbers, shapes by lists with None for what is open.

use plimsoll::graph::AttrValue;
use plimsoll::{HostTensor, PartialShape};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::tensor::{of_value, to_value};

/// Sizes of a shape: no rank, or sizes of which some are open.
pub type Dims = Option<Vec<Option<u64>>>;

fn bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => value.extract::<String>().map(String::into_bytes),
    }
}

/// The elements of a sequence; a text is none.
fn each<T>(value: &Bound<'_, PyAny>, take: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>) -> PyResult<Vec<T>> {
    if value.is_instance_of::<pyo3::types::PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!("a list is wanted, not {value}")));
    }
    value.try_iter()?.map(|element| take(&element?)).collect()
}

/// A value as an attribute of this kind (`int`, `list(shape)`).
///
/// # Errors
/// TypeError for a value of another kind; NotImplementedError for functions.
pub fn attr_of(kind: &str, value: &Bound<'_, PyAny>) -> PyResult<AttrValue> {
    let shape = |value: &Bound<'_, PyAny>| Ok(PartialShape(value.extract::<Dims>()?));
    let number = |value: &Bound<'_, PyAny>| value.extract::<i32>();
    Ok(match kind {
        "int" => AttrValue::Int(value.extract()?),
        "float" => AttrValue::Float(value.extract()?),
        "bool" => AttrValue::Bool(value.extract()?),
        "string" => AttrValue::Bytes(bytes(value)?),
        "type" => AttrValue::Type(number(value)?),
        "shape" => AttrValue::Shape(shape(value)?),
        "tensor" => AttrValue::Tensor(of_value(value, None)?),
        _ => {
            let mut list = match AttrValue::texts::<&str>(&[]) {
                AttrValue::List(list) => list,
                other => return Ok(other),
            };
            match kind {
                "list(int)" => list.ints = each(value, |value| value.extract())?,
                "list(float)" => list.floats = each(value, |value| value.extract())?,
                "list(bool)" => list.bools = each(value, |value| value.extract())?,
                "list(string)" => list.bytes = each(value, bytes)?,
                "list(type)" => list.types = each(value, number)?,
                "list(shape)" => list.shapes = each(value, shape)?,
                "list(tensor)" => list.tensors = each(value, |value| of_value(value, None))?,
                _ => return Err(pyo3::exceptions::PyNotImplementedError::new_err(format!("attributes of kind {kind}"))),
            }
            AttrValue::List(list)
        }
    })
}

/// An attribute as a value; None where Python has none for it.
pub fn attr_to(py: Python<'_>, attr: &AttrValue) -> PyResult<Py<PyAny>> {
    let tensor = |tensor: &HostTensor| to_value(py, tensor.clone());
    match attr {
        AttrValue::Bytes(bytes) => PyBytes::new(py, bytes).into_py_any(py),
        AttrValue::Int(int) => int.into_py_any(py),
        AttrValue::Float(float) => float.into_py_any(py),
        AttrValue::Bool(bool) => bool.into_py_any(py),
        AttrValue::Type(number) => number.into_py_any(py),
        AttrValue::Shape(shape) => shape.0.clone().into_py_any(py),
        AttrValue::Tensor(value) => tensor(value),
        AttrValue::Func(function) => function.name.clone().into_py_any(py),
        AttrValue::List(list) => {
            let mut all: Vec<Py<PyAny>> = Vec::new();
            all.extend(list.bytes.iter().map(|bytes| PyBytes::new(py, bytes).into_any().unbind()));
            for value in &list.ints {
                all.push(value.into_py_any(py)?);
            }
            for value in &list.floats {
                all.push(value.into_py_any(py)?);
            }
            for value in &list.bools {
                all.push(value.into_py_any(py)?);
            }
            for value in &list.types {
                all.push(value.into_py_any(py)?);
            }
            for value in &list.shapes {
                all.push(value.0.clone().into_py_any(py)?);
            }
            for value in &list.tensors {
                all.push(tensor(value)?);
            }
            for value in &list.funcs {
                all.push(value.name.clone().into_py_any(py)?);
            }
            PyList::new(py, all)?.into_py_any(py)
        }
        AttrValue::Placeholder(_) | AttrValue::Unset | AttrValue::Opaque(_) => Ok(py.None()),
    }
}
