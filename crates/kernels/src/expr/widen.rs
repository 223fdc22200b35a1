//! Floats of two bytes: expressions compute with them as floats, and round each result to its type. The few primitives that TensorFlow
//! computes in several steps are rounded after each.

use std::collections::HashMap;

use plimsoll_base::{DataType, Result};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, UnaryOp};

/// The expression with floats in the place of floats of two bytes. Operands and results keep their types: operands are widened when they
/// are read, and each step's result is rounded, so a chain of steps gives the bits of the steps one by one. None where there are none.
pub(super) fn widened(expr: &Expr) -> Result<Option<Expr>> {
    let types = (0..expr.instrs().len()).map(|at| expr.type_of(Reg(at as u32)));
    if types.into_iter().all(|data_type| data_type.compute_type() == data_type) {
        return Ok(None);
    }
    let mut widening = Widening::default();
    let inputs = expr.inputs().iter().map(|data_type| widening.builder.input(*data_type)).collect::<Result<Vec<Reg>>>()?;
    // For each step, its value as it is computed with.
    let mut wide: Vec<Reg> = Vec::with_capacity(expr.instrs().len());
    for (at, instr) in expr.instrs().iter().enumerate() {
        let data_type = expr.type_of(Reg(at as u32));
        let value = |reg: Reg| wide[reg.0 as usize];
        let made = match *instr {
            Instr::Input(input) => {
                let narrow = inputs[input as usize];
                widening.widen(narrow)?
            }
            Instr::Const(Scalar::F16(value)) => widening.builder.constant(Scalar::F32(value.to_f32())),
            Instr::Const(Scalar::Bf16(value)) => widening.builder.constant(Scalar::F32(value.to_f32())),
            Instr::Const(value) => widening.builder.constant(value),
            Instr::Unary(UnaryOp::Sigmoid, a) if data_type.compute_type() != data_type => widening.sigmoid(value(a), data_type)?,
            Instr::Unary(op, a) => {
                let result = widening.builder.unary(op, value(a))?;
                widening.rounded(result, data_type)?
            }
            // The quotient is a number of the type before it is rounded down.
            Instr::Binary(BinaryOp::FloorDiv, a, b) if data_type.compute_type() != data_type => {
                let quotient = widening.builder.binary(BinaryOp::Div, value(a), value(b))?;
                let quotient = widening.rounded(quotient, data_type)?;
                widening.builder.unary(UnaryOp::Floor, quotient)?
            }
            Instr::Binary(op, a, b) => {
                let result = widening.builder.binary(op, value(a), value(b))?;
                widening.rounded(result, data_type)?
            }
            Instr::Select(condition, a, b) => widening.builder.select(value(condition), value(a), value(b))?,
            Instr::Cast(_, a) => {
                let result = widening.builder.cast(data_type.compute_type(), value(a))?;
                widening.rounded(result, data_type)?
            }
        };
        wide.push(made);
    }
    let outputs = expr.outputs().iter().map(|reg| widening.narrow(wide[reg.0 as usize], expr.type_of(*reg)));
    let outputs = outputs.collect::<Result<Vec<Reg>>>()?;
    Ok(Some(widening.builder.finish(outputs)))
}

#[derive(Default)]
struct Widening {
    builder: ExprBuilder,
    /// The numbers of two bytes that floats were widened from.
    narrow: HashMap<Reg, Reg>,
}

impl Widening {
    fn widen(&mut self, narrow: Reg) -> Result<Reg> {
        let wide = self.builder.cast(self.builder.type_of(narrow).compute_type(), narrow)?;
        if wide != narrow {
            self.narrow.insert(wide, narrow);
        }
        Ok(wide)
    }

    /// TensorFlow's: `e / (1 + e)` with `e = exp(x)`, each step rounded, and 1 where `e` is infinite.
    fn sigmoid(&mut self, x: Reg, data_type: DataType) -> Result<Reg> {
        let (one, infinity) = (self.builder.constant(Scalar::F32(1.0)), self.builder.constant(Scalar::F32(f32::INFINITY)));
        let exp = self.builder.unary(UnaryOp::Exp, x)?;
        let exp = self.rounded(exp, data_type)?;
        let sum = self.builder.binary(BinaryOp::Add, one, exp)?;
        let sum = self.rounded(sum, data_type)?;
        let quotient = self.builder.binary(BinaryOp::Div, exp, sum)?;
        let quotient = self.rounded(quotient, data_type)?;
        let is_infinite = self.builder.binary(BinaryOp::Equal, exp, infinity)?;
        self.builder.select(is_infinite, one, quotient)
    }

    /// A number of the type, as it is computed with.
    fn rounded(&mut self, value: Reg, data_type: DataType) -> Result<Reg> {
        let narrow = self.narrow(value, data_type)?;
        self.widen(narrow)
    }

    /// The number in its type.
    fn narrow(&mut self, value: Reg, data_type: DataType) -> Result<Reg> {
        match self.narrow.get(&value) {
            Some(narrow) if self.builder.type_of(*narrow) == data_type => Ok(*narrow),
            _ => self.builder.cast(data_type, value),
        }
    }
}
