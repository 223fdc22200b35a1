//! Batch normalization, channels last: numbers of each channel by parts of the rows, then the channels' coefficients, then the
//! elements. The parts follow from the sizes, and are joined in their order. A thread has channels that lie beside each other, as many as 16 bytes
//! hold, in many rows: what belongs to channels stays in its registers, and elements are read once for the numbers and once for the results.

use plimsoll_base::{Error, Result};
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::norm::BatchNormSpec;

use super::expr::function;
use super::write::{Index, Writer, computed, narrow, stored, widen};
use super::{Emitted, Kernel, KernelArg, MOST_BLOCKS, THREADS, blocks};

/// Channels that a block of the second kernel takes at once; its other threads are lanes that share the parts.
const JOINED: u64 = 8;

/// Parts of rows and channels that keep a card busy: of numbers that are joined, and of results that are written.
const GATHERED: u64 = 512;
const WRITTEN: u64 = MOST_BLOCKS;

/// The most vectors of channels that a block takes at once; its other threads are lanes that share the rows.
const TOGETHER: u64 = 32;

/// Rows that a thread has in registers at once.
const HELD: u64 = 8;

/// A part has more rows, or nearly as many.
const LEAST: u64 = 256;

/// How blocks divide rows and channels.
struct Tiling {
    /// Channels that a thread has.
    vector: u64,
    /// Vectors of channels beside each other in a block.
    together: u64,
    /// Threads that share the rows of a part.
    lanes: u64,
    /// Rows of a part, and how many parts there are.
    share: u64,
    count: u64,
    /// Blocks that have something to do.
    units: u64,
}

impl Tiling {
    fn of(spec: &BatchNormSpec, wanted: u64) -> Tiling {
        let widest = 16 / spec.data_type.size().unwrap_or(16).max(1) as u64;
        let vector = (0..=widest.ilog2()).rev().map(|power| 1 << power).find(|vector| spec.channels.is_multiple_of(*vector)).unwrap_or(1);
        let vectors = spec.channels / vector;
        let together = vectors.next_power_of_two().clamp(1, TOGETHER);
        let tiles = vectors.div_ceil(together).max(1);
        let parts = (wanted / tiles).clamp(1, spec.rows.div_ceil(LEAST).max(1));
        let share = spec.rows.div_ceil(parts).max(1);
        let count = spec.rows.div_ceil(share);
        Tiling { vector, together, lanes: u64::from(THREADS) / together, share, count, units: tiles * count }
    }

    fn sizes(&self, writer: &mut Writer, spec: &BatchNormSpec) {
        for (name, value) in [("rows", spec.rows), ("channels", spec.channels), ("share", self.share), ("count", self.count)] {
            writer.size(name, value as i64);
        }
    }

    /// The head of the loop over parts: rows from `first` to `end`, of which a thread has each one of `lanes`, and channels from `c` on, which are there
    /// where `inside`. The caller closes it.
    fn each_unit(&self, writer: &mut Writer) {
        let (index, Tiling { vector, together, .. }) = (writer.index(), self);
        writer.line(format!(
            "{index} lane = threadIdx.x / {together}, vectors = channels / {vector}, tiles = (vectors + {}) / {together};",
            together - 1
        ));
        writer.line(format!("for ({index} unit = blockIdx.x; unit < tiles * count; unit += gridDim.x) {{"));
        writer.line(format!("{index} c = (unit % tiles * {together} + threadIdx.x % {together}) * {vector}, part = unit / tiles;"));
        writer.line(format!("{index} first = part * share, end = first + share < rows ? first + share : rows; u32 inside = c < channels;"));
    }

    /// The head of a loop over the vector's channels. The caller closes it.
    fn each_channel(&self) -> String {
        format!("_Pragma(\"unroll\") for (u32 k = 0; k < {}; ++k) {{", self.vector)
    }

    /// The type of a vector of stored elements.
    fn word(&self, ctype: &str) -> String {
        if self.vector == 1 { ctype.to_string() } else { format!("{ctype}x{}", self.vector) }
    }

    /// Element `k` of a vector.
    fn element(&self, word: &str) -> String {
        if self.vector == 1 { word.to_string() } else { format!("{word}.v[k]") }
    }

