//! Expressions: random ones, and every primitive by itself.

use plimsoll_base::DataType;
use plimsoll_device::InstructionSet;
use plimsoll_device_cuda::emit;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar, UnaryOp};
use plimsoll_request::exprs::Exprs;

use super::cases::{Case, Near, count};
use super::making::{FLOATS, INTEGERS, Making, times};

/// Primitives whose bits are the processor's.
fn exact_unary(data_type: DataType) -> Vec<UnaryOp> {
    let mut ops = vec![UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Square, UnaryOp::LogicalNot, UnaryOp::Invert];
    ops.extend([UnaryOp::Sqrt, UnaryOp::Rsqrt, UnaryOp::Reciprocal, UnaryOp::Floor, UnaryOp::Ceil, UnaryOp::Rint]);
    ops.extend([UnaryOp::IsNan, UnaryOp::IsFinite]);
    // Those that the kernels compute as the processor does, where it fuses multiplications.
    if data_type.compute_type() == DataType::Float && InstructionSet::detect() != InstructionSet::Baseline {
        ops.extend([UnaryOp::Exp, UnaryOp::Expm1, UnaryOp::Log, UnaryOp::Log1p, UnaryOp::Tanh, UnaryOp::Sigmoid, UnaryOp::Erf]);
    }
    ops.retain(|op| op.takes(data_type));
    ops
}

fn exact_binary(data_type: DataType) -> Vec<BinaryOp> {
    let mut ops: Vec<BinaryOp> = BinaryOp::ALL.to_vec();
    let is_integer = data_type.is_integer();
    ops.retain(|op| {
        let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::TruncateMod | BinaryOp::Pow);
        let special = matches!(
            op,
            BinaryOp::Zeta
                | BinaryOp::Polygamma
                | BinaryOp::Igamma
                | BinaryOp::Igammac
                | BinaryOp::IgammaGradA
                | BinaryOp::Atan2
                | BinaryOp::Hypot
                | BinaryOp::Xlogy
                | BinaryOp::Xlog1py
                | BinaryOp::Complex
        );
        op.takes(data_type) && !special && !(divides && is_integer) && *op != BinaryOp::Pow
    });
    ops
}

/// A random expression of operands of these types, and of constants.
fn expression(making: &mut Making, types: &[DataType], steps: u64) -> Expr {
    let mut builder = ExprBuilder::new();
    let mut values: Vec<Reg> = types.iter().map(|data_type| builder.input(*data_type).unwrap()).collect();
    for _ in 0..steps {
        let a = *making.of(&values);
        let data_type = builder.type_of(a);
        let same: Vec<Reg> = values.iter().copied().filter(|value| builder.type_of(*value) == data_type).collect();
        let b = *making.of(&same);
        let made = match making.below(10) {
            0..=2 => {
                let ops = exact_unary(data_type);
                if ops.is_empty() { Ok(a) } else { builder.unary(*making.of(&ops), a) }
            }
            3..=6 => builder.binary(*making.of(&exact_binary(data_type)), a, b),
            7 => {
                let conditions: Vec<Reg> = values.iter().copied().filter(|value| builder.type_of(*value) == DataType::Bool).collect();
                if conditions.is_empty() { Ok(a) } else { builder.select(*making.of(&conditions), a, b) }
            }
            8 => {
                let to = *making.of(&[FLOATS, INTEGERS, &[DataType::Bool]].concat());
                builder.cast(to, a)
            }
            _ => {
                let value = Scalar::from_f64(data_type, making.below(9) as f64 / 2.0 - 1.0).unwrap();
                let constant = builder.constant(value);
                builder.binary(if data_type == DataType::Bool { BinaryOp::LogicalOr } else { BinaryOp::Add }, a, constant)
            }
        };
        values.push(made.unwrap());
    }
    let mut outputs = vec![*values.last().unwrap()];
    if making.below(3) == 0 {
        outputs.push(*making.of(&values));
    }
    builder.finish(outputs)
}

/// A shape that broadcasts to another.
pub fn operand(making: &mut Making, shape: &[u64]) -> Vec<u64> {
    match making.below(4) {
        0 => Vec::new(),
        1 => shape[making.below(shape.len() as u64) as usize..].to_vec(),
        2 => shape.iter().map(|size| if making.below(2) == 0 { 1 } else { *size }).collect(),
        _ => shape.to_vec(),
    }
}

pub fn expressions(types: &[DataType], seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(40) {
        let data_type = *making.of(types);
        let operands = 1 + making.below(4) as usize;
        let input_types: Vec<DataType> = (0..operands).map(|at| if at == 3 { DataType::Bool } else { data_type }).collect();
        let steps = 1 + making.below(if number % 8 == 0 { 40 } else { 8 });
        let expr = expression(&mut making, &input_types, steps);
        let shape = making.shape(4, 2000);
        let operands: Vec<Vec<u64>> = (0..operands).map(|at| if at == 0 { shape.clone() } else { operand(&mut making, &shape) }).collect();
        let inputs = input_types.iter().zip(&operands).map(|(data_type, shape)| making.wild(*data_type, count(shape))).collect();
        let types = expr.output_types();
        cases.push(Case { request: KernelRequest::Expr { expr, shape, operands }, inputs, input_types, types, near: Near::Exact });
    }
    cases
}

