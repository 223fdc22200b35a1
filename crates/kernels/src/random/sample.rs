//! From blocks of random bits to numbers, as TensorFlow's distributions do it (random_distributions.h).

use plimsoll_base::{Bf16, F16};

use super::philox::Philox;

/// A number type and how it is drawn.
pub(super) trait Sample: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// Numbers that a block of four 32-bit numbers gives.
    const PER_BLOCK: usize;
    /// Number `at` of a block, uniform in [0, 1) for floats, all bits random for integers.
    fn uniform(block: [u32; 4], at: usize) -> Self;
}

/// A float type, with pairs of normal numbers.
pub(super) trait Normal: Sample {
    /// 32-bit numbers that a pair takes.
    const WORDS_PER_PAIR: usize;
    /// Two independent normal numbers (Box-Muller) of the first `WORDS_PER_PAIR` words.
    fn pair(words: [u32; 4]) -> [Self; 2];
    /// Whether a truncated normal may be this: less than two from the mean.
    fn is_near(self) -> bool;
}

/// The least argument of a logarithm.
const EPSILON: f32 = 1.0e-7;

/// The low 23 bits as the mantissa of a number in [1, 2), less 1.
#[inline(always)]
pub(super) fn unit_f32(bits: u32) -> f32 {
    f32::from_bits(0x3F80_0000 | bits & 0x007F_FFFF) - 1.0
}

#[inline(always)]
fn unit_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(0x3FF0_0000_0000_0000 | u64::from(high & 0x000F_FFFF) << 32 | u64::from(low)) - 1.0
}

impl Sample for f32 {
    const PER_BLOCK: usize = 4;
    #[inline(always)]
    fn uniform(block: [u32; 4], at: usize) -> f32 {
        unit_f32(block[at])
    }
}

/// The low bits are the mantissa of a number in [1, 2), less 1.
macro_rules! of_two_bytes {
    ($($t:ty, $one:literal, $mantissa:literal);*) => {$(
        impl Sample for $t {
            const PER_BLOCK: usize = 4;
            #[inline(always)]
            fn uniform(block: [u32; 4], at: usize) -> $t {
                <$t>::from_f32(<$t>::from_bits($one | block[at] as u16 & $mantissa).to_f32() - 1.0)
            }
        }
    )*};
}
of_two_bytes!(F16, 0x3C00, 0x03FF; Bf16, 0x3F80, 0x007F);

impl Sample for f64 {
    const PER_BLOCK: usize = 2;
    #[inline(always)]
    fn uniform(block: [u32; 4], at: usize) -> f64 {
        unit_f64(block[2 * at], block[2 * at + 1])
    }
}

impl Sample for u32 {
    const PER_BLOCK: usize = 4;
    #[inline(always)]
    fn uniform(block: [u32; 4], at: usize) -> u32 {
        block[at]
    }
}

impl Sample for u64 {
    const PER_BLOCK: usize = 2;
    #[inline(always)]
    fn uniform(block: [u32; 4], at: usize) -> u64 {
        u64::from(block[2 * at + 1]) << 32 | u64::from(block[2 * at])
    }
}

impl Normal for f32 {
    const WORDS_PER_PAIR: usize = 2;
    fn pair(words: [u32; 4]) -> [f32; 2] {
        let u = unit_f32(words[0]).max(EPSILON);
        let angle = (2.0 * std::f64::consts::PI * f64::from(unit_f32(words[1]))) as f32;
        let radius = (-2.0 * u.ln()).sqrt();
        let (sin, cos) = angle.sin_cos();
        [sin * radius, cos * radius]
    }
    fn is_near(self) -> bool {
        self.abs() < 2.0
    }
}

impl Normal for f64 {
    const WORDS_PER_PAIR: usize = 4;
    fn pair(words: [u32; 4]) -> [f64; 2] {
        let u = unit_f64(words[0], words[1]).max(1.0e-7);
        let angle = 2.0 * std::f64::consts::PI * unit_f64(words[2], words[3]);
        let radius = (-2.0 * u.ln()).sqrt();
        let (sin, cos) = angle.sin_cos();
        [sin * radius, cos * radius]
    }
    fn is_near(self) -> bool {
        self.abs() < 2.0
    }
}

/// The block's normal numbers, in order; `PER_BLOCK` of them.
#[inline(always)]
pub(super) fn normals<T: Normal>(block: [u32; 4]) -> [T; 4] {
    let first = T::pair(block);
    let second = if T::PER_BLOCK == 4 { T::pair([block[2], block[3], 0, 0]) } else { first };
    [first[0], first[1], second[0], second[1]]
}

/// `PER_BLOCK` truncated normal numbers from the blocks of a generator of their own: pairs are drawn until enough are near.
pub(super) fn truncated<T: Normal>(mut philox: Philox) -> [T; 4] {
    let (mut made, mut count) = (None::<[T; 4]>, 0);
    loop {
        let block = philox.block();
        philox = philox.skip(1);
        for start in (0..4).step_by(T::WORDS_PER_PAIR) {
            let pair = T::pair([block[start], block[start + 1], block[(start + 2) % 4], block[(start + 3) % 4]]);
            for value in pair.into_iter().filter(|value| value.is_near()) {
                made.get_or_insert([value; 4])[count] = value;
                count += 1;
                if count == T::PER_BLOCK {
                    return made.unwrap_or([value; 4]);
                }
            }
        }
    }
}
