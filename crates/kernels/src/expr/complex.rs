//! Complex numbers: expressions compute with their parts, which are floats.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, UnaryOp};

/// The expression with the parts of complex numbers in their place. Operands and results stay complex: operands are taken apart when
/// they are read, and results are put together. None where there are none.
///
/// # Errors
/// UNIMPLEMENTED for functions that complex numbers do not have here.
pub(super) fn in_parts(expr: &Expr) -> Result<Option<Expr>> {
    if !(0..expr.instrs().len()).any(|at| expr.type_of(Reg(at as u32)).is_complex()) {
        return Ok(None);
    }
    let mut parts = Parts { builder: ExprBuilder::new(), part: DataType::Float };
    let inputs = expr.inputs().iter().map(|data_type| parts.builder.input(*data_type)).collect::<Result<Vec<Reg>>>()?;
    let mut values: Vec<Value> = Vec::with_capacity(expr.instrs().len());
    for (at, instr) in expr.instrs().iter().enumerate() {
        let value = |reg: Reg| values[reg.0 as usize];
        let complex = [Some(Reg(at as u32)), instr.operands()[0]].into_iter().flatten().find_map(|reg| expr.type_of(reg).part());
        parts.part = complex.unwrap_or(DataType::Float);
        let made = match *instr {
            Instr::Input(input) => {
                let whole = inputs[input as usize];
                match complex {
                    Some(_) => {
                        let re = parts.builder.unary(UnaryOp::Real, whole)?;
                        let im = parts.builder.unary(UnaryOp::Imag, whole)?;
                        Value::Pair(Pair { re, im, whole: Some(whole) })
                    }
                    None => Value::One(whole),
                }
            }
            Instr::Const(value) => Value::One(parts.builder.constant(value)),
            Instr::Unary(op, a) => match value(a) {
                Value::One(a) => Value::One(parts.builder.unary(op, a)?),
                Value::Pair(a) => parts.unary(op, a)?,
            },
            Instr::Binary(BinaryOp::Complex, a, b) => {
                let (re, im) = (value(a).one()?, value(b).one()?);
                Value::Pair(Pair { re, im, whole: None })
            }
            Instr::Binary(op, a, b) => match (value(a), value(b)) {
                (Value::Pair(a), Value::Pair(b)) => parts.binary(op, a, b)?,
                (a, b) => Value::One(parts.builder.binary(op, a.one()?, b.one()?)?),
            },
            Instr::Select(condition, a, b) => {
                let condition = value(condition).one()?;
                match (value(a), value(b)) {
                    (Value::Pair(a), Value::Pair(b)) => Value::Pair(parts.select(condition, a, b)?),
                    (a, b) => Value::One(parts.builder.select(condition, a.one()?, b.one()?)?),
                }
            }
            Instr::Cast(to, a) => parts.cast(to, value(a))?,
        };
        values.push(made);
    }
    let mut outputs = Vec::with_capacity(expr.outputs().len());
    for reg in expr.outputs() {
        outputs.push(match values[reg.0 as usize] {
            Value::One(value) | Value::Pair(Pair { whole: Some(value), .. }) => value,
            Value::Pair(Pair { re, im, whole: None }) => parts.builder.binary(BinaryOp::Complex, re, im)?,
        });
    }
    Ok(Some(parts.builder.finish(outputs)))
}

/// A value of the expression, in parts if it is complex.
#[derive(Clone, Copy)]
enum Value {
    One(Reg),
    Pair(Pair),
}

impl Value {
    fn one(self) -> Result<Reg> {
        match self {
            Value::One(reg) => Ok(reg),
            Value::Pair(_) => Err(Error::internal("a complex number beside another type")),
        }
    }
}

#[derive(Clone, Copy)]
struct Pair {
    re: Reg,
    im: Reg,
    /// The operand that it was read from.
    whole: Option<Reg>,
}

fn pair(re: Reg, im: Reg) -> Pair {
    Pair { re, im, whole: None }
}

struct Parts {
    builder: ExprBuilder,
    /// The type of the parts at hand.
    part: DataType,
}

