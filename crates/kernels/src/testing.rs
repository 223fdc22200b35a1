//! For tests of kernels: runs a [`Prepared`] on plain vectors, with the memory that its contract asks for and nothing more.

use std::ops::Range;

use plimsoll_base::{Bf16, F16, Panels};
use plimsoll_device::{Args, Fault, Prepared};

/// Bytes at a 64-byte boundary plus `shift`, with a guard of known bytes behind them.
struct Aligned {
    words: Vec<[u64; 8]>,
    len: usize,
    shift: usize,
}

/// Arguments lie at multiples of this and of nothing larger, since kernels may count on the element's alignment only.
const ARGUMENT_SHIFT: usize = 8;

const GUARD: u8 = 0xC5;
const POISON: u8 = 0xA7;

impl Aligned {
    fn new(len: usize, shift: usize, fill: u8) -> Aligned {
        let word = u64::from_ne_bytes([GUARD; 8]);
        // Three lines more: one because a `Vec` aligns to 8 only, one for the shift, one for the guard.
        let mut made = Aligned { words: vec![[word; 8]; len.div_ceil(64) + 3], len, shift };
        made.bytes_mut().fill(fill);
        made
    }

    fn pointer(&mut self) -> *mut u8 {
        let base = self.words.as_mut_ptr().cast::<u8>();
        base.wrapping_add(base.align_offset(64) + self.shift)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let (pointer, len) = (self.pointer(), self.len);
        // SAFETY: fewer than 128 bytes are skipped, and the vector is at least 192 bytes longer than `len`.
        unsafe { std::slice::from_raw_parts_mut(pointer, len) }
    }

    fn check_guard(&mut self, what: &str) {
        let (pointer, len) = (self.pointer(), self.len);
        // SAFETY: as in `bytes_mut`; after the bytes there are at least 64 more.
        let guard = unsafe { std::slice::from_raw_parts(pointer.add(len), 64) };
        assert!(guard.iter().all(|byte| *byte == GUARD), "{what}: written past the end ({len} bytes)");
    }
}

