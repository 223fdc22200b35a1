//! Reductions: lanes of a block fold elements of one result, and a tree in shared memory joins them. Large ones to few results are
//! folded in parts, and a second kernel folds the parts. The shape fixes the order.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::reduce::{ReduceOp, Reduction, ScanOp};

use super::view::{dense, join};
use super::write::{Index, Writer, computed, is_float, narrow, stored, widen};
use super::{Emitted, Kernel, KernelArg, THREADS, count};

/// A fold: how elements become accumulators, how those are joined, and the result.
struct Fold {
    /// The type of accumulators.
    acc: &'static str,
    identity: String,
    /// Of the element `x`.
    lift: &'static str,
    /// Of `a` and `b`.
    join: String,
    /// Of the accumulator `a` and the count `count`.
    finish: String,
}

fn fold(op: ReduceOp, data_type: DataType) -> Result<Fold> {
    let t = computed(data_type)?;
    let is_float = is_float(data_type);
    let is_bool = data_type == DataType::Bool;
    if is_bool != matches!(op, ReduceOp::All | ReduceOp::Any) {
        return Err(Error::unimplemented(format!("a kernel for a card: {op:?} of {data_type}")));
    }
    let infinity = if t == "f64" { "INF_F64" } else { "INF_F32" };
    let bits = data_type.size().unwrap_or(8) * 8;
    let signed = t.starts_with('i');
    let (lowest, highest) = match (is_float, signed) {
        (true, _) => (format!("-{infinity}"), infinity.to_string()),
        (_, true) => (format!("({t})(1ull << {})", bits - 1), format!("({t})((1ull << {}) - 1)", bits - 1)),
        _ => ("0".to_string(), format!("({t})~0ull")),
    };
    let plain = |identity: String, join: String| Fold { acc: t, identity, lift: "x", join, finish: "a".to_string() };
    Ok(match op {
        ReduceOp::Sum if is_float => plain("0".into(), "a + b".into()),
        ReduceOp::Sum => plain("0".into(), format!("add_{t}(a, b)")),
        ReduceOp::Prod if is_float => plain("1".into(), "a * b".into()),
        ReduceOp::Prod => plain("1".into(), format!("mul_{t}(a, b)")),
        ReduceOp::Mean if is_float => Fold { finish: format!("a / ({t})count"), ..plain("0".into(), "a + b".into()) },
        ReduceOp::Mean => Fold {
            acc: "i64",
            identity: "0".into(),
            lift: "(i64)x",
            join: "add_i64(a, b)".into(),
            finish: format!("({t})(a / (i64)(count ? count : 1))"),
        },
        ReduceOp::Max if is_float => plain(lowest, "a > b || IS_NAN(a) ? a : b".into()),
        ReduceOp::Min if is_float => plain(highest, "a < b || IS_NAN(a) ? a : b".into()),
        ReduceOp::Max => plain(lowest, format!("most_{t}(a, b)")),
        ReduceOp::Min => plain(highest, format!("least_{t}(a, b)")),
        ReduceOp::All => plain("1".into(), "(u8)(a & b)".into()),
        ReduceOp::Any => plain("0".into(), "(u8)(a | b)".into()),
    })
}

/// A reduction.
///
/// # Errors
/// UNIMPLEMENTED where there is no kernel.
pub(super) fn emit(reduction: &Reduction) -> Result<Emitted> {
    match reduction {
        Reduction::Reduce { op, data_type, shape, axes, .. } => folded(&fold(*op, *data_type)?, *data_type, shape, axes),
        Reduction::HalfSquares { data_type, shape } if is_float(*data_type) => {
            let sum = fold(ReduceOp::Sum, *data_type)?;
            let half = Fold { lift: "x * x", finish: format!("a * ({})0.5", computed(*data_type)?), ..sum };
            folded(&half, *data_type, shape, &(0..shape.len()).collect::<Vec<_>>())
        }
        Reduction::Arg { smallest, data_type, output_type, shape, axis } => arg(*smallest, *data_type, *output_type, shape, *axis),
        Reduction::Scan { op, data_type, shape, axis, exclusive, reverse } => scan(*op, *data_type, shape, *axis, *exclusive, *reverse),
        Reduction::InTopK { target_type, batch, classes, k } => super::in_top_k::emit(*target_type, *batch, *classes, *k),
        Reduction::ReduceSome { .. } | Reduction::HalfSquares { .. } | Reduction::TopK { .. } => {
            Err(Error::unimplemented("a kernel for a card: this reduction"))
        }
    }
}

