//! Convolutions of each channel by itself, and their gradients: a thread for each element, whose taps it adds in order. By the filter,
//! lanes of a block add positions, and a tree joins them.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;

use super::conv::{check_axes, digits};
use super::tile::{Finish, Sizes, join, product_of, split};
use super::write::{Index, Writer, computed, narrow, stored, widen};
use super::{Emitted, KernelArg, THREADS, blocks, count};

/// The convolution, with an expression for each element.
///
/// # Errors
/// UNIMPLEMENTED for types, layouts and sizes without a kernel; INVALID_ARGUMENT for channels that are no multiple of the input's.
pub(super) fn forward(spec: &ConvSpec, epilogue: Option<&Epilogue>) -> Result<Emitted> {
    let shape = spec.output();
    let sizes = sizes(spec, count(&shape[..shape.len() - 1]), spec.out_c)?;
    let finish = Finish::of(&sizes, epilogue.map(|epilogue| (epilogue, &shape[..])))?;
    let mut writer = begin(spec, &sizes)?;
    finish.declare(&mut writer)?;
    let store = finish.store(&mut writer, Lanes::of(spec).sum())?;
    let (index, axes) = (writer.index(), spec.axes.len());
    writer.size("total", sizes.total as i64);
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("positions{at}"), axis.positions);
        writer.size(format!("size{at}"), axis.size as i64);
        writer.word("i32", format!("stride{at}"), axis.stride as u32);
    }
    let lanes = Lanes::of(spec);
    lanes.each(&mut writer);
    let (row, channel) = (writer.quotient("e", "n"), writer.quotient("j", "multiplier"));
    writer.line(format!("{index} i = {row}, j = e - i * n, channel = {channel}, rest = i; {}", digits(&writer, "positions", axes)));
    for at in 0..axes {
        writer.line(format!("i32 y{at} = (i32)o{at} * stride{at} - pad{at};"));
    }
    let terms =
        taps(spec, &mut writer, |at| format!("i32 p{at} = y{at} + t{at} * dilation{at};"), |at, _| format!("(u32)p{at} < (u32)size{at}"));
    writer.line(place("size", axes, index));
    lanes.product(&mut writer, ["a + (place * channels + channel)", "b + (tap * n + j)"])?;
    writer.line("}");
    writer.line(terms);
    lanes.store(&mut writer, &store, matches!(finish, Finish::Plain(_)));
    writer.line("}");
    let kernel = writer.finish("depthwise", blocks(sizes.total / lanes.vector))?;
    Ok(Emitted { kernels: vec![kernel], in_place: finish.in_place(), faults: finish.faults(), ..Emitted::default() })
}

/// The gradient by the input.
///
/// # Errors
/// As [`forward`].
pub(super) fn by_input(spec: &ConvSpec) -> Result<Emitted> {
    let shape = spec.input();
    let sizes = sizes(spec, count(&shape[..shape.len() - 1]), spec.in_c)?;
    let finish = Finish::of(&sizes, None)?;
    let mut writer = begin(spec, &sizes)?;
    finish.declare(&mut writer)?;
    let store = finish.store(&mut writer, Lanes::of(spec).sum())?;
    let (index, axes) = (writer.index(), spec.axes.len());
    writer.size("total", sizes.total as i64);
    writer.size("many", spec.out_c.checked_div(spec.in_c).unwrap_or(0) as i64);
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("size{at}"), axis.size);
        writer.size(format!("positions{at}"), axis.positions as i64);
        if axis.stride != 1 {
            writer.divisor(format!("stride{at}"), axis.stride);
        }
    }
    let lanes = Lanes::of(spec);
    lanes.each(&mut writer);
    let row = writer.quotient("e", "channels");
    writer.line(format!("{index} i = {row}, channel = e - i * channels, rest = i; {}", digits(&writer, "size", axes)));
    let strides: Vec<String> = (0..axes).map(|at| writer.quotient(&format!("(u32)e{at}"), &format!("stride{at}"))).collect();
    let before = |at: usize| {
        let quotient = if spec.axes[at].stride == 1 { format!("e{at}") } else { strides[at].clone() };
        format!("i32 e{at} = (i32)o{at} + pad{at} - t{at} * dilation{at}; u32 p{at} = (u32)({quotient});")
    };
    let terms = taps(spec, &mut writer, before, |at, stride| match stride {
        1 => format!("p{at} < (u32)positions{at}"),
        _ => format!("e{at} >= 0 && p{at} < (u32)positions{at} && p{at} * (u32)stride{at} == (u32)e{at}"),
    });
    writer.line(place("positions", axes, index));
    writer.line(match lanes.vector {
        1 => format!("for ({index} j = channel * many; j < (channel + 1) * many; ++j) {{"),
        // One channel of the result for each of the input.
        _ => format!("{{ {index} j = channel; (void)many;"),
    });
    // The filter is the first argument.
    lanes.product(&mut writer, ["b + (place * n + j)", "a + (tap * n + j)"])?;
    writer.line("} }");
    writer.line(terms);
    lanes.store(&mut writer, &store, true);
    writer.line("}");
    Ok(Emitted { kernels: vec![writer.finish("depthwise_by_input", blocks(sizes.total / lanes.vector))?], ..Emitted::default() })
}

