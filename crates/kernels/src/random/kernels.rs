//! The kernels: an output filled group by group from a start that is kept or given.

use std::marker::PhantomData;
use std::ops::Range;

use plimsoll_base::DataType;
use plimsoll_device::{Args, CpuKernel, Fault};

use super::BLOCKS_PER_ELEMENT;
use super::philox::{LANES, Philox, key_counter};
use super::sample::{Normal, Sample, normals, truncated, unit_f32};
use crate::cut::Cut;
use crate::element::InFloats;
use crate::simd::{Isa, Vectorised};

/// Where the generator starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// At the count of blocks that the argument before the output holds, which is advanced where `advance`.
    State { seed: u64, seed2: u64, advance: bool },
    /// At the key and counter that the first two arguments hold.
    Given,
}

/// How the elements of an output are made.
pub(super) trait Draw<T>: Send + Sync + std::fmt::Debug + 'static {
    /// Inputs that it takes: the bounds, or none.
    const INPUTS: usize = 0;
    /// The bounds that it knows from those inputs.
    type Bounds: Copy;

    /// Looks at the inputs, each a pointer to one `T`.
    ///
    /// # Safety
    /// The inputs are there and aligned.
    unsafe fn bounds(inputs: &[*mut u8]) -> Result<Self::Bounds, Fault>;

    /// Elements of a group.
    const PER_GROUP: usize;

    /// Makes the elements from group `first` on; `philox` stands at group 0.
    fn fill<const FMA: bool>(philox: Philox, bounds: Self::Bounds, first: u64, output: &mut [T]);
}

/// Makes the output of a random operation.
#[derive(Debug)]
pub(super) struct Fill<T, D> {
    len: usize,
    start: Start,
    /// A unit is a group.
    cut: Cut,
    isa: Isa,
    marker: PhantomData<fn(T) -> D>,
}

impl<T, D> Fill<T, D> {
    pub(super) fn new(isa: Isa, len: usize, start: Start, cut: Cut) -> Fill<T, D> {
        Fill { len, start, cut, isa, marker: PhantomData }
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static, D: Draw<T>> CpuKernel for Fill<T, D> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let groups = self.cut.units(chunks);
        if groups.is_empty() {
            return Ok(());
        }
        // SAFETY: the arguments as the constructors document them; the state and keys are read without counting on
        // alignment.
        unsafe {
            let (philox, bounds, output) = match self.start {
                Start::State { seed, seed2, .. } => {
                    let done = args.pointers[D::INPUTS].cast::<u64>().read_unaligned();
                    (Philox::seeded(seed, seed2).skip(done), 0..D::INPUTS, D::INPUTS + 1)
                }
                Start::Given => {
                    let key = args.pointers[0].cast::<u64>().read_unaligned();
                    let counter = args.pointers[1].cast::<[u64; 2]>().read_unaligned();
                    (Philox::new(key, counter), 2..2 + D::INPUTS, 2 + D::INPUTS)
                }
            };
            let bounds = D::bounds(&args.pointers[bounds])?;
            let first = groups.start as u64;
            let elements = groups.start * D::PER_GROUP..(groups.end * D::PER_GROUP).min(self.len);
            self.isa.run(RandomPiece::<T, D> { philox, bounds, first, output: args.output(output, elements) });
            if let Start::State { advance: true, .. } = self.start {
                advance(args.pointers[D::INPUTS], (self.len as u64).wrapping_mul(BLOCKS_PER_ELEMENT));
            }
        }
        Ok(())
    }
}

struct RandomPiece<'a, T, D: Draw<T>> {
    philox: Philox,
    bounds: D::Bounds,
    first: u64,
    output: &'a mut [T],
}

impl<T, D: Draw<T>> Vectorised for RandomPiece<'_, T, D> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        D::fill::<FMA>(self.philox, self.bounds, self.first, self.output);
    }
}

