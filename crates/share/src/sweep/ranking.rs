//! The numbers of results: which of them ranks the runs, in which order they are, and their mean.

use std::time::Duration;

use plimsoll_base::{Error, Result};

use super::{Done, Outcome, Progress};

/// Parts of names of metrics whose largest value is best.
const RISES: [&str; 9] = ["acc", "score", "reward", "auc", "f1", "bleu", "precision", "recall", "right"];

/// Which value of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Best {
    /// As the metric's name says: the largest accuracy, score or reward, the smallest of anything else.
    pub fn of(metric: &str) -> Best {
        let metric = metric.to_lowercase();
        if RISES.iter().any(|name| metric.contains(name)) { Best::Max } else { Best::Min }
    }
}

impl Done {
    /// The numbers of the result with their names, without those inside of other objects.
    pub fn numbers(&self) -> Vec<(&str, f64)> {
        self.result.iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?))).collect()
    }
}

impl Outcome {
    /// Runs that came to their end.
    pub fn ended(&self) -> impl Iterator<Item = &Done> {
        self.done.iter().flatten()
    }

    /// The name of the first number in a result: the metric where none is named.
    pub fn first_number(&self) -> Option<&str> {
        self.ended().find_map(|done| Some(done.numbers().first()?.0))
    }

    /// Runs that came to their end, the best first; behind them those that failed or have no such number.
    pub fn ranked(&self, metric: &str, best: Best) -> Vec<&Done> {
        let key = |done: &Done| {
            let number = done.number(metric).filter(|value| !value.is_nan() && done.ok)?;
            Some(if best == Best::Max { -number } else { number })
        };
        let mut ranked: Vec<&Done> = self.ended().collect();
        ranked.sort_by(|a, b| match (key(a), key(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        ranked
    }

    /// The mean of a number of all results.
    ///
    /// # Errors
    /// NOT_FOUND where a run did not come to its end, or has no such number.
    pub fn mean(&self, name: &str) -> Result<f64> {
        let values: Option<Vec<f64>> = self.done.iter().map(|done| done.as_ref()?.number(name)).collect();
        let values = values.filter(|values| !values.is_empty()).ok_or_else(|| Error::not_found(format!("not every run has a {name}")))?;
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }
}

impl Progress {
    /// The time that the rest takes if it goes on as in `elapsed`, when `before` runs had ended at its beginning. None where no run
    /// has ended since then, or none is left.
    pub fn time_left(&self, before: usize, elapsed: Duration) -> Option<Duration> {
        let here = self.ended.saturating_sub(before);
        let left = self.total.saturating_sub(self.ended);
        (here > 0 && left > 0).then(|| elapsed.mul_f64(left as f64 / here as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(width: &str, loss: Option<f64>, ok: bool) -> Option<Done> {
        let result = loss.map(|loss| [("loss".to_string(), loss.into()), ("note".to_string(), "x".into())].into_iter().collect());
        let set = [("width".to_string(), width.into())].into_iter().collect();
        Some(Done { set, command: vec![], ok, status: String::new(), seconds: 1.0, peak_bytes: vec![], result })
    }

    #[test]
    fn runs_are_ranked_by_a_number() {
        let all =
            vec![done("64", Some(0.5), true), done("7", None, true), None, done("8", Some(0.1), false), done("128", Some(0.25), true)];
        let outcome = Outcome { done: all, before: 0, stopped: None };
        assert_eq!(outcome.first_number(), Some("loss"));
        let widths = |best| outcome.ranked("loss", best).iter().map(|done| done.set["width"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!((widths(Best::Min), widths(Best::Max)), (vec!["128", "64", "7", "8"], vec!["64", "128", "7", "8"]));
        assert_eq!(["loss", "test_Accuracy", "f1", "seconds"].map(Best::of), [Best::Min, Best::Max, Best::Max, Best::Min]);
    }

    #[test]
    fn a_mean_is_of_all_runs() {
        let outcome = |done| Outcome { done, before: 0, stopped: None };
        assert_eq!(outcome(vec![done("1", Some(0.5), true), done("2", Some(0.25), true)]).mean("loss").unwrap(), 0.375);
        assert!(outcome(vec![done("1", Some(0.5), true), None]).mean("loss").is_err());
        assert!(outcome(vec![done("1", Some(0.5), true), done("2", None, true)]).mean("loss").is_err());
        assert!(outcome(vec![]).mean("loss").is_err());
    }

    #[test]
    fn the_rest_takes_as_long_as_the_runs_before_it() {
        let progress = Progress { total: 8, ended: 4, failed: 1, running: 2, lingering: 0 };
        assert_eq!(progress.time_left(2, Duration::from_secs(10)), Some(Duration::from_secs(20)));
        assert_eq!(progress.time_left(4, Duration::from_secs(10)), None);
        assert_eq!(Progress { ended: 8, ..progress }.time_left(2, Duration::from_secs(10)), None);
    }
}
