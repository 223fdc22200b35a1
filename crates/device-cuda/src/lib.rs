//! NVIDIA cards, seen through the driver's management library (NVML). They are listed, and not used to compute yet.
//!
//! The library is loaded at run time and never linked: a machine without a driver is an ordinary machine.

mod nvml;

pub use nvml::{Activity, Driver, Look, Memory, NvidiaCard, Nvml, Process, ProcessKind, can_load};
