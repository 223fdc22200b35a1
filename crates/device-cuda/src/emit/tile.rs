//! Products by tiles: a block computes a tile of C in registers, and passes the terms of A and B through shared memory, a step of
//! [`STEP`] terms after the other.
//!
//! The sides say where their elements are, so that a convolution is a product whose matrices nobody writes. An element of C is the sum
//! of its terms in order. Where tiles are few, the terms are divided into parts of equal length, and a second kernel adds the parts in
//! order. Sizes alone say how, so the same sizes give the same bits.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::anchor::Epilogue;

use super::expr::{FAULTS, function};
use super::view::{Joined, broadcast, dense};
use super::write::{Index, Writer, computed, is_float, narrow, stored, widen};
use super::{Emitted, Kernel, KernelArg, THREADS, blocks};

/// The sizes of a product `C = A B`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The elements of all three.
    pub data_type: DataType,
    /// How many products.
    pub batch: u64,
    /// Rows of each C.
    pub rows: u64,
    /// Columns of each C.
    pub columns: u64,
    /// Terms of each sum.
    pub terms: u64,
    /// Elements of all C together.
    pub total: u64,
    /// The most elements that an argument has.
    pub largest: u64,
}

/// Where the elements of A or B are. A line is a row of A, or a column of B.
pub(super) struct Side {
    /// Whether neighbours in memory are neighbours of one line, rather than of one term.
    pub along_terms: bool,
    /// What belongs to a line: statements on `line`, then variables by type, name and value.
    pub line: (String, Vec<(&'static str, &'static str, String)>),
    /// What belongs to a term: statements on `term`.
    pub term: String,
    /// Whether the element is there; the others are 0.
    pub inside: Option<String>,
    /// The element.
    pub value: String,
}

/// Terms between two barriers.
const STEP: u64 = 16;

/// Floats behind each line of a tile in shared memory, so that fewer threads write to one bank. A multiple of 16 bytes.
const PADDING: u64 = 4;

/// Large tiles that keep a card busy.
const BUSY: u64 = 128;

/// Parts of tiles that keep a card busy: several on each of its processors, so that one computes while another one waits for memory. Half
/// as many of large tiles are enough.
const BLOCKS: u64 = 512;

/// Fewer terms are not worth a part.
const PART: u64 = 64;

/// Blocks of a grid, at most.
const MOST_TILES: u64 = 65_535;

/// Rows and columns of a tile. A thread computes so many rows, `down`, and columns, `along`, of it, in groups of [`GROUP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: u64,
    columns: u64,
    down: u64,
    along: u64,
}

/// Rows or columns of a thread that follow each other.
const GROUP: u64 = 4;

const LARGE: Tile = Tile { rows: 128, columns: 128, down: 8, along: 8 };
const HIGH: Tile = Tile { rows: 128, columns: 64, down: 8, along: 4 };
const SQUARE: Tile = Tile { rows: 64, columns: 64, down: 4, along: 4 };
const TALL: Tile = Tile { rows: 256, columns: 16, down: 4, along: 4 };
const WIDE: Tile = Tile { rows: 16, columns: 256, down: 4, along: 4 };

impl Tile {
    fn of(sizes: &Sizes, bytes: u64) -> Tile {
        if sizes.columns <= TALL.columns {
            TALL
        } else if sizes.rows <= WIDE.rows {
            WIDE
        } else if bytes == 4 && sizes.rows.min(sizes.columns) > SQUARE.rows && LARGE.count(sizes) >= BUSY {
            LARGE
        } else if bytes == 4 && sizes.rows > SQUARE.rows && HIGH.count(sizes).saturating_mul(sizes.terms / PART) >= BLOCKS {
            HIGH
        } else {
            SQUARE
        }
    }

    /// How many there are.
    fn count(self, sizes: &Sizes) -> u64 {
        sizes.rows.div_ceil(self.rows).saturating_mul(sizes.columns.div_ceil(self.columns)).saturating_mul(sizes.batch)
    }

    /// The parts of its terms.
    fn split(self, sizes: &Sizes) -> (u64, u64) {
        let weight = self.down * self.along / 32;
        split(self.count(sizes).saturating_mul(weight.max(1)), sizes.terms)
    }
}