/// The elements of a tensor as results times elements of each result.
struct Grid {
    /// Sizes and strides of the dimensions that are kept.
    kept: (Vec<u64>, Vec<u64>),
    /// Of those that are reduced.
    reduced: (Vec<u64>, Vec<u64>),
}

impl Grid {
    fn new(shape: &[u64], axes: &[usize]) -> Result<Grid> {
        if axes.iter().any(|axis| *axis >= shape.len()) {
            return Err(Error::invalid_argument("a reduction along an axis that is not there"));
        }
        let strides = dense(shape);
        let of = |wanted: bool| {
            let chosen: Vec<usize> = (0..shape.len()).filter(|axis| axes.contains(axis) == wanted).collect();
            let sizes: Vec<u64> = chosen.iter().map(|axis| shape[*axis]).collect();
            let joined = join(&sizes, &[chosen.iter().map(|axis| strides[*axis]).collect()]);
            (joined.sizes, joined.strides.into_iter().next().unwrap_or_default())
        };
        Ok(Grid { kept: of(false), reduced: of(true) })
    }

    /// Whether the elements of one result lie beside each other, rather than the results.
    fn is_of_rows(&self) -> bool {
        let innermost = |dims: &(Vec<u64>, Vec<u64>)| dims.1.last().copied().unwrap_or(u64::MAX);
        innermost(&self.reduced) <= innermost(&self.kept)
    }
}

/// How a block is divided: this many results at a time, with so many lanes each, and so many parts.
struct Division {
    lanes: u64,
    parts: u64,
}

impl Division {
    fn of(results: u64, length: u64) -> Division {
        let threads = u64::from(THREADS);
        // A lane folds four elements at least.
        let lanes = length.div_ceil(4).clamp(1, threads).next_power_of_two();
        let lanes = if results.saturating_mul(lanes) > 1 << 20 { lanes.min(32) } else { lanes };
        let blocks = (results * lanes).div_ceil(threads).max(1);
        // Parts where blocks are fewer than keep a card busy, of 16 elements for each lane at least.
        let parts = (512 / blocks).min(length / (16 * lanes)).max(1);
        Division { lanes, parts }
    }
}

/// Offsets of an index that runs through dimensions.
fn offset(writer: &mut Writer, dims: &(Vec<u64>, Vec<u64>), prefix: &str, from: &str, to: &str) {
    let index = writer.index();
    let (sizes, strides) = dims;
    if sizes.is_empty() {
        return writer.line(format!("{index} {to} = 0;"));
    }
    if let ([_], [stride]) = (&sizes[..], &strides[..]) {
        return if *stride == 1 {
            writer.line(format!("{index} {to} = {from};"))
        } else {
            writer.size(format!("{prefix}s0"), *stride as i64);
            writer.line(format!("{index} {to} = {from} * {prefix}s0;"))
        };
    }
    writer.line(format!("{index} {to} = 0; {{ {index} rest = {from};"));
    for axis in (0..sizes.len()).rev() {
        writer.size(format!("{prefix}s{axis}"), strides[axis] as i64);
        if axis == 0 {
            writer.line(format!("{to} += rest * {prefix}s0; }}"));
        } else {
            writer.size(format!("{prefix}d{axis}"), sizes[axis] as i64);
            writer.line(format!("{to} += rest % {prefix}d{axis} * {prefix}s{axis}; rest /= {prefix}d{axis};"));
        }
    }
}

