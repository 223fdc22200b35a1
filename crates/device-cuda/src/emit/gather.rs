//! Rows that indices name. What several indices write is combined in the order of the indices: a thread owns rows of a column, and
//! looks at every index. Indices are checked by a kernel before: where one is outside, nothing is written.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::gather::{Access, Gather, ScatterOp, SegmentOp};
use plimsoll_request::rows::{RowOperand, UpdateRows};

use super::expr::{FAULTS, function};
use super::write::{Index, Writer, computed, is_float, narrow, stored, widen, word};
use super::{Emitted, FaultNumber, FaultText, Kernel, KernelArg, blocks, count};

/// Threads that share the rows of a variable.
const OWNERS: u64 = 1 << 14;

/// Rows and elements that indices name.
///
/// # Errors
/// UNIMPLEMENTED where there is no kernel.
pub(super) fn emit(gather: &Gather) -> Result<Emitted> {
    match gather {
        Gather::Take { element, params, indices, axis, batch_dims, index_type } => {
            if batch_dims > axis || *axis >= params.len() || indices.get(..*batch_dims) != params.get(..*batch_dims) {
                return Err(Error::invalid_argument("indices with other batch dimensions than there are before the axis"));
            }
            take(*element as u64, params, indices, *axis, *batch_dims, *index_type)
        }
        Gather::OneHot { element, index_type, shape, depth, axis } => one_hot(*element as u64, *index_type, shape, *depth, *axis),
        Gather::Segment { op, data_type, index_type, shape, ids_shape, segments } => {
            if !shape.starts_with(ids_shape) {
                return Err(Error::invalid_argument(format!(
                    "data.shape = {shape:?} does not start with segment_ids.shape = {ids_shape:?}"
                )));
            }
            let combine = Combine::of_segment(*op, *data_type)?;
            let rows = Rows {
                combine,
                data_type: *data_type,
                index_type: *index_type,
                rows: *segments,
                inner: count(&shape[ids_shape.len()..]),
                indices: count(ids_shape),
                segments: true,
                scalar: false,
                ignore: false,
            };
            rows.emit("segment_ids[{0}] is out of range [0, {1})")
        }
        Gather::Scatter { op, data_type, index_type, shape, indices, depth: 1, scalar_updates, ignore, .. } if !shape.is_empty() => {
            let rows = Rows {
                combine: Combine::of_scatter(*op, *data_type)?,
                data_type: *data_type,
                index_type: *index_type,
                rows: shape[0],
                inner: count(&shape[1..]),
                indices: *indices,
                segments: false,
                scalar: *scalar_updates,
                ignore: *ignore,
            };
            rows.emit("indices[{0}] is not in [0, {1})")
        }
        _ => Err(Error::unimplemented("a kernel for a card: this gather")),
    }
}

/// `params[batch, outer, limit, inner]`, `indices[batch, taken]`, `output[batch, outer, taken, inner]`.
fn take(element: u64, params: &[u64], indices: &[u64], axis: usize, batch_dims: usize, index_type: DataType) -> Result<Emitted> {
    let (outer, limit, mut inner) = (count(&params[batch_dims..axis]), params[axis], count(&params[axis + 1..]));
    let taken = count(&indices[batch_dims..]);
    let batches = count(&params[..batch_dims]);
    let mut bytes = element;
    while bytes < 16 && inner > 0 && inner.is_multiple_of(2) {
        bytes *= 2;
        inner /= 2;
    }
    let ctype = word(bytes)?;
    let elements = batches * outer * taken * inner;
    let mut writer = Writer::new(Index::of(elements.max(batches * outer * limit * inner)));
    let index = writer.index();
    writer.input("p", ctype, KernelArg::Argument(0));
    writer.input("indices", index_ctype(index_type)?, KernelArg::Argument(1));
    writer.output("q", ctype, KernelArg::Argument(2));
    writer.size("n", elements as i64);
    writer.size("inner", inner as i64);
    writer.size("taken", taken as i64);
    writer.size("limit", limit as i64);
    writer.size("outer", outer as i64);
    writer.fault();
    writer.each("i", "n");
    writer.line(format!("{index} c = i % inner, row = i / inner, place = row / taken, number = place / outer * taken + row % taken;"));
    writer.line("i64 at = (i64)indices[number];");
    writer.line("if (at < 0 || at >= (i64)limit) { fail(fault, base, number, 1); continue; }");
    writer.line(format!("q[i] = p[(place * limit + ({index})at) * inner + c];"));
    writer.line("}");
    let fault = FaultText::of("indices[{0}] is not in [0, {1})", FaultNumber::Element, FaultNumber::Constant(limit as i64));
    Ok(Emitted { kernels: vec![writer.finish("take", blocks(elements))?], faults: vec![fault], ..Emitted::default() })
}

