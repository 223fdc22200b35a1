//! Products of matrices.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::product::ProductSpec;

use super::convert;
use super::results::{Left, Results, Side, Target};
use super::right::{Of, Right};
use super::tiles::{LANES, PAIRED, Panel, ROWS, Run, time_of};
use super::{Kernels, PIECES};
use crate::cut::elements;
use crate::expr::Functions;
use crate::finish::Finish;
use crate::packing::part;
use crate::product::Matrices;
use crate::simd::Isa;

/// The fewest terms and columns.
const LEAST: u64 = 16;
/// The most terms of a sum: each is added to a float.
const MOST_TERMS: u64 = 1 << 16;
/// Bytes of a piece's rounded rows: they stay in the second cache beside a panel.
const CACHED: usize = 192 << 10;
/// The most rows of a piece.
const MOST_ROWS: usize = 96;
/// Products of two numbers in a nanosecond, about; and the least time of a piece.
pub(super) const RATE: f64 = 100.0;
pub(super) const PIECE: f64 = 10_000.0;

struct Product {
    results: Results,
    matrices: Matrices,
    batch: usize,
    m: usize,
    k: usize,
    /// Rows lie as columns.
    is_transposed: bool,
    /// From row to row as they lie, of the left side and of the result.
    left_row: usize,
    result_row: usize,
    /// Rows and panels of a piece, and how many pieces there are along them.
    piece_rows: usize,
    row_pieces: usize,
    piece_panels: usize,
    panel_pieces: usize,
    /// The right side of each product: where it begins, and its pairs.
    side: usize,
    pairs: usize,
    run: Run,
    /// Where each row of a piece begins.
    rows: Vec<u32>,
    /// Numbers from row to row of a piece, and from pair to pair.
    stride: usize,
    term: usize,
    /// Where in the worker's scratch rounded rows are.
    place: usize,
}

impl std::fmt::Debug for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Product({}x{}, pieces of {} rows and {} panels)", self.m, self.k, self.piece_rows, self.piece_panels)
    }
}

/// Whether there is such a form of a product. It does not depend on how many rows there are.
pub(super) fn has_form(spec: &ProductSpec) -> bool {
    spec.k >= LEAST && spec.n >= LEAST && spec.k <= MOST_TERMS
}

