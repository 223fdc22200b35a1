//! NVIDIA cards, seen through the driver's management library (NVML). They are listed, and not used to compute yet. Kernels for them
//! are written and tested already ([`emit`]), and the libraries that computing needs are found ([`ComputeLibrary`]).
//!
//! The library is loaded at run time and never linked: a machine without a driver is an ordinary machine.
//!
//! **How computing will join.** This crate gets an `AddressSpace` (reserve: `cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`,
//! zeroed; decommit and drop unmap). Its regions write from pinned memory on the device's stream, and read after it. `Device` and
//! `Executable` submit the commands on a stream, with an event for each wait and `Run::advance` from a host function. A guard is
//! read on the card. Its library answers requests with variants of the kernels that [`emit`] writes. Its test file is a `Rig` for
//! `device::conformance`, and `runtime::cards` opens it where it opens simulated cards now.

mod compile;
mod compute;
mod driver;
pub mod emit;
mod libraries;
mod library;
mod nvml;
mod source;

pub use compile::Compiler;
pub use compute::{CudaCard, CudaDevice};
pub use driver::{CudaDriver, DriverCard};
pub use libraries::{ComputeLibrary, Found, Seen};
pub use library::can_load;
pub use nvml::{Activity, Driver, Look, Memory, NvidiaCard, Nvml, Process, ProcessKind};
pub use source::{ALIGNMENT, CudaLibrary, CudaSource, any_card, variant_of};
