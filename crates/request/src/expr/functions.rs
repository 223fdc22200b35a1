//! Functions of doubles that primitives are, where `libm` does not have them.

/// The remainder of `x / y` with the sign of `y`.
pub fn floor_mod(x: f64, y: f64) -> f64 {
    let rest = libm::fmod(x, y);
    if rest != 0.0 && (y < 0.0) != (rest < 0.0) { rest + y } else { rest }
}

/// The derivative of the logarithm of the gamma function; NaN at 0 and at negative integers, as in TensorFlow.
pub fn digamma(x: f64) -> f64 {
    /// From here on the series is as exact as a double.
    const FAR: f64 = 10.0;
    /// `B(2k) / 2k` for the Bernoulli numbers `B`, from `k = 1` on.
    const SERIES: [f64; 8] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0, -3617.0 / 8160.0];
    if x <= 0.0 {
        let floor = libm::floor(x);
        if floor == x {
            return f64::NAN;
        }
        // The reflection at 1/2, with the tangent near its zero.
        let mut rest = x - floor;
        if rest == 0.5 {
            return digamma(1.0 - x);
        }
        if rest > 0.5 {
            rest = x - (floor + 1.0);
        }
        return digamma(1.0 - x) - std::f64::consts::PI / libm::tan(std::f64::consts::PI * rest);
    }
    if x > 1e17 {
        return libm::log(x);
    }
    let (mut at, mut sum) = (x, 0.0);
    while at < FAR {
        sum -= 1.0 / at;
        at += 1.0;
    }
    let inverse_square = 1.0 / (at * at);
    let series = SERIES.iter().rev().fold(0.0, |series, term| (series + term) * inverse_square);
    sum + libm::log(at) - 0.5 / at - series
}

/// Hurwitz' zeta function, the sum of `(q + n)^-x` over all `n` from 0 on. As in TensorFlow infinite for `x` of 1, and NaN below; for
/// negative `q` there is a value where `x` is whole, and `q` is not.
pub fn zeta(x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x.is_nan() || q.is_nan() || x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        let (is_whole, is_even) = (x == libm::floor(x), libm::fmod(x, 2.0) == 0.0);
        if q == libm::floor(q) {
            return if is_whole && is_even { f64::INFINITY } else { f64::NAN };
        }
        if !is_whole {
            return f64::NAN;
        }
        // The terms below 0 are those of two other series, with their sign.
        let fraction = q - libm::floor(q);
        let below = zeta_above(x, 1.0 - fraction) - zeta_above(x, 1.0 - q);
        return zeta_above(x, fraction) + if is_even { below } else { -below };
    }
    zeta_above(x, q)
}

/// [`zeta`] for `q` above 0 and `x` above 1: a few terms, then the Euler-Maclaurin formula for the others.
fn zeta_above(x: f64, q: f64) -> f64 {
    const TERMS: usize = 10;
    /// `(2k)! / B(2k)` for the Bernoulli numbers `B`, from `k = 1` on.
    const SERIES: [f64; 12] = [
        12.0,
        -720.0,
        30_240.0,
        -1_209_600.0,
        47_900_160.0,
        -1_307_674_368_000.0 / 691.0,
        74_724_249_600.0,
        -10_670_622_842_880_000.0 / 3617.0,
        5_109_094_217_170_944_000.0 / 43_867.0,
        -802_857_662_698_291_200_000.0 / 174_611.0,
        155_112_100_433_309_859_840_000.0 / 854_513.0,
        -1_693_824_136_731_743_669_452_800_000.0 / 236_364_091.0,
    ];
    let (mut sum, mut at) = (0.0, q);
    for _ in 0..TERMS {
        let term = libm::pow(at, -x);
        sum += term;
        if term <= sum * f64::EPSILON {
            return sum;
        }
        at += 1.0;
    }
    let term = libm::pow(at, -x);
    sum += term * at / (x - 1.0) + 0.5 * term;
    let (mut rising, mut power) = (x, term / at);
    for (k, divisor) in SERIES.iter().enumerate() {
        let next = rising * power / divisor;
        sum += next;
        if next.abs() <= sum * f64::EPSILON {
            break;
        }
        let k = 2.0 * k as f64;
        rising *= (x + k + 1.0) * (x + k + 2.0);
        power /= at * at;
    }
    sum
}

