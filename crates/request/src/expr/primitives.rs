//! The primitives of expressions: a table with one line each.
//!
//! A line has a primitive's element types, its result, its cost in additions, and its meaning for floats: a function of doubles. A
//! library may have code of its own for a primitive. For any other it computes the function of the table.

use plimsoll_base::DataType;
use serde::{Deserialize, Serialize};

/// Hands the primitives on one value to the macro `$with`.
#[macro_export]
macro_rules! unary_primitives {
    ($with:ident) => {
        $with! {
            // Name: element types, result, cost, meaning for floats.
            Neg: Arithmetic, Same, 1.0, |x| -x;
            Abs: Numbers, Same, 1.0, |x| libm::fabs(x);
            Sign: Numbers, Same, 1.0, |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x * 0.0 };
            Square: Arithmetic, Same, 1.0, |x| x * x;

            Sqrt: Analytic, Same, 1.0, |x| libm::sqrt(x);
            Rsqrt: Analytic, Same, 1.0, |x| 1.0 / libm::sqrt(x);
            Reciprocal: Analytic, Same, 1.0, |x| 1.0 / x;
            Exp: Analytic, Same, 10.0, |x| libm::exp(x);
            Expm1: Floats, Same, 1.0, |x| libm::expm1(x);
            Log: Analytic, Same, 10.0, |x| libm::log(x);
            Log1p: Floats, Same, 1.0, |x| libm::log1p(x);
            Tanh: Floats, Same, 10.0, |x| libm::tanh(x);
            Sigmoid: Floats, Same, 10.0, |x| 1.0 / (1.0 + libm::exp(-x));
            Erf: Floats, Same, 10.0, |x| libm::erf(x);
            Erfc: Floats, Same, 10.0, |x| libm::erfc(x);
            Floor: Floats, Same, 1.0, |x| libm::floor(x);
            Ceil: Floats, Same, 1.0, |x| libm::ceil(x);
            /// To the nearest, ties to even.
            Rint: Floats, Same, 1.0, |x| libm::rint(x);
            Sin: Analytic, Same, 10.0, |x| libm::sin(x);
            Cos: Analytic, Same, 10.0, |x| libm::cos(x);
            Tan: Floats, Same, 20.0, |x| libm::tan(x);
            Asin: Floats, Same, 20.0, |x| libm::asin(x);
            Acos: Floats, Same, 20.0, |x| libm::acos(x);
            Atan: Floats, Same, 20.0, |x| libm::atan(x);
            Sinh: Analytic, Same, 20.0, |x| libm::sinh(x);
            Cosh: Analytic, Same, 20.0, |x| libm::cosh(x);
            Asinh: Floats, Same, 20.0, |x| libm::asinh(x);
            /// NaN below 1.
            Acosh: Floats, Same, 20.0, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
            Atanh: Floats, Same, 20.0, |x| libm::atanh(x);
            /// The logarithm of the absolute value of the gamma function.
            Lgamma: Floats, Same, 40.0, |x| libm::lgamma(x);
            /// The derivative of [`UnaryOp::Lgamma`].
            Digamma: Floats, Same, 40.0, |x| $crate::expr::digamma(x);
            /// The inverse of [`UnaryOp::Erf`].
            Erfinv: Floats, Same, 60.0, |x| $crate::expr::erfinv(x);
            /// The inverse of the normal distribution's cumulative function.
            Ndtri: Floats, Same, 60.0, |x| $crate::expr::ndtri(x);
            /// The modified Bessel function of the first kind and order 0.
            BesselI0: Floats, Same, 60.0, |x| $crate::expr::bessel_i0(x);
            /// The modified Bessel function of the first kind and order 0, times `exp(-|x|)`.
            BesselI0e: Floats, Same, 60.0, |x| $crate::expr::bessel_i0e(x);
            /// The modified Bessel function of the first kind and order 1.
            BesselI1: Floats, Same, 60.0, |x| $crate::expr::bessel_i1(x);
            /// The modified Bessel function of the first kind and order 1, times `exp(-|x|)`.
            BesselI1e: Floats, Same, 60.0, |x| $crate::expr::bessel_i1e(x);
            /// The Bessel function of the first kind and order 0.
            BesselJ0: Floats, Same, 60.0, |x| $crate::expr::bessel_j0(x);
            /// The Bessel function of the first kind and order 1.
            BesselJ1: Floats, Same, 60.0, |x| $crate::expr::bessel_j1(x);
            /// The modified Bessel function of the second kind and order 0.
            BesselK0: Floats, Same, 200.0, |x| $crate::expr::bessel_k0(x);
            /// The modified Bessel function of the second kind and order 0, times `exp(x)`.
            BesselK0e: Floats, Same, 200.0, |x| $crate::expr::bessel_k0e(x);
            /// The modified Bessel function of the second kind and order 1.
            BesselK1: Floats, Same, 200.0, |x| $crate::expr::bessel_k1(x);
            /// The modified Bessel function of the second kind and order 1, times `exp(x)`.
            BesselK1e: Floats, Same, 200.0, |x| $crate::expr::bessel_k1e(x);
            /// The Bessel function of the second kind and order 0.
            BesselY0: Floats, Same, 60.0, |x| $crate::expr::bessel_y0(x);
            /// The Bessel function of the second kind and order 1.
            BesselY1: Floats, Same, 60.0, |x| $crate::expr::bessel_y1(x);
            /// Dawson's integral.
            Dawsn: Floats, Same, 200.0, |x| $crate::expr::dawson(x);
            /// The exponential integral.
            Expint: Floats, Same, 60.0, |x| $crate::expr::expint(x);
            /// The integral of `cos(pi / 2 t^2)` from 0.
            FresnelCos: Floats, Same, 200.0, |x| $crate::expr::fresnel_cos(x);
            /// The integral of `sin(pi / 2 t^2)` from 0.
            FresnelSin: Floats, Same, 200.0, |x| $crate::expr::fresnel_sin(x);
            /// The integral of `log(t) / (1 - t)` from 1.
            Spence: Floats, Same, 60.0, |x| $crate::expr::spence(x);
            IsNan: Floats, Bool, 1.0, |x| if x.is_nan() { 1.0 } else { 0.0 };
            IsFinite: Floats, Bool, 1.0, |x| if x.is_finite() { 1.0 } else { 0.0 };

            /// The real part.
            Real: Complexes, Part, 1.0;
            /// The imaginary part.
            Imag: Complexes, Part, 1.0;
            /// The complex conjugate.
            Conj: Complexes, Same, 1.0;

            LogicalNot: Bools, Same, 1.0;
            /// All bits turned round.
            Invert: Integers, Same, 1.0;
        }
    };
}

