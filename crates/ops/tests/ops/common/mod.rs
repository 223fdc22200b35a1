//! The common parts of the tests of operations: recorded cases, and an interpreter of small graphs over the kernels.
#![allow(dead_code, reason = "each test uses a part")]

pub mod interpret;
pub mod record;
pub mod vectors;

use plimsoll_base::{Bf16, DataType, F16};
use plimsoll_graph::HostTensor;

/// Whether two tensors agree: type, shape and elements; floats within `relative` of the expected size plus `absolute`.
/// NaN agrees with NaN.
pub fn agree(got: &HostTensor, expected: &HostTensor, relative: f64, absolute: f64) -> Result<(), String> {
    if got.data_type() != expected.data_type() || got.shape() != expected.shape() {
        return Err(format!("{}{} instead of {}{}", got.data_type(), got.shape(), expected.data_type(), expected.shape()));
    }
    if !is_smooth(got.data_type()) {
        return if got == expected { Ok(()) } else { Err(format!("{got:?} instead of {expected:?}")) };
    }
    // Numbers of two bytes are those of TensorFlow, or next to them.
    let (relative, absolute) = (relative + unit(got.data_type()), absolute);
    let (got, expected) = (floats(got), floats(expected));
    for (position, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let same = got == expected || (got.is_nan() && expected.is_nan());
        let near = (got - expected).abs() <= absolute + relative * expected.abs();
        if !same && !near {
            return Err(format!("element {position} is {got} instead of {expected}"));
        }
    }
    Ok(())
}

/// Whether elements are floats or complex numbers: gradients go through them.
pub fn is_smooth(data_type: DataType) -> bool {
    data_type.is_floating() || data_type.is_complex()
}

/// The elements of a tensor of floats; the parts of complex numbers, one after the other.
pub fn floats(tensor: &HostTensor) -> Vec<f64> {
    if let Some(part) = tensor.data_type().part() {
        let bytes = tensor.dense().unwrap();
        let parts = [tensor.elements(), 2];
        return floats(&HostTensor::from_bytes(part, parts.into(), bytes.bytes().unwrap_or_default()).unwrap());
    }
    match tensor.data_type() {
        DataType::Half => tensor.to_vec::<F16>().unwrap().into_iter().map(|value| value.to_f32().into()).collect(),
        DataType::Bfloat16 => tensor.to_vec::<Bf16>().unwrap().into_iter().map(|value| value.to_f32().into()).collect(),
        DataType::Double => tensor.to_vec::<f64>().unwrap(),
        _ => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
    }
}

/// How far the numbers of a type are apart, relative to their size; 0 where they are nearer than kernels compute.
pub fn unit(data_type: DataType) -> f64 {
    match data_type {
        DataType::Half => 2f64.powi(-10),
        DataType::Bfloat16 => 2f64.powi(-7),
        _ => 0.0,
    }
}
