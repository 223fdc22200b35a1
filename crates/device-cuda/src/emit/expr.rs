//! Expressions: a kernel computes all steps of an element in registers.

use std::fmt::Write;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg, Scalar, UnaryOp};

use super::on_rows::Rows;
use super::view::{Joined, broadcast};
use super::write::{Index, Writer, computed, is_float, narrow, stored, widen};
use super::{Emitted, FaultText, KernelArg, blocks, count};

/// The faults of integers, by the numbers that the prelude gives them.
pub(super) const FAULTS: [FaultText; 2] = [FaultText::DIVISION_BY_ZERO, FaultText::NEGATIVE_POWER];

/// An expression for every element of a shape.
///
/// # Errors
/// UNIMPLEMENTED for primitives without code, and for more operands than a launch has.
pub(super) fn emit(expr: &Expr, shape: &[u64], operands: &[Vec<u64>]) -> Result<Emitted> {
    emit_on(&Rows::default(), expr, shape, operands)
}

/// The same, of which some operands and results are rows.
///
/// # Errors
/// As [`emit`].
pub(super) fn emit_on(rows: &Rows, expr: &Expr, shape: &[u64], operands: &[Vec<u64>]) -> Result<Emitted> {
    let joined = broadcast(shape, operands)?;
    let elements = count(shape);
    let mut writer = Writer::new(Index::of(elements));
    let function = function(expr)?;
    writer.before.push_str(&function.text);

    let outputs = expr.output_types();
    let operand_arg = |operand: usize| KernelArg::Argument(operand as u32);
    for (operand, data_type) in expr.inputs().iter().enumerate() {
        writer.input(format!("p{operand}"), stored(*data_type)?, operand_arg(operand));
    }
    let first = operands.len() + rows.arguments();
    for (output, data_type) in outputs.iter().enumerate() {
        writer.output(format!("q{output}"), stored(*data_type)?, operand_arg(first + output));
    }
    writer.size("n", elements as i64);
    if function.can_fail || !rows.is_empty() {
        writer.fault();
    }
    let mut faults = if function.can_fail { FAULTS.to_vec() } else { Vec::new() };
    rows.find(&mut writer, operands.len(), &mut faults)?;

    let lanes = rows.aligned(lanes(expr, &joined));
    let launch = Launch { expr, outputs: &outputs, joined: &joined, lanes, can_fail: function.can_fail };
    if joined.sizes.len() <= 1 {
        launch.flat(&mut writer)?;
    } else {
        launch.rows(&mut writer)?;
    }
    let kernel = writer.finish("expr", blocks(elements.div_ceil(lanes)))?;
    let in_place = rows.in_place(in_place(expr, &joined, elements), operands.len());
    Ok(Emitted { kernels: vec![kernel], faults, in_place, ..Emitted::default() })
}

/// Operands that each thread reads whole before it writes results where they lie.
fn in_place(expr: &Expr, joined: &Joined, elements: u64) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (input, data_type) in expr.inputs().iter().enumerate() {
        let is_whole = super::view::dense(&joined.sizes) == joined.strides[input] && elements > 0;
        for (output, result) in expr.output_types().iter().enumerate() {
            if is_whole && data_type.size() == result.size() {
                pairs.push((input, output));
            }
        }
    }
    pairs
}

/// The most elements that a thread has of all tensors at once, as words of four bytes: with more, what is computed from them does not stay in registers.
/// An expression of 31 halves and 256 steps spilled with twice as many.
const MOST_HELD: u64 = 192;

/// How many elements a thread takes at once: 16 bytes of the widest type, where rows and registers allow.
pub(super) fn lanes(expr: &Expr, joined: &Joined) -> u64 {
    let outputs = expr.output_types();
    let widest = expr.inputs().iter().chain(&outputs).filter_map(|data_type| data_type.size()).max().unwrap_or(16) as u64;
    let mut lanes = (16 / widest).max(1);
    let words: usize = expr.inputs().iter().chain(&outputs).map(|data_type| data_type.size().unwrap_or(16).div_ceil(4)).sum();
    while lanes > 1 && lanes * words as u64 > MOST_HELD {
        lanes /= 2;
    }
    // A flat shape has a rest that is done one by one.
    if let [_, .., inner] = joined.sizes[..] {
        while !inner.is_multiple_of(lanes) {
            lanes /= 2;
        }
    }
    lanes
}

