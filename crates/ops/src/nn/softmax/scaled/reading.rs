//! What works compute, read from a value backwards.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg, Scalar};
use plimsoll_request::movement::Movement;
use plimsoll_request::reduce::{ReduceOp, Reduction};

use crate::fusion::{Computes, View, WorkId, Works};

/// A value, and the works between it and what it is made of.
type Passed = (View, Vec<WorkId>);

pub(super) fn readers<'a>(works: &'a dyn Works, value: &View) -> &'a [WorkId] {
    works.readers(value.value)
}

pub(super) fn maker(works: &dyn Works, value: &View) -> Option<WorkId> {
    works.maker(value.value)
}

/// Whether two values are one tensor of one shape.
pub(super) fn is_same(works: &dyn Works, one: &View, other: &View) -> bool {
    works.is_one(one.value, other.value) && (one.data_type, &one.shape) == (other.data_type, &other.shape)
}

/// The one value that a work defines; its shape does not count.
pub(super) fn one(works: &dyn Works, work: WorkId) -> Option<View> {
    let &[value] = works.outputs(work) else { return None };
    let (data_type, shape) = match works.computes(work) {
        Computes::Expr(expr, shape) => (*expr.output_types().first()?, shape.clone()),
        _ => (DataType::Float, plimsoll_graph::Shape::from([])),
    };
    Some(View { value, data_type, shape })
}

/// Whether a value is its one operand, cast.
pub(super) fn cast(expr: &Expr, reg: Reg) -> Option<()> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(0) => Some(()),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => cast(expr, *of),
        _ => None,
    }
}

/// The value before expressions of one operand that `is_it` takes, and their works.
pub(super) fn back(works: &dyn Works, value: &View, is_it: impl Fn(&Expr, Reg) -> Option<()>) -> Passed {
    let (mut value, mut passed) = (value.clone(), Vec::new());
    while let Some(work) = works.maker(value.value) {
        let (Computes::Expr(expr, _), [before]) = (works.computes(work), works.inputs(work)) else { break };
        let [output] = expr.outputs() else { break };
        if before.elements() != value.elements() || is_it(expr, *output).is_none() {
            break;
        }
        passed.push(work);
        value = before.clone();
    }
    (value, passed)
}

/// A number of an expression.
fn number(expr: &Expr, reg: Reg) -> Option<f32> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Const(Scalar::F32(number)) => Some(*number),
        Instr::Const(Scalar::F16(number)) => Some(number.to_f32()),
        Instr::Const(Scalar::Bf16(number)) => Some(number.to_f32()),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => number(expr, *of),
        _ => None,
    }
}

/// What an expression makes of one of its operands: the number it multiplies it by.
pub(super) fn scaled(expr: &Expr, reg: Reg) -> Option<f32> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(0) => Some(1.0),
        Instr::Cast(DataType::Float | DataType::Half | DataType::Bfloat16, of) => scaled(expr, *of),
        Instr::Binary(BinaryOp::Mul, one, other) => match (number(expr, *one), number(expr, *other)) {
            (None, Some(number)) => Some(scaled(expr, *one)? * number),
            (Some(number), None) => Some(scaled(expr, *other)? * number),
            _ => None,
        },
        Instr::Binary(BinaryOp::Div, one, other) => Some(scaled(expr, *one)? / number(expr, *other)?),
        _ => None,
    }
}

/// The number that a work multiplies its one operand by. A sum along no axis, or along axes of one element, is the operand: gradients of operations
/// that may broadcast have such sums.
pub(super) fn factor(works: &dyn Works, work: WorkId) -> Option<f32> {
    match works.computes(work) {
        Computes::Expr(expr, _) => match (expr.outputs(), works.inputs(work)) {
            ([output], [_]) => scaled(expr, *output),
            _ => None,
        },
        Computes::Request(KernelRequest::Reduction(Reduction::Reduce { op: ReduceOp::Sum, shape, axes, .. })) => {
            axes.iter().all(|axis| shape.get(*axis) == Some(&1)).then_some(1.0)
        }
        _ => None,
    }
}

/// The operand that an expression reads as it is.
pub(super) fn input<'a>(works: &'a dyn Works, work: WorkId, expr: &Expr, reg: Reg) -> Option<&'a View> {
    match expr.instrs().get(reg.0 as usize)? {
        Instr::Input(number) => works.inputs(work).get(*number as usize),
        _ => None,
    }
}

/// The two operands of an expression that is one operation.
pub(super) fn operation(works: &dyn Works, work: WorkId, op: BinaryOp) -> Option<[View; 2]> {
    let Computes::Expr(expr, _) = works.computes(work) else { return None };
    let [output] = expr.outputs() else { return None };
    let Instr::Binary(found, one, other) = expr.instrs().get(output.0 as usize)? else { return None };
    let input = |reg: &Reg| input(works, work, expr, *reg).cloned();
    if *found != op { None } else { Some([input(one)?, input(other)?]) }
}

/// A value where a condition holds, and a number elsewhere.
pub(super) struct Chosen {
    pub condition: View,
    pub of: View,
    pub otherwise: f32,
}

/// The choice that an expression is, of a value of as many elements.
pub(super) fn chosen(works: &dyn Works, work: WorkId) -> Option<Chosen> {
    let Computes::Expr(expr, shape) = works.computes(work) else { return None };
    let [output] = expr.outputs() else { return None };
    let Instr::Select(condition, of, otherwise) = expr.instrs().get(output.0 as usize)? else { return None };
    let (condition, of) = (input(works, work, expr, *condition)?.clone(), input(works, work, expr, *of)?.clone());
    let otherwise = number(expr, *otherwise)?;
    (shape.elements().ok() == Some(of.elements())).then_some(Chosen { condition, of, otherwise })
}

/// A transposition of four dimensions: the shape before, and which of its dimensions each is.
pub(super) fn transposition(works: &dyn Works, work: WorkId) -> Option<([u64; 4], [usize; 4])> {
    let Computes::Request(KernelRequest::Movement { movement: Movement::Transpose { shape, perm }, .. }) = works.computes(work) else {
        return None;
    };
    Some((shape[..].try_into().ok()?, perm[..].try_into().ok()?))
}
