//! Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011),
//! with the state laid out as TensorFlow lays it out.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEP: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A generator: block `n` of four 32-bit numbers is that of `counter + n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Philox {
    pub(super) counter: u128,
    pub(super) key: [u32; 2],
}

/// Blocks that [`Philox::blocks`] makes at once.
pub(super) const LANES: usize = 16;

impl Philox {
    /// As for an operation with the attributes `seed` and `seed2`.
    pub(super) fn seeded(seed: u64, seed2: u64) -> Philox {
        Philox::new(seed, [0, seed2])
    }

    /// As for a stateless operation's key and counter.
    pub(super) fn new(key: u64, counter: [u64; 2]) -> Philox {
        Philox { counter: u128::from(counter[1]) << 64 | u128::from(counter[0]), key: [key as u32, (key >> 32) as u32] }
    }

    /// The generator `blocks` blocks on.
    #[inline(always)]
    pub(super) fn skip(self, blocks: u64) -> Philox {
        Philox { counter: self.counter.wrapping_add(u128::from(blocks)), ..self }
    }

    /// The block at the counter.
    #[inline(always)]
    pub(super) fn block(&self) -> [u32; 4] {
        let at = |word: u32| (self.counter >> (32 * word)) as u32;
        let (mut x, mut key) = ([at(0), at(1), at(2), at(3)], self.key);
        for _ in 0..ROUNDS {
            let (low, low2) = (u64::from(x[0]) * u64::from(MULTIPLIER[0]), u64::from(x[2]) * u64::from(MULTIPLIER[1]));
            x = [(low2 >> 32) as u32 ^ x[1] ^ key[0], low2 as u32, (low >> 32) as u32 ^ x[3] ^ key[1], low as u32];
            key = [key[0].wrapping_add(KEY_STEP[0]), key[1].wrapping_add(KEY_STEP[1])];
        }
        x
    }

    /// The blocks at the counter and the `LANES - 1` after it: number `word` of block `lane` is `[word][lane]`.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "lanes side by side become vectors")]
    pub(super) fn blocks(&self) -> [[u32; LANES]; 4] {
        let mut x = [[0u32; LANES]; 4];
        for lane in 0..LANES {
            let counter = self.counter.wrapping_add(lane as u128);
            for word in 0..4 {
                x[word][lane] = (counter >> (32 * word)) as u32;
            }
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            for lane in 0..LANES {
                let low = u64::from(x[0][lane]) * u64::from(MULTIPLIER[0]);
                let low2 = u64::from(x[2][lane]) * u64::from(MULTIPLIER[1]);
                x[0][lane] = (low2 >> 32) as u32 ^ x[1][lane] ^ key[0];
                x[1][lane] = low2 as u32;
                x[2][lane] = (low >> 32) as u32 ^ x[3][lane] ^ key[1];
                x[3][lane] = low as u32;
            }
            key = [key[0].wrapping_add(KEY_STEP[0]), key[1].wrapping_add(KEY_STEP[1])];
        }
        x
    }
}

/// The key and counter that `StatelessRandomGetKeyCounter` makes of a seed: words of the seed mixed by the generator itself,
/// so that it does not matter which of them vary.
pub(super) fn key_counter(seed: [u64; 2]) -> (u64, [u64; 2]) {
    let mix = Philox::new(0x0246_1E29_3EC8_F720, seed).block();
    (u64::from(mix[1]) << 32 | u64::from(mix[0]), [0, u64::from(mix[3]) << 32 | u64::from(mix[2])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // From the authors' Random123 library (kat_vectors).
        let ask = |counter, key: u64| Philox { counter, key: [key as u32, (key >> 32) as u32] }.block();
        assert_eq!(ask(0, 0), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(ask(u128::MAX, u64::MAX), [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]);
        let pi = ask(0x0370_7344_1319_8A2E_85A3_08D3_243F_6A88, 0x299F_31D0_A409_3822);
        assert_eq!(pi, [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1]);
    }

    #[test]
    fn blocks_at_once_are_the_blocks_one_by_one() {
        for counter in [0, u128::from(u32::MAX) - 3, u128::from(u64::MAX) - 7, u128::MAX - 2] {
            let philox = Philox { counter, key: [1, 2] };
            let blocks = philox.blocks();
            for (lane, block) in (0..LANES).map(|lane| (lane, [0, 1, 2, 3].map(|word: usize| blocks[word][lane]))) {
                assert_eq!(block, philox.skip(lane as u64).block());
            }
        }
    }
}
