//! Elements moved: each thread writes elements of the result from where a view says. Runs are moved as words of up to 16 bytes.

use plimsoll_base::{Error, Result};
use plimsoll_request::movement::{Movement, Pick};

use super::view::dense;
use super::write::{Index, Writer, word};
use super::{Emitted, Kernel, KernelArg, blocks, count};

/// The input's index along a dimension of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Map {
    /// Index times stride.
    Step,
    /// Index less `before` where that is one of `from`; else the fill value.
    Inside { before: u64, from: u64 },
    /// `(index - begin) / step` where that is a whole number below `from`; else the fill value.
    Spread { begin: u64, step: i64, from: u64 },
    /// As the pick says, of `from`.
    Pick { pick: Pick, from: u64 },
}

/// A dimension of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    size: u64,
    stride: i64,
    map: Map,
}

/// The source of each element of a dense result.
struct Source {
    axes: Vec<Axis>,
    /// The element at index 0 of all.
    begin: i64,
}

impl Source {
    fn of(axes: impl IntoIterator<Item = Axis>) -> Source {
        Source { axes: axes.into_iter().collect(), begin: 0 }
    }

    /// Without dimensions of size 1, and with neighbours joined.
    fn joined(mut self) -> Source {
        let mut axes: Vec<Axis> = Vec::new();
        for axis in self.axes.drain(..) {
            if axis.size == 1 && axis.map == Map::Step {
                continue;
            }
            match axes.last_mut() {
                Some(last) if (last.map, axis.map) == (Map::Step, Map::Step) && last.stride == axis.stride * axis.size as i64 => {
                    *last = Axis { size: last.size * axis.size, ..axis };
                }
                _ => axes.push(axis),
            }
        }
        Source { axes, ..self }
    }

    /// Whether elements that lie beside each other are always moved in pairs.
    fn is_in_pairs(&self) -> bool {
        let Some((last, others)) = self.axes.split_last() else { return false };
        let inner = last.map == Map::Step && last.stride == 1 && last.size.is_multiple_of(2);
        inner && self.begin % 2 == 0 && others.iter().all(|axis| axis.stride % 2 == 0)
    }

    /// The same in elements of two.
    fn paired(&mut self) {
        let inner = self.axes.len() - 1;
        for (at, axis) in self.axes.iter_mut().enumerate() {
            if at == inner { axis.size /= 2 } else { axis.stride /= 2 }
        }
        self.begin /= 2;
    }
}

/// The fill value.
enum Fill<'a> {
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// The second argument.
    Argument,
}