/// What the threads of a kernel share.
pub(super) struct Launch<'a> {
    pub expr: &'a Expr,
    pub outputs: &'a [DataType],
    pub joined: &'a Joined,
    pub lanes: u64,
    pub can_fail: bool,
}

impl Launch<'_> {
    /// One dimension: blocks of `lanes` elements, and the rest one by one.
    fn flat(&self, writer: &mut Writer) -> Result<()> {
        let moves: Vec<bool> = self.joined.strides.iter().map(|strides| strides.last() == Some(&1)).collect();
        match self.lanes {
            1 => writer.each("i", "n"),
            lanes => {
                writer.each("g", &format!("(n + {}) / {lanes}", lanes - 1));
                writer.line(format!("{} i = g * {lanes};", writer.index()));
            }
        }
        self.elements_at_i(writer, &moves)?;
        writer.line("}");
        Ok(())
    }

    /// `lanes` of `n` elements from `i` on, or as many as are left. Operands that do not move are one element.
    pub fn elements_at_i(&self, writer: &mut Writer, moves: &[bool]) -> Result<()> {
        let one = |operand: usize, moves: bool| if moves { format!("p{operand}[i]") } else { format!("p{operand}[0]") };
        let lanes = self.lanes;
        if lanes == 1 {
            writer.line(self.call(moves, one, "", "i"));
            return Ok(());
        }
        writer.line(format!("if (i + {lanes} <= n) {{"));
        self.vector(writer, moves, |operand| format!("p{operand} + i"), |operand| format!("p{operand}[0]"))?;
        writer.line("} else for (; i < n; ++i) {");
        writer.line(self.call(moves, one, "", "i"));
        writer.line("}");
        Ok(())
    }

    /// Several dimensions; `lanes` divides the innermost.
    fn rows(&self, writer: &mut Writer) -> Result<()> {
        let rank = self.joined.sizes.len();
        let index = writer.index();
        for (axis, size) in self.joined.sizes.iter().enumerate().skip(1) {
            writer.size(format!("d{axis}"), *size as i64);
        }
        for (operand, strides) in self.joined.strides.iter().enumerate() {
            for (axis, stride) in strides.iter().enumerate().filter(|(axis, stride)| **stride != 0 && axis + 1 < rank) {
                writer.size(format!("s{operand}_{axis}"), *stride as i64);
            }
        }
        let lanes = self.lanes;
        writer.each("g", &if lanes == 1 { "n".to_string() } else { format!("n / {lanes}") });
        writer.line(format!("{index} i = g * {lanes}, rest = i;"));
        for axis in (1..rank).rev() {
            writer.line(format!("{index} c{axis} = rest % d{axis}; rest /= d{axis};"));
        }
        let mut moves = Vec::new();
        for (operand, strides) in self.joined.strides.iter().enumerate() {
            let mut terms: Vec<String> = Vec::new();
            for (axis, stride) in strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
                let at = if axis == 0 { "rest".to_string() } else { format!("c{axis}") };
                // The innermost stride is 1 or 0: a tensor's own.
                debug_assert!(axis + 1 < rank || *stride == 1);
                terms.push(if axis + 1 == rank { at } else { format!("{at} * s{operand}_{axis}") });
            }
            moves.push(strides.last() == Some(&1));
            let sum = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
            writer.line(format!("{index} o{operand} = {sum};"));
        }
        if lanes == 1 {
            writer.line(self.call(&moves, |operand, _| format!("p{operand}[o{operand}]"), "", "i"));
        } else {
            self.vector(writer, &moves, |operand| format!("p{operand} + o{operand}"), |operand| format!("p{operand}[o{operand}]"))?;
        }
        writer.line("}");
        Ok(())
    }

    /// `lanes` elements from `i` on, with loads and stores of all at once.
    fn vector(&self, writer: &mut Writer, moves: &[bool], at: impl Fn(usize) -> String, one: impl Fn(usize) -> String) -> Result<()> {
        let lanes = self.lanes;
        for (operand, data_type) in self.expr.inputs().iter().enumerate() {
            let ctype = stored(*data_type)?;
            if moves[operand] {
                writer.line(format!("{ctype}x{lanes} v{operand} = *(const {ctype}x{lanes}*)({});", at(operand)));
            } else {
                writer.line(format!("{ctype} v{operand} = {};", one(operand)));
            }
        }
        for (output, data_type) in self.outputs.iter().enumerate() {
            writer.line(format!("{}x{lanes} w{output};", stored(*data_type)?));
        }
        for lane in 0..lanes {
            let value = |operand: usize, moves: bool| if moves { format!("v{operand}.v[{lane}]") } else { format!("v{operand}") };
            writer.line(self.call(moves, value, &format!("w#.v[{lane}]"), &format!("i + {lane}")));
        }
        for (output, data_type) in self.outputs.iter().enumerate() {
            writer.line(format!("*({}x{lanes}*)(q{output} + i) = w{output};", stored(*data_type)?));
        }
        Ok(())
    }

    /// A call for one element. Results go where `to` says, with the number of the result for `#`, or to that element of the output.
    fn call(&self, moves: &[bool], value: impl Fn(usize, bool) -> String, to: &str, element: &str) -> String {
        let mut args: Vec<String> = moves.iter().enumerate().map(|(operand, moves)| value(operand, *moves)).collect();
        for output in 0..self.outputs.len() {
            args.push(match to {
                "" => format!("&q{output}[{element}]"),
                _ => format!("&{}", to.replace('#', &output.to_string())),
            });
        }
        if self.can_fail {
            args.extend(["fault".to_string(), "base".to_string(), element.to_string()]);
        }
        format!("@_element({});", args.join(", "))
    }
}

