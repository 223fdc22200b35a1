//! Computations of rows by blocks: what is between the steps of a block stays in the cache.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::row_wise::{RowStep, RowWise, Span};

use crate::library;
use crate::simd::Isa;

/// Bytes of all values of a block.
const BLOCK: u64 = 64 << 10;
/// Bytes of what is between the steps of a block of one row, at most.
const MOST_BETWEEN: u64 = 256 << 10;
/// Blocks that are enough for any number of threads.
const BLOCKS: u64 = 32;
/// The most arguments of a step.
const MOST_ARGUMENTS: usize = 32;
/// Bytes that values in scratch are aligned to.
const LINE: u64 = 64;

/// Steps of rows, with the bits of the steps one after the other.
///
/// # Errors
/// INVALID_ARGUMENT for steps that do not fit each other. UNIMPLEMENTED for rows of which one fills a cache, for many arguments, and for
/// nothing at all.
pub(crate) fn row_wise(isa: Isa, request: &RowWise) -> Result<Prepared> {
    let RowWise { rows, row, .. } = *request;
    let values = Values::of(request)?;
    let by_rows: u64 = values.spans.iter().filter(|span| **span == Span::Rows).count() as u64;
    let bytes_of_row = |count: u64| row.checked_mul(4 * count.max(1));
    let (Some(each), Some(between)) = (bytes_of_row(by_rows), bytes_of_row(values.between(Span::Rows))) else {
        return Err(Error::invalid_argument(format!("rows of {row} elements")));
    };
    if rows == 0 || row == 0 || request.steps.is_empty() || between > MOST_BETWEEN {
        return Err(Error::unimplemented(format!("{} steps of {rows} rows of {row} elements", request.steps.len())));
    }
    let block = (BLOCK / each).min(rows.div_ceil(BLOCKS)).max(1);
    let chunks = u32::try_from(rows.div_ceil(block)).map_err(|_| Error::invalid_argument(format!("{rows} rows")))?;
    let mut offset = 0;
    let places: Vec<Place> = (0..values.spans.len()).map(|value| values.place(value, block, row, &mut offset)).collect();
    let mut worker = 0;
    let mut steps_of = |rows: u64| -> Result<Vec<Step>> {
        let step = |(number, step): (usize, &RowStep)| {
            let arguments: Vec<usize> = step.reads().iter().copied().chain(values.made_by(number)).collect();
            let mut made = library::make(isa, &step.alone(rows, row, &values.spans))?.steps;
            let (Some((prepared, None)), true, true) = (made.pop(), made.is_empty(), arguments.len() <= MOST_ARGUMENTS) else {
                return Err(Error::unimplemented("a step of rows in several parts"));
            };
            worker = worker.max(prepared.per_worker);
            if prepared.scratch > 0 {
                return Err(Error::unimplemented("a step of rows with scratch of its own"));
            }
            Ok(Step { arguments: arguments.into_iter().map(|value| places[value]).collect(), prepared })
        };
        request.steps.iter().enumerate().map(step).collect()
    };
    let steps = steps_of(block)?;
    let rest = if rows.is_multiple_of(block) { Vec::new() } else { steps_of(rows % block)? };
    let flops = steps.iter().map(|step| step.prepared.cost.flops).sum::<f64>() * rows as f64 / block as f64;
    let elements = |span: &Span| span.shape(rows, row).iter().map(|size| *size as f64).product::<f64>();
    let results = request.results.iter().map(|result| &values.spans[*result]);
    let cost = Cost { flops, bytes: request.inputs.iter().chain(results).map(|span| 4.0 * elements(span)).sum() };
    let in_place = in_place(request, &values, &steps);
    let kernel = Arc::new(Kernel { rows, block, steps, rest, own: offset });
    Ok(Prepared { chunks, scratch: 0, per_worker: offset + worker, cost, in_place, kernel })
}

/// The values of a request.
struct Values {
    spans: Vec<Span>,
    inputs: usize,
    /// For each step, its first value.
    made: Vec<usize>,
    results: Vec<usize>,
}

