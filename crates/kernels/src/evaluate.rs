//! Runs a kernel on values at hand, outside any plan: constant folding.

use plimsoll_base::Result;
use plimsoll_device::{Args, Prepared};

use crate::aligned::AlignedBytes;

/// Runs all pieces of `prepared` on these inputs; the outputs are `output_bytes` long each.
///
/// The lengths must be those that the kernel was prepared for: whoever prepares a kernel knows them. (A kernel is trusted
/// with its shapes here just as in a program.)
///
/// # Errors
/// The kernel's fault.
pub fn run_on_bytes(prepared: &Prepared, inputs: &[&[u8]], output_bytes: &[u64]) -> Result<Vec<Vec<u8>>> {
    let mut inputs: Vec<AlignedBytes> = inputs.iter().map(|bytes| AlignedBytes::copy_of(bytes)).collect();
    let mut outputs: Vec<AlignedBytes> = output_bytes.iter().map(|bytes| AlignedBytes::zeroed(*bytes as usize)).collect();
    let mut scratch = AlignedBytes::zeroed(prepared.scratch as usize);
    let mut worker = AlignedBytes::zeroed(prepared.per_worker as usize);
    let pointers: Vec<*mut u8> = inputs.iter_mut().chain(&mut outputs).map(AlignedBytes::as_mut_ptr).collect();
    let args = Args { pointers: &pointers, scratch: scratch.as_mut_ptr(), worker: worker.as_mut_ptr() };
    // SAFETY: every buffer is its own, 64-byte aligned and as long as the caller says the kernel was prepared for; one
    // thread runs all pieces.
    unsafe { prepared.kernel.run(0..prepared.chunks, &args) }.map_err(|fault| {
        debug_assert!(prepared.kernel.can_fail(), "{:?} failed: {fault:?}", prepared.kernel);
        fault.to_error()
    })?;
    Ok(outputs.iter().map(|output| output.as_slice().to_vec()).collect())
}
