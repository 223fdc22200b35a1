//! Kernels of which some arguments are rows of larger tensors.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Args, CpuKernel, Fault, Prepared, Step, Variant};
use plimsoll_request::on_rows::{OnRows, RowOf};
use plimsoll_request::{Arguments, KernelRequest};

/// A kernel has at most so many arguments on rows, its own.
const MOST_ARGUMENTS: usize = 64;

/// The ways to compute a request on rows: those of the request that are one kernel.
///
/// # Errors
/// INVALID_ARGUMENT where rows and request do not fit.
pub(crate) fn variants(on: &OnRows, inner: Vec<Variant>) -> Result<Vec<Variant>> {
    let own = fitting(on)?;
    let of_one = inner.into_iter().filter(|variant| matches!(&variant.steps[..], [Step { args: None, .. }]));
    let on_rows = of_one.map(|mut variant| {
        variant.steps[0].in_place = in_place(on, own.inputs.len(), &variant.steps[0].in_place);
        variant
    });
    Ok(on_rows.collect())
}

/// The arguments of the request itself.
fn fitting(on: &OnRows) -> Result<Arguments> {
    // Whether rows and request fit each other.
    KernelRequest::OnRows(on.clone()).arguments()?;
    let own = on.request.arguments()?;
    match own.inputs.len() + own.outputs.len() {
        0..=MOST_ARGUMENTS => Ok(own),
        more => Err(Error::unimplemented(format!("rows of a request with {more} arguments"))),
    }
}

/// A kernel of the request on its rows.
///
/// # Errors
/// INVALID_ARGUMENT where rows and request do not fit; UNIMPLEMENTED for more than 64 arguments.
pub(crate) fn on_rows(on: &OnRows, inner: Prepared) -> Result<Prepared> {
    let own = fitting(on)?;
    let (inputs, outputs, updated) = (own.inputs.len(), own.outputs.len(), on.outputs.len());
    let row = |argument: usize, bytes: u64, rows: u64, (number, index_type): (usize, DataType)| {
        let [bytes, rows] = [bytes, rows].map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        Row { argument, bytes, rows, index: inputs + updated + number, is_wide: index_type == DataType::Int64 }
    };
    let of_inputs = on.inputs.iter().map(|row| (row.argument as usize, own.inputs[row.argument as usize], row));
    let of_outputs = on.outputs.iter().map(|row| (inputs + row.argument as usize, own.outputs[row.argument as usize], row));
    let rows = of_inputs.chain(of_outputs).enumerate();
    let rows = rows.map(|(number, (argument, bytes, of))| row(argument, bytes, of.rows, (number, of.index_type))).collect();
    let kernel = Arc::new(Kernel { inner: Arc::clone(&inner.kernel), inputs, outputs, rows, updated });
    let in_place = in_place(on, inputs, &inner.in_place);
    Ok(Prepared { kernel, in_place, ..inner })
}

/// The inputs that outputs may be written over: those of the request that are no rows, and tensors of rows that are written.
fn in_place(on: &OnRows, inputs: usize, inner: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let is_row = |rows: &[RowOf], argument: usize| rows.iter().any(|row| row.argument as usize == argument);
    let kept = inner.iter().copied().filter(|(input, output)| !is_row(&on.inputs, *input) && !is_row(&on.outputs, *output));
    let tensors = on.outputs.iter().enumerate().map(|(number, row)| (inputs + number, row.argument as usize));
    kept.chain(tensors).collect()
}

#[derive(Debug)]
struct Kernel {
    inner: Arc<dyn CpuKernel>,
    inputs: usize,
    outputs: usize,
    rows: Vec<Row>,
    /// How many outputs are rows.
    updated: usize,
}

/// An argument of the inner kernel that is a row.
#[derive(Clone, Copy, Debug)]
struct Row {
    argument: usize,
    bytes: usize,
    rows: usize,
    /// The argument with the index.
    index: usize,
    is_wide: bool,
}

