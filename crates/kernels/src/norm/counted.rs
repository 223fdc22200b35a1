//! Which elements of a gradient count: all, or those whose result of the normalization a Relu lets pass.

use super::isa::registers;
use crate::simd::Lanes;

/// A choice among elements of dy.
pub(super) trait Counted {
    /// A channel's numbers that the choice needs.
    type Of<L: Lanes>: Copy;

    /// These numbers of `W` registers of channels, or with `TAIL` of one of `count`.
    ///
    /// # Safety
    /// The processor has the set of `L`; the channels are there.
    unsafe fn of<L: Lanes, const W: usize, const TAIL: bool>(&self, channel: usize, count: usize) -> [Self::Of<L>; W];

    /// `dy` where it counts, else 0. The difference is that of x from the mean.
    ///
    /// # Safety
    /// The processor has the set of `L`.
    unsafe fn counted<L: Lanes>(dy: L, difference: L, of: Self::Of<L>) -> L;
}

/// All.
#[derive(Clone, Copy)]
pub(super) struct Every;

impl Counted for Every {
    type Of<L: Lanes> = ();

    #[inline(always)]
    unsafe fn of<L: Lanes, const W: usize, const TAIL: bool>(&self, _: usize, _: usize) -> [(); W] {
        [(); W]
    }

    #[inline(always)]
    unsafe fn counted<L: Lanes>(dy: L, _: L, (): ()) -> L {
        dy
    }
}

/// Those whose y, `difference * factor + offset`, is above 0: it is computed anew, with the bits that it had.
#[derive(Clone, Copy)]
pub(super) struct Normal {
    /// A number of each channel.
    pub(super) factor: *const f32,
    pub(super) offset: *const f32,
}

impl Counted for Normal {
    type Of<L: Lanes> = (L, L);

    #[inline(always)]
    unsafe fn of<L: Lanes, const W: usize, const TAIL: bool>(&self, channel: usize, count: usize) -> [(L, L); W] {
        // SAFETY: the caller's promise.
        unsafe {
            let factors = registers::<L, W, TAIL>(self.factor.add(channel), count);
            let offsets = registers::<L, W, TAIL>(self.offset.add(channel), count);
            std::array::from_fn(|w| (factors[w], offsets[w]))
        }
    }

    #[inline(always)]
    unsafe fn counted<L: Lanes>(dy: L, difference: L, (factor, offset): (L, L)) -> L {
        // SAFETY: the caller's promise.
        unsafe { dy.where_positive(difference.madd(factor, offset)) }
    }
}