    /// The vector of a tensor at a row.
    fn at(&self, ctype: &str, tensor: &str, row: &str) -> String {
        format!("*(const {}*)({tensor} + (({row}) * channels + c))", self.word(ctype))
    }
}

/// The sums of lanes that are so many threads apart: every lane gets the whole, in `a`.
fn sum_of_lanes(writer: &mut Writer, apart: u64) {
    writer.line("tree[threadIdx.x] = a;");
    writer.line(format!("for (u32 half = THREADS / {}; half > 0; half /= 2) {{", 2 * apart));
    writer.line("__syncthreads();");
    writer.line(format!("if (lane < half) tree[threadIdx.x] += tree[threadIdx.x + half * {apart}];"));
    writer.line("}\n  __syncthreads();");
    writer.line(format!("a = tree[threadIdx.x % {apart}];"));
    writer.line("__syncthreads();");
}

/// The head of a kernel whose blocks join the parts of some channels: the channel `c`, which is there where `inside`.
fn each_channel(writer: &mut Writer) {
    let index = writer.index();
    writer.line("__shared__ f32 tree[THREADS];");
    writer.line(format!("{index} lane = threadIdx.x / {JOINED}, tiles = (channels + {}) / {JOINED};", JOINED - 1));
    writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
    writer.line(format!("{index} c = tile * {JOINED} + threadIdx.x % {JOINED}; u32 inside = c < channels; f32 a = 0.0f;"));
}

/// The sum of a term of each `part`, in `a` of all lanes.
fn sum_of_parts(writer: &mut Writer, term: &str) {
    let index = writer.index();
    writer.line("a = 0.0f;\n#pragma unroll 4");
    writer.line(format!("for ({index} part = lane; part < count; part += THREADS / {JOINED}) if (inside) {{ a += {term}; }}"));
    sum_of_lanes(writer, JOINED);
}

/// The mean `m` of a channel and the sum of the squared differences from it, `squares`, from its sums. A channel whose mean is [`FAR`] from 0 is summed
/// anew, with the others of its block: first the mean, as a difference from its first element.
fn moments_of_sums(writer: &mut Writer, spec: &BatchNormSpec) {
    let (index, far) = (writer.index(), FAR * FAR);
    let x = |row: &str| widen(spec.data_type, format!("p[({row}) * channels + c]"));
    let each_row = |sum: &str| {
        let loop_of = format!("for ({index} r = lane; r < rows; r += THREADS / {JOINED}) if (inside)");
        format!("a = 0.0f;\n#pragma unroll 4\n  {loop_of} {{ a += {sum}; }}")
    };
    writer.line("f32 m = 0.0f, squares = 0.0f; u32 far = 0;");
    // Every thread looks at all channels of its block: they go on together. What is no number is far, too.
    writer.line(format!("for ({index} k = tile * {JOINED}; k < channels && k < (tile + 1) * {JOINED}; ++k) {{"));
    writer.line("f32 mean_of = sums[k] / (f32)rows, left = sums_of_squares[k] / (f32)rows - mean_of * mean_of;");
    writer.line("if (left < 0.0f) left = 0.0f;");
    writer.line(format!("if (!(mean_of * mean_of <= {far:.1}f * left)) far = 1;"));
    writer.line("if (k == c) { m = mean_of; squares = left * (f32)rows; }\n  }");
    writer.line("if (far) {");
    writer.line(format!("f32 begin = inside ? {} : 0.0f;", x("0")));
    writer.line(each_row(&format!("{} - begin", x("r"))));
    sum_of_lanes(writer, JOINED);
    writer.line("m = begin + a / (f32)rows;");
    writer.line(each_row(&format!("({x} - m) * ({x} - m)", x = x("r"))));
    sum_of_lanes(writer, JOINED);
    writer.line("squares = a;\n  }");
}

fn check(spec: &BatchNormSpec) -> Result<()> {
    if computed(spec.data_type)? != "f32" {
        return Err(Error::unimplemented(format!("a kernel for a card: batch normalization of {}", spec.data_type)));
    }
    // Without rows there are statistics to be written all the same: rare, and the host's.
    if spec.rows == 0 || spec.channels == 0 {
        return Err(Error::unimplemented("a kernel for a card: batch normalization of nothing"));
    }
    Ok(())
}