/// The function `@_element`: operands as they are stored, pointers to the results, and where it can fail the fault word, the command
/// and the number of the element.
pub(super) struct Function {
    pub text: String,
    pub can_fail: bool,
}

/// The function of an expression on one element.
///
/// # Errors
/// UNIMPLEMENTED for primitives without code.
pub(super) fn function(expr: &Expr) -> Result<Function> {
    let can_fail = expr.can_fail();
    let uses = expr.uses();
    let mut params = Vec::new();
    for (operand, data_type) in expr.inputs().iter().enumerate() {
        params.push(format!("{} a{operand}", stored(*data_type)?));
    }
    for (output, data_type) in expr.output_types().iter().enumerate() {
        params.push(format!("{}* z{output}", stored(*data_type)?));
    }
    if can_fail {
        params.extend(["u64* fault".to_string(), "u64 base".to_string(), "u64 element".to_string()]);
    }
    let mut text = format!("DEVICE void @_element({}) {{\n", params.join(", "));
    // A division that cannot fail asks nobody whether it did.
    text.push_str("  u32 bad = 0;\n");
    for (at, instr) in expr.instrs().iter().enumerate().filter(|(at, _)| uses.needed[*at]) {
        let data_type = expr.type_of(Reg(at as u32));
        let value = value(expr, instr, data_type)?;
        let _ = writeln!(text, "  {} r{at} = {value};", computed(data_type)?);
    }
    for (output, reg) in expr.outputs().iter().enumerate() {
        let _ = writeln!(text, "  *z{output} = {};", narrow(expr.type_of(*reg), format!("r{}", reg.0)));
    }
    text.push_str(if can_fail { "  if (bad) fail(fault, base, element, bad);\n}\n" } else { "  (void)bad;\n}\n" });
    Ok(Function { text, can_fail })
}

/// The value of a step.
fn value(expr: &Expr, instr: &Instr, data_type: DataType) -> Result<String> {
    let reg = |reg: Reg| format!("r{}", reg.0);
    Ok(match *instr {
        Instr::Input(input) => widen(data_type, format!("a{input}")),
        Instr::Const(value) => constant(value),
        Instr::Unary(op, a) => unary(op, expr.type_of(a), data_type, &reg(a))?,
        Instr::Binary(op, a, b) => binary(op, expr.type_of(a), &reg(a), &reg(b))?,
        Instr::Select(c, a, b) => format!("{} ? {} : {}", reg(c), reg(a), reg(b)),
        Instr::Cast(to, a) => cast(expr.type_of(a), to, &reg(a))?,
    })
}