/// Hands the primitives on two values of one type to the macro `$with`.
#[macro_export]
macro_rules! binary_primitives {
    ($with:ident) => {
        $with! {
            // Name: element types, result, cost, meaning for floats.
            Add: Arithmetic, Same, 1.0, |x, y| x + y;
            Sub: Arithmetic, Same, 1.0, |x, y| x - y;
            Mul: Arithmetic, Same, 1.0, |x, y| x * y;
            /// Integers truncate towards zero and fault on a zero divisor.
            Div: Arithmetic, Same, 1.0, |x, y| x / y;
            /// 0 where the divisor is 0.
            DivNoNan: Analytic, Same, 1.0, |x, y| if y == 0.0 { 0.0 } else { x / y };
            /// Rounds towards minus infinity; integers fault on a zero divisor.
            FloorDiv: Numbers, Same, 1.0, |x, y| libm::floor(x / y);
            /// Has the divisor's sign; integers fault on a zero divisor.
            FloorMod: Numbers, Same, 1.0, |x, y| $crate::expr::floor_mod(x, y);
            /// Has the dividend's sign; integers fault on a zero divisor.
            TruncateMod: Numbers, Same, 10.0, |x, y| libm::fmod(x, y);
            /// NaN if either is.
            Minimum: Numbers, Same, 1.0, |x, y| if y < x || y.is_nan() { y } else { x };
            /// NaN if either is.
            Maximum: Numbers, Same, 1.0, |x, y| if y > x || y.is_nan() { y } else { x };
            Pow: Numbers, Same, 20.0, |x, y| libm::pow(x, y);
            /// The angle of the point with `y` first and `x` second.
            Atan2: Floats, Same, 20.0, |y, x| libm::atan2(y, x);
            /// The length of a vector; infinite where either is, whatever the other is.
            Hypot: Floats, Same, 4.0, |x, y| libm::hypot(x, y);
            /// The complex number with these parts.
            Complex: Parts, Pair, 1.0;
            /// `x / y`, and 0 where `x` is 0.
            Xdivy: Floats, Same, 1.0, |x, y| if x == 0.0 { 0.0 } else { x / y };
            /// `x * log(y)`, and 0 where `x` is 0.
            Xlogy: Floats, Same, 20.0, |x, y| if x == 0.0 { 0.0 } else { x * libm::log(y) };
            /// `x * log(1 + y)`, and 0 where `x` is 0.
            Xlog1py: Floats, Same, 20.0, |x, y| if x == 0.0 { 0.0 } else { x * libm::log1p(y) };

            /// Hurwitz' zeta function: the sum of `(q + n)^-x` over all `n` from 0 on.
            Zeta: Floats, Same, 200.0, |x, q| $crate::expr::zeta(x, q);
            /// Derivative `n` of [`UnaryOp::Digamma`].
            Polygamma: Floats, Same, 300.0, |n, x| $crate::expr::polygamma(n, x);

            /// The lower incomplete gamma function of `x`, divided by the gamma function of `a`.
            Igamma: Floats, Same, 300.0, |a, x| $crate::expr::igamma(a, x);
            /// 1 less [`BinaryOp::Igamma`].
            Igammac: Floats, Same, 300.0, |a, x| $crate::expr::igammac(a, x);
            /// The derivative of [`BinaryOp::Igamma`] by `a`.
            IgammaGradA: Floats, Same, 300.0, |a, x| $crate::expr::igamma_grad_a(a, x);

            Equal: All, Bool, 1.0, |x, y| if x == y { 1.0 } else { 0.0 };
            NotEqual: All, Bool, 1.0, |x, y| if x != y { 1.0 } else { 0.0 };
            Less: Numbers, Bool, 1.0, |x, y| if x < y { 1.0 } else { 0.0 };
            LessEqual: Numbers, Bool, 1.0, |x, y| if x <= y { 1.0 } else { 0.0 };
            Greater: Numbers, Bool, 1.0, |x, y| if x > y { 1.0 } else { 0.0 };
            GreaterEqual: Numbers, Bool, 1.0, |x, y| if x >= y { 1.0 } else { 0.0 };

            LogicalAnd: Bools, Same, 1.0;
            LogicalOr: Bools, Same, 1.0;
            BitwiseAnd: Integers, Same, 1.0;
            BitwiseOr: Integers, Same, 1.0;
            BitwiseXor: Integers, Same, 1.0;
            /// By as many bits as the second says: at least 0, and fewer than the type has.
            LeftShift: Integers, Same, 1.0;
            /// As [`BinaryOp::LeftShift`]; signed integers keep their sign.
            RightShift: Integers, Same, 1.0;
        }
    };
}

