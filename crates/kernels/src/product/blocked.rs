//! The product of matrices of floats: how a piece is computed. Operands of other types are widened where they are
//! packed; then results wait in the worker's scratch until an expression has rounded them.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::cut::{Cut, Tuning, cut, evenly, terms};
use super::matrices::Matrices;
use super::tiles::{Code, DotFn, Tile, code, dot_of};
use crate::element::InFloats;
use crate::expr::{Bases, Chain, Changes, Functions, Link, TileProgram, elements};
use crate::narrow::cast;
use crate::packing::{Order, Packing, packing, panels_of, part};
use crate::simd::{Isa, fetch_ahead};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::product::ProductSpec;

/// Floats of C that an epilogue takes at once.
const TILE: usize = 6 * 1024;

/// The arguments as a piece sees them: a single column is computed as a row, with A and B in each other's place.
#[derive(Debug)]
pub(super) struct Sides {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Index of the argument, from row to row, from term to term.
    pub(super) a: (usize, usize, usize),
    /// Index of the argument, from row to row as it lies.
    pub(super) b: (usize, usize),
    /// B lies as n rows of k.
    pub(super) b_transposed: bool,
    /// From row to row of C.
    pub(super) c_row: usize,
    pub(super) matrices: Matrices,
}

impl Sides {
    /// Whether elements of C are products of a row with rows.
    pub(super) fn is_dot(&self) -> bool {
        self.m == 1 && self.b_transposed && self.a.2 == 1
    }
}

fn sides(spec: &ProductSpec) -> Result<Sides> {
    elements(&[spec.batch, spec.m, spec.k])?;
    elements(&[spec.batch, spec.k, spec.n])?;
    elements(&[spec.batch, spec.m, spec.n])?;
    spec.extents()?;
    let places = spec.places();
    let (m, n, k) = (spec.m as usize, spec.n as usize, spec.k as usize);
    let (a_row, b_row, c_row) = (places.a.row as usize, places.b.row as usize, places.c.row as usize);
    let matrices = Matrices::new(&places);
    // A column that lies as a row.
    if n == 1 && m > 1 && c_row == 1 && (spec.transpose_b || b_row == 1) {
        return Ok(Sides { m: 1, n: m, k, a: (1, k, 1), b: (0, a_row), b_transposed: !spec.transpose_a, c_row: m, matrices });
    }
    // A row that lies as a column.
    let is_row = spec.transpose_a && (m > 1 || a_row > 1);
    let a = if is_row { (0, 1, a_row) } else { (0, if spec.transpose_a { k } else { a_row }, 1) };
    Ok(Sides { m, n, k, a, b: (1, b_row), b_transposed: spec.transpose_b, c_row, matrices })
}

/// How rows of A become rows of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// They are read where they lie; of floats only.
    There,
    /// They are copied.
    Rows,
    /// They lie as columns, and are copied.
    Columns,
}

pub(super) struct Blocked<E> {
    sides: Sides,
    code: &'static Code,
    packing: Packing<E>,
    dot: DotFn<E>,
    batch: usize,
    /// Terms of a block.
    terms: usize,
    /// Rows and columns of a piece, and how many pieces each matrix is cut into along them.
    rows: usize,
    columns: usize,
    row_pieces: usize,
    column_pieces: usize,
    /// Whether the pieces of a strip of columns follow each other, rather than those of the same rows.
    by_strips: bool,
    left: Left,
    /// Whether B is copied; of floats only it need not be.
    pack_b: bool,
    /// Where B lies in panels without gaps, the columns of each; then a piece has so many whole ones, but for the last.
    panels: Vec<Range<usize>>,
    piece_panels: usize,
    epilogue: Option<TileProgram>,
    /// The epilogue as changes of a tile of results, where it is a chain, and the argument that is the result.
    chain: Option<(Chain, usize)>,
    /// Rows of a piece that are computed before the epilogue takes them.
    tile_rows: usize,
    /// Where in the worker's scratch these lie.
    b_place: usize,
    a_place: usize,
    c_place: usize,
}