/// A new dimension of `depth` elements.
fn one_hot(element: u64, index_type: DataType, shape: &[u64], depth: u64, axis: usize) -> Result<Emitted> {
    if axis > shape.len() {
        return Err(Error::invalid_argument("an axis that is not there"));
    }
    let ctype = word(element)?;
    let inner = count(&shape[axis..]);
    let elements = count(shape) * depth;
    // 16 bytes at once of what one index makes.
    let vector = 16 / element.max(1);
    let vector = if inner == 1 && depth.is_multiple_of(vector) { vector } else { 1 };
    let mut writer = Writer::new(Index::of(elements));
    let index = writer.index();
    writer.input("indices", if index_type == DataType::Uint8 { "u8" } else { index_ctype(index_type)? }, KernelArg::Argument(0));
    writer.input("on", ctype, KernelArg::Argument(1));
    writer.input("off", ctype, KernelArg::Argument(2));
    writer.output("q", ctype, KernelArg::Argument(3));
    writer.size("n", (elements / vector) as i64);
    writer.size("inner", inner as i64);
    writer.size("depth", depth as i64);
    writer.each("i", "n");
    if vector == 1 {
        writer.line("i64 at = (i64)indices[i / inner / depth * inner + i % inner];");
        writer.line("q[i] = at == (i64)(i / inner % depth) ? *on : *off;");
    } else {
        writer.line(format!("{index} place = i * {vector} / depth, c = i * {vector} - place * depth; (void)inner;"));
        writer.line(format!("i64 at = (i64)indices[place] - (i64)c; {ctype}x{vector} made;"));
        writer.line(format!("_Pragma(\"unroll\") for (u32 k = 0; k < {vector}; ++k) made.v[k] = at == (i64)k ? *on : *off;"));
        writer.line(format!("*({ctype}x{vector}*)(q + i * {vector}) = made;"));
    }
    writer.line("}");
    Ok(Emitted { kernels: vec![writer.finish("one_hot", blocks(elements / vector))?], ..Emitted::default() })
}

fn index_ctype(index_type: DataType) -> Result<&'static str> {
    match index_type {
        DataType::Int32 | DataType::Int64 => stored(index_type),
        other => Err(Error::unimplemented(format!("indices of {other}"))),
    }
}

/// How an update becomes part of an element.
struct Combine {
    /// Of `a` and `b`, as they are computed with; `bad` where that cannot be.
    text: String,
    /// An element of an empty segment.
    empty: String,
    /// When it is refused, and the words; what was combined before stays.
    refused: Option<(&'static str, &'static str)>,
    can_fail: bool,
}

impl Combine {
    fn of_segment(op: SegmentOp, data_type: DataType) -> Result<Combine> {
        let op = match op {
            SegmentOp::Sum => ScatterOp::Add,
            SegmentOp::Prod => ScatterOp::Mul,
            SegmentOp::Max => ScatterOp::Max,
            SegmentOp::Min => ScatterOp::Min,
        };
        Combine::of_scatter(op, data_type)
    }

    fn of_scatter(op: ScatterOp, data_type: DataType) -> Result<Combine> {
        if data_type == DataType::Bool && op != ScatterOp::Update {
            return Err(Error::unimplemented("a kernel for a card: a scatter of bool"));
        }
        if matches!(op, ScatterOp::Mark(_)) && data_type != DataType::Uint8 {
            return Err(Error::invalid_argument(format!("marks of {data_type}")));
        }
        let t = computed(data_type)?;
        let is_float = is_float(data_type);
        let bits = data_type.size().unwrap_or(8) * 8;
        let most = match (data_type, is_float) {
            (DataType::Half, _) => "from_f16(0x7BFF)".to_string(),
            (DataType::Bfloat16, _) => "from_bf16(0x7F7F)".to_string(),
            (DataType::Double, _) => "1.7976931348623157e308".to_string(),
            (_, true) => "3.40282347e38f".to_string(),
            _ if t.starts_with('i') => format!("({t})((1ull << {}) - 1)", bits - 1),
            _ => format!("({t})~0ull"),
        };
        let least = match is_float {
            true => format!("-{most}"),
            false if t.starts_with('i') => format!("({t})(1ull << {})", bits - 1),
            false => "0".to_string(),
        };
        let infix = |operator: &str, name: &str| if is_float { format!("a {operator} b") } else { format!("{name}_{t}(a, b)") };
        let (text, empty) = match op {
            ScatterOp::Update => ("b".to_string(), "0".to_string()),
            ScatterOp::Add => (infix("+", "add"), "0".to_string()),
            ScatterOp::Sub => (infix("-", "sub"), "0".to_string()),
            ScatterOp::Mul => (infix("*", "mul"), "1".to_string()),
            ScatterOp::Div if is_float => ("a / b".to_string(), "1".to_string()),
            ScatterOp::Div => (format!("div_{t}(a, b, &bad)"), "1".to_string()),
            ScatterOp::Min => ("b < a ? b : a".to_string(), most),
            ScatterOp::Max => ("b > a ? b : a".to_string(), least),
            ScatterOp::Mark(Access::ReadWritten) => ("a".to_string(), "1".to_string()),
            ScatterOp::Mark(Access::Write | Access::Read) => ("a | b".to_string(), "0".to_string()),
        };
        let refused = match op {
            ScatterOp::Mark(access @ Access::ReadWritten) => Some(("b > a", access.refusal())),
            ScatterOp::Mark(access @ (Access::Write | Access::Read)) => Some(("(a & b) != 0", access.refusal())),
            _ => None,
        };
        Ok(Combine { text, empty, refused, can_fail: op == ScatterOp::Div && !is_float })
    }
}