/// Parts of the terms of so many tiles: how many, and how long each but the last is.
pub(super) fn split(tiles: u64, terms: u64) -> (u64, u64) {
    let wanted = (BLOCKS / tiles.max(1)).min(terms / PART).max(1);
    let length = terms.div_ceil(wanted).next_multiple_of(STEP).max(STEP);
    (terms.div_ceil(length).max(1), length)
}

/// Adds the product of two values to `sum`, for a float type.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel.
pub(super) fn product_of(data_type: DataType, [x, y]: &[String; 2]) -> Result<String> {
    Ok(format!("sum = {}({x}, {y}, sum);", if computed(data_type)? == "f64" { "fma" } else { "fmaf" }))
}

/// A product that is being written. The pointers to A and B, sizes of theirs, and where the products of a batch begin, are its caller's.
pub(super) struct Tiled {
    pub writer: Writer,
    sizes: Sizes,
    tile: Tile,
    parts: u64,
    length: u64,
}

impl Tiled {
    /// Of these sizes, of which none is 0 but the terms.
    ///
    /// # Errors
    /// UNIMPLEMENTED for types without a kernel.
    pub fn new(sizes: Sizes) -> Result<Tiled> {
        let bytes = sizes.data_type.compute_type().size().unwrap_or(0) as u64;
        if !is_float(sizes.data_type) && !matches!(sizes.data_type, DataType::Int32 | DataType::Int64) {
            return Err(Error::unimplemented(format!("a kernel for a card: products of {}", sizes.data_type)));
        }
        let tile = Tile::of(&sizes, bytes);
        let tiles = tile.count(&sizes);
        let (parts, length) = tile.split(&sizes);
        let most = [sizes.total, sizes.largest, sizes.rows, sizes.columns, sizes.terms].into_iter().max().unwrap_or(0);
        let mut writer = Writer::new(Index::of(most));
        for (name, size) in [("m", sizes.rows), ("n", sizes.columns), ("k", sizes.terms)] {
            writer.size(name, size as i64);
        }
        writer.size("across", sizes.columns.div_ceil(tile.columns) as i64);
        writer.size("down", sizes.rows.div_ceil(tile.rows) as i64);
        writer.size("tiles", tiles.saturating_mul(parts) as i64);
        Ok(Tiled { writer, sizes, tile, parts, length })
    }

    /// The kernels. Statements on `matrix`, the number of a product, come first; `e` is the place of the element of C at `i`, `j`.
    ///
    /// # Errors
    /// As [`Finish::of`]; UNIMPLEMENTED for more arguments than a launch has.
    pub fn finish(
        mut self,
        name: &str,
        matrix: &str,
        a: &Side,
        b: &Side,
        e: &str,
        epilogue: Option<(&Epilogue, &[u64])>,
    ) -> Result<Emitted> {
        let Sizes { data_type, total, .. } = self.sizes;
        let t = computed(data_type)?;
        let finish = Finish::of(&self.sizes, epilogue)?;
        let store = if self.parts == 1 {
            finish.declare(&mut self.writer)?;
            finish.store(&mut self.writer, "sum[r][s]")?
        } else {
            self.writer.output("parts", t, KernelArg::Between(0));
            self.writer.size("length", self.length as i64);
            self.writer.size("count", self.parts as i64);
            self.writer.size("total", total as i64);
            "parts[part * total + e] = sum[r][s];".to_string()
        };
        let mut emitted = Emitted { in_place: finish.in_place(), faults: finish.faults(), ..Emitted::default() };
        let (parts, size) = (self.parts, data_type.compute_type().size().unwrap_or(0) as u64);
        let sizes = self.sizes;
        emitted.kernels.push(self.tiles(name, t, matrix, a, b, e, &store)?);
        if parts > 1 {
            emitted.between.push(parts * total * size);
            emitted.kernels.push(join(&sizes, t, parts, &finish)?);
        }
        Ok(emitted)
    }

