//! Convolutions and their gradients as products by tiles. A matrix of patches is never written: its elements are found in the input
//! while tiles are loaded, and those of padding are 0.

use plimsoll_base::{Error, Result};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::product;
use super::tile::{Side, Sizes, Tiled};
use super::write::{Writer, is_float, stored};
use super::{Emitted, KernelArg, count};

/// The convolution, with an expression for each element: a row for each position, a column for each channel, a term for each tap and
/// channel of the input.
///
/// # Errors
/// UNIMPLEMENTED for types, layouts, groups and sizes without a kernel.
pub(super) fn forward(spec: &ConvSpec, epilogue: Option<&Epilogue>) -> Result<Emitted> {
    check(spec)?;
    let shape = spec.output();
    let epilogue = epilogue.map(|epilogue| (epilogue, &shape[..]));
    let rows = count(&shape[..shape.len() - 1]);
    if is_pointwise(spec) {
        return product::emit_on(spec.data_type, &dense(rows, spec.out_c, spec.in_c), epilogue, [0, 1]);
    }
    let [in_group, out_group] = groups(spec);
    let Some(mut tiled) = begin(spec, [rows, out_group, spec.taps() * in_group], [0, 1])? else { return Ok(Emitted::default()) };
    let (index, position, tap) = (tiled.writer.index(), position(spec, &mut tiled.writer), tap(spec, &mut tiled.writer));
    let patches = Side {
        along_terms: true,
        line: position.on("line"),
        term: tap.text("term"),
        inside: Some(inside(spec)),
        value: "a[base + far]".to_string(),
    };
    let filter = rows_of_columns(spec, &mut tiled.writer);
    tiled.finish("conv", &from(spec, index, "in_group"), &patches, &filter, &element("out_c"), epilogue)
}

/// The gradient by the filter: a row for each tap and channel of the input, a column for each channel of the result, a term for each
/// position.
///
/// # Errors
/// As [`forward`].
pub(super) fn by_filter(spec: &ConvSpec) -> Result<Emitted> {
    check(spec)?;
    let output = spec.output();
    let positions = count(&output[..output.len() - 1]);
    if is_pointwise(spec) {
        let product = ProductSpec { transpose_a: true, ..dense(spec.in_c, spec.out_c, positions) };
        return product::emit_on(spec.data_type, &product, None, [0, 1]);
    }
    let [in_group, out_group] = groups(spec);
    let Some(mut tiled) = begin(spec, [spec.taps() * in_group, out_group, positions], [0, 1])? else { return Ok(Emitted::default()) };
    let (index, position, tap) = (tiled.writer.index(), position(spec, &mut tiled.writer), tap(spec, &mut tiled.writer));
    let patches = Side {
        along_terms: false,
        line: tap.on("line"),
        term: position.text("term"),
        inside: Some(inside(spec)),
        value: "a[base + far]".to_string(),
    };
    let gradient = rows_of_columns(spec, &mut tiled.writer);
    tiled.finish("conv_by_filter", &from(spec, index, "in_group"), &patches, &gradient, &element("out_c"), None)
}