/// # Safety
/// `state` points to 8 bytes without another user meanwhile.
pub(super) unsafe fn advance(state: *mut u8, blocks: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let state = state.cast::<u64>();
        state.write_unaligned(state.read_unaligned().wrapping_add(blocks));
    }
}

/// Adds to a state, and says what it was.
#[derive(Debug)]
pub(super) struct Reserve {
    pub(super) blocks: u64,
}

impl CpuKernel for Reserve {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if !chunks.is_empty() {
            // SAFETY: both arguments have 8 bytes.
            unsafe {
                args.pointers[1].cast::<u64>().write_unaligned(args.pointers[0].cast::<u64>().read_unaligned());
                advance(args.pointers[0], self.blocks);
            }
        }
        Ok(())
    }
}

/// The two numbers of a seed.
///
/// # Safety
/// `seed` points to two integers of the type: of 8 bytes, or of 4.
pub(super) unsafe fn seed_of(seed: *mut u8, seed_type: DataType) -> [u64; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        match seed_type {
            DataType::Int32 => seed.cast::<[i32; 2]>().read_unaligned().map(|seed| i64::from(seed) as u64),
            DataType::Uint32 => seed.cast::<[u32; 2]>().read_unaligned().map(u64::from),
            _ => seed.cast::<[u64; 2]>().read_unaligned(),
        }
    }
}

/// Makes a key and counter of a seed.
#[derive(Debug)]
pub(super) struct KeyCounter {
    /// Int32, int64, or the same without a sign.
    pub(super) seed_type: DataType,
}

impl CpuKernel for KeyCounter {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if chunks.is_empty() {
            return Ok(());
        }
        // SAFETY: argument 0 holds two integers of the width that was prepared for; the outputs hold 1 and 2 of 8 bytes.
        unsafe {
            let (key, counter) = key_counter(seed_of(args.pointers[0], self.seed_type));
            args.pointers[1].cast::<u64>().write_unaligned(key);
            args.pointers[2].cast::<[u64; 2]>().write_unaligned(counter);
        }
        Ok(())
    }
}

/// Calls `make(generator at the group)` for each group and writes the numbers that fit.
#[inline(always)]
fn by_group<T: Copy, const GROUP: usize>(output: &mut [T], first: u64, make: impl Fn(u64) -> [T; GROUP], per_group: usize) {
    for (number, elements) in output.chunks_mut(per_group).enumerate() {
        let made = make(first + number as u64);
        elements.copy_from_slice(&made[..elements.len()]);
    }
}

#[derive(Debug)]
pub(super) struct Uniform;

impl<T: Sample> Draw<T> for Uniform {
    type Bounds = ();
    unsafe fn bounds(_: &[*mut u8]) -> Result<(), Fault> {
        Ok(())
    }
    const PER_GROUP: usize = T::PER_BLOCK;
    #[inline(always)]
    fn fill<const FMA: bool>(philox: Philox, (): (), first: u64, output: &mut [T]) {
        let make = |group| {
            let block = philox.skip(group).block();
            [0, 1, 2, 3].map(|at: usize| T::uniform(block, at % T::PER_BLOCK))
        };
        by_group(output, first, make, T::PER_BLOCK);
    }
}

/// As [`Uniform`] for float, many groups at once.
#[derive(Debug)]
pub(super) struct UniformF32;

impl Draw<f32> for UniformF32 {
    type Bounds = ();
    unsafe fn bounds(_: &[*mut u8]) -> Result<(), Fault> {
        Ok(())
    }
    const PER_GROUP: usize = 4;
    #[inline(always)]
    fn fill<const FMA: bool>(philox: Philox, (): (), first: u64, output: &mut [f32]) {
        let (whole, rest) = output.as_chunks_mut::<{ 4 * LANES }>();
        let done = first + (whole.len() * LANES) as u64;
        for (number, elements) in whole.iter_mut().enumerate() {
            let blocks = philox.skip(first + (number * LANES) as u64).blocks();
            for lane in 0..LANES {
                for word in 0..4 {
                    elements[4 * lane + word] = unit_f32(blocks[word][lane]);
                }
            }
        }
        <Uniform as Draw<f32>>::fill::<FMA>(philox, (), done, rest);
    }
}

