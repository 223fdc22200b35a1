//! The expressions: straight-line code over one element of each operand.

use std::collections::HashMap;
use std::fmt;

use plimsoll_base::{Bf16, DataType, Error, F16, Result};
use serde::{Deserialize, Serialize};

use super::primitives::{BinaryOp, UnaryOp};
use super::written::Written;

/// A value of an expression: the result of the instruction with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reg(pub u32);

/// A number in an expression. It is written by its bits: no text has all of them. Two are the same where their type and bits are: 0 is not -0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(into = "(DataType, u64)", try_from = "(DataType, u64)")]
#[expect(missing_docs, reason = "one for each element type that expressions compute with")]
pub enum Scalar {
    F16(F16),
    Bf16(Bf16),
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    I8(i8),
    I16(i16),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    Bool(bool),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        (self.data_type(), self.bits()) == (other.data_type(), other.bits())
    }
}

impl Eq for Scalar {}

impl Scalar {
    /// Its type.
    pub fn data_type(self) -> DataType {
        match self {
            Scalar::F16(_) => DataType::Half,
            Scalar::Bf16(_) => DataType::Bfloat16,
            Scalar::F32(_) => DataType::Float,
            Scalar::F64(_) => DataType::Double,
            Scalar::I32(_) => DataType::Int32,
            Scalar::I64(_) => DataType::Int64,
            Scalar::I8(_) => DataType::Int8,
            Scalar::I16(_) => DataType::Int16,
            Scalar::U8(_) => DataType::Uint8,
            Scalar::U16(_) => DataType::Uint16,
            Scalar::U32(_) => DataType::Uint32,
            Scalar::U64(_) => DataType::Uint64,
            Scalar::Bool(_) => DataType::Bool,
        }
    }

    /// Its bits, the lowest first.
    pub fn bits(self) -> u64 {
        match self {
            Scalar::F16(value) => u64::from(value.to_bits()),
            Scalar::Bf16(value) => u64::from(value.to_bits()),
            Scalar::F32(value) => u64::from(value.to_bits()),
            Scalar::F64(value) => value.to_bits(),
            Scalar::I32(value) => u64::from(value as u32),
            Scalar::I64(value) => value as u64,
            Scalar::I8(value) => u64::from(value as u8),
            Scalar::I16(value) => u64::from(value as u16),
            Scalar::U8(value) => u64::from(value),
            Scalar::U16(value) => u64::from(value),
            Scalar::U32(value) => u64::from(value),
            Scalar::U64(value) => value,
            Scalar::Bool(value) => u64::from(value),
        }
    }

    /// `value` in that type, where expressions compute with it.
    pub fn from_f64(data_type: DataType, value: f64) -> Option<Scalar> {
        Some(match data_type {
            DataType::Half => Scalar::F16(F16::from_f32(value as f32)),
            DataType::Bfloat16 => Scalar::Bf16(Bf16::from_f32(value as f32)),
            DataType::Float => Scalar::F32(value as f32),
            DataType::Double => Scalar::F64(value),
            DataType::Int32 => Scalar::I32(value as i32),
            DataType::Int64 => Scalar::I64(value as i64),
            DataType::Int8 => Scalar::I8(value as i8),
            DataType::Int16 => Scalar::I16(value as i16),
            DataType::Uint8 => Scalar::U8(value as u8),
            DataType::Uint16 => Scalar::U16(value as u16),
            DataType::Uint32 => Scalar::U32(value as u32),
            DataType::Uint64 => Scalar::U64(value as u64),
            DataType::Bool => Scalar::Bool(value != 0.0),
            _ => return None,
        })
    }

    /// The element that these little-endian bytes are, where expressions compute with that type.
    pub fn from_le_bytes(data_type: DataType, bytes: &[u8]) -> Option<Scalar> {
        Some(match data_type {
            DataType::Half => Scalar::F16(F16::from_bits(u16::from_le_bytes(bytes.try_into().ok()?))),
            DataType::Bfloat16 => Scalar::Bf16(Bf16::from_bits(u16::from_le_bytes(bytes.try_into().ok()?))),
            DataType::Float => Scalar::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Double => Scalar::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Int32 => Scalar::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Int64 => Scalar::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Int8 => Scalar::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Int16 => Scalar::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Uint8 => Scalar::U8(*bytes.first()?),
            DataType::Uint16 => Scalar::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Uint32 => Scalar::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Uint64 => Scalar::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Bool => Scalar::Bool(*bytes.first()? != 0),
            _ => return None,
        })
    }
}

