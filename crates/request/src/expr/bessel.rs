//! Bessel functions, and integrals of exponentials, of doubles. Conventions at 0, below it and at infinity are TensorFlow's.

use std::f64::consts::PI;

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// From here on the modified functions of the first kind are asymptotic series.
const FAR: f64 = 20.0;

/// The modified function of the first kind and order 0, times `exp(-|x|)`.
pub fn bessel_i0e(x: f64) -> f64 {
    let x = libm::fabs(x);
    if x > FAR { asymptotic(0.0, x) / libm::sqrt(2.0 * PI * x) } else { libm::exp(-x) * powers(x, 0.0) }
}

/// As [`bessel_i0e`], without the factor.
pub fn bessel_i0(x: f64) -> f64 {
    libm::exp(libm::fabs(x)) * bessel_i0e(x)
}

/// The modified function of the first kind and order 1, times `exp(-|x|)`.
pub fn bessel_i1e(x: f64) -> f64 {
    let far = libm::fabs(x);
    let value = if far > FAR { asymptotic(4.0, far) / libm::sqrt(2.0 * PI * far) } else { libm::exp(-far) * far / 2.0 * powers(far, 1.0) };
    if x < 0.0 { -value } else { value }
}

/// As [`bessel_i1e`], without the factor.
pub fn bessel_i1(x: f64) -> f64 {
    libm::exp(libm::fabs(x)) * bessel_i1e(x)
}

/// The modified function of the second kind and order 0, times `exp(x)`.
pub fn bessel_k0e(x: f64) -> f64 {
    if x <= 0.0 {
        return f64::INFINITY;
    }
    if x > 2.0 {
        return integral(x, 0.0);
    }
    let quarter = x * x / 4.0;
    let (mut term, mut harmonic, mut sum) = (1.0, 0.0, 0.0);
    for k in 1..30 {
        let k = f64::from(k);
        term *= quarter / (k * k);
        harmonic += 1.0 / k;
        sum += term * harmonic;
    }
    libm::exp(x) * (sum - (libm::log(x / 2.0) + EULER) * powers(x, 0.0))
}

/// As [`bessel_k0e`], without the factor.
pub fn bessel_k0(x: f64) -> f64 {
    if x <= 0.0 { f64::INFINITY } else { libm::exp(-x) * bessel_k0e(x) }
}

/// The modified function of the second kind and order 1, times `exp(x)`.
pub fn bessel_k1e(x: f64) -> f64 {
    if x <= 0.0 {
        return f64::INFINITY;
    }
    if x > 2.0 {
        return integral(x, 1.0);
    }
    let quarter = x * x / 4.0;
    // The sum of `(x/2)^2k (psi(k + 1) + psi(k + 2)) / (k! (k + 1)!)`.
    let (mut term, mut psi, mut sum) = (1.0, 1.0 - 2.0 * EULER, 1.0 - 2.0 * EULER);
    for k in 1..30 {
        let k = f64::from(k);
        term *= quarter / (k * (k + 1.0));
        psi += 1.0 / k + 1.0 / (k + 1.0);
        sum += term * psi;
    }
    libm::exp(x) * (1.0 / x + libm::log(x / 2.0) * x / 2.0 * powers(x, 1.0) - x / 4.0 * sum)
}

/// As [`bessel_k1e`], without the factor.
pub fn bessel_k1(x: f64) -> f64 {
    if x <= 0.0 { f64::INFINITY } else { libm::exp(-x) * bessel_k1e(x) }
}

/// The function of the first kind and order 0; NaN at infinity.
pub fn bessel_j0(x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { libm::j0(x) }
}

/// The function of the first kind and order 1; NaN at infinity.
pub fn bessel_j1(x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { libm::j1(x) }
}

/// The function of the second kind and order 0; minus infinity up to 0, and NaN at infinity.
pub fn bessel_y0(x: f64) -> f64 {
    match x {
        f64::INFINITY => f64::NAN,
        _ if x <= 0.0 => f64::NEG_INFINITY,
        _ => libm::y0(x),
    }
}

/// The function of the second kind and order 1; minus infinity up to 0, and NaN at infinity.
pub fn bessel_y1(x: f64) -> f64 {
    match x {
        f64::INFINITY => f64::NAN,
        _ if x <= 0.0 => f64::NEG_INFINITY,
        _ => libm::y1(x),
    }
}