/// A number by its bits: no decimal text has all of them.
pub(super) fn constant(value: Scalar) -> String {
    let bits = value.bits();
    match value {
        Scalar::F16(value) => constant(Scalar::F32(value.to_f32())),
        Scalar::Bf16(value) => constant(Scalar::F32(value.to_f32())),
        Scalar::F32(_) => format!("__uint_as_float(0x{bits:08X}u)"),
        Scalar::F64(_) => format!("__longlong_as_double((i64)0x{bits:016X}ull)"),
        Scalar::I8(_) => format!("(i8)0x{bits:X}u"),
        Scalar::I16(_) => format!("(i16)0x{bits:X}u"),
        Scalar::I32(_) => format!("(i32)0x{bits:X}u"),
        Scalar::I64(_) => format!("(i64)0x{bits:X}ull"),
        Scalar::U8(_) => format!("(u8)0x{bits:X}u"),
        Scalar::U16(_) => format!("(u16)0x{bits:X}u"),
        Scalar::U32(_) => format!("0x{bits:X}u"),
        Scalar::U64(_) => format!("0x{bits:X}ull"),
        Scalar::Bool(_) => format!("(u8){bits}"),
    }
}

/// A result as its type has it: floats of two bytes are rounded after each step.
fn rounded(data_type: DataType, value: String) -> String {
    match data_type.compute_type() == data_type {
        true => value,
        false => widen(data_type, narrow(data_type, value)),
    }
}

fn refused(op: impl std::fmt::Debug, data_type: DataType) -> Error {
    Error::unimplemented(format!("a kernel for a card: {op:?} of {data_type}"))
}

fn unary(op: UnaryOp, data_type: DataType, result: DataType, x: &str) -> Result<String> {
    if is_float(data_type) {
        if op == UnaryOp::Sigmoid && data_type.compute_type() != data_type {
            // TensorFlow's: every step is rounded, and 1 where the power is infinite.
            let power = rounded(data_type, format!("exp_f32({x})"));
            let sum = rounded(data_type, format!("1.0f + {power}"));
            let quotient = rounded(data_type, format!("{power} / {sum}"));
            return Ok(format!("{power} == INF_F32 ? 1.0f : {quotient}"));
        }
        let value = if data_type == DataType::Double { unary_f64(op, x) } else { unary_f32(op, x) };
        return value.map(|value| rounded(result, value)).ok_or_else(|| refused(op, data_type));
    }
    let t = computed(data_type)?;
    Ok(match (op, data_type) {
        (UnaryOp::LogicalNot, DataType::Bool) => format!("(u8)({x} ^ 1)"),
        (_, DataType::Bool) => return Err(refused(op, data_type)),
        (UnaryOp::Neg, _) => format!("neg_{t}({x})"),
        (UnaryOp::Abs, _) => format!("abs_{t}({x})"),
        (UnaryOp::Sign, _) => format!("sign_{t}({x})"),
        (UnaryOp::Square, _) => format!("mul_{t}({x}, {x})"),
        (UnaryOp::Invert, _) => format!("({t})~{x}"),
        _ => return Err(refused(op, data_type)),
    })
}

fn unary_f32(op: UnaryOp, x: &str) -> Option<String> {
    let in_doubles = |name: &str| Some(format!("(f32){name}((f64){x})"));
    Some(match op {
        UnaryOp::Neg => format!("-{x}"),
        UnaryOp::Abs => format!("fabsf({x})"),
        UnaryOp::Sign => format!("sign_f32({x})"),
        UnaryOp::Square => format!("{x} * {x}"),
        UnaryOp::Sqrt => format!("sqrtf({x})"),
        UnaryOp::Rsqrt => format!("1.0f / sqrtf({x})"),
        UnaryOp::Reciprocal => format!("1.0f / {x}"),
        UnaryOp::Exp => format!("exp_f32({x})"),
        UnaryOp::Expm1 => format!("expm1_f32({x})"),
        UnaryOp::Log => format!("log_f32({x})"),
        UnaryOp::Log1p => format!("log1p_f32({x})"),
        UnaryOp::Tanh => format!("tanh_f32({x})"),
        UnaryOp::Sigmoid => format!("sigmoid_f32({x})"),
        UnaryOp::Erf => format!("erf_f32({x})"),
        UnaryOp::Floor => format!("floorf({x})"),
        UnaryOp::Ceil => format!("ceilf({x})"),
        UnaryOp::Rint => format!("rintf({x})"),
        UnaryOp::IsNan => format!("(u8)IS_NAN({x})"),
        UnaryOp::IsFinite => format!("(u8)(fabsf({x}) < INF_F32)"),
        _ => return in_doubles(double_function(op)?),
    })
}