impl<E> std::fmt::Debug for Blocked<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocked")
            .field("sides", &self.sides)
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .field("epilogue", &self.epilogue)
            .finish()
    }
}

/// Bytes of a matrix that are asked for while another one is multiplied.
const FETCHED: usize = 64 << 10;

/// Columns and rows of a piece whose operands are widened, at most: the copies and the results stay in the second cache.
const WIDENED_COLUMNS: usize = 256;
const WIDENED_ROWS: usize = 256;

/// Whether a product can have B in panels: floats, one product, as rows of columns, in more than one panel.
pub(crate) fn reads_panels(isa: Isa, spec: &ProductSpec) -> bool {
    spec.batch == 1 && spec.places.is_none() && !spec.transpose_b && panels_of(isa, spec.n).is_some()
}

/// What a product takes, beside its code.
pub(super) struct Takes {
    pub chunks: u32,
    pub per_worker: usize,
    pub cost: Cost,
    pub in_place: Vec<(usize, usize)>,
}

pub(super) fn prepare<E: InFloats>(
    isa: Isa,
    spec: ProductSpec,
    epilogue: Option<Epilogue>,
    tuning: Tuning,
    order: Order,
) -> Result<Prepared> {
    let (kernel, Takes { chunks, per_worker, cost, in_place }) = blocked::<E>(isa, spec, epilogue, tuning, order)?;
    Ok(Prepared { chunks, scratch: 0, per_worker: per_worker as u64, cost, in_place, kernel: Arc::new(kernel) })
}

