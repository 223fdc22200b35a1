//! How long a step takes.

use std::time::Instant;

use plimsoll_base::Result;
use plimsoll_graph::HostTensor;

use crate::Callable;

/// Runs that are not timed: caches and pages are cold in the first ones.
const WARM_UP: u32 = 3;

/// The times of a step, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Half of the runs take no longer.
    pub median: f64,
    /// A tenth of the runs takes no longer.
    pub p10: f64,
    /// Nine tenths of the runs take no longer.
    pub p90: f64,
}

impl Timing {
    /// Runs a callable that many times, at least once, after some runs that are not timed.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn of(callable: &Callable, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], runs: u32) -> Result<Timing> {
        let mut milliseconds = Vec::with_capacity(runs as usize);
        for run in 0..WARM_UP + runs.max(1) {
            let start = Instant::now();
            callable.run_into(feeds, fetches)?;
            if run >= WARM_UP {
                milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        milliseconds.sort_by(f64::total_cmp);
        Ok(Timing { median: quantile(&milliseconds, 0.5), p10: quantile(&milliseconds, 0.1), p90: quantile(&milliseconds, 0.9) })
    }
}

/// The value at that part of the way through sorted values, of which there are some.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(&[1.0], 0.9), 1.0);
        assert_eq!(quantile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], 0.1), 1.0);
    }
}