/// The sum of `(x^2/4)^k / (k! (k + order)!)`: all terms are positive.
fn powers(x: f64, order: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > sum * 1e-17 {
        term *= quarter / (k * (k + order));
        sum += term;
        k += 1.0;
    }
    sum
}

/// The series in `1 / 8x` of the functions of the first kind; `square` is four times the order's square.
fn asymptotic(square: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..40 {
        let odd = f64::from(2 * k - 1);
        let next = term * (odd * odd - square) / (f64::from(8 * k) * x);
        if libm::fabs(next) < 1e-18 || (k > 2 && libm::fabs(next) > libm::fabs(term)) {
            break;
        }
        term = next;
        sum += term;
    }
    sum
}

/// The integral of `exp(-x (cosh t - 1)) cosh(order t)` over all `t` from 0 on, by the trapezoidal rule, which is exact to a double: the
/// integrand is analytic and falls as fast as exponentials of exponentials.
fn integral(x: f64, order: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    let step = 0.35 / libm::sqrt(x);
    let mut sum = 0.5;
    for at in 1..200 {
        let t = f64::from(at) * step;
        // cosh t - 1, without the loss of its digits.
        let half = libm::sinh(t / 2.0);
        let term = libm::exp(-2.0 * x * half * half) * libm::cosh(order * t);
        sum += term;
        if term < 1e-18 {
            break;
        }
    }
    sum * step
}

/// Dawson's integral: `exp(-x^2)` times the integral of `exp(t^2)` from 0 to `x`.
pub fn dawson(x: f64) -> f64 {
    /// The width of the bells that the function is a sum of; the error is `exp(-(pi / 2 STEP)^2)`.
    const STEP: f64 = 0.2;
    let far = libm::fabs(x);
    if far < 0.2 {
        let square = x * x;
        // Terms of alternating sign: `(-2)^k x^(2k + 1) / (1 3 5 .. (2k + 1))`.
        let (mut term, mut sum) = (x, x);
        for k in 1..20 {
            term *= -2.0 * square / f64::from(2 * k + 1);
            sum += term;
        }
        return sum;
    }
    if far > 12.0 {
        // The series in `1 / 2x^2`, whose terms fall below a double's precision here.
        let inverse = 1.0 / (2.0 * far * far);
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..16 {
            term *= f64::from(2 * k - 1) * inverse;
            sum += term;
        }
        let value = sum / (2.0 * far);
        return if x < 0.0 { -value } else { value };
    }
    let mut sum = 0.0;
    // Bells at odd multiples of the step, near enough to count.
    let nearest = libm::floor(far / STEP) as i32 | 1;
    for bell in (nearest - 60..=nearest + 60).step_by(2) {
        let distance = far - f64::from(bell) * STEP;
        sum += libm::exp(-distance * distance) / f64::from(bell);
    }
    let value = sum / libm::sqrt(PI);
    if x < 0.0 { -value } else { value }
}

/// The exponential integral: of `exp(t) / t` from minus infinity to `x`. Minus infinity at 0, NaN below.
pub fn expint(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 || x.is_infinite() {
        return f64::NAN;
    }
    if x > 45.0 {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..45 {
            let next = term * f64::from(k) / x;
            if next < 1e-17 || next > term {
                break;
            }
            term = next;
            sum += term;
        }
        return libm::exp(x) / x * sum;
    }
    let (mut power, mut sum, mut k) = (1.0, 0.0, 1.0);
    loop {
        power *= x / k;
        let term = power / k;
        sum += term;
        if k > x && term < sum * 1e-17 {
            break;
        }
        k += 1.0;
    }
    EULER + libm::log(x) + sum
}

/// Spence's function: the integral of `log(t) / (1 - t)` from 1 to `x`. NaN below 0.
pub fn spence(x: f64) -> f64 {
    const SQUARE: f64 = PI * PI / 6.0;
    if x.is_nan() || x < 0.0 || x.is_infinite() {
        return f64::NAN;
    }
    if x == 0.0 {
        return SQUARE;
    }
    // The dilogarithm of 1 - x, brought to where its series is short.
    if x > 2.0 {
        let log = libm::log(x);
        return -0.5 * log * log - spence(1.0 / x);
    }
    if x < 0.5 {
        return SQUARE - libm::log(x) * libm::log1p(-x) - dilogarithm(x);
    }
    dilogarithm(1.0 - x)
}

