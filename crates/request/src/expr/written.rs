//! Expressions as they are written and read. An expression that is read is checked as one that is built.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use super::{Expr, ExprBuilder, Instr, Reg, Scalar};

/// An expression without the types of its steps, which follow from its operands.
#[derive(Serialize, Deserialize)]
pub(super) struct Written {
    inputs: Vec<DataType>,
    steps: Vec<Instr>,
    results: Vec<Reg>,
}

impl From<Expr> for Written {
    fn from(expr: Expr) -> Written {
        Written { inputs: expr.inputs().to_vec(), steps: expr.instrs().to_vec(), results: expr.outputs().to_vec() }
    }
}

impl TryFrom<Written> for Expr {
    type Error = Error;

    /// # Errors
    /// INVALID_ARGUMENT where a step reads a later one, comes twice or does not fit its operands.
    fn try_from(written: Written) -> Result<Expr> {
        let mut builder = ExprBuilder::new();
        for (at, step) in written.steps.iter().enumerate() {
            let wrong = |why: &str| Error::invalid_argument(format!("step {at} of an expression {why}"));
            if step.operands().into_iter().flatten().any(|operand| operand.0 as usize >= at) {
                return Err(wrong("reads one that is not before it"));
            }
            let made = match *step {
                Instr::Input(input) => match written.inputs.get(input as usize) {
                    Some(data_type) if input as usize == builder.inputs().len() => builder.input(*data_type)?,
                    _ => return Err(wrong("is an operand out of turn")),
                },
                Instr::Const(value) => builder.constant(value),
                Instr::Unary(op, a) => builder.unary(op, a)?,
                Instr::Binary(op, a, b) => builder.binary(op, a, b)?,
                Instr::Select(condition, a, b) => builder.select(condition, a, b)?,
                Instr::Cast(data_type, a) => builder.cast(data_type, a)?,
            };
            if made.0 as usize != at {
                return Err(wrong("is there before"));
            }
        }
        if builder.inputs().len() != written.inputs.len() {
            return Err(Error::invalid_argument("an expression has operands that no step names"));
        }
        if written.results.iter().any(|result| result.0 as usize >= builder.len()) {
            return Err(Error::invalid_argument("a result of an expression is no step"));
        }
        Ok(builder.finish(written.results))
    }
}

impl From<Scalar> for (DataType, u64) {
    fn from(value: Scalar) -> (DataType, u64) {
        (value.data_type(), value.bits())
    }
}

impl TryFrom<(DataType, u64)> for Scalar {
    type Error = Error;

    /// # Errors
    /// INVALID_ARGUMENT where the bits are no number of the type.
    fn try_from((data_type, bits): (DataType, u64)) -> Result<Scalar> {
        let bytes = bits.to_le_bytes();
        let value = data_type.size().and_then(|size| Scalar::from_le_bytes(data_type, bytes.get(..size)?));
        value.filter(|value| value.bits() == bits).ok_or_else(|| Error::invalid_argument(format!("{bits:#x} is no {data_type}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BinaryOp, UnaryOp};
    use super::*;

    /// An expression from a stream of numbers.
    fn build(numbers: &[u32]) -> Expr {
        let mut builder = ExprBuilder::new();
        let mut all = vec![builder.input(DataType::Float).unwrap(), builder.input(DataType::Int32).unwrap()];
        for number in numbers {
            let pick = |shift: u32| all[(number >> shift) as usize % all.len()];
            let (a, b, c) = (pick(4), pick(12), pick(20));
            let made = match number % 7 {
                0 => builder.input(DataType::Bool),
                1 => Ok(builder.constant(Scalar::F32(f32::from_bits(*number)))),
                2 => builder.unary(UnaryOp::Square, a),
                3 => builder.binary(BinaryOp::Less, a, b),
                4 => builder.select(a, b, c),
                5 => builder.cast(DataType::Int64, a),
                _ => builder.binary(BinaryOp::Mul, a, b),
            };
            all.extend(made.ok());
        }
        let results = all[all.len() - 1..].to_vec();
        builder.finish(results)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in proptest::collection::vec(any::<u32>(), 0..40)) {
            let expr = build(&numbers);
            let text = serde_json::to_string(&expr).unwrap();
            let read: Expr = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(expr, read);
        }
    }

    #[test]
    fn an_expression_that_cannot_be_built_is_refused() {
        let table = [
            (r#"{"inputs":["float"],"steps":[{"Unary":["Neg",0]}],"results":[0]}"#, "not before it"),
            (r#"{"inputs":["float"],"steps":[{"Input":1}],"results":[0]}"#, "out of turn"),
            (r#"{"inputs":["float"],"steps":[{"Input":0},{"Input":0}],"results":[0]}"#, "out of turn"),
            (r#"{"inputs":["float"],"steps":[],"results":[]}"#, "no step names"),
            (r#"{"inputs":["float"],"steps":[{"Input":0}],"results":[1]}"#, "is no step"),
            (r#"{"inputs":["int32"],"steps":[{"Input":0},{"Unary":["Exp",0]}],"results":[1]}"#, "Exp on int32"),
            (r#"{"inputs":["string"],"steps":[{"Input":0}],"results":[0]}"#, "on string"),
            (r#"{"inputs":["float"],"steps":[{"Input":0},{"Cast":["float",0]}],"results":[1]}"#, "is there before"),
            (r#"{"inputs":[],"steps":[{"Const":["uint8",256]}],"results":[0]}"#, "no uint8"),
            (r#"{"inputs":["flaot"],"steps":[{"Input":0}],"results":[0]}"#, "flaot"),
        ];
        for (text, why) in table {
            let error = serde_json::from_str::<Expr>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
