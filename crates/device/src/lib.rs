//! Devices as the crates above see them: names, specifications, the options that divide a machine, and the seams that a device
//! crate implements.
//!
//! A device is handed whole programs ([`Program`]): a queue of commands whose order, waits and memory are decided already.
//! It chooses nothing; it may look ahead, batch or record, but every command sees the memory that the plan says.

mod account;
mod bell;
mod cards;
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod divide;
pub mod interpret;
mod kernel;
mod library;
mod name;
mod options;
mod program;
mod run;
mod seam;
mod spec;
mod trace;

pub use account::Offsets;
pub use bell::Bell;
pub use cards::{ComputeCapability, PhysicalDevice, Simulation};
pub use divide::{
    AllocatorKind, AllocatorOptions, Card, Division, LeftOut, Link, LogicalDevice, PinnedHost, Reserve, resolve, seen, system_memory,
    visible_device_list,
};
pub use kernel::{Args, Cost, CpuKernel, Fault, Prepared};
pub use library::{CpuLibrary, Evaluate, KernelCall, Library, Step, StepArg, Variant};
pub use name::DeviceName;
pub use options::{Environment, GpuConfig, MemoryLimit, Options, PlacementMode, VirtualDevices};
pub use program::{BufferRef, Command, Place, Program, Wait, Work};
pub use run::{Bindings, Failure, Outside, Progress, Run};
pub use seam::{Device, Executable, Usage};
pub use spec::{CardPart, DeviceKind, DeviceSpec, InstructionSet, ModelledLink};
pub use trace::Trace;