/// Elements of so many bytes, moved.
///
/// # Errors
/// UNIMPLEMENTED for movements without a kernel.
pub(super) fn emit(element: usize, movement: &Movement) -> Result<Emitted> {
    let element = element as u64;
    // Before anything is as long as an element.
    word(element)?;
    if matches!(movement, Movement::Pad { value: Some(value), .. } if value.len() as u64 != element) {
        return Err(Error::invalid_argument("a value of another size than the elements"));
    }
    let steps = |sizes: &[u64], strides: &[i64]| {
        Source::of(sizes.iter().zip(strides).map(|(size, stride)| Axis { size: *size, stride: *stride, map: Map::Step }))
    };
    let signed = |shape: &[u64]| dense(shape).into_iter().map(|stride| stride as i64).collect::<Vec<i64>>();
    let one = |source: Source, fill: Fill<'_>| view(element, source, fill, KernelArg::Argument(1)).map(single);
    match movement {
        Movement::BroadcastTo { from, to } => {
            let joined = super::view::broadcast(to, std::slice::from_ref(from))?;
            one(steps(&joined.sizes, &joined.strides[0].iter().map(|stride| *stride as i64).collect::<Vec<_>>()), Fill::None)
        }
        Movement::Fill { elements } => one(steps(&[*elements], &[0]), Fill::None),
        Movement::Reverse { shape, axes } => {
            let mut source = steps(shape, &signed(shape));
            for (at, axis) in source.axes.iter_mut().enumerate().filter(|(at, axis)| axes.contains(at) && axis.size > 0) {
                source.begin += (shape[at] as i64 - 1) * axis.stride;
                axis.stride = -axis.stride;
            }
            one(source, Fill::None)
        }
        Movement::Slice { shape, begin, sizes } => one(block(shape, begin, sizes, None)?, Fill::None),
        Movement::StridedSlice { shape, begin, strides, sizes } => one(block(shape, begin, sizes, Some(strides))?, Fill::None),
        Movement::Tile { shape, multiples } => {
            if multiples.len() != shape.len() {
                return Err(Error::invalid_argument("multiples of another rank"));
            }
            let strides = signed(shape);
            let axes = shape.iter().zip(multiples).zip(&strides).flat_map(|((size, multiple), stride)| {
                [(*multiple, 0), (*size, *stride)].map(|(size, stride)| Axis { size, stride, map: Map::Step })
            });
            one(Source::of(axes), Fill::None)
        }
        Movement::Transpose { shape, perm } => {
            let strides = signed(shape);
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if sorted != (0..shape.len()).collect::<Vec<_>>() {
                return Err(Error::invalid_argument("a transposition that is no permutation"));
            }
            let axes = perm.iter().map(|axis| Axis { size: shape[*axis], stride: strides[*axis], map: Map::Step });
            one(Source::of(axes), Fill::None)
        }
        Movement::Pad { shape, paddings, value } => {
            let fill = value.as_deref().map_or(Fill::Argument, Fill::Bytes);
            let output = KernelArg::Argument(1 + u32::from(value.is_none()));
            let axes = shape.iter().zip(paddings).zip(signed(shape)).map(|((from, (before, after)), stride)| {
                let map = if (*before, *after) == (0, 0) { Map::Step } else { Map::Inside { before: *before, from: *from } };
                Axis { size: before + from + after, stride, map }
            });
            view(element, Source::of(axes), fill, output).map(single)
        }
        Movement::StridedSliceGrad { shape, begin, strides, sizes } => {
            // The block that the slice would take is there.
            block(shape, begin, sizes, Some(strides))?;
            if strides.contains(&0) {
                return Err(Error::invalid_argument("a slice with a stride of 0"));
            }
            let empty = sizes.contains(&0);
            let zero = vec![0; element as usize];
            let axes = (0..shape.len()).zip(signed(sizes)).map(|(at, stride)| {
                let whole = sizes[at] == shape[at] && begin[at] == 0 && strides[at] == 1;
                // A stride that takes no second step, or a block without elements, may be of any size.
                let step = if sizes[at] > 1 && !empty { strides[at] } else { 1 };
                let (begin, from) = if empty { (0, 0) } else { (begin[at], sizes[at]) };
                let map = if whole { Map::Step } else { Map::Spread { begin, step, from } };
                Axis { size: shape[at], stride, map }
            });
            one(Source::of(axes), Fill::Bytes(&zero))
        }
        Movement::Pick { shape, picks } => {
            let mut axes = Vec::new();
            for ((from, pick), stride) in shape.iter().zip(picks).zip(signed(shape)) {
                let size = pick.size(*from).ok_or_else(|| Error::invalid_argument("elements that are not there"))?;
                let map = if *pick == Pick::All { Map::Step } else { Map::Pick { pick: *pick, from: *from } };
                axes.push(Axis { size, stride, map });
            }
            one(Source::of(axes), Fill::None)
        }
        Movement::Concat { shapes, axis } => {
            let [first, ..] = &shapes[..] else { return Err(Error::invalid_argument("a concatenation of nothing")) };
            let fits = |shape: &Vec<u64>| shape.len() == first.len() && (0..first.len()).all(|at| at == *axis || shape[at] == first[at]);
            if *axis >= first.len() || !shapes.iter().all(fits) {
                return Err(Error::invalid_argument("a concatenation of shapes that do not fit"));
            }
            let rows = count(&first[..*axis]);
            let runs: Vec<u64> = shapes.iter().map(|shape| count(&shape[*axis..])).collect();
            concat(element, rows, &runs)
        }
        Movement::Pack { shape, count: inputs, axis } => {
            if *axis > shape.len() {
                return Err(Error::invalid_argument("an axis that is not there"));
            }
            concat(element, count(&shape[..*axis]), &vec![count(&shape[*axis..]); *inputs])
        }
        Movement::Split { shape, axis, sizes } => {
            if sizes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size)) != Some(shape[*axis]) {
                return Err(Error::invalid_argument("parts that are not the whole"));
            }
            let inner = count(&shape[axis + 1..]);
            split(element, count(&shape[..*axis]), &sizes.iter().map(|size| size * inner).collect::<Vec<_>>())
        }
        Movement::Unpack { shape, axis } => split(element, count(&shape[..*axis]), &vec![count(&shape[axis + 1..]); shape[*axis] as usize]),
        Movement::Diagonals(_) => Err(Error::unimplemented("a kernel for a card: Diagonals")),
    }
}

