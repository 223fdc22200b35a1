//! Floats of two bytes: TensorFlow's `half` and `bfloat16`. They are stored; numbers are computed as `f32`.

use std::fmt;

use bytemuck::{Pod, Zeroable};

macro_rules! two_bytes {
    ($(#[$doc:meta])* $name:ident, $to:ident, $from:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The number with these bits.
            pub const fn from_bits(bits: u16) -> $name {
                $name(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u16 {
                self.0
            }

            /// The nearest number, ties to even.
            #[inline(always)]
            pub fn from_f32(value: f32) -> $name {
                $name($from(value))
            }

            /// The same number.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                $to(self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
    };
}

two_bytes! {
    /// 5 bits of exponent and 10 of mantissa (IEEE binary16); compared by its bits.
    F16, f16_to_f32, f16_from_f32
}
two_bytes! {
    /// The upper half of an `f32`; compared by its bits.
    Bf16, bf16_to_f32, bf16_from_f32
}

// Without branches, so that loops over them become vector code.

#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    /// 2^112: the difference of the exponents' offsets.
    const SCALE: f32 = f32::from_bits(0x7780_0000);
    let bits = u32::from(bits);
    let (sign, size) = ((bits & 0x8000) << 16, (bits & 0x7FFF) << 13);
    let scaled = (f32::from_bits(size) * SCALE).to_bits();
    // Infinity and NaN.
    let special = if size >= 0x0F80_0000 { 0x7F80_0000 } else { 0 };
    f32::from_bits(sign | scaled | special)
}

#[inline(always)]
fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, size) = ((bits >> 16) & 0x8000, bits & 0x7FFF_FFFF);
    let rounded = size.wrapping_add(0xFFF + ((size >> 13) & 1));
    let normal = rounded.wrapping_sub(112 << 23) >> 13;
    // Below 2^-14 the unit is 2^-24, which is that of numbers from 0.5 on.
    let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let number = if size < 0x3880_0000 { small } else { normal };
    let number = if rounded >= 0x4780_0000 { 0x7C00 } else { number };
    let number = if size > 0x7F80_0000 { 0x7E00 } else { number };
    (sign | number) as u16
}

#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    let number = if bits & 0x7FFF_FFFF > 0x7F80_0000 { (bits >> 16) & 0x8000 | 0x7FC0 } else { rounded };
    number as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a number with so many bits of exponent and mantissa, by its definition.
    fn defined(bits: u16, exponent_bits: u32, mantissa_bits: u32) -> f64 {
        let mantissa = f64::from(bits & ((1 << mantissa_bits) - 1)) / f64::from(1u32 << mantissa_bits);
        let exponent = i32::from((bits >> mantissa_bits) & ((1 << exponent_bits) - 1));
        let (most, bias) = ((1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1);
        let size = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            _ if exponent == most => {
                if mantissa == 0.0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
        };
        if bits & 0x8000 == 0 { size } else { -size }
    }

    fn check(to: fn(u16) -> f32, from: fn(f32) -> u16, exponent_bits: u32, mantissa_bits: u32) {
        let infinity = ((1u16 << exponent_bits) - 1) << mantissa_bits;
        for bits in 0..=u16::MAX {
            let expected = defined(bits, exponent_bits, mantissa_bits);
            assert!(f64::from(to(bits)) == expected || to(bits).is_nan() && expected.is_nan(), "{bits:#x}");
            if !expected.is_nan() {
                assert_eq!(from(to(bits)), bits, "{bits:#x}");
            }
        }
        assert!(to(from(f32::NAN)).is_nan() && to(from(-f32::NAN)).is_nan());
        // Between two neighbours: the nearer one, and the even one from the middle.
        for bits in 0..infinity - 1 {
            let (low, high) = (f64::from(to(bits)), f64::from(to(bits + 1)));
            let middle = ((low + high) / 2.0) as f32;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            if f64::from(middle) == (low + high) / 2.0 {
                assert_eq!(from(middle), even, "the middle above {bits:#x}");
                assert_eq!(from(-middle), even | 0x8000);
            }
            assert_eq!(from(middle.next_down()), bits);
            assert_eq!(from(middle.next_up()), bits + 1);
        }
        assert_eq!(from(f32::INFINITY), infinity);
        assert_eq!(from(f32::MAX), infinity);
        assert_eq!(from(f32::from_bits(1)), 0);
    }

    #[test]
    fn every_number_is_what_its_bits_say_and_rounding_is_to_the_nearest() {
        check(f16_to_f32, f16_from_f32, 5, 10);
        check(bf16_to_f32, bf16_from_f32, 8, 7);
    }
}
