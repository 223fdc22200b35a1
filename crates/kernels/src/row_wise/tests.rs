//! Steps of rows give the bits of the steps one after the other.

use plimsoll_base::{Code, DataType};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};
use plimsoll_request::reduce::ReduceOp;
use plimsoll_request::row_wise::{RowStep, RowWise, Span};
use proptest::prelude::*;

use super::row_wise;
use crate::library;
use crate::simd::Isa;
use crate::testing::{self, bytes, floats, run_pieces};

/// `(first - second) * first`, and where `both` the difference behind it.
fn two(both: bool) -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(DataType::Float).unwrap(), b.input(DataType::Float).unwrap());
    let difference = b.binary(BinaryOp::Sub, x, y).unwrap();
    let product = b.binary(BinaryOp::Mul, difference, x).unwrap();
    b.finish(if both { vec![product, difference] } else { vec![product] })
}

/// `rsqrt(x * x + 1)`.
fn root() -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(DataType::Float).unwrap();
    let one = b.number(DataType::Float, 1.0).unwrap();
    let square = b.binary(BinaryOp::Mul, x, x).unwrap();
    let sum = b.binary(BinaryOp::Add, square, one).unwrap();
    let root = b.unary(UnaryOp::Rsqrt, sum).unwrap();
    b.finish(vec![root])
}

/// A step of values that have those spans, chosen by numbers.
fn step(choice: [usize; 4], spans: &[Span]) -> RowStep {
    let of = |number: usize, fits: &dyn Fn(Span) -> bool| {
        let fitting: Vec<usize> = (0..spans.len()).filter(|value| fits(spans[*value])).collect();
        (!fitting.is_empty()).then(|| fitting[number % fitting.len()])
    };
    let wide = of(choice[1], &|span| span == Span::Rows).unwrap();
    let column = |span: Span| matches!(span, Span::Column | Span::One);
    match choice[0] {
        0 | 1 => RowStep::Reduce { op: [ReduceOp::Mean, ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min][choice[2] % 4], of: wide },
        2 => RowStep::Softmax { log: choice[2].is_multiple_of(2), of: wide },
        3 | 4 if of(0, &column).is_some() => {
            let operands = [choice[2], choice[3]].map(|number| of(number, &column).unwrap());
            if choice[0] == 3 {
                RowStep::Expr { expr: root(), operands: vec![operands[0]], span: Span::Column }
            } else {
                RowStep::Expr { expr: two(false), operands: operands.to_vec(), span: Span::Column }
            }
        }
        _ => {
            let operands = [choice[2], choice[3]].map(|number| of(number, &|_| true).unwrap());
            RowStep::Expr { expr: two(choice[1].is_multiple_of(3)), operands: operands.to_vec(), span: Span::Rows }
        }
    }
}

fn some_span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(Span::Rows), Just(Span::Column), Just(Span::Row), Just(Span::One)]
}

/// The values, each made from those before it by a kernel of its own.
fn one_by_one(isa: Isa, request: &RowWise, inputs: &[Vec<u8>], spans: &[Span]) -> Vec<Vec<u8>> {
    let mut values = inputs.to_vec();
    for step in &request.steps {
        let made = library::make(isa, &step.alone(request.rows, request.row, spans)).unwrap().steps.remove(0).0;
        let (count, span) = step.makes();
        let size = 4 * span.shape(request.rows, request.row).iter().product::<u64>() as usize;
        let mut outputs = vec![vec![0; size]; count];
        let read: Vec<&[u8]> = step.reads().iter().map(|value| &values[*value][..]).collect();
        testing::run(&made, &read, &mut outputs).unwrap();
        values.extend(outputs);
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_of_rows_give_the_bits_of_each_by_itself(
        rows in 1u64..80,
        row in prop_oneof![1u64..40, Just(256), 200u64..2100],
        others in prop::collection::vec(some_span(), 0..4),
        choices in prop::collection::vec([0usize..8, 0usize..8, 0usize..8, 0usize..8], 1..8),
        kept in any::<u32>(),
        seed in any::<u64>(),
    ) {
        let inputs: Vec<Span> = std::iter::once(Span::Rows).chain(others).collect();
        let mut request = RowWise { rows, row, inputs, steps: Vec::new(), results: Vec::new() };
        for choice in choices {
            let spans = request.check().unwrap();
            request.steps.push(step(choice, &spans));
        }
        let spans = request.check().unwrap();
        // The last value is a result, others as it comes.
        let made = request.inputs.len()..spans.len();
        request.results = made.clone().filter(|value| *value + 1 == made.end || kept >> value & 1 == 1).collect();
        let inputs: Vec<Vec<u8>> = request.inputs.iter().enumerate().map(|(input, span)| {
            let count = span.shape(rows, row).iter().product::<u64>();
            bytes(&floats(count, seed ^ input as u64))
        }).collect();
        for isa in Isa::available() {
            let expected = one_by_one(isa, &request, &inputs, &spans);
            let prepared = row_wise(isa, &request).unwrap();
            let calls: Vec<std::ops::Range<u32>> = (0..prepared.chunks).rev().map(|chunk| chunk..chunk + 1).collect();
            let pairs: Vec<Vec<(usize, usize)>> = std::iter::once(Vec::new()).chain(prepared.in_place.iter().map(|pair| vec![*pair])).collect();
            for pair in pairs {
                let mut outputs: Vec<Vec<u8>> = request.results.iter().map(|result| vec![0; expected[*result].len()]).collect();
                let read: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                run_pieces(&prepared, &read, &mut outputs, &calls, &pair).unwrap();
                for (at, result) in request.results.iter().enumerate() {
                    prop_assert!(outputs[at] == expected[*result], "{isa:?}, value {result} of {request:?}, in place {pair:?}");
                }
            }
        }
    }
}

fn normalization(rows: u64, row: u64) -> RowWise {
    let steps =
        vec![RowStep::Reduce { op: ReduceOp::Mean, of: 0 }, RowStep::Expr { expr: two(false), operands: vec![0, 1], span: Span::Rows }];
    RowWise { rows, row, inputs: vec![Span::Rows], steps, results: vec![2] }
}

#[test]
fn a_result_may_lie_where_its_last_reader_is() {
    let request = normalization(40, 64);
    assert_eq!(row_wise(Isa::Portable, &request).unwrap().in_place, [(0, 0)]);
    // The mean is made before the last reader.
    let both = RowWise { results: vec![1, 2], ..request };
    assert_eq!(row_wise(Isa::Portable, &both).unwrap().in_place, [(0, 1)]);
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    let fine = normalization(8, 16);
    assert!(fine.check().is_ok());
    let code = |request: RowWise| library::make(Isa::Portable, &KernelRequest::RowWise(request)).err().map(|error| error.code());
    let invalid = Some(Code::InvalidArgument);
    assert_eq!(code(RowWise { results: vec![0], ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { results: vec![2, 2], ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { results: vec![3], ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { inputs: vec![Span::Column], ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { steps: vec![RowStep::Softmax { log: false, of: 4 }], results: vec![1], ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { rows: u64::MAX, ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { row: u64::MAX / 2, ..fine.clone() }), invalid);
    let many = vec![RowStep::Softmax { log: false, of: 0 }; RowWise::MOST_VALUES];
    assert_eq!(code(RowWise { steps: many, ..fine.clone() }), invalid);
    assert_eq!(code(RowWise { row: 1 << 20, ..fine.clone() }), Some(Code::Unimplemented));
    assert_eq!(code(RowWise { row: 1 << 16, ..fine.clone() }), None);
    assert_eq!(code(fine), None);
}