/// A dimension of a tensor that another one is packed into: its size, and how many elements of it are there, so far apart. Those behind them are zeros.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// Its size.
    pub size: u64,
    /// How many of its elements are there.
    pub there: u64,
    /// How far apart these are.
    pub apart: u64,
}

/// The kernel of a dense tensor whose elements are argument 0's, or zeros. It writes argument 1.
///
/// # Errors
/// UNIMPLEMENTED for elements of other sizes than kernels move.
pub fn packed(element: u64, axes: &[Packed]) -> Result<Kernel> {
    let axis = |axis: &Packed| {
        let map = if axis.size > axis.there { Map::Inside { before: 0, from: axis.there } } else { Map::Step };
        Axis { size: axis.size, stride: axis.apart as i64, map }
    };
    let is_padded = axes.iter().any(|axis| axis.size > axis.there);
    let zeros = vec![0u8; element as usize];
    word(element)?;
    view(element, Source::of(axes.iter().map(axis)), if is_padded { Fill::Bytes(&zeros) } else { Fill::None }, KernelArg::Argument(1))
}

fn single(kernel: Kernel) -> Emitted {
    Emitted { kernels: vec![kernel], ..Emitted::default() }
}

/// A block of a tensor.
fn block(shape: &[u64], begin: &[u64], sizes: &[u64], steps: Option<&[i64]>) -> Result<Source> {
    if begin.len() != shape.len() || sizes.len() != shape.len() || steps.is_some_and(|steps| steps.len() != shape.len()) {
        return Err(Error::invalid_argument("a slice of another rank"));
    }
    if sizes.contains(&0) {
        return Ok(Source::of([Axis { size: 0, stride: 0, map: Map::Step }]));
    }
    let strides = dense(shape);
    let mut source = Source::of([]);
    for at in 0..shape.len() {
        let stride = strides[at] as i64;
        let step = steps.map_or(1, |steps| steps[at]);
        let last = begin[at] as i128 + i128::from(step) * (sizes[at] as i128 - 1);
        if begin[at] >= shape[at] || !(0..shape[at] as i128).contains(&last) {
            return Err(Error::invalid_argument("a slice of elements that are not there"));
        }
        source.begin += begin[at] as i64 * stride;
        source.axes.push(Axis { size: sizes[at], stride: if sizes[at] > 1 { step * stride } else { stride }, map: Map::Step });
    }
    Ok(source)
}

