//! Attention by blocks of rows: a block's scores are made, become shares and weigh the values while they are in the second cache.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::attention::Attention;

use super::blocked::{Blocked, blocked, reads_panels};
use super::cut::Tuning;
use crate::expr::{Bases, TileProgram};
use crate::nn::softmax_in_place;
use crate::packing::Order;
use crate::simd::Isa;

/// Bytes of a block's scores.
const BLOCK: usize = 128 << 10;
/// Rows of a block that are worth a copy of its keys, where there are so many.
const COPIED: usize = 48;
/// The least rows of a block, so that all threads have one.
const LEAST: usize = 24;
/// The most further operands of the expression.
const MOST_OPERANDS: usize = 8;
/// Blocks that are enough for any number of threads.
const BLOCKS: usize = 32;

/// Attention, with the bits of its parts one after the other.
///
/// # Errors
/// INVALID_ARGUMENT for parts that do not fit each other. UNIMPLEMENTED for single rows and columns, for nothing at all, for many operands,
/// and for right sides that may both lie in panels.
pub fn attention(isa: Isa, request: &Attention) -> Result<Prepared> {
    let scores = request.check()? as usize;
    let (m, n, batch) = (request.scores.m as usize, request.scores.n as usize, request.scores.batch as usize);
    // Both lie as the weights of two layers do: products of panels are faster.
    if reads_panels(isa, &request.scores) && reads_panels(isa, &request.values) {
        return Err(Error::unimplemented("attention to keys and values that may lie in panels"));
    }
    let rows = rows_of_block(batch, m, n);
    let tuning = Tuning { rows: Some(rows), ..Tuning::default() };
    let (by_keys, of_keys) = blocked::<f32>(isa, request.scores, None, tuning, Order::Rows)?;
    let (by_values, of_values) = blocked::<f32>(isa, request.values, None, tuning, Order::Rows)?;
    let operands = request.between.as_ref().map_or(0, |between| between.operands.len());
    if operands > MOST_OPERANDS {
        return Err(Error::unimplemented(format!("attention whose scores are changed by {operands} operands")));
    }
    if scores == 0 || !by_keys.is_by_rows(&request.scores) || !by_values.is_by_rows(&request.values) {
        return Err(Error::unimplemented("attention of single rows or columns"));
    }
    let rows = rows.min(by_keys.most_rows()).min(by_values.most_rows());
    let between = match &request.between {
        None => None,
        Some(Epilogue { expr, operands }) => {
            let shapes: Vec<Vec<u64>> = std::iter::once(request.shape.clone()).chain(operands.iter().cloned()).collect();
            Some(TileProgram::new(expr, &request.shape, &shapes, isa)?)
        }
    };
    let pieces = m.div_ceil(rows);
    let chunks = batch.checked_mul(pieces).and_then(|chunks| u32::try_from(chunks).ok());
    let chunks = chunks.ok_or_else(|| Error::invalid_argument("an attention with too many pieces"))?;

    let block_bytes = (4 * rows * n).next_multiple_of(64) + 64;
    let scratch = of_keys.per_worker.max(of_values.per_worker).max(between.as_ref().map_or(0, |program| program.scratch() as usize));
    let elementwise = between.as_ref().map_or(Cost { flops: 0.0, bytes: 0.0 }, TileProgram::cost);
    let mut cost = of_keys.cost + of_values.cost + elementwise;
    cost.flops += 20.0 * scores as f64 + (batch * m) as f64;
    // Scores stay in the cache: a product writes them, another reads them, the expression does both.
    let passes = if between.is_some() { 4.0 } else { 2.0 };
    cost.bytes -= passes * 4.0 * scores as f64;
    let kernel = Kernel { isa, by_keys, between, by_values, m, n, columns: request.values.n as usize, rows, pieces, operands, block_bytes };
    Ok(Prepared { chunks, scratch: 0, per_worker: (block_bytes + scratch) as u64, cost, in_place: Vec::new(), kernel: Arc::new(kernel) })
}

/// Rows of a block: as many as stay in the cache or pay for a copy of the keys, but enough blocks for all threads.
fn rows_of_block(batch: usize, m: usize, n: usize) -> usize {
    let cached = (BLOCK / (4 * n.max(1))).max(COPIED);
    let most = (batch.saturating_mul(m) / BLOCKS).max(LEAST).min(cached);
    m.div_ceil(m.div_ceil(most).max(1)).max(1)
}

#[derive(Debug)]
struct Kernel {
    isa: Isa,
    by_keys: Blocked<f32>,
    between: Option<TileProgram>,
    by_values: Blocked<f32>,
    /// Rows and columns of a matrix of scores; columns of the values.
    m: usize,
    n: usize,
    columns: usize,
    /// Rows of a block, and blocks of a matrix.
    rows: usize,
    pieces: usize,
    /// Further operands of the expression.
    operands: usize,
    /// Bytes of the worker's scratch that are a block's; the rest is scratch of each part in turn.
    block_bytes: usize,
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        for chunk in chunks {
            let (matrix, piece) = (chunk as usize / self.pieces, chunk as usize % self.pieces);
            // SAFETY: the block is one of the matrix; the contract of `CpuKernel::run`.
            unsafe { self.block(matrix, piece * self.rows..((piece + 1) * self.rows).min(self.m), args)? };
        }
        Ok(())
    }
}

impl Kernel {
    unsafe fn block(&self, matrix: usize, rows: Range<usize>, args: &Args<'_>) -> Result<(), Fault> {
        let block = args.worker.cast::<f32>();
        let first = (matrix * self.m + rows.start) * self.n;
        // Where the first of all scores would be.
        let scores = block.wrapping_sub(first).cast::<u8>();
        let [queries, keys] = [args.pointers[0], args.pointers[1]];
        let (operands, rest) = args.pointers[2..].split_at(self.operands);
        // SAFETY: `attention` asked for the block and for as much scratch as each part takes. Scores of these rows are in the block, and
        // are written before they are read. The rows of the result are those of this call only.
        unsafe {
            let worker = args.worker.add(self.block_bytes);
            if rows.start == 0 {
                let of_values = [scores, rest[0], rest[1]];
                self.by_keys.fetch(matrix + 1, 0, args);
                self.by_keys.fetch(matrix + 1, 1, args);
                self.by_values.fetch(matrix + 1, 1, &Args { pointers: &of_values, scratch: std::ptr::null_mut(), worker });
            }
            let part = |pointers: &[*mut u8], kernel: &Blocked<f32>, columns: usize| {
                kernel.piece(matrix, rows.clone(), 0..columns, &Args { pointers, scratch: std::ptr::null_mut(), worker })
            };
            part(&[queries, keys, scores], &self.by_keys, self.n)?;
            if let Some(program) = &self.between {
                let mut arguments = [std::ptr::null_mut(); MOST_OPERANDS + 1];
                arguments[..operands.len()].copy_from_slice(operands);
                arguments[operands.len()] = scores;
                let bases = Bases { first: scores, rest: &arguments[..=operands.len()] };
                program.begin(&bases, worker);
                program.run(first..first + rows.len() * self.n, &bases, worker)?;
            }
            softmax_in_place(self.isa, block, rows.len(), self.n);
            part(&[scores, rest[0], rest[1]], &self.by_values, self.columns)
        }
    }
}