/// Numbers from -1 to 1, the same for a seed.
pub fn floats(count: u64, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Runs all pieces in order. `outputs` say by their lengths how many bytes each output has; the kernel finds their old bytes there.
///
/// # Errors
/// The kernel's fault.
///
/// # Panics
/// Where the kernel writes past the end of an argument or of its scratch, or writes to an input.
pub fn run(prepared: &Prepared, inputs: &[&[u8]], outputs: &mut [Vec<u8>]) -> Result<(), Fault> {
    let all = 0..prepared.chunks;
    run_pieces(prepared, inputs, outputs, &[all], &[])
}

/// As [`run`], with the pieces cut into `calls` (each may be empty; together they should cover everything), and with the
/// pairs `(input, output)` of `in_place` at the same address: those outputs start with the input's bytes.
///
/// # Errors
/// The kernel's fault.
///
/// # Panics
/// As [`run`].
pub fn run_pieces(
    prepared: &Prepared,
    inputs: &[&[u8]],
    outputs: &mut [Vec<u8>],
    calls: &[Range<u32>],
    in_place: &[(usize, usize)],
) -> Result<(), Fault> {
    let mut ins: Vec<Aligned> = Vec::new();
    for bytes in inputs {
        let mut buffer = Aligned::new(bytes.len(), ARGUMENT_SHIFT, 0);
        buffer.bytes_mut().copy_from_slice(bytes);
        ins.push(buffer);
    }
    let mut outs: Vec<Aligned> = Vec::new();
    for bytes in outputs.iter() {
        let mut buffer = Aligned::new(bytes.len(), ARGUMENT_SHIFT, 0);
        buffer.bytes_mut().copy_from_slice(bytes);
        outs.push(buffer);
    }
    let mut pointers: Vec<*mut u8> = ins.iter_mut().chain(&mut outs).map(Aligned::pointer).collect();
    for &(input, output) in in_place {
        assert!(inputs[input].len() <= outputs[output].len(), "the pair ({input}, {output}) has different sizes");
        outs[output].bytes_mut()[..inputs[input].len()].copy_from_slice(inputs[input]);
        pointers[input] = pointers[inputs.len() + output];
    }
    let mut scratch = Aligned::new(prepared.scratch as usize, 0, POISON);
    let mut worker = Aligned::new(prepared.per_worker as usize, 0, POISON);
    for call in calls {
        worker.bytes_mut().fill(POISON);
        let args = Args { pointers: &pointers, scratch: scratch.pointer(), worker: worker.pointer() };
        // SAFETY: every argument has the bytes that the caller of this test support gave for it, at a 64-byte boundary. The scratch
        // areas have the sizes that were asked for. Nothing else uses them meanwhile.
        unsafe { prepared.kernel.run(call.clone(), &args)? };
    }
    for (number, (buffer, bytes)) in ins.iter_mut().zip(inputs).enumerate() {
        buffer.check_guard("input");
        assert!(buffer.bytes_mut() == *bytes, "input {number} was written to");
    }
    for (buffer, bytes) in outs.iter_mut().zip(outputs) {
        buffer.check_guard("output");
        bytes.copy_from_slice(buffer.bytes_mut());
    }
    scratch.check_guard("scratch");
    worker.check_guard("worker scratch");
    Ok(())
}

/// A matrix in panels.
pub fn in_panels(panels: Panels, matrix: &[f32]) -> Vec<f32> {
    let mut held = Vec::with_capacity(matrix.len());
    for columns in panels.ranges() {
        let rows = matrix.chunks_exact(panels.columns as usize);
        rows.for_each(|row| held.extend_from_slice(&row[columns.start as usize..columns.end as usize]));
    }
    held
}

/// Plain numbers, which are their bytes.
pub trait Element: Copy + Default + PartialEq + std::fmt::Debug {}
impl Element for f32 {}
impl Element for f64 {}
impl Element for i32 {}
impl Element for i64 {}
impl Element for u16 {}
impl Element for u32 {}
impl Element for u64 {}
impl Element for u8 {}
impl Element for bool {}
impl Element for F16 {}
impl Element for Bf16 {}

/// The bytes of these numbers.
pub fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    // SAFETY: the types of `Element` have no padding, and any of their values may be read as bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}

/// The numbers that these bytes are.
///
/// # Panics
/// Where the bytes are not a whole number of elements, or not all booleans are 0 or 1.
pub fn values<T: Element>(bytes: &[u8]) -> Vec<T> {
    assert!(bytes.len().is_multiple_of(size_of::<T>()));
    if std::any::type_name::<T>() == "bool" {
        assert!(bytes.iter().all(|byte| *byte < 2), "a bool is neither 0 nor 1");
    }
    let mut made = vec![T::default(); bytes.len() / size_of::<T>()];
    // SAFETY: `made` has that many bytes, and every pattern is a value of the type (for bool it was checked).
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), made.as_mut_ptr().cast::<u8>(), bytes.len()) };
    made
}

/// Runs a kernel whose inputs and only output are of one type; the output has `len` elements.
///
/// # Errors
/// The kernel's fault.
///
/// # Panics
/// As [`run`].
pub fn run_one<T: Element>(prepared: &Prepared, inputs: &[&[T]], len: usize) -> Result<Vec<T>, Fault> {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|values| bytes(values)).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut outputs = vec![vec![0; len * size_of::<T>()]];
    run(prepared, &inputs, &mut outputs)?;
    Ok(values(&outputs[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_device::{Cost, CpuKernel};
    use std::sync::Arc;

    /// Adds 1 to each byte, one piece a byte; with `overrun` writes one byte too many.
    #[derive(Debug)]
    struct Increment {
        overrun: bool,
    }

    impl CpuKernel for Increment {
        unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
            for at in chunks.start as usize..chunks.end as usize + usize::from(self.overrun) {
                // SAFETY: one byte for each piece, as the tests below give; the byte too many lies in the guard.
                unsafe { *args.pointers[1].add(at) = *args.pointers[0].add(at) + 1 };
            }
            Ok(())
        }
    }

    fn increment(overrun: bool) -> Prepared {
        Prepared {
            chunks: 3,
            scratch: 0,
            per_worker: 0,
            cost: Cost::default(),
            in_place: vec![(0, 0)],
            kernel: Arc::new(Increment { overrun }),
        }
    }

    #[test]
    fn runs_whole_in_pieces_and_in_place() {
        assert_eq!(run_one::<u8>(&increment(false), &[&[1, 2, 3]], 3), Ok(vec![2, 3, 4]));
        let mut outputs = [vec![0; 3]];
        run_pieces(&increment(false), &[&[1, 2, 3]], &mut outputs, &[2..3, 0..2], &[(0, 0)]).unwrap();
        assert_eq!(outputs[0], [2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn sees_writes_past_the_end() {
        let _ = run_one::<u8>(&increment(true), &[&[1, 2, 3, 4]], 3);
    }
}
