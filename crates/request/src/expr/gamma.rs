//! The incomplete gamma functions of doubles, and their derivatives by the first argument.

use super::digamma;

/// A number and its derivative by `a`.
#[derive(Clone, Copy)]
struct Dual(f64, f64);

impl Dual {
    fn plus(self, other: Dual) -> Dual {
        Dual(self.0 + other.0, self.1 + other.1)
    }

    fn times(self, other: Dual) -> Dual {
        Dual(self.0 * other.0, self.1 * other.0 + self.0 * other.1)
    }

    fn inverse(self) -> Dual {
        Dual(1.0 / self.0, -self.1 / (self.0 * self.0))
    }

    fn exp(self) -> Dual {
        let exp = libm::exp(self.0);
        Dual(exp, exp * self.1)
    }
}

/// The lower incomplete gamma function divided by the gamma function: 0 at `x` of 0, and 1 at infinity.
pub fn igamma(a: f64, x: f64) -> f64 {
    parts(a, x).0.0
}

/// 1 less [`igamma`].
pub fn igammac(a: f64, x: f64) -> f64 {
    if a <= 0.0 { f64::NAN } else { parts(a, x).1.0 }
}

/// The derivative of [`igamma`] by `a`.
pub fn igamma_grad_a(a: f64, x: f64) -> f64 {
    parts(a, x).0.1
}

/// The lower and the upper function, with derivatives.
fn parts(a: f64, x: f64) -> (Dual, Dual) {
    let both = |value: f64| (Dual(value, 0.0), Dual(1.0 - value, 0.0));
    let nan = (Dual(f64::NAN, f64::NAN), Dual(f64::NAN, f64::NAN));
    if x == 0.0 {
        return both(0.0);
    }
    if a.is_nan() || x.is_nan() || x < 0.0 || a <= 0.0 {
        return nan;
    }
    if a.is_infinite() {
        return if x.is_infinite() { nan } else { both(0.0) };
    }
    if x.is_infinite() {
        return both(1.0);
    }
    let complement = |value: Dual| Dual(1.0 - value.0, -value.1);
    if x > 1.0 && x > a {
        let upper = fraction(a, x);
        (complement(upper), upper)
    } else {
        let lower = series(a, x);
        (lower, complement(lower))
    }
}

/// `x^a exp(-x) / gamma(a + shift)`.
fn front(a: f64, x: f64, shift: f64) -> Dual {
    let log = libm::log(x);
    // Near the peak of a large `a` the terms are large and cancel: what is left is small, and of the digits enough.
    Dual(a * log - x - libm::lgamma(a + shift), log - digamma(a + shift)).exp()
}

/// The lower function, where `x` is not far above `a`: the sum of `x^n / ((a + 1) .. (a + n))`.
fn series(a: f64, x: f64) -> Dual {
    let (mut term, mut sum) = (Dual(1.0, 0.0), Dual(1.0, 0.0));
    for n in 1..20_000 {
        term = term.times(Dual(a + f64::from(n), 1.0).inverse()).times(Dual(x, 0.0));
        sum = sum.plus(term);
        if term.0 <= sum.0 * 1e-17 && libm::fabs(term.1) <= libm::fabs(sum.1) * 1e-17 {
            break;
        }
    }
    front(a, x, 1.0).times(sum)
}

/// The upper function, where `x` is above `a`: Legendre's continued fraction, from its front.
fn fraction(a: f64, x: f64) -> Dual {
    let tiny = 1e-300;
    let mut b = Dual(x + 1.0 - a, -1.0);
    let (mut c, mut d) = (Dual(1.0 / tiny, 0.0), b.inverse());
    let mut value = d;
    for n in 1..20_000 {
        let n = f64::from(n);
        let numerator = Dual(-n * (n - a), n);
        b = b.plus(Dual(2.0, 0.0));
        d = b.plus(numerator.times(d)).inverse();
        c = b.plus(numerator.times(c.inverse()));
        let factor = c.times(d);
        value = value.times(factor);
        if libm::fabs(factor.0 - 1.0) < 1e-16 && libm::fabs(factor.1) < 1e-16 {
            break;
        }
    }
    front(a, x, 0.0).times(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_whole_orders_are_sums() {
        for a in 1..30 {
            for at in 1..60 {
                let x = f64::from(at) * 0.7;
                let (mut term, mut sum) = (1.0, 1.0);
                for n in 1..a {
                    term *= x / f64::from(n);
                    sum += term;
                }
                let expected = sum * libm::exp(-x);
                let value = igammac(f64::from(a), x);
                assert!((value - expected).abs() <= 1e-12 * expected.max(0.1), "{a} {x}: {value} and not {expected}");
                assert!((igamma(f64::from(a), x) + value - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn the_derivative_is_the_slope() {
        for a in [0.05, 0.4, 1.0, 3.5, 20.0, 150.0] {
            for x in [0.01, 0.5, 1.0, 3.0, 21.0, 140.0, 160.0] {
                let by = f64::max(a * 1e-5, 1e-6);
                let slope = (igamma(a + by, x) - igamma(a - by, x)) / (2.0 * by);
                let value = igamma_grad_a(a, x);
                assert!((value - slope).abs() < 1e-6 * slope.abs().max(1e-2), "{a} {x}: {value} and {slope}");
            }
        }
    }
}
