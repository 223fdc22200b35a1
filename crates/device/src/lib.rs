//! Devices as the crates above see them: names, specifications, and the seams that a device crate implements. Neither the machine's
//! cards nor what programs hold on them are known here: kernels are made for a specification.
//!
//! A device is handed whole programs ([`Program`]): a queue of commands whose order, waits and memory are decided already.
//! It chooses nothing; it may look ahead, batch or record, but every command sees the memory that the plan says.

mod account;
mod bell;
#[cfg(feature = "conformance")]
pub mod conformance;
mod costs;
pub mod interpret;
mod kernel;
mod library;
mod name;
mod program;
mod rounds;
mod run;
mod seam;
mod spec;
mod threads;
mod trace;
mod tuned;

pub use account::Offsets;
pub use bell::Bell;
pub use costs::{Caches, Class, CostTable, Costs, Load, MeasuredKernel, MeasuredKernels, Rates, Sample, fit};
pub use kernel::{Args, Cost, CpuKernel, Fault, Prepared};
pub use library::{CpuLibrary, Evaluate, FINISHED, KernelCall, LaidOut, Library, Step, StepArg, Variant};
pub use name::DeviceName;
pub use program::{BufferRef, Command, Partner, Place, Program, Wait, Work};
pub use rounds::{Awaited, Round, Rounds};
pub use run::{Bindings, Failure, Outside, Progress, Run, RunState};
pub use seam::{Device, Executable, Timed, Tuner, Usage};
pub use spec::{Bf16Instructions, CardLink, CardPart, DeviceKind, DeviceSpec, InstructionSet, ModelledLink, RealCard};
pub use threads::Threads;
pub use trace::Trace;
pub use tuned::{Tuned, TunedCudnn, TunedFor, TunedPart, TunedRequest};
