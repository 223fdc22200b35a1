//! Functions of one `f32` without branches, calls or tables, so that loops over them become vector code.
//!
//! `FMA` says whether [`f32::mul_add`] is an instruction where the code is compiled; results differ in the last bits with it.
//! Errors are at most about 2 units in the last place, of [`erfc`] 4, measured in the tests below.

use std::f32::consts::LOG2_E;

/// Adding it rounds to an integer, which then stands in the low bits of the mantissa.
const ROUND: f32 = 12_582_912.0;
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

#[inline(always)]
fn madd<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn poly<const FMA: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = madd::<FMA>(sum, x, coefficient);
    }
    sum
}

/// `2^n` for `n` in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// `n` and `r` with `x = n ln 2 + r`, `r` in ±0.35; `x` within ±150 or NaN.
#[inline(always)]
fn reduce<const FMA: bool>(x: f32) -> (i32, f32) {
    let shifted = madd::<FMA>(x, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = madd::<FMA>(n, -LN2_LO, madd::<FMA>(n, -LN2_HI, x));
    // A NaN gives some large number here; `& 0x1ff` after the offset keeps the exponent arithmetic of the callers in range.
    let number = ((shifted.to_bits() as i32).wrapping_sub(0x4B40_0000 - 256) & 0x1ff) - 256;
    (number, r)
}

/// `(e^r - 1 - r) / r²` for `r` in ±0.35.
#[inline(always)]
fn exp_tail<const FMA: bool>(r: f32) -> f32 {
    poly::<FMA, 6>(r, [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1])
}

/// `e^x`.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (n, r) = reduce::<FMA>(x);
    let value = madd::<FMA>(exp_tail::<FMA>(r), r * r, r) + 1.0;
    // In two steps, since 2^n may be too large or small for a number while the product is not.
    let half = n >> 1;
    value * power_of_two(half) * power_of_two(n - half)
}

/// `e^x - 1`, exact near 0 too.
#[inline(always)]
pub fn expm1<const FMA: bool>(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -25.0 { -25.0 } else { clamped };
    let (n, r) = reduce::<FMA>(clamped);
    let near = madd::<FMA>(exp_tail::<FMA>(r), r * r, r);
    let half = power_of_two(n - 1);
    let value = madd::<FMA>(near, half, half - 0.5) * 2.0;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { value }
}

/// The mantissa's logarithm: `(log m - f, n)` with `x = m 2^n`, `f = m - 1`, `m` in [√½, √2).
#[inline(always)]
fn log_parts<const FMA: bool>(x: f32) -> (f32, f32, f32) {
    let small = x < f32::MIN_POSITIVE;
    let x = if small { x * 33_554_432.0 } else { x };
    let bits = x.to_bits() as i32;
    // Counts exponents from √½ on.
    let shifted = bits.wrapping_sub(0x3F35_04F3);
    let n = (shifted >> 23) - if small { 25 } else { 0 };
    let m = f32::from_bits((shifted & 0x007F_FFFF).wrapping_add(0x3F35_04F3) as u32);
    let f = m - 1.0;
    let z = f * f;
    let p = poly::<FMA, 9>(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    (madd::<FMA>(-0.5, z, p * f * z), f, n as f32)
}

/// The natural logarithm of a positive finite number.
#[inline(always)]
fn log_positive<const FMA: bool>(x: f32, correction: f32) -> f32 {
    let (tail, f, n) = log_parts::<FMA>(x);
    let low = madd::<FMA>(n, LN2_LO, tail) + correction;
    madd::<FMA>(n, LN2_HI, f + low)
}

/// The natural logarithm.
#[inline(always)]
pub fn log<const FMA: bool>(x: f32) -> f32 {
    let value = log_positive::<FMA>(x, 0.0);
    let value = if x > f32::MAX { x } else { value };
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    // The comparison is false for NaN, too.
    if x >= 0.0 { value } else { f32::NAN }
}

/// `log(1 + x)`, exact near 0 too.
#[inline(always)]
pub fn log1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    // The part that the sum above rounded away.
    let lost = if x > 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let value = log_positive::<FMA>(u, lost / u);
    let value = if x > f32::MAX { x } else { value };
    let value = if x == -1.0 { f32::NEG_INFINITY } else { value };
    let value = if x >= -1.0 { value } else { f32::NAN };
    if x == 0.0 { x } else { value }
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    let capped = if size > 10.0 { 10.0 } else { size };
    let far = 1.0 - 2.0 / (exp::<FMA>(2.0 * capped) + 1.0);
    let z = size * size;
    let p = poly::<FMA, 5>(z, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let near = madd::<FMA>(p * z, size, size);
    let value = if size > 0.625 { far } else { near };
    value.copysign(x)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// `-log` of the complementary error function, for `t` in 0.92..=10.1.
#[inline(always)]
fn erf_exponent<const FMA: bool>(t: f32) -> f32 {
    let s = t * t;
    let r = madd::<FMA>(-1.728_534_7e-5, t, 3.831_98e-4);
    let u = madd::<FMA>(-3.883_964_4e-3, t, 2.425_462_2e-2);
    let r = madd::<FMA>(r, s, u);
    let r = poly::<FMA, 4>(t, [r, -1.067_778_8e-1, -6.348_467e-1, -1.287_175_1e-1]);
    madd::<FMA>(r, t, -t)
}

/// The error function.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    let s = x * x;
    let far = 1.0 - exp::<FMA>(erf_exponent::<FMA>(if size > 10.0 { 10.0 } else { size }));
    let far = far.copysign(x);
    let p = poly::<FMA, 6>(s, [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_3e-1, -3.761_253_4e-1, 1.283_791_7e-1]);
    let near = madd::<FMA>(p, x, x);
    let value = if size > 0.927_734_4 { far } else { near };
    if x.is_nan() { x } else { value }
}

/// The complementary error function.
///
/// With `a = |x|`, it is `e^(-a²) g / (1 + 2a)`. A polynomial in `(a - 2) / (a + 2)` gives `g`, which is near 1; its coefficients are
/// a minimax fit for relative errors, of 2e-8 at most. The square is taken of `a` to 12 bits, which is exact, and of the rest.
#[inline(always)]
pub fn erfc<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    // From here on the result is 0 or 2.
    let a = if size > 10.1 { 10.1 } else { size };
    let q = (a - 2.0) / (a + 2.0);
    let g = poly::<FMA, 10>(
        q,
        [
            -3.994_550_5e-4,
            -1.228_009_8e-3,
            1.313_314_5e-3,
            8.630_105e-3,
            -8.060_144e-3,
            -5.420_388_7e-2,
            1.640_554_2e-1,
            -1.660_314_6e-1,
            -9.276_398e-2,
            2.769_784e-1,
        ],
    );
    let short = f32::from_bits(a.to_bits() & 0xFFFF_F000);
    let rest = (short - a) * (short + a);
    let tail = madd::<FMA>(exp_tail::<FMA>(rest), rest * rest, rest);
    let scale = (1.0 + g) / (1.0 + 2.0 * a);
    let value = exp::<FMA>(-(short * short)) * madd::<FMA>(scale, tail, scale);
    let value = if x < 0.0 { 2.0 - value } else { value };
    if x.is_nan() { x } else { value }
}

