//! Tensors from NumPy's arrays and back, without a copy where that can be.

use std::sync::Arc;

use numpy::npyffi::{self, NPY_TYPES, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use plimsoll::{DataType, HostTensor, Shape};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyList, PyTuple};

use crate::errors::raised;

/// An array whose memory a tensor is over.
struct Array {
    _array: Py<PyUntypedArray>,
    start: *const u8,
    bytes: usize,
}

// SAFETY: the array keeps its memory where it is. What the pointer is used for is reading.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

// What is read through it is the same after a panic.
impl std::panic::RefUnwindSafe for Array {}

impl AsRef<[u8]> for Array {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the array is C-contiguous and has so many bytes; it lives as long as this does. As for every reader of an array
        // without the interpreter's lock, that nobody writes to it meanwhile is the caller's word.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// The elements of an array that are kept in memory of our own: what a run gives out.
#[pyclass(frozen, module = "plimsoll._native")]
struct Memory {
    _tensor: HostTensor,
}

/// NumPy, whose functions are there from then on: an interpreter that ends finds no module any more.
///
/// # Errors
/// ImportError where it is not installed, or the interpreter ends.
pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let load = || {
        let module = py.import("numpy")?;
        native_descr(py, DataType::Float)?;
        PyResult::Ok(module.unbind())
    };
    Ok(NUMPY.get_or_try_init(py, load)?.bind(py))
}

/// The type of elements that an array has.
fn type_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<Option<DataType>> {
    let is = |number: NPY_TYPES| descr.num() == number as i32;
    let of_number = [
        (NPY_TYPES::NPY_FLOAT, DataType::Float),
        (NPY_TYPES::NPY_DOUBLE, DataType::Double),
        (NPY_TYPES::NPY_HALF, DataType::Half),
        (NPY_TYPES::NPY_BOOL, DataType::Bool),
        (NPY_TYPES::NPY_BYTE, DataType::Int8),
        (NPY_TYPES::NPY_UBYTE, DataType::Uint8),
        (NPY_TYPES::NPY_SHORT, DataType::Int16),
        (NPY_TYPES::NPY_USHORT, DataType::Uint16),
        (NPY_TYPES::NPY_INT, DataType::Int32),
        (NPY_TYPES::NPY_UINT, DataType::Uint32),
        (NPY_TYPES::NPY_CFLOAT, DataType::Complex64),
        (NPY_TYPES::NPY_CDOUBLE, DataType::Complex128),
    ];
    if let Some((_, data_type)) = of_number.into_iter().find(|(number, _)| is(*number)) {
        return Ok(Some(data_type));
    }
    // `long` and `long long` are both of eight bytes on Linux.
    Ok(match (descr.kind(), descr.itemsize()) {
        (b'i', 8) => Some(DataType::Int64),
        (b'u', 8) => Some(DataType::Uint64),
        (b'O' | b'S' | b'U', _) => Some(DataType::String),
        (b'V' | b'f', 2) if descr.getattr("name")?.extract::<String>()? == "bfloat16" => Some(DataType::Bfloat16),
        _ => None,
    })
}

