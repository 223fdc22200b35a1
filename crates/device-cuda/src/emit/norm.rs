//! Batch normalization, channels last: numbers of each channel by parts of the rows, then the channels' coefficients, then the
//! elements. The parts follow from the sizes, and are joined in their order.

use plimsoll_base::{Error, Result};
use plimsoll_request::norm::BatchNormSpec;

use super::write::{Index, Writer, computed, narrow, stored, widen};
use super::{Emitted, Kernel, KernelArg, MOST_BLOCKS, blocks};

/// Channels that a block of the second kernel takes at once; its other threads are lanes that share the parts.
const JOINED: u64 = 8;

/// Parts that keep a card busy.
const PARTS: u64 = 512;

/// Channels that a block of the first kernel takes at once; its other threads are lanes that share the rows.
fn together(channels: u64) -> u64 {
    channels.next_power_of_two().clamp(8, 32)
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

/// The rows of a part, and how many parts there are.
fn parts(spec: &BatchNormSpec) -> (u64, u64) {
    let wanted = (PARTS / spec.channels.div_ceil(together(spec.channels)).max(1)).clamp(1, spec.rows.div_ceil(64).max(1));
    let share = spec.rows.div_ceil(wanted).max(1);
    (share, spec.rows.div_ceil(share))
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

/// A normalization. Arguments: x, scale, offset, mean, variance; y, running mean and variance, the batch's, and perhaps a number.
///
/// # Errors
/// UNIMPLEMENTED for types without a kernel, and without elements.
pub(super) fn batch_norm(spec: &BatchNormSpec, training: bool, reserve_3: bool) -> Result<Emitted> {
    check(spec)?;
    let argument = KernelArg::Argument;
    let mut emitted = Emitted::default();
    if training {
        let (share, count) = parts(spec);
        emitted.between = vec![count * 2 * spec.channels * 4, 2 * spec.channels * 4];
        emitted.kernels.push(gather(spec, &[argument(0)])?);
        let mut writer = channels(spec);
        writer.input("parts", "f32", KernelArg::Between(0));
        writer.input("scale", "f32", argument(1));
        let reads = spec.exponential_avg_factor != 1.0;
        if reads {
            writer.input("mean", "f32", argument(3));
            writer.input("variance", "f32", argument(4));
        }
        outputs(&mut writer, reserve_3);
        writer.output("coefficients", "f32", KernelArg::Between(1));
        writer.size("share", share as i64);
        writer.size("count", count as i64);
        writer.word("f32", "epsilon", spec.epsilon.to_bits());
        writer.word("f32", "factor", spec.exponential_avg_factor.to_bits());
        each_channel(&mut writer);
        let rows = "(f32)(part * share + share < rows ? share : rows - part * share)";
        sum_of_parts(&mut writer, &format!("{rows} * parts[part * 2 * channels + c]"));
        writer.line("f32 m = a / (f32)rows;");
        let apart = "(parts[part * 2 * channels + c] - m)";
        sum_of_parts(&mut writer, &format!("parts[(part * 2 + 1) * channels + c] + {apart} * {apart} * {rows}"));
        writer.line("f32 squares = a;");
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
        outputs(&mut writer, reserve_3);
        writer.each("c", "channels");
        writer.line("running_mean[c] = mean[c]; running_variance[c] = variance[c]; batch_mean[c] = 0.0f; batch_variance[c] = 0.0f;");
        writer.line(if reserve_3 { "if (c == 0) reserve[0] = 0.0f;\n  }" } else { "}" });
        emitted.kernels.push(writer.finish("statistics", blocks(spec.channels))?);
    }
    let mut writer = elements(spec);
    writer.input("p", stored(spec.data_type)?, argument(0));
    writer.input("offset", "f32", argument(2));
    if training {
        writer.input("coefficients", "f32", KernelArg::Between(1));
    } else {
        writer.input("scale", "f32", argument(1));
        writer.input("mean", "f32", argument(3));
        writer.input("variance", "f32", argument(4));
        writer.word("f32", "epsilon", spec.epsilon.to_bits());
    }
    writer.output("q", stored(spec.data_type)?, argument(5));
    writer.each("i", "n");
    writer.line(format!("{} c = i % channels;", writer.index()));
    writer.line(match training {
        true => "f32 m = coefficients[c], factor = coefficients[channels + c];",
        false => "f32 m = mean[c], factor = scale[c] / sqrtf(variance[c] + epsilon);",
    });
    writer.line(format!("f32 y = fmaf({} - m, factor, offset[c]);", widen(spec.data_type, "p[i]")));
    writer.line(format!("q[i] = {};\n  }}", narrow(spec.data_type, "y")));
    emitted.kernels.push(writer.finish("normalize", blocks(spec.rows * spec.channels))?);
    Ok(emitted)
}

/// The gradient. Arguments: gradient by y, x, scale, mean, variance; gradients by x, scale and offset, and two without elements.
///
/// # Errors
/// As [`batch_norm`].
pub(super) fn batch_norm_grad(spec: &BatchNormSpec, training: bool) -> Result<Emitted> {
    check(spec)?;
    let argument = KernelArg::Argument;
    let count = parts(spec).1;
    let mut emitted = Emitted { between: vec![count * 2 * spec.channels * 4, 3 * spec.channels * 4], ..Emitted::default() };
    emitted.kernels.push(gather(spec, &[argument(0), argument(1), argument(3)])?);
    let mut writer = channels(spec);
    writer.input("parts", "f32", KernelArg::Between(0));
    writer.input("scale", "f32", argument(2));
    writer.input("variance", "f32", argument(4));
    writer.output("by_scale", "f32", argument(6));
    writer.output("by_offset", "f32", argument(7));
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

    let mut writer = elements(spec);
    writer.input("dy", stored(spec.data_type)?, argument(0));
    writer.input("coefficients", "f32", KernelArg::Between(1));
    if training {
        writer.input("p", stored(spec.data_type)?, argument(1));
        writer.input("mean", "f32", argument(3));
    }
    writer.output("q", stored(spec.data_type)?, argument(5));
    writer.each("i", "n");
    writer.line(format!("{} c = i % channels; f32 d = {};", writer.index(), widen(spec.data_type, "dy[i]")));
    if training {
        writer.line(format!("d = d - coefficients[c] - ({} - mean[c]) * coefficients[channels + c];", widen(spec.data_type, "p[i]")));
    }
    writer.line("f32 y = d * coefficients[2 * channels + c];");
    writer.line(format!("q[i] = {};\n  }}", narrow(spec.data_type, "y")));
    emitted.kernels.push(writer.finish("norm_grad", blocks(spec.rows * spec.channels))?);
    Ok(emitted)
}

/// Two numbers of each part and channel, in the first buffer between. Of x: the mean, and the sum of the squared differences from it. Of
/// dy, x and a mean: the sum of dy, and that of dy times the difference of x from the mean.
fn gather(spec: &BatchNormSpec, from: &[KernelArg]) -> Result<Kernel> {
    let (share, count) = parts(spec);
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    let index = writer.index();
    let ctype = stored(spec.data_type)?;
    let is_gradient = from.len() > 1;
    writer.input("p", ctype, from[0]);
    if is_gradient {
        writer.input("x", ctype, from[1]);
        writer.input("mean", "f32", from[2]);
    }
    writer.output("q", "f32", KernelArg::Between(0));
    for (name, value) in [("rows", spec.rows), ("channels", spec.channels), ("share", share), ("count", count)] {
        writer.size(name, value as i64);
    }
    writer.line("__shared__ f32 tree[THREADS];");
    let together = together(spec.channels);
    writer.line(format!("{index} lane = threadIdx.x / {together}, tiles = (channels + {}) / {together};", together - 1));
    writer.line(format!("for ({index} unit = blockIdx.x; unit < tiles * count; unit += gridDim.x) {{"));
    writer.line(format!("{index} c = unit % tiles * {together} + threadIdx.x % {together}, part = unit / tiles, first = part * share;"));
    writer.line(format!(
        "{index} end = first + share < rows ? first + share : rows; u32 inside = c < channels; f32 a = 0.0f, sum, m = 0.0f;"
    ));
    let each = |writer: &mut Writer, statement: &str| {
        writer.line("a = 0.0f;\n#pragma unroll 4");
        writer.line(format!("for ({index} r = first + lane; r < end; r += THREADS / {together}) if (inside) {{"));
        writer.line(format!("f32 value = {}; {statement}\n  }}", widen(spec.data_type, "p[r * channels + c]")));
        sum_of_lanes(writer, together);
    };
    each(&mut writer, "a += value;");
    if is_gradient {
        writer.line("sum = a; if (inside) m = mean[c];");
        each(&mut writer, &format!("a += value * ({} - m);", widen(spec.data_type, "x[r * channels + c]")));
    } else {
        writer.line("sum = m = a / (f32)(end - first);");
        each(&mut writer, "a += (value - m) * (value - m);");
    }
    writer.line("if (inside && lane == 0) { q[part * 2 * channels + c] = sum; q[(part * 2 + 1) * channels + c] = a; }\n  }");
    let units = spec.channels.div_ceil(together) * count;
    writer.finish("norm_parts", units.clamp(1, MOST_BLOCKS) as u32)
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

/// A kernel with a thread for each element.
fn elements(spec: &BatchNormSpec) -> Writer {
    let mut writer = Writer::new(Index::of(spec.rows * spec.channels));
    writer.size("n", (spec.rows * spec.channels) as i64);
    writer.size("channels", spec.channels as i64);
    writer
}

fn outputs(writer: &mut Writer, reserve_3: bool) {
    for (at, name) in ["running_mean", "running_variance", "batch_mean", "batch_variance"].into_iter().enumerate() {
        writer.output(name, "f32", KernelArg::Argument(6 + at as u32));
    }
    if reserve_3 {
        writer.output("reserve", "f32", KernelArg::Argument(10));
    }
}
