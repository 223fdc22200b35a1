//! Simulated graphics cards. Their memory is under a line and out of the processor's reach. Threads of their own run programs with
//! the processor's kernels while the caller goes on. A card's name and memory come from outside.

mod compute;
mod device;
mod memory;
mod stream;

pub use compute::{Compute, Turn};
pub use device::SimDevice;
