//! Random words one after the other, as TensorFlow's samplers take them (simple_philox.h).

use super::philox::Philox;
use super::sample::{Sample, unit_f32};

/// The words of a generator's blocks, in order.
pub(super) struct Words {
    /// Stands at the next block.
    philox: Philox,
    block: [u32; 4],
    /// Words of the block that were taken.
    taken: usize,
}

impl Words {
    /// From the first word of the generator's block on.
    pub(super) fn new(philox: Philox) -> Words {
        Words { philox, block: [0; 4], taken: 4 }
    }

    /// The generator `words` words on.
    pub(super) fn at(philox: Philox, words: u64) -> Words {
        let mut from = Words::new(philox.skip(words / 4));
        for _ in 0..words % 4 {
            from.word();
        }
        from
    }

    pub(super) fn word(&mut self) -> u32 {
        if self.taken == 4 {
            self.block = self.philox.block();
            self.philox = self.philox.skip(1);
            self.taken = 0;
        }
        self.taken += 1;
        self.block[self.taken - 1]
    }

    fn long_word(&mut self) -> u64 {
        let low = self.word();
        u64::from(self.word()) << 32 | u64::from(low)
    }

    /// In [0, 1).
    pub(super) fn float(&mut self) -> f32 {
        unit_f32(self.word())
    }

    /// In [0, 1).
    pub(super) fn double(&mut self) -> f64 {
        let (first, second) = (self.word(), self.word());
        f64::uniform([first, second, 0, 0], 0)
    }

    /// Below `n`, which is above 0, each as likely as the others.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        if n.is_power_of_two() {
            return self.word() & (n - 1);
        }
        let refused = u32::MAX % n + 1;
        loop {
            let word = self.word();
            if word >= refused {
                return word % n;
            }
        }
    }

    /// As [`Words::below`].
    pub(super) fn long_below(&mut self, n: u64) -> u64 {
        if n.is_power_of_two() {
            return self.long_word() & (n - 1);
        }
        let refused = u64::MAX % n + 1;
        loop {
            let word = self.long_word();
            if word >= refused {
                return word % n;
            }
        }
    }
}