impl Kernel {
    /// The arguments of the inner kernel.
    ///
    /// # Safety
    /// As [`CpuKernel::run`].
    unsafe fn arguments(&self, args: &Args<'_>) -> Result<[*mut u8; MOST_ARGUMENTS], Fault> {
        let mut pointers = [std::ptr::null_mut(); MOST_ARGUMENTS];
        let (inputs, outputs) = (self.inputs, self.outputs);
        pointers[..inputs].copy_from_slice(&args.pointers[..inputs]);
        let first = inputs + self.updated + self.rows.len();
        pointers[inputs..inputs + outputs].copy_from_slice(&args.pointers[first..first + outputs]);
        for row in &self.rows {
            // SAFETY: the argument holds an integer of the type.
            let index =
                unsafe { if row.is_wide { args.input::<i64>(row.index, 1)[0] } else { i64::from(args.input::<i32>(row.index, 1)[0]) } };
            let Some(at) = usize::try_from(index).ok().filter(|at| *at < row.rows) else {
                return Err(Fault::invalid("indices[{0}] is not in [0, {1})", [0, row.rows as i64]));
            };
            // SAFETY: the row lies in the tensor, which is no larger than memory.
            pointers[row.argument] = unsafe { pointers[row.argument].add(at * row.bytes) };
        }
        Ok(pointers)
    }
}

impl CpuKernel for Kernel {
    unsafe fn run(&self, chunks: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        // SAFETY: the caller's promise. Every piece finds the same fault, before it writes.
        let pointers = unsafe { self.arguments(args) }?;
        let inner = Args { pointers: &pointers[..self.inputs + self.outputs], scratch: args.scratch, worker: args.worker };
        // SAFETY: a row has the bytes of the argument, and begins at one of its elements. Rows that are written are of different tensors.
        unsafe { self.inner.run(chunks, &inner) }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_request::anchor::{Anchor, Epilogue};
    use plimsoll_request::expr::{BinaryOp, ExprBuilder, UnaryOp};
    use plimsoll_request::product::ProductSpec;

    use super::*;
    use crate::library::make;
    use crate::simd::Isa;
    use crate::testing::{bytes, floats, run_pieces, values};

    const ROWS: u64 = 5;

    /// A sum of two tensors, of which the second is a row, into a row; and their product, which is no row.
    fn request(elements: u64) -> OnRows {
        let mut builder = ExprBuilder::new();
        let [a, b] = [(); 2].map(|()| builder.input(DataType::Float).unwrap());
        let results = [BinaryOp::Add, BinaryOp::Mul].map(|op| builder.binary(op, a, b).unwrap());
        let (shape, expr) = (vec![elements], builder.finish(results.to_vec()));
        let row = |argument: u32, index_type: DataType| RowOf { argument, rows: ROWS, index_type };
        OnRows {
            request: Box::new(KernelRequest::Expr { expr, shape: shape.clone(), operands: vec![shape; 2] }),
            inputs: vec![row(1, DataType::Int32)],
            outputs: vec![row(0, DataType::Int64)],
        }
    }

    fn prepared(isa: Isa, on: &OnRows) -> Prepared {
        let mut inner = make(isa, &on.request).unwrap();
        on_rows(on, inner.steps.remove(0).0).unwrap()
    }

    /// The list that is written, and the product.
    fn run(isa: Isa, elements: u64, read: i32, written: i64) -> (Result<(), Fault>, Vec<f32>, Vec<f32>) {
        let prepared = prepared(isa, &request(elements));
        let [a, list, target] = [(1, 1), (ROWS, 2), (ROWS, 3)].map(|(rows, seed)| floats(rows * elements, seed));
        let inputs = [&bytes(&a)[..], &bytes(&list), &bytes(&target), &bytes(&[read]), &bytes(&[written])];
        let mut outputs = [bytes(&target), vec![0; 4 * elements as usize]];
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        assert_eq!(prepared.in_place, [(0, 1), (2, 0)]);
        let done = run_pieces(&prepared, &inputs, &mut outputs, &calls, &[(2, 0)]);
        (done, values(&outputs[0]), values(&outputs[1]))
    }

    #[test]
    fn rows_are_read_and_written_where_they_lie() {
        for isa in Isa::available() {
            for elements in [1, 7, 40_000] {
                let [a, list, mut expected] = [(1, 1), (ROWS, 2), (ROWS, 3)].map(|(rows, seed)| floats(rows * elements, seed));
                let [from, to] = [3, 1].map(|row| row * elements as usize..(row + 1) * elements as usize);
                let sums: Vec<f32> = a.iter().zip(&list[from.clone()]).map(|(a, b)| a + b).collect();
                let products: Vec<f32> = a.iter().zip(&list[from]).map(|(a, b)| a * b).collect();
                expected[to].copy_from_slice(&sums);
                assert_eq!(run(isa, elements, 3, 1), (Ok(()), expected, products), "{elements} on {isa:?}");
            }
        }
    }

    #[test]
    fn a_product_gives_a_result_twice_once_into_a_row() {
        let (m, k, n) = (33, 16, 70);
        let spec = ProductSpec { m, n, k, transpose_a: false, transpose_b: false, batch: 1, places: None };
        let product = |results: usize| {
            let mut builder = ExprBuilder::new();
            let [a, b] = [(); 2].map(|()| builder.input(DataType::Float).unwrap());
            let sum = builder.binary(BinaryOp::Add, a, b).unwrap();
            let result = builder.unary(UnaryOp::Tanh, sum).unwrap();
            let epilogue = Some(Epilogue { expr: builder.finish(vec![result; results]), operands: vec![vec![m, n]] });
            KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue, pooling: None }
        };
        for isa in Isa::available() {
            let row = RowOf { argument: 1, rows: ROWS, index_type: DataType::Int32 };
            let on = OnRows { request: Box::new(product(2)), inputs: Vec::new(), outputs: vec![row] };
            let operands = [m * k, k * n, m * n].map(|count| bytes(&floats(count, count)));
            let list = floats(ROWS * m * n, 4);
            let mut alone = [vec![0; 4 * (m * n) as usize]];
            let own = make(isa, &product(1)).unwrap().steps.remove(0).0;
            run_pieces(&own, &operands.each_ref().map(Vec::as_slice), &mut alone, std::slice::from_ref(&(0..own.chunks)), &[]).unwrap();
            let (prepared, target) = (prepared(isa, &on), bytes(&list));
            let inputs = [&operands[0][..], &operands[1], &operands[2], &target, &bytes(&[2i32])];
            let mut outputs = [vec![0; alone[0].len()], target.clone()];
            run_pieces(&prepared, &inputs, &mut outputs, std::slice::from_ref(&(0..prepared.chunks)), &[(3, 1)]).unwrap();
            let mut expected = target.clone();
            expected[2 * alone[0].len()..3 * alone[0].len()].copy_from_slice(&alone[0]);
            assert!(outputs == [alone[0].clone(), expected], "{isa:?}");
        }
    }

