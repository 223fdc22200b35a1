//! Expressions with many operands, split into parts with few.

use std::collections::{HashMap, HashSet};

use plimsoll_base::Result;

use super::{Expr, ExprBuilder, Instr, Reg, Uses};

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The computation.
    pub expr: Expr,
    /// Its operands, in order.
    pub operands: Vec<PartOperand>,
}

/// Where an operand of a part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOperand {
    /// The operand of the whole expression with that number.
    Input(usize),
    /// A result of an earlier part.
    Made {
        /// The part.
        part: usize,
        /// Which of its results.
        result: usize,
    },
}

impl Expr {
    /// The expression in parts of about `most` operands and numbers, run one after the other: the same steps in the same order, so the same bits.
    /// The result of the last part is that of the expression. It is cut where the fewest values are carried on. An expression without
    /// exactly one computed result is one part.
    ///
    /// # Errors
    /// As [`ExprBuilder::input`].
    pub fn split(&self, most: usize) -> Result<Vec<Part>> {
        let is_computed = |at: usize| !matches!(self.instrs()[at], Instr::Input(_) | Instr::Const(_));
        let Uses { needed, last } = self.uses();
        let ranges = match self.outputs() {
            [result] if is_computed(result.0 as usize) => {
                let steps: Vec<usize> = (0..self.instrs().len()).filter(|&at| needed[at] && is_computed(at)).collect();
                ranges(self, &steps, &last, most)
            }
            _ => Vec::new(),
        };
        if ranges.len() < 2 {
            let operands = (0..self.inputs().len()).map(PartOperand::Input).collect();
            return Ok(vec![Part { expr: self.clone(), operands }]);
        }
        let mut parts = Vec::with_capacity(ranges.len());
        let mut made: HashMap<Reg, PartOperand> = HashMap::new();
        for steps in ranges {
            let mut builder = ExprBuilder::new();
            let mut operands: Vec<PartOperand> = Vec::new();
            let mut here: HashMap<Reg, Reg> = HashMap::new();
            for &at in &steps {
                for reg in self.instrs()[at].operands().into_iter().flatten() {
                    if here.contains_key(&reg) {
                        continue;
                    }
                    let source = match self.instrs()[reg.0 as usize] {
                        Instr::Const(value) => {
                            here.insert(reg, builder.constant(value));
                            continue;
                        }
                        Instr::Input(input) => PartOperand::Input(input as usize),
                        _ => made[&reg],
                    };
                    here.insert(reg, builder.input(self.type_of(reg))?);
                    operands.push(source);
                }
                let reg = Reg(at as u32);
                let step = self.instrs()[at].with_operands(|reg| here[&reg]);
                here.insert(reg, builder.step(step, self.type_of(reg)));
            }
            let end = steps.last().copied().unwrap_or_default();
            let carried: Vec<Reg> = steps.iter().filter(|&&at| last[at] > end).map(|&at| Reg(at as u32)).collect();
            made.extend(carried.iter().enumerate().map(|(result, reg)| (*reg, PartOperand::Made { part: parts.len(), result })));
            let expr = builder.finish(carried.iter().map(|reg| here[reg]).collect());
            parts.push(Part { expr, operands });
        }
        Ok(parts)
    }
}