/// A product as [`prepare`] makes it a kernel.
///
/// # Errors
/// As there.
pub(super) fn blocked<E: InFloats>(
    isa: Isa,
    spec: ProductSpec,
    epilogue: Option<Epilogue>,
    tuning: Tuning,
    order: Order,
) -> Result<(Blocked<E>, Takes)> {
    let is_widened = E::TYPE != DataType::Float;
    let sides = sides(&spec)?;
    let code = code(isa);
    let batch = spec.batch as usize;
    let mut cost = Cost { flops: 2.0 * batch as f64 * sides.m as f64 * sides.n as f64 * sides.k as f64, bytes: 0.0 };
    cost.bytes += spec.extents()?.into_iter().map(|elements| size_of::<E>() as f64 * elements as f64).sum::<f64>();
    let mut chain = None;
    let epilogue = match epilogue {
        None if is_widened => {
            let (expr, shape) = (cast(DataType::Float, E::TYPE)?, vec![spec.batch, spec.m, spec.n]);
            Some(TileProgram::new(&expr, &shape, std::slice::from_ref(&shape), isa)?)
        }
        None => None,
        Some(_) if is_widened => return Err(Error::unimplemented(format!("an epilogue on products of {}", E::TYPE))),
        Some(_) if spec.batch != 1 || spec.places.is_some() => return Err(Error::unimplemented("an epilogue on several products")),
        Some(Epilogue { expr, operands }) => {
            if expr.inputs().first() != Some(&DataType::Float) {
                return Err(Error::invalid_argument("operand 0 of an epilogue is the product, a float"));
            }
            let shape = vec![spec.m, spec.n];
            chain = Chain::of(&expr, &shape, &operands, Functions::Of(isa)).map(|chain| (chain, 1 + expr.inputs().len()));
            let all: Vec<Vec<u64>> = std::iter::once(shape.clone()).chain(operands).collect();
            let program = TileProgram::new(&expr, &shape, &all, isa)?;
            // The product is not written: it goes from the cache to the expression.
            let product = 4.0 * program.total() as f64;
            cost = cost + program.cost();
            cost.bytes -= 2.0 * product;
            Some(program)
        }
    };
    let panels: Vec<Range<usize>> = match (order, panels_of(isa, spec.n)) {
        (Order::Rows, _) => Vec::new(),
        (Order::Panels, Some(panels)) if !is_widened && reads_panels(isa, &spec) => {
            panels.ranges().map(|range| range.start as usize..range.end as usize).collect()
        }
        (Order::Panels, _) => return Err(Error::unimplemented(format!("a product with its right side in panels: {spec:?}"))),
    };
    let tuning = if panels.is_empty() { tuning } else { Tuning { pack_b: Some(false), ..tuning } };
    let tuning = if is_widened { Tuning { pack_b: Some(true), ..tuning } } else { tuning };
    let is_dot = sides.is_dot();
    // Sums of several blocks wait in the result, which may lie where an operand does.
    let is_as_asked = (sides.m as u64, sides.n as u64) == (spec.m, spec.n) && !is_dot;
    let chain = chain.filter(|(chain, _)| is_as_asked && (!chain.has_elements() || terms(sides.k) >= sides.k));
    let waits = epilogue.is_some() && chain.is_none();
    let mut cut = cut(&sides, code, &tuning, waits && !is_widened);
    let left = match (is_widened && !is_dot, sides.a.2 == 1) {
        (true, true) => Left::Rows,
        (true, false) => Left::Columns,
        (false, _) if cut.pack_a => Left::Columns,
        (false, _) => Left::There,
    };
    if is_widened {
        cut.rows = if cut.rows > WIDENED_ROWS { evenly(sides.m, WIDENED_ROWS, code.rows) } else { cut.rows };
        cut.columns = if cut.columns > WIDENED_COLUMNS { evenly(sides.n, WIDENED_COLUMNS, code.lanes) } else { cut.columns };
    }
    let widest = code.vectors * code.lanes;
    let piece_panels = (cut.columns / widest).clamp(1, panels.len().max(1));
    if !panels.is_empty() {
        cut.columns = piece_panels * widest;
    }
    let piece_count = |all: usize, piece: usize| all.div_ceil(piece).max(1);
    let row_pieces = piece_count(sides.m, cut.rows);
    let column_pieces = if panels.is_empty() { piece_count(sides.n, cut.columns) } else { panels.len().div_ceil(piece_panels) };
    let chunks = row_pieces.checked_mul(column_pieces).and_then(|pieces| pieces.checked_mul(batch.max(1)));
    let chunks =
        chunks.and_then(|chunks| u32::try_from(chunks).ok()).ok_or_else(|| Error::invalid_argument("a product with too many pieces"))?;

    let floats = |count: usize| (count * 4).next_multiple_of(64) + 64;
    let b_place = epilogue.as_ref().filter(|_| waits).map_or(0, |program| program.scratch() as usize).next_multiple_of(64);
    let a_place = b_place + if cut.pack_b { floats(cut.terms * code.vectors * code.lanes) } else { 0 };
    // The tile stays in the first cache, unless B would have to be copied again for each.
    let tile_rows =
        if cut.pack_b { cut.rows } else { (TILE / cut.columns / code.rows * code.rows).clamp(code.rows, cut.rows.max(code.rows)) };
    let a_floats = match left {
        Left::There => None,
        Left::Columns => Some(cut.terms * cut.rows),
        Left::Rows => Some(cut.terms.next_multiple_of(code.lanes) * cut.rows),
    };
    let c_place = a_place + a_floats.map_or(0, floats);
    let per_worker = c_place + if waits { floats(tile_rows * cut.columns) } else { 0 };
    let in_place = match &epilogue {
        _ if is_widened => Vec::new(),
        // Operand `i` of the expression is argument `i + 1`; the product itself is none.
        Some(program) => program.in_place().into_iter().filter(|pair| pair.0 > 0).map(|(operand, output)| (operand + 1, output)).collect(),
        None => Vec::new(),
    };
    let Cut { rows, columns, by_strips, terms, pack_b, .. } = cut;
    let kernel = Blocked {
        sides,
        code,
        packing: packing::<E>(isa),
        dot: dot_of::<E>(isa),
        batch,
        terms,
        rows,
        columns,
        row_pieces,
        column_pieces,
        by_strips,
        left,
        pack_b,
        panels,
        piece_panels,
        epilogue,
        chain,
        tile_rows,
        b_place,
        a_place,
        c_place,
    };
    Ok((kernel, Takes { chunks, per_worker, cost, in_place }))
}

