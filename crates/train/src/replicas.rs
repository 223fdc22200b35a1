//! How many towers pay off.

use std::fmt;

use plimsoll::{Code, Error, Result};

/// More towers have to be so many times as fast as fewer: predictions are no better than that.
const CLEARLY: f64 = 1.01;

/// A number of towers that was looked at.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The towers.
    pub towers: u32,
    /// The predicted seconds of a step with them; an error where there is no such step: the batch cannot be divided among them, or
    /// it does not fit.
    pub seconds: Result<f64>,
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let towers = if self.towers == 1 { "1 tower".to_string() } else { format!("{} towers", self.towers) };
        match &self.seconds {
            Ok(seconds) => write!(f, "{towers}: {:.2} ms a step", seconds * 1e3),
            Err(error) => write!(f, "{towers}: {}", error.message().lines().next().unwrap_or_default()),
        }
    }
}

/// Looks at trainings with one tower up to `most`, all with batches of the same size. `plan` says the predicted seconds of a step. The
/// position of the one to take, and what was looked at.
///
/// # Errors
/// Errors of `plan` other than INVALID_ARGUMENT and RESOURCE_EXHAUSTED; where no number is possible, that of one tower.
pub fn replicas(most: u32, mut plan: impl FnMut(u32) -> Result<f64>) -> Result<(usize, Vec<Replicas>)> {
    let mut looked_at = Vec::new();
    let mut best: Option<(usize, f64)> = None;
    for towers in 1..=most.max(1) {
        let seconds = plan(towers);
        match &seconds {
            Ok(seconds) if best.is_none_or(|(_, least)| seconds * CLEARLY < least) => best = Some((looked_at.len(), *seconds)),
            Err(error) if !matches!(error.code(), Code::InvalidArgument | Code::ResourceExhausted) => return Err(error.clone()),
            _ => {}
        }
        looked_at.push(Replicas { towers, seconds });
    }
    match best {
        Some((position, _)) => Ok((position, looked_at)),
        None => Err(looked_at.swap_remove(0).seconds.err().unwrap_or_else(|| Error::internal("no number of towers was looked at"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(times: &[Option<f64>]) -> Result<u32> {
        let of = |towers: u32| times[towers as usize - 1].ok_or_else(|| Error::invalid_argument(format!("not {towers}")));
        replicas(times.len() as u32, of).map(|(position, all)| all[position].towers)
    }

    #[test]
    fn more_towers_are_taken_where_they_are_clearly_faster() {
        assert_eq!(chosen(&[Some(4.0), Some(2.5), None, Some(1.5)]).unwrap(), 4);
        assert_eq!(chosen(&[Some(4.0), Some(3.99), None, Some(5.0)]).unwrap(), 1);
        assert_eq!(chosen(&[None, Some(3.0), Some(2.99)]).unwrap(), 2);
        assert_eq!(chosen(&[None, None]).unwrap_err().message(), "not 1");
        let other = replicas(2, |_| Err(Error::internal("a fault"))).unwrap_err();
        assert_eq!(other.code(), Code::Internal);
    }
}
