//! Simulated graphics cards: memory of their own under a line and out of the processor's reach, programs run by threads of their own
//! while the caller goes on, the processor's kernels. What a card is called and how much it has comes from outside.

mod compute;
mod device;
mod memory;
mod stream;

pub use compute::{Compute, Turn};
pub use device::SimDevice;