impl<E: InFloats> CpuKernel for Blocked<E> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        if self.sides.m == 0 || self.sides.n == 0 || self.batch == 0 {
            return Ok(());
        }
        for chunk in chunks {
            let chunk = chunk as usize;
            let (matrix, piece) = (chunk / (self.row_pieces * self.column_pieces), chunk % (self.row_pieces * self.column_pieces));
            let (row_piece, column_piece) = match self.by_strips {
                true => (piece % self.row_pieces, piece / self.row_pieces),
                false => (piece / self.column_pieces, piece % self.column_pieces),
            };
            let rows = row_piece * self.rows..((row_piece + 1) * self.rows).min(self.sides.m);
            let columns = match self.panels.chunks(self.piece_panels).nth(column_piece) {
                Some(panels) => panels[0].start..panels[panels.len() - 1].end,
                None => column_piece * self.columns..((column_piece + 1) * self.columns).min(self.sides.n),
            };
            if piece == 0 {
                (0..2).for_each(|side| self.fetch(matrix + 1, side, args));
            }
            // SAFETY: the pieces are within the matrices, whose sizes the caller of `CpuKernel::run` answers for.
            unsafe { self.piece(matrix, rows, columns, args)? };
        }
        Ok(())
    }
}

/// Where a piece of C goes: the first element, from row to row, and the first element's number in C.
struct Target {
    start: *mut f32,
    row: usize,
    first: usize,
}

impl<E: InFloats> Blocked<E> {
    /// Asks for a side of one of the products, 0 for A and 1 for B, whose rows lie apart: no processor sees where the next one is.
    pub(super) fn fetch(&self, matrix: usize, side: usize, args: &Args<'_>) {
        let Sides { m, n, k, a, b, b_transposed, .. } = self.sides;
        let (argument, rows, row, distance) = match side {
            0 if a.2 == 1 => (a.0, m, k, a.1),
            0 => (a.0, k, m, a.2),
            _ if b_transposed => (b.0, n, k, b.1),
            _ => (b.0, k, n, b.1),
        };
        let bytes = size_of::<E>() * rows * row;
        if matrix >= self.batch || distance <= row || bytes > FETCHED {
            return;
        }
        let start = args.pointers[argument].cast::<E>().cast_const().wrapping_add(self.sides.matrices.of(matrix)[argument]);
        for number in 0..rows {
            for at in (0..row).step_by(64 / size_of::<E>()) {
                fetch_ahead(start.wrapping_add(number * distance + at).cast());
            }
        }
    }

    /// Whether rows of the product are rows of pieces.
    pub(super) fn is_by_rows(&self, spec: &ProductSpec) -> bool {
        (self.sides.m as u64, self.sides.n as u64) == (spec.m, spec.n) && !self.sides.is_dot()
    }

    /// The most rows of a piece.
    pub(super) fn most_rows(&self) -> usize {
        self.rows
    }

