//! A kernel prepared once per plan, and the arguments of its calls.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Code, Error, Kind};
use serde::{Deserialize, Serialize};

/// The cost of a piece of work, for predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Arithmetic operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

/// Why a kernel stopped: a code and a text known when the program was built, with up to two numbers.
/// Small and without allocation, so that it can be made on any thread at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// TensorFlow's status code.
    pub code: Code,
    /// The message; `{0}` and `{1}` stand for the numbers.
    pub message: &'static str,
    /// The numbers.
    pub numbers: [i64; 2],
}

impl Fault {
    /// INVALID_ARGUMENT with two numbers.
    pub fn invalid(message: &'static str, numbers: [i64; 2]) -> Fault {
        Fault { code: Code::InvalidArgument, message, numbers }
    }

    /// The kind of that error: an operation's own failure, unless the device ended the run.
    fn kind(self) -> Kind {
        match self.code {
            Code::Unavailable => Kind::LostDevice,
            Code::Cancelled => Kind::Cancelled,
            Code::DeadlineExceeded => Kind::Deadline,
            _ => Kind::Operation,
        }
    }

    /// The error that a caller sees.
    pub fn to_error(self) -> Error {
        let text = self.message.replace("{0}", &self.numbers[0].to_string()).replace("{1}", &self.numbers[1].to_string());
        Error::new(self.code, text).with_kind(self.kind())
    }
}

/// A kernel for a processor: the code and everything about shapes, settled when the plan is made.
///
/// Work is cut into `Prepared::chunks` pieces by shape alone, so that results do not depend on threads.
pub trait CpuKernel: Send + Sync + fmt::Debug {
    /// Computes the pieces `chunks`. Different pieces may run at the same time on different threads. Allocates nothing.
    ///
    /// # Safety
    /// `args` holds, in the order that the kernel documents, inputs then outputs. Each points to as many elements as the shapes
    /// that the kernel was prepared for, aligned to the element. No other thread writes the outputs meanwhile, and they overlap
    /// inputs only as [`Prepared::in_place`] allows. `args.scratch` and `args.worker` point to as many bytes as were asked for,
    /// 64-byte aligned, the latter for this thread alone.
    ///
    /// # Errors
    /// A fault where a value (an index, say) makes no sense, and the request says that it can fail. Outputs are then unspecified.
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault>;
}

/// A kernel with its code, as a library of the processor makes it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Into how many pieces the work is cut; at least 1.
    pub chunks: u32,
    /// Bytes of scratch that all pieces share, undefined at the start.
    pub scratch: u64,
    /// Bytes of scratch for each worker, undefined at the start of each piece.
    pub per_worker: u64,
    /// Its cost.
    pub cost: Cost,
    /// `(input, output)`: the output may be written where the input lies, if this is the input's last reader.
    pub in_place: Vec<(usize, usize)>,
    /// The code.
    pub kernel: Arc<dyn CpuKernel>,
}

/// Where the arguments of one call lie.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    /// Inputs, then outputs.
    pub pointers: &'a [*mut u8],
    /// Scratch that all pieces share.
    pub scratch: *mut u8,
    /// Scratch of this worker.
    pub worker: *mut u8,
}

impl Args<'_> {
    /// Argument `index` as `len` elements.
    ///
    /// # Safety
    /// The argument holds `len` initialised elements of `T`, and no thread writes them while the slice lives.
    pub unsafe fn input<T>(&self, index: usize, len: usize) -> &[T] {
        // SAFETY: the caller's promise. A dangling pointer is never stored for an empty argument (the planner gives the arena's
        // base), and alignment is the contract of `CpuKernel::run`.
        unsafe { std::slice::from_raw_parts(self.pointers[index].cast::<T>(), len) }
    }

    /// Elements `range` of argument `index`, to write.
    ///
    /// # Safety
    /// The argument holds at least `range.end` elements of `T`, and no other thread reads or writes `range` while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "pieces of one call share the argument and write different ranges")]
    pub unsafe fn output<T>(&self, index: usize, range: Range<usize>) -> &mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointers[index].cast::<T>().add(range.start), range.len()) }
    }
}