/// The channels beside each other that a thread has: as many as 16 bytes hold where each channel of the input makes one of the result.
struct Lanes {
    data_type: DataType,
    vector: u64,
}

impl Lanes {
    fn of(spec: &ConvSpec) -> Lanes {
        let widest = 16 / spec.data_type.size().unwrap_or(16) as u64;
        let fits = spec.in_c == spec.out_c && spec.in_c > 0 && spec.in_c.is_multiple_of(widest);
        Lanes { data_type: spec.data_type, vector: if fits { widest } else { 1 } }
    }

    /// The sum of a channel.
    fn sum(&self) -> &'static str {
        if self.vector == 1 { "sum" } else { "sum[s]" }
    }

    fn each_channel(&self) -> String {
        format!("_Pragma(\"unroll\") for (u32 s = 0; s < {}; ++s)", self.vector)
    }

    /// The head of the loop over elements, from the place `e` on.
    fn each(&self, writer: &mut Writer) {
        let index = writer.index();
        match self.vector {
            1 => writer.each("e", "total"),
            vector => {
                writer.each("g", &format!("total / {vector}"));
                writer.line(format!("{index} e = g * {vector};"));
            }
        }
    }

    /// Adds the products of elements at two places to the sums.
    fn product(&self, writer: &mut Writer, places: [&str; 2]) -> Result<()> {
        if self.vector == 1 {
            writer.line(product_of(self.data_type, &places.map(|place| widen(self.data_type, format!("*({place})"))))?);
            return Ok(());
        }
        let word = format!("{}x{}", stored(self.data_type)?, self.vector);
        writer.line(format!("{word} u = *(const {word}*)({}), w = *(const {word}*)({});", places[0], places[1]));
        let product = product_of(self.data_type, &["u.v[s]", "w.v[s]"].map(|x| widen(self.data_type, x)))?;
        writer.line(format!("{} {}", self.each_channel(), product.replace("sum", "sum[s]")));
        Ok(())
    }

    /// What becomes of the sums: by a statement for the element `e`, at `i` and `j`, or, where they are `plain`, all at once.
    fn store(&self, writer: &mut Writer, store: &str, plain: bool) {
        if self.vector == 1 {
            writer.line(store);
            return;
        }
        let index = writer.index();
        if plain {
            let word = format!("{}x{}", stored(self.data_type).unwrap_or("f32"), self.vector);
            writer.line(format!("{word} made; {} made.v[s] = {};", self.each_channel(), narrow(self.data_type, "sum[s]")));
            writer.line(format!("*({word}*)(c + e) = made;"));
            return;
        }
        writer.line(format!("{index} e0 = e, j0 = j; (void)j0;\n  {} {{ {index} e = e0 + s, j = j0 + s; (void)j;", self.each_channel()));
        writer.line(store);
        writer.line("}");
    }
}

/// Columns of a block, and the lanes that add the positions of a column.
const COLUMNS: u64 = 32;
const LANES: u64 = THREADS as u64 / COLUMNS;

