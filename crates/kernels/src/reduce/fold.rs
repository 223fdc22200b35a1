//! The fold: an operation with its identity, over the types that TensorFlow has it for.

use std::fmt;

/// A fold of elements `T`: `finish(join(lift(x0), lift(x1), ..), count)`.
///
/// `join` is associative and commutative but for rounding; a kernel chooses the order by shape.
pub(super) trait Fold<T>: Copy + Default + Send + Sync + fmt::Debug + 'static {
    type Acc: Copy + Send + Sync + fmt::Debug + 'static;
    const IDENTITY: Self::Acc;
    fn lift(value: T) -> Self::Acc;
    fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn finish(acc: Self::Acc, count: usize) -> T;
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prod;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Max;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Min;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct All;
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Any;
/// Half the sum of squares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HalfSquares;

macro_rules! fold {
    ($op:ty, $t:ty, $acc:ty, $identity:expr, |$x:ident| $lift:expr, |$a:ident, $b:ident| $join:expr, |$sum:ident, $count:ident| $finish:expr) => {
        impl Fold<$t> for $op {
            type Acc = $acc;
            const IDENTITY: $acc = $identity;
            #[inline(always)]
            fn lift($x: $t) -> $acc {
                $lift
            }
            #[inline(always)]
            fn join($a: $acc, $b: $acc) -> $acc {
                $join
            }
            #[inline(always)]
            fn finish($sum: $acc, $count: usize) -> $t {
                $finish
            }
        }
    };
}

macro_rules! floats {
    ($($t:ident)*) => {$(
        fold!(Sum, $t, $t, 0.0, |x| x, |a, b| a + b, |acc, _count| acc);
        fold!(Mean, $t, $t, 0.0, |x| x, |a, b| a + b, |acc, count| acc / count as $t);
        fold!(HalfSquares, $t, $t, 0.0, |x| x * x, |a, b| a + b, |acc, _count| acc * 0.5);
        fold!(Prod, $t, $t, 1.0, |x| x, |a, b| a * b, |acc, _count| acc);
        // A NaN on either side wins, as in TensorFlow.
        fold!(Max, $t, $t, $t::NEG_INFINITY, |x| x, |a, b| if a > b || a.is_nan() { a } else { b }, |acc, _count| acc);
        fold!(Min, $t, $t, $t::INFINITY, |x| x, |a, b| if a < b || a.is_nan() { a } else { b }, |acc, _count| acc);
    )*};
}
floats!(f32 f64);

macro_rules! integers {
    ($($t:ident)*) => {$(
        fold!(Sum, $t, $t, 0, |x| x, |a, b| a.wrapping_add(b), |acc, _count| acc);
        // The sum is taken in 64 bits, the quotient rounds towards zero; of nothing it is 0.
        fold!(Mean, $t, i64, 0, |x| x as i64, |a, b| a.wrapping_add(b), |acc, count| (acc / (count as i64).max(1)) as $t);
        fold!(Prod, $t, $t, 1, |x| x, |a, b| a.wrapping_mul(b), |acc, _count| acc);
        fold!(Max, $t, $t, $t::MIN, |x| x, |a, b| a.max(b), |acc, _count| acc);
        fold!(Min, $t, $t, $t::MAX, |x| x, |a, b| a.min(b), |acc, _count| acc);
    )*};
}
integers!(i32 i64 u8);

// Booleans are bytes 0 and 1.
fold!(All, u8, u8, 1, |x| x, |a, b| a & b, |acc, _count| acc);
fold!(Any, u8, u8, 0, |x| x, |a, b| a | b, |acc, _count| acc);

/// Joins the lanes as a tree.
#[inline(always)]
pub(super) fn join_lanes<T, F: Fold<T>, const N: usize>(mut lanes: [F::Acc; N]) -> F::Acc {
    let mut width = N;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] = F::join(lanes[lane], lanes[lane + width]);
        }
    }
    lanes[0]
}

/// Joins a run of values pairwise, whatever its length: the order depends on the length alone.
pub(super) struct Cascade<A> {
    slots: [A; 64],
    count: u64,
}

impl<A: Copy> Cascade<A> {
    #[inline(always)]
    pub(super) fn new(identity: A) -> Cascade<A> {
        Cascade { slots: [identity; 64], count: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, mut value: A, join: impl Fn(A, A) -> A) {
        let level = self.count.trailing_ones() as usize;
        for slot in &self.slots[..level] {
            value = join(*slot, value);
        }
        self.slots[level & 63] = value;
        self.count += 1;
    }

    /// Nothing where nothing was pushed.
    #[inline(always)]
    pub(super) fn finish(&self, join: impl Fn(A, A) -> A) -> Option<A> {
        let mut total: Option<A> = None;
        let mut left = self.count;
        while left != 0 {
            let slot = self.slots[left.trailing_zeros() as usize];
            total = Some(match total {
                None => slot,
                Some(total) => join(slot, total),
            });
            left &= left - 1;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cascade_joins_everything_in_order() {
        for len in 0..70usize {
            let mut cascade = Cascade::new((0usize, 0usize));
            // Ranges that must meet: joins out of order would not be adjacent.
            let join = |a: (usize, usize), b: (usize, usize)| {
                assert_eq!(a.1, b.0);
                (a.0, b.1)
            };
            (0..len).for_each(|at| cascade.push((at, at + 1), join));
            assert_eq!(cascade.finish(join), (len > 0).then_some((0, len)));
        }
    }
}