/// NumPy's type for elements of ours.
fn descr_of(py: Python<'_>, data_type: DataType) -> PyResult<Bound<'_, PyArrayDescr>> {
    let name = match data_type {
        DataType::Float => "float32",
        DataType::Double => "float64",
        DataType::Half => "float16",
        DataType::String => "object",
        DataType::Bfloat16 => {
            let types =
                py.import("ml_dtypes").map_err(|_| PyTypeError::new_err("NumPy has no type for bfloat16: `pip install ml_dtypes`"))?;
            return PyArrayDescr::new(py, types.getattr("bfloat16")?);
        }
        other => return PyArrayDescr::new(py, other.name()),
    };
    PyArrayDescr::new(py, name)
}

/// As [`descr_of`], without a look at names where NumPy has a number for the type.
fn native_descr(py: Python<'_>, data_type: DataType) -> PyResult<Bound<'_, PyArrayDescr>> {
    let number = match data_type {
        DataType::Float => NPY_TYPES::NPY_FLOAT,
        DataType::Double => NPY_TYPES::NPY_DOUBLE,
        DataType::Bool => NPY_TYPES::NPY_BOOL,
        DataType::Int32 => NPY_TYPES::NPY_INT,
        DataType::Int64 => NPY_TYPES::NPY_LONG,
        DataType::Uint8 => NPY_TYPES::NPY_UBYTE,
        other => return descr_of(py, other),
    };
    // SAFETY: the types of these numbers are always there; the reference is new.
    unsafe {
        let descr = PY_ARRAY_API.PyArray_DescrFromType(py, number as i32);
        Ok(Bound::from_owned_ptr_or_err(py, descr.cast())?.cast_into_unchecked())
    }
}

/// A number of Python as a tensor, where NumPy would make the same of it.
fn of_number(value: &Bound<'_, PyAny>, wanted: DataType) -> Option<HostTensor> {
    /// Integers below are floats of every type.
    const EXACT: u64 = 1 << 24;
    let float = value.cast_exact::<PyFloat>().ok().map(|float| float.value());
    let int = || value.cast_exact::<PyInt>().ok()?.extract::<i64>().ok();
    let exact = || int().filter(|int| int.unsigned_abs() < EXACT).map(|int| int as f64);
    match wanted {
        DataType::Float => Some(HostTensor::scalar(float.or_else(exact)? as f32)),
        DataType::Double => Some(HostTensor::scalar(float.or_else(exact)?)),
        DataType::Int32 => Some(HostTensor::scalar(i32::try_from(int()?).ok()?)),
        DataType::Int64 => Some(HostTensor::scalar(int()?)),
        _ => None,
    }
}

/// What `numpy.asarray` makes of a value, with or without a type; contiguous.
fn array_of<'py>(value: &Bound<'py, PyAny>, descr: Option<Bound<'py, PyArrayDescr>>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = value.py();
    let descr = descr.map_or(std::ptr::null_mut(), PyArrayDescrMethods::into_dtype_ptr);
    let flags = npyffi::NPY_ARRAY_C_CONTIGUOUS | npyffi::NPY_ARRAY_ALIGNED | npyffi::NPY_ARRAY_NOTSWAPPED | npyffi::NPY_ARRAY_FORCECAST;
    // SAFETY: it takes the type, and gives an array or sets an exception.
    unsafe {
        let array = PY_ARRAY_API.PyArray_FromAny(py, value.as_ptr(), descr, 0, 0, flags, std::ptr::null_mut());
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into::<PyUntypedArray>()?)
    }
}

/// A value as a tensor; of type `wanted`, where one is given. The memory of an array that is contiguous and aligned is not copied, nor
/// is that of a tensor of another library that hands it over by DLPack.
pub fn of_value(value: &Bound<'_, PyAny>, wanted: Option<DataType>) -> PyResult<HostTensor> {
    let py = value.py();
    if let Some(number) = wanted.and_then(|wanted| of_number(value, wanted)) {
        return Ok(number);
    }
    let numpy = numpy(py)?;
    let is_array = value.cast::<PyUntypedArray>().is_ok();
    if !is_array && value.hasattr(pyo3::intern!(py, "__dlpack__"))? {
        match numpy.getattr("from_dlpack")?.call1((value,)) {
            Ok(array) => return of_value(&array, wanted),
            // A tensor of elements that NumPy takes by no number, as bfloat16, may make an array by itself.
            Err(_) if value.hasattr(pyo3::intern!(py, "__array__"))? => {}
            Err(error) => return Err(error),
        }
    }
    let array = match value.cast::<PyUntypedArray>() {
        Ok(array) if wanted.is_none() || type_of(&array.dtype())? == wanted => array.clone(),
        _ => {
            let wanted = wanted.map(|wanted| native_descr(py, wanted)).transpose()?;
            array_of(value, wanted)?
        }
    };
    let data_type = type_of(&array.dtype())?;
    let Some(data_type) = data_type.filter(|found| wanted.is_none_or(|wanted| wanted == *found)) else {
        let message = format!("a feed of type {} where {} is taken", array.dtype(), wanted.map_or("a tensor's", DataType::name));
        return Err(PyTypeError::new_err(message));
    };
    let shape = Shape::new(array.shape().iter().map(|size| *size as u64).collect::<Vec<u64>>());
    if data_type == DataType::String {
        return strings(&array, shape);
    }
    let is_native = matches!(array.dtype().byteorder(), b'=' | b'|' | b'<');
    let array = match array.is_c_contiguous() && is_native {
        true => array,
        false => {
            let native = array.dtype().call_method1("newbyteorder", ("=",))?;
            numpy.getattr("ascontiguousarray")?.call1((&array, native))?.cast_into::<PyUntypedArray>()?
        }
    };
    let bytes = array.len() * array.dtype().itemsize();
    // SAFETY: it is an array, whose fields are there.
    let start = unsafe { (*array.as_array_ptr()).fields.data.cast::<u8>().cast_const() };
    // Where there are no elements, there may be no memory.
    let start = if bytes == 0 { std::ptr::NonNull::<u64>::dangling().as_ptr().cast::<u8>().cast_const() } else { start };
    let owner = Array { _array: array.unbind(), start, bytes };
    HostTensor::from_owner(data_type, shape, Arc::new(owner)).map_err(|error| raised(py, &error))
}

