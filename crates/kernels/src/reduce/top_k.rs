//! Whether a target is among the k most probable classes.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use crate::cut::{Cut, elements};

/// `InTopK` (`k` given) and `InTopKV2` (`k` none: it is the third input, a scalar of `target_type`).
///
/// Arguments: predictions, float `[batch, classes]`; targets, int32 or int64 `[batch]`; k where it is an input; output, bool
/// `[batch]`: whether fewer than k classes are more probable than the target. Classes as probable as the target do not
/// count against it. False where the target is no class, or its or any other prediction of the row is not finite.
///
/// # Errors
/// UNIMPLEMENTED for other types of targets.
pub fn in_top_k(target_type: DataType, batch: u64, classes: u64, k: Option<i64>) -> Result<Prepared> {
    let len = elements(&[batch, classes])?;
    if !matches!(target_type, DataType::Int32 | DataType::Int64) {
        return Err(Error::unimplemented(format!("targets of {target_type}")));
    }
    let wide = target_type == DataType::Int64;
    let cut = Cut::new(batch as usize, 4 * classes + 16, 1);
    let kernel = InTopK { batch: batch as usize, classes: classes as usize, k, wide, cut };
    let cost = Cost { flops: len as f64, bytes: 4.0 * len as f64 + 9.0 * batch as f64 };
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

#[derive(Debug)]
struct InTopK {
    batch: usize,
    classes: usize,
    k: Option<i64>,
    /// Whether targets are int64.
    wide: bool,
    cut: Cut,
}

impl CpuKernel for InTopK {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let rows = self.cut.units(chunks);
        let target = |argument: usize, at: usize| {
            // SAFETY: the arguments 1 (targets) and 2 (k, where it is an input) hold integers of the width that was prepared for.
            unsafe {
                match self.wide {
                    true => *args.pointers[argument].cast::<i64>().add(at),
                    false => i64::from(*args.pointers[argument].cast::<i32>().add(at)),
                }
            }
        };
        let (k, output) = match self.k {
            Some(k) => (k, 2),
            None => (target(2, 0), 3),
        };
        // SAFETY: argument 0 holds the predictions, the last one the results, of which pieces write different ones.
        let (predictions, results) = unsafe { (args.input::<f32>(0, self.batch * self.classes), args.output::<u8>(output, rows.clone())) };
        for (row, result) in rows.zip(results) {
            let predictions = &predictions[row * self.classes..(row + 1) * self.classes];
            *result = u8::from(usize::try_from(target(1, row)).is_ok_and(|target| is_in_top_k(predictions, target, k)));
        }
        Ok(())
    }
}

fn is_in_top_k(predictions: &[f32], target: usize, k: i64) -> bool {
    let Some(probability) = predictions.get(target).filter(|value| value.is_finite()) else {
        return false;
    };
    let more = predictions.iter().filter(|value| **value > *probability).count();
    (more as i64) < k && predictions.iter().all(|value| value.is_finite())
}
