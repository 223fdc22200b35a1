//! Counters: the integers and bools of one element that loops compute from known numbers, iteration by iteration.

use std::collections::HashMap;

use plimsoll_base::DataType;
use plimsoll_graph::IdVec;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg, Scalar, UnaryOp};

use super::unguarded;
use crate::lir::{Home, Lir, RegionId, Trips, ValueId, View, WorkId, WorkKind};

/// So many works are computed for all loops together.
const MOST_STEPS: u64 = 1 << 22;

/// So many loops are followed, each of which counts from where the one before ends.
const MOST_DEPTH: usize = 16;

/// Computes counters of regions and of their loops.
pub(super) struct Counts<'a> {
    lir: &'a Lir,
    /// For each value of any region, the work that defines it.
    definitions: IdVec<ValueId, Option<WorkId>>,
    /// By region: the loop that holds it.
    holders: IdVec<RegionId, Option<WorkId>>,
    /// What has a next version.
    overwritten: IdVec<ValueId, bool>,
    /// By loop: what it carries when it is over.
    ends: HashMap<WorkId, Vec<Option<i128>>>,
    left: u64,
}

/// A work of a body that computes counters.
enum Tiny<'a> {
    Expr(&'a Expr, &'a [View], &'a [ValueId]),
    Copy(ValueId, ValueId),
}

