//! An operand of which an expression only asks one thing.

use plimsoll_base::{DataType, Result};

use super::{Expr, ExprBuilder, Instr, Reg, Uses};

/// An expression in two parts: what it asks of an operand, and the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Masked {
    /// A bool of the operand alone.
    pub mask: Expr,
    /// The expression with that bool in the operand's place.
    pub rest: Expr,
}

/// What a step is computed of.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Numbers,
    Operand,
    Others,
}

impl Expr {
    /// The expression in two parts where it reads an operand only for one bool: as the gradient of `Relu` only asks whether a feature is above
    /// 0. The steps are the same, so the bits are. None where the expression needs more of the operand, or nothing, or where the
    /// bool may fault.
    ///
    /// # Errors
    /// As [`ExprBuilder::input`].
    pub fn masked(&self, operand: usize) -> Result<Option<Masked>> {
        let Uses { needed, last } = self.uses();
        let of = self.made_of(operand);
        // What the rest reads of the operand's own steps.
        let mut asked: Option<Reg> = None;
        for at in (0..self.instrs().len()).filter(|&at| needed[at]) {
            let is_rest = of[at] == Of::Others;
            let read = self.instrs()[at].operands().into_iter().flatten().filter(|_| is_rest);
            let is_result = last[at] == usize::MAX;
            for reg in read.chain(is_result.then_some(Reg(at as u32))).filter(|reg| of[reg.0 as usize] == Of::Operand) {
                if self.type_of(reg) != DataType::Bool || asked.is_some_and(|other| other != reg) {
                    return Ok(None);
                }
                asked = Some(reg);
            }
        }
        let Some(asked) = asked.filter(|_| self.inputs().get(operand) != Some(&DataType::Bool)) else { return Ok(None) };
        let mut is_asked = vec![false; self.instrs().len()];
        is_asked[asked.0 as usize] = true;
        for at in (0..=asked.0 as usize).rev().filter(|&at| needed[at]) {
            if is_asked[at] {
                self.instrs()[at].operands().into_iter().flatten().for_each(|reg| is_asked[reg.0 as usize] = true);
            }
        }
        let mut builder = ExprBuilder::new();
        let mut here = vec![Reg(0); self.instrs().len()];
        for at in (0..=asked.0 as usize).filter(|&at| is_asked[at]) {
            here[at] = match self.instrs()[at] {
                Instr::Input(_) => builder.input(self.inputs()[operand])?,
                step => builder.step(step.with_operands(|reg| here[reg.0 as usize]), self.type_of(Reg(at as u32))),
            };
        }
        let mask = builder.finish(vec![here[asked.0 as usize]]);
        if mask.can_fail() {
            return Ok(None);
        }
        let mut builder = ExprBuilder::new();
        let inputs = self.inputs().iter().enumerate();
        let inputs = inputs.map(|(input, data_type)| builder.input(if input == operand { DataType::Bool } else { *data_type }));
        let inputs = inputs.collect::<Result<Vec<Reg>>>()?;
        for (at, step) in self.instrs().iter().enumerate() {
            here[at] = match *step {
                _ if at == asked.0 as usize => inputs[operand],
                Instr::Input(input) => inputs[input as usize],
                step if of[at] != Of::Operand => builder.step(step.with_operands(|reg| here[reg.0 as usize]), self.type_of(Reg(at as u32))),
                _ => continue,
            };
        }
        let rest = builder.finish(self.outputs().iter().map(|reg| here[reg.0 as usize]).collect());
        Ok(Some(Masked { mask, rest }))
    }

    /// For each step, whether it is computed of numbers, of that operand and numbers, or of others.
    fn made_of(&self, operand: usize) -> Vec<Of> {
        let mut of: Vec<Of> = Vec::with_capacity(self.instrs().len());
        for step in self.instrs() {
            of.push(match step {
                Instr::Input(input) if *input as usize == operand => Of::Operand,
                Instr::Input(_) => Of::Others,
                _ => {
                    step.operands().into_iter().flatten().map(|reg| of[reg.0 as usize]).fold(Of::Numbers, |one, other| match (one, other) {
                        (Of::Others, _) | (_, Of::Others) => Of::Others,
                        (Of::Operand, _) | (_, Of::Operand) => Of::Operand,
                        _ => Of::Numbers,
                    })
                }
            });
        }
        of
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BinaryOp, Scalar};
    use super::*;

    /// A gradient, a feature, and 0.
    fn begin() -> (ExprBuilder, [Reg; 3]) {
        let mut builder = ExprBuilder::new();
        let (gradient, feature) = (builder.input(DataType::Float).unwrap(), builder.input(DataType::Float).unwrap());
        let zero = builder.constant(Scalar::F32(0.0));
        (builder, [gradient, feature, zero])
    }

    #[test]
    fn a_gradient_of_relu_asks_for_a_mask() {
        let (mut builder, [gradient, feature, zero]) = begin();
        let above = builder.binary(BinaryOp::Greater, feature, zero).unwrap();
        let result = builder.select(above, gradient, zero).unwrap();
        let expr = builder.finish(vec![result]);
        let Masked { mask, rest } = expr.masked(1).unwrap().unwrap();
        assert_eq!(mask.to_string(), "r0: float = in0\nr1: float = F32(0.0)\nr2: bool = Greater r0 r1\n-> r2");
        assert_eq!(rest.inputs(), [DataType::Float, DataType::Bool]);
        assert!(rest.to_string().ends_with("r2: float = F32(0.0)\nr3: float = Select r1 r0 r2\n-> r3"), "{rest}");
        assert_eq!(expr.masked(0).unwrap(), None);
        assert_eq!(rest.masked(1).unwrap(), None);
    }

    #[test]
    fn a_number_that_is_read_elsewhere_is_needed() {
        for (with_product, with_both) in [(true, false), (false, true)] {
            let (mut builder, [gradient, feature, zero]) = begin();
            let above = builder.binary(BinaryOp::Greater, feature, zero).unwrap();
            let mut result = builder.select(above, gradient, zero).unwrap();
            if with_product {
                result = builder.binary(BinaryOp::Mul, result, feature).unwrap();
            }
            if with_both {
                let below = builder.binary(BinaryOp::Less, feature, gradient).unwrap();
                result = builder.select(below, gradient, result).unwrap();
            }
            assert_eq!(builder.finish(vec![result]).masked(1).unwrap(), None);
        }
    }

    #[test]
    fn two_questions_that_become_one_are_one() {
        let (mut builder, [gradient, feature, zero]) = begin();
        let six = builder.constant(Scalar::F32(6.0));
        let above = builder.binary(BinaryOp::Greater, feature, zero).unwrap();
        let below = builder.binary(BinaryOp::Less, feature, six).unwrap();
        let on = builder.binary(BinaryOp::LogicalAnd, above, below).unwrap();
        let result = builder.select(on, gradient, zero).unwrap();
        // The mask is a result, too.
        let Masked { mask, rest } = builder.finish(vec![result, on]).masked(1).unwrap().unwrap();
        assert_eq!((mask.instrs().len(), mask.inputs()), (6, &[DataType::Float][..]));
        assert_eq!(rest.output_types(), [DataType::Float, DataType::Bool]);
    }
}