    #[test]
    fn an_index_outside_is_a_fault_and_changes_nothing() {
        for (read, written) in [(-1, 0), (5, 0), (0, -1), (0, 5), (0, i64::MAX)] {
            let (done, list, _) = run(Isa::best(), 40_000, read, written);
            assert_eq!(done, Err(Fault::invalid("indices[{0}] is not in [0, {1})", [0, 5])));
            assert_eq!(list, floats(ROWS * 40_000, 3));
        }
    }

    #[test]
    fn requests_of_several_kernels_are_not_on_rows() {
        use plimsoll_request::reduce::{ReduceOp, Reduction};
        let request = KernelRequest::Reduction(Reduction::Reduce {
            op: ReduceOp::Sum,
            data_type: DataType::Float,
            shape: vec![1 << 20],
            axes: vec![0],
            divided: true,
        });
        let on = OnRows {
            request: Box::new(request),
            inputs: vec![RowOf { argument: 0, rows: 2, index_type: DataType::Int32 }],
            outputs: Vec::new(),
        };
        let spec = plimsoll_device::DeviceSpec::cpu(0, None, 1, plimsoll_device::InstructionSet::Baseline);
        let own = plimsoll_device::Library::variants(&crate::CpuKernels, &spec, &on.request).unwrap();
        assert!(own[0].steps.len() > 1);
        let asked = KernelRequest::OnRows(on);
        assert_eq!(plimsoll_device::Library::variants(&crate::CpuKernels, &spec, &asked).unwrap(), []);
    }
}