/// A fold over axes.
fn folded(fold: &Fold, data_type: DataType, shape: &[u64], axes: &[usize]) -> Result<Emitted> {
    let grid = Grid::new(shape, axes)?;
    let (results, length) = (count(&grid.kept.0), count(&grid.reduced.0));
    if shape.contains(&0) && results == 0 {
        return Ok(Emitted::default());
    }
    let length = if axes.iter().any(|axis| shape[*axis] == 0) { 0 } else { length };
    let division = Division::of(results, length);
    if division.parts == 1 {
        return Ok(Emitted { kernels: vec![pass(fold, data_type, &grid, results, length, &division, Role::Whole)?], ..Emitted::default() });
    }
    let parts = division.parts;
    let size = if fold.acc == "f64" || fold.acc.ends_with("64") { 8 } else { accumulator_bytes(fold.acc) };
    let first = pass(fold, data_type, &grid, results, length, &division, Role::Parts)?;
    // The parts of a result lie `results` apart.
    let grid = Grid { kept: (vec![results], vec![1]), reduced: (vec![parts], vec![results]) };
    let second = Division { lanes: parts.div_ceil(4).next_power_of_two().min(32), parts: 1 };
    let then = pass(fold, data_type, &grid, results, parts, &second, Role::Join { length })?;
    Ok(Emitted { kernels: vec![first, then], between: vec![results * parts * size], ..Emitted::default() })
}

fn accumulator_bytes(acc: &str) -> u64 {
    match acc {
        "u8" | "i8" => 1,
        "u16" | "i16" => 2,
        _ => 4,
    }
}

/// Which part of a fold a kernel does.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Whole,
    /// From elements to accumulators.
    Parts,
    /// From accumulators to results, each of so many elements.
    Join {
        length: u64,
    },
}