/// Which element types a primitive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    /// All but bool.
    Arithmetic,
    /// All but bool and complex numbers.
    Numbers,
    /// Floats and complex numbers.
    Analytic,
    Floats,
    Complexes,
    /// The types of the parts of complex numbers.
    Parts,
    Integers,
    Bools,
}

/// Of which type the result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    /// The operands' type.
    Same,
    Bool,
    /// Of a complex type, that of its parts.
    Part,
    /// Of the type of parts, the complex type.
    Pair,
}

impl Gives {
    fn of(self, data_type: DataType) -> DataType {
        match self {
            Gives::Same => data_type,
            Gives::Bool => DataType::Bool,
            Gives::Part => data_type.part().unwrap_or(data_type),
            Gives::Pair => data_type.pair().unwrap_or(data_type),
        }
    }
}

impl Takes {
    fn admits(self, data_type: DataType) -> bool {
        match self {
            Takes::All => true,
            Takes::Arithmetic => data_type != DataType::Bool,
            Takes::Numbers => data_type != DataType::Bool && !data_type.is_complex(),
            Takes::Analytic => data_type.is_floating() || data_type.is_complex(),
            Takes::Floats => data_type.is_floating(),
            Takes::Complexes => data_type.is_complex(),
            Takes::Parts => data_type.pair().is_some(),
            Takes::Integers => data_type.is_integer(),
            Takes::Bools => data_type == DataType::Bool,
        }
    }
}

