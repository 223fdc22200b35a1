//! Candidate samplers: classes that a loss compares the true ones with, and how often each is to be expected among them
//! (TensorFlow's range_sampler.cc).

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::random::{Candidates, Sampler};

use super::kernels::advance;
use super::philox::Philox;
use super::words::Words;
use crate::cut::elements;

/// Blocks that an execution sets aside for each candidate.
const BLOCKS_PER_CANDIDATE: u64 = 512;

/// [`Candidates`]: see there for the arguments.
///
/// # Errors
/// INVALID_ARGUMENT where the sampler has too few classes, or sizes would be too large. At run time a fault for a true class that is
/// none, and where no unique candidates are found.
pub fn candidates(request: &Candidates) -> Result<Prepared> {
    let range = request.sampler.range();
    elements(&[range])?;
    elements(&[request.sampled, 4])?;
    elements(&[request.truths])?;
    if range == 0 || i64::try_from(range).is_err() || request.sampled > i32::MAX as u64 {
        return Err(Error::invalid_argument(format!("{} of {range} classes", request.sampled)));
    }
    let possible = match &request.sampler {
        Sampler::All { .. } if request.sampled != range => {
            return Err(Error::invalid_argument(format!("all of {range} classes are not {}", request.sampled)));
        }
        Sampler::Unigram { weights } => weights.iter().filter(|weight| **weight > 0.0).count() as u64,
        Sampler::Learned { range } if *range > 1 << 30 => return Err(Error::unimplemented(format!("{range} classes that are counted"))),
        _ => range,
    };
    if possible == 0 || request.unique && request.sampled > possible {
        return Err(Error::invalid_argument("Sampler's range is too small."));
    }
    let table = match &request.sampler {
        Sampler::Unigram { weights } => Some(Alias::new(weights)?),
        _ => None,
    };
    let places = if request.unique { 2 * request.sampled.next_power_of_two() } else { 0 };
    let numbers = (request.sampled + request.truths) as f64;
    let cost = Cost { flops: 200.0 * numbers, bytes: 24.0 * numbers };
    let kernel = Arc::new(Draw { request: request.clone(), table, places: places as usize });
    Ok(Prepared { chunks: 1, scratch: 8 * places, per_worker: 0, cost, in_place: Vec::new(), kernel })
}

/// Walker's alias method, as TensorFlow's distribution_sampler.cc builds its table.
#[derive(Debug)]
struct Alias {
    /// Of each class, the share of its own and the class that has the rest.
    places: Vec<(f32, u32)>,
    total: f32,
}

impl Alias {
    fn new(weights: &[f32]) -> Result<Alias> {
        if weights.iter().any(|weight| !weight.is_finite() || *weight < 0.0) || u32::try_from(weights.len()).is_err() {
            return Err(Error::invalid_argument("weights of classes are finite and not negative"));
        }
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut shares: Vec<f64> = weights.iter().map(|weight| f64::from(weight * weights.len() as f32) / sum).collect();
        let mut alias = vec![0u32; weights.len()];
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|class| shares[*class] < 1.0);
        while let (Some(less), Some(more)) = (low.last().copied(), high.last().copied()) {
            low.pop();
            high.pop();
            alias[less] = more as u32;
            shares[more] -= 1.0 - shares[less];
            if shares[more] < 1.0 { low.push(more) } else { high.push(more) }
        }
        // What is left is 1 but for rounding.
        low.into_iter().chain(high).for_each(|class| shares[class] = 1.0);
        let places = shares.into_iter().zip(alias).map(|(share, alias)| (share as f32, alias)).collect();
        Ok(Alias { places, total: weights.iter().sum() })
    }

    fn draw(&self, words: &mut Words) -> u64 {
        let share = words.float();
        let class = words.below(self.places.len() as u32) as usize;
        if share < self.places[class].0 { class as u64 } else { u64::from(self.places[class].1) }
    }
}

/// How often each class was a true one, as sums in a binary indexed tree: entry `i` counts the `lowest bit of i + 1` classes up to `i`.
struct Counts<'a>(&'a mut [u32]);

impl Counts<'_> {
    /// How often classes below `class` were.
    fn below(&self, class: usize) -> u64 {
        let (mut at, mut sum) = (class, 0);
        while at > 0 {
            sum += u64::from(self.0[at - 1]);
            at &= at - 1;
        }
        sum
    }

    fn count(&self, class: usize) -> u64 {
        self.below(class + 1).saturating_sub(self.below(class))
    }

    fn add(&mut self, class: usize) {
        let mut at = class + 1;
        while at <= self.0.len() {
            self.0[at - 1] = self.0[at - 1].wrapping_add(1);
            at += at & at.wrapping_neg();
        }
    }

    /// The weights of all classes: one for each, and one for each time that it was.
    fn total(&self) -> u64 {
        self.0.len() as u64 + self.below(self.0.len())
    }

    /// The class at a place among the weights of all.
    fn at(&self, mut place: u64) -> usize {
        let (mut class, mut step) = (0, self.0.len().next_power_of_two());
        while step > 0 {
            let end = class + step;
            if end <= self.0.len() {
                let weight = step as u64 + u64::from(self.0[end - 1]);
                if weight <= place {
                    (class, place) = (end, place - weight);
                }
            }
            step /= 2;
        }
        class.min(self.0.len().saturating_sub(1))
    }
}

