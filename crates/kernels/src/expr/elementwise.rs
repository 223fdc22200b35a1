//! The kernel that applies an expression to every element of a shape.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Args, CpuKernel, Fault, Prepared};

use super::program::{Bases, TileProgram};
use crate::cut::HALVED;
use crate::simd::Isa;
use plimsoll_request::expr::Expr;

/// Bytes of the widest argument that a piece works on.
const PIECE: usize = 64 * 1024;

/// Applies `expr` to every element of `shape`. Operand `i` has the shape `operands[i]`, which broadcasts to `shape` by NumPy's
/// rules; every output is dense of `shape`. Arguments: operands, then outputs.
///
/// Results are the same bits as those of the steps run one by one.
///
/// # Errors
/// INVALID_ARGUMENT where shapes or the number of operands do not fit, UNIMPLEMENTED for types and operations that
/// expressions do not have.
pub fn elementwise(expr: &Expr, shape: &[u64], operands: &[Vec<u64>]) -> Result<Prepared> {
    elementwise_on(Isa::best(), expr, shape, operands)
}

/// As [`elementwise`], with the code for that instruction set. It runs where the processor has it.
///
/// # Errors
/// As [`elementwise`].
pub fn elementwise_on(isa: Isa, expr: &Expr, shape: &[u64], operands: &[Vec<u64>]) -> Result<Prepared> {
    let program = TileProgram::new(expr, shape, operands, isa)?;
    let total = program.total();
    // A piece takes about as long whatever the steps cost: four operations take as long as an element's way to and from the cache. Each
    // argument beyond three takes half as long.
    let more = program.full().saturating_sub(3) as f64;
    let weight = (0.75 + expr.flops() / 4.0 + more / 2.0).clamp(1.0, 16.0);
    let target = ((PIECE / program.widest()) as f64 / weight).max(1.0) as usize;
    let least = if total.saturating_mul(program.widest()) >= HALVED { 2 } else { 1 };
    let pieces = (total / target).max(least);
    let piece = total.div_ceil(pieces).next_multiple_of(program.grain()).max(1);
    let chunks = u32::try_from(total.div_ceil(piece).max(1))
        .map_err(|_| Error::invalid_argument(format!("a shape of {shape:?} has too many elements")))?;
    Ok(Prepared {
        chunks,
        scratch: 0,
        per_worker: program.scratch(),
        cost: program.cost(),
        in_place: program.in_place(),
        kernel: Arc::new(Elementwise { program, piece }),
    })
}

#[derive(Debug)]
struct Elementwise {
    program: TileProgram,
    piece: usize,
}

impl CpuKernel for Elementwise {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let total = self.program.total();
        let range = (chunks.start as usize * self.piece).min(total)..(chunks.end as usize * self.piece).min(total);
        let Some((first, rest)) = args.pointers.split_first() else { return Ok(()) };
        if range.is_empty() {
            return Ok(());
        }
        let bases = Bases { first: *first, rest };
        // SAFETY: the arguments are those that the program was prepared for, by the contract of `CpuKernel::run`.
        unsafe {
            self.program.begin(&bases, args.worker);
            self.program.run(range, &bases, args.worker)
        }
    }
}