/// The kernels of a product.
///
/// # Errors
/// As [`crate::product::product_on`].
pub(super) fn prepare(spec: &ProductSpec, epilogue: Option<Epilogue>) -> Result<Option<Kernels>> {
    if !has_form(spec) {
        return Ok(None);
    }
    for sizes in [[spec.batch, spec.m, spec.k], [spec.batch, spec.k, spec.n], [spec.batch, spec.m, spec.n]] {
        elements(&sizes)?;
    }
    let bytes = 4.0 * spec.extents()?.into_iter().map(|elements| elements as f64).sum::<f64>();
    let places = spec.places();
    let [m, n, k, batch] = [spec.m, spec.n, spec.k, spec.batch].map(|size| size as usize);
    let matrices = Matrices::new(&places);
    if epilogue.is_some() && (batch != 1 || spec.places.is_some()) {
        return Err(Error::unimplemented("an epilogue on several products"));
    }
    let finish = epilogue.map(|epilogue| Finish::new(Isa::Avx512, &[spec.m, spec.n], epilogue, Functions::Of(Isa::Avx512))).transpose()?;
    let panels = Panel::all(n);
    let vectors = time_of(&panels);
    let (row, is_transposed) = (places.b.row as usize, spec.transpose_b);
    let sides = if matrices.share_b() { batch.min(1) } else { batch };
    let right = Right { terms: k, panels: panels.clone(), row, is_transposed, of: Of::Products(matrices.clone(), sides) };
    let (pairs, side) = (right.pairs(), right.side(right.pairs()));
    let pair_bytes = DataType::Bfloat16.bytes_of(elements(&[sides as u64, side as u64])? as u64);

    let multiplications = m as f64 * n as f64 * k as f64;
    let most_rows = (CACHED / (4 * pairs)).clamp(2 * ROWS[0], MOST_ROWS);
    let wanted = (multiplications / RATE / PIECE).clamp(1.0, PIECES as f64) as usize;
    let row_pieces = m.div_ceil(most_rows).max(wanted.min(m.div_ceil(3 * ROWS[0]))).max(1);
    let piece_rows = m.div_ceil(row_pieces).max(1);
    let row_pieces = m.div_ceil(piece_rows).max(1);
    let panel_pieces = (wanted / row_pieces).clamp(1, panels.len());
    let piece_panels = panels.len().div_ceil(panel_pieces);
    let panel_pieces = panels.len().div_ceil(piece_panels);
    let chunks = batch.checked_mul(row_pieces * panel_pieces).and_then(|chunks| u32::try_from(chunks).ok());
    let chunks = chunks.ok_or_else(|| Error::invalid_argument("a product with too many pieces"))?.max(1);

    let (results, place) = Results::new(n, panels, finish, (piece_rows, piece_panels));
    // Pairs of a row follow each other, or those of all rows of a piece. Rows do not fall onto the same few cache sets.
    let (stride, term) = if spec.transpose_a { (2, 2 * piece_rows.next_multiple_of(LANES)) } else { (2 * pairs + 32, 2) };
    let numbers = if spec.transpose_a { pairs * term } else { piece_rows * stride };
    let rows = (0..piece_rows).map(|row| (row * stride) as u32).collect();
    let kernel = Product {
        batch,
        m,
        k,
        is_transposed: spec.transpose_a,
        left_row: places.a.row as usize,
        result_row: places.c.row as usize,
        piece_rows,
        row_pieces,
        piece_panels,
        panel_pieces,
        side: if sides == batch { side } else { 0 },
        pairs,
        run: Run { left: 0, right: 0, pairs, is_odd: false },
        rows,
        stride,
        term,
        place,
        matrices,
        results,
    };
    let per_worker = (place + 2 * numbers).next_multiple_of(64) + 64;
    let cost = Cost { flops: 2.0 * batch as f64 * multiplications, bytes };
    let kernel = Arc::new(kernel);
    let mut product = Prepared { chunks, scratch: 0, per_worker: per_worker as u64, cost, in_place: Vec::new(), kernel: kernel.clone() };
    if let Some(finish) = &kernel.results.finish {
        finish.describe(&mut product);
    }
    let elementwise = product.cost.flops - cost.flops;
    let issued = 2.0 * (batch * m) as f64 * (pairs * PAIRED) as f64 * vectors;
    Ok(Some(Kernels { right: right.prepare()?, product, bytes: pair_bytes, issued, elementwise }))
}

impl CpuKernel for Product {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.m == 0 || self.batch == 0 {
            return Ok(());
        }
        let pieces = self.row_pieces * self.panel_pieces;
        for chunk in chunks {
            let (matrix, piece) = (chunk as usize / pieces, chunk as usize % pieces);
            let rows = part(self.m, self.row_pieces, piece % self.row_pieces);
            let panels = part(self.results.panels.len(), self.panel_pieces, piece / self.row_pieces);
            // SAFETY: the piece lies within the result, for which the caller answers.
            unsafe { self.piece(matrix, rows, panels, args)? };
        }
        Ok(())
    }
}

impl Product {
    unsafe fn piece(&self, matrix: usize, rows: Range<usize>, panels: Range<usize>, args: &Args<'_>) -> Result<(), Fault> {
        let places = self.matrices.of(matrix);
        let from = args.pointers[0].cast::<f32>().cast_const().wrapping_add(places[0]);
        // SAFETY: scratch that `prepare` asked for, and a left side of these rows and terms.
        unsafe {
            let to = args.worker.add(self.place).cast::<u16>();
            match self.is_transposed {
                true => convert::pairs_of_terms(from.add(rows.start), self.left_row, rows.len(), self.k, self.term / 2, to),
                false => convert::rows(from.add(rows.start * self.left_row), self.left_row, self.k, rows.len(), to, self.stride),
            }
            let left = Left { start: to, rows: &self.rows[..rows.len()], term: self.term };
            let start = args.pointers[1].cast::<u16>().cast_const().wrapping_add(matrix * self.side);
            let right = Side { start, runs: std::slice::from_ref(&self.run), pairs: self.pairs };
            let target = Target { first: places[2] + rows.start * self.result_row, row: self.result_row };
            self.results.compute(left, right, panels, target, args)
        }
    }
}
