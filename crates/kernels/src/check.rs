//! Conditions that a step depends on.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use crate::cut::{Cut, size_of_type};
use crate::element::{Element, of_type};

/// Faults with INVALID_ARGUMENT where the condition, one bool, does not hold. Argument: the condition.
pub fn assert_true() -> Prepared {
    require(Fault::invalid("assertion failed", [0, 0]))
}

/// Gives the fault where the condition, one bool, does not hold. Argument: the condition.
pub fn require(fault: Fault) -> Prepared {
    Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost::default(), in_place: Vec::new(), kernel: Arc::new(Require(fault)) }
}

#[derive(Debug)]
struct Require(Fault);

impl CpuKernel for Require {
    unsafe fn run(&self, _: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        // SAFETY: argument 0 holds one bool, as a byte.
        let holds = unsafe { args.input::<u8>(0, 1) }[0] != 0;
        if holds { Ok(()) } else { Err(self.0) }
    }
}

/// Does nothing: a command whose waits others wait for. No arguments.
pub fn nothing() -> Prepared {
    Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost::default(), in_place: Vec::new(), kernel: Arc::new(Nothing) }
}

#[derive(Debug)]
struct Nothing;

impl CpuKernel for Nothing {
    unsafe fn run(&self, _: Range<u32>, _: &Args<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// `CheckNumerics` and, where the fault names `signs`, `CheckNumericsV2`: the output is the input, bit for bit. A fault with
/// INVALID_ARGUMENT where an element is infinite or no number. Arguments: input, output, `elements` of each.
///
/// # Errors
/// UNIMPLEMENTED for types that are no floats; INVALID_ARGUMENT for more elements than memory holds.
pub fn finite(data_type: DataType, elements: u64, signs: bool) -> Result<Prepared, Error> {
    let size = size_of_type(data_type)?;
    let len = usize::try_from(elements).map_err(|_| Error::invalid_argument(format!("{elements} elements")))?;
    let cut = Cut::new(len, size as u64, 16);
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double, Half, Bfloat16],
        T => Arc::new(Finite::<T> { cut, signs, marker: PhantomData }),
        _ => return Err(Error::unimplemented(format!("CheckNumerics of {data_type}"))),
    );
    let cost = Cost { flops: elements as f64, bytes: 2.0 * elements as f64 * size as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: vec![(0, 0)], kernel })
}

#[derive(Debug)]
struct Finite<T> {
    cut: Cut,
    /// Whether the fault says which infinity.
    signs: bool,
    marker: PhantomData<fn(T)>,
}

impl<T: Element<Sum: Into<f64>>> Finite<T> {
    /// The fault for elements of which some are not finite: TensorFlow's words, for the NaN first.
    #[cold]
    fn fault(&self, input: &[T]) -> Fault {
        let any = |is: fn(f64) -> bool| input.iter().any(|element| is(element.widen().into()));
        let nan = any(f64::is_nan);
        let (negative, positive) = (any(|value| value == f64::NEG_INFINITY), any(|value| value == f64::INFINITY));
        let message = match (nan, negative, positive, self.signs) {
            (true, false, false, _) => "Tensor had NaN values",
            (false, _, _, false) => "Tensor had Inf values",
            (true, _, _, false) => "Tensor had Inf and NaN values",
            (false, true, false, true) => "Tensor had -Inf values",
            (false, false, _, true) => "Tensor had +Inf values",
            (false, true, true, true) => "Tensor had -Inf, +Inf values",
            (true, true, false, true) => "Tensor had -Inf and NaN values",
            (true, false, true, true) => "Tensor had +Inf and NaN values",
            (true, true, true, true) => "Tensor had -Inf, +Inf, and NaN values",
        };
        Fault::invalid(message, [0, 0])
    }
}

impl<T: Element<Sum: Into<f64>>> CpuKernel for Finite<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let own = self.cut.units(chunks);
        // SAFETY: the input has as many elements as the cut; a piece looks at its own ones alone, before its output is written.
        let input = unsafe { std::slice::from_raw_parts(args.pointers[0].cast::<T>().add(own.start), own.len()) };
        if input.iter().any(|element| !element.widen().into().is_finite()) {
            return Err(self.fault(input));
        }
        if args.pointers[0] != args.pointers[1] {
            // SAFETY: as above; the output is as long, and lies elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(input.as_ptr(), args.pointers[1].cast::<T>().add(own.start), own.len()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_passes() {
        assert_eq!(crate::run_on_bytes(&assert_true(), &[&[1]], &[]).unwrap(), Vec::<Vec<u8>>::new());
        let error = crate::run_on_bytes(&assert_true(), &[&[0]], &[]).unwrap_err();
        assert_eq!(error.code(), plimsoll_base::Code::InvalidArgument);
    }

    #[test]
    fn only_finite_numbers_pass() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let run = |values: &[f32], signs| {
            let bytes = bytes(values);
            crate::run_on_bytes(&finite(DataType::Float, values.len() as u64, signs).unwrap(), &[&bytes], &[bytes.len() as u64])
        };
        let good: Vec<f32> = (0..1000).map(|value| value as f32).collect();
        assert_eq!(run(&good, false).unwrap(), [bytes(&good)]);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let table: [(&[f32], bool, &str); 5] = [
            (&[1.0, nan], false, "Tensor had NaN values"),
            (&[1.0, inf], false, "Tensor had Inf values"),
            (&[nan, -inf], false, "Tensor had Inf and NaN values"),
            (&[inf, 1.0], true, "Tensor had +Inf values"),
            (&[inf, -inf, nan], true, "Tensor had -Inf, +Inf, and NaN values"),
        ];
        for (values, signs, message) in table {
            let error = run(values, signs).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
