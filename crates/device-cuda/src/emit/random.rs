//! Random numbers: a thread for each block of the generator, which is the processor's. Integers and uniform numbers have its bits.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::random::{Distribution, Random};

use super::write::{Index, Writer, narrow, stored};
use super::{Emitted, KernelArg, blocks};

/// The generator, and numbers of its blocks of four words.
const GENERATOR: &str = r"DEVICE void @_block(u64 low, u64 high, u64 key, u32* x) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32); int round;
  x[0] = (u32)low; x[1] = (u32)(low >> 32); x[2] = (u32)high; x[3] = (u32)(high >> 32);
  for (round = 0; round < 10; ++round) {
    u64 a = (u64)x[0] * 0xD2511F53u, b = (u64)x[2] * 0xCD9E8D57u;
    x[0] = (u32)(b >> 32) ^ x[1] ^ k0; x[1] = (u32)b; x[2] = (u32)(a >> 32) ^ x[3] ^ k1; x[3] = (u32)a;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
}
DEVICE f32 @_unit(u32 bits) { return __uint_as_float(0x3F800000u | (bits & 0x007FFFFFu)) - 1.0f; }
DEVICE f64 @_unit2(u32 high, u32 low) {
  return __longlong_as_double((i64)(0x3FF0000000000000ull | (u64)(high & 0x000FFFFFu) << 32 | low)) - 1.0;
}
/* Sine and cosine from 0 to a whole turn: the C library's would have memory for angles of any size. Polynomials of FreeBSD's msun. */
DEVICE void @_sine_cosine(f64 x, f64* s, f64* c) {
  i32 quarter = (i32)(x * 0.6366197723675814 + 0.5);
  f64 r = fma(-(f64)quarter, 6.123233995736766e-17, fma(-(f64)quarter, 1.5707963267948966, x)), z = r * r, p = 1.58969099521155010221e-10, sine, cosine;
  p = fma(p, z, -2.50507602534068634195e-08); p = fma(p, z, 2.75573137070700676789e-06); p = fma(p, z, -1.98412698298579493134e-04);
  p = fma(p, z, 8.33333333332248946124e-03); p = fma(p, z, -1.66666666666666324348e-01); sine = fma(p * z, r, r);
  p = -1.13596475577881948265e-11;
  p = fma(p, z, 2.08757232129817482790e-09); p = fma(p, z, -2.75573143513906633035e-07); p = fma(p, z, 2.48015872894767294178e-05);
  p = fma(p, z, -1.38888888888741095749e-03); p = fma(p, z, 4.16666666666666019037e-02); cosine = fma(p * z, z, fma(-0.5, z, 1.0));
  *s = quarter & 1 ? cosine : sine; *c = quarter & 1 ? sine : cosine;
  *s = quarter & 2 ? -*s : *s; *c = (quarter + 1) & 2 ? -*c : *c;
}
DEVICE void @_pair(u32 first, u32 second, f32* z) {
  f64 s, c;
  f32 u = @_unit(first), radius, angle;
  u = u > 1.0e-7f ? u : 1.0e-7f;
  radius = sqrtf(-2.0f * log_f32(u));
  angle = (f32)(6.283185307179586 * (f64)@_unit(second));
  @_sine_cosine((f64)angle, &s, &c);
  z[0] = (f32)s * radius; z[1] = (f32)c * radius;
}
";

/// Random numbers.
///
/// # Errors
/// UNIMPLEMENTED for distributions and types without a kernel.
pub(super) fn emit(random: &Random) -> Result<Emitted> {
    let fill = match *random {
        // A state is memory of the process. The numbers that it was advanced for are drawn here.
        Random::Stateful { .. } | Random::Reserve { .. } => {
            return Err(Error::unimplemented("a kernel for a card: the state of a generator"));
        }
        Random::Reserved { distribution, data_type, elements, seed, seed2 } => {
            Fill { distribution, data_type, elements, seeds: Some((seed, seed2)) }
        }
        Random::Stateless { distribution, data_type, elements } => Fill { distribution, data_type, elements, seeds: None },
        Random::KeyCounter { seed_type } => return key_counter(seed_type),
        Random::Categorical(_) | Random::Candidates(_) => {
            return Err(Error::unimplemented("a kernel for a card: these random numbers"));
        }
    };
    fill.emit()
}

/// The key and counter of a seed, whose words the generator mixes: one thread.
fn key_counter(seed_type: DataType) -> Result<Emitted> {
    if !matches!(seed_type, DataType::Int32 | DataType::Int64 | DataType::Uint32 | DataType::Uint64) {
        return Err(Error::unimplemented(format!("a kernel for a card: a seed of {seed_type}")));
    }
    let mut writer = Writer::new(Index::U32);
    writer.before.push_str(GENERATOR);
    writer.input("seed", stored(seed_type)?, KernelArg::Argument(0));
    writer.output("key", "u64", KernelArg::Argument(1));
    writer.output("counter", "u64", KernelArg::Argument(2));
    writer.line("if (threadIdx.x == 0) {\n  u32 x[4];");
    // A seed with a sign keeps it.
    writer.line("@_block((u64)(i64)seed[0], (u64)(i64)seed[1], 0x02461E293EC8F720ull, x);");
    writer.line("key[0] = (u64)x[1] << 32 | x[0]; counter[0] = 0; counter[1] = (u64)x[3] << 32 | x[2];\n  }");
    Ok(Emitted { kernels: vec![writer.finish("key_counter", 1)?], ..Emitted::default() })
}

