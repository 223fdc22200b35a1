use plimsoll::share::{Bulk, Functions};
use plimsoll::{Error, Result};

/// The sum of squares and the numbers halved; argument and result are shared memory, not a copy.
fn halve(numbers: Bulk<f32>) -> Result<(f64, Bulk<f32>)> {
    let sum = numbers.iter().map(|x| f64::from(*x).powi(2)).sum();
    let halves = Bulk::filled(numbers.len(), |halves| {
        for (half, x) in halves.iter_mut().zip(numbers.iter()) {
            *half = x / 2.0;
        }
    })?;
    Ok((sum, halves))
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(halve).begin();
    let numbers: Bulk<f32> = (0..1_000_000).map(|x| (x % 10) as f32).collect::<Vec<_>>().into();
    let (sum, halves) = workers.isolate(None, halve, numbers).map_err(Error::from)?.output;
    println!("{sum} {:?} {}", &halves[..4], halves.len());
    Ok(())
}
