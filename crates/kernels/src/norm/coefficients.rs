//! The coefficients for every element of a channel: the parts put together, in scratch, a line of numbers for each.

use super::parts::Parts;
use plimsoll_request::norm::BatchNormSpec;

/// Lines of scratch.
pub(super) const LINES: usize = 4;

/// Whose mean and variance count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistics {
    /// The batch's own.
    Batch,
    /// Those given.
    Given,
}

/// The factor of differences from the mean.
pub(super) fn factor_of(scale: f32, variance: f32, epsilon: f32) -> f32 {
    scale / (variance + epsilon).sqrt()
}

/// The four lines, of a number for each channel.
pub(super) struct Lines<'a>(pub(super) [&'a mut [f32]; LINES]);

impl<'a> Lines<'a> {
    /// # Safety
    /// `scratch` has `LINES * channels` floats without another user.
    pub(super) unsafe fn new(scratch: *mut f32, channels: usize) -> Lines<'a> {
        // SAFETY: the caller's promise; zeros are floats.
        let mut all = unsafe {
            scratch.write_bytes(0, LINES * channels);
            std::slice::from_raw_parts_mut(scratch, LINES * channels)
        };
        Lines(std::array::from_fn(|_| {
            let (line, rest) = std::mem::take(&mut all).split_at_mut(channels);
            all = rest;
            line
        }))
    }

    /// Means to line 0, sums of squared differences from them to line 1.
    pub(super) fn moments(&mut self, parts: &Parts, between: &[f32]) {
        let [means, squares, ..] = &mut self.0;
        for (part, numbers) in between.chunks_exact((2 * means.len()).max(1)).enumerate() {
            let rows = parts.rows(part);
            let (before, new) = (rows.start as f32, rows.len() as f32);
            let (weight, spread) = if rows.is_empty() { (0.0, 0.0) } else { (new / (before + new), before * new / (before + new)) };
            let (part_means, part_squares) = numbers.split_at(means.len());
            for channel in 0..means.len() {
                let difference = part_means[channel] - means[channel];
                means[channel] += difference * weight;
                squares[channel] += part_squares[channel] + difference * difference * spread;
            }
        }
    }

    /// The parts' first numbers added to line 0, their second to line 1.
    pub(super) fn sums(&mut self, between: &[f32]) {
        let [firsts, seconds, ..] = &mut self.0;
        for numbers in between.chunks_exact((2 * firsts.len()).max(1)) {
            let (part_firsts, part_seconds) = numbers.split_at(firsts.len());
            for channel in 0..firsts.len() {
                firsts[channel] += part_firsts[channel];
                seconds[channel] += part_seconds[channel];
            }
        }
    }

    /// From means and sums of squares (lines 0 and 1): the factor of differences from the mean to line 2.
    pub(super) fn factors_of_moments(&mut self, spec: &BatchNormSpec, scale: &[f32]) {
        let [_, squares, factors, _] = &mut self.0;
        for channel in 0..factors.len() {
            factors[channel] = factor_of(scale[channel], squares[channel] / spec.rows as f32, spec.epsilon);
        }
    }

    /// Given means to line 0, and the factor of differences from them to line 2.
    pub(super) fn given(&mut self, spec: &BatchNormSpec, scale: &[f32], mean: &[f32], variance: &[f32]) {
        let [means, _, factors, _] = &mut self.0;
        means.copy_from_slice(mean);
        for channel in 0..factors.len() {
            factors[channel] = factor_of(scale[channel], variance[channel], spec.epsilon);
        }
    }

    /// From the sums in lines 0 and 1: the number that is taken off dy to line 1, and the factor of differences from the mean that
    /// is taken off too to line 3. The factor of all to line 2.
    pub(super) fn gradients(&mut self, spec: &BatchNormSpec, statistics: Statistics, scale: &[f32], variance: &[f32]) {
        let [sums, products, factors, slopes] = &mut self.0;
        let share = 1.0 / spec.rows as f32;
        for channel in 0..factors.len() {
            factors[channel] = factor_of(scale[channel], variance[channel], spec.epsilon);
            if statistics == Statistics::Batch {
                slopes[channel] = products[channel] * share / (variance[channel] + spec.epsilon);
                products[channel] = sums[channel] * share;
            }
        }
    }
}