/// An output that is filled with numbers.
struct Fill {
    distribution: Distribution,
    data_type: DataType,
    elements: u64,
    /// Those of an operation whose state is the argument before the output; none where key and counter are the first arguments.
    seeds: Option<(i64, i64)>,
}

impl Fill {
    fn emit(&self) -> Result<Emitted> {
        let Fill { distribution, data_type, elements, seeds } = *self;
        let per_block = if matches!(data_type, DataType::Double | DataType::Int64) { 2 } else { 4 };
        let ctype = stored(data_type)?;
        let mut writer = Writer::new(Index::of(elements));
        let index = writer.index();
        writer.before.push_str(GENERATOR);
        let is_bounded = distribution == Distribution::UniformInt;
        // Key and counter come before the bounds, a state behind them.
        let first = if seeds.is_some() { 0 } else { 2 };
        let behind = first + if is_bounded { 2 } else { 0 };
        if is_bounded {
            writer.input("least", ctype, KernelArg::Argument(first));
            writer.input("most", ctype, KernelArg::Argument(first + 1));
        }
        if let Some((seed, seed2)) = seeds {
            writer.input("state", "u64", KernelArg::Argument(behind));
            writer.long("u64", "key", seed as u64);
            writer.long("u64", "seed2", seed2 as u64);
            writer.output("q", ctype, KernelArg::Argument(behind + 1));
        } else {
            writer.input("key_at", "u64", KernelArg::Argument(0));
            writer.input("counter", "u64", KernelArg::Argument(1));
            writer.output("q", ctype, KernelArg::Argument(behind));
        }
        writer.size("n", elements as i64);
        if is_bounded {
            writer.fault();
            writer.line("if (*least >= *most) { fail(fault, base, 0, 1); return; }");
        }
        writer.line(match seeds {
            Some(_) => "const u64 first = *state, second = seed2;",
            None => "const u64 first = counter[0], second = counter[1], key = *key_at;",
        });
        writer.each("g", &format!("(n + {}) / {per_block}", per_block - 1));
        writer.line(format!("u32 x[4]; u64 low = first + g; {ctype}x{per_block} y;"));
        writer.line("@_block(low, second + (low < first), key, x);");
        let lines: Vec<String> = match (distribution, data_type) {
            (Distribution::Uniform, DataType::Float) => (0..4).map(|at| format!("y.v[{at}] = @_unit(x[{at}]);")).collect(),
            (Distribution::Uniform, DataType::Double) => {
                (0..2).map(|at| format!("y.v[{at}] = @_unit2(x[{}], x[{}]);", 2 * at, 2 * at + 1)).collect()
            }
            (Distribution::Uniform, DataType::Half | DataType::Bfloat16) => {
                let (one, mantissa, name) =
                    if data_type == DataType::Half { ("0x3C00u", "0x03FFu", "f16") } else { ("0x3F80u", "0x007Fu", "bf16") };
                let number = |at: usize| narrow(data_type, format!("from_{name}((u16)({one} | (x[{at}] & {mantissa}))) - 1.0f"));
                (0..4).map(|at| format!("y.v[{at}] = {};", number(at))).collect()
            }
            (Distribution::Normal, DataType::Float) => vec!["@_pair(x[0], x[1], y.v); @_pair(x[2], x[3], y.v + 2);".to_string()],
            (Distribution::UniformInt, DataType::Int32) => {
                (0..4).map(|at| format!("y.v[{at}] = add_i32(*least, (i32)(x[{at}] % ((u32)*most - (u32)*least)));")).collect()
            }
            (Distribution::UniformInt, DataType::Int64) => {
                let word = |at: usize| format!("((u64)x[{}] << 32 | x[{}])", 2 * at + 1, 2 * at);
                (0..2).map(|at| format!("y.v[{at}] = add_i64(*least, (i64)({} % ((u64)*most - (u64)*least)));", word(at))).collect()
            }
            _ => return Err(Error::unimplemented(format!("a kernel for a card: {distribution:?} of {data_type}"))),
        };
        lines.iter().for_each(|line| writer.line(line));
        writer.line(format!("if (g * {per_block} + {per_block} <= n) *({ctype}x{per_block}*)(q + g * {per_block}) = y; else"));
        writer
            .line(format!("for ({index} at = 0; at < {per_block}; ++at) if (g * {per_block} + at < n) q[g * {per_block} + at] = y.v[at];"));
        writer.line("}");
        let faults = if is_bounded {
            let values = [super::FaultNumber::Value(first, data_type), super::FaultNumber::Value(first + 1, data_type)];
            vec![super::FaultText::of("Need minval < maxval, got {0} >= {1}", values[0], values[1])]
        } else {
            Vec::new()
        };
        Ok(Emitted { kernels: vec![writer.finish("random", blocks(elements.div_ceil(per_block)))?], faults, ..Emitted::default() })
    }
}
