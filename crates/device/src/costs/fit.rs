//! Rates from measured calls.

use super::{CostTable, Rates};
use crate::Step;

/// How many times the errors are weighted anew, and how many times each rate is improved for one weighting.
const WEIGHTINGS: usize = 30;
const SWEEPS: usize = 300;

/// A measured call of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    features: [f64; 6],
    seconds: f64,
}

impl Sample {
    /// A step that took `seconds` from its start to its end, on at most `threads` threads. The caches are those of the table.
    pub fn new(table: &CostTable, step: &Step, threads: u32, seconds: f64) -> Sample {
        Sample { features: table.features(step, threads), seconds }
    }

    fn predicted(&self, rates: &[f64; 6]) -> f64 {
        rates.iter().zip(self.features).map(|(rate, amount)| rate * amount).sum()
    }
}

/// The rates, none negative, whose predictions of the samples have the smallest squared errors by factor. Samples without time do
/// not count.
///
/// The error of a prediction `p` of the time `t` is `log(p / t)`. Near the solution it is `(p - t) / sqrt(p t)`, so the rates are
/// those of a weighted least-squares problem whose weights are made anew from its solution. Coordinate descent solves it: each rate
/// in turn gets its best value, or 0.
pub fn fit(samples: &[Sample]) -> Rates {
    let samples: Vec<Sample> = samples.iter().copied().filter(|sample| sample.seconds > 0.0).collect();
    let mut rates = [0.0f64; 6];
    let mut weights: Vec<f64> = samples.iter().map(|sample| sample.seconds.powi(-2)).collect();
    for _ in 0..WEIGHTINGS {
        descend(&samples, &weights, &mut rates);
        for (weight, sample) in weights.iter_mut().zip(&samples) {
            // A prediction far too small would have no bound.
            let predicted = sample.predicted(&rates).clamp(sample.seconds / 16.0, sample.seconds * 16.0);
            *weight = 1.0 / (predicted * sample.seconds);
        }
    }
    Rates::of(rates)
}

/// Improves the rates for the weights.
fn descend(samples: &[Sample], weights: &[f64], rates: &mut [f64; 6]) {
    let mut square = [[0.0f64; 6]; 6];
    let mut goal = [0.0f64; 6];
    for (Sample { features, seconds }, weight) in samples.iter().zip(weights) {
        for ((feature, goal), row) in features.iter().zip(&mut goal).zip(&mut square) {
            *goal += weight * feature * seconds;
            row.iter_mut().zip(features).for_each(|(sum, other)| *sum += weight * feature * other);
        }
    }
    for _ in 0..SWEEPS {
        for (one, (row, goal)) in square.iter().zip(&goal).enumerate() {
            if row[one] > 0.0 {
                rates[one] = 0.0;
                let others: f64 = row.iter().zip(&*rates).map(|(sum, rate)| sum * rate).sum();
                rates[one] = ((goal - others) / row[one]).max(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(rates: [f64; 6], sizes: &[f64], noise: impl Fn(usize) -> f64) -> Vec<Sample> {
        let of = |(index, size): (usize, &f64)| {
            let (fork, near) = ((index % 2) as f64, if index % 3 == 0 { *size } else { 0.0 });
            let mut sample = Sample { features: [1.0, fork, *size, size.sqrt(), near, size - near], seconds: 0.0 };
            sample.seconds = sample.predicted(&rates) * noise(index);
            sample
        };
        sizes.iter().enumerate().map(of).collect()
    }

    #[test]
    fn measured_calls_are_predicted() {
        let sizes: Vec<f64> = (0..24).map(|power| 10.0 * 1.6f64.powi(power)).collect();
        let truth = [1e-6, 4e-6, 1e-10, 0.0, 2e-10, 1e-9];
        let samples = samples(truth, &sizes, |index| if index % 2 == 0 { 1.05 } else { 0.95 });
        let rates = fit(&samples).numbers();
        for sample in &samples {
            let factor = sample.predicted(&rates) / sample.seconds;
            assert!((0.85..1.18).contains(&factor), "{factor} of {sample:?} with {rates:?}");
        }
    }

    #[test]
    fn nothing_measured_costs_nothing() {
        assert_eq!(fit(&[]), Rates::default());
        assert_eq!(fit(&[Sample { features: [1.0; 6], seconds: 0.0 }]), Rates::default());
    }

    proptest! {
        /// Whatever was measured, the rates are numbers, and none is negative.
        #[test]
        fn rates_are_those_of_a_machine(measured in prop::collection::vec((prop::array::uniform6(0.0..1e9f64), 1e-9..10.0f64), 0..20)) {
            let samples: Vec<Sample> = measured.iter().map(|(features, seconds)| Sample { features: *features, seconds: *seconds }).collect();
            prop_assert!(fit(&samples).numbers().iter().all(|rate| rate.is_finite() && *rate >= 0.0));
        }
    }
}
