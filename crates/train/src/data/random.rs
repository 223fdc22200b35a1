//! Random numbers for orders and distortions.

/// Steele, Lea and Flood's generator, begun at a hash of two numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

/// Keeps the streams of examples apart from those of epochs.
const EXAMPLES: u64 = 0x6578_616d_706c_6573;

impl SplitMix64 {
    /// The generator of a stream of a seed.
    pub fn new(seed: u64, stream: u64) -> SplitMix64 {
        let mut start = SplitMix64(seed);
        let hashed = start.next();
        let mut random = SplitMix64(hashed ^ stream);
        SplitMix64(random.next())
    }

    /// The generator of the example that is taken at `position` (how many were taken before it, in all epochs). It does not depend
    /// on draws for other examples.
    pub fn for_example(seed: u64, position: u64) -> SplitMix64 {
        SplitMix64::new(seed ^ EXAMPLES, position)
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by multiplication; the bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low .. high`, as `tf.random.uniform` draws it: one of 2^23 equidistant ones.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.next() >> 41) as f32 / (1u32 << 23) as f32;
        low + unit * (high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_over_their_range() {
        let mut random = SplitMix64::new(1, 2);
        let draws: Vec<f32> = (0..4000).map(|_| random.uniform(-63.0, 63.0)).collect();
        assert!(draws.iter().all(|draw| (-63.0..63.0).contains(draw)));
        let mean = draws.iter().sum::<f32>() / 4000.0;
        assert!(mean.abs() < 3.0, "{mean}");
        let mut seen = [0; 9];
        (0..4500).for_each(|_| seen[random.below(9) as usize] += 1);
        assert!(seen.iter().all(|count| (400..600).contains(count)), "{seen:?}");
    }

    #[test]
    fn examples_have_streams_of_their_own() {
        let first = |mut random: SplitMix64| random.next();
        let mut numbers: Vec<u64> = (0..1000).map(|position| first(SplitMix64::for_example(3, position))).collect();
        numbers.extend((0..1000).map(|epoch| first(SplitMix64::new(3, epoch))));
        numbers.extend((0..1000).map(|position| first(SplitMix64::for_example(4, position))));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 3000);
    }
}
