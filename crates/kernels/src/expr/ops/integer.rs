//! Integers, which wrap around. Types that are rare have loops of one element.

use super::{DIVISION_BY_ZERO, NEGATIVE_POWER, StepFn};
use crate::simd::Isa;
use plimsoll_request::expr::{BinaryOp, UnaryOp};

macro_rules! signed_unary {
    ($name:ident, $t:ty, $block:tt) => {
        pub(super) fn $name(op: UnaryOp, isa: Isa) -> Option<StepFn> {
            Some(match op {
                UnaryOp::Neg => op1!(isa, $t => $t, $block, |x| x.wrapping_neg()),
                UnaryOp::Abs => op1!(isa, $t => $t, $block, |x| x.wrapping_abs()),
                UnaryOp::Sign => op1!(isa, $t => $t, $block, |x| x.signum()),
                UnaryOp::Square => op1!(isa, $t => $t, $block, |x| x.wrapping_mul(x)),
                UnaryOp::Invert => op1!(isa, $t => $t, $block, |x| !x),
                _ => return None,
            })
        }
    };
}

signed_unary!(unary_i32, i32, 4);
signed_unary!(unary_i64, i64, 8);
signed_unary!(unary_i8, i8, 0);
signed_unary!(unary_i16, i16, 0);

macro_rules! unsigned_unary {
    ($name:ident, $t:ty, $block:tt) => {
        pub(super) fn $name(op: UnaryOp, isa: Isa) -> Option<StepFn> {
            Some(match op {
                UnaryOp::Neg => op1!(isa, $t => $t, $block, |x| x.wrapping_neg()),
                UnaryOp::Abs => op1!(isa, $t => $t, $block, |x| x),
                UnaryOp::Sign => op1!(isa, $t => $t, $block, |x| <$t>::from(x != 0)),
                UnaryOp::Square => op1!(isa, $t => $t, $block, |x| x.wrapping_mul(x)),
                UnaryOp::Invert => op1!(isa, $t => $t, $block, |x| !x),
                _ => return None,
            })
        }
    };
}

unsigned_unary!(unary_u8, u8, 1);
unsigned_unary!(unary_u16, u16, 0);
unsigned_unary!(unary_u32, u32, 0);
unsigned_unary!(unary_u64, u64, 0);

macro_rules! power {
    ($x:ident, $y:ident, $t:ty) => {{
        #[allow(unused_comparisons, reason = "for unsigned types, too")]
        if $y < 0 {
            return Err(NEGATIVE_POWER);
        }
        let (mut base, mut exponent, mut product) = ($x, $y, 1 as $t);
        while exponent != 0 {
            if exponent & 1 == 1 {
                product = product.wrapping_mul(base);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        Ok(product)
    }};
}

macro_rules! binary {
    ($name:ident, $t:ty, $block:tt, |$x:ident, $y:ident| $floor_div:expr, $floor_mod:expr) => {
        pub(super) fn $name(op: BinaryOp, isa: Isa) -> Option<StepFn> {
            Some(match op {
                BinaryOp::Add => op2!(isa, $t => $t, $block, |x, y| x.wrapping_add(y)),
                BinaryOp::Sub => op2!(isa, $t => $t, $block, |x, y| x.wrapping_sub(y)),
                BinaryOp::Mul => op2!(isa, $t => $t, $block, |x, y| x.wrapping_mul(y)),
                BinaryOp::Div => checked!($t, |x, y| if y == 0 { Err(DIVISION_BY_ZERO) } else { Ok(x.wrapping_div(y)) }),
                BinaryOp::FloorDiv => checked!($t, |$x, $y| if $y == 0 { Err(DIVISION_BY_ZERO) } else { Ok($floor_div) }),
                BinaryOp::FloorMod => checked!($t, |$x, $y| if $y == 0 { Err(DIVISION_BY_ZERO) } else { Ok($floor_mod) }),
                BinaryOp::TruncateMod => checked!($t, |x, y| if y == 0 { Err(DIVISION_BY_ZERO) } else { Ok(x.wrapping_rem(y)) }),
                BinaryOp::Minimum => op2!(isa, $t => $t, $block, |x, y| x.min(y)),
                BinaryOp::Maximum => op2!(isa, $t => $t, $block, |x, y| x.max(y)),
                BinaryOp::Pow => checked!($t, |x, y| power!(x, y, $t)),
                BinaryOp::Equal => op2!(isa, $t => u8, $block, |x, y| u8::from(x == y)),
                BinaryOp::NotEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x != y)),
                BinaryOp::Less => op2!(isa, $t => u8, $block, |x, y| u8::from(x < y)),
                BinaryOp::LessEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x <= y)),
                BinaryOp::Greater => op2!(isa, $t => u8, $block, |x, y| u8::from(x > y)),
                BinaryOp::GreaterEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x >= y)),
                BinaryOp::BitwiseAnd => op2!(isa, $t => $t, $block, |x, y| x & y),
                BinaryOp::BitwiseOr => op2!(isa, $t => $t, $block, |x, y| x | y),
                BinaryOp::BitwiseXor => op2!(isa, $t => $t, $block, |x, y| x ^ y),
                BinaryOp::LeftShift => op2!(isa, $t => $t, $block, |x, y| x << shift!(y, $t)),
                BinaryOp::RightShift => op2!(isa, $t => $t, $block, |x, y| x >> shift!(y, $t)),
                _ => return None,
            })
        }
    };
}

/// As many bits as a shift can go.
macro_rules! shift {
    ($y:ident, $t:ty) => {{
        const MOST: $t = (<$t>::BITS - 1) as $t;
        #[allow(unused_comparisons, reason = "for unsigned types, too")]
        let bits = if $y < 0 {
            0
        } else if $y > MOST {
            MOST
        } else {
            $y
        };
        bits
    }};
}

/// Rounds towards minus infinity.
macro_rules! floor_div {
    ($x:ident, $y:ident) => {{
        let quotient = $x.wrapping_div($y);
        if $x.wrapping_rem($y) != 0 && ($x < 0) != ($y < 0) { quotient - 1 } else { quotient }
    }};
}

/// Has the divisor's sign.
macro_rules! floor_mod {
    ($x:ident, $y:ident) => {{
        let rest = $x.wrapping_rem($y);
        if rest != 0 && (rest < 0) != ($y < 0) { rest + $y } else { rest }
    }};
}

binary!(binary_i32, i32, 4, |x, y| floor_div!(x, y), floor_mod!(x, y));
binary!(binary_i64, i64, 8, |x, y| floor_div!(x, y), floor_mod!(x, y));
binary!(binary_i8, i8, 0, |x, y| floor_div!(x, y), floor_mod!(x, y));
binary!(binary_i16, i16, 0, |x, y| floor_div!(x, y), floor_mod!(x, y));
binary!(binary_u8, u8, 1, |x, y| x / y, x % y);
binary!(binary_u16, u16, 0, |x, y| x / y, x % y);
binary!(binary_u32, u32, 0, |x, y| x / y, x % y);
binary!(binary_u64, u64, 0, |x, y| x / y, x % y);