/// An epilogue on elements of the type of y alone, which threads load as they do those of x.
///
/// # Errors
/// UNIMPLEMENTED for others.
fn check_epilogue(spec: &BatchNormSpec, Epilogue { expr, .. }: &Epilogue) -> Result<()> {
    if expr.can_fail() || expr.inputs().iter().chain(&expr.output_types()).any(|data_type| *data_type != spec.data_type) {
        return Err(Error::unimplemented("a kernel for a card: faults or other types behind a batch normalization"));
    }
    Ok(())
}

/// Where the mean and the variance of a normalization come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistics {
    /// They are arguments.
    Given,
    /// They are those of x.
    OfX,
    /// They are those of x, whose sums and sums of squares are arguments behind the variance.
    OfSums,
}

/// How many times its deviation a channel's mean is at most where its variance is the difference of the mean of squares and the square of the mean, of
/// floats: 2^8 of its 24 bits are lost there. Other channels are summed anew, element by element.
const FAR: f32 = 16.0;

/// A normalization. Arguments: x, scale, offset, mean, variance, sums and sums of squares where the statistics are theirs, further operands of
/// the epilogue; y, or what the epilogue makes of it, running mean and variance, the batch's, and perhaps a number.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel, and without elements.
pub(super) fn batch_norm(spec: &BatchNormSpec, statistics: Statistics, reserve_3: bool, epilogue: Option<&Epilogue>) -> Result<Emitted> {
    check(spec)?;
    epilogue.map_or(Ok(()), |epilogue| check_epilogue(spec, epilogue))?;
    let argument = KernelArg::Argument;
    let further = epilogue.map_or(0, |epilogue| epilogue.operands.len() as u32);
    let first = if statistics == Statistics::OfSums { 7 } else { 5 };
    let (result, training) = (first + further, statistics != Statistics::Given);
    let mut emitted = Emitted::default();
    // Behind the numbers of parts, where there are some.
    let coefficients = KernelArg::Between(u32::from(statistics == Statistics::OfX));
    if training {
        let Tiling { share, count, .. } = Tiling::of(spec, GATHERED);
        let mut writer = channels(spec);
        if statistics == Statistics::OfSums {
            writer.input("p", stored(spec.data_type)?, argument(0));
            writer.input("sums", "f32", argument(5));
            writer.input("sums_of_squares", "f32", argument(6));
        } else {
            emitted.between.push(count * 2 * spec.channels * 4);
            emitted.kernels.push(moments(spec)?);
            writer.input("parts", "f32", KernelArg::Between(0));
        }
        emitted.between.push(2 * spec.channels * 4);
        writer.input("scale", "f32", argument(1));
        let reads = spec.exponential_avg_factor != 1.0;
        if reads {
            writer.input("mean", "f32", argument(3));
            writer.input("variance", "f32", argument(4));
        }
        outputs(&mut writer, result + 1, reserve_3);
        writer.output("coefficients", "f32", coefficients);
        if statistics == Statistics::OfX {
            writer.size("share", share as i64);
            writer.size("count", count as i64);
        }
        writer.word("f32", "epsilon", spec.epsilon.to_bits());
        writer.word("f32", "factor", spec.exponential_avg_factor.to_bits());
        each_channel(&mut writer);
        if statistics == Statistics::OfSums {
            moments_of_sums(&mut writer, spec);
        } else {
            let rows = "(f32)(part * share + share < rows ? share : rows - part * share)";
            sum_of_parts(&mut writer, &format!("{rows} * parts[part * 2 * channels + c]"));
            writer.line("f32 m = a / (f32)rows;");
            let apart = "(parts[part * 2 * channels + c] - m)";
            sum_of_parts(&mut writer, &format!("parts[(part * 2 + 1) * channels + c] + {apart} * {apart} * {rows}"));
            writer.line("f32 squares = a;");
        }
        writer.line("if (inside && lane == 0) {");
        writer.line("f32 sample = squares * (1.0f / (f32)(rows > 1 ? rows - 1 : 1));");
        writer.line(match reads {
            true => "running_mean[c] = (1.0f - factor) * mean[c] + factor * m; running_variance[c] = (1.0f - factor) * variance[c] + factor * sample;",
            false => "running_mean[c] = m; running_variance[c] = sample; (void)factor;",
        });
        writer.line("batch_mean[c] = m; batch_variance[c] = squares / (f32)rows;");
        writer.line("coefficients[c] = m; coefficients[channels + c] = scale[c] / sqrtf(squares / (f32)rows + epsilon);");
        writer.line(if reserve_3 { "if (c == 0) reserve[0] = 0.0f;\n  } }" } else { "} }" });
        emitted.kernels.push(writer.finish("statistics", joining(spec))?);
    } else {
        let mut writer = channels(spec);
        writer.input("mean", "f32", argument(3));
        writer.input("variance", "f32", argument(4));
        outputs(&mut writer, result + 1, reserve_3);
        writer.each("c", "channels");
        writer.line("running_mean[c] = mean[c]; running_variance[c] = variance[c]; batch_mean[c] = 0.0f; batch_variance[c] = 0.0f;");
        writer.line(if reserve_3 { "if (c == 0) reserve[0] = 0.0f;\n  }" } else { "}" });
        emitted.kernels.push(writer.finish("statistics", blocks(spec.channels))?);
    }
    let tiling = Tiling::of(spec, WRITTEN);
    let ctype = stored(spec.data_type)?;
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    writer.input("p", ctype, argument(0));
    writer.input("offset", "f32", argument(2));
    if training {
        writer.input("coefficients", "f32", coefficients);
    } else {
        writer.input("scale", "f32", argument(1));
        writer.input("mean", "f32", argument(3));
        writer.input("variance", "f32", argument(4));
        writer.word("f32", "epsilon", spec.epsilon.to_bits());
    }
    writer.output("q", ctype, argument(result));
    let each = match training {
        true => "m[k] = coefficients[c + k]; factor[k] = coefficients[channels + c + k];",
        false => "m[k] = mean[c + k]; factor[k] = scale[c + k] / sqrtf(variance[c + k] + epsilon);",
    };
    let head = (["m", "factor", "plus"].as_slice(), format!("{each} plus[k] = offset[c + k];"));
    let value = format!("f32 y = fmaf({} - m[k], factor[k], plus[k]);", widen(spec.data_type, tiling.element("x")));
    let mut read = vec![("x".to_string(), "p".to_string())];
    let mut made = Made::Rounded;
    if let Some(epilogue) = epilogue {
        writer.before.push_str(&function(&epilogue.expr)?.text);
        for operand in 0..further {
            writer.input(format!("p{operand}"), ctype, argument(first + operand));
            read.push((format!("x{operand}"), format!("p{operand}")));
            emitted.in_place.push(((first + operand) as usize, 0));
        }
        made = Made::Behind;
    }
    write_elements(&mut writer, spec, &tiling, head, &read, &value, made)?;
    emitted.kernels.push(writer.finish("normalize", tiling.units.clamp(1, MOST_BLOCKS) as u32)?);
    Ok(emitted)
}