/// The steps of each part.
fn ranges(expr: &Expr, steps: &[usize], last: &[usize], most: usize) -> Vec<Vec<usize>> {
    // How many computed values are read after each step.
    let mut change = vec![0i64; expr.instrs().len() + 1];
    for &at in steps {
        change[at] += 1;
        change[last[at].min(expr.instrs().len())] -= 1;
    }
    let mut sum = 0;
    let live: Vec<i64> = change
        .iter()
        .map(|change| {
            sum += change;
            sum
        })
        .collect();
    let mut ranges = Vec::new();
    let mut from = 0;
    while from < steps.len() {
        let mut sources: HashSet<Reg> = HashSet::new();
        let mut best: Option<(i64, usize)> = None;
        let mut to = from;
        while to < steps.len() {
            let operands = expr.instrs()[steps[to]].operands().into_iter().flatten();
            sources.extend(operands.filter(|reg| match expr.instrs()[reg.0 as usize] {
                Instr::Const(_) | Instr::Input(_) => true,
                _ => (reg.0 as usize) < steps[from],
            }));
            if sources.len() > most && best.is_some() {
                break;
            }
            let live = live[steps[to]];
            if best.is_none_or(|(fewest, _)| live <= fewest) {
                best = Some((live, to));
            }
            to += 1;
        }
        let end = match best {
            Some((_, cut)) if to < steps.len() => cut + 1,
            _ => to,
        };
        ranges.push(steps[from..end].to_vec());
        from = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use plimsoll_base::DataType;

    use super::*;
    use crate::expr::{BinaryOp, Scalar, UnaryOp};

    /// AddN's order: groups of eight.
    fn sum(count: usize) -> Expr {
        let mut builder = ExprBuilder::new();
        let inputs: Vec<Reg> = (0..count).map(|_| builder.input(DataType::Float).unwrap()).collect();
        let mut total: Option<Reg> = None;
        for group in inputs.chunks(8) {
            let mut sum = group[0];
            for operand in &group[1..] {
                sum = builder.binary(BinaryOp::Add, sum, *operand).unwrap();
            }
            total = Some(total.map_or(sum, |total| builder.binary(BinaryOp::Add, total, sum).unwrap()));
        }
        let total = total.unwrap();
        builder.finish(vec![total])
    }

    /// The value of an expression of floats.
    fn value(expr: &Expr, operands: &[f32]) -> Vec<f32> {
        let mut values: Vec<f32> = Vec::new();
        for instr in expr.instrs() {
            let at = |reg: &Reg| values[reg.0 as usize];
            values.push(match instr {
                Instr::Input(input) => operands[*input as usize],
                Instr::Const(Scalar::F32(value)) => *value,
                Instr::Unary(UnaryOp::Neg, a) => -at(a),
                Instr::Binary(BinaryOp::Add, a, b) => at(a) + at(b),
                Instr::Binary(BinaryOp::Mul, a, b) => at(a) * at(b),
                other => panic!("{other:?}"),
            });
        }
        expr.outputs().iter().map(|reg| values[reg.0 as usize]).collect()
    }

    fn check(expr: &Expr, most: usize) -> Vec<Part> {
        let operands: Vec<f32> = (0..expr.inputs().len()).map(|number| 1.0 / (number as f32 + 0.7)).collect();
        let parts = expr.split(most).unwrap();
        let mut made: Vec<Vec<f32>> = Vec::new();
        for part in &parts {
            let given: Vec<f32> = part
                .operands
                .iter()
                .map(|operand| match *operand {
                    PartOperand::Input(input) => operands[input],
                    PartOperand::Made { part, result } => made[part][result],
                })
                .collect();
            made.push(value(&part.expr, &given));
        }
        assert_eq!(
            made.last().unwrap().iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
            value(expr, &operands).iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        );
        parts
    }

    #[test]
    fn parts_compute_what_the_whole_does() {
        for (count, parts) in [(8, 1), (24, 1), (33, 2), (100, 5), (70_000, 3050)] {
            let split = check(&sum(count), 24);
            assert!(split.len().abs_diff(parts) <= parts, "{count}: {}", split.len());
            assert!(split.iter().all(|part| part.operands.len() <= 25 && part.expr.outputs().len() == 1), "{count}");
        }
        // Many values are carried on, and constants are made anew.
        let mut builder = ExprBuilder::new();
        let two = builder.constant(Scalar::F32(2.0));
        let doubled: Vec<Reg> = (0..50)
            .map(|_| {
                let input = builder.input(DataType::Float).unwrap();
                let negative = builder.unary(UnaryOp::Neg, input).unwrap();
                builder.binary(BinaryOp::Mul, negative, two).unwrap()
            })
            .collect();
        let total = doubled.into_iter().rev().reduce(|sum, value| builder.binary(BinaryOp::Add, sum, value).unwrap()).unwrap();
        check(&builder.finish(vec![total]), 6);
    }
}
