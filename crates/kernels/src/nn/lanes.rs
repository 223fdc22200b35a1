//! A row of numbers in groups of lanes.

use crate::simd::math;

/// Lanes of a group.
pub(super) const LANES: usize = 16;

/// Groups that are summed before their sum is added to the sum of sums.
const GROUPS_PER_BLOCK: usize = 32;

/// A float type.
pub(super) trait Real:
    Copy
    + PartialOrd
    + Send
    + Sync
    + std::fmt::Debug
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;
    fn exp<const FMA: bool>(self) -> Self;
    fn ln(self) -> Self;
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const LOWEST: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn exp<const FMA: bool>(self) -> f32 {
        math::exp::<FMA>(self)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        f32::ln(self)
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const LOWEST: f64 = f64::NEG_INFINITY;
    #[inline(always)]
    fn exp<const FMA: bool>(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        f64::ln(self)
    }
}

/// Runs a body for each group of a row: whole groups first, whose length the compiler knows, so that they are read and written as
/// vectors; then the rest. The other lanes of the rest are `$others`.
macro_rules! for_groups {
    ($row:expr, $others:expr, |$at:ident, $group:ident, $len:ident| $body:block) => {
        let row = $row;
        let whole = row.len - row.len % LANES;
        for $at in (0..whole).step_by(LANES) {
            let $len = LANES;
            // SAFETY: a whole group from there on is inside the row.
            let $group = unsafe { row.start.add($at).cast::<[T; LANES]>().read() };
            $body
        }
        if whole < row.len {
            let ($at, $len) = (whole, row.len - whole);
            let $group = row.rest(whole, $len, $others);
            $body
        }
    };
}

/// A row of one tensor; kept as a pointer because a result may lie where its input lies.
#[derive(Clone, Copy)]
pub(super) struct Row<T> {
    start: *mut T,
    len: usize,
}

impl<T: Real> Row<T> {
    /// # Safety
    /// While the row lives, `len` elements are at `start`, to write too where [`Row::put`] is called, and no thread but this
    /// one writes them.
    #[inline(always)]
    pub(super) unsafe fn new(start: *mut T, len: usize) -> Row<T> {
        Row { start, len }
    }

    /// The same row, which the compiler takes for another one. Where it knows that a loop reads and writes one row, it gathers lanes of
    /// several groups, which is slow.
    #[inline(always)]
    fn apart(self) -> Row<T> {
        Row { start: std::hint::black_box(self.start), ..self }
    }

    /// Writes the elements of this row times `factor` to `to`, a row as long, which may be this one.
    #[inline(always)]
    pub(super) fn scale(&self, to: Row<T>, factor: T) {
        let to = to.apart();
        for_groups!(self, T::ZERO, |at, group, len| {
            let mut scaled = group;
            for value in &mut scaled {
                *value = *value * factor;
            }
            to.put(at, scaled, len);
        });
    }

    /// Writes the elements of this row less `first` less `second` to `to`, a row as long, which may be this one.
    #[inline(always)]
    pub(super) fn subtract(&self, to: Row<T>, first: T, second: T) {
        let to = to.apart();
        for_groups!(self, T::ZERO, |at, group, len| {
            let mut less = group;
            for value in &mut less {
                *value = (*value - first) - second;
            }
            to.put(at, less, len);
        });
    }

    /// Takes 1 off an element.
    #[inline(always)]
    pub(super) fn subtract_one(&self, at: usize) {
        let value = self.element(at) - T::ONE;
        // SAFETY: `element` has checked the place.
        unsafe { *self.start.add(at) = value };
    }

    #[inline(always)]
    pub(super) fn element(&self, at: usize) -> T {
        assert!(at < self.len);
        // SAFETY: inside the row.
        unsafe { *self.start.add(at) }
    }

    /// The `len` elements from `at` on, which are inside the row, at most a group of them; the other lanes are `others`.
    #[inline(always)]
    pub(super) fn get(&self, at: usize, len: usize, others: T) -> [T; LANES] {
        if len == LANES {
            // SAFETY: as many elements from there on are inside the row.
            return unsafe { self.start.add(at).cast::<[T; LANES]>().read() };
        }
        self.rest(at, len, others)
    }

    /// As [`Row::get`], for less than a group.
    #[inline(always)]
    fn rest(&self, at: usize, len: usize, others: T) -> [T; LANES] {
        let mut group = [others; LANES];
        // SAFETY: as many elements from `at` on are inside the row, and no more than lanes.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), group.as_mut_ptr(), len) };
        group
    }