/// What is written of `y`.
enum Made {
    /// The nearest element.
    Rounded,
    /// What the function `@_element` makes of the nearest element, and of all tensors read but the first.
    Behind,
}

/// The loop over a thread's vectors: what belongs to its channels, each vector read, and `y` of each element, or what is made of it, written
/// to `q`.
fn write_elements(
    writer: &mut Writer,
    spec: &BatchNormSpec,
    tiling: &Tiling,
    (kept, head): (&[&str], String),
    read: &[(String, String)],
    value: &str,
    made: Made,
) -> Result<()> {
    let (index, ctype) = (writer.index(), stored(spec.data_type)?);
    tiling.sizes(writer, spec);
    tiling.each_unit(writer);
    let each_channel = tiling.each_channel();
    let arrays: Vec<String> = kept.iter().map(|name| format!("{name}[{}]", tiling.vector)).collect();
    writer.line(format!("if (inside) {{ f32 {};", arrays.join(", ")));
    writer.line(format!("{each_channel} {head} }}"));
    writer.line(format!("_Pragma(\"unroll 4\") for ({index} r = first + lane; r < end; r += {}) {{", tiling.lanes));
    for (name, tensor) in read {
        writer.line(format!("{} {name} = {};", tiling.word(ctype), tiling.at(ctype, tensor, "r")));
    }
    let (rounded, element) = (narrow(spec.data_type, "y"), tiling.element("made"));
    let written = match made {
        Made::Rounded => format!("{element} = {rounded};"),
        Made::Behind => {
            let further: String = read.iter().skip(1).map(|(name, _)| format!(", {}", tiling.element(name))).collect();
            format!("@_element({rounded}{further}, &{element});")
        }
    };
    writer.line(format!("{} made;", tiling.word(ctype)));
    writer.line(format!("{each_channel} {value} {written} }}"));
    writer.line(format!("*({}*)(q + (r * channels + c)) = made;\n  }} }} }}", tiling.word(ctype)));
    Ok(())
}

