//! The processor as a device: one pool of threads for all logical CPU devices.
//!
//! At most `intra_op` threads compute at any time, the threads that drive runs included: with one, no thread is ever made. A thread
//! takes a queue and runs it until it has to wait for another queue. Or it helps with the pieces of a command that another thread
//! runs. The pool chooses no order and no place in memory: results never depend on it.

mod caches;
mod device;
mod offer;
mod open_runs;
mod permits;
mod pool;
mod queue;

pub use caches::{caches, processor};
pub use device::CpuDevice;
pub use pool::CpuPool;