/// One step. Operands are earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Instr {
    /// The element of the operand with this number.
    Input(u32),
    /// The same number for every element.
    Const(Scalar),
    /// An operation on one value.
    Unary(UnaryOp, Reg),
    /// An operation on two values of one type.
    Binary(BinaryOp, Reg, Reg),
    /// The second where the first (bool) holds, else the third.
    Select(Reg, Reg, Reg),
    /// The value in another type. Floats to integers truncate towards zero; a number outside of int64 (of int32 for that and all
    /// narrower types) and NaN are its lowest number first. Integers wrap. Everything to bool asks `!= 0`.
    /// Of a complex number, its real part, if the type is not complex.
    Cast(DataType, Reg),
}

impl Instr {
    /// The steps that it reads.
    pub fn operands(&self) -> [Option<Reg>; 3] {
        match self {
            Instr::Input(_) | Instr::Const(_) => [None; 3],
            Instr::Unary(_, a) | Instr::Cast(_, a) => [Some(*a), None, None],
            Instr::Binary(_, a, b) => [Some(*a), Some(*b), None],
            Instr::Select(a, b, c) => [Some(*a), Some(*b), Some(*c)],
        }
    }

    /// The step with other steps as its operands.
    pub(super) fn with_operands(&self, at: impl Fn(Reg) -> Reg) -> Instr {
        match *self {
            Instr::Input(_) | Instr::Const(_) => *self,
            Instr::Unary(op, a) => Instr::Unary(op, at(a)),
            Instr::Binary(op, a, b) => Instr::Binary(op, at(a), at(b)),
            Instr::Select(c, a, b) => Instr::Select(at(c), at(a), at(b)),
            Instr::Cast(data_type, a) => Instr::Cast(data_type, at(a)),
        }
    }
}

/// Straight-line code from operands to results, applied to every element of a shape.
/// Made by [`ExprBuilder`], which sees to it that types fit and that equal steps exist once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Expr {
    inputs: Vec<DataType>,
    instrs: Vec<Instr>,
    types: Vec<DataType>,
    outputs: Vec<Reg>,
}

impl Expr {
    /// The types of the operands.
    pub fn inputs(&self) -> &[DataType] {
        &self.inputs
    }

    /// The steps, operands before their users.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs
    }

    /// The type of a step's value.
    pub fn type_of(&self, reg: Reg) -> DataType {
        self.types[reg.0 as usize]
    }

    /// The results.
    pub fn outputs(&self) -> &[Reg] {
        &self.outputs
    }

    /// Whether its one result is its one operand.
    pub fn is_identity(&self) -> bool {
        matches!((&self.inputs[..], &self.instrs[..], &self.outputs[..]), ([_], [Instr::Input(0)], [Reg(0)]))
    }

    /// The types of the results.
    pub fn output_types(&self) -> Vec<DataType> {
        self.outputs.iter().map(|reg| self.type_of(*reg)).collect()
    }

    /// Whether some elements make it fault: a division of integers by a value that may be 0, or a power of integers with an
    /// exponent that may be negative.
    pub fn can_fail(&self) -> bool {
        let is_safe = |divisor: Reg, safe: fn(i128) -> bool| match self.instrs[divisor.0 as usize] {
            Instr::Const(Scalar::I32(value)) => safe(value.into()),
            Instr::Const(Scalar::I64(value)) => safe(value.into()),
            Instr::Const(Scalar::I8(value)) => safe(value.into()),
            Instr::Const(Scalar::I16(value)) => safe(value.into()),
            Instr::Const(Scalar::U8(value)) => safe(value.into()),
            Instr::Const(Scalar::U16(value)) => safe(value.into()),
            Instr::Const(Scalar::U32(value)) => safe(value.into()),
            Instr::Const(Scalar::U64(value)) => safe(value.into()),
            _ => false,
        };
        self.instrs.iter().any(|instr| match *instr {
            Instr::Binary(BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod | BinaryOp::TruncateMod, _, divisor) => {
                self.type_of(divisor).is_integer() && !is_safe(divisor, |value| value != 0)
            }
            Instr::Binary(BinaryOp::Pow, _, exponent) => self.type_of(exponent).is_integer() && !is_safe(exponent, |value| value >= 0),
            _ => false,
        })
    }

    /// Arithmetic operations per element, roughly.
    pub fn flops(&self) -> f64 {
        let weight = |instr: &Instr| match instr {
            Instr::Input(_) | Instr::Const(_) => 0.0,
            Instr::Unary(op, _) => op.cost(),
            Instr::Binary(op, ..) => op.cost(),
            Instr::Select(..) | Instr::Cast(..) => 1.0,
        };
        self.instrs.iter().map(weight).sum()
    }
}

