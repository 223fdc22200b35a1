//! Range: numbers at equal distances.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{HostTensor, Shape};

use crate::infer::int_vector;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of Range.
pub const RULES: &[OpRules] = &[OpRules { name: "Range", infer, lower: Lower::Kernel(late), gradient: Gradient::Stops }];

/// Ranges with more elements than this are taken for a mistake: they are constants of the plan.
const MAX_ELEMENTS: u64 = 1 << 22;

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    for (input, name) in ["start", "limit", "delta"].iter().enumerate() {
        if cx.dims(input).is_some_and(|dims| dims.len() > 1 || dims.iter().any(|dim| dim.is_some_and(|dim| dim != 1))) {
            return Err(Error::invalid_argument(format!("{name} must be a scalar, not shape {}", cx.shape(input))));
        }
    }
    let data_type = cx.outputs[0].data_type;
    let value = match data_type {
        DataType::Int32 | DataType::Int64 => {
            let (Some(start), Some(limit), Some(delta)) = (cx.int(0), cx.int(1), cx.int(2)) else { return open(cx) };
            int_vector(&integers(start, limit, delta)?, data_type)?
        }
        DataType::Float => {
            let float = |input: usize| cx.value(input)?.to_vec::<f32>().ok()?.first().copied();
            let (Some(start), Some(limit), Some(delta)) = (float(0), float(1), float(2)) else { return open(cx) };
            let count = length(start.into(), limit.into(), delta.into(), |value| value.to_string())?;
            let mut numbers = Vec::with_capacity(count as usize);
            let mut next = start;
            for _ in 0..count {
                numbers.push(next);
                next += delta;
            }
            HostTensor::from_slice(Shape::from([count]), &numbers)?
        }
        _ => return open(cx),
    };
    cx.set_value(0, value);
    Ok(())
}

fn open(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_dims(0, vec![None]);
    Ok(())
}

fn integers(start: i64, limit: i64, delta: i64) -> Result<Vec<i64>> {
    check(start as f64, limit as f64, delta as f64, |value| (value as i64).to_string())?;
    let count = limit.abs_diff(start).div_ceil(delta.unsigned_abs());
    check_count(count)?;
    Ok((0..count as i64).map(|index| start.wrapping_add(index.wrapping_mul(delta))).collect())
}

fn check(start: f64, limit: f64, delta: f64, text: impl Fn(f64) -> String) -> Result<()> {
    if delta == 0.0 {
        return Err(Error::invalid_argument(format!("Requires delta != 0: {}", text(delta))));
    }
    if delta > 0.0 && start > limit {
        return Err(Error::invalid_argument(format!("Requires start <= limit when delta > 0: {}/{}", text(start), text(limit))));
    }
    if delta < 0.0 && start < limit {
        return Err(Error::invalid_argument(format!("Requires start >= limit when delta < 0: {}/{}", text(start), text(limit))));
    }
    Ok(())
}

fn check_count(count: u64) -> Result<()> {
    if count > MAX_ELEMENTS {
        return Err(Error::invalid_argument(format!("a range of {count} elements is longer than {MAX_ELEMENTS}")));
    }
    Ok(())
}

fn length(start: f64, limit: f64, delta: f64, text: impl Fn(f64) -> String) -> Result<u64> {
    check(start, limit, delta, text)?;
    let count = ((limit - start) / delta).abs().ceil();
    if !count.is_finite() {
        return Err(Error::invalid_argument("a range must be finite"));
    }
    check_count(count as u64)?;
    Ok(count as u64)
}

/// There is no kernel: the length of a range has to be known when the plan is made, and so is the range.
fn late(cx: &KernelCx<'_>) -> Result<Call> {
    Err(Error::needs_values(format!(
        "not yet: Range of {}, or between numbers that are known only when the graph runs",
        cx.outputs[0].data_type
    )))
}
