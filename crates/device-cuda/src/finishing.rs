//! Epilogues that engines of cuDNN may compute. Behind a convolution: sums with a bias and with a tensor as large as the result, and `max(x, 0)`
//! of that. Behind it and behind its gradient by the input: the gradient of a ReLU, also of the sum with another gradient.

use plimsoll_base::DataType;
use plimsoll_request::anchor::Epilogue;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg};

use crate::cudnn::{ConvolutionKind, Finish};

/// Longer expressions are no such epilogues.
const MOST_STEPS: usize = 8;

/// An epilogue as engines have it, and which of its further operands are what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finishing {
    pub finish: Finish,
    bias: Option<usize>,
    residual: Option<usize>,
    features: Option<usize>,
}

impl Finishing {
    /// None for other epilogues. There is one result, of the type of the elements.
    pub fn of(kind: ConvolutionKind, data_type: DataType, shape: &[u64], epilogue: &Epilogue) -> Option<Finishing> {
        let Epilogue { expr, operands } = epilogue;
        let [output] = expr.outputs() else { return None };
        let is_of_type = expr.inputs().iter().all(|of| *of == data_type) && expr.type_of(*output) == data_type;
        if !is_of_type || expr.instrs().len() > MOST_STEPS || expr.inputs().len() != operands.len() + 1 {
            return None;
        }
        match kind {
            // A product is a convolution forward, also where it is a gradient.
            ConvolutionKind::Forward => {
                let forward = Finishing::of_forward(expr, *output, shape, operands);
                forward.or_else(|| Finishing::of_gradient(expr, *output, shape, operands))
            }
            ConvolutionKind::ByInput => Finishing::of_gradient(expr, *output, shape, operands),
            ConvolutionKind::ByFilter => None,
        }
    }

    /// Sums of each channel of the result, which are results, too.
    pub const STATISTICS: Finishing = Finishing { finish: Finish::STATISTICS, bias: None, residual: None, features: None };

    /// Each operand is added once, and one of them has a number for each channel, which come last. In which order is added it does not say: a
    /// result in another order is as near.
    fn of_forward(expr: &Expr, output: Reg, shape: &[u64], operands: &[Vec<u64>]) -> Option<Finishing> {
        let (relu, sum) = match maximum_with_zero(expr, output) {
            Some(of) => (true, of),
            None => (false, output),
        };
        if sum_of(expr, sum)?.into_iter().ne(0..=operands.len() as u32) {
            return None;
        }
        let is_bias = |operand: &[u64]| operand.last() == shape.last() && operand.iter().rev().skip(1).all(|size| *size == 1);
        let (bias, residual) = match operands {
            [bias] if is_bias(bias) => (0, None),
            [bias, whole] if is_bias(bias) && is_whole(whole, shape) => (0, Some(1)),
            [whole, bias] if is_bias(bias) && is_whole(whole, shape) => (1, Some(0)),
            _ => return None,
        };
        let finish = Finish { residual: residual.is_some(), bias: true, relu, ..Finish::NONE };
        Some(Finishing { finish, bias: Some(bias), residual, features: None })
    }

    /// All operands are as large as the result: features, and another gradient that is added before.
    fn of_gradient(expr: &Expr, output: Reg, shape: &[u64], operands: &[Vec<u64>]) -> Option<Finishing> {
        let (features, gradient) = where_above_zero(expr, output)?;
        let features = features.checked_sub(1)? as usize;
        let residual = match (&sum_of(expr, gradient)?[..], operands.len()) {
            ([0], 1) => None,
            ([0, other], 2) if *other as usize != features + 1 => Some(*other as usize - 1),
            _ => return None,
        };
        let finish = Finish { residual: residual.is_some(), relu_grad: true, ..Finish::NONE };
        let are_whole = operands.iter().all(|operand| is_whole(operand, shape));
        are_whole.then_some(Finishing { finish, bias: None, residual, features: Some(features) })
    }

    /// The further operands in the order in which graphs have them.
    pub fn operands(self) -> impl Iterator<Item = usize> {
        [self.bias, self.residual, self.features].into_iter().flatten()
    }
}

/// Whether an operand has an element for each of a shape's.
fn is_whole(operand: &[u64], shape: &[u64]) -> bool {
    operand.iter().skip_while(|size| **size == 1).eq(shape.iter().skip_while(|size| **size == 1))
}

fn instr(expr: &Expr, reg: Reg) -> Option<&Instr> {
    expr.instrs().get(reg.0 as usize)
}

fn is_zero(expr: &Expr, reg: Reg) -> bool {
    matches!(instr(expr, reg), Some(Instr::Const(number)) if number.bits() == 0)
}

/// The other operand of a maximum with zero.
fn maximum_with_zero(expr: &Expr, reg: Reg) -> Option<Reg> {
    let Instr::Binary(BinaryOp::Maximum, a, b) = instr(expr, reg)? else { return None };
    if is_zero(expr, *b) { Some(*a) } else { is_zero(expr, *a).then_some(*b) }
}

/// The operand above zero where there is not zero, and what is there.
fn where_above_zero(expr: &Expr, reg: Reg) -> Option<(u32, Reg)> {
    let Instr::Select(is_above, there, elsewhere) = instr(expr, reg)? else { return None };
    let Instr::Binary(BinaryOp::Greater, features, zero) = instr(expr, *is_above)? else { return None };
    let Instr::Input(features) = instr(expr, *features)? else { return None };
    (is_zero(expr, *zero) && is_zero(expr, *elsewhere)).then_some((*features, *there))
}