/// Of numbers from -1 to 1/2: by Bernoulli numbers, in powers of `-log(1 - z)`.
fn dilogarithm(z: f64) -> f64 {
    /// `B(2k) / (2k + 1)!` from `k = 1` on.
    const SERIES: [f64; 12] = [
        2.777_777_777_777_778e-2,
        -2.777_777_777_777_778e-4,
        4.724_111_866_969_009e-6,
        -9.185_773_074_661_964e-8,
        1.897_886_998_897_1e-9,
        -4.064_761_645_144_225_5e-11,
        8.921_691_020_456_453e-13,
        -1.993_929_586_072_107_5e-14,
        4.518_980_029_619_918e-16,
        -1.035_651_761_218_124_8e-17,
        2.395_218_621_026_186_5e-19,
        -5.581_785_874_325_009e-21,
    ];
    let u = -libm::log1p(-z);
    let square = u * u;
    let series = SERIES.iter().rev().fold(0.0, |sum, term| (sum + term) * square);
    u - square / 4.0 + u * series
}

#[cfg(test)]
mod tests {
    use super::*;

    type Function = fn(f64) -> f64;

    /// To all digits of a double.
    #[test]
    fn functions_have_the_values_of_tables() {
        let table: [(Function, f64, f64); 18] = [
            (bessel_i0, 1.0, 1.266_065_877_752_008_4),
            (bessel_i0e, 25.0, 0.080_196_773_547_436_7),
            (bessel_i1, 1.0, 0.565_159_103_992_485),
            (bessel_i1e, -5.5, -0.157_701_009_016_756_46),
            (bessel_k0, 1.0, 0.421_024_438_240_708_34),
            (bessel_k0, 2.0, 0.113_893_872_749_533_43),
            (bessel_k1, 1.0, 0.601_907_230_197_234_6),
            (bessel_k1, 3.0, 0.040_156_431_128_194_19),
            (bessel_j0, 1.0, 0.765_197_686_557_966_6),
            (bessel_y1, 1.0, -0.781_212_821_300_288_7),
            (dawson, 1.0, 0.538_079_506_912_768_4),
            (dawson, 0.1, 0.099_335_992_397_852_86),
            (dawson, 20.0, 0.025_031_367_926_403_675),
            (expint, 1.0, 1.895_117_816_355_936_8),
            (spence, 0.0, PI * PI / 6.0),
            (spence, 0.5, 0.582_240_526_465_012_5),
            (spence, 2.0, -PI * PI / 12.0),
            (spence, 1.0, 0.0),
        ];
        for (function, x, expected) in table {
            let value = function(x);
            assert!((value - expected).abs() <= 2e-14 * expected.abs(), "{x}: {value} and not {expected}");
        }
    }

    /// Values on both sides of where the ways to compute them meet, by the derivative: no way sees the other.
    #[test]
    fn functions_are_smooth_where_their_branches_meet() {
        let meets: [(Function, f64); 10] = [
            (bessel_i0e, FAR),
            (bessel_i1e, FAR),
            (bessel_k0e, 2.0),
            (bessel_k1e, 2.0),
            (dawson, 0.2),
            (dawson, 12.0),
            (expint, 45.0),
            (spence, 0.5),
            (spence, 2.0),
            (spence, 1.0),
        ];
        for (function, x) in meets {
            let step = 1e-3;
            let [a, b, c, d] = [-2.0, -1.0, 1.0, 2.0].map(|at: f64| function(x + at * step));
            // A cubic through three of the points meets the fourth.
            let size = a.abs().max(d.abs()).max(1e-3);
            let slope = (d - a) / 4.0 - (c - b) / 2.0;
            assert!(slope.abs() < 1e-8 * size.max(1.0), "{x}: {a} {b} {c} {d}");
            let near = [x * (1.0 - 1e-14), x * (1.0 + 1e-14)].map(function);
            assert!((near[0] - near[1]).abs() <= 1e-12 * size.max(1.0), "{x}: {near:?}");
        }
    }

    /// `I0 K1 + I1 K0 = 1 / x`.
    #[test]
    fn products_of_modified_functions_are_the_inverse() {
        for at in 1..400 {
            let x = f64::from(at) * 0.13;
            let sum = bessel_i0e(x) * bessel_k1e(x) + bessel_i1e(x) * bessel_k0e(x);
            assert!((sum * x - 1.0).abs() < 1e-13, "{x}: {sum}");
        }
    }
}