    #[expect(clippy::too_many_arguments, reason = "the pieces of one text")]
    fn tiles(mut self, name: &str, t: &str, matrix: &str, a: &Side, b: &Side, e: &str, store: &str) -> Result<Kernel> {
        let Tile { rows, columns, down, along } = self.tile;
        let index = self.writer.index();
        let count = self.tile.count(&self.sizes).saturating_mul(self.parts);
        let writer = &mut self.writer;
        let (row, column) = (rows + PADDING, columns + PADDING);
        writer.line(format!("__shared__ __align__(16) {t} left[{}];", STEP * row));
        writer.line(format!("__shared__ __align__(16) {t} right[{}];", STEP * column));
        let across = columns / along;
        writer.line(format!("const u32 thread = threadIdx.x, tx = thread % {across}, ty = thread / {across};"));
        writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
        writer.line(format!("{index} matrix = tile / across, j0 = (tile - matrix * across) * {columns}, i0 = matrix / down;"));
        writer.line(format!("{{ {index} rest = i0; i0 = (matrix - rest * down) * {rows}; matrix = rest; }}"));
        if self.parts > 1 {
            writer.line(format!("{index} part = matrix % count, first = part * length, last = k - first < length ? k : first + length;"));
            writer.line("matrix /= count;");
        } else {
            writer.line(format!("{index} first = 0, last = k;"));
        }
        writer.line(matrix);
        writer.line("(void)matrix;");
        writer.line(format!("{t} sum[{down}][{along}], x[{}], y[{}];", rows / STEP, columns / STEP));
        writer.line(format!("{UNROLL}  for (u32 r = 0; r < {down}; ++r) {UNROLL} for (u32 s = 0; s < {along}; ++s) sum[r][s] = 0;"));
        let sides = [("x", "left", a, rows, "i0", "m"), ("y", "right", b, columns, "j0", "n")];
        let data_type = self.sizes.data_type;
        for (into, _, side, lines, from, end) in sides {
            lines_of(writer, into, side, lines, from, end);
        }
        for (into, _, side, lines, ..) in sides {
            load(writer, into, side, lines, "first", data_type);
        }
        writer.line(format!("for ({index} at = first; at < last; at += {STEP}) {{"));
        writer.line("__syncthreads();");
        for (into, shared, side, lines, ..) in sides {
            let (line, term) = places(side, lines);
            writer.line(format!(
                "{UNROLL}  for (u32 r = 0; r < {}; ++r) {shared}[({term}) * {} + {line}] = {into}[r];",
                lines / STEP,
                lines + PADDING
            ));
        }
        writer.line("__syncthreads();");
        writer.line(format!("if (last - at > {STEP}) {{"));
        for (into, _, side, lines, ..) in sides {
            load(writer, into, side, lines, &format!("at + {STEP}"), data_type);
        }
        writer.line("}");
        multiply(writer, t, self.tile);
        writer.line("}");
        let place = |r: &str, at: &str, size: u64| format!("{r} / {GROUP} * {} + {at} * {GROUP} + {r} % {GROUP}", size * GROUP);
        writer.line(format!("{UNROLL}  for (u32 r = 0; r < {down}; ++r) {UNROLL} for (u32 s = 0; s < {along}; ++s) {{"));
        writer.line(format!("{index} i = i0 + {}, j = j0 + {};", place("r", "ty", rows / down), place("s", "tx", columns / along)));
        writer.line(format!("if (i < m && j < n) {{ {index} e = {e}; {store} }}"));
        writer.line("}\n  }");
        self.writer.finish(name, count.clamp(1, MOST_TILES) as u32)
    }
}

/// Asks for loops over registers to be written out.
const UNROLL: &str = "\n#pragma unroll\n";

/// Asks for eight loads to be on their way at once.
const UNROLL_8: &str = "\n#pragma unroll 8\n";

/// The line and the term that thread `thread` moves as its element `r`.
fn places(side: &Side, lines: u64) -> (String, String) {
    let threads = u64::from(THREADS);
    if side.along_terms {
        (format!("(thread / {STEP} + r * {})", threads / STEP), format!("thread % {STEP}"))
    } else {
        (format!("(thread % {lines})"), format!("thread / {lines} + r * {}", threads / lines))
    }
}

