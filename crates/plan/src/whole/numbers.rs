//! What is known of single integers and bools in memory while the commands of a queue are followed.

use std::collections::BTreeMap;

use plimsoll_base::DataType;
use plimsoll_device::{BufferRef, Command, Place, Work};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Scalar};

use super::plain;

/// Numbers beyond this, and loops of more iterations, are not followed: so no sum is larger than an int32.
pub(super) const MOST: i64 = 1 << 29;

/// No scalar has more bytes.
const WIDEST: u64 = 8;

/// What is known of an integer or of a bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is this, or of a bool 0 or 1.
    Is(i64),
    /// In iteration `i`, counted from 0, it is `i` and this.
    Grows(i64),
    /// A bool: it holds in the iterations of smaller numbers than this.
    Under(i64),
}

/// What is known, by where it lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(BTreeMap<(Place, u64), (u64, DataType, Known)>);

impl Numbers {
    /// What is known of a buffer as a scalar of a type.
    pub fn get(&self, buffer: BufferRef, data_type: DataType) -> Option<Known> {
        let (bytes, of, known) = self.0.get(&(buffer.place, buffer.offset))?;
        (*bytes == buffer.bytes && *of == data_type).then_some(*known)
    }

    /// Whether something is known of a buffer.
    pub fn has(&self, buffer: BufferRef) -> bool {
        self.0.contains_key(&(buffer.place, buffer.offset))
    }

    /// The integers that are known.
    pub fn integers(&self) -> impl Iterator<Item = (BufferRef, DataType, i64)> + '_ {
        self.0.iter().filter_map(|((place, offset), (bytes, data_type, known))| match known {
            Known::Is(integer) if is_integer(*data_type) => {
                Some((BufferRef { place: *place, offset: *offset, bytes: *bytes }, *data_type, *integer))
            }
            _ => None,
        })
    }

    /// A buffer that nothing is known of by now is a scalar of a type.
    pub fn set(&mut self, buffer: BufferRef, data_type: DataType, known: Known) {
        let is_small = |number: i64| (-MOST..=MOST).contains(&number);
        let (Known::Is(number) | Known::Grows(number) | Known::Under(number)) = known;
        if is_small(number) && data_type.size().is_some_and(|size| size as u64 == buffer.bytes) {
            self.0.insert((buffer.place, buffer.offset), (buffer.bytes, data_type, known));
        }
    }

    /// Nothing is known of a buffer's bytes.
    pub fn forget(&mut self, buffer: BufferRef) {
        let (first, end) = (buffer.offset.saturating_sub(WIDEST - 1), buffer.offset.saturating_add(buffer.bytes));
        let near = self.0.range((buffer.place, first)..(buffer.place, end));
        let over: Vec<(Place, u64)> = near.filter(|((_, at), (bytes, ..))| at + bytes > buffer.offset).map(|(at, _)| *at).collect();
        over.iter().for_each(|at| _ = self.0.remove(at));
    }

    /// What a command without a guard writes, as far as it is known.
    pub fn made(&self, command: &Command, constants: &[Option<(DataType, i64)>]) -> Vec<(BufferRef, DataType, Known)> {
        let constant = |buffer: BufferRef| match buffer.place {
            Place::Constant(index) => constants.get(index as usize).copied().flatten(),
            _ => None,
        };
        if let (Work::Copy, [from, to]) = (&command.work, &command.args[..]) {
            let known = match constant(*from) {
                Some((data_type, integer)) => Some((data_type, Known::Is(integer))),
                None => {
                    self.0.get(&(from.place, from.offset)).filter(|(bytes, ..)| *bytes == from.bytes).map(|(_, of, known)| (*of, *known))
                }
            };
            return known.map(|(data_type, known)| (*to, data_type, known)).into_iter().collect();
        }
        let Some(KernelRequest::Expr { expr, shape, operands }) = plain(command).map(|call| &*call.request) else { return Vec::new() };
        let is_one = |shape: &Vec<u64>| shape.iter().all(|dim| *dim == 1);
        let inputs = expr.inputs().len();
        if !is_one(shape) || !operands.iter().all(is_one) || command.args.len() != inputs + expr.outputs().len() {
            return Vec::new();
        }
        let input = |(buffer, data_type): (&BufferRef, &DataType)| match constant(*buffer) {
            Some((of, integer)) => (of == *data_type).then_some(Known::Is(integer)),
            None => self.get(*buffer, *data_type),
        };
        let given: Vec<Option<Known>> = command.args.iter().zip(expr.inputs()).map(input).collect();
        let results = evaluated(expr, &given).into_iter().zip(expr.output_types()).zip(&command.args[inputs..]);
        results.filter_map(|((known, data_type), buffer)| Some((*buffer, data_type, known?))).collect()
    }
}