/// `x^y` by the function of the standard library, except where two or three factors do.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    if y == 2.0 {
        x * x
    } else if y == 3.0 {
        cube(x)
    } else {
        f64::from(x).powf(f64::from(y)) as f32
    }
}

/// `x^3`, rounded once as far as floats can tell.
#[inline(always)]
pub fn cube(x: f32) -> f32 {
    let wide = f64::from(x);
    (wide * wide * wide) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units in the last place of the exact value `exact`.
    fn ulps(value: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if value.is_nan() || rounded.is_nan() {
            return if value.is_nan() && rounded.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if value == rounded {
            return 0.0;
        }
        if rounded.is_infinite() || value.is_infinite() {
            return f64::INFINITY;
        }
        let size = rounded.abs().max(f32::MIN_POSITIVE);
        let unit = f32::from_bits(size.to_bits() + 1) - size;
        ((f64::from(value) - exact) / f64::from(unit)).abs()
    }

    fn worst(name: &str, function: fn(f32) -> f32, exact: fn(f64) -> f64, limit: f64) {
        let mut worst = (0.0, 0.0f32);
        let mut check = |x: f32| {
            let error = ulps(function(x), exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, x);
            }
        };
        let mut bits = 0u32;
        while bits < 0x7F80_0000 {
            check(f32::from_bits(bits));
            check(-f32::from_bits(bits));
            bits += 7919;
        }
        for step in -220_000..220_000 {
            check(step as f32 / 2000.0);
        }
        for special in [0.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 88.722_84, 88.722_83, 1.0, 104.1] {
            check(special);
            check(-special);
        }
        println!("{name}: {:.3} units at {}", worst.0, worst.1);
        assert!(worst.0 <= limit, "{name}: {} units at {}", worst.0, worst.1);
    }

    #[test]
    fn functions_are_accurate_everywhere() {
        worst("exp", exp::<true>, f64::exp, 1.5);
        worst("expm1", expm1::<true>, f64::exp_m1, 2.0);
        worst("log", log::<true>, f64::ln, 1.5);
        worst("log1p", log1p::<true>, f64::ln_1p, 2.0);
        worst("tanh", tanh::<true>, f64::tanh, 2.0);
        worst("erf", erf::<true>, libm::erf, 2.0);
        worst("erfc", erfc::<true>, libm::erfc, 5.0);
    }

    #[test]
    fn functions_are_accurate_without_fma() {
        worst("exp", exp::<false>, f64::exp, 2.0);
        worst("expm1", expm1::<false>, f64::exp_m1, 3.0);
        worst("log", log::<false>, f64::ln, 2.0);
        worst("log1p", log1p::<false>, f64::ln_1p, 2.5);
        worst("tanh", tanh::<false>, f64::tanh, 2.5);
        worst("erf", erf::<false>, libm::erf, 2.5);
        worst("erfc", erfc::<false>, libm::erfc, 5.0);
    }

    #[test]
    fn sigmoid_is_accurate() {
        for step in -170_000..200_000 {
            let x = step as f32 / 2000.0;
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!(ulps(sigmoid::<true>(x), exact) <= 2.5 && ulps(sigmoid::<false>(x), exact) <= 3.0, "{x}");
        }
        for (x, value) in [(f32::INFINITY, 1.0), (f32::NEG_INFINITY, 0.0), (-200.0, 0.0), (200.0, 1.0)] {
            assert_eq!(sigmoid::<true>(x), value);
        }
        assert!(sigmoid::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn zeros_keep_their_sign() {
        for function in [expm1::<true>, log1p::<true>, tanh::<true>, erf::<true>, expm1::<false>, tanh::<false>] {
            assert!(function(-0.0).is_sign_negative() && function(0.0).is_sign_positive());
        }
    }
}
