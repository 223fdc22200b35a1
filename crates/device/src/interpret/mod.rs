//! An interpreter of programs on memory that this process can address, for devices that compute with [`crate::CpuKernel`]s: a
//! program's tables flattened ([`Loaded`]), its addresses in one run ([`Bound`]), and running pieces of a step ([`execute`]). The
//! device decides which thread runs which step, and when; threads of its own for each run are [`Streams`].

mod bound;
mod execute;
mod load;
mod streams;

pub use bound::Bound;
pub use execute::{execute, is_wanted, next};
pub use load::{Action, COPY_PIECE, Loaded, NONE, Step};
pub use streams::{Engine, Streams};