/// Rows of a result that are combined with rows that indices name.
struct Rows {
    combine: Combine,
    data_type: DataType,
    index_type: DataType,
    rows: u64,
    inner: u64,
    indices: u64,
    /// Whether the result begins empty, and a negative index takes no effect.
    segments: bool,
    /// Whether one number is combined with all elements of a row.
    scalar: bool,
    /// Whether an index outside takes no effect.
    ignore: bool,
}

impl Rows {
    fn emit(&self, outside: &'static str) -> Result<Emitted> {
        // Where a division may fail in the middle, the variable would not be as before.
        if self.combine.can_fail || (self.combine.refused.is_some() && self.ignore) {
            return Err(Error::unimplemented("a kernel for a card: a scatter that divides integers"));
        }
        let (indices, updates, output) = if self.segments { (1, 0, 2) } else { (1, 2, 3) };
        let mut kernels = Vec::new();
        if !self.ignore {
            kernels.push(check(self.index_type, KernelArg::Argument(indices), self.indices, self.rows, self.segments)?);
        }
        let ctype = stored(self.data_type)?;
        let t = computed(self.data_type)?;
        let mut writer = Writer::new(Index::of((self.rows * self.inner).max(self.indices * self.inner)));
        let index = writer.index();
        if !self.segments {
            writer.input("p", ctype, KernelArg::Argument(0));
        }
        writer.input("indices", index_ctype(self.index_type)?, KernelArg::Argument(indices));
        writer.input("updates", ctype, KernelArg::Argument(updates));
        writer.output("q", ctype, KernelArg::Argument(output));
        writer.before.push_str(&format!("DEVICE {t} @_combine({t} a, {t} b) {{ return {}; }}\n", self.combine.text));
        if let Some((when, _)) = self.combine.refused {
            writer.before.push_str(&format!("DEVICE int @_refuses({t} a, {t} b) {{ return {when}; }}\n"));
        }
        // A kernel that says faults does not look whether there is one: its threads would race.
        if self.combine.refused.is_some() {
            writer.fault();
        }
        let guarded = !self.ignore && self.combine.refused.is_none();
        let owners = owned(&mut writer, self.rows, self.inner, self.indices, guarded);
        let begin = if self.segments { narrow(self.data_type, &self.combine.empty) } else { "p[at]".to_string() };
        let copies = if self.segments { "" } else { "if (p != q) " };
        writer.line(format!("{copies}for ({index} row = first; row < end; ++row) {{ {index} at = row * inner + c; q[at] = {begin}; }}"));
        writer.line(format!("for ({index} k = 0; k < indices_count; ++k) {{"));
        writer.line(format!("i64 to = (i64)indices[k]; {index} row = ({index})to;"));
        writer.line("if (to < 0 || to >= (i64)rows || row < first || row >= end) continue;");
        let update = if self.scalar { "updates[0]" } else { "updates[k * inner + c]" };
        let operands = format!("{}, {}", widen(self.data_type, "q[row * inner + c]"), widen(self.data_type, update));
        if self.combine.refused.is_some() {
            writer.line(format!("if (@_refuses({operands})) {{ fail(fault, base, row, 2); continue; }}"));
        }
        let value = format!("@_combine({operands})");
        writer.line(format!("q[row * inner + c] = {};", narrow(self.data_type, value)));
        writer.line("}\n  }");
        kernels.push(writer.finish("rows", blocks(owners))?);
        let words = [Some(outside), self.combine.refused.map(|(_, words)| words)].into_iter().flatten();
        let fault = |words| FaultText::of(words, FaultNumber::Element, FaultNumber::Constant(self.rows as i64));
        let faults = if self.ignore { Vec::new() } else { words.map(fault).collect() };
        let in_place = if self.segments { Vec::new() } else { vec![(0, 0)] };
        Ok(Emitted { kernels, faults, in_place, ..Emitted::default() })
    }
}

