//! Products of all types: floats of two and four bytes by the blocked kernel, others by plain loops.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

use super::matrices::Matrices;
use super::{Tuning, blocked};
use crate::element::{Element, of_type};
use crate::expr::elements;
use crate::packing::Order;
use crate::simd::Isa;
use plimsoll_request::product::ProductSpec;

/// The product of matrices of a float type, int32 or int64 (which wrap around). Arguments: A, B, C. Floats of two bytes are summed as
/// floats, and each sum is rounded once.
///
/// # Errors
/// UNIMPLEMENTED where there is none for the type; INVALID_ARGUMENT for sizes that no memory holds.
pub fn product_generic(isa: Isa, data_type: DataType, spec: &ProductSpec) -> Result<Prepared> {
    let prepared = of_type!(data_type, [Float, Half, Bfloat16], E => Some(blocked::prepare::<E>(isa, *spec, None, Tuning::default(), Order::Rows)), _ => None);
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
    elements(&[spec.batch, spec.m, spec.k])?;
    elements(&[spec.batch, spec.k, spec.n])?;
    let c = elements(&[spec.batch, spec.m, spec.n])?;
    let extents = spec.extents()?;
    // Rows of C; so many that a piece has half a million operations or so.
    let all = if c == 0 { 0 } else { c / spec.n as usize };
    let work = (spec.n as usize).saturating_mul(spec.k as usize).max(1);
    let rows = ((1 << 18) / work).clamp(1, all.max(1));
    let chunks = u32::try_from(all.div_ceil(rows).max(1)).map_err(|_| Error::invalid_argument("a product with too many pieces"))?;
    let moved = extents.iter().map(|elements| *elements as f64).sum::<f64>();
    let cost = Cost { flops: 2.0 * c as f64 * spec.k as f64, bytes: size_of::<T>() as f64 * moved };
    let places = spec.places();
    let generic = Generic::<T> {
        spec: *spec,
        row: [places.a.row, places.b.row, places.c.row].map(|row| row as usize),
        extents: extents.map(|elements| elements as usize),
        matrices: Matrices::new(&places),
        all,
        rows,
        of: PhantomData,
    };
    Ok(Prepared { chunks, scratch: 0, per_worker: 0, cost, in_place: Vec::new(), kernel: Arc::new(generic) })
}

#[derive(Debug)]
struct Generic<T> {
    spec: ProductSpec,
    /// From row to row of A, B and C, as they lie.
    row: [usize; 3],
    /// Elements of A, B and C.
    extents: [usize; 3],
    matrices: Matrices,
    /// Rows of all C together.
    all: usize,
    /// Rows of a piece.
    rows: usize,
    of: PhantomData<T>,
}

impl<T: Number> CpuKernel for Generic<T> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let (m, n, k) = (self.spec.m as usize, self.spec.n as usize, self.spec.k as usize);
        let [a_row, b_row, c_row] = self.row;
        let rows = (chunks.start as usize * self.rows).min(self.all)..(chunks.end as usize * self.rows).min(self.all);
        // SAFETY: the arguments have the shapes that the kernel was prepared for.
        let (a, b) = unsafe { (args.input::<T>(0, self.extents[0]), args.input::<T>(1, self.extents[1])) };
        for row in rows {
            let (matrix, i) = (row / m, row % m);
            let [a_at, b_at, c_at] = self.matrices.of(matrix);
            let (a, b) = (a.get(a_at..).unwrap_or_default(), b.get(b_at..).unwrap_or_default());
            let start = c_at + i * c_row;
            // SAFETY: each row of C is written by one call only; together they are the result.
            let c = unsafe { args.output::<T>(2, start..start + n) };
            let left = |p: usize| if self.spec.transpose_a { a[p * a_row + i] } else { a[i * a_row + p] };
            if self.spec.transpose_b {
                for (j, out) in c.iter_mut().enumerate() {
                    let terms = b.get(j * b_row..j * b_row + k).unwrap_or_default();
                    *out = terms.iter().enumerate().fold(T::ZERO, |sum, (p, y)| sum.add_product(left(p), *y));
                }
            } else {
                c.fill(T::ZERO);
                for p in 0..k {
                    let x = left(p);
                    for (out, y) in c.iter_mut().zip(&b[p * b_row..p * b_row + n]) {
                        *out = out.add_product(x, *y);
                    }
                }
            }
        }
        Ok(())
    }
}