    /// Computes these rows and columns of one of the products.
    ///
    /// # Safety
    /// As [`CpuKernel::run`]; no more rows and columns than a piece has.
    pub(super) unsafe fn piece(&self, matrix: usize, rows: Range<usize>, columns: Range<usize>, args: &Args<'_>) -> Result<(), Fault> {
        let Sides { n, a, b, c_row, .. } = self.sides;
        let places = self.sides.matrices.of(matrix);
        let a_matrix = args.pointers[a.0].cast::<E>().cast_const().wrapping_add(places[a.0]);
        let b_matrix = args.pointers[b.0].cast::<E>().cast_const().wrapping_add(places[b.0]);
        // SAFETY: the worker's scratch has been asked for with these places. The arguments have the elements that the shapes say. A
        // piece of C is written by this call only.
        unsafe {
            let first = places[2] + rows.start * c_row + columns.start;
            if let Some((chain, result)) = &self.chain {
                let c = Target { start: args.pointers[*result].cast::<f32>().add(first), row: c_row, first };
                self.compute(a_matrix, b_matrix, rows, columns, &c, chain.bind(&args.pointers[2..]).get(), args.worker);
                return Ok(());
            }
            let Some(program) = &self.epilogue else {
                // Of floats: results of other types have an expression that rounds them.
                let c = Target { start: args.pointers[2].cast::<f32>().wrapping_add(first), row: c_row, first };
                self.compute(a_matrix, b_matrix, rows, columns, &c, &[], args.worker);
                return Ok(());
            };
            let tile = args.worker.add(self.c_place).cast::<f32>();
            let width = columns.len();
            // The expression finds its first operand where element 0 of C would be if row `row` of the tile began at `at`.
            let bases = |at: usize, row: usize| Bases {
                first: tile.wrapping_add(row * width).wrapping_sub(at).cast::<u8>(),
                rest: &args.pointers[2..],
            };
            program.begin(&bases(0, 0), args.worker);
            for first in rows.clone().step_by(self.tile_rows) {
                let rows = first..(first + self.tile_rows).min(rows.end);
                let c = Target { start: tile, row: width, first: 0 };
                self.compute(a_matrix, b_matrix, rows.clone(), columns.clone(), &c, &[], args.worker);
                let start = places[2] + rows.start * c_row + columns.start;
                if (width == n && c_row == n) || rows.len() == 1 {
                    program.run(start..start + rows.len() * width, &bases(start, 0), args.worker)?;
                    continue;
                }
                for row in 0..rows.len() {
                    let at = start + row * c_row;
                    program.run(at..at + width, &bases(at, row), args.worker)?;
                }
            }
        }
        Ok(())
    }