impl Values {
    fn of(request: &RowWise) -> Result<Values> {
        let spans = request.check()?;
        let mut next = request.inputs.len();
        let made = request
            .steps
            .iter()
            .map(|step| {
                next += step.makes().0;
                next - step.makes().0
            })
            .collect();
        Ok(Values { spans, inputs: request.inputs.len(), made, results: request.results.clone() })
    }

    /// The values that a step makes.
    fn made_by(&self, step: usize) -> Range<usize> {
        self.made[step]..self.made.get(step + 1).copied().unwrap_or(self.spans.len())
    }

    /// How many values between steps have that span.
    fn between(&self, span: Span) -> u64 {
        (self.inputs..self.spans.len()).filter(|value| self.spans[*value] == span && !self.results.contains(value)).count() as u64
    }

    /// Where a value of a block lies. What is between steps takes the next bytes of scratch.
    fn place(&self, value: usize, block: u64, row: u64, offset: &mut u64) -> Place {
        let span = self.spans[value];
        let bytes = |rows: u64| span.shape(rows, row).iter().product::<u64>() * 4;
        let by_row = if span.is_by_rows() { bytes(1) } else { 0 };
        if value < self.inputs {
            return Place::Argument { number: value, by_row };
        }
        if let Some(result) = self.results.iter().position(|result| *result == value) {
            return Place::Argument { number: self.inputs + result, by_row };
        }
        let at = *offset;
        *offset += bytes(block).next_multiple_of(LINE);
        Place::Worker { at }
    }
}

/// An input and a result of the same size, where the result is made by the last step that reads the input, or behind it. That step reads an
/// element before it writes it.
fn in_place(request: &RowWise, values: &Values, steps: &[Step]) -> Vec<(usize, usize)> {
    let may = |input: usize, result: usize| {
        let made_by = request.steps.iter().enumerate().position(|(step, _)| values.made_by(step).contains(&result));
        let Some(maker) = made_by else { return false };
        let last = request.steps.iter().rposition(|step| step.reads().contains(&input));
        let output = result - values.made[maker];
        let pairs = &steps[maker].prepared.in_place;
        let in_step = |(operand, read): (usize, &usize)| *read != input || pairs.contains(&(operand, output));
        values.spans[input] == values.spans[result]
            && last.is_none_or(|last| last < maker || (last == maker && request.steps[maker].reads().iter().enumerate().all(in_step)))
    };
    let pairs = (0..values.inputs).flat_map(|input| values.results.iter().enumerate().map(move |(at, result)| (input, at, *result)));
    pairs.filter(|(input, _, result)| may(*input, *result)).map(|(input, at, _)| (input, at)).collect()
}

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In an argument, whose rows are so many bytes; 0 where all rows have the same.
    Argument { number: usize, by_row: u64 },
    /// In the worker's scratch.
    Worker { at: u64 },
}

#[derive(Debug)]
struct Step {
    arguments: Vec<Place>,
    prepared: Prepared,
}

#[derive(Debug)]
struct Kernel {
    rows: u64,
    /// Rows of a block.
    block: u64,
    /// The steps of a block.
    steps: Vec<Step>,
    /// Those of the last block, where that has fewer rows.
    rest: Vec<Step>,
    /// Bytes of the worker's scratch that have values; the rest is scratch of each step in turn.
    own: u64,
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for chunk in chunks {
            let first = u64::from(chunk) * self.block;
            let steps = if self.rows - first < self.block { &self.rest } else { &self.steps };
            for step in steps {
                let mut pointers = [std::ptr::null_mut(); MOST_ARGUMENTS];
                for (pointer, place) in pointers.iter_mut().zip(&step.arguments) {
                    *pointer = match place {
                        Place::Argument { number, by_row } => args.pointers[*number].wrapping_add((first * by_row) as usize),
                        Place::Worker { at } => args.worker.wrapping_add(*at as usize),
                    };
                }
                let pointers = &pointers[..step.arguments.len()];
                // SAFETY: the arguments are those of the rows of this block, which no other chunk writes; values in scratch are made
                // by an earlier step of the block. Behind them is scratch for each step.
                unsafe {
                    let worker = args.worker.add(self.own as usize);
                    step.prepared.kernel.run(0..step.prepared.chunks, &Args { pointers, scratch: std::ptr::null_mut(), worker })?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
