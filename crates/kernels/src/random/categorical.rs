//! `Multinomial` and `StatelessMultinomial`: numbers of classes, as likely as logits say.
//!
//! TensorFlow gives each of its threads the generator from another place on. The numbers here are those of one thread.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::random::{Categorical, SeedSource};

use super::kernels::{advance, seed_of};
use super::philox::{Philox, key_counter};
use super::words::Words;
use crate::cut::{Cut, elements};
use crate::element::{Element, of_type};

/// Blocks that an execution sets aside for each number of its rows, which are rounded up to four.
const BLOCKS_PER_NUMBER: u64 = 512;

/// [`Categorical`]: see there for the arguments.
///
/// # Errors
/// UNIMPLEMENTED for other types; INVALID_ARGUMENT where there are no classes, or sizes would be too large.
pub fn categorical(request: &Categorical) -> Result<Prepared> {
    let Categorical { data_type, output_type, rows, classes, samples, source } = *request;
    let (logits, drawn) = (elements(&[rows, classes])?, elements(&[rows, samples])?);
    if classes == 0 && drawn > 0 {
        return Err(Error::invalid_argument("num_classes should be positive, got 0"));
    }
    let (rows, classes, samples) = (rows as usize, classes as usize, samples as usize);
    let wide = match output_type {
        DataType::Int32 => false,
        DataType::Int64 => true,
        _ => return Err(Error::unimplemented(format!("classes as {output_type}"))),
    };
    let cut = match source {
        SeedSource::State { .. } => Cut::whole(rows),
        SeedSource::Given { seed_type } => {
            super::key_counter(seed_type)?;
            Cut::new(rows, 40 * (classes + samples) as u64, 1)
        }
    };
    let cost = Cost { flops: (20 * logits + 60 * drawn) as f64, bytes: (8 * (logits + drawn)) as f64 };
    let kernel: Arc<dyn CpuKernel> = of_type!(
        data_type,
        [Float, Double, Half, Bfloat16],
        T => Arc::new(Draw::<T> { rows, classes, samples, wide, source, cut, marker: PhantomData }),
        _ => return Err(Error::unimplemented(format!("logits of {data_type}"))),
    );
    Ok(Prepared {
        chunks: cut.pieces(),
        scratch: 0,
        per_worker: if drawn == 0 { 0 } else { 8 * classes as u64 },
        cost,
        in_place: Vec::new(),
        kernel,
    })
}

#[derive(Debug)]
struct Draw<T> {
    rows: usize,
    classes: usize,
    samples: usize,
    wide: bool,
    source: SeedSource,
    /// A unit is a row.
    cut: Cut,
    marker: PhantomData<fn() -> T>,
}

impl<T: Element> CpuKernel for Draw<T>
where
    T::Sum: Into<f64>,
{
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let own = self.cut.units(chunks);
        if own.is_empty() || self.samples == 0 {
            return Ok(());
        }
        // SAFETY: the arguments as documented; rows of the output are written by one piece each. The state and seeds are read
        // without counting on alignment. The scratch of the worker has a double for each class.
        let (philox, logits, sums) = unsafe {
            let philox = match self.source {
                SeedSource::State { seed, seed2 } => {
                    let done = args.pointers[1].cast::<u64>().read_unaligned();
                    Philox::seeded(seed as u64, seed2 as u64).skip(done)
                }
                SeedSource::Given { seed_type } => {
                    let (key, counter) = key_counter(seed_of(args.pointers[1], seed_type));
                    Philox::new(key, counter)
                }
            };
            let logits = args.input::<T>(0, self.rows * self.classes);
            (philox, logits, std::slice::from_raw_parts_mut(args.worker.cast::<f64>(), self.classes))
        };
        for row in own {
            let total = cumulate(&logits[row * self.classes..][..self.classes], sums);
            // A number takes two words.
            let mut words = Words::at(philox, (row * self.samples) as u64 * 2);
            for at in row * self.samples..(row + 1) * self.samples {
                let found = words.double() * total;
                let class = sums.partition_point(|sum| *sum <= found);
                // SAFETY: as above.
                unsafe {
                    match self.wide {
                        true => args.output::<i64>(2, at..at + 1)[0] = class as i64,
                        false => args.output::<i32>(2, at..at + 1)[0] = class as i32,
                    }
                }
            }
        }
        if let SeedSource::State { .. } = self.source {
            let numbers = (self.rows * self.samples.next_multiple_of(4)) as u64;
            // SAFETY: argument 1 is the state, and there is one piece.
            unsafe { advance(args.pointers[1], numbers.wrapping_mul(BLOCKS_PER_NUMBER)) };
        }
        Ok(())
    }
}

/// Sums of the exponentials of logits up to each; returns the sum of all. What is not finite counts for nothing.
fn cumulate<T: Element>(logits: &[T], sums: &mut [f64]) -> f64
where
    T::Sum: Into<f64>,
{
    let wide = |logit: &T| -> f64 { logit.widen().into() };
    let most = logits.iter().map(wide).filter(|logit| logit.is_finite()).fold(f64::MIN, f64::max);
    let mut total = 0.0;
    for (sum, logit) in sums.iter_mut().zip(logits.iter().map(wide)) {
        if logit.is_finite() {
            total += libm::exp(logit - most);
        }
        *sum = total;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bytes, run, run_pieces, values};

    /// The numbers are those of three executions in TensorFlow, with one thread.
    #[test]
    fn each_execution_goes_on_where_the_last_one_stopped() {
        let source = SeedSource::State { seed: 5, seed2: 7 };
        let request = Categorical { data_type: DataType::Float, output_type: DataType::Int32, rows: 2, classes: 3, samples: 7, source };
        let logits = bytes(&[0.0f32, 1.0, 2.0, 3.0, 2.0, 3.0]);
        let mut outputs = [vec![0; 8], vec![0; 56]];
        for expected in [
            [2, 0, 2, 1, 1, 2, 0, 2, 2, 0, 0, 2, 2, 1],
            [1, 1, 0, 1, 2, 2, 0, 2, 0, 0, 2, 2, 2, 1],
            [1, 0, 2, 1, 2, 2, 2, 0, 2, 2, 1, 0, 0, 2],
        ] {
            run(&categorical(&request).unwrap(), &[&logits], &mut outputs).unwrap();
            assert_eq!(values::<i32>(&outputs[1]), expected);
        }
        assert_eq!(values::<u64>(&outputs[0]), [3 * 2 * 8 * 512]);
    }

    #[test]
    fn pieces_draw_what_the_whole_draws() {
        let (rows, classes, samples) = (3000, 7, 5);
        let source = SeedSource::Given { seed_type: DataType::Int64 };
        let request = Categorical { data_type: DataType::Double, output_type: DataType::Int64, rows, classes, samples, source };
        let prepared = categorical(&request).unwrap();
        assert!(prepared.chunks > 1);
        let logits: Vec<f64> = (0..rows * classes).map(|at| (at * 37 % 11) as f64 / 3.0).collect();
        let inputs = [&bytes(&logits)[..], &bytes(&[3i64, 4])];
        let (mut whole, mut cut) = ([vec![0; 8 * 15_000]], [vec![0; 8 * 15_000]]);
        run(&prepared, &inputs, &mut whole).unwrap();
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        run_pieces(&prepared, &inputs, &mut cut, &calls, &[]).unwrap();
        assert!(whole == cut);
        assert!(categorical(&Categorical { classes: 0, ..request }).is_err());
    }
}