/// `r2 = Add r0 r1`, one step a line, then the results.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, instr) in self.instrs.iter().enumerate() {
            write!(f, "r{number}: {} = ", self.types[number])?;
            match instr {
                Instr::Input(input) => writeln!(f, "in{input}")?,
                Instr::Const(value) => writeln!(f, "{value:?}")?,
                Instr::Unary(op, a) => writeln!(f, "{op:?} r{}", a.0)?,
                Instr::Binary(op, a, b) => writeln!(f, "{op:?} r{} r{}", a.0, b.0)?,
                Instr::Select(c, a, b) => writeln!(f, "Select r{} r{} r{}", c.0, a.0, b.0)?,
                Instr::Cast(_, a) => writeln!(f, "Cast r{}", a.0)?,
            }
        }
        let outputs: Vec<String> = self.outputs.iter().map(|reg| format!("r{}", reg.0)).collect();
        write!(f, "-> {}", outputs.join(" "))
    }
}

/// Builds expressions; also joins them: that is fusing.
#[derive(Clone, Debug, Default)]
pub struct ExprBuilder {
    inputs: Vec<DataType>,
    instrs: Vec<Instr>,
    types: Vec<DataType>,
    /// The numbers of the first `known` steps, where there are many.
    numbers: HashMap<Key, u32>,
    known: usize,
}

impl ExprBuilder {
    /// No operands, no steps.
    pub fn new() -> ExprBuilder {
        ExprBuilder::default()
    }

    /// Goes on with an expression: its operands and steps are the first of the builder. Its results come with it.
    pub fn resume(expr: Expr) -> (ExprBuilder, Vec<Reg>) {
        let Expr { inputs, instrs, types, outputs } = expr;
        (ExprBuilder { inputs, instrs, types, ..ExprBuilder::default() }, outputs)
    }

    /// Whether expressions compute with elements of a type. There are no scalars of complex types: [`ExprBuilder::number`].
    pub fn computes(data_type: DataType) -> bool {
        Scalar::from_f64(data_type.part().unwrap_or(data_type), 0.0).is_some()
    }

    /// A new operand.
    ///
    /// # Errors
    /// UNIMPLEMENTED where expressions do not compute with that type.
    pub fn input(&mut self, data_type: DataType) -> Result<Reg> {
        if !ExprBuilder::computes(data_type) {
            return Err(Error::unimplemented(format!("elementwise operations on {data_type}")));
        }
        self.inputs.push(data_type);
        Ok(self.step(Instr::Input((self.inputs.len() - 1) as u32), data_type))
    }

    /// A number.
    pub fn constant(&mut self, value: Scalar) -> Reg {
        self.step(Instr::Const(value), value.data_type())
    }