/// An element of the gradient, as a float: 0 where `relu` and the normalization's result, rounded as it was stored, is not above 0. Its bits are those
/// of the forward kernel, since factors are computed by the same steps.
fn gradient_of(spec: &BatchNormSpec, tiling: &Tiling, relu: bool) -> String {
    let d = widen(spec.data_type, tiling.element("d"));
    if !relu {
        return d;
    }
    let x = widen(spec.data_type, tiling.element("x"));
    let y = widen(spec.data_type, narrow(spec.data_type, format!("fmaf({x} - m[k], factor[k], plus[k])")));
    format!("({y} > 0.0f ? {d} : 0.0f)")
}

/// The gradient. Arguments: gradient by y, x, scale, mean, variance, with `relu` the offset; gradients by x, scale and offset, and two
/// without elements.
///
/// # Errors
/// As [`batch_norm`]; UNIMPLEMENTED for `relu` with statistics that are not the batch's.
pub(super) fn batch_norm_grad(spec: &BatchNormSpec, training: bool, relu: bool) -> Result<Emitted> {
    check(spec)?;
    if relu && !training {
        return Err(Error::unimplemented("a kernel for a card: the gradient by a maximum with 0 where statistics are given"));
    }
    let argument = KernelArg::Argument;
    let results = if relu { 6 } else { 5 };
    let count = Tiling::of(spec, GATHERED).count;
    let mut emitted = Emitted { between: vec![count * 2 * spec.channels * 4, 3 * spec.channels * 4], ..Emitted::default() };
    emitted.kernels.push(products(spec, relu)?);
    let mut writer = channels(spec);
    writer.input("parts", "f32", KernelArg::Between(0));
    writer.input("scale", "f32", argument(2));
    writer.input("variance", "f32", argument(4));
    writer.output("by_scale", "f32", argument(results + 1));
    writer.output("by_offset", "f32", argument(results + 2));
    writer.output("coefficients", "f32", KernelArg::Between(1));
    writer.size("count", count as i64);
    writer.word("f32", "epsilon", spec.epsilon.to_bits());
    each_channel(&mut writer);
    sum_of_parts(&mut writer, "parts[part * 2 * channels + c]");
    writer.line("f32 sum = a;");
    sum_of_parts(&mut writer, "parts[(part * 2 + 1) * channels + c]");
    writer.line("if (inside && lane == 0) {");
    writer.line("f32 product = a, spread = variance[c] + epsilon;");
    writer.line("by_scale[c] = product / sqrtf(spread); by_offset[c] = sum;");
    writer.line("coefficients[c] = sum / (f32)rows; coefficients[channels + c] = product / ((f32)rows * spread);");
    writer.line("coefficients[2 * channels + c] = scale[c] / sqrtf(spread);\n  } }");
    emitted.kernels.push(writer.finish("norm_sums", joining(spec))?);

    let tiling = Tiling::of(spec, WRITTEN);
    let ctype = stored(spec.data_type)?;
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    writer.input("dy", ctype, argument(0));
    writer.input("coefficients", "f32", KernelArg::Between(1));
    if training {
        writer.input("p", ctype, argument(1));
        writer.input("mean", "f32", argument(3));
    }
    if relu {
        writer.input("offset", "f32", argument(5));
    }
    writer.output("q", ctype, argument(results));
    let by = "factor[k] = coefficients[2 * channels + c + k];";
    let d = gradient_of(spec, &tiling, relu);
    let read = |names: &[(&str, &str)]| names.iter().map(|(name, tensor)| (name.to_string(), tensor.to_string())).collect::<Vec<_>>();
    if training {
        let plus = if relu { " plus[k] = offset[c + k];" } else { "" };
        let kept: &[&str] = if relu { &["less", "slope", "m", "factor", "plus"] } else { &["less", "slope", "m", "factor"] };
        let head = format!("less[k] = coefficients[c + k]; slope[k] = coefficients[channels + c + k]; m[k] = mean[c + k]; {by}{plus}");
        let x = widen(spec.data_type, tiling.element("x"));
        let value = format!("f32 y = ({d} - less[k] - ({x} - m[k]) * slope[k]) * factor[k];");
        write_elements(&mut writer, spec, &tiling, (kept, head), &read(&[("d", "dy"), ("x", "p")]), &value, Made::Rounded)?;
    } else {
        let value = format!("f32 y = {d} * factor[k];");
        write_elements(&mut writer, spec, &tiling, (&["factor"], by.to_string()), &read(&[("d", "dy")]), &value, Made::Rounded)?;
    }
    emitted.kernels.push(writer.finish("norm_grad", tiling.units.clamp(1, MOST_BLOCKS) as u32)?);
    Ok(emitted)
}