impl<'a> Counts<'a> {
    pub fn new(lir: &'a Lir) -> Counts<'a> {
        let mut definitions = IdVec::filled(None, lir.values.len());
        let mut holders = IdVec::filled(None, lir.regions.len());
        for id in lir.regions.values().flat_map(|region| &region.works) {
            let work = &lir.works[*id];
            work.outputs.iter().for_each(|output| definitions[*output] = Some(*id));
            work.regions().iter().for_each(|region| holders[*region] = Some(*id));
        }
        let mut overwritten = IdVec::filled(false, lir.values.len());
        lir.versions().for_each(|(old, _)| overwritten[old] = true);
        Counts { lir, definitions, holders, overwritten, ends: HashMap::new(), left: MOST_STEPS }
    }

    /// What each of these values of the body of a loop is in each iteration, by iteration. None where one of them is not known in one, or
    /// where the loop does not run a known number of times.
    pub fn in_each_iteration(&mut self, work: WorkId, wanted: &[ValueId]) -> Option<Vec<Vec<i128>>> {
        let mut seen = Vec::new();
        self.turns(work, 0, |now| {
            seen.push(wanted.iter().map(|value| now[*value]).collect::<Option<Vec<_>>>());
        })?;
        seen.into_iter().collect()
    }

    /// What a value is, each time that its region runs and a work reads it. Where the work that makes it is passed over, no work does. A version
    /// keeps what was there before then.
    fn value(&mut self, value: ValueId, depth: usize) -> Option<i128> {
        if depth > MOST_DEPTH {
            return None;
        }
        let id = match (self.definitions[value], self.lir.values[value].home) {
            (None, Home::Constant(_)) => return self.constant(value),
            // What stays in a loop is what the loop is given.
            (None, Home::Given { region, param }) if !self.overwritten[value] => {
                let holder = &self.lir.works[self.holders[region]?];
                let WorkKind::Loop { carried, .. } = holder.kind else { return None };
                let given = holder.inputs.get(param as usize).filter(|_| param as usize >= carried)?.value;
                return self.value(given, depth + 1);
            }
            (id, _) => id?,
        };
        let work = &self.lir.works[id];
        match &work.kind {
            _ if work.is_beside || (work.guard.is_some() && self.lir.values[value].previous.is_some()) => None,
            WorkKind::Loop { carried, .. } => {
                let place = work.outputs[..*carried].iter().position(|output| *output == value)?;
                if !self.ends.contains_key(&id) {
                    let ends = self.turns(id, depth + 1, |_| ()).unwrap_or_default();
                    self.ends.insert(id, ends);
                }
                self.ends[&id].get(place).copied().flatten()
            }
            WorkKind::Copy => self.value(work.inputs[0].value, depth + 1),
            WorkKind::Expr { expr, shape } if shape.elements().is_ok_and(|elements| elements == 1) => {
                let operands: Vec<Option<i128>> = work.inputs.iter().map(|view| self.value(view.value, depth + 1)).collect();
                let place = work.outputs.iter().position(|output| *output == value)?;
                results(expr, |input| operands.get(input).copied().flatten()).get(place).copied().flatten()
            }
            _ => None,
        }
    }

    /// The one number of a constant.
    fn constant(&self, value: ValueId) -> Option<i128> {
        let Home::Constant(constant) = self.lir.values[value].home else { return None };
        let tensor = &self.lir.constant_values[constant];
        if tensor.elements() != 1 {
            return None;
        }
        match tensor.data_type() {
            DataType::Bool => tensor.splat().or_else(|| tensor.bytes()).and_then(|bytes| bytes.first()).map(|byte| i128::from(*byte != 0)),
            _ => tensor.to_i64s()?.first().map(|number| i128::from(*number)),
        }
    }

    /// Goes through all iterations of a loop, and says what each value of the body is in them. What it carries behind them; none where they
    /// are not counted, or too many.
    fn turns(&mut self, id: WorkId, depth: usize, mut each: impl FnMut(&IdVec<ValueId, Option<i128>>)) -> Option<Vec<Option<i128>>> {
        let work = &self.lir.works[id];
        let WorkKind::Loop { body, carried, trips: Trips::Exactly(trips) } = work.kind else { return None };
        let works = self.tiny(body);
        self.left = self.left.checked_sub(trips.checked_mul(works.len() as u64 + 1)?)?;
        let mut now: IdVec<ValueId, Option<i128>> = IdVec::filled(None, self.lir.values.len());
        let params: Vec<ValueId> = self.lir.passed(body).collect();
        for &param in &self.lir.regions[body].params {
            now[param] = self.constant(param);
        }
        let inputs: Vec<Option<i128>> = work.inputs.iter().map(|view| self.value(view.value, depth + 1)).collect();
        params.iter().zip(&inputs).for_each(|(param, input)| now[*param] = *input);
        let mut carries: Vec<Option<i128>> = inputs[..carried].to_vec();
        for _ in 0..trips {
            params[..carried].iter().zip(&carries).for_each(|(param, value)| now[*param] = *value);
            for work in &works {
                match work {
                    Tiny::Copy(from, to) => now[*to] = now[*from],
                    Tiny::Expr(expr, inputs, outputs) => {
                        let results = results(expr, |input| inputs.get(input).and_then(|view| now[view.value]));
                        outputs.iter().zip(results).for_each(|(output, result)| now[*output] = result);
                    }
                }
            }
            each(&now);
            carries = self.lir.regions[body].results.iter().map(|result| now[*result]).collect();
        }
        Some(carries)
    }

    /// The works of a body that compute counters, in order.
    fn tiny(&self, body: RegionId) -> Vec<Tiny<'a>> {
        let lir = self.lir;
        let is_small = |value: &ValueId| lir.values[*value].bytes <= 8;
        let works = lir.regions[body].works.iter().map(|id| &lir.works[*id]).filter(|work| unguarded(work));
        let works = works.filter(|work| work.outputs.iter().all(is_small));
        let tiny = works.filter_map(|work| match &work.kind {
            WorkKind::Expr { expr, shape } => {
                let is_counter = shape.elements().is_ok_and(|elements| elements == 1) && expr.output_types().into_iter().any(counts);
                is_counter.then_some(Tiny::Expr(expr, &work.inputs, &work.outputs))
            }
            WorkKind::Copy => Some(Tiny::Copy(work.inputs[0].value, work.outputs[0])),
            _ => None,
        });
        tiny.collect()
    }
}

