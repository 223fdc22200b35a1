//! The largest batch that fits.

use plimsoll::signature::{Largest, largest};
use plimsoll::{Code, Result};

/// A graph that takes batches of some sizes takes one of the sizes up to this, or none.
const FIRST: u64 = 256;

/// No larger batch is tried.
const MOST: u64 = 1 << 32;

/// The largest batch for which a training can be planned. `plan` plans one of a size: RESOURCE_EXHAUSTED means that it does not fit, and
/// another error that there is no training of that size, as with more examples than there are. Sizes are multiples of the smallest
/// one that there is. A smaller one may not fit: see [`largest`].
///
/// # Errors
/// That of the smallest size, where even that does not fit; where there is none, that of `wanted`.
pub fn largest_batch<E>(wanted: u64, mut plan: impl FnMut(u64) -> Result<(), E>, code: impl Fn(&E) -> Code) -> Result<Largest, E> {
    let mut step = None;
    for size in 1..=FIRST {
        match plan(size) {
            Ok(()) => {
                step = Some(size);
                break;
            }
            Err(error) if code(&error) == Code::ResourceExhausted => return Err(error),
            Err(_) => {}
        }
    }
    let Some(step) = step else {
        plan(wanted)?;
        return Ok(Largest { size: wanted, gaps: Vec::new() });
    };
    let (mut inside, mut outside) = (1, 2);
    while outside <= MOST / step && plan(outside * step).is_ok() {
        (inside, outside) = (outside, 2 * outside);
    }
    if outside > MOST / step {
        return Ok(Largest { size: inside * step, gaps: Vec::new() });
    }
    let Largest { size, gaps } = largest((inside, outside), MOST / step, |size| plan(size * step).is_ok());
    Ok(Largest { size: size * step, gaps: gaps.into_iter().map(|gap| gap * step).collect() })
}

#[cfg(test)]
mod tests {
    use plimsoll::Error;

    use super::*;

    fn largest(step: u64, examples: u64, fits: u64) -> Result<u64> {
        let plan = |size: u64| match size {
            _ if !size.is_multiple_of(step) || size > examples => Err(Error::invalid_argument(format!("no batch of {size}"))),
            _ if size > fits => Err(Error::resource_exhausted(format!("{size} do not fit"))),
            _ => Ok(()),
        };
        largest_batch(128, plan, Error::code).map(|found| found.size)
    }

    #[test]
    fn a_batch_is_the_largest_that_there_is_and_that_fits() {
        for (step, examples, fits, expected) in
            [(1, 1000, 77, 77), (3, 1000, 77, 75), (2, 60, 77, 60), (1, 1000, 1, 1), (128, 128, 500, 128)]
        {
            assert_eq!(largest(step, examples, fits).unwrap(), expected, "{step} {examples} {fits}");
        }
        assert_eq!(largest(4, 1000, 3).unwrap_err().message(), "4 do not fit");
        assert_eq!(largest(512, 1000, 3).unwrap_err().message(), "no batch of 128");
    }
}