    /// `value` in a type. A complex number is made of its parts.
    ///
    /// # Errors
    /// UNIMPLEMENTED where expressions do not compute with that type.
    pub fn number(&mut self, data_type: DataType, value: f64) -> Result<Reg> {
        let of = data_type.part().unwrap_or(data_type);
        let scalar =
            |value| Scalar::from_f64(of, value).ok_or_else(|| Error::unimplemented(format!("elementwise operations on {data_type}")));
        let number = self.constant(scalar(value)?);
        if of == data_type {
            return Ok(number);
        }
        let zero = self.constant(scalar(0.0)?);
        self.binary(BinaryOp::Complex, number, zero)
    }

    /// An operation on one value.
    ///
    /// # Errors
    /// UNIMPLEMENTED where it does not work on that type.
    pub fn unary(&mut self, op: UnaryOp, a: Reg) -> Result<Reg> {
        let data_type = self.type_of(a);
        if !op.takes(data_type) {
            return Err(Error::unimplemented(format!("{op:?} on {data_type}")));
        }
        Ok(self.step(Instr::Unary(op, a), op.gives(data_type)))
    }

    /// An operation on two values.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the types differ, UNIMPLEMENTED where it does not work on them.
    pub fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        let data_type = self.type_of(a);
        if data_type != self.type_of(b) {
            return Err(Error::invalid_argument(format!("{op:?} on {data_type} and {}", self.type_of(b))));
        }
        if !op.takes(data_type) {
            return Err(Error::unimplemented(format!("{op:?} on {data_type}")));
        }
        Ok(self.step(Instr::Binary(op, a, b), op.gives(data_type)))
    }

    /// `a` where `condition` holds, else `b`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the types do not fit.
    pub fn select(&mut self, condition: Reg, a: Reg, b: Reg) -> Result<Reg> {
        if self.type_of(condition) != DataType::Bool || self.type_of(a) != self.type_of(b) {
            return Err(Error::invalid_argument("Select takes a bool and two values of one type"));
        }
        Ok(self.step(Instr::Select(condition, a, b), self.type_of(a)))
    }

    /// `a` in another type.
    ///
    /// # Errors
    /// UNIMPLEMENTED where expressions do not compute with that type.
    pub fn cast(&mut self, data_type: DataType, a: Reg) -> Result<Reg> {
        if self.type_of(a) == data_type {
            return Ok(a);
        }
        if !ExprBuilder::computes(data_type) {
            return Err(Error::unimplemented(format!("Cast to {data_type}")));
        }
        Ok(self.step(Instr::Cast(data_type, a), data_type))
    }

    /// The steps of `expr` with `operands` in the place of its operands; returns its results.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where number or types of the operands do not fit.
    pub fn inline(&mut self, expr: &Expr, operands: &[Reg]) -> Result<Vec<Reg>> {
        let types: Vec<DataType> = operands.iter().map(|reg| self.type_of(*reg)).collect();
        if types != expr.inputs {
            return Err(Error::invalid_argument(format!("operands {types:?} do not fit an expression of {:?}", expr.inputs)));
        }
        let mut map: Vec<Reg> = Vec::with_capacity(expr.instrs.len());
        for (number, instr) in expr.instrs.iter().enumerate() {
            if let Instr::Input(input) = instr {
                map.push(operands[*input as usize]);
                continue;
            }
            let step = instr.with_operands(|reg| map[reg.0 as usize]);
            map.push(self.step(step, expr.types[number]));
        }
        Ok(expr.outputs.iter().map(|reg| map[reg.0 as usize]).collect())
    }

    /// The type of a step's value.
    pub fn type_of(&self, reg: Reg) -> DataType {
        self.types[reg.0 as usize]
    }

    /// The operands, in order.
    pub fn inputs(&self) -> Vec<Reg> {
        let mut inputs = vec![Reg(0); self.inputs.len()];
        for (number, instr) in self.instrs.iter().enumerate() {
            if let Instr::Input(input) = instr {
                inputs[*input as usize] = Reg(number as u32);
            }
        }
        inputs
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.instrs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.instrs.is_empty()
    }

    /// The expression with these results.
    pub fn finish(self, outputs: Vec<Reg>) -> Expr {
        Expr { inputs: self.inputs, instrs: self.instrs, types: self.types, outputs }
    }

    /// The step, which exists once.
    pub(super) fn step(&mut self, instr: Instr, data_type: DataType) -> Reg {
        /// So many steps are compared one by one.
        const NEAR: usize = 512;
        let key = Key::of(&instr);
        // An equal step comes after its operands.
        let from = match instr {
            Instr::Input(_) => self.instrs.len(),
            Instr::Const(_) => 0,
            _ => instr.operands().into_iter().flatten().map(|reg| reg.0 as usize + 1).max().unwrap_or(0),
        };
        if self.instrs.len() - from <= NEAR {
            if let Some(near) = self.instrs[from..].iter().position(|other| Key::of(other) == key) {
                return Reg((from + near) as u32);
            }
        } else {
            for number in self.known..self.instrs.len() {
                self.numbers.insert(Key::of(&self.instrs[number]), number as u32);
            }
            self.known = self.instrs.len();
            if let Some(number) = self.numbers.get(&key) {
                return Reg(*number);
            }
        }
        self.instrs.push(instr);
        self.types.push(data_type);
        Reg((self.instrs.len() - 1) as u32)
    }
}