/// Derivative `n` of [`digamma`]; NaN where `n` is not whole.
pub fn polygamma(n: f64, x: f64) -> f64 {
    if n == 0.0 {
        return digamma(x);
    }
    if n != libm::floor(n) {
        return f64::NAN;
    }
    let size = libm::exp(libm::lgamma(n + 1.0)) * zeta(n + 1.0, x);
    if libm::fmod(n, 2.0) == 0.0 { -size } else { size }
}

/// The inverse of the error function: infinities at 1 and -1, NaN outside.
pub fn erfinv(x: f64) -> f64 {
    let size = libm::fabs(x);
    if size >= 1.0 || size.is_nan() || size == 0.0 {
        return if size == 1.0 {
            x * f64::INFINITY
        } else if size == 0.0 {
            x
        } else {
            f64::NAN
        };
    }
    let root = match size < 0.5 {
        true => inverse(size, |y| libm::erf(y) - size),
        // The rest is exact here, and so is the distance from it.
        false => inverse(size, |y| (1.0 - size) - libm::erfc(y)),
    };
    libm::copysign(root, x)
}

/// The inverse of the cumulative function of the normal distribution: infinities at 0 and 1, NaN outside.
pub fn ndtri(p: f64) -> f64 {
    let tail = if p > 0.5 { 1.0 - p } else { p };
    if p.is_nan() || tail < 0.0 {
        return f64::NAN;
    }
    if tail > 0.25 {
        return std::f64::consts::SQRT_2 * erfinv(2.0 * p - 1.0);
    }
    let y = if tail == 0.0 { f64::INFINITY } else { inverse_of_tail(2.0 * tail) };
    std::f64::consts::SQRT_2 * if p > 0.5 { y } else { -y }
}

/// The root above 0 of a function whose slope is that of the error function, near the root of `erf(y) = x`.
fn inverse(x: f64, distance: impl Fn(f64) -> f64) -> f64 {
    refined(start_of_inverse(-libm::log((1.0 - x) * (1.0 + x))) * x, distance)
}

/// The `y` with `erfc(y) = rest`, for a rest of at most a half.
fn inverse_of_tail(rest: f64) -> f64 {
    let start = match rest > 1e-6 {
        true => start_of_inverse(-libm::log(rest * (2.0 - rest))) * (1.0 - rest),
        false => {
            let first = libm::sqrt(-libm::log(rest));
            libm::sqrt(-libm::log(rest * first * std::f64::consts::PI.sqrt()))
        }
    };
    refined(start, |y| rest - libm::erfc(y))
}

/// Halley's steps; the second derivative is `-2y` times the first.
fn refined(mut y: f64, distance: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..6 {
        let step = distance(y) / (std::f64::consts::FRAC_2_SQRT_PI * libm::exp(-y * y));
        let step = step / (1.0 + y * step);
        y -= step;
        if libm::fabs(step) <= f64::EPSILON * y {
            break;
        }
    }
    y
}