impl Parts {
    fn unary(&mut self, op: UnaryOp, a: Pair) -> Result<Value> {
        Ok(Value::Pair(match op {
            UnaryOp::Real => return Ok(Value::One(a.re)),
            UnaryOp::Imag => return Ok(Value::One(a.im)),
            UnaryOp::Conj => pair(a.re, self.one(UnaryOp::Neg, a.im)?),
            UnaryOp::Neg => pair(self.one(UnaryOp::Neg, a.re)?, self.one(UnaryOp::Neg, a.im)?),
            UnaryOp::Square => self.product(a, a)?,
            UnaryOp::Reciprocal => self.inverse(a)?,
            UnaryOp::Sqrt => self.root(a)?,
            UnaryOp::Rsqrt => {
                let root = self.root(a)?;
                self.inverse(root)?
            }
            UnaryOp::Exp => self.exponential(a)?,
            UnaryOp::Log => {
                let length = self.two(BinaryOp::Hypot, a.re, a.im)?;
                pair(self.one(UnaryOp::Log, length)?, self.two(BinaryOp::Atan2, a.im, a.re)?)
            }
            // sin(x + iy) = sin(x) cosh(y) + i cos(x) sinh(y), and so on.
            UnaryOp::Sin => self.mixed([UnaryOp::Sin, UnaryOp::Cos], [UnaryOp::Cosh, UnaryOp::Sinh], a)?,
            UnaryOp::Cos => {
                let Pair { re, im, .. } = self.mixed([UnaryOp::Cos, UnaryOp::Sin], [UnaryOp::Cosh, UnaryOp::Sinh], a)?;
                pair(re, self.one(UnaryOp::Neg, im)?)
            }
            UnaryOp::Sinh => self.mixed([UnaryOp::Sinh, UnaryOp::Cosh], [UnaryOp::Cos, UnaryOp::Sin], a)?,
            UnaryOp::Cosh => self.mixed([UnaryOp::Cosh, UnaryOp::Sinh], [UnaryOp::Cos, UnaryOp::Sin], a)?,
            op => return Err(Error::unimplemented(format!("{op:?} on {}", self.name()))),
        }))
    }

    fn binary(&mut self, op: BinaryOp, a: Pair, b: Pair) -> Result<Value> {
        Ok(Value::Pair(match op {
            BinaryOp::Add | BinaryOp::Sub => pair(self.two(op, a.re, b.re)?, self.two(op, a.im, b.im)?),
            BinaryOp::Mul => self.product(a, b)?,
            BinaryOp::Div => self.quotient(a, b)?,
            BinaryOp::DivNoNan => {
                let zero = self.number(0.0)?;
                let is_zero = self.is_number(b, zero)?;
                let quotient = self.quotient(a, b)?;
                self.select(is_zero, pair(zero, zero), quotient)?
            }
            BinaryOp::Equal | BinaryOp::NotEqual => {
                let (re, im) = (self.two(op, a.re, b.re)?, self.two(op, a.im, b.im)?);
                let joined = if op == BinaryOp::Equal { BinaryOp::LogicalAnd } else { BinaryOp::LogicalOr };
                return Ok(Value::One(self.two(joined, re, im)?));
            }
            op => return Err(Error::unimplemented(format!("{op:?} on {}", self.name()))),
        }))
    }

    /// To a type that is not complex goes the real part; a bool asks whether it is not 0.
    fn cast(&mut self, to: DataType, from: Value) -> Result<Value> {
        Ok(match (from, to.part()) {
            (Value::One(a), None) | (Value::Pair(Pair { re: a, .. }), None) => Value::One(self.builder.cast(to, a)?),
            (Value::One(a), Some(part)) => {
                self.part = part;
                Value::Pair(pair(self.builder.cast(part, a)?, self.number(0.0)?))
            }
            (Value::Pair(a), Some(part)) => Value::Pair(pair(self.builder.cast(part, a.re)?, self.builder.cast(part, a.im)?)),
        })
    }

    fn select(&mut self, condition: Reg, a: Pair, b: Pair) -> Result<Pair> {
        Ok(pair(self.builder.select(condition, a.re, b.re)?, self.builder.select(condition, a.im, b.im)?))
    }

    fn product(&mut self, a: Pair, b: Pair) -> Result<Pair> {
        let (re, minus) = (self.two(BinaryOp::Mul, a.re, b.re)?, self.two(BinaryOp::Mul, a.im, b.im)?);
        let (one, other) = (self.two(BinaryOp::Mul, a.re, b.im)?, self.two(BinaryOp::Mul, a.im, b.re)?);
        Ok(pair(self.two(BinaryOp::Sub, re, minus)?, self.two(BinaryOp::Add, one, other)?))
    }

    /// Smith's algorithm: the larger part of the divisor is divided by, so that no square overflows.
    fn quotient(&mut self, a: Pair, b: Pair) -> Result<Pair> {
        let (size_re, size_im) = (self.one(UnaryOp::Abs, b.re)?, self.one(UnaryOp::Abs, b.im)?);
        let is_real = self.two(BinaryOp::GreaterEqual, size_re, size_im)?;
        let (large, small) = (self.builder.select(is_real, b.re, b.im)?, self.builder.select(is_real, b.im, b.re)?);
        let ratio = self.two(BinaryOp::Div, small, large)?;
        let rest = self.two(BinaryOp::Mul, small, ratio)?;
        let divisor = self.two(BinaryOp::Add, large, rest)?;
        // (a.re + a.im r, a.im - a.re r) for a divisor that is mostly real, (a.re r + a.im, a.im r - a.re) for another.
        let (scaled_re, scaled_im) = (self.two(BinaryOp::Mul, a.re, ratio)?, self.two(BinaryOp::Mul, a.im, ratio)?);
        let (first, second) = (self.builder.select(is_real, a.re, scaled_re)?, self.builder.select(is_real, scaled_im, a.im)?);
        let re = self.two(BinaryOp::Add, first, second)?;
        let (first, second) = (self.builder.select(is_real, a.im, scaled_im)?, self.builder.select(is_real, scaled_re, a.re)?);
        let im = self.two(BinaryOp::Sub, first, second)?;
        Ok(pair(self.two(BinaryOp::Div, re, divisor)?, self.two(BinaryOp::Div, im, divisor)?))
    }

