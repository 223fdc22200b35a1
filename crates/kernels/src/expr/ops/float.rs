//! Floats. Primitives without code of their own here are computed by the function that the table of primitives has for them.

use plimsoll_base::DataType;
use plimsoll_request::expr::{BinaryOp, UnaryOp};

use super::StepFn;
use crate::simd::{Isa, math};

/// The loops that compute the table's functions. None for results that are no floats.
macro_rules! unary_as_in_table {
    ($($(#[$doc:meta])* $name:ident: $takes:ident, $gives:ident, $cost:literal $(, |$x:ident| $meaning:expr)?;)*) => {
        fn unary_as_in_table_f32(op: UnaryOp) -> Option<StepFn> {
            (op.takes(DataType::Float) && op.gives(DataType::Float) == DataType::Float).then(|| match op {
                $(UnaryOp::$name => {
                    op1!(Isa::Portable, f32 => f32, 0, |x| UnaryOp::$name.of(f64::from(x)).unwrap_or(f64::NAN) as f32)
                })*
            })
        }

        fn unary_as_in_table_f64(op: UnaryOp) -> Option<StepFn> {
            (op.takes(DataType::Double) && op.gives(DataType::Double) == DataType::Double).then(|| match op {
                $(UnaryOp::$name => op1!(Isa::Portable, f64 => f64, 0, |x| UnaryOp::$name.of(x).unwrap_or(f64::NAN)),)*
            })
        }
    };
}

macro_rules! binary_as_in_table {
    ($($(#[$doc:meta])* $name:ident: $takes:ident, $gives:ident, $cost:literal $(, |$x:ident, $y:ident| $meaning:expr)?;)*) => {
        fn binary_as_in_table_f32(op: BinaryOp) -> Option<StepFn> {
            (op.takes(DataType::Float) && op.gives(DataType::Float) == DataType::Float).then(|| match op {
                $(BinaryOp::$name => op2!(Isa::Portable, f32 => f32, 0, |x, y| {
                    BinaryOp::$name.of(f64::from(x), f64::from(y)).unwrap_or(f64::NAN) as f32
                }),)*
            })
        }

        fn binary_as_in_table_f64(op: BinaryOp) -> Option<StepFn> {
            (op.takes(DataType::Double) && op.gives(DataType::Double) == DataType::Double).then(|| match op {
                $(BinaryOp::$name => op2!(Isa::Portable, f64 => f64, 0, |x, y| BinaryOp::$name.of(x, y).unwrap_or(f64::NAN)),)*
            })
        }
    };
}

plimsoll_request::unary_primitives!(unary_as_in_table);
plimsoll_request::binary_primitives!(binary_as_in_table);

macro_rules! sign {
    ($x:ident) => {
        if $x > 0.0 {
            1.0
        } else if $x < 0.0 {
            -1.0
        } else if $x.is_nan() {
            $x
        } else {
            0.0
        }
    };
}

pub(super) fn unary_f32(op: UnaryOp, isa: Isa) -> Option<StepFn> {
    Some(match op {
        UnaryOp::Neg => op1!(isa, f32 => f32, 4, |x| -x),
        UnaryOp::Abs => op1!(isa, f32 => f32, 4, |x| x.abs()),
        UnaryOp::Sign => op1!(isa, f32 => f32, 4, |x| sign!(x)),
        UnaryOp::Square => op1!(isa, f32 => f32, 4, |x| x * x),
        UnaryOp::Sqrt => op1!(isa, f32 => f32, 4, |x| x.sqrt()),
        UnaryOp::Rsqrt => op1!(isa, f32 => f32, 4, |x| 1.0 / x.sqrt()),
        UnaryOp::Reciprocal => op1!(isa, f32 => f32, 4, |x| 1.0 / x),
        UnaryOp::Exp => op1!(isa, f32 => f32, heavy 4, |x| math::exp::<FMA>(x)),
        UnaryOp::Expm1 => op1!(isa, f32 => f32, heavy 4, |x| math::expm1::<FMA>(x)),
        UnaryOp::Log => op1!(isa, f32 => f32, heavy 4, |x| math::log::<FMA>(x)),
        UnaryOp::Log1p => op1!(isa, f32 => f32, heavy 4, |x| math::log1p::<FMA>(x)),
        UnaryOp::Tanh => op1!(isa, f32 => f32, heavy 4, |x| math::tanh::<FMA>(x)),
        UnaryOp::Sigmoid => op1!(isa, f32 => f32, heavy 4, |x| math::sigmoid::<FMA>(x)),
        UnaryOp::Erf => op1!(isa, f32 => f32, heavy 4, |x| math::erf::<FMA>(x)),
        UnaryOp::Erfc => op1!(isa, f32 => f32, heavy 4, |x| math::erfc::<FMA>(x)),
        UnaryOp::Floor => op1!(isa, f32 => f32, 4, |x| x.floor()),
        UnaryOp::Ceil => op1!(isa, f32 => f32, 4, |x| x.ceil()),
        UnaryOp::Rint => op1!(isa, f32 => f32, 4, |x| x.round_ties_even()),
        UnaryOp::Sin => op1!(isa, f32 => f32, 0, |x| f64::from(x).sin() as f32),
        UnaryOp::Cos => op1!(isa, f32 => f32, 0, |x| f64::from(x).cos() as f32),
        UnaryOp::IsNan => op1!(isa, f32 => u8, 4, |x| u8::from(x.is_nan())),
        UnaryOp::IsFinite => op1!(isa, f32 => u8, 4, |x| u8::from(x.abs() <= f32::MAX)),
        _ => return unary_as_in_table_f32(op),
    })
}

/// The power with the exponent `y`, where there is a loop that gives the bits of [`math::pow`].
pub(super) fn power_f32(y: f32, isa: Isa) -> Option<StepFn> {
    match y {
        2.0 => unary_f32(UnaryOp::Square, isa),
        3.0 => Some(op1!(isa, f32 => f32, 4, |x| math::cube(x))),
        _ => None,
    }
}

pub(super) fn unary_f64(op: UnaryOp, isa: Isa) -> Option<StepFn> {
    Some(match op {
        UnaryOp::Neg => op1!(isa, f64 => f64, 8, |x| -x),
        UnaryOp::Abs => op1!(isa, f64 => f64, 8, |x| x.abs()),
        UnaryOp::Sign => op1!(isa, f64 => f64, 8, |x| sign!(x)),
        UnaryOp::Square => op1!(isa, f64 => f64, 8, |x| x * x),
        UnaryOp::Sqrt => op1!(isa, f64 => f64, 8, |x| x.sqrt()),
        UnaryOp::Rsqrt => op1!(isa, f64 => f64, 8, |x| 1.0 / x.sqrt()),
        UnaryOp::Reciprocal => op1!(isa, f64 => f64, 8, |x| 1.0 / x),
        UnaryOp::Exp => op1!(isa, f64 => f64, 0, |x| x.exp()),
        UnaryOp::Expm1 => op1!(isa, f64 => f64, 0, |x| x.exp_m1()),
        UnaryOp::Log => op1!(isa, f64 => f64, 0, |x| x.ln()),
        UnaryOp::Log1p => op1!(isa, f64 => f64, 0, |x| x.ln_1p()),
        UnaryOp::Tanh => op1!(isa, f64 => f64, 0, |x| x.tanh()),
        UnaryOp::Sigmoid => op1!(isa, f64 => f64, 0, |x| 1.0 / (1.0 + (-x).exp())),
        UnaryOp::Erf => op1!(isa, f64 => f64, 0, |x| libm::erf(x)),
        UnaryOp::Erfc => op1!(isa, f64 => f64, 0, |x| libm::erfc(x)),
        UnaryOp::Floor => op1!(isa, f64 => f64, 8, |x| x.floor()),
        UnaryOp::Ceil => op1!(isa, f64 => f64, 8, |x| x.ceil()),
        UnaryOp::Rint => op1!(isa, f64 => f64, 8, |x| x.round_ties_even()),
        UnaryOp::Sin => op1!(isa, f64 => f64, 0, |x| x.sin()),
        UnaryOp::Cos => op1!(isa, f64 => f64, 0, |x| x.cos()),
        UnaryOp::IsNan => op1!(isa, f64 => u8, 8, |x| u8::from(x.is_nan())),
        UnaryOp::IsFinite => op1!(isa, f64 => u8, 8, |x| u8::from(x.abs() <= f64::MAX)),
        _ => return unary_as_in_table_f64(op),
    })
}

/// Has the divisor's sign, as `google::floor_mod` in TensorFlow.
macro_rules! floor_mod {
    ($x:ident, $y:ident) => {{
        let rest = $x % $y;
        if rest != 0.0 && ($y < 0.0) != (rest < 0.0) { rest + $y } else { rest }
    }};
}

macro_rules! binary {
    ($name:ident, $t:ty, $block:tt, $other:ident, |$x:ident, $y:ident| $pow:expr) => {
        pub(super) fn $name(op: BinaryOp, isa: Isa) -> Option<StepFn> {
            Some(match op {
                BinaryOp::Add => op2!(isa, $t => $t, $block, |x, y| x + y),
                BinaryOp::Sub => op2!(isa, $t => $t, $block, |x, y| x - y),
                BinaryOp::Mul => op2!(isa, $t => $t, $block, |x, y| x * y),
                BinaryOp::Div => op2!(isa, $t => $t, $block, |x, y| x / y),
                BinaryOp::DivNoNan => op2!(isa, $t => $t, $block, |x, y| if y == 0.0 { 0.0 } else { x / y }),
                BinaryOp::FloorDiv => op2!(isa, $t => $t, $block, |x, y| (x / y).floor()),
                BinaryOp::FloorMod => op2!(isa, $t => $t, 0, |x, y| floor_mod!(x, y)),
                // The first where they are equal, as TensorFlow: it tells zeros of different signs apart.
                BinaryOp::Minimum => op2!(isa, $t => $t, $block, |x, y| if y < x || y.is_nan() { y } else { x }),
                BinaryOp::Maximum => op2!(isa, $t => $t, $block, |x, y| if y > x || y.is_nan() { y } else { x }),
                BinaryOp::Pow => op2!(isa, $t => $t, 0, |$x, $y| $pow),
                BinaryOp::Complex => op2!(isa, $t => [$t; 2], 8, |x, y| [x, y]),
                BinaryOp::Equal => op2!(isa, $t => u8, $block, |x, y| u8::from(x == y)),
                BinaryOp::NotEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x != y)),
                BinaryOp::Less => op2!(isa, $t => u8, $block, |x, y| u8::from(x < y)),
                BinaryOp::LessEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x <= y)),
                BinaryOp::Greater => op2!(isa, $t => u8, $block, |x, y| u8::from(x > y)),
                BinaryOp::GreaterEqual => op2!(isa, $t => u8, $block, |x, y| u8::from(x >= y)),
                _ => return $other(op),
            })
        }
    };
}

binary!(binary_f32, f32, 4, binary_as_in_table_f32, |x, y| math::pow(x, y));
binary!(binary_f64, f64, 8, binary_as_in_table_f64, |x, y| x.powf(y));