/// `erfinv(x) / x` to seven digits, from `w = -log(1 - x^2)` (Giles, Approximating the erfinv function, 2010).
fn start_of_inverse(w: f64) -> f64 {
    const NEAR: [f64; 9] = [
        2.810_226_36e-8,
        3.432_739_39e-7,
        -3.523_387_7e-6,
        -4.391_506_54e-6,
        2.185_808_7e-4,
        -1.253_725_03e-3,
        -4.177_681_64e-3,
        0.246_640_727,
        1.501_409_41,
    ];
    const FAR: [f64; 9] = [
        -2.002_142_57e-4,
        1.009_505_58e-4,
        1.349_343_22e-3,
        -3.673_428_44e-3,
        5.739_507_73e-3,
        -7.622_461_3e-3,
        9.438_870_47e-3,
        1.001_674_06,
        2.832_976_82,
    ];
    let (at, terms) = if w < 5.0 { (w - 2.5, NEAR) } else { (libm::sqrt(w) - 3.0, FAR) };
    terms.iter().fold(0.0, |sum, term| sum * at + term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_of_the_error_function() {
        for step in -999..1000 {
            let x = f64::from(step) / 1000.0;
            assert!((libm::erf(erfinv(x)) - x).abs() <= 4e-16, "{x}");
            let p = f64::from(step + 1000) / 2000.0;
            let z = -ndtri(p) / std::f64::consts::SQRT_2;
            let back = 0.5 * libm::erfc(z);
            // The last bit of z is up to 2 z^2 of the last bit of erfc(z).
            assert!((back - p).abs() <= (1.0 + 2.0 * z * z) * 4e-16 * p, "{p}: {back}");
        }
        for exponent in 4..300 {
            let p = libm::pow(10.0, -f64::from(exponent));
            let back = 0.5 * libm::erfc(-ndtri(p) / std::f64::consts::SQRT_2);
            assert!((back - p).abs() <= 1e-12 * p, "{p}: {back}");
            assert!((erfinv(p) / p - 0.5 * std::f64::consts::PI.sqrt()).abs() < 1e-7, "{p}");
        }
        assert_eq!((erfinv(1.0), erfinv(-1.0), ndtri(0.0), ndtri(1.0)), (f64::INFINITY, -f64::INFINITY, -f64::INFINITY, f64::INFINITY));
        assert!(erfinv(1.1).is_nan() && ndtri(-0.1).is_nan() && ndtri(1.1).is_nan() && erfinv(f64::NAN).is_nan());
    }

    #[test]
    fn digamma_is_the_slope_of_lgamma() {
        for (x, value) in [(1.0, -0.577_215_664_901_532_9), (0.5, -1.963_510_026_021_423_5), (10.0, 2.251_752_589_066_721)] {
            assert!((digamma(x) - value).abs() < 1e-14 * value.abs(), "{x}: {}", digamma(x));
        }
        for step in 1..400 {
            let x = f64::from(step) * 0.0737 - 8.0;
            if (x - libm::round(x)).abs() < 1e-2 && x < 0.5 {
                continue;
            }
            let slope = (libm::lgamma(x + 1e-6) - libm::lgamma(x - 1e-6)) / 2e-6;
            assert!((digamma(x) - slope).abs() < 1e-5 * slope.abs().max(1.0), "{x}: {} and {slope}", digamma(x));
        }
    }

    #[test]
    fn zeta_is_its_series() {
        let pi = std::f64::consts::PI;
        for (x, q, value) in [(2.0, 1.0, pi * pi / 6.0), (4.0, 1.0, pi.powi(4) / 90.0), (3.0, 0.5, 7.0 * 1.202_056_903_159_594_2)] {
            assert!((zeta(x, q) - value).abs() < 1e-14 * value, "{x} {q}: {}", zeta(x, q));
        }
        for (x, q) in [(2.0, -3.25), (3.0, -3.25), (5.0, -0.5), (2.5, 0.3), (7.0, 12.5)] {
            let (far, mut sum) = (100_000, 0.0);
            for n in (0..far).rev() {
                sum += f64::powf(q + f64::from(n), -x);
            }
            sum += f64::powf(q + f64::from(far) - 0.5, 1.0 - x) / (x - 1.0);
            assert!((zeta(x, q) - sum).abs() < 1e-9 * sum.abs(), "{x} {q}: {} and {sum}", zeta(x, q));
        }
        assert!(zeta(1.0, 2.0).is_infinite() && zeta(2.0, -1.0).is_infinite());
        assert!(zeta(0.5, 2.0).is_nan() && zeta(3.0, -1.0).is_nan() && zeta(2.5, -0.5).is_nan() && zeta(f64::NAN, 1.0).is_nan());
        // Far from 0 it takes no longer.
        assert!(zeta(2.0, -1e15 - 0.5) > 9.8);
    }

    #[test]
    fn polygamma_is_the_slope_of_the_one_before() {
        for n in 0..5 {
            for step in 1..100 {
                let x = f64::from(step) * 0.0837 - 3.0;
                if (x - libm::round(x)).abs() < 0.1 && x < 0.5 {
                    continue;
                }
                let (n, by) = (f64::from(n), 1e-6);
                let slope = (polygamma(n, x + by) - polygamma(n, x - by)) / (2.0 * by);
                let value = polygamma(n + 1.0, x);
                assert!((value - slope).abs() < 1e-5 * slope.abs().max(1.0), "{n} {x}: {value} and {slope}");
            }
        }
        assert!(polygamma(0.5, 1.0).is_nan());
    }

    #[test]
    fn remainders_have_the_sign_of_the_divisor() {
        let table = [(7.5, 2.0, 1.5), (-7.5, 2.0, 0.5), (7.5, -2.0, -0.5), (-7.5, -2.0, -1.5), (4.0, -2.0, 0.0)];
        for (x, y, rest) in table {
            assert_eq!(floor_mod(x, y), rest);
        }
    }
}