fn is_integer(data_type: DataType) -> bool {
    matches!(data_type, DataType::Int32 | DataType::Int64)
}

/// The results of an expression on one element.
fn evaluated(expr: &Expr, inputs: &[Option<Known>]) -> Vec<Option<Known>> {
    let mut values: Vec<Option<Known>> = Vec::with_capacity(expr.instrs().len());
    for instr in expr.instrs() {
        let value = match *instr {
            Instr::Input(input) => inputs.get(input as usize).copied().flatten(),
            Instr::Const(Scalar::I32(number)) => Some(Known::Is(number.into())),
            Instr::Const(Scalar::I64(number)) => Some(Known::Is(number)),
            Instr::Const(Scalar::Bool(number)) => Some(Known::Is(number.into())),
            Instr::Binary(op, a, b) if is_integer(expr.type_of(a)) || op == BinaryOp::LogicalAnd => {
                values[a.0 as usize].zip(values[b.0 as usize]).and_then(|(a, b)| binary(op, a, b))
            }
            Instr::Cast(to, from) if is_integer(to) && is_integer(expr.type_of(from)) => values[from.0 as usize],
            _ => None,
        };
        let is_small = |known: &Known| {
            let (Known::Is(number) | Known::Grows(number) | Known::Under(number)) = known;
            (-MOST..=MOST).contains(number)
        };
        values.push(value.filter(is_small));
    }
    expr.outputs().iter().map(|reg| values[reg.0 as usize]).collect()
}

/// An operation on two integers, or on two bools. Both are small.
fn binary(op: BinaryOp, a: Known, b: Known) -> Option<Known> {
    use Known::{Grows, Is, Under};
    let is = |holds: bool| Some(Is(holds.into()));
    match (op, a, b) {
        (BinaryOp::Add, Is(a), Is(b)) => Some(Is(a + b)),
        (BinaryOp::Add, Grows(a), Is(b)) | (BinaryOp::Add, Is(b), Grows(a)) => Some(Grows(a + b)),
        (BinaryOp::Sub, Is(a), Is(b)) => Some(Is(a - b)),
        (BinaryOp::Sub, Grows(a), Is(b)) => Some(Grows(a - b)),
        (BinaryOp::Less, Is(a), Is(b)) | (BinaryOp::Greater, Is(b), Is(a)) => is(a < b),
        (BinaryOp::LessEqual, Is(a), Is(b)) | (BinaryOp::GreaterEqual, Is(b), Is(a)) => is(a <= b),
        (BinaryOp::Less, Grows(a), Is(b)) | (BinaryOp::Greater, Is(b), Grows(a)) => Some(Under(b - a)),
        (BinaryOp::LessEqual, Grows(a), Is(b)) | (BinaryOp::GreaterEqual, Is(b), Grows(a)) => Some(Under(b - a + 1)),
        (BinaryOp::LogicalAnd, Is(0), _) | (BinaryOp::LogicalAnd, _, Is(0)) => Some(Is(0)),
        (BinaryOp::LogicalAnd, Is(_), other) | (BinaryOp::LogicalAnd, other, Is(_)) => Some(other),
        (BinaryOp::LogicalAnd, Under(a), Under(b)) => Some(Under(a.min(b))),
        _ => None,
    }
}