/// What belongs to the lines that a thread moves.
fn lines_of(writer: &mut Writer, into: &str, side: &Side, lines: u64, from: &str, end: &str) {
    let index = writer.index();
    let count = if side.along_terms { lines / STEP } else { 1 };
    let (line, _) = places(side, lines);
    for (ctype, name, _) in &side.line.1 {
        writer.line(format!("{ctype} {into}_{name}[{count}];"));
    }
    writer.line(format!("u32 {into}_here[{count}];"));
    writer.line(format!("{UNROLL}  for (u32 r = 0; r < {count}; ++r) {{ {index} line = {from} + {line};"));
    writer.line(&side.line.0);
    for (_, name, value) in &side.line.1 {
        writer.line(format!("{into}_{name}[r] = {value};"));
    }
    writer.line(format!("{into}_here[r] = line < {end};"));
    writer.line("}");
}

/// The elements of the step that begins at the term `from`, into registers.
fn load(writer: &mut Writer, into: &str, side: &Side, lines: u64, from: &str, data_type: DataType) {
    let index = writer.index();
    let (_, term) = places(side, lines);
    let of = if side.along_terms { "r" } else { "0" };
    writer.line(format!("{UNROLL}  for (u32 r = 0; r < {}; ++r) {{ {index} term = {from} + {term};", lines / STEP));
    for (ctype, name, _) in &side.line.1 {
        writer.line(format!("{ctype} {name} = {into}_{name}[{of}];"));
    }
    writer.line(&side.term);
    let inside = side.inside.as_ref().map_or(String::new(), |inside| format!(" && {inside}"));
    writer.line(format!("{into}[r] = {into}_here[{of}] && term < last{inside} ? {} : 0;", widen(data_type, &side.value)));
    writer.line("}");
}

/// The products of a step.
fn multiply(writer: &mut Writer, t: &str, Tile { rows, columns, down, along }: Tile) {
    let lanes = if t.ends_with("64") { 2 } else { 4 };
    writer.line(format!("{UNROLL}  for (u32 q = 0; q < {STEP}; ++q) {{"));
    for (name, shared, across, size, own) in [("u", "left", "ty", rows, down), ("w", "right", "tx", columns, along)] {
        for first in (0..own).step_by(lanes) {
            let place = first / GROUP * (size * GROUP / own) + first % GROUP;
            let at = format!("{shared} + q * {} + {across} * {GROUP} + {place}", size + PADDING);
            writer.line(format!("{t}x{lanes} {name}{} = *(const {t}x{lanes}*)({at});", first / lanes as u64));
        }
    }
    for r in 0..down {
        let sums = (0..along).map(|s| {
            let lane = |name: &str, at: u64| format!("{name}{}.v[{}]", at / lanes as u64, at % lanes as u64);
            let (u, w, sum) = (lane("u", r), lane("w", s), format!("sum[{r}][{s}]"));
            match t {
                "f32" => format!("{sum} = fmaf({u}, {w}, {sum});"),
                "f64" => format!("{sum} = fma({u}, {w}, {sum});"),
                _ => format!("{sum} = add_{t}({sum}, mul_{t}({u}, {w}));"),
            }
        });
        writer.line(sums.collect::<Vec<_>>().join(" "));
    }
    writer.line("}");
}

