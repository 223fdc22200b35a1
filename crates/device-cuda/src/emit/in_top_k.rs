//! Whether a target is among the most probable classes: threads that share a row count the classes that are more probable.

use plimsoll_base::{DataType, Error, Result};

use super::write::{Index, Writer, stored};
use super::{Emitted, KernelArg, MOST_BLOCKS, THREADS};

/// Threads that share a row.
const LANES: u64 = 32;
const ROWS: u64 = THREADS as u64 / LANES;

/// `InTopK`, and `InTopKV2` where `k` is an argument. A row with an element that is not finite has no such classes.
///
/// # Errors
/// UNIMPLEMENTED for other types of targets, and for more classes than a number of 31 bits counts.
pub(super) fn emit(target_type: DataType, batch: u64, classes: u64, k: Option<i64>) -> Result<Emitted> {
    if !matches!(target_type, DataType::Int32 | DataType::Int64) || classes >= 1 << 31 {
        return Err(Error::unimplemented(format!("a kernel for a card: InTopK of {target_type} and {classes} classes")));
    }
    let ctype = stored(target_type)?;
    let mut writer = Writer::new(Index::of(batch * classes));
    let index = writer.index();
    writer.input("p", "f32", KernelArg::Argument(0));
    writer.input("targets", ctype, KernelArg::Argument(1));
    match k {
        Some(k) => writer.long("i64", "k", k as u64),
        None => writer.input("k_at", ctype, KernelArg::Argument(2)),
    }
    writer.output("q", "u8", KernelArg::Argument(if k.is_some() { 2 } else { 3 }));
    writer.size("rows", batch as i64);
    writer.size("classes", classes as i64);
    writer.line("__shared__ u32 tree[THREADS];");
    if k.is_none() {
        writer.line("const i64 k = (i64)*k_at;");
    }
    writer.line(format!("{index} lane = threadIdx.x % {LANES}, tiles = (rows + {}) / {ROWS};", ROWS - 1));
    writer.line(format!("for ({index} tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{"));
    writer.line(format!("{index} row = tile * {ROWS} + threadIdx.x / {LANES}; u32 inside = row < rows, more = 0, bad = 0;"));
    writer.line("i64 target = inside ? (i64)targets[row] : 0; inside = inside && target >= 0 && target < (i64)classes;");
    writer.line(format!("const f32* from = p + (inside ? row * classes : 0); f32 x = inside ? from[({index})target] : 0.0f;"));
    // 16 bytes at once where rows are whole words of them.
    let word = if classes.is_multiple_of(4) { 4 } else { 1 };
    writer.line(format!("if (inside) for ({index} c = lane * {word}; c < classes; c += {}) {{", LANES * word));
    if word == 1 {
        writer.line("f32 y = from[c]; more += y > x; bad |= !(fabsf(y) < INF_F32);");
    } else {
        writer.line("f32x4 v = *(const f32x4*)(from + c);");
        writer.line("_Pragma(\"unroll\") for (u32 j = 0; j < 4; ++j) { f32 y = v.v[j]; more += y > x; bad |= !(fabsf(y) < INF_F32); }");
    }
    // A row has fewer classes than bit 31 says.
    writer.line("}\n  tree[threadIdx.x] = more | bad << 31;");
    let mut half = LANES / 2;
    while half > 0 {
        writer.line("__syncthreads();");
        writer.line(format!("if (lane < {half}) {{ u32 a = tree[threadIdx.x], b = tree[threadIdx.x + {half}];"));
        writer.line("tree[threadIdx.x] = ((a & 0x7FFFFFFFu) + (b & 0x7FFFFFFFu)) | ((a | b) & 0x80000000u);\n  }");
        half /= 2;
    }
    writer.line("if (lane == 0 && row < rows) q[row] = (u8)(inside && tree[threadIdx.x] < 0x80000000u && (i64)tree[threadIdx.x] < k);");
    writer.line("__syncthreads();\n  }");
    let blocks = batch.div_ceil(ROWS).clamp(1, MOST_BLOCKS) as u32;
    Ok(Emitted { kernels: vec![writer.finish("in_top_k", blocks)?], ..Emitted::default() })
}
