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

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes `of(element)` of this row to `to`, a row as long, which may be this one.
    #[inline(always)]
    pub(super) fn each(&self, to: Row<T>, of: impl Fn(T) -> T) {
        for at in (0..self.len).step_by(LANES) {
            let (group, _) = self.get(at, T::ZERO);
            to.put(at, group.map(&of));
        }
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

    /// The group of elements from `at` on, which is inside the row, and how many there are; the other lanes are `rest`.
    #[inline(always)]
    pub(super) fn get(&self, at: usize, rest: T) -> ([T; LANES], usize) {
        let len = (self.len - at).min(LANES);
        // SAFETY: `len` elements from `at` on are inside the row.
        unsafe {
            let from = self.start.add(at);
            if len == LANES {
                return (from.cast::<[T; LANES]>().read(), LANES);
            }
            let mut group = [rest; LANES];
            std::ptr::copy_nonoverlapping(from, group.as_mut_ptr(), len);
            (group, len)
        }
    }

    /// Writes the group at `at`.
    #[inline(always)]
    pub(super) fn put(&self, at: usize, group: [T; LANES]) {
        let len = (self.len - at).min(LANES);
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
        for at in (0..self.len).step_by(LANES) {
            let (group, _) = self.get(at, T::LOWEST);
            for lane in 0..LANES {
                lanes[lane] = if group[lane] > lanes[lane] { group[lane] } else { lanes[lane] };
            }
        }
        fold(lanes, |a, b| if a > b { a } else { b })
    }

    /// The sum of `of(group, at)` over the row's groups; `of` leaves 0 in lanes beyond the row.
    #[inline(always)]
    pub(super) fn sum(&self, mut of: impl FnMut([T; LANES], usize, usize) -> [T; LANES]) -> T {
        let (mut blocks, mut block) = ([T::ZERO; LANES], [T::ZERO; LANES]);
        let mut groups = 0;
        for at in (0..self.len).step_by(LANES) {
            let (group, len) = self.get(at, T::ZERO);
            let terms = of(group, at, len);
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
        }
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