/// A kernel that gathers numbers of parts from arguments: names, types, and which they are.
fn gathering(spec: &BatchNormSpec, inputs: &[(&str, &str, u32)]) -> (Tiling, Writer) {
    let tiling = Tiling::of(spec, GATHERED);
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    inputs.iter().for_each(|(name, ctype, at)| writer.input(name, ctype, KernelArg::Argument(*at)));
    writer.output("q", "f32", KernelArg::Between(0));
    tiling.sizes(&mut writer, spec);
    (tiling, writer)
}

/// Two numbers of each part and channel, in the first buffer between: the mean of x, and the sum of the squared differences from it. A thread finds
/// both of a few rows that it holds, and joins them with those before (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
/// computing sample variances", 1979).
fn moments(spec: &BatchNormSpec) -> Result<Kernel> {
    let ctype = stored(spec.data_type)?;
    let (tiling, mut writer) = gathering(spec, &[("p", ctype, 0)]);
    let Tiling { vector, together, lanes, .. } = tiling;
    let (index, each_channel, word) = (writer.index(), tiling.each_channel(), tiling.word(ctype));
    writer.line("__shared__ f32 means[THREADS], sums[THREADS], counts[THREADS];");
    tiling.each_unit(&mut writer);
    writer.line(format!("f32 n = 0.0f, mean[{vector}], squares[{vector}];"));
    writer.line(format!("{each_channel} mean[k] = squares[k] = 0.0f; }}"));
    writer.line(format!("for ({index} r = first + lane; r < end; r += {}) if (inside) {{", HELD * lanes));
    writer.line(format!(
        "{index} left = (end - r + {}) / {lanes}; u32 held = left < {HELD} ? (u32)left : {HELD}; {word} x[{HELD}];",
        lanes - 1
    ));
    let each_row = format!("_Pragma(\"unroll\") for (u32 j = 0; j < {HELD}; ++j)");
    writer.line(format!("{each_row} if (j < held) x[j] = {};", tiling.at(ctype, "p", &format!("r + j * {lanes}"))));
    writer.line("f32 more = (f32)held, all = n + more, part_of_all = more / all, both = n * part_of_all;");
    let value = widen(spec.data_type, tiling.element("x[j]"));
    writer.line(format!("{each_channel} f32 m = 0.0f, s = 0.0f;"));
    writer.line(format!("{each_row} if (j < held) m += {value};\n  m /= more;"));
    writer.line(format!("{each_row} if (j < held) {{ f32 apart = {value} - m; s += apart * apart; }}"));
    writer.line("f32 apart = m - mean[k]; mean[k] += apart * part_of_all; squares[k] += s + apart * apart * both; }");
    writer.line("n = all;\n  }");
    // Lanes are joined in pairs, channel by channel.
    writer.line(&each_channel);
    writer.line("counts[threadIdx.x] = n; means[threadIdx.x] = mean[k]; sums[threadIdx.x] = squares[k];");
    writer.line(format!("for (u32 half = {}; half > 0; half /= 2) {{\n  __syncthreads();", lanes / 2));
    writer.line(format!("u32 one = threadIdx.x, other = one + half * {together};"));
    writer.line("if (lane < half && counts[other] > 0.0f) {");
    writer.line("f32 all = counts[one] + counts[other], part_of_all = counts[other] / all, apart = means[other] - means[one];");
    writer.line("sums[one] += sums[other] + apart * apart * (counts[one] * part_of_all);");
    writer.line("means[one] += apart * part_of_all; counts[one] = all;\n  } }");
    writer.line("if (inside && lane == 0) {");
    writer.line("q[part * 2 * channels + c + k] = means[threadIdx.x]; q[(part * 2 + 1) * channels + c + k] = sums[threadIdx.x];\n  }");
    writer.line("__syncthreads();\n  } }");
    writer.finish("norm_parts", tiling.units.clamp(1, MOST_BLOCKS) as u32)
}