/// Adds the parts of each element of C.
///
/// # Errors
/// As [`Finish::declare`].
pub(super) fn join(sizes: &Sizes, t: &str, parts: u64, finish: &Finish<'_>) -> Result<Kernel> {
    let mut writer = Writer::new(Index::of(sizes.total.saturating_mul(parts)));
    let index = writer.index();
    writer.input("parts", t, KernelArg::Between(0));
    writer.size("count", parts as i64);
    writer.size("total", sizes.total as i64);
    writer.size("n", sizes.columns as i64);
    finish.declare(&mut writer)?;
    let store = finish.store(&mut writer, "sum")?;
    let add = if t.starts_with('f') { "sum + part".to_string() } else { format!("add_{t}(sum, part)") };
    // 16 bytes of each part at once, where all parts begin at such words.
    let word = if t.ends_with("64") { 2 } else { 4 };
    let at = format!("{index} i = e / n, j = e - i * n; (void)i; (void)j;");
    if sizes.total.is_multiple_of(word) {
        writer.each("g", &format!("total / {word}"));
        writer.line(format!("{t}x{word} sums = *(const {t}x{word}*)(parts + g * {word});"));
        writer.line(format!("{UNROLL_8}  for ({index} p = 1; p < count; ++p) {{"));
        writer.line(format!("{t}x{word} some = *(const {t}x{word}*)(parts + (p * total + g * {word}));"));
        writer.line(format!(
            "{UNROLL}  for (u32 s = 0; s < {word}; ++s) {{ {t} sum = sums.v[s], part = some.v[s]; sums.v[s] = {add}; }}\n  }}"
        ));
        writer.line(format!("{UNROLL}  for (u32 s = 0; s < {word}; ++s) {{ {t} sum = sums.v[s]; {index} e = g * {word} + s; {at}"));
        writer.line(store);
        writer.line("} }");
        return writer.finish("join", blocks(sizes.total / word));
    }
    writer.each("e", "total");
    writer.line(format!("{t} sum = parts[e]; {at}"));
    writer.line(format!("{UNROLL_8}  for ({index} p = 1; p < count; ++p) {{ {t} part = parts[p * total + e]; sum = {add}; }}"));
    writer.line(store);
    writer.line("}");
    writer.finish("join", blocks(sizes.total))
}

/// What becomes of a sum.
pub(super) enum Finish<'a> {
    /// It is rounded to its type.
    Plain(DataType),
    /// An expression finishes it.
    Expr { sizes: Sizes, epilogue: &'a Epilogue, joined: Joined },
}