fn pass(fold: &Fold, data_type: DataType, grid: &Grid, results: u64, length: u64, division: &Division, role: Role) -> Result<Kernel> {
    let Division { lanes, parts } = *division;
    let acc = fold.acc;
    let ctype = stored(data_type)?;
    let rows = grid.is_of_rows();
    let reach = grid.kept.0.iter().zip(&grid.kept.1).chain(grid.reduced.0.iter().zip(&grid.reduced.1)).map(|(size, stride)| size * stride);
    let mut writer = Writer::new(Index::of(reach.sum::<u64>().max(results * parts)));
    let index = writer.index();
    let (from, to) = match role {
        Role::Whole => ((ctype, KernelArg::Argument(0)), (ctype, KernelArg::Argument(1))),
        Role::Parts => ((ctype, KernelArg::Argument(0)), (acc, KernelArg::Between(0))),
        Role::Join { .. } => ((acc, KernelArg::Between(0)), (ctype, KernelArg::Argument(1))),
    };
    writer.input("p", from.0, from.1);
    writer.output("q", to.0, to.1);
    writer.size("results", results as i64);
    writer.size("length", length as i64);
    writer.size("share", length.div_ceil(parts) as i64);
    writer.long("u64", "count", if let Role::Join { length } = role { length } else { length });

    let wide = Wide::of(grid, from.0, results, length, division, role);
    // Threads that share the results of a thread, and those results.
    let threads = if wide == Wide::Lanes { lanes / word_of(from.0) } else { lanes };
    let own = if wide == Wide::Results { word_of(from.0) } else { 1 };
    let per_block = u64::from(THREADS) / threads;
    let (lane, of) = if rows {
        (format!("threadIdx.x % {threads}"), format!("threadIdx.x / {threads}"))
    } else {
        (format!("threadIdx.x / {per_block}"), format!("threadIdx.x % {per_block}"))
    };
    writer.before.push_str(&format!("DEVICE {acc} @_join({acc} a, {acc} b) {{ return {}; }}\n", fold.join));
    // Accumulators that a thread has.
    let held = if matches!(wide, Wide::Lanes | Wide::Results) { word_of(from.0) } else { 1 };
    let each = format!("_Pragma(\"unroll\") for (u32 j = 0; j < {held}; ++j)");
    let a = if held > 1 { "a[j]" } else { "a" };
    if threads > 1 {
        let size = if held > 1 { format!("{held} * THREADS") } else { "THREADS".to_string() };
        writer.line(format!("__shared__ {acc} tree[{size}];"));
    }
    let per_tile = per_block * own;
    writer.line(format!("{index} lane = {lane}, tiles = (results + {}) / {per_tile};", per_tile - 1));
    // A block takes the same number of steps with all of its threads: they meet at barriers.
    let units = if parts > 1 { "tiles * parts" } else { "tiles" };
    if parts > 1 {
        writer.size("parts", parts as i64);
    }
    writer.line(format!("for ({index} unit = blockIdx.x; unit < {units}; unit += gridDim.x) {{"));
    let (tile, part) = if parts > 1 { ("unit % tiles", "unit / tiles") } else { ("unit", "0") };
    writer.line(format!(
        "{index} k = {}, first = {part} * share, end = first + share < length ? first + share : length;",
        if own > 1 { format!("({tile} * {per_block} + {of}) * {own}") } else { format!("{tile} * {per_block} + {of}") }
    ));
    writer.line(match held {
        1 => format!("{acc} a = {};", fold.identity),
        _ => format!("{acc} a[{held}]; {each} a[j] = {};", fold.identity),
    });
    writer.line("if (k < results) {");
    offset(&mut writer, &grid.kept, "k", "k", "row");
    let load = |value: String| match role {
        Role::Join { .. } => format!("{a} = @_join({a}, {value});"),
        _ => {
            format!(
                "{{ {} x = {}; {a} = @_join({a}, {}); }}",
                if ctype == "u16" && is_float(data_type) { "f32" } else { ctype },
                widen(data_type, value),
                fold.lift
            )
        }
    };
    let word = word_of(from.0);
    match wide {
        Wide::Rows => {
            writer.line(format!("for ({index} r = first + lane * {word}; r < end; r += {}) {{", lanes * word));
            writer.line(format!("{0}x{word} v = *(const {0}x{word}*)(p + row + r);", from.0));
            for at in 0..word {
                writer.line(load(format!("v.v[{at}]")));
            }
        }
        Wide::Lanes => {
            writer.line(format!("\n#pragma unroll 4\n  for ({index} r = first + lane * {word}; r < end; r += {lanes}) {{"));
            writer.line(format!("{0}x{word} v = *(const {0}x{word}*)(p + row + r);", from.0));
            writer.line(format!("{each} {}", load("v.v[j]".to_string())));
        }
        Wide::Results => {
            writer.line(format!("\n#pragma unroll 4\n  for ({index} r = first + lane; r < end; r += {lanes}) {{"));
            offset(&mut writer, &grid.reduced, "r", "r", "column");
            writer.line(format!("{0}x{word} v = *(const {0}x{word}*)(p + row + column);", from.0));
            writer.line(format!("{each} {}", load("v.v[j]".to_string())));
        }
        Wide::No => {
            writer.line(format!("\n#pragma unroll 4\n  for ({index} r = first + lane; r < end; r += {lanes}) {{"));
            offset(&mut writer, &grid.reduced, "r", "r", "column");
            writer.line(load("p[row + column]".to_string()));
        }
    }
    writer.line("} }");
    let apart = if rows { 1 } else { per_block };
    if threads > 1 && held == 1 {
        tree(&mut writer, threads, apart);
        writer.line("if (lane == 0) a = tree[threadIdx.x];");
    } else if threads > 1 {
        wide_tree(&mut writer, threads, apart, &each);
    }
    if wide == Wide::Lanes {
        // The lanes of a thread are neighbours: they come last.
        let mut half = held / 2;
        while half > 0 {
            writer.line(format!("_Pragma(\"unroll\") for (u32 j = 0; j < {half}; ++j) a[j] = @_join(a[j], a[j + {half}]);"));
            half /= 2;
        }
    }
    let k = if own > 1 { "k + j" } else { "k" };
    let to = if parts > 1 { format!("q[{part} * results + {k}]") } else { format!("q[{k}]") };
    let result = match role {
        Role::Parts => "a".to_string(),
        _ => narrow(data_type, format!("({})", fold.finish)),
    };
    writer.line(match (wide, held) {
        (Wide::Results, _) => {
            format!("if (lane == 0 && k < results) {each} {{ {acc} one = a[j]; {{ {acc} a = one; {to} = {result}; }} }}")
        }
        (_, 1) => format!("if (lane == 0 && k < results) {to} = {result};"),
        _ => format!("if (lane == 0 && k < results) {{ {acc} one = a[0]; {{ {acc} a = one; {to} = {result}; }} }}"),
    });
    if threads > 1 {
        writer.line("__syncthreads();");
    }
    writer.line("}\n  (void)count;");
    let tiles = results.div_ceil(per_tile) * parts;
    let family = if matches!(role, Role::Join { .. }) { "fold_parts" } else { "fold" };
    writer.finish(family, tiles.clamp(1, super::MOST_BLOCKS) as u32)
}

