//! Running pieces of one command.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, without_provenance_mut};

use plimsoll_base::Code;

use super::load::{Action, COPY_PIECE, NONE, Step};
use crate::{Args, Fault, Run};

/// Whether the guard of `step` lets it run.
///
/// # Safety
/// As [`execute`]; the commands that the step waits for are over.
pub unsafe fn is_wanted(pointers: &[*mut u8], step: &Step) -> bool {
    // SAFETY: a guard is one byte, which `Loaded::new` checked; the rest is the caller's promise.
    step.guard == NONE || unsafe { pointers[step.guard as usize].read() } != 0
}

/// The command behind `step`, which is the one numbered `at`: where it is wanted, once it has run.
///
/// # Safety
/// As [`is_wanted`]; no thread writes the bool of a jump meanwhile.
pub unsafe fn next(pointers: &[*mut u8], step: &Step, at: u32, is_wanted: bool) -> u32 {
    match step.action {
        _ if !is_wanted => step.passed_over(at),
        // SAFETY: the condition is one byte, which `Loaded::new` checked; the rest is the caller's promise.
        Action::Jump { to, when } if unsafe { pointers[step.args.0 as usize].read() != 0 } == when => to,
        _ => at + 1,
    }
}

/// Runs the pieces `pieces` of `step` of `run` with the program's table of pointers and the scratch of slice `slice`.
///
/// # Safety
/// The pointers are those of a run under way, whose blocks are as [`crate::Run::bindings`] says. No other thread runs these pieces,
/// a command that the plan puts before or after this one, or this one with the same slice.
pub unsafe fn execute(run: &Run, pointers: &[*mut u8], step: &Step, pieces: Range<u32>, slice: u32) -> Result<(), Fault> {
    let (first, count) = (step.args.0 as usize, step.args.1 as usize);
    let arguments = &pointers[first..first + count];
    match &step.action {
        Action::Kernel { kernel, can_fail } => {
            // Scratch of no bytes: an aligned address that points nowhere.
            let nowhere = without_provenance_mut(64);
            let scratch = if step.scratch == NONE { nowhere } else { pointers[step.scratch as usize] };
            let worker = match step.worker {
                (NONE, _) => nowhere,
                (index, bytes) => pointers[index as usize].wrapping_add(slice as usize * bytes as usize),
            };
            let args = Args { pointers: arguments, scratch, worker };
            // SAFETY: the plan gives the kernel arguments as it was prepared for; `Loaded::new` checked the scratch; the rest is
            // the caller's promise.
            let run = || unsafe { kernel.run(pieces, &args) };
            let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(PANICKED));
            debug_assert!(done.is_ok() || done == Err(PANICKED) || *can_fail, "{kernel:?} failed: {done:?}");
            done
        }
        Action::Copy { bytes } => {
            let start = u64::from(pieces.start) * COPY_PIECE;
            let end = (u64::from(pieces.end) * COPY_PIECE).min(*bytes);
            let length = end.saturating_sub(start) as usize;
            if length > 0 {
                // SAFETY: both arguments are `bytes` long, which `Loaded::new` checked; the rest is the caller's promise.
                unsafe { std::ptr::copy(arguments[0].add(start as usize), arguments[1].add(start as usize), length) };
            }
            Ok(())
        }
        // Where it goes, `next` says.
        Action::Jump { .. } => Ok(()),
        Action::Outside { call, inputs, lengths, scratch } => {
            let Some(outside) = &run.outside else { return Err(NOTHING_OUTSIDE) };
            let (read, written) = arguments.split_at(*inputs as usize);
            let (read_lengths, written_lengths) = lengths.split_at(*inputs as usize);
            // SAFETY: arguments and scratch are as long as the program says, and no other command uses them meanwhile. Outputs
            // overlap no other argument.
            let (read, mut written, scratch) = unsafe {
                let read: Vec<&[u8]> = read.iter().zip(read_lengths).map(|(at, length)| slice_of(*at, *length)).collect();
                let written: Vec<&mut [u8]> = written.iter().zip(written_lengths).map(|(at, length)| slice_of_mut(*at, *length)).collect();
                let (at, length) = if step.scratch == NONE { (null_mut(), 0) } else { (pointers[step.scratch as usize], *scratch) };
                (read, written, slice_of_mut(at, length))
            };
            let perform = || outside.perform(*call, &read, &mut written, scratch);
            catch_unwind(AssertUnwindSafe(perform)).unwrap_or(Err(PANICKED))
        }
    }
}

/// # Safety
/// So many bytes are there, and no thread writes them while the slice lives.
unsafe fn slice_of<'a>(at: *const u8, length: u64) -> &'a [u8] {
    // SAFETY: the caller's promise; a slice of no bytes has any address but null.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, length as usize) } }
}

/// # Safety
/// So many bytes are there, and no other thread uses them while the slice lives.
unsafe fn slice_of_mut<'a>(at: *mut u8, length: u64) -> &'a mut [u8] {
    // SAFETY: as above.
    if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, length as usize) } }
}

/// The run was made without an executor of such commands.
const NOTHING_OUTSIDE: Fault =
    Fault { code: Code::FailedPrecondition, message: "the session was made without access to files", numbers: [0, 0] };

/// A defect of a kernel: its message went to the panic hook.
const PANICKED: Fault = Fault { code: Code::Internal, message: "a kernel panicked", numbers: [0, 0] };