/// The classes that were drawn, in a table of places where nothing else is on the way to theirs.
struct Seen<'a>(&'a mut [u64]);

impl Seen<'_> {
    /// Whether it is new.
    fn insert(&mut self, class: u64) -> bool {
        let mask = self.0.len() - 1;
        let mut at = (class.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            match self.0[at] {
                0 => {
                    self.0[at] = class + 1;
                    return true;
                }
                other if other == class + 1 => return false,
                _ => at = (at + 1) & mask,
            }
        }
    }
}

#[derive(Debug)]
struct Draw {
    request: Candidates,
    table: Option<Alias>,
    /// Places of the table of classes that were drawn; 0 where they may repeat.
    places: usize,
}

impl Draw {
    /// One class. `counts` are those of a sampler that learns.
    fn class(&self, words: &mut Words, counts: &Counts<'_>) -> u64 {
        match (&self.request.sampler, &self.table) {
            (Sampler::Uniform { range }, _) => words.long_below(*range),
            (Sampler::LogUniform { range }, _) => {
                let value = libm::exp(words.double() * log_range(*range)) as u64;
                value.saturating_sub(1) % range
            }
            (Sampler::Learned { .. }, _) => counts.at(u64::from(words.below(u32::try_from(counts.total()).unwrap_or(u32::MAX)))) as u64,
            (_, Some(table)) => table.draw(words),
            _ => 0,
        }
    }

    fn probability(&self, class: u64, counts: &Counts<'_>) -> f32 {
        match (&self.request.sampler, &self.table) {
            (Sampler::Uniform { range }, _) => (1.0 / *range as f64) as f32,
            (Sampler::LogUniform { range }, _) => {
                let class = class as f64;
                (libm::log((class + 2.0) / (class + 1.0)) / log_range(*range)) as f32
            }
            (Sampler::Learned { .. }, _) => (1 + counts.count(class as usize)) as f32 / counts.total() as f32,
            (Sampler::Unigram { weights }, Some(table)) => weights[class as usize] / table.total,
            _ => 1.0,
        }
    }
}

fn log_range(range: u64) -> f64 {
    libm::log1p(range as f64)
}

/// How often a class of that probability is among `sampled`, for which there were so many tries.
fn expected(probability: f32, sampled: u64, tries: u64) -> f32 {
    if tries == sampled {
        return probability * sampled as f32;
    }
    -libm::expm1f(tries as f32 * libm::log1pf(-probability))
}

impl CpuKernel for Draw {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if chunks.is_empty() {
            return Ok(());
        }
        let Candidates { sampler, unique, sampled, truths, seed, seed2 } = &self.request;
        let (count, range) = (*sampled as usize, sampler.range());
        let learned = if matches!(sampler, Sampler::Learned { .. }) { range as usize } else { 0 };
        // SAFETY: the arguments as documented, in one piece; the state has 8 bytes, then the counts of a sampler that learns. The
        // scratch has `places` numbers.
        let (truth, mut counts, drawn, of_truth, of_drawn, seen) = unsafe {
            (
                args.input::<i64>(0, *truths as usize),
                Counts(std::slice::from_raw_parts_mut(args.pointers[1].add(8).cast::<u32>(), learned)),
                args.output::<i64>(2, 0..count),
                args.output::<f32>(3, 0..*truths as usize),
                args.output::<f32>(4, 0..count),
                std::slice::from_raw_parts_mut(args.scratch.cast::<u64>(), self.places),
            )
        };
        if let Some(wrong) = truth.iter().find(|class| u64::try_from(**class).map_or(true, |class| class >= range)) {
            return Err(Fault::invalid("`true_candidate` out of range [0, {1}), received {0}", [*wrong, range as i64]));
        }
        if let Sampler::All { .. } = sampler {
            drawn.iter_mut().enumerate().for_each(|(at, class)| *class = at as i64);
            of_truth.fill(1.0);
            of_drawn.fill(1.0);
            return Ok(());
        }
        // SAFETY: as above.
        let done = unsafe { args.pointers[1].cast::<u64>().read_unaligned() };
        let mut words = Words::new(Philox::seeded(*seed as u64, *seed2 as u64).skip(done));
        seen.fill(0);
        let (mut seen, mut picked, mut tries) = (Seen(seen), 0, 0u64);
        while picked < count {
            if tries >= i32::MAX as u64 {
                return Err(Fault::invalid("no {0} unique candidates were found", [*sampled as i64, 0]));
            }
            tries += 1;
            let class = self.class(&mut words, &counts);
            if !unique || seen.insert(class) {
                drawn[picked] = class as i64;
                picked += 1;
            }
        }
        for (classes, results) in [(&*drawn, of_drawn), (truth, of_truth)] {
            for (class, result) in classes.iter().zip(results) {
                *result = expected(self.probability(*class as u64, &counts), *sampled, tries);
            }
        }
        if learned > 0 {
            truth.iter().for_each(|class| counts.add(*class as usize));
        }
        // SAFETY: as above.
        unsafe { advance(args.pointers[1], sampled.wrapping_mul(BLOCKS_PER_CANDIDATE)) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, run, values};