fn unary_f64(op: UnaryOp, x: &str) -> Option<String> {
    Some(match op {
        UnaryOp::Neg => format!("-{x}"),
        UnaryOp::Abs => format!("fabs({x})"),
        UnaryOp::Sign => format!("sign_f64({x})"),
        UnaryOp::Square => format!("{x} * {x}"),
        UnaryOp::Sqrt => format!("sqrt({x})"),
        UnaryOp::Rsqrt => format!("1.0 / sqrt({x})"),
        UnaryOp::Reciprocal => format!("1.0 / {x}"),
        UnaryOp::Exp => format!("exp({x})"),
        UnaryOp::Expm1 => format!("expm1({x})"),
        UnaryOp::Log => format!("log({x})"),
        UnaryOp::Log1p => format!("log1p({x})"),
        UnaryOp::Tanh => format!("tanh({x})"),
        UnaryOp::Sigmoid => format!("sigmoid_f64({x})"),
        UnaryOp::Erf => format!("erf({x})"),
        UnaryOp::Floor => format!("floor({x})"),
        UnaryOp::Ceil => format!("ceil({x})"),
        UnaryOp::Rint => format!("rint({x})"),
        UnaryOp::IsNan => format!("(u8)IS_NAN({x})"),
        UnaryOp::IsFinite => format!("(u8)(fabs({x}) < INF_F64)"),
        _ => return Some(format!("{}({x})", double_function(op)?)),
    })
}

/// The function of doubles that C has for it.
fn double_function(op: UnaryOp) -> Option<&'static str> {
    Some(match op {
        UnaryOp::Erfc => "erfc",
        UnaryOp::Sin => "sin",
        UnaryOp::Cos => "cos",
        UnaryOp::Tan => "tan",
        UnaryOp::Asin => "asin",
        UnaryOp::Acos => "acos",
        UnaryOp::Atan => "atan",
        UnaryOp::Sinh => "sinh",
        UnaryOp::Cosh => "cosh",
        UnaryOp::Asinh => "asinh",
        UnaryOp::Acosh => "acosh",
        UnaryOp::Atanh => "atanh",
        UnaryOp::Lgamma => "lgamma",
        _ => return None,
    })
}

/// The operator of C that compares.
fn comparison(op: BinaryOp) -> Option<&'static str> {
    Some(match op {
        BinaryOp::Equal => "==",
        BinaryOp::NotEqual => "!=",
        BinaryOp::Less => "<",
        BinaryOp::LessEqual => "<=",
        BinaryOp::Greater => ">",
        BinaryOp::GreaterEqual => ">=",
        _ => return None,
    })
}

