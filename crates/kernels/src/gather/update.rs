//! Sparse updates of optimizers: an expression on the rows of variables that indices name.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};
use plimsoll_request::rows::{RowOperand, UpdateRows};

use super::{Index, by_index, count, not_an_index};
use crate::cut::{Cut, size_of_type};
use crate::expr::elementwise_on;
use crate::simd::Isa;

/// Operands and results of an expression at most.
const MOST: usize = 24;

/// [`UpdateRows`]: see there for the arguments.
///
/// # Errors
/// INVALID_ARGUMENT where the expression does not fit its operands; UNIMPLEMENTED for types that expressions do not have, or more than
/// 24 operands and results. At run time a fault for an index outside, "Index at offset position in indices is out of range".
pub fn update_rows(isa: Isa, request: &UpdateRows) -> Result<Prepared> {
    request.check()?;
    let UpdateRows { expr, operands, rows, inner, indices, index_type } = request;
    let variables = request.variables();
    if operands.len() + variables > MOST {
        return Err(Error::unimplemented(format!("rows of {} operands", operands.len())));
    }
    count(&[*rows, *inner])?;
    count(&[*indices, *inner])?;
    let (rows, inner, indices) = (*rows as usize, *inner as usize, *indices as usize);
    let shape = vec![inner as u64];
    let shapes: Vec<Vec<u64>> =
        operands.iter().map(|operand| if *operand == RowOperand::Scalar { Vec::new() } else { shape.clone() }).collect();
    let row = elementwise_on(isa, expr, &shape, &shapes)?;
    let bytes_of = |(operand, data_type): (&RowOperand, &DataType)| {
        Ok(if *operand == RowOperand::Scalar { 0 } else { inner * size_of_type(*data_type)? })
    };
    let strides = operands.iter().zip(expr.inputs()).map(bytes_of).collect::<Result<Vec<usize>>>()?;
    let row_bytes: usize = strides.iter().sum();
    // Every piece reads every index: worth it for long rows only.
    let per_row = (row_bytes * (rows + indices) / rows.max(1)) as u64;
    let cut = Cut::at_most((row_bytes / 32).clamp(1, 16), rows, per_row, 1);
    let cost = Cost { flops: (row.cost.flops + 100.0) * indices as f64, bytes: row.cost.bytes * indices as f64 };
    let in_place = (0..variables).map(|variable| (variable, variable)).collect();
    let per_worker = row.per_worker;
    let kernel: Arc<dyn CpuKernel> = by_index!(*index_type, I => {
        Ok(Arc::new(Rows::<I> { operands: operands.clone(), strides, variables, row, rows, indices, cut, marker: PhantomData }) as Arc<dyn CpuKernel>)
    })?;
    Ok(Prepared { chunks: cut.pieces(), scratch: 0, per_worker, cost, in_place, kernel })
}

#[derive(Debug)]
struct Rows<I> {
    operands: Vec<RowOperand>,
    /// Bytes from row to row of each operand; 0 of numbers.
    strides: Vec<usize>,
    variables: usize,
    /// The expression on one row.
    row: Prepared,
    rows: usize,
    indices: usize,
    /// A unit is a row of the variables.
    cut: Cut,
    marker: PhantomData<fn(I)>,
}

impl<I: Index> CpuKernel for Rows<I> {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        let own = self.cut.units(chunks);
        let (operands, variables) = (self.operands.len(), self.variables);
        // SAFETY: the arguments as documented.
        let indices = unsafe { args.input::<I>(operands, self.indices) };
        let row_of = |index: &I| usize::try_from(index.wide()).ok().filter(|row| *row < self.rows);
        // Before anything is written: every piece finds the same fault, and no row of a variable changes.
        if let Some(wrong) = indices.iter().position(|index| row_of(index).is_none()) {
            return Err(Fault::invalid("Index at offset {0} in indices is out of range [0, {1})", [wrong as i64, self.rows as i64]));
        }
        for variable in 0..variables {
            let (from, to, stride) = (args.pointers[variable], args.pointers[operands + 1 + variable], self.strides[variable]);
            if from != to {
                // SAFETY: both hold all rows, and other pieces write other rows.
                unsafe { std::ptr::copy_nonoverlapping(from.add(own.start * stride), to.add(own.start * stride), own.len() * stride) };
            }
        }
        let mut pointers = [std::ptr::null_mut::<u8>(); MOST];
        for (number, index) in indices.iter().enumerate() {
            let Some(row) = row_of(index).filter(|row| own.contains(row)) else { continue };
            for (at, (operand, stride)) in self.operands.iter().zip(&self.strides).enumerate() {
                // SAFETY: the rows are inside of the arguments.
                pointers[at] = unsafe {
                    match operand {
                        RowOperand::Variable => args.pointers[operands + 1 + at].add(row * stride),
                        RowOperand::Update => args.pointers[at].add(number * stride),
                        RowOperand::Scalar => args.pointers[at],
                    }
                };
            }
            let (read, written) = pointers.split_at_mut(operands);
            written[..variables].copy_from_slice(&read[..variables]);
            let row_args = Args { pointers: &pointers[..operands + variables], ..*args };
            // SAFETY: a row of each argument, which are there for the expression; results lie where operands of their shape do.
            unsafe { self.row.kernel.run(0..self.row.chunks, &row_args)? };
        }
        Ok(())
    }
}
