//! Fresnel's integrals.

use std::f64::consts::{FRAC_PI_2, PI};

/// Where the series gives way to the continued fraction.
const NEAR: f64 = 1.6;
/// Where both integrals are their limit, to a double's half of digits, and angles are not known any more.
const FAR: f64 = 36_974.0;

/// The integral of `cos(pi / 2 t^2)` from 0 to `x`.
pub fn fresnel_cos(x: f64) -> f64 {
    integrals(x).0
}

/// The integral of `sin(pi / 2 t^2)` from 0 to `x`.
pub fn fresnel_sin(x: f64) -> f64 {
    integrals(x).1
}

fn integrals(x: f64) -> (f64, f64) {
    if x.is_nan() {
        return (x, x);
    }
    let far = libm::fabs(x);
    let (cos, sin) = if far < NEAR {
        series(far)
    } else if far > FAR {
        (0.5, 0.5)
    } else {
        fraction(far)
    };
    (libm::copysign(cos, x), libm::copysign(sin, x))
}

/// The terms `(-1)^k (pi / 2)^2k x^(4k + 1) / ((2k)! (4k + 1))` of the cosine, and those between them of the sine.
fn series(x: f64) -> (f64, f64) {
    let angle = FRAC_PI_2 * x * x;
    let (mut power, mut sums) = (x, [0.0, 0.0]);
    for k in 0..40u32 {
        let term = power / f64::from(2 * k + 1);
        // The signs go + + - -: cosine, sine, cosine, sine.
        sums[k as usize % 2] += if k % 4 < 2 { term } else { -term };
        power *= angle / f64::from(k + 1);
    }
    (sums[0], sums[1])
}

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn inverse(a: Complex) -> Complex {
    let square = a.0 * a.0 + a.1 * a.1;
    (a.0 / square, -a.1 / square)
}

/// The continued fraction of the complementary error function of a complex number, by Lentz's method.
fn fraction(x: f64) -> (f64, f64) {
    let square = PI * x * x;
    let mut b = (1.0, -square);
    let mut d = inverse(b);
    let mut c = (f64::MAX.sqrt(), 0.0);
    let mut h = d;
    for k in 1..200 {
        let a = -f64::from((2 * k - 1) * (2 * k));
        b.0 += 4.0;
        d = inverse((a * d.0 + b.0, a * d.1 + b.1));
        let back = inverse(c);
        c = (b.0 + a * back.0, b.1 + a * back.1);
        let change = times(c, d);
        h = times(h, change);
        if libm::fabs(change.0 - 1.0) + libm::fabs(change.1) < 1e-16 {
            break;
        }
    }
    let h = times(h, (x, -x));
    let angle = FRAC_PI_2 * libm::fmod(x * x, 4.0);
    let turned = times((libm::cos(angle), libm::sin(angle)), h);
    times((0.5, 0.5), (1.0 - turned.0, -turned.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree_where_they_meet_and_slopes_are_the_integrands() {
        let (near, far) = (series(NEAR), fraction(NEAR));
        assert!((near.0 - far.0).abs() < 1e-13 && (near.1 - far.1).abs() < 1e-13, "{near:?} {far:?}");
        for step in 1..400 {
            let (x, width) = (f64::from(step) * 0.0131, 1e-5);
            let slope = |of: fn(f64) -> f64| (of(x + width) - of(x - width)) / (2.0 * width);
            let angle = FRAC_PI_2 * x * x;
            assert!((slope(fresnel_cos) - angle.cos()).abs() < 1e-6, "{x}");
            assert!((slope(fresnel_sin) - angle.sin()).abs() < 1e-6, "{x}");
        }
        assert_eq!((fresnel_cos(f64::INFINITY), fresnel_sin(f64::NEG_INFINITY)), (0.5, -0.5));
        assert!(fresnel_cos(f64::NAN).is_nan() && fresnel_sin(-0.0).is_sign_negative());
    }
}
