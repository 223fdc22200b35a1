//! Values against recorded ones.

use plimsoll_base::{Bf16, DataType, F16};
use plimsoll_graph::{Element, HostTensor, Shape};

/// How far two tensors are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The largest `abs(got - want) / (atol + rtol * abs(want))`: at most 1 passes. 0 where all elements are the same,
    /// infinite where one is a NaN and the other is not.
    pub error: f64,
    /// The element where it is.
    pub element: usize,
    /// The value.
    pub got: f64,
    /// The expected value.
    pub want: f64,
}

/// How far `got` is from `want`, element by element. A scalar may be recorded as an array of one element, as numpy's
/// `ascontiguousarray` makes it. Complex numbers are as far apart as the parts that are farthest apart.
///
/// # Errors
/// Text that says so where types or shapes differ, or elements cannot be compared.
pub fn compare(got: &HostTensor, want: &HostTensor, rtol: f64, atol: f64) -> Result<Distance, String> {
    let is_scalar = got.shape().rank() == 0 && want.shape().dims() == [1];
    if got.data_type() != want.data_type() || got.shape() != want.shape() && !is_scalar {
        return Err(format!("is {}{}, recorded {}{}", got.data_type(), got.shape(), want.data_type(), want.shape()));
    }
    if let Some(part) = got.data_type().part() {
        let parts = |tensor: &HostTensor| {
            let shape = Shape::from([2 * tensor.elements()]);
            HostTensor::from_bytes(part, shape, &bytes(tensor)?).map_err(|error| error.to_string())
        };
        let distance = compare(&parts(got)?, &parts(want)?, rtol, atol)?;
        return Ok(Distance { element: distance.element / 2, ..distance });
    }
    macro_rules! numbers {
        ($($data_type:ident),*) => {
            match got.data_type() {
                $(DataType::$data_type => of_numbers::<plimsoll_element!($data_type)>(got, want, rtol, atol),)*
                DataType::Bool => Ok(worst(bytes(got)?.iter().zip(bytes(want)?.iter()).map(|(a, b)| (f64::from(*a), f64::from(*b))), rtol, atol)),
                other => Err(format!("is {other}, which is not compared yet")),
            }
        };
    }
    macro_rules! plimsoll_element {
        (Half) => {
            F16
        };
        (Bfloat16) => {
            Bf16
        };
        (Float) => {
            f32
        };
        (Double) => {
            f64
        };
        (Int8) => {
            i8
        };
        (Int16) => {
            i16
        };
        (Int32) => {
            i32
        };
        (Int64) => {
            i64
        };
        (Uint8) => {
            u8
        };
        (Uint16) => {
            u16
        };
        (Uint32) => {
            u32
        };
        (Uint64) => {
            u64
        };
    }
    numbers!(Half, Bfloat16, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64)
}

/// A number as float64; large integers lose digits, so equal ones are told apart from others before.
trait Number: Element {
    fn as_f64(self) -> f64;
}

macro_rules! numbers {
    ($($rust:ty),*) => { $(impl Number for $rust { fn as_f64(self) -> f64 { self as f64 } })* };
}
macro_rules! halves {
    ($($rust:ty),*) => { $(impl Number for $rust { fn as_f64(self) -> f64 { f64::from(self.to_f32()) } })* };
}
halves!(F16, Bf16);
numbers!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

fn of_numbers<T: Number>(got: &HostTensor, want: &HostTensor, rtol: f64, atol: f64) -> Result<Distance, String> {
    let values = |tensor: &HostTensor| tensor.to_vec::<T>().map_err(|error| error.to_string());
    let (got, want) = (values(got)?, values(want)?);
    // Integers that differ only beyond float64's digits are one apart at least.
    let pair = |(a, b): (&T, &T)| {
        let (x, y) = (a.as_f64(), b.as_f64());
        if a != b && x == y && x.fract() == 0.0 && x.abs() >= 9e15 { (x, x + x.abs() * f64::EPSILON) } else { (x, y) }
    };
    Ok(worst(got.iter().zip(&want).map(pair), rtol, atol))
}

fn bytes(tensor: &HostTensor) -> Result<Vec<u8>, String> {
    let dense = tensor.dense().map_err(|error| error.to_string())?;
    Ok(dense.bytes().unwrap_or_default().to_vec())
}

fn worst(pairs: impl Iterator<Item = (f64, f64)>, rtol: f64, atol: f64) -> Distance {
    let mut worst = Distance { error: 0.0, element: 0, got: 0.0, want: 0.0 };
    for (element, (got, want)) in pairs.enumerate() {
        let error = error(got, want, rtol, atol);
        if element == 0 || error > worst.error {
            worst = Distance { error, element, got, want };
        }
    }
    worst
}

