//! Random numbers, the same that TensorFlow's kernels for processors give for the same seeds.
//!
//! The generator is Philox 4x32-10, which gives a block of four 32-bit numbers for any counter. Group `g` of an output (4 elements,
//! or 2 of 8 bytes) is made of block `g` after the start. A truncated normal's group, which takes as many blocks as it needs,
//! starts at block `g * 256` (`g * 128` for double). A stateful operation starts where its last execution left off, each execution
//! setting aside 256 blocks for every element.
//!
//! Uniform numbers and integers are the same bits as TensorFlow's. Normal ones are within two units in the last place, since they
//! depend on the platform's logarithm, sine and cosine. Those of two bytes are floats, rounded.

mod candidates;
mod categorical;
mod kernels;
mod philox;
mod sample;
mod words;

pub use candidates::candidates;
pub use categorical::categorical;

use std::sync::Arc;

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use plimsoll_device::{Cost, CpuKernel, Prepared};
use plimsoll_request::random::{BLOCKS_PER_ELEMENT, Distribution};

use crate::cut::{Cut, elements};
use crate::simd::Isa;
use kernels::{Fill, KeyCounter, Reserve, Rounded, Start};

/// A stateful random operation.
///
/// Its state is 8 bytes, a little-endian count of blocks set aside so far: 0 before the first execution. The caller keeps it,
/// one for each node and session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomOp {
    /// The distribution.
    pub distribution: Distribution,
    /// The output's type.
    pub data_type: DataType,
    /// The output's elements.
    pub elements: u64,
    /// The attribute `seed`.
    pub seed: i64,
    /// The attribute `seed2`. Where both are 0 TensorFlow draws a seed; here the caller does, else 0 it is.
    pub seed2: i64,
}

impl RandomOp {
    /// Fills the output and advances the state, in one piece.
    ///
    /// Arguments: minval, maxval (`UniformInt` only), then the outputs: state (read and advanced), output.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the distribution does not have the type; INVALID_ARGUMENT where the output would be too large. At
    /// run time a fault where `minval >= maxval`.
    pub fn stateful(&self, isa: Isa) -> Result<Prepared> {
        prepare(
            isa,
            self.distribution,
            self.data_type,
            self.elements,
            Start::State { seed: self.seed as u64, seed2: self.seed2 as u64, advance: true },
        )
    }

    /// Fills the output in pieces, from a state before it was advanced by [`reserve`].
    ///
    /// Arguments: minval, maxval (`UniformInt` only), state, output.
    ///
    /// # Errors
    /// As [`RandomOp::stateful`].
    pub fn reserved(&self, isa: Isa) -> Result<Prepared> {
        prepare(
            isa,
            self.distribution,
            self.data_type,
            self.elements,
            Start::State { seed: self.seed as u64, seed2: self.seed2 as u64, advance: false },
        )
    }
}

/// Advances a state by so many blocks. Arguments: the outputs: state (read and advanced), its bytes before.
pub fn reserve(blocks: u64) -> Prepared {
    let kernel = Arc::new(Reserve { blocks });
    Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost { flops: 1.0, bytes: 24.0 }, in_place: Vec::new(), kernel }
}

/// A stateless random operation with the Philox algorithm.
///
/// Arguments: key (`uint64[1]`), counter (`uint64[2]`), minval, maxval (`UniformInt` only), output.
///
/// # Errors
/// UNIMPLEMENTED where the distribution does not have the type; INVALID_ARGUMENT where the output would be too large. At run
/// time a fault where `minval >= maxval`.
pub fn stateless(isa: Isa, distribution: Distribution, data_type: DataType, elements: u64) -> Result<Prepared> {
    prepare(isa, distribution, data_type, elements, Start::Given)
}

/// `StatelessRandomGetKeyCounter` for the Philox algorithm. Arguments: seed (two of `seed_type`, int32 or int64), then the
/// outputs: key (`uint64[1]`), counter (`uint64[2]`).
///
/// # Errors
/// UNIMPLEMENTED for other types.
pub fn key_counter(seed_type: DataType) -> Result<Prepared> {
    if !matches!(seed_type, DataType::Int32 | DataType::Uint32 | DataType::Int64 | DataType::Uint64) {
        return Err(Error::unimplemented(format!("seeds of {seed_type}")));
    }
    let kernel = Arc::new(KeyCounter { seed_type });
    Ok(Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost { flops: 100.0, bytes: 40.0 }, in_place: Vec::new(), kernel })
}

fn prepare(isa: Isa, distribution: Distribution, data_type: DataType, count: u64, start: Start) -> Result<Prepared> {
    use Distribution::*;
    let len = elements(&[count])?;
    let refused = || Error::unimplemented(format!("{distribution:?} of {data_type}"));
    let (size, group) = match data_type {
        DataType::Half | DataType::Bfloat16 => (2, 4),
        DataType::Float | DataType::Int32 => (4, 4),
        DataType::Double | DataType::Int64 => (8, 2),
        _ => return Err(refused()),
    };
    let groups = len.div_ceil(group);
    // Logarithms, sines and cosines one by one take much longer than a store.
    let weight = if matches!(distribution, Normal | TruncatedNormal) { 16 } else { 2 };
    let cut = match start {
        Start::State { advance: true, .. } => Cut::whole(groups),
        _ => Cut::new(groups, 16 * weight, 4),
    };
    let kernel: Arc<dyn CpuKernel> = match (distribution, data_type) {
        (Uniform, DataType::Float) => Arc::new(Fill::<f32, kernels::UniformF32>::new(isa, len, start, cut)),
        (Uniform, DataType::Half) => Arc::new(Fill::<F16, kernels::Uniform>::new(isa, len, start, cut)),
        (Uniform, DataType::Bfloat16) => Arc::new(Fill::<Bf16, kernels::Uniform>::new(isa, len, start, cut)),
        (Uniform, DataType::Double) => Arc::new(Fill::<f64, kernels::Uniform>::new(isa, len, start, cut)),
        (Normal, DataType::Float) => Arc::new(Fill::<f32, kernels::Normals>::new(isa, len, start, cut)),
        (Normal, DataType::Half) => Arc::new(Fill::<F16, Rounded<kernels::Normals>>::new(isa, len, start, cut)),
        (Normal, DataType::Bfloat16) => Arc::new(Fill::<Bf16, Rounded<kernels::Normals>>::new(isa, len, start, cut)),
        (Normal, DataType::Double) => Arc::new(Fill::<f64, kernels::Normals>::new(isa, len, start, cut)),
        (TruncatedNormal, DataType::Float) => Arc::new(Fill::<f32, kernels::Truncated>::new(isa, len, start, cut)),
        (TruncatedNormal, DataType::Half) => Arc::new(Fill::<F16, Rounded<kernels::Truncated>>::new(isa, len, start, cut)),
        (TruncatedNormal, DataType::Bfloat16) => Arc::new(Fill::<Bf16, Rounded<kernels::Truncated>>::new(isa, len, start, cut)),
        (TruncatedNormal, DataType::Double) => Arc::new(Fill::<f64, kernels::Truncated>::new(isa, len, start, cut)),
        (UniformInt, DataType::Int32) => Arc::new(Fill::<i32, kernels::Integers>::new(isa, len, start, cut)),
        (UniformInt, DataType::Int64) => Arc::new(Fill::<i64, kernels::Integers>::new(isa, len, start, cut)),
        _ => return Err(refused()),
    };
    let cost = Cost { flops: (len as u64 * 10 * weight) as f64, bytes: (len * size) as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

#[cfg(test)]
mod tests;