/// The enum of a table, and its columns. The names in brackets and in parentheses are the operands of `of`.
macro_rules! primitives {
    (
        $(#[$of_all:meta])* $op:ident[$($operand:ident),*]$operands:tt
        $($(#[$doc:meta])* $name:ident: $takes:ident, $gives:ident, $cost:literal $(, |$($x:ident),*| $meaning:expr)?;)*
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "the names are TensorFlow's")]
        pub enum $op { $($(#[$doc])* $name,)* }

        impl $op {
            /// All of them, in the order of the table.
            pub const ALL: &'static [$op] = &[$($op::$name,)*];

            /// Whether it takes operands of that type, where expressions compute with it.
            pub fn takes(self, data_type: DataType) -> bool {
                match self { $($op::$name => Takes::$takes,)* }.admits(data_type)
            }

            /// The type of its result for operands of a type.
            pub fn gives(self, data_type: DataType) -> DataType {
                match self { $($op::$name => Gives::$gives,)* }.of(data_type)
            }

            /// Its cost, in additions.
            pub fn cost(self) -> f64 {
                match self { $($op::$name => $cost,)* }
            }

            /// Its meaning for floats, in doubles; a bool is 1 or 0. None where it does not take floats.
            #[inline(always)]
            pub fn of(self, $($operand: f64),*) -> Option<f64> {
                match self {
                    $($op::$name => primitives!(@ $operands $(, |$($x),*| $meaning)?),)*
                }
            }
        }
    };
    (@ ($($operand:ident),*)) => { None };
    (@ ($($operand:ident),*), |$($x:ident),*| $meaning:expr) => {{
        $(let $x: f64 = $operand;)*
        Some($meaning)
    }};
}

macro_rules! unary {
    ($($lines:tt)*) => {
        primitives! {
            /// Operations on one value.
            UnaryOp[operand](operand)
            $($lines)*
        }
    };
}

macro_rules! binary {
    ($($lines:tt)*) => {
        primitives! {
            /// Operations on two values of one type.
            BinaryOp[first, second](first, second)
            $($lines)*
        }
    };
}

unary_primitives!(unary);
binary_primitives!(binary);

impl BinaryOp {
    /// Whether the result is bool whatever the operands are.
    pub fn is_comparison(self) -> bool {
        self.gives(DataType::Float) == DataType::Bool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Function = fn(f64) -> f64;

    #[test]
    fn functions_of_the_table_are_those_of_the_standard_library() {
        let table: [(UnaryOp, Function); 22] = [
            (UnaryOp::Abs, f64::abs),
            (UnaryOp::Sqrt, f64::sqrt),
            (UnaryOp::Exp, f64::exp),
            (UnaryOp::Expm1, f64::exp_m1),
            (UnaryOp::Log, f64::ln),
            (UnaryOp::Log1p, f64::ln_1p),
            (UnaryOp::Tanh, f64::tanh),
            (UnaryOp::Floor, f64::floor),
            (UnaryOp::Ceil, f64::ceil),
            (UnaryOp::Rint, f64::round_ties_even),
            (UnaryOp::Sin, f64::sin),
            (UnaryOp::Cos, f64::cos),
            (UnaryOp::Tan, f64::tan),
            (UnaryOp::Asin, f64::asin),
            (UnaryOp::Acos, f64::acos),
            (UnaryOp::Atan, f64::atan),
            (UnaryOp::Sinh, f64::sinh),
            (UnaryOp::Cosh, f64::cosh),
            (UnaryOp::Asinh, f64::asinh),
            (UnaryOp::Acosh, f64::acosh),
            (UnaryOp::Atanh, f64::atanh),
            (UnaryOp::Sign, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        ];
        for (op, function) in table {
            for step in -300..300 {
                let x = f64::from(step) * 0.0173;
                let (value, expected) = (op.of(x).unwrap(), function(x));
                let near = (value - expected).abs() <= 1e-13 * expected.abs().max(1e-3);
                assert!(near || value == expected || value.is_nan() && expected.is_nan(), "{op:?} of {x}: {value} and not {expected}");
            }
        }
    }

    #[test]
    fn what_lies_outside_of_a_function_is_no_number() {
        for (op, x) in [(UnaryOp::Acosh, 0.5), (UnaryOp::Acosh, -3.0), (UnaryOp::Atanh, 1.5), (UnaryOp::Log, -1.0), (UnaryOp::Acos, 2.0)] {
            assert!(op.of(x).unwrap().is_nan(), "{op:?} of {x}");
        }
        assert_eq!(UnaryOp::Acosh.of(1.0), Some(0.0));
    }

    #[test]
    fn a_line_says_what_a_primitive_takes_and_gives() {
        assert!(UnaryOp::Atan.takes(DataType::Double) && !UnaryOp::Atan.takes(DataType::Int32));
        assert!(BinaryOp::Equal.takes(DataType::Bool) && !BinaryOp::Less.takes(DataType::Bool));
        assert!(UnaryOp::Invert.takes(DataType::Uint8) && !UnaryOp::Invert.takes(DataType::Float));
        assert_eq!(UnaryOp::IsNan.gives(DataType::Float), DataType::Bool);
        assert_eq!(BinaryOp::Add.gives(DataType::Int64), DataType::Int64);
        assert_eq!((BinaryOp::Atan2.of(1.0, -1.0), UnaryOp::LogicalNot.of(1.0)), (Some(3.0 * std::f64::consts::FRAC_PI_4), None));
        assert!(
            BinaryOp::Mul.takes(DataType::Complex64)
                && !BinaryOp::Less.takes(DataType::Complex64)
                && !UnaryOp::Erf.takes(DataType::Complex64)
        );
        assert_eq!((UnaryOp::Imag.gives(DataType::Complex128), UnaryOp::Conj.takes(DataType::Float)), (DataType::Double, false));
        assert_eq!((BinaryOp::Complex.gives(DataType::Float), BinaryOp::Complex.takes(DataType::Half)), (DataType::Complex64, false));
        assert_eq!(UnaryOp::ALL.len(), 57);
    }
}