fn binary(op: BinaryOp, data_type: DataType, x: &str, y: &str) -> Result<String> {
    let t = computed(data_type)?;
    if let Some(operator) = comparison(op) {
        return Ok(format!("(u8)({x} {operator} {y})"));
    }
    if is_float(data_type) {
        if op == BinaryOp::FloorDiv && data_type.compute_type() != data_type {
            // The quotient is a number of the type before it is rounded down.
            return Ok(format!("floorf({})", rounded(data_type, format!("{x} / {y}"))));
        }
        return Ok(rounded(data_type, float_binary(op, data_type == DataType::Double, t, x, y).ok_or_else(|| refused(op, data_type))?));
    }
    Ok(match (op, data_type) {
        (BinaryOp::LogicalAnd, DataType::Bool) => format!("(u8)({x} & {y})"),
        (BinaryOp::LogicalOr, DataType::Bool) => format!("(u8)({x} | {y})"),
        (_, DataType::Bool) => return Err(refused(op, data_type)),
        (BinaryOp::Add, _) => format!("add_{t}({x}, {y})"),
        (BinaryOp::Sub, _) => format!("sub_{t}({x}, {y})"),
        (BinaryOp::Mul, _) => format!("mul_{t}({x}, {y})"),
        (BinaryOp::Div, _) => format!("div_{t}({x}, {y}, &bad)"),
        (BinaryOp::FloorDiv, _) => format!("floor_div_{t}({x}, {y}, &bad)"),
        (BinaryOp::FloorMod, _) => format!("floor_mod_{t}({x}, {y}, &bad)"),
        (BinaryOp::TruncateMod, _) => format!("rem_{t}({x}, {y}, &bad)"),
        (BinaryOp::Minimum, _) => format!("least_{t}({x}, {y})"),
        (BinaryOp::Maximum, _) => format!("most_{t}({x}, {y})"),
        (BinaryOp::Pow, _) => format!("pow_{t}({x}, {y}, &bad)"),
        (BinaryOp::BitwiseAnd, _) => format!("({t})({x} & {y})"),
        (BinaryOp::BitwiseOr, _) => format!("({t})({x} | {y})"),
        (BinaryOp::BitwiseXor, _) => format!("({t})({x} ^ {y})"),
        (BinaryOp::LeftShift, _) => format!("left_{t}({x}, {y})"),
        (BinaryOp::RightShift, _) => format!("right_{t}({x}, {y})"),
        _ => return Err(refused(op, data_type)),
    })
}

fn float_binary(op: BinaryOp, is_double: bool, t: &str, x: &str, y: &str) -> Option<String> {
    let in_doubles = |value: String| if is_double { value } else { format!("(f32)({value})") };
    Some(match op {
        BinaryOp::Add => format!("{x} + {y}"),
        BinaryOp::Sub => format!("{x} - {y}"),
        BinaryOp::Mul => format!("{x} * {y}"),
        BinaryOp::Div => format!("{x} / {y}"),
        BinaryOp::DivNoNan => format!("div_no_nan_{t}({x}, {y})"),
        BinaryOp::FloorDiv => format!("floor_div_{t}({x}, {y})"),
        BinaryOp::FloorMod => format!("floor_mod_{t}({x}, {y})"),
        BinaryOp::TruncateMod if is_double => format!("fmod({x}, {y})"),
        BinaryOp::TruncateMod => format!("fmodf({x}, {y})"),
        BinaryOp::Minimum => format!("least_{t}({x}, {y})"),
        BinaryOp::Maximum => format!("most_{t}({x}, {y})"),
        BinaryOp::Pow if is_double => format!("pow({x}, {y})"),
        BinaryOp::Pow => format!("pow_f32({x}, {y})"),
        BinaryOp::Atan2 => in_doubles(format!("atan2((f64){x}, (f64){y})")),
        BinaryOp::Hypot => in_doubles(format!("hypot((f64){x}, (f64){y})")),
        BinaryOp::Xdivy => in_doubles(format!("{x} == 0 ? 0.0 : (f64){x} / (f64){y}")),
        BinaryOp::Xlogy => in_doubles(format!("{x} == 0 ? 0.0 : (f64){x} * log((f64){y})")),
        BinaryOp::Xlog1py => in_doubles(format!("{x} == 0 ? 0.0 : (f64){x} * log1p((f64){y})")),
        _ => return None,
    })
}

fn cast(from: DataType, to: DataType, x: &str) -> Result<String> {
    let (source, target) = (computed(from)?, computed(to)?);
    if to == DataType::Bool {
        return Ok(format!("(u8)({x} != 0)"));
    }
    let value = match (is_float(from), to) {
        (true, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Uint8 | DataType::Uint16) => {
            format!("({target}){source}_to_i32({x})")
        }
        (true, DataType::Int64 | DataType::Uint32) => format!("({target}){source}_to_i64({x})"),
        (true, DataType::Uint64) => format!("{source}_to_u64({x})"),
        _ => format!("({target}){x}"),
    };
    Ok(rounded(to, value))
}