/// The gradient by the input, with an expression for each element: a row for each element of an image, a column for each channel of
/// the input, a term for each tap and channel of the result.
///
/// # Errors
/// As [`forward`].
pub(super) fn by_input(spec: &ConvSpec, epilogue: Option<&Epilogue>) -> Result<Emitted> {
    check(spec)?;
    let shape = spec.input();
    let epilogue = epilogue.map(|epilogue| (epilogue, &shape[..]));
    let rows = count(&shape[..shape.len() - 1]);
    if is_pointwise(spec) {
        let product = ProductSpec { transpose_b: true, ..dense(rows, spec.in_c, spec.out_c) };
        return product::emit_on(spec.data_type, &product, epilogue, [1, 0]);
    }
    let [in_group, out_group] = groups(spec);
    let Some(mut tiled) = begin(spec, [rows, in_group, spec.taps() * out_group], [1, 0])? else { return Ok(Emitted::default()) };
    let writer = &mut tiled.writer;
    let index = writer.index();
    let axes = spec.axes.len();
    writer.divisor("out_group", out_group);
    writer.size("out_c", spec.out_c as i64);
    writer.size("in_c", spec.in_c as i64);
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("size{at}"), axis.size);
        writer.divisor(format!("taps{at}"), axis.taps);
        writer.size(format!("positions{at}"), axis.positions as i64);
        writer.word("i32", format!("dilation{at}"), axis.dilation as u32);
        writer.word("i32", format!("pad{at}"), axis.pad as u32);
        if axis.stride != 1 {
            writer.divisor(format!("stride{at}"), axis.stride);
        }
    }
    // Where the positions begin that see an element by the first tap; a further tap is so much before.
    let image = Coordinates {
        index,
        text: format!(
            "{} {}",
            digits(writer, "size", axes),
            (0..axes).map(|at| format!("i32 y{at} = (i32)o{at} + pad{at};")).collect::<String>()
        ),
        names: (0..axes).map(|at| ("i32", ["y0", "y1", "y2"][at])).chain([(index, "rest")]).collect(),
    };
    let mut term = format!("{index} tap = {}, oc = term - tap * out_group, place = rest;", writer.quotient("term", "out_group"));
    (0..axes).for_each(|at| term.push_str(&format!(" i32 e{at};")));
    term.push_str(&format!(" {{ {index} rest = tap; {}", digits(writer, "taps", axes)));
    (0..axes).for_each(|at| term.push_str(&format!(" e{at} = y{at} - (i32)o{at} * dilation{at};")));
    term.push_str(" }");
    let mut here = Vec::new();
    for (at, axis) in spec.axes.iter().enumerate() {
        let quotient = match axis.stride {
            1 => format!("e{at}"),
            _ => writer.quotient(&format!("(u32)e{at}"), &format!("stride{at}")),
        };
        term.push_str(&format!(" u32 q{at} = (u32)({quotient}); place = place * positions{at} + q{at};"));
        here.push(match axis.stride {
            1 => format!("q{at} < (u32)positions{at}"),
            _ => format!("e{at} >= 0 && q{at} < (u32)positions{at} && q{at} * (u32)stride{at} == (u32)e{at}"),
        });
    }
    let gradient = Side {
        along_terms: true,
        line: image.on("line"),
        term,
        inside: Some(here.join(" && ")),
        value: "a[place * out_c + from + oc]".to_string(),
    };
    let filter = Side {
        along_terms: true,
        line: (String::new(), vec![(index, "base", "line * out_c + from".to_string())]),
        term: format!("{index} tap = {}, oc = term - tap * out_group;", writer.quotient("term", "out_group")),
        inside: None,
        value: "b[base + tap * n * out_c + oc]".to_string(),
    };
    tiled.finish("conv_by_input", &from(spec, index, "out_group"), &gradient, &filter, &element("in_c"), epilogue)
}

/// Sizes whose coordinates fit 32 bits.
fn check(spec: &ConvSpec) -> Result<()> {
    if spec.groups == 0 || !spec.in_c.is_multiple_of(spec.groups) || !spec.out_c.is_multiple_of(spec.groups) {
        let channels = [spec.in_c, spec.out_c];
        return Err(Error::invalid_argument(format!("a convolution of {channels:?} channels in {} groups", spec.groups)));
    }
    check_axes(spec)
}

/// As [`check`], whatever the groups.
pub(super) fn check_axes(spec: &ConvSpec) -> Result<()> {
    let refused = |what: &str| Err(Error::unimplemented(format!("a kernel for a card: a convolution {what}")));
    if !is_float(spec.data_type) {
        return refused(&format!("of {}", spec.data_type));
    }
    if spec.layout != Layout::ChannelsLast {
        return refused("with channels first");
    }
    if spec.axes.iter().any(|axis| axis.taps == 0 || axis.stride == 0 || axis.dilation == 0) {
        return Err(Error::invalid_argument("a convolution without taps, stride or dilation"));
    }
    let reach = |axis: &WindowAxis| {
        // Lines and terms beyond the last have coordinates, too.
        let ends = [axis.positions.checked_mul(axis.stride), axis.taps.checked_add(512).and_then(|taps| taps.checked_mul(axis.dilation))];
        ends.into_iter()
            .chain([axis.size, axis.positions, axis.pad, axis.stride].map(Some))
            .max_by_key(|end| end.unwrap_or(u64::MAX))
            .flatten()
    };
    if spec.axes.iter().any(|axis| reach(axis).is_none_or(|reach| reach >= 1 << 29)) {
        return refused("that reaches further than 2^29");
    }
    Ok(())
}

/// Whether each position sees one element, in order.
fn is_pointwise(spec: &ConvSpec) -> bool {
    spec.groups == 1 && spec.axes.iter().all(|axis| (axis.taps, axis.stride, axis.pad, axis.size) == (1, 1, 0, axis.positions))
}

fn dense(m: u64, n: u64, k: u64) -> ProductSpec {
    ProductSpec { m, n, k, transpose_a: false, transpose_b: false, batch: 1, places: None }
}

/// Channels of the input and of the result in each group, which is a product of its own.
fn groups(spec: &ConvSpec) -> [u64; 2] {
    [spec.in_c / spec.groups, spec.out_c / spec.groups]
}

/// Statements that declare the first channels of a group: in A `from`, in B and C `first_column`.
fn from(spec: &ConvSpec, index: &str, channels: &str) -> String {
    if spec.groups == 1 {
        return format!("const {index} from = 0, first_column = 0;");
    }
    format!("{index} from = matrix * {channels}, first_column = matrix * n;")
}

/// The place of an element of C, whose rows are so long.
fn element(channels: &str) -> String {
    format!("i * {channels} + first_column + j")
}

