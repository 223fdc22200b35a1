//! The loops: blocks of one vector register, read whole, computed, written whole. LLVM makes vector code of such a block
//! without asking whether operands overlap, so that computing in place costs nothing.

use std::mem::MaybeUninit;

use super::{OK, Status, StepFn};
use crate::simd::Isa;

/// An operation on one value; `FMA` as in [`crate::simd::math`].
pub(super) trait Op1 {
    type A: Copy;
    type R: Copy;
    /// Whether a whole block costs less than a few elements one by one.
    const HEAVY: bool;
    fn apply<const FMA: bool>(a: Self::A) -> Self::R;
}

/// An operation on two values.
pub(super) trait Op2 {
    type A: Copy;
    type R: Copy;
    fn apply<const FMA: bool>(a: Self::A, b: Self::A) -> Self::R;
}

/// An operation on two values that may have no result.
pub(super) trait Checked {
    type A: Copy;
    fn apply(a: Self::A, b: Self::A) -> Result<Self::A, Status>;
}

/// Compiles the loop `$body` for each instruction set, with blocks that fit its registers, and gives the one for `$isa`.
/// Fewer where little is won: blocks of one element are compiled once, and without a block for AVX-512 its processors run
/// the code for AVX2.
macro_rules! for_isa {
    ($isa:expr, $body:ident, $op:ident: $bound:path, [$wide:ident, $middle:ident, $small:ident]) => {{
        unsafe fn portable<$op: $bound, const L: usize>(n: usize, a: *const u8, b: *const u8, c: *const u8, out: *mut u8) -> Status {
            // SAFETY: the contract of `StepFn`.
            unsafe { $body::<$op, false, L>(n, a, b, c, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2<$op: $bound, const L: usize>(n: usize, a: *const u8, b: *const u8, c: *const u8, out: *mut u8) -> Status {
            // SAFETY: the contract of `StepFn`.
            unsafe { $body::<$op, true, L>(n, a, b, c, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512<$op: $bound, const L: usize>(n: usize, a: *const u8, b: *const u8, c: *const u8, out: *mut u8) -> Status {
            // SAFETY: the contract of `StepFn`.
            unsafe { $body::<$op, true, L>(n, a, b, c, out) }
        }
        // Constants, so that only reached code is compiled.
        #[cfg(target_arch = "x86_64")]
        if const { $wide > 0 } && $isa == Isa::Avx512 {
            return avx512::<$op, $wide>;
        }
        #[cfg(target_arch = "x86_64")]
        if const { $middle > 0 } && $isa >= Isa::Avx2 {
            return avx2::<$op, $middle>;
        }
        portable::<$op, $small>
    }};
}

// Not `array::map`: a function that is not marked to be inlined always is compiled for the portable instruction set.
#[inline(always)]
fn each<O: Op1, const FMA: bool, const L: usize>(x: [O::A; L]) -> [O::R; L] {
    let mut y = MaybeUninit::<[O::R; L]>::uninit();
    let mut at = 0;
    while at < L {
        // SAFETY: `at < L`.
        unsafe { y.as_mut_ptr().cast::<O::R>().add(at).write(O::apply::<FMA>(x[at])) };
        at += 1;
    }
    // SAFETY: all `L` elements were written.
    unsafe { y.assume_init() }
}

#[inline(always)]
fn zip<O: Op2, const FMA: bool, const L: usize>(x: [O::A; L], y: [O::A; L]) -> [O::R; L] {
    let mut z = MaybeUninit::<[O::R; L]>::uninit();
    let mut at = 0;
    while at < L {
        // SAFETY: `at < L`.
        unsafe { z.as_mut_ptr().cast::<O::R>().add(at).write(O::apply::<FMA>(x[at], y[at])) };
        at += 1;
    }
    // SAFETY: all `L` elements were written.
    unsafe { z.assume_init() }
}

#[inline(always)]
unsafe fn body1<O: Op1, const FMA: bool, const L: usize>(n: usize, a: *const u8, _: *const u8, _: *const u8, out: *mut u8) -> Status {
    let (a, out) = (a.cast::<O::A>(), out.cast::<O::R>());
    // SAFETY: the operand holds `n` elements, aligned as an array of them is, and the output has room for `n`. In place,
    // every block is read before any of its elements is written: the last block, which overlaps the one before, at first.
    unsafe {
        if L > 1 && n >= L {
            let last = a.add(n - L).cast::<[O::A; L]>().read();
            let mut at = 0;
            while at + L < n {
                let x = a.add(at).cast::<[O::A; L]>().read();
                out.add(at).cast::<[O::R; L]>().write(each::<O, FMA, L>(x));
                at += L;
            }
            out.add(n - L).cast::<[O::R; L]>().write(each::<O, FMA, L>(last));
        } else if O::HEAVY && n > 2 && L > 2 {
            let mut x = [a.read(); L];
            std::ptr::copy_nonoverlapping(a, x.as_mut_ptr(), n);
            let y = each::<O, FMA, L>(x);
            std::ptr::copy_nonoverlapping(y.as_ptr(), out, n);
        } else {
            for at in 0..n {
                // Volatile, lest LLVM makes vector code of these few elements, too.
                out.add(at).write(O::apply::<FMA>(a.add(at).read_volatile()));
            }
        }
    }
    OK
}

#[inline(always)]
unsafe fn body2<O: Op2, const FMA: bool, const L: usize>(n: usize, a: *const u8, b: *const u8, _: *const u8, out: *mut u8) -> Status {
    let (a, b, out) = (a.cast::<O::A>(), b.cast::<O::A>(), out.cast::<O::R>());
    // SAFETY: as in `body1`.
    unsafe {
        if L > 1 && n >= L {
            let last = (a.add(n - L).cast::<[O::A; L]>().read(), b.add(n - L).cast::<[O::A; L]>().read());
            let mut at = 0;
            while at + L < n {
                let x = a.add(at).cast::<[O::A; L]>().read();
                let y = b.add(at).cast::<[O::A; L]>().read();
                out.add(at).cast::<[O::R; L]>().write(zip::<O, FMA, L>(x, y));
                at += L;
            }
            out.add(n - L).cast::<[O::R; L]>().write(zip::<O, FMA, L>(last.0, last.1));
        } else {
            for at in 0..n {
                out.add(at).write(O::apply::<FMA>(a.add(at).read_volatile(), b.add(at).read_volatile()));
            }
        }
    }
    OK
}

#[inline(always)]
fn choose<T: Copy, const L: usize>(which: [u8; L], x: [T; L], y: [T; L]) -> [T; L] {
    let mut z = y;
    let mut at = 0;
    while at < L {
        z[at] = if which[at] != 0 { x[at] } else { y[at] };
        at += 1;
    }
    z
}

#[inline(always)]
unsafe fn body3<T: Copy, const FMA: bool, const L: usize>(n: usize, a: *const u8, b: *const u8, c: *const u8, out: *mut u8) -> Status {
    let (b, c, out) = (b.cast::<T>(), c.cast::<T>(), out.cast::<T>());
    let mut at = 0;
    // SAFETY: as in `body1`; here the rest is done one by one.
    unsafe {
        while at + L <= n {
            let which = a.add(at).cast::<[u8; L]>().read();
            let x = b.add(at).cast::<[T; L]>().read();
            let y = c.add(at).cast::<[T; L]>().read();
            out.add(at).cast::<[T; L]>().write(choose::<T, L>(which, x, y));
            at += L;
        }
        while at < n {
            out.add(at).write(if a.add(at).read_volatile() != 0 { b.add(at).read() } else { c.add(at).read() });
            at += 1;
        }
    }
    OK
}

/// The loop over an operation on one value, in blocks of so many elements.
pub(super) fn map1<O: Op1, const WIDE: usize, const MIDDLE: usize, const SMALL: usize>(isa: Isa) -> StepFn {
    for_isa!(isa, body1, O: Op1, [WIDE, MIDDLE, SMALL])
}

/// The loop over an operation on two values.
pub(super) fn map2<O: Op2, const WIDE: usize, const MIDDLE: usize, const SMALL: usize>(isa: Isa) -> StepFn {
    for_isa!(isa, body2, O: Op2, [WIDE, MIDDLE, SMALL])
}

/// The loop that chooses by a bool.
pub(super) fn select<T: Copy, const WIDE: usize, const MIDDLE: usize, const SMALL: usize>(isa: Isa) -> StepFn {
    for_isa!(isa, body3, T: Copy, [WIDE, MIDDLE, SMALL])
}

/// The loop over an operation that may fail; ends at the first failure.
pub(super) unsafe fn checked<O: Checked>(n: usize, a: *const u8, b: *const u8, _: *const u8, out: *mut u8) -> Status {
    let (a, b, out) = (a.cast::<O::A>(), b.cast::<O::A>(), out.cast::<O::A>());
    for at in 0..n {
        // SAFETY: the operands hold `n` elements, the output has room for as many.
        match unsafe { O::apply(a.add(at).read(), b.add(at).read()) } {
            // SAFETY: as above.
            Ok(value) => unsafe { out.add(at).write(value) },
            Err(status) => return status,
        }
    }
    OK
}

/// Copies, unless source and destination are one.
pub(super) unsafe fn copy<T: Copy>(n: usize, a: *const u8, _: *const u8, _: *const u8, out: *mut u8) -> Status {
    if a != out.cast_const() {
        // SAFETY: both have `n` elements; they are not the same address, so by the contract they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(a.cast::<T>(), out.cast::<T>(), n) };
    }
    OK
}

/// `blocks!(map1, Op, 4)`: that loop with blocks of one register of elements of 4 bytes; 0 for one element at a time.
macro_rules! blocks {
    ($loop:ident, $op:ident, 0) => {
        $crate::expr::ops::loops::$loop::<$op, 0, 0, 1>
    };
    ($loop:ident, $op:ident, 1) => {
        $crate::expr::ops::loops::$loop::<$op, 64, 32, 16>
    };
    ($loop:ident, $op:ident, 4) => {
        $crate::expr::ops::loops::$loop::<$op, 16, 8, 4>
    };
    ($loop:ident, $op:ident, 8) => {
        $crate::expr::ops::loops::$loop::<$op, 0, 4, 2>
    };
}

/// `op1!(isa, f32 => u8, 4, |x| ..)`: the loop over that operation; 4 is the size of the larger element. `FMA` is known inside.
macro_rules! op1 {
    ($isa:expr, $a:ty => $r:ty, heavy $block:tt, |$x:ident| $body:expr) => {
        op1!(@ true, $isa, $a => $r, $block, |$x| $body)
    };
    ($isa:expr, $a:ty => $r:ty, $block:tt, |$x:ident| $body:expr) => {
        op1!(@ false, $isa, $a => $r, $block, |$x| $body)
    };
    (@ $heavy:literal, $isa:expr, $a:ty => $r:ty, $block:tt, |$x:ident| $body:expr) => {{
        struct Op;
        impl $crate::expr::ops::loops::Op1 for Op {
            type A = $a;
            type R = $r;
            const HEAVY: bool = $heavy;
            #[inline(always)]
            fn apply<const FMA: bool>($x: $a) -> $r {
                $body
            }
        }
        blocks!(map1, Op, $block)($isa)
    }};
}

/// As [`op1`] with two operands of one type.
macro_rules! op2 {
    ($isa:expr, $a:ty => $r:ty, $block:tt, |$x:ident, $y:ident| $body:expr) => {{
        struct Op;
        impl $crate::expr::ops::loops::Op2 for Op {
            type A = $a;
            type R = $r;
            #[inline(always)]
            fn apply<const FMA: bool>($x: $a, $y: $a) -> $r {
                $body
            }
        }
        blocks!(map2, Op, $block)($isa)
    }};
}

/// As [`op2`] for an operation that may fail.
macro_rules! checked {
    ($a:ty, |$x:ident, $y:ident| $body:expr) => {{
        struct Op;
        impl $crate::expr::ops::loops::Checked for Op {
            type A = $a;
            #[inline(always)]
            fn apply($x: $a, $y: $a) -> Result<$a, $crate::expr::ops::Status> {
                $body
            }
        }
        $crate::expr::ops::loops::checked::<Op>
    }};
}