/// The operands that a sum adds, in their order.
fn sum_of(expr: &Expr, reg: Reg) -> Option<Vec<u32>> {
    let mut added = Vec::new();
    terms(expr, reg, &mut added)?;
    added.sort_unstable();
    Some(added)
}

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
                let known = Finishing::of(ConvolutionKind::Forward, of, &SHAPE, &epilogue);
                known.map(|known| (known.finish.to_string(), known.operands().collect::<Vec<_>>()))
            };
            let text = |text: &str, bias: usize, residual: Option<usize>| {
                Some((text.to_string(), [bias].into_iter().chain(residual).collect::<Vec<_>>()))
            };
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
        let none = |epilogue: Epilogue| {
            for kind in ConvolutionKind::ALL {
                assert_eq!(Finishing::of(kind, of, &SHAPE, &epilogue), None, "{kind:?}: {epilogue:?}");
            }
        };
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
        assert_eq!(Finishing::of(ConvolutionKind::Forward, of, &SHAPE, &halves), None);
    }

    /// `features > 0 ? gradient : 0`.
    fn masked(b: &mut ExprBuilder, of: DataType, features: Reg, gradient: Reg) -> Reg {
        let zero = b.number(of, 0.0).unwrap();
        let is_above = b.binary(BinaryOp::Greater, features, zero).unwrap();
        b.select(is_above, gradient, zero).unwrap()
    }

    #[test]
    fn gradients_of_relu_are_known() {
        for of in [DataType::Float, DataType::Half, DataType::Bfloat16] {
            let known = |kind, epilogue: &Epilogue| {
                let known = Finishing::of(kind, of, &SHAPE, epilogue);
                known.map(|known| (known.finish.to_string(), known.operands().collect::<Vec<_>>()))
            };
            let alone = epilogue(of, &[&SHAPE], |b, i| vec![masked(b, of, i[1], i[0])]);
            let [forward, by_input, by_filter] = ConvolutionKind::ALL.map(|kind| known(kind, &alone));
            let expected = Some(("relu_grad".to_string(), vec![0]));
            assert_eq!((&forward, &by_input, by_filter), (&expected, &expected, None));
            // The gradient that is added comes first, then the features, however the epilogue has them.
            for (features, other) in [(1, 2), (2, 1)] {
                for turned in [false, true] {
                    let sum = epilogue(of, &[&SHAPE, &SHAPE], |b, i| {
                        let sum = if turned { add(b, i[other], i[0]) } else { add(b, i[0], i[other]) };
                        vec![masked(b, of, i[features], sum)]
                    });
                    let expected = Some(("residual+relu_grad".to_string(), vec![other - 1, features - 1]));
                    assert_eq!(known(ConvolutionKind::ByInput, &sum), expected);
                }
            }
        }
    }

    #[test]
    fn other_epilogues_of_gradients_are_not() {
        let of = DataType::Float;
        let none = |epilogue: Epilogue| {
            for kind in ConvolutionKind::ALL {
                assert_eq!(Finishing::of(kind, of, &SHAPE, &epilogue), None, "{kind:?}: {epilogue:?}");
            }
        };
        // A sum alone; features of another size; the gradient as its own features; features that are added, too.
        none(epilogue(of, &[&SHAPE], |b, i| vec![add(b, i[0], i[1])]));
        none(epilogue(of, &[&[8]], |b, i| vec![masked(b, of, i[1], i[0])]));
        none(epilogue(of, &[], |b, i| vec![masked(b, of, i[0], i[0])]));
        none(epilogue(of, &[&SHAPE], |b, i| {
            let sum = add(b, i[0], i[1]);
            vec![masked(b, of, i[1], sum)]
        }));
        // Two gradients that are added; the other one alone; what is added behind.
        none(epilogue(of, &[&SHAPE, &SHAPE, &SHAPE], |b, i| {
            let sum = add(b, i[0], i[1]);
            let sum = add(b, sum, i[2]);
            vec![masked(b, of, i[3], sum)]
        }));
        none(epilogue(of, &[&SHAPE, &SHAPE], |b, i| vec![masked(b, of, i[1], i[2])]));
        none(epilogue(of, &[&SHAPE, &SHAPE], |b, i| {
            let first = masked(b, of, i[1], i[0]);
            vec![add(b, first, i[2])]
        }));
        // Above another number, another number elsewhere, below zero, and the other way round.
        for (above, elsewhere) in [(1.0, 0.0), (0.0, 1.0)] {
            none(epilogue(of, &[&SHAPE], |b, i| {
                let [above, elsewhere] = [above, elsewhere].map(|number| b.number(of, number).unwrap());
                let is_above = b.binary(BinaryOp::Greater, i[1], above).unwrap();
                vec![b.select(is_above, i[0], elsewhere).unwrap()]
            }));
        }
        for (op, is_turned) in [(BinaryOp::Less, false), (BinaryOp::GreaterEqual, false), (BinaryOp::Greater, true)] {
            none(epilogue(of, &[&SHAPE], |b, i| {
                let zero = b.number(of, 0.0).unwrap();
                let is_so = b.binary(op, i[1], zero).unwrap();
                vec![if is_turned { b.select(is_so, zero, i[0]) } else { b.select(is_so, i[0], zero) }.unwrap()]
            }));
        }
    }
}