/// Two numbers of each part and channel, in the first buffer between: the sum of dy, and that of dy times the difference of x from the mean. With
/// `relu` only elements count whose y is above 0.
fn products(spec: &BatchNormSpec, relu: bool) -> Result<Kernel> {
    let ctype = stored(spec.data_type)?;
    let inputs = [("dy", ctype, 0), ("p", ctype, 1), ("mean", "f32", 3), ("scale", "f32", 2), ("variance", "f32", 4), ("offset", "f32", 5)];
    let (tiling, mut writer) = gathering(spec, &inputs[..if relu { 6 } else { 3 }]);
    if relu {
        writer.word("f32", "epsilon", spec.epsilon.to_bits());
    }
    let Tiling { vector, together, lanes, .. } = tiling;
    let (index, each_channel, word) = (writer.index(), tiling.each_channel(), tiling.word(ctype));
    writer.line("__shared__ f32 tree[THREADS];");
    tiling.each_unit(&mut writer);
    writer.line(format!("f32 m[{vector}], sum[{vector}], product[{vector}];"));
    writer.line(format!("{each_channel} m[k] = inside ? mean[c + k] : 0.0f; sum[k] = product[k] = 0.0f; }}"));
    if relu {
        writer.line(format!("f32 factor[{vector}], plus[{vector}];"));
        let factor = "factor[k] = inside ? scale[c + k] / sqrtf(variance[c + k] + epsilon) : 0.0f;";
        writer.line(format!("{each_channel} {factor} plus[k] = inside ? offset[c + k] : 0.0f; }}"));
    }
    writer.line(format!("_Pragma(\"unroll 4\") for ({index} r = first + lane; r < end; r += {lanes}) if (inside) {{"));
    writer.line(format!("{word} d = {}, x = {};", tiling.at(ctype, "dy", "r"), tiling.at(ctype, "p", "r")));
    let (d, x) = (gradient_of(spec, &tiling, relu), widen(spec.data_type, tiling.element("x")));
    writer.line(format!("{each_channel} f32 value = {d}; sum[k] += value; product[k] += value * ({x} - m[k]); }}\n  }}"));
    writer.line(format!("{each_channel} f32 a = sum[k];"));
    sum_of_lanes(&mut writer, together);
    writer.line("if (inside && lane == 0) q[part * 2 * channels + c + k] = a;\n  a = product[k];");
    sum_of_lanes(&mut writer, together);
    writer.line("if (inside && lane == 0) q[(part * 2 + 1) * channels + c + k] = a;\n  } }");
    writer.finish("norm_products", tiling.units.clamp(1, MOST_BLOCKS) as u32)
}

/// The blocks of a kernel that joins parts.
fn joining(spec: &BatchNormSpec) -> u32 {
    spec.channels.div_ceil(JOINED).clamp(1, MOST_BLOCKS) as u32
}

/// A kernel that is about channels.
fn channels(spec: &BatchNormSpec) -> Writer {
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    writer.size("rows", spec.rows as i64);
    writer.size("channels", spec.channels as i64);
    writer
}

/// Results from argument `first` on: four numbers of each channel, and perhaps one.
fn outputs(writer: &mut Writer, first: u32, reserve_3: bool) {
    for (at, name) in (first..).zip(["running_mean", "running_variance", "batch_mean", "batch_variance"]) {
        writer.output(name, "f32", KernelArg::Argument(at));
    }
    if reserve_3 {
        writer.output("reserve", "f32", KernelArg::Argument(first + 4));
    }
}