/// The gradient by the filter.
///
/// # Errors
/// As [`forward`].
pub(super) fn by_filter(spec: &ConvSpec) -> Result<Emitted> {
    let output = spec.output();
    let sizes = Sizes { terms: count(&output[..output.len() - 1]), ..sizes(spec, spec.taps(), spec.out_c)? };
    let finish = Finish::of(&sizes, None)?;
    let t = computed(sizes.data_type)?;
    let across = sizes.columns.div_ceil(COLUMNS);
    let (parts, length) = split(across.saturating_mul(sizes.rows).div_ceil(4), sizes.terms);
    let mut writer = begin(spec, &sizes)?;
    let (index, axes) = (writer.index(), spec.axes.len());
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("positions{at}"), axis.positions);
        writer.size(format!("size{at}"), axis.size as i64);
        writer.size(format!("window{at}"), axis.taps as i64);
        writer.word("i32", format!("stride{at}"), axis.stride as u32);
    }
    let tiles = across.saturating_mul(sizes.rows).saturating_mul(parts);
    for (name, size) in [("across", across), ("m", sizes.rows), ("k", sizes.terms), ("length", length), ("tiles", tiles)] {
        writer.size(name, size as i64);
    }
    let store = if parts == 1 {
        finish.declare(&mut writer)?;
        finish.store(&mut writer, "sums[column]")?
    } else {
        writer.output("parts", t, KernelArg::Between(0));
        writer.size("total", sizes.total as i64);
        "parts[part * total + e] = sums[column];".to_string()
    };
    writer.line(format!("__shared__ {t} sums[THREADS];"));
    writer.line(format!("const u32 column = threadIdx.x % {COLUMNS}, lane = threadIdx.x / {COLUMNS};"));
    writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
    writer.line(format!(
        "{index} row = tile / across, j = (tile - row * across) * {COLUMNS} + column, part = row / m, tap = row - part * m;"
    ));
    writer.line(format!("{index} first = part * length, last = k - first < length ? k : first + length, left = tap; {t} sum = 0;"));
    for at in (0..axes).rev() {
        writer.line(format!("i32 d{at} = (i32)(left % window{at}) * dilation{at} - pad{at}; left /= window{at};"));
    }
    let channel = writer.quotient("j", "multiplier");
    writer.line(format!("if (j < n) {{ {index} channel = {channel};"));
    writer.line(format!("for ({index} position = first + lane; position < last; position += {LANES}) {{"));
    writer.line(format!("{index} rest = position; {}", digits(&writer, "positions", axes)));
    for at in 0..axes {
        writer.line(format!("i32 p{at} = (i32)o{at} * stride{at} + d{at};"));
    }
    let here: Vec<String> = (0..axes).map(|at| format!("(u32)p{at} < (u32)size{at}")).collect();
    writer.line(format!("if ({}) {{ {}", here.join(" && "), place("size", axes, index)));
    writer.line(product_of(sizes.data_type, &["a[place * channels + channel]", "b[position * n + j]"].map(|x| widen(sizes.data_type, x)))?);
    writer.line("} } }\n  sums[threadIdx.x] = sum;");
    let mut half = LANES / 2;
    while half > 0 {
        writer.line(format!("__syncthreads();\n  if (lane < {half}) sums[threadIdx.x] += sums[threadIdx.x + {}];", half * COLUMNS));
        half /= 2;
    }
    writer.line(format!("if (lane == 0 && j < n) {{ {index} e = tap * n + j; {store} }}"));
    writer.line("__syncthreads();\n  }");
    let mut emitted = Emitted::default();
    emitted.kernels.push(writer.finish("depthwise_by_filter", tiles.clamp(1, 65_535) as u32)?);
    if parts > 1 {
        emitted.between.push(parts * sizes.total * sizes.data_type.compute_type().size().unwrap_or(0) as u64);
        emitted.kernels.push(join(&sizes, t, parts, &finish)?);
    }
    Ok(emitted)
}

/// Sizes of so many rows and columns, without terms.
fn sizes(spec: &ConvSpec, rows: u64, columns: u64) -> Result<Sizes> {
    check_axes(spec)?;
    if spec.out_c != 0 && spec.out_c.checked_rem(spec.in_c) != Some(0) {
        return Err(Error::invalid_argument(format!("a depthwise convolution of {} and {} channels", spec.in_c, spec.out_c)));
    }
    let total = rows * columns;
    let largest = [spec.input(), spec.output(), vec![spec.taps(), spec.out_c]].iter().map(|shape| count(shape)).max().unwrap_or(0);
    Ok(Sizes { data_type: spec.data_type, batch: 1, rows, columns, terms: 0, total, largest })
}

/// A kernel with pointers to the inputs, and sizes of all three.
fn begin(spec: &ConvSpec, sizes: &Sizes) -> Result<Writer> {
    let most = [sizes.largest, sizes.total, sizes.rows, sizes.terms, spec.in_c, spec.out_c].into_iter().max().unwrap_or(0);
    let mut writer = Writer::new(Index::of(most));
    writer.input("a", stored(spec.data_type)?, KernelArg::Argument(0));
    writer.input("b", stored(spec.data_type)?, KernelArg::Argument(1));
    writer.divisor("channels", spec.in_c);
    writer.divisor("n", spec.out_c);
    writer.divisor("multiplier", spec.out_c.checked_div(spec.in_c).unwrap_or(1));
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.word("i32", format!("dilation{at}"), axis.dilation as u32);
        writer.word("i32", format!("pad{at}"), axis.pad as u32);
    }
    Ok(writer)
}

/// Loops over the taps, and the head of a block for those that are there; the end of the loops, behind that of the block.
fn taps(spec: &ConvSpec, writer: &mut Writer, before: impl Fn(usize) -> String, here: impl Fn(usize, u64) -> String) -> String {
    let (index, axes) = (writer.index(), spec.axes.len());
    let (lanes, t) = (Lanes::of(spec), computed(spec.data_type).unwrap_or("f32"));
    writer.line(match lanes.vector {
        1 => format!("{t} sum = 0; {index} tap = 0;"),
        vector => format!("{t} sum[{vector}]; {index} tap = 0; {} sum[s] = 0;", lanes.each_channel()),
    });
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.word("i32", format!("taps{at}"), axis.taps as u32);
        writer.line(format!("for (i32 t{at} = 0; t{at} < taps{at}; ++t{at}) {{ {}", before(at)));
    }
    let all: Vec<String> = spec.axes.iter().enumerate().map(|(at, axis)| here(at, axis.stride)).collect();
    writer.line(format!("if ({}) {{", all.join(" && ")));
    format!("++tap; {}", "} ".repeat(axes))
}

/// The place of the element at `p0`, `p1`, .. of the image `rest`.
fn place(sizes: &str, axes: usize, index: &str) -> String {
    let steps: String = (0..axes).map(|at| format!(" place = place * {sizes}{at} + p{at};")).collect();
    format!("{index} place = rest;{steps}")
}
