//! The common parts of the tests of operations: recorded cases, and an interpreter of small graphs over the kernels.
#![allow(dead_code, reason = "each test uses a part")]

pub mod interpret;
pub mod record;

use plimsoll_base::DataType;
use plimsoll_graph::HostTensor;

/// Whether two tensors agree: type, shape and elements; floats within `relative` of the expected size plus `absolute`.
/// NaN agrees with NaN.
pub fn agree(got: &HostTensor, expected: &HostTensor, relative: f64, absolute: f64) -> Result<(), String> {
    if got.data_type() != expected.data_type() || got.shape() != expected.shape() {
        return Err(format!("{}{} instead of {}{}", got.data_type(), got.shape(), expected.data_type(), expected.shape()));
    }
    if !got.data_type().is_floating() {
        return if got == expected { Ok(()) } else { Err(format!("{got:?} instead of {expected:?}")) };
    }
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

/// The elements of a float or double tensor.
pub fn floats(tensor: &HostTensor) -> Vec<f64> {
    match tensor.data_type() {
        DataType::Double => tensor.to_vec::<f64>().unwrap(),
        _ => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
    }
}
