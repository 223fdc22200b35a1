//! A member's use of its held bytes, over all its time, in few bytes.

use std::time::Duration;

/// Bytes of a history in a slot.
pub(super) const SIZE: usize = 256;

/// How many steps are kept. When they are full, two become one, and a step is twice as long.
const STEPS: usize = 240;

/// How long a step is at first.
const FIRST: Duration = Duration::from_millis(100);

/// The number for all held bytes. More is shown up to a quarter beyond.
const ALL: u64 = 200;

/// Use over time: for each step the most, as a part of the bytes held then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    step_ms: u32,
    levels: Vec<u8>,
    /// The last use, which in a step need not be the most.
    last: u8,
}

impl History {
    /// How long a step is.
    pub fn step(&self) -> Duration {
        Duration::from_millis(self.step_ms.into())
    }

    /// For each step, oldest first, the most that was used, 1 being all that was held. The last step may be still going on.
    pub fn shares(&self) -> impl ExactSizeIterator<Item = f32> {
        self.levels.iter().map(|&level| f32::from(level) / ALL as f32)
    }

    /// So long after the beginning, so much is used of so much.
    pub(super) fn note(&mut self, after: Duration, used: u64, held: u64) {
        if self.step_ms == 0 {
            self.step_ms = FIRST.as_millis() as u32;
        }
        let level = (u128::from(used) * u128::from(ALL)).div_ceil(u128::from(held.max(1))).min(255) as u8;
        let place = |step_ms: u32| usize::try_from(after.as_millis() / u128::from(step_ms)).unwrap_or(usize::MAX);
        while place(self.step_ms) >= STEPS {
            let Some(longer) = self.step_ms.checked_mul(2) else { return };
            self.step_ms = longer;
            self.levels = self.levels.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        }
        let (place, last) = (place(self.step_ms), std::mem::replace(&mut self.last, level));
        if place < self.levels.len() {
            let on = self.levels.last_mut().map(|on| *on = (*on).max(level));
            debug_assert!(on.is_some());
        } else {
            // Nothing has changed since.
            self.levels.resize(place, last);
            self.levels.push(level);
        }
    }

    pub(super) fn encode(&self) -> [u8; SIZE] {
        let mut out = [0; SIZE];
        out[..4].copy_from_slice(&self.step_ms.to_le_bytes());
        out[4] = self.levels.len().min(STEPS) as u8;
        out[5] = self.last;
        for (place, level) in out[8..8 + STEPS].iter_mut().zip(&self.levels) {
            *place = *level;
        }
        out
    }

    /// The history in a slot; empty where that is none.
    pub(super) fn decode(bytes: &[u8]) -> History {
        let (Some((step, rest)), Some(&[count, last])) = (bytes.split_first_chunk::<4>(), bytes.get(4..6)) else {
            return History::default();
        };
        let levels = rest.get(4..4 + usize::from(count).min(STEPS)).unwrap_or_default().to_vec();
        History { step_ms: u32::from_le_bytes(*step), levels, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(history: &History) -> Vec<f32> {
        history.shares().collect()
    }

    #[test]
    fn steps_keep_their_most_and_become_longer() {
        let ms = Duration::from_millis;
        let mut history = History::default();
        history.note(ms(10), 50, 100);
        history.note(ms(20), 25, 100);
        history.note(ms(350), 0, 100);
        assert_eq!((history.step(), shares(&history)), (ms(100), vec![0.5, 0.25, 0.25, 0.0]));
        history.note(ms(24_000), 300, 100);
        assert_eq!((history.step(), history.levels.len()), (ms(200), 121));
        assert_eq!(shares(&history)[..3], [0.5, 0.25, 0.0]);
        assert_eq!(shares(&history)[120], 255.0 / 200.0, "no more than is shown");
        history.note(Duration::MAX, 1, 1);
        history.note(Duration::from_secs(86400 * 365), 1, 0);
        assert!(history.levels.len() <= STEPS);
    }

    #[test]
    fn every_content_of_a_slot_is_read() {
        let mut history = History::default();
        for step in 0..300 {
            history.note(Duration::from_millis(step * 90), step, 300);
            assert_eq!(History::decode(&history.encode()), history);
        }
        for bytes in [&[][..], &[1, 2, 3], &[255; SIZE], &[255; 8]] {
            let _ = shares(&History::decode(bytes));
        }
    }
}