#[derive(Debug)]
pub(super) struct Normals;

impl<T: Normal> Draw<T> for Normals {
    type Bounds = ();
    unsafe fn bounds(_: &[*mut u8]) -> Result<(), Fault> {
        Ok(())
    }
    const PER_GROUP: usize = T::PER_BLOCK;
    #[inline(always)]
    fn fill<const FMA: bool>(philox: Philox, (): (), first: u64, output: &mut [T]) {
        by_group(output, first, |group| normals::<T>(philox.skip(group).block()), T::PER_BLOCK);
    }
}

#[derive(Debug)]
pub(super) struct Truncated;

impl<T: Normal> Draw<T> for Truncated {
    type Bounds = ();
    unsafe fn bounds(_: &[*mut u8]) -> Result<(), Fault> {
        Ok(())
    }
    const PER_GROUP: usize = T::PER_BLOCK;
    #[inline(always)]
    fn fill<const FMA: bool>(philox: Philox, (): (), first: u64, output: &mut [T]) {
        let blocks = T::PER_BLOCK as u64 * BLOCKS_PER_ELEMENT / 4;
        by_group(output, first, |group| truncated::<T>(philox.skip(group.wrapping_mul(blocks))), T::PER_BLOCK);
    }
}

/// Floats of a distribution, rounded to a type of two bytes.
#[derive(Debug)]
pub(super) struct Rounded<D>(PhantomData<fn() -> D>);

impl<E: InFloats, D: Draw<f32, Bounds = ()>> Draw<E> for Rounded<D> {
    type Bounds = ();
    unsafe fn bounds(_: &[*mut u8]) -> Result<(), Fault> {
        Ok(())
    }
    const PER_GROUP: usize = D::PER_GROUP;
    #[inline(always)]
    fn fill<const FMA: bool>(philox: Philox, (): (), first: u64, output: &mut [E]) {
        const GROUPS: usize = 16;
        let mut floats = [0f32; 4 * GROUPS];
        for (number, elements) in output.chunks_mut(D::PER_GROUP * GROUPS).enumerate() {
            let floats = &mut floats[..elements.len()];
            D::fill::<FMA>(philox, (), first + (number * GROUPS) as u64, floats);
            for (element, float) in elements.iter_mut().zip(floats) {
                *element = E::narrow(*float);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Integers;

macro_rules! integers {
    ($t:ident, $unsigned:ident, $group:literal) => {
        impl Draw<$t> for Integers {
            const INPUTS: usize = 2;
            /// The lower bound and how many numbers there are.
            type Bounds = ($t, $unsigned);
            unsafe fn bounds(inputs: &[*mut u8]) -> Result<($t, $unsigned), Fault> {
                // SAFETY: the caller promises both.
                let (low, high) = unsafe { (*inputs[0].cast::<$t>(), *inputs[1].cast::<$t>()) };
                if low >= high {
                    return Err(Fault::invalid("Need minval < maxval, got {0} >= {1}", [i64::from(low), i64::from(high)]));
                }
                Ok((low, (high as $unsigned).wrapping_sub(low as $unsigned)))
            }
            const PER_GROUP: usize = $group;
            #[inline(always)]
            fn fill<const FMA: bool>(philox: Philox, (low, range): ($t, $unsigned), first: u64, output: &mut [$t]) {
                let make = |group| -> [$t; $group] {
                    let block = philox.skip(group).block();
                    std::array::from_fn(|at| low.wrapping_add(($unsigned::uniform(block, at) % range) as $t))
                };
                by_group(output, first, make, $group);
            }
        }
    };
}
integers!(i32, u32, 4);
integers!(i64, u64, 2);
