//! Products of all types: floats of two and four bytes by the blocked kernel, others by plain loops.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::{Tuning, blocked};
use crate::element::{Element, of_type};
use crate::expr::elements;
use crate::simd::Isa;
use plimsoll_request::product::ProductSpec;

/// The product of matrices of a float type, int32 or int64 (which wrap around). Arguments: A, B, C. Floats of two bytes are summed as
/// floats, and each sum is rounded once.
///
/// # Errors
/// UNIMPLEMENTED where there is none for the type; INVALID_ARGUMENT for sizes that no memory holds.
pub fn product_generic(isa: Isa, data_type: DataType, spec: &ProductSpec) -> Result<Prepared> {
    let prepared =
        of_type!(data_type, [Float, Half, Bfloat16], E => Some(blocked::prepare::<E>(isa, *spec, None, Tuning::default())), _ => None);
    prepared.unwrap_or_else(|| {
        let refused = || Err(Error::unimplemented(format!("products of {data_type}")));
        of_type!(data_type, [Double, Int32, Int64], E => prepare::<E>(spec), _ => refused())
    })
}

trait Number: Element {
    const ZERO: Self;
    fn add_product(self, a: Self, b: Self) -> Self;
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    #[inline(always)]
    fn add_product(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
}

impl Number for i32 {
    const ZERO: i32 = 0;
    #[inline(always)]
    fn add_product(self, a: i32, b: i32) -> i32 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

impl Number for i64 {
    const ZERO: i64 = 0;
    #[inline(always)]
    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

fn prepare<T: Number>(spec: &ProductSpec) -> Result<Prepared> {
    let a = elements(&[spec.batch, spec.m, spec.k])?;
    let b = elements(&[spec.batch, spec.k, spec.n])?;
    let c = elements(&[spec.batch, spec.m, spec.n])?;
    // Rows of C; so many that a piece has half a million operations or so.
    let all = if c == 0 { 0 } else { c / spec.n as usize };
    let work = (spec.n as usize).saturating_mul(spec.k as usize).max(1);
    let rows = ((1 << 18) / work).clamp(1, all.max(1));
    let chunks = u32::try_from(all.div_ceil(rows).max(1)).map_err(|_| Error::invalid_argument("a product with too many pieces"))?;
    let cost = Cost { flops: 2.0 * c as f64 * spec.k as f64, bytes: (size_of::<T>() * (a + b + c)) as f64 };
    Ok(Prepared {
        chunks,
        scratch: 0,
        per_worker: 0,
        cost,
        in_place: Vec::new(),
        kernel: Arc::new(Generic::<T> { spec: *spec, all, rows, of: PhantomData }),
    })
}

#[derive(Debug)]
struct Generic<T> {
    spec: ProductSpec,
    /// Rows of all C together.
    all: usize,
    /// Rows of a piece.
    rows: usize,
    of: PhantomData<T>,
}

impl<T: Number> CpuKernel for Generic<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (m, n, k, batch) = (self.spec.m as usize, self.spec.n as usize, self.spec.k as usize, self.spec.batch as usize);
        let rows = (chunks.start as usize * self.rows).min(self.all)..(chunks.end as usize * self.rows).min(self.all);
        if rows.is_empty() {
            return Ok(());
        }
        // SAFETY: the arguments have the shapes that the kernel was prepared for; these rows are written by this call only.
        let (a, b, c) = unsafe {
            (args.input::<T>(0, batch * m * k), args.input::<T>(1, batch * k * n), args.output::<T>(2, rows.start * n..rows.end * n))
        };
        for (row, out) in rows.zip(c.chunks_exact_mut(n)) {
            let (matrix, i) = (row / m, row % m);
            let (a, b) = (&a[matrix * m * k..(matrix + 1) * m * k], &b[matrix * k * n..(matrix + 1) * k * n]);
            let left = |p: usize| if self.spec.transpose_a { a[p * m + i] } else { a[i * k + p] };
            if self.spec.transpose_b {
                for (j, out) in out.iter_mut().enumerate() {
                    *out = b[j * k..(j + 1) * k].iter().enumerate().fold(T::ZERO, |sum, (p, y)| sum.add_product(left(p), *y));
                }
            } else {
                out.fill(T::ZERO);
                for p in 0..k {
                    let x = left(p);
                    for (out, y) in out.iter_mut().zip(&b[p * n..(p + 1) * n]) {
                        *out = out.add_product(x, *y);
                    }
                }
            }
        }
        Ok(())
    }
}
