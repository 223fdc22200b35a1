//! Loops over channels, compiled for every instruction set.

use std::ops::Range;

use crate::simd::{Four, Isa, Lanes};

/// Code over registers of some size. `run` and all that it calls must be `#[inline(always)]`.
pub(super) trait OverLanes {
    /// # Safety
    /// The processor has the instruction set of `L`.
    unsafe fn run<L: Lanes>(self);
}

/// Runs `code` as compiled for that set.
///
/// # Safety
/// The processor has the set.
pub(super) unsafe fn run<C: OverLanes>(isa: Isa, code: C) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(code),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(code),
            _ => code.run::<Four>(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<C: OverLanes>(code: C) {
    // SAFETY: the set is there, as the callers promise.
    unsafe { code.run::<std::arch::x86_64::__m256>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<C: OverLanes>(code: C) {
    // SAFETY: as above.
    unsafe { code.run::<std::arch::x86_64::__m512>() }
}

/// A register of the channels from one on: all lanes, or with `TAIL` the first `count`.
#[inline(always)]
pub(super) unsafe fn load<L: Lanes, const TAIL: bool>(from: *const f32, count: usize) -> L {
    // SAFETY: the caller has so many channels there, and the set.
    unsafe { if TAIL { L::load_first(from, count) } else { L::load(from) } }
}

/// Writes the form that [`load`] reads.
#[inline(always)]
pub(super) unsafe fn store<L: Lanes, const TAIL: bool>(value: L, to: *mut f32, count: usize) {
    // SAFETY: as above.
    unsafe { if TAIL { value.store_first(to, count) } else { value.store(to) } }
}

/// `W` registers of channels, as [`load`].
#[inline(always)]
pub(super) unsafe fn registers<L: Lanes, const W: usize, const TAIL: bool>(from: *const f32, count: usize) -> [L; W] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut made = [L::zero(); W];
        for (w, register) in made.iter_mut().enumerate() {
            *register = load::<L, TAIL>(from.add(w * L::COUNT), count);
        }
        made
    }
}

/// Registers of channels side by side, so that sums do not wait for each other.
const WIDE: usize = 4;
/// As many where there are fewer: the lines of a row are read together.
const PAIR: usize = 2;

/// Something done to a block of rows, for `W` registers of channels at a time.
pub(super) trait OverBlock {
    /// # Safety
    /// The processor has the set of `L`; the rows are there, and `W` whole registers of channels, or with `TAIL` one of `count`.
    unsafe fn block<L: Lanes, const W: usize, const TAIL: bool>(&self, rows: &Range<usize>, channel: usize, count: usize);
}

/// Every block of so many rows, and in it every channel.
///
/// # Safety
/// The processor has the set of `L`; the rows and channels are there.
#[inline(always)]
pub(super) unsafe fn walk<L: Lanes, B: OverBlock>(rows: Range<usize>, block: usize, channels: Range<usize>, over: &B) {
    let mut start = rows.start;
    while start < rows.end {
        let block = start..(start + block).min(rows.end);
        let mut channel = channels.start;
        // SAFETY: the caller's promise.
        unsafe {
            while channel + WIDE * L::COUNT <= channels.end {
                over.block::<L, WIDE, false>(&block, channel, L::COUNT);
                channel += WIDE * L::COUNT;
            }
            if channel + PAIR * L::COUNT <= channels.end {
                over.block::<L, PAIR, false>(&block, channel, L::COUNT);
                channel += PAIR * L::COUNT;
            }
            if channel + L::COUNT <= channels.end {
                over.block::<L, 1, false>(&block, channel, L::COUNT);
                channel += L::COUNT;
            }
            if channel < channels.end {
                over.block::<L, 1, true>(&block, channel, channels.end - channel);
            }
        }
        start = block.end;
    }
}