/// The products of so many rows, columns and terms, one for each group, of the arguments with these numbers; none without elements.
fn begin(spec: &ConvSpec, [rows, columns, terms]: [u64; 3], arguments: [u32; 2]) -> Result<Option<Tiled>> {
    let largest = [spec.input(), spec.filter(), spec.output()].iter().map(|shape| count(shape)).max().unwrap_or(0);
    let total = rows * columns * spec.groups;
    let mut tiled = Tiled::new(Sizes { data_type: spec.data_type, batch: spec.groups, rows, columns, terms, total, largest })?;
    for (name, argument) in ["a", "b"].into_iter().zip(arguments) {
        tiled.writer.input(name, stored(spec.data_type)?, KernelArg::Argument(argument));
    }
    Ok((total > 0).then_some(tiled))
}

/// Statements on a number that declare coordinates, and the coordinates by type and name.
struct Coordinates {
    index: &'static str,
    text: String,
    names: Vec<(&'static str, &'static str)>,
}

impl Coordinates {
    /// Those of this variable.
    fn text(&self, of: &str) -> String {
        format!("{} rest = {of}; {}", self.index, self.text)
    }

    /// Those of a line.
    fn on(&self, of: &str) -> (String, Vec<(&'static str, &'static str, String)>) {
        (self.text(of), self.names.iter().map(|(ctype, name)| (*ctype, *name, name.to_string())).collect())
    }
}

/// Takes the digits `o0`, `o1`, .. of `rest` by sizes, and leaves what is left in `rest`.
pub(super) fn digits(writer: &Writer, sizes: &str, axes: usize) -> String {
    let index = writer.index();
    let digit = |at: usize| {
        let quotient = writer.quotient("rest", &format!("{sizes}{at}"));
        format!("{index} r{at} = {quotient}, o{at} = rest - r{at} * {sizes}{at}; rest = r{at};")
    };
    (0..axes).rev().map(digit).collect::<Vec<_>>().join(" ")
}

/// Of a position: where its window begins, `y0`, `y1`, .., and the element there, `base`, which may be before the image.
fn position(spec: &ConvSpec, writer: &mut Writer) -> Coordinates {
    let (index, axes) = (writer.index(), spec.axes.len());
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("positions{at}"), axis.positions);
        writer.size(format!("size{at}"), axis.size as i64);
        writer.word("i32", format!("stride{at}"), axis.stride as u32);
        writer.word("i32", format!("pad{at}"), axis.pad as u32);
    }
    let mut text = digits(writer, "positions", axes);
    for at in 0..axes {
        text.push_str(&format!(" i32 y{at} = (i32)o{at} * stride{at} - pad{at}; rest = rest * size{at} + ({index})y{at};"));
    }
    text.push_str(&format!(" {index} base = rest * in_c + from;"));
    Coordinates { index, text, names: (0..axes).map(|at| ("i32", ["y0", "y1", "y2"][at])).chain([(index, "base")]).collect() }
}

/// Of a tap and a channel: how far they are from where the window begins, along axes `d0`, `d1`, .., and in elements, `far`.
fn tap(spec: &ConvSpec, writer: &mut Writer) -> Coordinates {
    let (index, axes) = (writer.index(), spec.axes.len());
    writer.divisor("in_group", spec.in_c / spec.groups);
    writer.size("in_c", spec.in_c as i64);
    for (at, axis) in spec.axes.iter().enumerate() {
        writer.divisor(format!("taps{at}"), axis.taps);
        writer.word("i32", format!("dilation{at}"), axis.dilation as u32);
    }
    let mut text = format!("{index} tap = {}, channel = rest - tap * in_group; rest = tap; ", writer.quotient("rest", "in_group"));
    text.push_str(&digits(writer, "taps", axes));
    text.push_str(&format!(" {index} far = 0;"));
    for at in 0..axes {
        text.push_str(&format!(" i32 d{at} = (i32)o{at} * dilation{at}; far = far * size{at} + ({index})d{at};"));
    }
    text.push_str(" far = far * in_c + channel;");
    Coordinates { index, text, names: (0..axes).map(|at| ("i32", ["d0", "d1", "d2"][at])).chain([(index, "far")]).collect() }
}

/// Whether the window of a position has its tap in the image.
fn inside(spec: &ConvSpec) -> String {
    (0..spec.axes.len()).map(|at| format!("(u32)(y{at} + d{at}) < (u32)size{at}")).collect::<Vec<_>>().join(" && ")
}

/// A matrix B that lies with a row for each term.
fn rows_of_columns(spec: &ConvSpec, writer: &mut Writer) -> Side {
    writer.size("out_c", spec.out_c as i64);
    let line = (String::new(), vec![(writer.index(), "base", "first_column + line".to_string())]);
    Side { along_terms: false, line, term: String::new(), inside: None, value: "b[base + term * out_c]".to_string() }
}
