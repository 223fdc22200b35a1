//! Running pieces of one command.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::without_provenance_mut;

use plimsoll_base::Code;

use super::load::{Action, COPY_PIECE, NONE, Step};
use crate::{Args, Fault};

/// Whether the guard of `step` lets it run.
///
/// # Safety
/// As [`execute`]; the commands that the step waits for are over.
pub unsafe fn is_wanted(pointers: &[*mut u8], step: &Step) -> bool {
    // SAFETY: a guard is one byte, which `Loaded::new` checked; the rest is the caller's promise.
    step.guard == NONE || unsafe { pointers[step.guard as usize].read() } != 0
}

/// Runs the pieces `pieces` of `step` with the program's table of pointers and the scratch of slice `slice`.
///
/// # Safety
/// The pointers are those of a run under way, whose blocks are as [`crate::Run::bindings`] says; nobody else runs
/// these pieces, or a command that the plan puts before or after this one, or this one with the same slice.
pub unsafe fn execute(pointers: &[*mut u8], step: &Step, pieces: Range<u32>, slice: u32) -> Result<(), Fault> {
    let (first, count) = (step.args.0 as usize, step.args.1 as usize);
    let arguments = &pointers[first..first + count];
    match &step.action {
        Action::Kernel(kernel) => {
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
            debug_assert!(done.is_ok() || done == Err(PANICKED) || kernel.can_fail(), "{kernel:?} failed: {done:?}");
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
    }
}

/// A defect of a kernel: its message went to the panic hook.
const PANICKED: Fault = Fault { code: Code::Internal, message: "a kernel panicked", numbers: [0, 0] };