/// What a thread has of 16 bytes that it loads at once. The order of a sum follows from the lanes: it is the same for all but the first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wide {
    /// Elements of one row and one lane.
    Rows,
    /// Elements of one row and of as many lanes, whose accumulators are the thread's.
    Lanes,
    /// Elements of as many results.
    Results,
    /// One element.
    No,
}

impl Wide {
    fn of(grid: &Grid, ctype: &str, results: u64, length: u64, division: &Division, role: Role) -> Wide {
        let Division { lanes, parts } = *division;
        let word = word_of(ctype);
        let whole = |strides: &[u64]| strides.iter().all(|stride| stride.is_multiple_of(word));
        if word == 1 || length == 0 {
            return Wide::No;
        }
        if !grid.is_of_rows() {
            let Some((last, others)) = grid.kept.1.split_last() else { return Wide::No };
            let inner = grid.kept.0.last().copied().unwrap_or(0);
            // Parts of results begin at whole words, too: there are that many results in each.
            let fits = *last == 1 && inner.is_multiple_of(word) && results.is_multiple_of(word);
            return if fits && whole(others) && whole(&grid.reduced.1) { Wide::Results } else { Wide::No };
        }
        let contiguous = grid.reduced.1 == [1] && !matches!(role, Role::Join { .. });
        let shares = length.is_multiple_of(word) && length.div_ceil(parts).is_multiple_of(word);
        if !contiguous || !shares || !whole(&grid.kept.1) {
            Wide::No
        } else if length >= lanes * word {
            Wide::Rows
        } else if lanes >= word {
            Wide::Lanes
        } else {
            Wide::No
        }
    }
}

/// Elements of a type in 16 bytes.
fn word_of(ctype: &str) -> u64 {
    match &ctype[1..] {
        "8" => 16,
        "16" => 8,
        "32" => 4,
        "64" => 2,
        _ => 1,
    }
}

/// Joins the accumulators `a` of the lanes in `tree`; the lanes of one result are `step` threads apart.
fn tree(writer: &mut Writer, lanes: u64, step: u64) {
    writer.line("tree[threadIdx.x] = a;");
    let mut half = lanes / 2;
    while half > 0 {
        writer.line("__syncthreads();");
        writer.line(format!("if (lane < {half}) tree[threadIdx.x] = @_join(tree[threadIdx.x], tree[threadIdx.x + {}]);", half * step));
        half /= 2;
    }
}

/// As [`tree`] for the accumulators `a` that each thread has: those of the first lane are the results.
fn wide_tree(writer: &mut Writer, lanes: u64, step: u64, each: &str) {
    writer.line(format!("{each} tree[j * THREADS + threadIdx.x] = a[j];"));
    let mut half = lanes / 2;
    while half > 0 {
        writer.line("__syncthreads();");
        let other = format!("tree[j * THREADS + threadIdx.x + {}]", half * step);
        writer.line(format!("if (lane < {half}) {each} {{"));
        writer.line(format!("a[j] = @_join(a[j], {other}); tree[j * THREADS + threadIdx.x] = a[j];\n  }}"));
        half /= 2;
    }
}

