//! Runs kernels in CUDA C without a card, for tests alone.
//!
//! Two ways: [`Module`] interprets the PTX that the real compiler ([`Nvrtc`]) makes, and reports every access outside of an argument,
//! read of what nobody wrote, race and divergent barrier. Where that compiler is absent, [`Host`] compiles the same text for the
//! processor, with its sanitizers, and runs it twice with the threads in opposite orders: a race shows as different bytes.
//!
//! [`Disassembler`] shows the machine code that the real compiler makes for a card.

mod arithmetic;
mod bytes;
mod host;
mod machine;
mod module;
mod nvrtc;
mod sass;

pub use host::{Entry, Host, HostProgram, MOST_ARGUMENTS, TABLE};
pub use module::Module;
pub use nvrtc::Nvrtc;
pub use sass::{Code, Disassembler, Instruction};

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The address of that buffer.
    Buffer(usize),
    /// A number.
    Number(u64),
}

/// One launch of a kernel: a grid and blocks in one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name.
    pub entry: String,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The arguments, in order.
    pub args: Vec<Value>,
}

/// Launches one after the other, on the same buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The launches.
    pub launches: Vec<Launch>,
    /// The buffers before the launches; afterwards as they are then.
    pub buffers: Vec<Vec<u8>>,
    /// Whether each buffer has been written before the launches. Others may not be read before they are.
    pub written: Vec<bool>,
}