/// The kernel of a view of argument 0.
fn view(element: u64, source: Source, fill: Fill<'_>, output: KernelArg) -> Result<Kernel> {
    let mut source = source.joined();
    let mut bytes = element;
    let pattern = match fill {
        Fill::Bytes(value) => value.to_vec(),
        _ => Vec::new(),
    };
    while bytes < 16 && source.is_in_pairs() && !matches!(fill, Fill::Argument) {
        source.paired();
        bytes *= 2;
    }
    let elements: u64 = source.axes.iter().map(|axis| axis.size).product();
    let ctype = word(bytes)?;
    // Indices of the input count, too: a small block may lie far behind.
    let reach = source.axes.iter().fold(source.begin.unsigned_abs(), |reach, axis| {
        let from = match axis.map {
            Map::Step => axis.size,
            Map::Inside { from, .. } | Map::Spread { from, .. } | Map::Pick { from, .. } => from.max(axis.size),
        };
        reach.saturating_add(axis.stride.unsigned_abs().saturating_mul(from))
    });
    let mut writer = Writer::new(Index::of(elements.max(reach)));
    let index = writer.index();
    writer.input("p", ctype, KernelArg::Argument(0));
    if matches!(fill, Fill::Argument) {
        writer.input("value", ctype, KernelArg::Argument(1));
    }
    writer.output("q", ctype, output);
    writer.size("n", elements as i64);
    let begins = source.begin != 0;
    if begins {
        writer.size("begin", source.begin);
    }
    writer.each("i", "n");
    let rank = source.axes.len();
    writer.line(format!("{index} rest = i, at = {}; u32 inside = 1;", if begins { "begin" } else { "0" }));
    for (at, axis) in source.axes.iter().enumerate().rev() {
        if at == 0 {
            writer.line(format!("{{ {index} c = rest;"));
        } else {
            writer.size(format!("d{at}"), axis.size as i64);
            writer.line(format!("{{ {index} c = rest % d{at}; rest /= d{at};"));
        }
        mapped(&mut writer, at, axis)?;
        let is_unit = at + 1 == rank && axis.stride == 1;
        if is_unit {
            writer.line("at += c; }");
        } else if axis.stride == 0 {
            writer.line("}");
        } else {
            writer.size(format!("s{at}"), axis.stride);
            writer.line(format!("at += c * s{at}; }}"));
        }
    }
    match fill {
        Fill::None => writer.line("q[i] = p[at]; (void)inside; (void)rest;"),
        Fill::Argument => writer.line("q[i] = inside ? p[at] : *value; (void)rest;"),
        Fill::Bytes(_) => {
            let repeated: Vec<u8> = pattern.iter().copied().cycle().take(bytes as usize).collect();
            let part = |from: usize, to: usize| repeated[from..to].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            if bytes == 16 {
                writer.long("u64", "low", part(0, 8));
                writer.long("u64", "high", part(8, 16));
                writer.line("{ w16 word; word.a = low; word.b = high; if (inside) word = p[at]; q[i] = word; (void)rest; }");
            } else {
                writer.long("u64", "low", part(0, bytes as usize));
                writer.line(format!("q[i] = inside ? p[at] : ({ctype})low; (void)rest;"));
            }
        }
    }
    writer.line("}");
    writer.finish("move", blocks(elements))
}