    fn inverse(&mut self, a: Pair) -> Result<Pair> {
        let one = pair(self.number(1.0)?, self.number(0.0)?);
        self.quotient(one, a)
    }

    /// The root with a real part that is not negative. With `w = sqrt((|re| + |a|) / 2)` its parts are `w` and `im / 2w`, exchanged where
    /// `re` is negative.
    fn root(&mut self, a: Pair) -> Result<Pair> {
        let (zero, half, infinity) = (self.number(0.0)?, self.number(0.5)?, self.number(f64::INFINITY)?);
        let (size_re, size_im) = (self.one(UnaryOp::Abs, a.re)?, self.one(UnaryOp::Abs, a.im)?);
        let length = self.two(BinaryOp::Hypot, a.re, a.im)?;
        let (part, whole) = (self.two(BinaryOp::Mul, half, size_re)?, self.two(BinaryOp::Mul, half, length)?);
        let sum = self.two(BinaryOp::Add, part, whole)?;
        let large = self.one(UnaryOp::Sqrt, sum)?;
        let double = self.two(BinaryOp::Add, large, large)?;
        let small = self.two(BinaryOp::Div, size_im, double)?;
        let is_zero = self.two(BinaryOp::Equal, large, zero)?;
        let small = self.builder.select(is_zero, zero, small)?;
        let is_right = self.two(BinaryOp::GreaterEqual, a.re, zero)?;
        let is_left = self.two(BinaryOp::Less, a.re, zero)?;
        let re = self.builder.select(is_left, small, large)?;
        // A part that is no number stays one.
        let other = self.builder.select(is_right, small, large)?;
        // The sign of the imaginary part, a zero's too.
        let turned = self.one(UnaryOp::Reciprocal, a.im)?;
        let (below, turned) = (self.two(BinaryOp::Less, a.im, zero)?, self.two(BinaryOp::Less, turned, zero)?);
        let is_below = self.two(BinaryOp::LogicalOr, below, turned)?;
        let negative = self.one(UnaryOp::Neg, other)?;
        let im = self.builder.select(is_below, negative, other)?;
        let endless = self.two(BinaryOp::Equal, size_im, infinity)?;
        self.select(endless, pair(infinity, a.im), pair(re, im))
    }

    /// A real number stays real; a power of 0 is 0 in any direction.
    fn exponential(&mut self, a: Pair) -> Result<Pair> {
        let (zero, least) = (self.number(0.0)?, self.number(f64::NEG_INFINITY)?);
        let size = self.one(UnaryOp::Exp, a.re)?;
        let (cos, sin) = (self.one(UnaryOp::Cos, a.im)?, self.one(UnaryOp::Sin, a.im)?);
        let made = pair(self.two(BinaryOp::Mul, size, cos)?, self.two(BinaryOp::Mul, size, sin)?);
        let is_real = self.two(BinaryOp::Equal, a.im, zero)?;
        let is_nothing = self.two(BinaryOp::Equal, a.re, least)?;
        let made = self.select(is_nothing, pair(zero, zero), made)?;
        self.select(is_real, pair(size, a.im), made)
    }

    /// `f(re) g(im)` and `f'(re) g'(im)`.
    fn mixed(&mut self, of_re: [UnaryOp; 2], of_im: [UnaryOp; 2], a: Pair) -> Result<Pair> {
        let mut factors = [a.re; 2];
        for (side, factor) in factors.iter_mut().enumerate() {
            let (x, y) = (self.one(of_re[side], a.re)?, self.one(of_im[side], a.im)?);
            *factor = self.two(BinaryOp::Mul, x, y)?;
        }
        Ok(pair(factors[0], factors[1]))
    }

    fn is_number(&mut self, a: Pair, number: Reg) -> Result<Reg> {
        let zero = self.number(0.0)?;
        let (re, im) = (self.two(BinaryOp::Equal, a.re, number)?, self.two(BinaryOp::Equal, a.im, zero)?);
        self.two(BinaryOp::LogicalAnd, re, im)
    }

    fn one(&mut self, op: UnaryOp, a: Reg) -> Result<Reg> {
        self.builder.unary(op, a)
    }

    fn two(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Result<Reg> {
        self.builder.binary(op, a, b)
    }

    fn number(&mut self, value: f64) -> Result<Reg> {
        let scalar = Scalar::from_f64(self.part, value).ok_or_else(|| Error::internal("parts that are no floats"))?;
        Ok(self.builder.constant(scalar))
    }

    fn name(&self) -> DataType {
        self.part.pair().unwrap_or(self.part)
    }
}