/// The head of a loop in which each thread owns the rows from `first` to `end` of column `c`. Behind a fault it does nothing.
/// Returns how many threads there are.
fn owned(writer: &mut Writer, rows: u64, inner: u64, indices: u64, guarded: bool) -> u64 {
    let groups = (OWNERS / inner.max(1)).clamp(1, rows.max(1));
    let share = rows.div_ceil(groups);
    let index = writer.index();
    if guarded {
        writer.fault();
        writer.line("if (*fault != 0xFFFFFFFFFFFFFFFFull) return; (void)base;");
    }
    writer.size("rows", rows as i64);
    writer.size("inner", inner as i64);
    writer.size("indices_count", indices as i64);
    writer.size("share", share as i64);
    writer.size("n", (groups * inner) as i64);
    writer.each("i", "n");
    writer.line(format!("{index} c = i % inner, first = i / inner * share, end = first + share < rows ? first + share : rows;"));
    groups * inner
}

/// A fault for each index outside; a negative one is none where it takes no effect.
fn check(index_type: DataType, indices: KernelArg, number: u64, rows: u64, negative: bool) -> Result<Kernel> {
    let mut writer = Writer::new(Index::of(number));
    writer.input("indices", index_ctype(index_type)?, indices);
    writer.size("n", number as i64);
    writer.long("i64", "rows", rows);
    writer.fault();
    writer.each("i", "n");
    let outside = if negative { "at >= rows" } else { "at < 0 || at >= rows" };
    writer.line(format!("i64 at = (i64)indices[i]; if ({outside}) fail(fault, base, i, 1);"));
    writer.line("}");
    writer.finish("check", blocks(number))
}

/// Rows of variables changed by an expression, for one index after the other.
///
/// # Errors
/// UNIMPLEMENTED for expressions without code, and those that can fail.
pub(super) fn update_rows(update: &UpdateRows) -> Result<Emitted> {
    update.check()?;
    let function = function(&update.expr)?;
    if function.can_fail {
        return Err(Error::unimplemented("a kernel for a card: rows changed by an expression that can fail"));
    }
    let (operands, variables) = (update.operands.len(), update.variables());
    let mut kernels = vec![check(update.index_type, KernelArg::Argument(operands as u32), update.indices, update.rows, false)?];
    let mut writer = Writer::new(Index::of((update.rows * update.inner).max(update.indices * update.inner)));
    writer.before.push_str(&function.text);
    let index = writer.index();
    for (operand, data_type) in update.expr.inputs().iter().enumerate() {
        writer.input(format!("p{operand}"), stored(*data_type)?, KernelArg::Argument(operand as u32));
    }
    writer.input("indices", index_ctype(update.index_type)?, KernelArg::Argument(operands as u32));
    for (output, data_type) in update.expr.output_types().iter().enumerate() {
        writer.output(format!("q{output}"), stored(*data_type)?, KernelArg::Argument((operands + 1 + output) as u32));
    }
    let owners = owned(&mut writer, update.rows, update.inner, update.indices, true);
    for variable in 0..variables {
        writer.line(format!(
            "if (p{variable} != q{variable}) for ({index} at = first; at < end; ++at) q{variable}[at * inner + c] = p{variable}[at * inner + c];"
        ));
    }
    writer.line(format!("for ({index} k = 0; k < indices_count; ++k) {{"));
    writer.line(format!("i64 to = (i64)indices[k]; {index} row = ({index})to;"));
    writer.line("if (to < 0 || to >= (i64)rows || row < first || row >= end) continue;");
    let mut args: Vec<String> = Vec::new();
    for (at, operand) in update.operands.iter().enumerate() {
        args.push(match operand {
            RowOperand::Variable => format!("q{at}[row * inner + c]"),
            RowOperand::Update => format!("p{at}[k * inner + c]"),
            RowOperand::Scalar => format!("p{at}[0]"),
        });
    }
    args.extend((0..variables).map(|output| format!("&q{output}[row * inner + c]")));
    writer.line(format!("@_element({});", args.join(", ")));
    writer.line("}\n  }");
    kernels.push(writer.finish("update_rows", blocks(owners))?);
    debug_assert_eq!(FAULTS.len(), 2);
    let text = "Index at offset {0} in indices is out of range [0, {1})";
    let faults = vec![FaultText::of(text, FaultNumber::Element, FaultNumber::Constant(update.rows as i64))];
    Ok(Emitted { kernels, faults, in_place: (0..variables).map(|at| (at, at)).collect(), ..Emitted::default() })
}
