//! Computes requests on values at hand, outside any plan: constant folding. The portable kernels give the same bits everywhere.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Evaluate, InstructionSet, StepArg};
#[cfg(test)]
use plimsoll_device::{Fault, Prepared};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;

use crate::CpuKernels;
use crate::aligned::AlignedBytes;
use crate::library::{Made, available, make};

impl Evaluate for CpuKernels {
    fn evaluate(&self, request: &KernelRequest, inputs: &[&[u8]], outputs: &[u64]) -> Result<Vec<Vec<u8>>> {
        // Without fused multiplication, sums of floats lose digits that TensorFlow's keep. Sums in doubles lose less than either.
        let KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue: None, pooling: None } = request else {
            return self.evaluate_on(InstructionSet::Baseline, request, inputs, outputs);
        };
        let anchor = Anchor::Product(DataType::Double, *spec);
        let request = KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|bytes| widened(bytes)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs: Vec<u64> = outputs.iter().map(|bytes| bytes.saturating_mul(2)).collect();
        let results = self.evaluate_on(InstructionSet::Baseline, &request, &inputs, &outputs)?;
        Ok(results.iter().map(|bytes| narrowed(bytes)).collect())
    }
}

/// Floats as doubles.
fn widened(bytes: &[u8]) -> Vec<u8> {
    let (floats, _) = bytes.as_chunks::<4>();
    floats.iter().flat_map(|float| f64::from(f32::from_le_bytes(*float)).to_le_bytes()).collect()
}

/// Doubles as floats.
fn narrowed(bytes: &[u8]) -> Vec<u8> {
    let (doubles, _) = bytes.as_chunks::<8>();
    doubles.iter().flat_map(|double| (f64::from_le_bytes(*double) as f32).to_le_bytes()).collect()
}

impl CpuKernels {
    /// As [`Evaluate::evaluate`], with the kernels of an instruction set: other bits, maybe.
    ///
    /// # Errors
    /// As there, and UNIMPLEMENTED where the processor does not have the set.
    pub fn evaluate_on(
        &self,
        instructions: InstructionSet,
        request: &KernelRequest,
        inputs: &[&[u8]],
        outputs: &[u64],
    ) -> Result<Vec<Vec<u8>>> {
        run_made(&make(available(instructions)?, request)?, request, inputs, outputs)
    }
}

/// Runs kernels of this processor's on inputs; the outputs have so many bytes.
pub(crate) fn run_made(made: &Made, request: &KernelRequest, inputs: &[&[u8]], outputs: &[u64]) -> Result<Vec<Vec<u8>>> {
    run_onto(made, request, inputs, outputs.iter().map(|bytes| vec![0; *bytes as usize]).collect())
}

/// As [`run_made`], where outputs hold something before.
pub(crate) fn run_onto(made: &Made, request: &KernelRequest, inputs: &[&[u8]], outputs: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let Made { steps, between } = made;
    let mut arguments: Vec<AlignedBytes> = inputs.iter().map(|bytes| AlignedBytes::copy_of(bytes)).collect();
    arguments.extend(outputs.iter().map(|bytes| AlignedBytes::copy_of(bytes)));
    let mut between: Vec<AlignedBytes> = between.iter().map(|bytes| AlignedBytes::zeroed(*bytes as usize)).collect();
    for (prepared, args) in steps {
        let all = || (0..arguments.len() as u32).map(StepArg::Argument).collect();
        let args = args.clone().unwrap_or_else(all);
        let mut pointers = Vec::with_capacity(args.len());
        for arg in args {
            pointers.push(match arg {
                StepArg::Argument(index) => arguments.get_mut(index as usize).map(AlignedBytes::as_mut_ptr),
                StepArg::Between(index) => between.get_mut(index as usize).map(AlignedBytes::as_mut_ptr),
            });
        }
        let pointers = pointers.into_iter().collect::<Option<Vec<*mut u8>>>();
        let pointers = pointers.ok_or_else(|| Error::invalid_argument("a request with other arguments"))?;
        let mut scratch = AlignedBytes::zeroed(prepared.scratch as usize);
        let mut worker = AlignedBytes::zeroed(prepared.per_worker as usize);
        let args = Args { pointers: &pointers, scratch: scratch.as_mut_ptr(), worker: worker.as_mut_ptr() };
        // SAFETY: every buffer is its own, 64-byte aligned and as long as the caller says the request has it. One thread runs
        // all pieces. The processor has the instruction set.
        unsafe { prepared.kernel.run(0..prepared.chunks, &args) }.map_err(|fault| {
            debug_assert!(request.can_fail(), "{request:?} failed: {fault:?}");
            fault.to_error()
        })?;
    }
    Ok(arguments[inputs.len()..].iter().map(|output| output.as_slice().to_vec()).collect())
}

/// Runs all pieces of `prepared` on these inputs; the outputs are `output_bytes` long each.
///
/// The lengths must be those that the kernel was prepared for, as the code that prepares it knows them. (A kernel is trusted with
/// its shapes here just as in a program.)
///
/// # Errors
/// The kernel's fault.
#[cfg(test)]
pub fn run_on_bytes(prepared: &Prepared, inputs: &[&[u8]], output_bytes: &[u64]) -> Result<Vec<Vec<u8>>> {
    let mut inputs: Vec<AlignedBytes> = inputs.iter().map(|bytes| AlignedBytes::copy_of(bytes)).collect();
    let mut outputs: Vec<AlignedBytes> = output_bytes.iter().map(|bytes| AlignedBytes::zeroed(*bytes as usize)).collect();
    let mut scratch = AlignedBytes::zeroed(prepared.scratch as usize);
    let mut worker = AlignedBytes::zeroed(prepared.per_worker as usize);
    let pointers: Vec<*mut u8> = inputs.iter_mut().chain(&mut outputs).map(AlignedBytes::as_mut_ptr).collect();
    let args = Args { pointers: &pointers, scratch: scratch.as_mut_ptr(), worker: worker.as_mut_ptr() };
    // SAFETY: every buffer is its own, 64-byte aligned and as long as the caller says the kernel was prepared for; one
    // thread runs all pieces.
    unsafe { prepared.kernel.run(0..prepared.chunks, &args) }.map_err(Fault::to_error)?;
    Ok(outputs.iter().map(|output| output.as_slice().to_vec()).collect())
}
