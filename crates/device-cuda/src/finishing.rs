//! Epilogues that engines of cuDNN may compute: sums with a bias and with a tensor as large as the result, and `max(x, 0)` of that.

use plimsoll_base::DataType;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg};

use crate::cudnn::Finish;

/// Longer expressions are no such epilogues.
const MOST_STEPS: usize = 8;

/// An epilogue as engines have it, and which of its further operands are what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finishing {
    pub finish: Finish,
    pub bias: usize,
    pub residual: Option<usize>,
}

impl Finishing {
    /// None for other epilogues: each operand is added once, one of them has a number for each channel, which come last, and there is one
    /// result, of the type of the elements. In which order is added it does not say: a result in another order is as near.
    pub fn of(data_type: DataType, shape: &[u64], epilogue: &Epilogue) -> Option<Finishing> {
        let Epilogue { expr, operands } = epilogue;
        let [output] = expr.outputs() else { return None };
        let is_of_type = expr.inputs().iter().all(|of| *of == data_type) && expr.type_of(*output) == data_type;
        if !is_of_type || expr.instrs().len() > MOST_STEPS || expr.inputs().len() != operands.len() + 1 {
            return None;
        }
        let (relu, sum) = match maximum_with_zero(expr, *output) {
            Some(of) => (true, of),
            None => (false, *output),
        };
        let mut added = Vec::new();
        terms(expr, sum, &mut added)?;
        added.sort_unstable();
        if added.iter().copied().ne(0..=operands.len() as u32) {
            return None;
        }
        let is_bias = |operand: &[u64]| operand.last() == shape.last() && operand.iter().rev().skip(1).all(|size| *size == 1);
        let is_whole = |operand: &[u64]| operand.iter().skip_while(|size| **size == 1).eq(shape.iter().skip_while(|size| **size == 1));
        let (bias, residual) = match &operands[..] {
            [bias] if is_bias(bias) => (0, None),
            [bias, whole] if is_bias(bias) && is_whole(whole) => (0, Some(1)),
            [whole, bias] if is_bias(bias) && is_whole(whole) => (1, Some(0)),
            _ => return None,
        };
        Some(Finishing { finish: Finish { residual: residual.is_some(), bias: true, relu }, bias, residual })
    }
}

fn instr(expr: &Expr, reg: Reg) -> Option<&Instr> {
    expr.instrs().get(reg.0 as usize)
}

/// The other operand of a maximum with zero.
fn maximum_with_zero(expr: &Expr, reg: Reg) -> Option<Reg> {
    let Instr::Binary(BinaryOp::Maximum, a, b) = instr(expr, reg)? else { return None };
    let is_zero = |reg: Reg| matches!(instr(expr, reg), Some(Instr::Const(number)) if number.bits() == 0);
    if is_zero(*b) { Some(*a) } else { is_zero(*a).then_some(*b) }
}

/// The operands that a sum adds.
fn terms(expr: &Expr, reg: Reg, added: &mut Vec<u32>) -> Option<()> {
    match instr(expr, reg)? {
        Instr::Input(number) => added.push(*number),
        Instr::Binary(BinaryOp::Add, a, b) => {
            terms(expr, *a, added)?;
            terms(expr, *b, added)?;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use plimsoll_request::expr::ExprBuilder;

    use super::*;

    const SHAPE: [u64; 4] = [2, 5, 5, 8];

    /// An epilogue of so many operands; `make` gets the element and them.
    fn epilogue(data_type: DataType, operands: &[&[u64]], make: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Vec<Reg>) -> Epilogue {
        let mut builder = ExprBuilder::new();
        let inputs: Vec<Reg> = (0..=operands.len()).map(|_| builder.input(data_type).unwrap()).collect();
        let outputs = make(&mut builder, &inputs);
        Epilogue { expr: builder.finish(outputs), operands: operands.iter().map(|shape| shape.to_vec()).collect() }
    }

    fn add(b: &mut ExprBuilder, x: Reg, y: Reg) -> Reg {
        b.binary(BinaryOp::Add, x, y).unwrap()
    }

    fn relu(b: &mut ExprBuilder, of: DataType, x: Reg) -> Reg {
        let zero = b.number(of, 0.0).unwrap();
        b.binary(BinaryOp::Maximum, x, zero).unwrap()
    }

    #[test]
    fn sums_with_a_bias_are_known() {
        for of in [DataType::Float, DataType::Half, DataType::Bfloat16] {
            let known = |epilogue: Epilogue| {
                Finishing::of(of, &SHAPE, &epilogue).map(|known| (known.finish.to_string(), known.bias, known.residual))
            };
            let text = |text: &str, bias, residual| Some((text.to_string(), bias, residual));
            let bias = [8u64];
            assert_eq!(known(epilogue(of, &[&bias], |b, i| vec![add(b, i[0], i[1])])), text("bias", 0, None));
            assert_eq!(known(epilogue(of, &[&[1, 1, 8]], |b, i| vec![add(b, i[1], i[0])])), text("bias", 0, None));
            let with_relu = epilogue(of, &[&bias], |b, i| {
                let sum = add(b, i[0], i[1]);
                vec![relu(b, of, sum)]
            });
            assert_eq!(known(with_relu), text("bias+relu", 0, None));
            // In any order.
            for order in [[0, 1, 2], [0, 2, 1], [1, 2, 0]] {
                let residual = epilogue(of, &[&SHAPE, &bias], |b, i| {
                    let first = add(b, i[order[0]], i[order[1]]);
                    let sum = add(b, first, i[order[2]]);
                    vec![relu(b, of, sum)]
                });
                assert_eq!(known(residual), text("residual+bias+relu", 1, Some(0)));
            }
        }
    }

    #[test]
    fn other_epilogues_are_not() {
        let of = DataType::Float;
        let none = |epilogue: Epilogue| assert_eq!(Finishing::of(of, &SHAPE, &epilogue), None, "{epilogue:?}");
        let bias = [8u64];
        none(epilogue(of, &[], |b, i| vec![relu(b, of, i[0])]));
        none(epilogue(of, &[&bias], |b, i| vec![b.binary(BinaryOp::Mul, i[0], i[1]).unwrap()]));
        none(epilogue(of, &[&bias], |b, i| {
            let sum = add(b, i[0], i[1]);
            vec![add(b, sum, i[1])]
        }));
        none(epilogue(of, &[&bias], |b, i| {
            let sum = add(b, i[0], i[1]);
            let one = b.number(of, 1.0).unwrap();
            vec![b.binary(BinaryOp::Maximum, sum, one).unwrap()]
        }));
        // Both sums are wanted; a number for each row; two residuals.
        none(epilogue(of, &[&bias], |b, i| {
            let sum = add(b, i[0], i[1]);
            vec![sum, relu(b, of, sum)]
        }));
        none(epilogue(of, &[&[5, 1]], |b, i| vec![add(b, i[0], i[1])]));
        none(epilogue(of, &[&[]], |b, i| vec![add(b, i[0], i[1])]));
        none(epilogue(of, &[&SHAPE, &SHAPE], |b, i| {
            let sum = add(b, i[0], i[1]);
            vec![add(b, sum, i[2])]
        }));
        // relu(x) + bias
        none(epilogue(of, &[&bias], |b, i| {
            let first = relu(b, of, i[0]);
            vec![add(b, first, i[1])]
        }));
        let halves = epilogue(DataType::Half, &[&bias], |b, i| vec![add(b, i[0], i[1])]);
        assert_eq!(Finishing::of(of, &SHAPE, &halves), None);
    }
}