/// The place of the largest or smallest along an axis: a thread for each result, in order.
fn arg(smallest: bool, data_type: DataType, output_type: DataType, shape: &[u64], axis: usize) -> Result<Emitted> {
    let (length, inner) = (shape[axis], count(&shape[axis + 1..]));
    let results = count(&shape[..axis]) * inner;
    if length == 0 && results > 0 {
        return Err(Error::invalid_argument("the place of the largest of nothing"));
    }
    if data_type == DataType::Bool || !matches!(output_type, DataType::Int32 | DataType::Int64) {
        return Err(Error::unimplemented(format!("a kernel for a card: ArgMax of {data_type}")));
    }
    let t = computed(data_type)?;
    let mut writer = Writer::new(Index::of(results * length.max(1)));
    let index = writer.index();
    writer.input("p", stored(data_type)?, KernelArg::Argument(0));
    writer.output("q", stored(output_type)?, KernelArg::Argument(1));
    writer.size("n", results as i64);
    writer.size("length", length as i64);
    writer.size("inner", inner as i64);
    writer.each("i", "n");
    let sign = if smallest { "<" } else { ">" };
    let limit = match (data_type, smallest) {
        // As the processor's: nothing beyond the largest finite number is chosen first.
        (DataType::Double, false) => "-1.7976931348623157e308".to_string(),
        (DataType::Double, true) => "1.7976931348623157e308".to_string(),
        (DataType::Float | DataType::Half | DataType::Bfloat16, false) => "-3.40282347e38f".to_string(),
        (DataType::Float | DataType::Half | DataType::Bfloat16, true) => "3.40282347e38f".to_string(),
        _ => format!("({t})p[at]"),
    };
    writer.line(format!("{index} at = i / inner * length * inner + i % inner, best = 0; {t} most = {limit};"));
    writer.line(format!("for ({index} k = 0; k < length; ++k) {{"));
    writer.line(format!("{t} x = {}; if (x {sign} most) {{ most = x; best = k; }}", widen(data_type, "p[at + k * inner]")));
    writer.line(format!("}}\n  q[i] = ({})best;\n  }}", stored(output_type)?));
    Ok(Emitted { kernels: vec![writer.finish("arg", super::blocks(results))?], ..Emitted::default() })
}

/// Running sums and products: a thread for each line, in order.
fn scan(op: ScanOp, data_type: DataType, shape: &[u64], axis: usize, exclusive: bool, reverse: bool) -> Result<Emitted> {
    if axis >= shape.len() {
        return Err(Error::invalid_argument("a running sum along an axis that is not there"));
    }
    let fold = fold(if op == ScanOp::Sum { ReduceOp::Sum } else { ReduceOp::Prod }, data_type)?;
    // The running value of floats of two bytes is rounded in every step elsewhere.
    if data_type.compute_type() != data_type {
        return Err(Error::unimplemented(format!("a kernel for a card: running sums of {data_type}")));
    }
    let (length, inner) = (shape[axis], count(&shape[axis + 1..]));
    let lines = count(&shape[..axis]) * inner;
    let t = stored(data_type)?;
    let mut writer = Writer::new(Index::of(lines * length));
    let index = writer.index();
    writer.input("p", t, KernelArg::Argument(0));
    writer.output("q", t, KernelArg::Argument(1));
    writer.size("n", lines as i64);
    writer.size("length", length as i64);
    writer.size("inner", inner as i64);
    writer.before.push_str(&format!("DEVICE {t} @_join({t} a, {t} b) {{ return {}; }}\n", fold.join));
    writer.each("i", "n");
    writer.line(format!("{index} from = i / inner * length * inner + i % inner; {t} a = {};", fold.identity));
    writer.line(format!("for ({index} k = 0; k < length; ++k) {{"));
    writer.line(format!("{index} at = from + {} * inner; {t} x = p[at];", if reverse { "(length - 1 - k)" } else { "k" }));
    writer.line(if exclusive { "q[at] = a; a = @_join(a, x);" } else { "a = @_join(a, x); q[at] = a;" });
    writer.line("}\n  }");
    Ok(Emitted { kernels: vec![writer.finish("scan", super::blocks(lines))?], ..Emitted::default() })
}