/// The identity of a step: constants compare by their bits, since NaN is not equal to itself and 0.0 equals -0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Input(u32),
    Const(DataType, u64),
    Unary(UnaryOp, Reg),
    Binary(BinaryOp, Reg, Reg),
    Select(Reg, Reg, Reg),
    Cast(DataType, Reg),
}

impl Key {
    fn of(instr: &Instr) -> Key {
        match *instr {
            Instr::Input(input) => Key::Input(input),
            Instr::Const(value) => Key::Const(value.data_type(), value.bits()),
            Instr::Unary(op, a) => Key::Unary(op, a),
            Instr::Binary(op, a, b) => Key::Binary(op, a, b),
            Instr::Select(c, a, b) => Key::Select(c, a, b),
            Instr::Cast(data_type, a) => Key::Cast(data_type, a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_by_their_bits() {
        assert_ne!(Scalar::F32(0.0), Scalar::F32(-0.0));
        assert_ne!(Scalar::F16(F16::from_bits(0)), Scalar::F16(F16::from_bits(0x8000)));
        assert_eq!(Scalar::F64(f64::NAN), Scalar::F64(f64::NAN));
        assert_ne!(Scalar::F64(f64::NAN), Scalar::F64(-f64::NAN));
        assert_ne!(Scalar::U8(1), Scalar::Bool(true));
    }

    #[test]
    fn equal_steps_exist_once_and_fusing_is_joining() {
        let mut first = ExprBuilder::new();
        let (x, y) = (first.input(DataType::Float).unwrap(), first.input(DataType::Float).unwrap());
        let sum = first.binary(BinaryOp::Add, x, y).unwrap();
        let add = first.finish(vec![sum]);

        let mut joined = ExprBuilder::new();
        let (a, b) = (joined.input(DataType::Float).unwrap(), joined.input(DataType::Float).unwrap());
        let once = joined.inline(&add, &[a, b]).unwrap();
        let again = joined.inline(&add, &[a, b]).unwrap();
        assert_eq!(once, again);
        let zero = joined.constant(Scalar::F32(0.0));
        let relu = joined.binary(BinaryOp::Maximum, once[0], zero).unwrap();
        let expr = joined.finish(vec![relu]);
        assert_eq!(
            expr.to_string(),
            "r0: float = in0\nr1: float = in1\nr2: float = Add r0 r1\nr3: float = F32(0.0)\nr4: float = Maximum r2 r3\n-> r4"
        );
    }

    #[test]
    fn types_are_checked() {
        let mut builder = ExprBuilder::new();
        let x = builder.input(DataType::Int32).unwrap();
        let y = builder.input(DataType::Bool).unwrap();
        assert!(builder.unary(UnaryOp::Exp, x).is_err());
        assert!(builder.binary(BinaryOp::Add, x, y).is_err());
        assert!(builder.binary(BinaryOp::Add, y, y).is_err());
        assert!(builder.select(x, x, x).is_err());
        assert!(builder.input(DataType::String).is_err());
    }
}