    /// Writes the first `len` lanes of a group to the elements from `at` on, which are inside the row.
    #[inline(always)]
    pub(super) fn put(&self, at: usize, group: [T; LANES], len: usize) {
        // SAFETY: as in `get`.
        unsafe {
            let to = self.start.add(at);
            if len == LANES {
                to.cast::<[T; LANES]>().write(group);
            } else {
                std::ptr::copy_nonoverlapping(group.as_ptr(), to, len);
            }
        }
    }

    /// The largest element.
    #[inline(always)]
    pub(super) fn max(&self) -> T {
        let mut lanes = [T::LOWEST; LANES];
        for_groups!(self, T::LOWEST, |_at, group, _len| {
            for lane in 0..LANES {
                lanes[lane] = if group[lane] > lanes[lane] { group[lane] } else { lanes[lane] };
            }
        });
        fold(lanes, |a, b| if a > b { a } else { b })
    }

    /// The sum of the terms of the row's groups.
    #[inline(always)]
    pub(super) fn sum<const FMA: bool>(&self, terms: &mut impl Terms<T>) -> T {
        let (mut blocks, mut block) = ([T::ZERO; LANES], [T::ZERO; LANES]);
        let mut groups = 0;
        for_groups!(self, T::ZERO, |at, group, len| {
            let terms = terms.of::<FMA>(group, at, len);
            for lane in 0..LANES {
                block[lane] = block[lane] + terms[lane];
            }
            groups += 1;
            if groups % GROUPS_PER_BLOCK == 0 {
                for lane in 0..LANES {
                    blocks[lane] = blocks[lane] + block[lane];
                    block[lane] = T::ZERO;
                }
            }
        });
        for lane in 0..LANES {
            blocks[lane] = blocks[lane] + block[lane];
        }
        fold(blocks, |a, b| a + b)
    }
}

/// Joins the lanes as a tree.
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], join: impl Fn(T, T) -> T) -> T {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

/// The terms of a sum over a row. (A closure would not do: it may stay a function of its own, compiled for no vectors.)
pub(super) trait Terms<T> {
    /// The terms of the group at `at`, 0 from lane `len` on. `#[inline(always)]`.
    fn of<const FMA: bool>(&mut self, group: [T; LANES], at: usize, len: usize) -> [T; LANES];
}

/// The terms `exp(x - max)`; the last group's stay in `last`, and all are written to `to` where there is one.
pub(super) struct Powers<T> {
    pub(super) max: T,
    pub(super) last: [T; LANES],
    pub(super) to: Option<Row<T>>,
}

impl<T: Real> Terms<T> for Powers<T> {
    #[inline(always)]
    fn of<const FMA: bool>(&mut self, group: [T; LANES], at: usize, len: usize) -> [T; LANES] {
        self.last = exp_shifted::<T, FMA>(group, self.max, len);
        if let Some(to) = self.to {
            to.put(at, self.last, len);
        }
        self.last
    }
}

/// Writes `exp(x - max) / sum(exp(x - max))` to `to`, which may be `from`, and returns the sum.
#[inline(always)]
pub(super) fn shares<T: Real, const FMA: bool>(from: Row<T>, max: T, to: Row<T>) -> T {
    if from.len <= LANES {
        // The powers stay in registers.
        let mut powers = Powers { max, last: [T::ZERO; LANES], to: None };
        let sum = from.sum::<FMA>(&mut powers);
        let scale = T::ONE / sum;
        for power in &mut powers.last {
            *power = *power * scale;
        }
        to.put(0, powers.last, from.len);
        return sum;
    }
    let sum = from.sum::<FMA>(&mut Powers { max, last: [T::ZERO; LANES], to: Some(to) });
    to.scale(to, T::ONE / sum);
    sum
}

/// `exp(group - shift)` in the first `len` lanes, 0 in the others.
#[inline(always)]
pub(super) fn exp_shifted<T: Real, const FMA: bool>(group: [T; LANES], shift: T, len: usize) -> [T; LANES] {
    let mut result = [T::ZERO; LANES];
    for lane in 0..LANES {
        let value = (group[lane] - shift).exp::<FMA>();
        result[lane] = if lane < len { value } else { T::ZERO };
    }
    result
}
