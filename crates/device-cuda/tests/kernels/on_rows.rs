//! Expressions of which operands and results are rows of larger tensors, against the processor's on the rows alone.

use plimsoll_base::DataType;
use plimsoll_device::InstructionSet;
use plimsoll_device_cuda::emit;
use plimsoll_kernels::CpuKernels;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder};
use plimsoll_request::on_rows::{OnRows, RowOf};

use super::cases::{Near, count};
use super::engines::Run;
use super::making::Making;

/// Rows of each tensor.
const ROWS: u64 = 5;

/// Operands of these shapes: the sum into a row if that is said, and the product, which is none. The second operand is a row, too.
fn request(data_type: DataType, operands: &[Vec<u64>; 2], indices: [DataType; 2], writes: bool) -> OnRows {
    let mut builder = ExprBuilder::new();
    let [a, b] = [(); 2].map(|()| builder.input(data_type).unwrap());
    let results = [BinaryOp::Add, BinaryOp::Mul].map(|op| builder.binary(op, a, b).unwrap());
    let expr = builder.finish(results.to_vec());
    let row = |argument, index_type| RowOf { argument, rows: ROWS, index_type };
    let request = KernelRequest::Expr { expr, shape: operands[0].clone(), operands: operands.to_vec() };
    let outputs = if writes { vec![row(0, indices[1])] } else { Vec::new() };
    OnRows { request: Box::new(request), inputs: vec![row(1, indices[0])], outputs }
}

fn index(data_type: DataType, at: i64) -> Vec<u8> {
    if data_type == DataType::Int64 { at.to_le_bytes().to_vec() } else { (at as i32).to_le_bytes().to_vec() }
}

/// What is read and written: the row that is read is `at[0]`, the one that is written `at[1]`.
fn run(making: &mut Making, data_type: DataType, operands: [Vec<u64>; 2], at: [i64; 2], writes: bool) -> Run {
    let index_types = [0, 1].map(|_| *making.of(&[DataType::Int32, DataType::Int64]));
    let on = request(data_type, &operands, index_types, writes);
    let [whole, few] = operands.each_ref().map(|shape| count(shape));
    let [a, list, target] = [whole, ROWS * few, ROWS * whole].map(|elements| making.elements(data_type, elements));
    let of_row = |list: &[u8], at: i64, rows: u64| {
        let bytes = list.len() / rows as usize;
        usize::try_from(at).ok().filter(|at| *at < rows as usize).map(|at| at * bytes..(at + 1) * bytes)
    };
    let own = on.request.arguments().unwrap();
    let (read, written) = (of_row(&list, at[0], ROWS), of_row(&target, at[1], ROWS));
    let expected = match (read, written) {
        (Some(read), Some(written)) => {
            let mut made = CpuKernels.evaluate_on(InstructionSet::detect(), &on.request, &[&a, &list[read]], &own.outputs).unwrap();
            if writes {
                let row = std::mem::replace(&mut made[0], target.clone());
                made[0][written].copy_from_slice(&row);
            }
            Ok(made)
        }
        _ => Err(format!("indices[0] is not in [0, {ROWS})")),
    };
    let mut inputs = vec![a, list];
    let mut input_types = vec![data_type; 2];
    if writes {
        inputs.push(target);
        input_types.push(data_type);
    }
    for (index_type, at) in index_types.into_iter().zip(at).take(1 + usize::from(writes)) {
        inputs.push(index(index_type, at));
        input_types.push(index_type);
    }
    let request = KernelRequest::OnRows(on);
    let arguments = request.arguments().unwrap();
    assert_eq!(inputs.iter().map(|input| input.len() as u64).collect::<Vec<_>>(), arguments.inputs);
    let emitted = emit::emit(&request).unwrap();
    let in_place = writes.then_some((2, 0));
    assert!(in_place.is_none_or(|pair| emitted.in_place.contains(&pair)), "{:?}", emitted.in_place);
    Run {
        name: format!("{request:?}, rows {at:?}"),
        request,
        emitted,
        inputs,
        outputs: arguments.outputs.iter().map(|bytes| *bytes as usize).collect(),
        expected,
        types: vec![data_type; 2],
        near: Near::Exact,
        input_types,
        in_place,
    }
}

/// Rows of lengths that begin at all places of a word, also of operands that broadcast; first and last rows.
pub fn on_rows(seed: u64) -> Vec<Run> {
    let mut making = Making::new(seed);
    let mut runs = Vec::new();
    for data_type in [DataType::Float, DataType::Bfloat16, DataType::Double, DataType::Int32] {
        for (whole, few) in
            [(&[1][..], &[1][..]), (&[7], &[7]), (&[64], &[64]), (&[33, 12], &[12]), (&[4, 40], &[4, 1]), (&[6, 10], &[6, 10])]
        {
            for (at, writes) in [([0, 4], true), ([3, 1], true), ([4, 0], false)] {
                runs.push(run(&mut making, data_type, [whole.to_vec(), few.to_vec()], at, writes));
            }
        }
    }
    runs
}

/// Indices outside.
pub fn outside(seed: u64) -> Vec<Run> {
    let mut making = Making::new(seed);
    let all = [[-1, 0], [5, 0], [0, -1], [0, 5], [i64::from(i32::MIN), 0]];
    all.into_iter().map(|at| run(&mut making, DataType::Float, [vec![300], vec![300]], at, true)).collect()
}

/// What has no kernel on rows: anything but an expression, and more rows than faults can tell apart.
#[test]
fn other_requests_are_refused() {
    let shape = vec![2, 3];
    let movement = plimsoll_request::movement::Movement::Transpose { shape: shape.clone(), perm: vec![1, 0] };
    let row = |argument| RowOf { argument, rows: ROWS, index_type: DataType::Int32 };
    let moved = OnRows { request: Box::new(KernelRequest::Movement { element: 4, movement }), inputs: vec![row(0)], outputs: Vec::new() };
    let mut builder = ExprBuilder::new();
    let operands: Vec<_> = (0..16).map(|_| builder.input(DataType::Float).unwrap()).collect();
    let sum = operands.iter().copied().reduce(|sum, operand| builder.binary(BinaryOp::Add, sum, operand).unwrap()).unwrap();
    let many = KernelRequest::Expr { expr: builder.finish(vec![sum]), shape: shape.clone(), operands: vec![shape; 16] };
    let many = OnRows { request: Box::new(many), inputs: (0..16).map(row).collect(), outputs: Vec::new() };
    for on in [moved, many] {
        let why = emit::emit(&KernelRequest::OnRows(on)).unwrap_err();
        assert_eq!(why.code(), plimsoll_base::Code::Unimplemented, "{why}");
    }
}