/// Whether a value of the type is a counter.
fn counts(data_type: DataType) -> bool {
    data_type == DataType::Bool || data_type.is_integer()
}

/// The results of an expression, where they are known numbers.
fn results(expr: &Expr, operand: impl Fn(usize) -> Option<i128>) -> Vec<Option<i128>> {
    let mut known: Vec<Option<i128>> = Vec::with_capacity(expr.instrs().len());
    for (number, instr) in expr.instrs().iter().enumerate() {
        let at = |reg: &Reg| known[reg.0 as usize];
        let result = match instr {
            Instr::Input(input) => operand(*input as usize),
            Instr::Const(scalar) => integer(*scalar),
            Instr::Unary(UnaryOp::LogicalNot, a) => at(a).map(|a| i128::from(a == 0)),
            Instr::Unary(UnaryOp::Neg, a) => at(a).map(|a| -a),
            Instr::Unary(..) => None,
            Instr::Binary(op, a, b) => at(a).zip(at(b)).and_then(|(a, b)| binary(*op, a, b)),
            Instr::Select(condition, a, b) => at(condition).and_then(|condition| if condition != 0 { at(a) } else { at(b) }),
            Instr::Cast(DataType::Bool, a) => at(a).map(|a| i128::from(a != 0)),
            Instr::Cast(_, a) => at(a),
        };
        known.push(result.filter(|value| holds(expr.type_of(Reg(number as u32)), *value)));
    }
    expr.outputs().iter().map(|reg| known[reg.0 as usize]).collect()
}

fn binary(op: BinaryOp, a: i128, b: i128) -> Option<i128> {
    Some(match op {
        BinaryOp::Add => a.checked_add(b)?,
        BinaryOp::Sub => a.checked_sub(b)?,
        BinaryOp::Mul => a.checked_mul(b)?,
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::FloorDiv => (b > 0).then(|| a.div_euclid(b))?,
        BinaryOp::FloorMod => (b > 0).then(|| a.rem_euclid(b))?,
        BinaryOp::Equal => i128::from(a == b),
        BinaryOp::NotEqual => i128::from(a != b),
        BinaryOp::Less => i128::from(a < b),
        BinaryOp::LessEqual => i128::from(a <= b),
        BinaryOp::Greater => i128::from(a > b),
        BinaryOp::GreaterEqual => i128::from(a >= b),
        BinaryOp::LogicalAnd => i128::from(a != 0 && b != 0),
        BinaryOp::LogicalOr => i128::from(a != 0 || b != 0),
        _ => return None,
    })
}

/// The number that a scalar is, if it is an integer or a bool.
fn integer(scalar: Scalar) -> Option<i128> {
    Some(match scalar {
        Scalar::I32(value) => value.into(),
        Scalar::I64(value) => value.into(),
        Scalar::I8(value) => value.into(),
        Scalar::I16(value) => value.into(),
        Scalar::U8(value) => value.into(),
        Scalar::U16(value) => value.into(),
        Scalar::U32(value) => value.into(),
        Scalar::U64(value) => value.into(),
        Scalar::Bool(value) => value.into(),
        Scalar::F16(_) | Scalar::Bf16(_) | Scalar::F32(_) | Scalar::F64(_) => return None,
    })
}

/// Whether a type has a number; what wraps is unknown.
fn holds(data_type: DataType, value: i128) -> bool {
    match data_type {
        DataType::Bool => (0..=1).contains(&value),
        DataType::Int8 => i8::try_from(value).is_ok(),
        DataType::Int16 => i16::try_from(value).is_ok(),
        DataType::Int32 => i32::try_from(value).is_ok(),
        DataType::Int64 => i64::try_from(value).is_ok(),
        DataType::Uint8 => u8::try_from(value).is_ok(),
        DataType::Uint16 => u16::try_from(value).is_ok(),
        DataType::Uint32 => u32::try_from(value).is_ok(),
        DataType::Uint64 => u64::try_from(value).is_ok(),
        _ => false,
    }
}