/// Replaces the index `c` of the result by that of the input; `inside` becomes 0 where there is none.
fn mapped(writer: &mut Writer, at: usize, axis: &Axis) -> Result<()> {
    let index = writer.index();
    match axis.map {
        Map::Step => {}
        Map::Inside { before, from } => {
            writer.size(format!("b{at}"), before as i64);
            writer.size(format!("f{at}"), from as i64);
            writer.line(format!("c -= b{at}; inside &= c < f{at};"));
        }
        Map::Spread { begin, step, from } => {
            // Of a negative step the block is turned round.
            writer.size(format!("b{at}"), begin as i64);
            writer.size(format!("t{at}"), step.unsigned_abs() as i64);
            writer.size(format!("f{at}"), from as i64);
            writer.line(if step > 0 { format!("{index} far = c - b{at};") } else { format!("{index} far = b{at} - c;") });
            let ahead = if step > 0 { format!("c >= b{at}") } else { format!("c <= b{at}") };
            writer.line(format!("inside &= {ahead} && far % t{at} == 0 && far / t{at} < f{at}; c = far / t{at};"));
        }
        Map::Pick { pick: Pick::All, .. } => {}
        Map::Pick { pick: Pick::Mirror { before, edge, .. }, from } => {
            let skipped = u32::from(!edge);
            writer.size(format!("b{at}"), before as i64);
            writer.size(format!("f{at}"), from as i64);
            writer.line(format!(
                "c = c < b{at} ? b{at} - 1 - c + {skipped} : c - b{at} < f{at} ? c - b{at} : 2 * f{at} - 1 - (c - b{at}) - {skipped};"
            ));
        }
        Map::Pick { pick: Pick::Nearest { size, align_corners, half_pixel_centers }, from } => {
            writer.word("f32", format!("k{at}"), plimsoll_request::resample::scale(from, size, align_corners).to_bits());
            writer.size(format!("f{at}"), from as i64);
            let place = if half_pixel_centers { format!("((f32)c + 0.5f) * k{at}") } else { format!("(f32)c * k{at}") };
            let round = if align_corners { "roundf" } else { "floorf" };
            writer.line(format!("c = ({index}){round}({place}); c = c < f{at} ? c : f{at} - 1;"));
        }
        Map::Pick { pick: Pick::Windows { taps, stride, rate, .. }, .. } => {
            writer.size(format!("w{at}"), taps as i64);
            writer.size(format!("t{at}"), stride as i64);
            writer.size(format!("r{at}"), rate as i64);
            writer.line(format!("c = c / w{at} * t{at} + c % w{at} * r{at};"));
        }
    }
    Ok(())
}

/// The bytes of a word that divides all runs.
fn word_of(element: u64, runs: &[u64]) -> u64 {
    let mut bytes = element;
    let mut scale = 1;
    while bytes < 16 && runs.iter().all(|run| run.is_multiple_of(scale * 2)) {
        bytes *= 2;
        scale *= 2;
    }
    bytes
}

/// Rows that are runs of one input behind those of the one before.
fn concat(element: u64, rows: u64, runs: &[u64]) -> Result<Emitted> {
    let bytes = word_of(element, runs);
    let runs: Vec<u64> = runs.iter().map(|run| run * element / bytes).collect();
    let row: u64 = runs.iter().sum();
    let ctype = word(bytes)?;
    let mut writer = Writer::new(Index::of(rows * row));
    let index = writer.index();
    for input in 0..runs.len() {
        writer.input(format!("p{input}"), ctype, KernelArg::Argument(input as u32));
    }
    writer.output("q", ctype, KernelArg::Argument(runs.len() as u32));
    writer.size("n", (rows * row) as i64);
    writer.size("width", row as i64);
    writer.each("i", "n");
    writer.line(format!("{index} r = i / width, c = i % width;"));
    for (input, run) in runs.iter().enumerate() {
        writer.size(format!("w{input}"), *run as i64);
        writer.line(format!("if (c < w{input}) {{ q[i] = p{input}[r * w{input} + c]; continue; }}"));
        writer.line(format!("c -= w{input};"));
    }
    writer.line("}");
    Ok(single(writer.finish("concat", blocks(rows * row))?))
}

/// The parts of rows, a kernel for each.
fn split(element: u64, rows: u64, runs: &[u64]) -> Result<Emitted> {
    let row: u64 = runs.iter().sum();
    let mut emitted = Emitted::default();
    let mut begin = 0;
    for (part, run) in runs.iter().enumerate() {
        let mut source = Source::of([(rows, row as i64), (*run, 1)].map(|(size, stride)| Axis { size, stride, map: Map::Step }));
        source.begin = begin;
        begin += *run as i64;
        if rows * run > 0 {
            emitted.kernels.push(view(element, source, Fill::None, KernelArg::Argument(1 + part as u32))?);
        }
    }
    Ok(emitted)
}