fn strings(array: &Bound<'_, PyUntypedArray>, shape: Shape) -> PyResult<HostTensor> {
    let py = array.py();
    let mut values: Vec<Vec<u8>> = Vec::with_capacity(array.len());
    for element in array.call_method0("ravel")?.call_method0("tolist")?.cast_into::<PyList>()? {
        match element.cast::<PyBytes>() {
            Ok(bytes) => values.push(bytes.as_bytes().to_vec()),
            Err(_) => match element.extract::<String>() {
                Ok(text) => values.push(text.into_bytes()),
                Err(_) => return Err(PyTypeError::new_err(format!("a string is wanted where there is {}", element.get_type()))),
            },
        }
    }
    HostTensor::from_strings(shape, values).map_err(|error| raised(py, &error))
}

/// A tensor as NumPy has it: an array over the tensor's memory, or a scalar.
pub fn to_value(py: Python<'_>, tensor: HostTensor) -> PyResult<Py<PyAny>> {
    let numpy = numpy(py)?;
    let dims: Vec<npy_intp> = tensor.shape().iter().map(|dim| *dim as npy_intp).collect();
    if let Some(values) = tensor.strings() {
        let values: Vec<Bound<'_, PyBytes>> = values.iter().map(|value| PyBytes::new(py, value)).collect();
        if let ([value], true) = (&values[..], dims.is_empty()) {
            return Ok(value.clone().into_any().unbind());
        }
        let array = numpy.getattr("empty")?.call1((values.len(), "object"))?;
        array.set_item(pyo3::types::PySlice::full(py), PyList::new(py, values)?)?;
        return Ok(array.call_method1("reshape", (PyTuple::new(py, dims)?,))?.unbind());
    }
    let descr = native_descr(py, tensor.data_type())?;
    if let ([], Some(bytes)) = (&dims[..], tensor.bytes()) {
        // SAFETY: the elements are as many bytes as the type has, and are copied. The reference to the type is borrowed.
        return unsafe {
            let scalar = PY_ARRAY_API.PyArray_Scalar(py, bytes.as_ptr().cast_mut().cast(), descr.as_dtype_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, scalar).map(Bound::unbind)
        };
    }
    let dense = tensor.dense().map_err(|error| raised(py, &error))?;
    drop(tensor);
    let mut tensor = dense;
    // It is the caller's alone from here on: where somebody else has it, too, it is copied.
    let start = tensor.bytes_mut().map(|bytes| bytes.as_mut_ptr()).ok_or_else(|| PyValueError::new_err("a tensor without elements"))?;
    let memory = Bound::new(py, Memory { _tensor: tensor })?;
    // SAFETY: the memory is C-contiguous, aligned, has the elements of the shape, and stays while its owner, the array's base, does.
    // Both calls take what they are given, also where they fail.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            PyUntypedArray::type_object(py).as_type_ptr(),
            descr.into_dtype_ptr(),
            dims.len() as i32,
            dims.as_ptr().cast_mut(),
            std::ptr::null_mut(),
            start.cast(),
            npyffi::NPY_ARRAY_WRITEABLE | npyffi::NPY_ARRAY_ALIGNED | npyffi::NPY_ARRAY_C_CONTIGUOUS,
            std::ptr::null_mut(),
        );
        if array.is_null() {
            return Err(PyErr::fetch(py));
        }
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.cast(), memory.into_ptr()) < 0 {
            pyo3::ffi::Py_DECREF(array);
            return Err(PyErr::fetch(py));
        }
        // An array without dimensions becomes a scalar.
        Bound::from_owned_ptr_or_err(py, PY_ARRAY_API.PyArray_Return(py, array.cast())).map(Bound::unbind)
    }
}
