//! Joining tensors along an axis, and taking one apart: alternating contiguous runs.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::check_size;
use crate::cut::{Cut, elements};

/// `ConcatV2`: the inputs one after the other along `axis`; their other dimensions agree. Arguments: the inputs, output.
///
/// # Errors
/// INVALID_ARGUMENT where the shapes do not go together or the axis is outside the rank.
pub fn concat(size: usize, shapes: &[&[u64]], axis: usize) -> Result<Prepared> {
    let Some(first) = shapes.first().filter(|first| axis < first.len()) else {
        return Err(Error::invalid_argument(format!("nothing to concatenate along axis {axis}: {shapes:?}")));
    };
    for (number, shape) in shapes.iter().enumerate() {
        if shape.len() != first.len() || (0..shape.len()).any(|other| other != axis && shape[other] != first[other]) {
            return Err(Error::invalid_argument(format!(
                "ConcatOp : Dimension mismatch in dimensions of inputs: shape[0] = {first:?} vs. shape[{number}] = {shape:?}"
            )));
        }
    }
    let parts: Vec<u64> = shapes.iter().map(|shape| shape[axis]).collect();
    Segments::prepare(size, &first[..axis], &parts, &first[axis + 1..], Direction::Join)
}

/// `Pack`: `count` tensors of `shape` along a new dimension `axis`. Arguments: the inputs, output.
///
/// # Errors
/// INVALID_ARGUMENT where the axis is above the rank or nothing is given.
pub fn pack(size: usize, shape: &[u64], count: usize, axis: usize) -> Result<Prepared> {
    check_new_axis(shape, axis)?;
    Segments::prepare(size, &shape[..axis], &vec![1; count], &shape[axis..], Direction::Join)
}

/// `Unpack`: the tensors along dimension `axis` of `shape`. Arguments: input, the outputs.
///
/// # Errors
/// INVALID_ARGUMENT for an axis outside the rank.
pub fn unpack(size: usize, shape: &[u64], axis: usize) -> Result<Prepared> {
    check_axis(shape, axis)?;
    elements(shape)?;
    let count =
        if shape[axis] > 1 << 24 { return Err(Error::unimplemented(format!("{} outputs", shape[axis]))) } else { shape[axis] as usize };
    Segments::prepare(size, &shape[..axis], &vec![1; count], &shape[axis + 1..], Direction::Part)
}

/// `Split`: `parts` equal parts along `axis`. Arguments: input, the outputs.
///
/// # Errors
/// INVALID_ARGUMENT where the axis is outside the rank or does not divide evenly.
pub fn split(size: usize, shape: &[u64], axis: usize, parts: usize) -> Result<Prepared> {
    check_axis(shape, axis)?;
    if parts == 0 || !shape[axis].is_multiple_of(parts as u64) {
        return Err(Error::invalid_argument(format!(
            "Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = {}) and num_split {parts}",
            shape[axis]
        )));
    }
    split_sizes(size, shape, axis, &vec![shape[axis] / parts as u64; parts])
}

/// `SplitV`: parts of these sizes along `axis`. Arguments: input, the outputs.
///
/// # Errors
/// INVALID_ARGUMENT where the axis is outside the rank or the sizes do not add up to it.
pub fn split_sizes(size: usize, shape: &[u64], axis: usize, parts: &[u64]) -> Result<Prepared> {
    check_axis(shape, axis)?;
    if parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part)) != Some(shape[axis]) {
        return Err(Error::invalid_argument(format!("the sizes {parts:?} do not add up to {} along axis {axis}", shape[axis])));
    }
    Segments::prepare(size, &shape[..axis], parts, &shape[axis + 1..], Direction::Part)
}

fn check_axis(shape: &[u64], axis: usize) -> Result<()> {
    if axis < shape.len() {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("axis {axis} is not in [0, {})", shape.len())))
}

fn check_new_axis(shape: &[u64], axis: usize) -> Result<()> {
    if axis <= shape.len() {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("axis {axis} is not in [0, {}]", shape.len())))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Parts into one.
    Join,
    /// One into parts.
    Part,
}

/// A whole that is made of rows, each of which is made of a run from every part.
#[derive(Debug)]
struct Segments {
    /// Where each part's run begins in a row, and the row's length at the end; in bytes.
    starts: Vec<usize>,
    bytes: usize,
    direction: Direction,
    cut: Cut,
}

/// Units of work are this many bytes of the whole.
const UNIT: usize = 64;

impl Segments {
    fn prepare(size: usize, outer: &[u64], parts: &[u64], inner: &[u64], direction: Direction) -> Result<Prepared> {
        check_size(size)?;
        if parts.is_empty() {
            return Err(Error::invalid_argument("there are no parts"));
        }
        let along = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part)).unwrap_or(u64::MAX);
        let whole: Vec<u64> = outer.iter().chain([&along]).chain(inner).copied().collect();
        let bytes = elements(&whole)? * size;
        let run = elements(inner)? * size;
        let mut starts = vec![0];
        for part in parts {
            // No overflow: at most the whole, whose zero dimensions counted as one.
            starts.push(starts[starts.len() - 1] + *part as usize * run);
        }
        let cut = Cut::shared(bytes.div_ceil(UNIT), 2 * UNIT as u64, 1);
        let kernel = Segments { starts, bytes, direction, cut };
        let cost = Cost { flops: 0.0, bytes: 2.0 * bytes as f64 };
        Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
    }
}

impl CpuKernel for Segments {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let units = self.cut.units(chunks);
        let (mut at, end) = ((units.start * UNIT).min(self.bytes), (units.end * UNIT).min(self.bytes));
        if at == end {
            return Ok(());
        }
        let parts = self.starts.len() - 1;
        let row = self.starts[parts];
        let (whole, first_part) = match self.direction {
            Direction::Join => (args.pointers[parts], 0),
            Direction::Part => (args.pointers[0], 1),
        };
        let (mut outer, inside) = (at / row, at % row);
        let mut part = self.starts.partition_point(|start| *start <= inside) - 1;
        while at < end {
            let (start, stop) = (self.starts[part], self.starts[part + 1]);
            let inside = at - outer * row;
            let len = (stop - inside).min(end - at);
            // SAFETY: `at..at + len` lies in the whole, and in the part it is the run of row `outer`. Parts and whole are different
            // arguments. Pieces write different bytes.
            unsafe {
                let whole = whole.add(at);
                let piece = args.pointers[first_part + part].add(outer * (stop - start) + inside - start);
                match self.direction {
                    Direction::Join => std::ptr::copy_nonoverlapping(piece, whole, len),
                    Direction::Part => std::ptr::copy_nonoverlapping(whole, piece, len),
                }
            }
            at += len;
            part += 1;
            if part == parts {
                part = 0;
                outer += 1;
            }
        }
        Ok(())
    }
}
