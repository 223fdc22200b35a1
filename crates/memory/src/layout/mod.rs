//! Offsets in one arena for buffers whose lifetimes are known.
//!
//! Finding the smallest arena is NP-hard. [`pack`] takes the best of several greedy orders. Then it aims lower for some rounds:
//! each time it places the buffer that did not fit earlier (squeaky wheel optimization, Joslin and Clements 1999). How much is
//! tried is decided by counted work, never by time, so that the same buffers always get the same offsets.

mod greedy;
mod live;
mod sweep;

use greedy::{Fit, Greedy};

/// A buffer and the steps during which it holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first step that touches it.
    pub first: u32,
    /// The last step that touches it; not before `first`.
    pub last: u32,
    /// How many bytes.
    pub bytes: u64,
    /// The offset is a multiple of this; 0 counts as 1.
    pub align: u64,
}

/// Where the buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The offset of each buffer, in the order given. Buffers of no bytes lie at 0.
    pub offsets: Vec<u64>,
    /// The end of the highest buffer: how many bytes the arena needs. The largest number if they are more than can be counted.
    pub peak: u64,
    /// The most bytes live at one step: no layout needs less.
    pub lower_bound: u64,
}

/// How much work [`pack`] does: pairs of buffers looked at that live at the same time. A third of a second, about.
const WORK: u64 = 20_000_000;

/// How often [`pack`] tries to better a layout at most.
const ROUNDS: u32 = 100;

/// Trying to better a layout aims at this fraction of the way down to the lower bound.
const STRIDES: u64 = 20;

/// A layout within this fraction of the lower bound is good enough.
const NEAR: u64 = 2048;

/// Packs the buffers: two that are live at the same step share no byte. Deterministic.
pub fn pack(buffers: &[Buffer]) -> Layout {
    pack_with(buffers, WORK, ROUNDS)
}

/// As [`pack`], looking at about `work` pairs of buffers and trying `rounds` times to better the layout, at most. Some
/// layout is found with any numbers.
pub fn pack_with(buffers: &[Buffer], work: u64, rounds: u32) -> Layout {
    let mut offsets = vec![0; buffers.len()];
    let (always, rest) = live::split(buffers);
    // Buffers that are live at every step lie at the bottom, in any layout without loss.
    let mut base = 0u64;
    for &index in &always {
        let buffer = &buffers[index as usize];
        offsets[index as usize] = align_up(base, buffer.align);
        base = offsets[index as usize].saturating_add(buffer.bytes);
    }
    let live = live::Live::new(buffers, &rest);
    let lower_bound = always.iter().fold(live.peak(), |sum, &index| sum.saturating_add(buffers[index as usize].bytes));
    let mut best = sweep::pack(buffers, &rest, base);
    let floor = base.max(lower_bound);
    let enough = floor.saturating_add(floor / NEAR);
    let mut left = work;
    let mut greedy = Greedy::new(buffers, &rest, base);
    let pairs = greedy.pairs();
    let mut best_order: Option<(u64, Vec<u32>, Fit)> = None;
    for order in live.orders(buffers, &rest) {
        for fit in [Fit::Lowest, Fit::Tightest] {
            if best.peak <= enough || pairs > left {
                break;
            }
            left -= pairs;
            if let Ok(found) = greedy.pack(&order, fit, u64::MAX) {
                if best_order.as_ref().is_none_or(|(peak, ..)| found.peak < *peak) {
                    best_order = Some((found.peak, order.clone(), fit));
                }
                if found.peak < best.peak {
                    best = found;
                }
            }
        }
    }
    if let Some((_, mut order, fit)) = best_order {
        for _ in 0..rounds {
            if best.peak <= enough || pairs > left {
                break;
            }
            left -= pairs;
            let aim = best.peak - ((best.peak - floor) / STRIDES).max(1);
            match greedy.pack(&order, fit, aim) {
                Ok(found) => best = found,
                // A buffer that did not fit goes earlier, and the order so made is tried next, good or bad.
                Err(at) => order[at / 2..=at].rotate_right(1),
            }
        }
    }
    for &index in &rest {
        offsets[index as usize] = best.offsets[index as usize];
    }
    Layout { offsets, peak: best.peak.max(base), lower_bound }
}

/// Offsets for some of the buffers; those of others are 0.
struct Packed {
    offsets: Vec<u64>,
    peak: u64,
}

fn align_up(offset: u64, align: u64) -> u64 {
    offset.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}