impl Finish<'_> {
    /// With an epilogue, and the shape that it works on.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for operands that do not broadcast to the shape.
    pub fn of<'a>(sizes: &Sizes, epilogue: Option<(&'a Epilogue, &[u64])>) -> Result<Finish<'a>> {
        let Some((epilogue, shape)) = epilogue else { return Ok(Finish::Plain(sizes.data_type)) };
        Ok(Finish::Expr { sizes: *sizes, epilogue, joined: broadcast(shape, &epilogue.operands)? })
    }

    /// Parameters that point to further operands and to results, and the function.
    ///
    /// # Errors
    /// UNIMPLEMENTED for primitives without code.
    pub fn declare(&self, writer: &mut Writer) -> Result<()> {
        match self {
            Finish::Plain(data_type) => writer.output("c", stored(*data_type)?, KernelArg::Argument(2)),
            Finish::Expr { epilogue: Epilogue { expr, operands }, .. } => {
                let function = function(expr)?;
                writer.before.push_str(&function.text);
                for (operand, data_type) in expr.inputs().iter().skip(1).enumerate() {
                    writer.input(format!("p{operand}"), stored(*data_type)?, KernelArg::Argument(operand as u32 + 2));
                }
                for (output, data_type) in expr.output_types().iter().enumerate() {
                    writer.output(format!("q{output}"), stored(*data_type)?, KernelArg::Argument((operands.len() + output) as u32 + 2));
                }
                if function.can_fail {
                    writer.fault();
                }
            }
        }
        Ok(())
    }

    /// The statement that writes the element `e`, at `i` and `j`.
    ///
    /// # Errors
    /// As [`Finish::declare`].
    pub fn store(&self, writer: &mut Writer, sum: &str) -> Result<String> {
        let (sizes, epilogue, joined) = match self {
            Finish::Plain(data_type) => return Ok(format!("c[e] = {};", narrow(*data_type, sum))),
            Finish::Expr { sizes, epilogue, joined } => (sizes, epilogue, joined),
        };
        let index = writer.index();
        let rank = joined.sizes.len();
        let mut text = String::new();
        // Indices of the dimensions: most often they are the rows and columns of C.
        let at: Vec<String> = if rank <= 1 {
            vec!["e".to_string(); rank]
        } else if joined.sizes == [sizes.rows, sizes.columns] {
            ["i", "j"].map(str::to_string).to_vec()
        } else {
            text.push_str(&format!("{index} rest = e; "));
            for (axis, size) in joined.sizes.iter().enumerate().skip(1).rev() {
                writer.size(format!("d{axis}"), *size as i64);
                text.push_str(&format!("{index} c{axis} = rest % d{axis}; rest /= d{axis}; "));
            }
            (0..rank).map(|axis| if axis == 0 { "rest".to_string() } else { format!("c{axis}") }).collect()
        };
        let mut args = vec![narrow(sizes.data_type, sum)];
        for (operand, strides) in joined.strides.iter().enumerate() {
            let mut terms = Vec::new();
            for (axis, stride) in strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
                if axis + 1 < rank {
                    writer.size(format!("s{operand}_{axis}"), *stride as i64);
                    terms.push(format!("{} * s{operand}_{axis}", at[axis]));
                } else {
                    terms.push(at[axis].clone());
                }
            }
            let sum = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
            args.push(format!("p{operand}[{sum}]"));
        }
        let expr = &epilogue.expr;
        args.extend((0..expr.output_types().len()).map(|output| format!("&q{output}[e]")));
        if expr.can_fail() {
            args.extend(["fault", "base", "e"].map(str::to_string));
        }
        Ok(format!("{text}@_element({});", args.join(", ")))
    }

    /// Operands of which each element is read by the thread that then writes a result there.
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        let Finish::Expr { epilogue, joined, .. } = self else { return Vec::new() };
        let mut pairs = Vec::new();
        for (operand, data_type) in epilogue.expr.inputs().iter().skip(1).enumerate() {
            let is_whole = joined.strides[operand] == dense(&joined.sizes);
            for (output, result) in epilogue.expr.output_types().iter().enumerate() {
                if is_whole && data_type.size() == result.size() {
                    pairs.push((operand + 2, output));
                }
            }
        }
        pairs
    }

    /// What the expression's faults mean.
    pub fn faults(&self) -> Vec<super::FaultText> {
        match self {
            Finish::Expr { epilogue, .. } if epilogue.expr.can_fail() => FAULTS.to_vec(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(batch: u64, rows: u64, columns: u64, terms: u64) -> Sizes {
        let total = batch.saturating_mul(rows).saturating_mul(columns);
        Sizes { data_type: DataType::Float, batch, rows, columns, terms, total, largest: total }
    }

    #[test]
    fn every_tile_is_a_block_of_threads_and_fits_shared_memory() {
        for tile in [LARGE, HIGH, SQUARE, TALL, WIDE] {
            let Tile { rows, columns, down, along } = tile;
            assert_eq!(rows / down * (columns / along), u64::from(THREADS), "{tile:?}");
            assert!([rows, columns].iter().all(|lines| lines % STEP == 0 && u64::from(THREADS) % lines == 0), "{tile:?}");
            let bytes = if [LARGE, HIGH].contains(&tile) { 4 } else { 8 };
            assert!(STEP * (rows + columns + 2 * PADDING) * bytes <= 48 << 10, "{tile:?}");
        }
    }

    #[test]
    fn sizes_choose_tiles_and_parts() {
        let chosen = |sizes: &Sizes, bytes| {
            let tile = Tile::of(sizes, bytes);
            (tile, tile.split(sizes))
        };
        assert_eq!(chosen(&sizes(1, 4096, 4096, 1000), 4), (LARGE, (1, 1008)));
        assert_eq!(chosen(&sizes(1, 4096, 4096, 1000), 8), (SQUARE, (1, 1008)));
        assert_eq!(chosen(&sizes(500, 20, 20, 8), 4), (SQUARE, (1, 16)));
        // 5 tiles: 101 parts, of which each is a whole number of steps.
        assert_eq!(chosen(&sizes(1, 576, 64, 100_000), 4), (HIGH, (101, 992)));
        assert_eq!(chosen(&sizes(1, 576, 64, 100_000), 8), (SQUARE, (56, 1792)));
        assert_eq!(chosen(&sizes(1, 18_432, 64, 1600), 4), (HIGH, (3, 544)));
        // 128 large ones: 2 parts.
        assert_eq!(chosen(&sizes(1, 2048, 1024, 1000), 4), (LARGE, (2, 512)));
        assert_eq!(chosen(&sizes(1, 100, 10, 600), 4), (TALL, (8, 80)));
        assert_eq!(chosen(&sizes(1, 1, 1000, 0), 4), (WIDE, (1, 16)));
        assert_eq!(chosen(&sizes(1, 1 << 40, 1 << 40, 1 << 40), 4).1.0, 1);
    }
}
