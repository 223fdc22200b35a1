//! Numbers, shapes and elements made at random, the same in every run.

use plimsoll_base::{Bf16, DataType, F16};

pub const FLOATS: &[DataType] = &[DataType::Float, DataType::Double, DataType::Half, DataType::Bfloat16];
pub const INTEGERS: &[DataType] = &[
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Int8,
    DataType::Int16,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
];

/// A generator (SplitMix64).
pub struct Making(u64);

impl Making {
    pub fn new(seed: u64) -> Making {
        Making(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A shape of at most `rank` dimensions and about `most` elements.
    pub fn shape(&mut self, rank: u64, most: u64) -> Vec<u64> {
        let rank = 1 + self.below(rank);
        let mut left = most;
        (0..rank)
            .map(|_| {
                let size = *self.of(&[1, 2, 3, 4, 5, 7, 8, 12, 16, 33, 64, 100, 257]);
                let size = size.min(left.max(1));
                left /= size;
                size
            })
            .collect()
    }

    /// Elements: small multiples of an eighth, sums of which are exact, or small integers.
    pub fn elements(&mut self, data_type: DataType, count: u64) -> Vec<u8> {
        (0..count).flat_map(|_| self.element(data_type)).collect()
    }

    fn element(&mut self, data_type: DataType) -> Vec<u8> {
        let number = self.below(97) as i64 - 48;
        let eighths = number as f32 / 8.0;
        match data_type {
            DataType::Float => eighths.to_le_bytes().to_vec(),
            DataType::Double => f64::from(eighths).to_le_bytes().to_vec(),
            DataType::Half => F16::from_f32(eighths).to_bits().to_le_bytes().to_vec(),
            DataType::Bfloat16 => Bf16::from_f32(eighths).to_bits().to_le_bytes().to_vec(),
            DataType::Bool => vec![(number & 1) as u8],
            other => number.to_le_bytes()[..other.size().unwrap_or(1)].to_vec(),
        }
    }

    /// Elements of all sizes, and those that are no numbers.
    pub fn wild(&mut self, data_type: DataType, count: u64) -> Vec<u8> {
        (0..count).flat_map(|_| if self.below(3) > 0 { self.element(data_type) } else { self.wild_element(data_type) }).collect()
    }

    fn wild_element(&mut self, data_type: DataType) -> Vec<u8> {
        const SPECIAL: [f32; 12] =
            [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 88.9, -103.5, 1.0e-41];
        let special = *self.of(&SPECIAL);
        let size = 10f32.powi(self.below(16) as i32 - 8) * (self.below(2000) as f32 - 1000.0) / 1000.0;
        let number = if self.below(4) == 0 { special } else { size };
        match data_type {
            DataType::Float => number.to_le_bytes().to_vec(),
            DataType::Double => f64::from(number).to_le_bytes().to_vec(),
            DataType::Half => F16::from_f32(number).to_bits().to_le_bytes().to_vec(),
            DataType::Bfloat16 => Bf16::from_f32(number).to_bits().to_le_bytes().to_vec(),
            DataType::Bool => vec![self.below(2) as u8],
            other => {
                let word = if self.below(4) == 0 { 1u64 << (other.size().unwrap_or(1) * 8 - 1) } else { self.word() };
                word.to_le_bytes()[..other.size().unwrap_or(1)].to_vec()
            }
        }
    }
}

/// How many cases a test makes: so many, or PLIMSOLL_KERNELS times as many.
pub fn times(count: usize) -> usize {
    let times = std::env::var("PLIMSOLL_KERNELS").ok().and_then(|times| times.parse::<usize>().ok()).unwrap_or(1);
    count * times.max(1)
}
