//! A kernel for the suite, and commands that use it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Rig;
use crate::{Args, BufferRef, Command, CpuKernel, Fault, Place, Wait, Work};

/// The operation of a command on its cells of eight bytes, in as many pieces as there are cells.
#[derive(Debug)]
pub enum CellOperation {
    /// The last argument becomes a mixture of the others and this number.
    Mix(u64),
    /// Fails with this number.
    Fail(i64),
    /// Panics.
    Panic,
    /// As `Mix(0)`, once this is true.
    When(Arc<AtomicBool>),
}

/// The mixture of two numbers.
pub fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
}

impl CpuKernel for CellOperation {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let number = match self {
            CellOperation::Mix(number) => *number,
            CellOperation::Fail(number) => return Err(Fault::invalid("failed with {0}", [*number, 0])),
            CellOperation::Panic => panic!("a kernel of the suite panics, as it should"),
            CellOperation::When(now) => {
                while !now.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                0
            }
        };
        for piece in chunks {
            let (inputs, output) = args.pointers.split_at(args.pointers.len() - 1);
            let at = |pointer: &*mut u8| {
                // SAFETY: every argument has a cell for each piece.
                unsafe { pointer.cast::<u64>().add(piece as usize) }
            };
            // SAFETY: as above; a piece reads and writes its own cells.
            let value = inputs.iter().fold(number, |value, input| mix(value, unsafe { at(input).read() }));
            // SAFETY: as above.
            unsafe { at(&output[0]).write(value) };
        }
        Ok(())
    }
}

/// Cells of the arena of the device with that index.
pub(super) fn cells(device: u32, first: u64, count: u64) -> BufferRef {
    BufferRef { place: Place::Arena(device), offset: first * 8, bytes: count * 8 }
}

pub(super) fn call(rig: &dyn Rig, does: CellOperation, pieces: u32, args: Vec<BufferRef>, waits: &[(u32, u32)]) -> Command {
    command(Work::Kernel(rig.call(does, pieces, args.len())), args, waits)
}

pub(super) fn copy(from: BufferRef, to: BufferRef, waits: &[(u32, u32)]) -> Command {
    command(Work::Copy, vec![from, to], waits)
}

fn command(work: Work, args: Vec<BufferRef>, waits: &[(u32, u32)]) -> Command {
    let waits = waits.iter().map(|&(queue, commands)| Wait { queue, commands }).collect();
    Command { work, args, scratch: None, worker_scratch: None, guard: None, waits, label: "suite".into() }
}