    /// Computes a piece of C. The links change it.
    #[expect(clippy::too_many_arguments, reason = "a piece has two ranges and three matrices")]
    unsafe fn compute(
        &self,
        a: *const E,
        b: *const E,
        rows: Range<usize>,
        columns: Range<usize>,
        c: &Target,
        links: &[Link],
        worker: *mut u8,
    ) {
        let k = self.sides.k;
        let (a_row, a_term, b_row) = (self.sides.a.1, self.sides.a.2, self.sides.b.1);
        let code = self.code;
        if self.sides.is_dot() {
            // SAFETY: a row of A and rows of B, `k` long each.
            unsafe { (self.dot)(k, a, b.add(columns.start * b_row), b_row, columns.len(), c.start) };
            return;
        }
        // SAFETY: offsets into scratch that `prepare` asked for.
        let (b_scratch, a_scratch) = unsafe { (worker.add(self.b_place).cast::<f32>(), worker.add(self.a_place).cast::<f32>()) };
        let mut term = 0;
        loop {
            let terms = self.terms.min(k - term);
            let links = if term + terms == k { links } else { &[] };
            let a_piece = a.wrapping_add(rows.start * a_row + term * a_term);
            let tiles = rows.len().div_ceil(code.rows);
            let row_vectors = terms.div_ceil(code.lanes);
            match self.left {
                Left::There => {}
                // SAFETY: the rows of this piece lie next to each other in each row of the transposed A.
                Left::Columns => unsafe { (self.packing.gather)(a_piece, a_term, terms, rows.len(), tiles, a_scratch) },
                Left::Rows if terms == 0 => {}
                Left::Rows => {
                    let last = terms - (row_vectors - 1) * code.lanes;
                    // SAFETY: these terms of each row are there, and room for whole vectors of them.
                    unsafe { (self.packing.copy)(a_piece, a_row, rows.len(), row_vectors, last, a_scratch) };
                }
            }
            let all_vectors = columns.len().div_ceil(code.lanes);
            let first = self.panels.partition_point(|panel| panel.start < columns.start);
            let panels = match self.panels.is_empty() {
                true => all_vectors.div_ceil(code.vectors),
                false => self.panels.partition_point(|panel| panel.end <= columns.end) - first,
            };
            for number in 0..panels {
                let (column, end) = match self.panels.get(first + number) {
                    Some(panel) => (panel.start, panel.end),
                    None => {
                        let panel = part(all_vectors, panels, number);
                        let at = |vector: usize| columns.start + vector * code.lanes;
                        (at(panel.start), at(panel.end).min(columns.end))
                    }
                };
                let vectors = (end - column).div_ceil(code.lanes);
                let last = end - (column + (vectors - 1) * code.lanes);
                let (b_panel, b_term) = if !self.panels.is_empty() {
                    let width = end - column;
                    (b.wrapping_add(k * column + term * width).cast::<f32>(), width)
                } else if self.pack_b {
                    // SAFETY: the panel's columns and terms are in B; scratch has room for whole vectors of them.
                    unsafe { self.pack(b, term..term + terms, column, vectors, last, b_scratch) };
                    (b_scratch.cast_const(), vectors * code.lanes)
                } else {
                    (b.wrapping_add(term * b_row + column).cast::<f32>(), b_row)
                };
                let is_whole = self.pack_b || (!self.panels.is_empty() && last == code.lanes);
                let table = if is_whole { &code.packed } else { &code.direct };
                for number in 0..tiles {
                    let part = part(rows.len(), tiles, number);
                    let (a, a_row, a_term) = match self.left {
                        Left::There => (a_piece.wrapping_add(part.start * a_row).cast::<f32>(), a_row, a_term),
                        Left::Columns => (a_scratch.wrapping_add(part.start * terms).cast_const(), 1, part.len()),
                        Left::Rows => {
                            let row = row_vectors * code.lanes;
                            (a_scratch.wrapping_add(part.start * row).cast_const(), row, 1)
                        }
                    };
                    let offset = part.start * c.row + column - columns.start;
                    let tile = Tile {
                        k: terms,
                        a,
                        a_row,
                        a_term,
                        b: b_panel,
                        b_term,
                        c: c.start.wrapping_add(offset),
                        c_row: c.row,
                        last,
                        add: term > 0,
                        changes: Changes { links, element: c.first + offset, column },
                    };
                    if let Some(compute) = table[part.len() - 1][vectors - 1] {
                        // SAFETY: the tile lies within the piece, its A and B within the matrices or their copies.
                        unsafe { compute(&tile) };
                    }
                }
            }
            term += terms;
            if term >= k {
                return;
            }
        }
    }

    /// Copies columns of B, term by term, filled up with zeros to whole vectors.
    unsafe fn pack(&self, b: *const E, terms: Range<usize>, column: usize, vectors: usize, last: usize, to: *mut f32) {
        let (code, b_row) = (self.code, self.sides.b.1);
        // SAFETY: the caller's promise.
        unsafe {
            if !self.sides.b_transposed {
                (self.packing.copy)(b.add(terms.start * b_row + column), b_row, terms.len(), vectors, last, to);
                return;
            }
            for v in 0..vectors {
                let there = if v + 1 == vectors { last } else { code.lanes };
                let from = b.add((column + v * code.lanes) * b_row + terms.start);
                for at in (0..terms.len()).step_by(code.lanes) {
                    let count = code.lanes.min(terms.len() - at);
                    (self.packing.transpose)(
                        from.add(at),
                        b_row,
                        there,
                        count,
                        to.add((at * vectors + v) * code.lanes),
                        vectors * code.lanes,
                    );
                }
            }
        }
    }
}