/// Expressions of several groups of tensors, of none to several blocks each.
pub fn of_groups(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let data_type = *making.of(if number % 3 == 0 { INTEGERS } else { FLOATS });
        let operands = 2 + making.below(3) as usize;
        let input_types = vec![data_type; operands];
        let steps = 1 + making.below(8);
        let expr = expression(&mut making, &input_types, steps);
        let single: Vec<bool> = (0..operands).map(|at| at > 0 && making.below(3) == 0).collect();
        let most = if number % 4 == 0 { 10_000 } else { 700 };
        let elements: Vec<u64> = (0..1 + making.below(if number % 5 == 0 { 40 } else { 4 })).map(|_| making.below(most)).collect();
        let own = |of_single: bool| single.iter().filter(|single| **single == of_single).count();
        let counts = vec![1; own(true)].into_iter().chain(elements.iter().flat_map(|elements| vec![*elements; own(false)]));
        let inputs: Vec<Vec<u8>> = counts.map(|count| making.wild(data_type, count)).collect();
        let (input_types, outputs) = (vec![data_type; inputs.len()], expr.output_types());
        let types = elements.iter().flat_map(|_| outputs.clone()).collect();
        let request = KernelRequest::Exprs(Exprs { expr, single, elements });
        cases.push(Case { request, inputs, input_types, types, near: Near::Exact });
    }
    cases
}

/// Primitives without a kernel for cards.
const WITHOUT: &[&str] = &[
    "Digamma",
    "Erfinv",
    "Ndtri",
    "BesselI0",
    "BesselI0e",
    "BesselI1",
    "BesselI1e",
    "BesselJ0",
    "BesselJ1",
    "BesselK0",
    "BesselK0e",
    "BesselK1",
    "BesselK1e",
    "BesselY0",
    "BesselY1",
    "Dawsn",
    "Expint",
    "FresnelCos",
    "FresnelSin",
    "Spence",
    "Zeta",
    "Polygamma",
    "Igamma",
    "Igammac",
    "IgammaGradA",
];

pub fn primitives() -> Vec<Case> {
    const LENGTH: u64 = 203;
    let mut making = Making::new(99);
    let mut cases = Vec::new();
    let mut add = |making: &mut Making, name: String, inputs: Vec<DataType>, expr: Expr| {
        let near = if exact_unary(inputs[0]).iter().any(|op| format!("{op:?}") == name) { Near::Exact } else { Near::Of(1.0, 8.0) };
        let operands = vec![vec![LENGTH]; inputs.len()];
        let divides = inputs[0].is_integer() && ["Div", "FloorDiv", "FloorMod", "TruncateMod", "Pow"].contains(&name.as_str());
        let bytes: Vec<Vec<u8>> = (0..inputs.len()).map(|_| making.wild(inputs[0], LENGTH)).collect();
        let bytes = bytes.into_iter().enumerate().map(|(at, bytes)| if at == 1 && divides { not_zero(inputs[0], bytes) } else { bytes });
        let (types, inputs_bytes) = (expr.output_types(), bytes.collect());
        let request = KernelRequest::Expr { expr, shape: vec![LENGTH], operands };
        let case = Case { request, inputs: inputs_bytes, input_types: inputs, types, near };
        match emit::emit(&case.request) {
            Ok(_) => {
                assert!(!WITHOUT.contains(&name.as_str()), "{name} has a kernel");
                cases.push(case);
            }
            Err(error) => assert!(WITHOUT.contains(&name.as_str()), "{name}: {error}"),
        }
    };
    let types = [FLOATS, INTEGERS, &[DataType::Bool]].concat();
    for data_type in types {
        for op in UnaryOp::ALL.iter().filter(|op| op.takes(data_type)) {
            let mut builder = ExprBuilder::new();
            let a = builder.input(data_type).unwrap();
            let result = builder.unary(*op, a).unwrap();
            add(&mut making, format!("{op:?}"), vec![data_type], builder.finish(vec![result]));
        }
        for op in BinaryOp::ALL.iter().filter(|op| op.takes(data_type) && **op != BinaryOp::Complex) {
            let mut builder = ExprBuilder::new();
            let (a, b) = (builder.input(data_type).unwrap(), builder.input(data_type).unwrap());
            let result = builder.binary(*op, a, b).unwrap();
            add(&mut making, format!("{op:?}"), vec![data_type; 2], builder.finish(vec![result]));
        }
    }
    cases
}

/// Small positive integers.
fn not_zero(data_type: DataType, mut bytes: Vec<u8>) -> Vec<u8> {
    let size = data_type.size().unwrap();
    for element in bytes.chunks_mut(size) {
        let low = 1 + element[0] % 7;
        element.fill(0);
        element[0] = low;
    }
    bytes
}