    const TRUTHS: [i64; 3] = [3, 7, 3];

    /// What three executions draw, and the state after them.
    fn thrice(sampler: Sampler, unique: bool) -> (Vec<Vec<i64>>, Vec<Vec<f32>>, Vec<u8>) {
        let request = Candidates { sampler, unique, sampled: 6, truths: 3, seed: 5, seed2: 7 };
        let state = request.sampler.state_bytes().unwrap() as usize;
        let prepared = candidates(&request).unwrap();
        let mut outputs = [vec![0; state], vec![0; 48], vec![0; 12], vec![0; 24]];
        let (mut drawn, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            run(&prepared, &[&bytes(&TRUTHS)], &mut outputs).unwrap();
            drawn.push(values::<i64>(&outputs[1]));
            expected.push(values::<f32>(&outputs[2]));
        }
        let [state, ..] = outputs;
        (drawn, expected, state)
    }

    fn near(found: &[f32], expected: &[f32]) -> bool {
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1e-6)
    }

    /// The numbers are those of three executions in TensorFlow.
    #[test]
    fn each_execution_goes_on_where_the_last_one_stopped() {
        let (drawn, expected, state) = thrice(Sampler::Uniform { range: 10 }, true);
        assert_eq!(drawn, [[0, 1, 5, 6, 8, 9], [7, 1, 5, 8, 3, 4], [3, 5, 8, 9, 7, 6]]);
        assert!(near(&expected[1], &[0.612_579_5; 3]) && near(&expected[2], &[0.651_321_6; 3]), "{expected:?}");
        assert_eq!(values::<u64>(&state), [3 * 6 * 512]);
        let (drawn, ..) = thrice(Sampler::LogUniform { range: 10 }, false);
        assert_eq!(drawn, [[3, 0, 3, 0, 0, 7], [4, 4, 7, 0, 3, 7], [0, 0, 3, 1, 4, 3]]);
    }

    /// As above.
    #[test]
    fn a_sampler_that_learns_prefers_true_classes() {
        let (drawn, expected, state) = thrice(Sampler::Learned { range: 10 }, true);
        assert_eq!(drawn, [[0, 5, 9, 2, 6, 8], [7, 6, 9, 1, 4, 5], [3, 1, 0, 9, 6, 8]]);
        assert!(near(&expected[1], &[0.840_633_7, 0.689_440_13, 0.840_633_7]), "{expected:?}");
        assert!(near(&expected[2], &[0.994_729_94, 0.945_357_9, 0.994_729_94]), "{expected:?}");
        let mut counts = values::<u32>(&state[8..]);
        let counts = Counts(&mut counts);
        assert_eq!((0..10).map(|class| counts.count(class)).collect::<Vec<_>>(), [0, 0, 0, 6, 0, 0, 0, 3, 0, 0]);
    }

    #[test]
    fn classes_that_are_none_are_refused() {
        let request = Candidates { sampler: Sampler::Uniform { range: 4 }, unique: false, sampled: 2, truths: 1, seed: 1, seed2: 1 };
        let mut outputs = [vec![0; 8], vec![0; 16], vec![0; 4], vec![0; 8]];
        for wrong in [-1i64, 4] {
            let fault = run(&candidates(&request).unwrap(), &[&bytes(&[wrong])], &mut outputs).unwrap_err();
            assert_eq!(fault.to_error().message(), format!("`true_candidate` out of range [0, 4), received {wrong}"));
        }
        assert_eq!(outputs[0], [0; 8], "nothing was drawn");
        let too_many =
            Candidates { sampler: Sampler::Unigram { weights: vec![1.0, 0.0, 2.0] }, unique: true, sampled: 3, ..request.clone() };
        assert!(candidates(&too_many).is_err());
        assert!(candidates(&Candidates { sampler: Sampler::Unigram { weights: vec![1.0, -1.0] }, ..request.clone() }).is_err());
        assert!(candidates(&Candidates { sampler: Sampler::All { range: 3 }, ..request }).is_err());
    }
}
