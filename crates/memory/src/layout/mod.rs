//! Offsets in one arena for buffers whose lifetimes are known.
//!
//! Finding the smallest arena is NP-hard. [`pack`] takes the best layout of:
//!
//! 1. a sweep over time that gives each buffer the tightest gap (`sweep`);
//! 2. greedy packing in several orders, each buffer into the lowest or the tightest gap (`greedy`);
//! 3. squeaky wheel optimization of these orders (`improve`), in turns with
//! 4. a complete search (`search`), where the buffers are few.
//!
//! Each stops as soon as the peak is near enough to a lower bound. How much is tried is decided by counted work, never by time,
//! so that the same buffers always get the same offsets.

mod greedy;
mod improve;
mod occupied;
mod problem;
mod search;
mod steps;
mod sweep;

use improve::Improve;
use problem::Problem;
use search::Search;
use steps::Steps;

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
    /// The work it took, in units of [`Effort::steps`].
    pub steps: u64,
}

/// How much is tried for a layout. Some layout is found with any numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many buffers or pieces of occupied memory are looked at, about. A step takes some ten nanoseconds.
    pub steps: u64,
    /// What is tried ends as soon as a layout has a peak of at most this.
    pub enough: Enough,
}

/// How low a peak has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// As low as any can be.
    Least,
    /// Within 1/65536 of the least that is thinkable.
    Near,
    /// So many bytes; a layout between these and the least is as good as any.
    Capacity(u64),
}

/// The most steps of [`pack`], less than half a second; the least, if a layout as low as the lower bound is not found before; and how
/// many each buffer adds.
const MOST_STEPS: u64 = 32_000_000;
const LEAST_STEPS: u64 = 500_000;
const STEPS_OF_A_BUFFER: u64 = 8_000;

/// Of more buffers than these, [`pack`] takes a layout that is nearly as low as can be.
const MANY: usize = 1000;

/// The first turn of a search has so many steps for each buffer; each turn has twice as many as the one before.
const TURN: u64 = 500;

/// Packs the buffers: two that are live at the same step share no byte. Deterministic.
pub fn pack(buffers: &[Buffer]) -> Layout {
    let steps = LEAST_STEPS.saturating_add((buffers.len() as u64).saturating_mul(STEPS_OF_A_BUFFER)).min(MOST_STEPS);
    pack_with(buffers, Effort { steps, enough: if buffers.len() > MANY { Enough::Near } else { Enough::Least } })
}

/// As [`pack`], with more or less effort.
pub fn pack_with(buffers: &[Buffer], effort: Effort) -> Layout {
    let mut offsets = vec![0; buffers.len()];
    let problem = Problem::new(buffers, &mut offsets);
    let least = problem.floor;
    let (enough, only) = match effort.enough {
        Enough::Least => (least, false),
        Enough::Near => (least.saturating_add(least / 65_536), false),
        Enough::Capacity(bytes) => (bytes.max(least), true),
    };
    let mut steps = Steps::new(effort.steps);
    let swept = sweep::pack(&problem);
    let best = if swept.peak <= enough { swept } else { better(&problem, swept, enough, only, &mut steps) };
    for (item, offset) in problem.items.iter().zip(&best.offsets) {
        offsets[item.index as usize] = *offset;
    }
    Layout { offsets, peak: best.peak.max(problem.base), lower_bound: problem.most_live, steps: steps.done() }
}

/// The best layout that is found from one on. With `only`, the search looks for nothing above what is `enough`.
fn better(problem: &Problem, from: Packed, enough: u64, only: bool, steps: &mut Steps) -> Packed {
    let mut improve = Improve::new(problem, from, enough, steps);
    let mut search = if improve.is_done() { None } else { Search::new(problem, steps) };
    let count = problem.items.len() as u64;
    let mut turn = TURN.saturating_mul(count);
    while !improve.is_done() && steps.left() > 0 {
        let before = steps.done();
        // A turn of less would hardly place every item once.
        if let Some(search) = search.as_mut().filter(|_| turn / count >= count) {
            let (spent, is_over) = search.run(&mut improve.best, enough, only, steps.part(turn));
            steps.spend(spent);
            if is_over {
                break;
            }
        }
        let spent = improve.run(steps.part(turn));
        steps.spend(spent);
        if steps.done() == before {
            break;
        }
        turn = turn.saturating_mul(2);
    }
    improve.best
}

/// An offset for each item.
struct Packed {
    offsets: Vec<u64>,
    peak: u64,
}

fn align_up(offset: u64, align: u64) -> u64 {
    offset.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}