fn error(got: f64, want: f64, rtol: f64, atol: f64) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let error = (got - want).abs() / (atol + rtol * want.abs());
    if error.is_nan() || !got.is_finite() || !want.is_finite() { f64::INFINITY } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> HostTensor {
        HostTensor::from_slice([values.len() as u64], values).unwrap()
    }

    #[test]
    fn the_worst_element_counts() {
        let distance = compare(&floats(&[1.0, 2.0, 3.5]), &floats(&[1.0, 2.25, 3.0]), 0.0, 0.25).unwrap();
        assert_eq!(distance, Distance { error: 2.0, element: 2, got: 3.5, want: 3.0 });
        assert_eq!(compare(&floats(&[100.0]), &floats(&[101.0]), 0.01, 0.0).unwrap().error, 1.0 / 1.01);
    }

    #[test]
    fn floats_of_two_bytes_are_numbers() {
        let halves = |value: f32| HostTensor::scalar(F16::from_f32(value));
        assert_eq!(compare(&halves(1.5), &halves(1.25), 0.0, 0.25).unwrap(), Distance { error: 1.0, element: 0, got: 1.5, want: 1.25 });
        let short = |value: f32| HostTensor::scalar(Bf16::from_f32(value));
        assert_eq!(compare(&short(-3.0), &short(-2.0), 0.5, 0.0).unwrap().error, 1.0);
        assert_eq!(compare(&short(f32::NAN), &short(1.0), 1.0, 1.0).unwrap().error, f64::INFINITY);
        assert!(compare(&short(1.0), &halves(1.0), 1.0, 1.0).unwrap_err().contains("recorded half[]"));
    }

    #[test]
    fn complex_numbers_are_compared_by_their_parts() {
        let complex = |parts: [f32; 4]| {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
            HostTensor::from_bytes(DataType::Complex64, Shape::from([2]), &bytes).unwrap()
        };
        let (got, want) = (complex([1.0, 2.0, 3.0, 4.0]), complex([1.0, 2.0, 3.0, 3.5]));
        assert_eq!(compare(&got, &want, 0.0, 0.25).unwrap(), Distance { error: 2.0, element: 1, got: 4.0, want: 3.5 });
    }

    #[test]
    fn values_that_are_no_numbers_equal_only_themselves() {
        let error = |got: f32, want: f32| compare(&floats(&[got]), &floats(&[want]), 1.0, 1.0).unwrap().error;
        assert_eq!(error(f32::NAN, f32::NAN), 0.0);
        assert_eq!(error(f32::INFINITY, f32::INFINITY), 0.0);
        for (got, want) in
            [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, 1.0), (1.0, f32::INFINITY), (f32::INFINITY, f32::NEG_INFINITY)]
        {
            assert_eq!(error(got, want), f64::INFINITY, "{got} {want}");
        }
    }

    #[test]
    fn without_tolerance_only_equal_values_pass() {
        let ints = |value: i64| HostTensor::scalar(value);
        assert_eq!(compare(&ints(7), &ints(7), 0.0, 0.0).unwrap().error, 0.0);
        assert_eq!(compare(&ints(7), &ints(8), 0.0, 0.0).unwrap().error, f64::INFINITY);
        assert_eq!(compare(&ints(i64::MAX), &ints(i64::MAX - 1), 0.0, 0.0).unwrap().error, f64::INFINITY);
    }

    #[test]
    fn types_and_shapes_have_to_be_the_same() {
        assert!(compare(&HostTensor::scalar(1.0f32), &floats(&[1.0]), 0.0, 0.0).is_ok());
        assert!(compare(&floats(&[1.0]), &HostTensor::scalar(1.0f32), 1.0, 1.0).unwrap_err().contains("recorded float[]"));
        assert!(compare(&HostTensor::scalar(1i32), &HostTensor::scalar(1.0f32), 1.0, 1.0).is_err());
        let bools = |value| HostTensor::from_bools([1], &[value]).unwrap();
        assert_eq!(compare(&bools(true), &bools(true), 0.0, 0.0).unwrap().error, 0.0);
        assert!(compare(&bools(true), &bools(false), 0.0, 0.0).unwrap().error > 1.0);
    }

    #[test]
    fn nothing_is_equal_to_nothing() {
        assert_eq!(compare(&floats(&[]), &floats(&[]), 0.0, 0.0).unwrap().error, 0.0);
    }
}
