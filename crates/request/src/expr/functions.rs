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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn remainders_have_the_sign_of_the_divisor() {
        let table = [(7.5, 2.0, 1.5), (-7.5, 2.0, 0.5), (7.5, -2.0, -0.5), (-7.5, -2.0, -1.5), (4.0, -2.0, 0.0)];
        for (x, y, rest) in table {
            assert_eq!(floor_mod(x, y), rest);
        }
    }
}
