//! From an expression to steps with places: which loop runs, where its operands lie, where its result goes.

use plimsoll_base::{Error, Result};

use super::complex::in_parts;
use super::ops::{self, StepFn};
use super::widen::widened;
use crate::simd::Isa;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar, Uses};

/// A place in the table of pointers.
pub(super) type TableIndex = u16;

/// One loop over a tile.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub run: StepFn,
    pub a: TableIndex,
    pub b: TableIndex,
    pub c: TableIndex,
    pub out: TableIndex,
}

/// An expression with places. Entries: operands, then outputs, then everything that lives in scratch.
pub(super) struct Compiled {
    pub steps: Vec<Step>,
    /// Steps on numbers and on operands of one element, each with the bytes of its result: that is the same for all elements.
    pub once: Vec<(Step, usize)>,
    /// Numbers to fill into scratch before the first tile.
    pub constants: Vec<(TableIndex, Scalar)>,
    /// One for each output: the operands that are read after the output is written.
    pub read_later: Vec<Vec<u16>>,
    /// How many entries there are.
    pub entries: usize,
    /// Bytes of the widest element.
    pub width: usize,
}

/// The number of bytes of an element that expressions compute with.
pub(super) fn size_of_type(data_type: plimsoll_base::DataType) -> Result<usize> {
    match data_type.size() {
        Some(size) if ExprBuilder::computes(data_type) => Ok(size),
        _ => Err(Error::unimplemented(format!("elementwise operations on {data_type}"))),
    }
}

/// `are_single` says of each operand whether it has one element for all.
pub(super) fn compile(expr: &Expr, isa: Isa, are_single: &[bool]) -> Result<Compiled> {
    let parts = in_parts(expr)?;
    let expr = parts.as_ref().unwrap_or(expr);
    let wide = widened(expr)?;
    let expr = wide.as_ref().unwrap_or(expr);
    let instrs = expr.instrs();
    let (inputs, outputs) = (expr.inputs().len(), expr.outputs().len());
    if inputs + outputs + instrs.len() > usize::from(TableIndex::MAX) {
        return Err(Error::unimplemented(format!("an expression of {inputs} operands and {} steps in one kernel", instrs.len())));
    }
    let Uses { needed, last } = expr.uses();
    let mut width = 1;
    for data_type in expr.inputs().iter().copied().chain(expr.output_types()) {
        width = width.max(size_of_type(data_type)?);
    }
    let mut compiled = Compiled {
        steps: Vec::new(),
        once: Vec::new(),
        constants: Vec::new(),
        read_later: vec![Vec::new(); outputs],
        entries: inputs + outputs,
        width,
    };

    // The first output that is a step's result gets it straight from the step.
    let output_of = |at: usize| {
        let computed = !matches!(instrs[at], Instr::Input(_) | Instr::Const(_));
        expr.outputs().iter().position(|reg| computed && reg.0 as usize == at)
    };

    // A fault is one of the elements that are computed.
    let may_be_single = !expr.can_fail() && are_single.len() == inputs;
    let mut is_single = vec![false; instrs.len()];
    // Whether steps for each element read it.
    let mut is_read_by_all = vec![false; instrs.len()];
    for (at, instr) in instrs.iter().enumerate().filter(|(at, _)| needed[*at]) {
        let reads = instr.operands();
        is_single[at] = may_be_single
            && match instr {
                Instr::Input(input) => are_single[*input as usize],
                _ => reads.iter().flatten().all(|reg| is_single[reg.0 as usize]) && output_of(at).is_none(),
            };
        if !is_single[at] {
            reads.iter().flatten().for_each(|reg| is_read_by_all[reg.0 as usize] = true);
        }
    }
    let mut entry_of: Vec<TableIndex> = vec![0; instrs.len()];
    let mut free: Vec<TableIndex> = Vec::new();
    let mut written_at: Vec<usize> = vec![usize::MAX; outputs];
    let mut read_at: Vec<Vec<usize>> = vec![Vec::new(); inputs];
    for (at, instr) in instrs.iter().enumerate() {
        if !needed[at] {
            continue;
        }
        compiled.width = compiled.width.max(size_of_type(expr.type_of(Reg(at as u32)))?);
        let reads = instr.operands();
        match instr {
            Instr::Input(input) => {
                entry_of[at] = *input as TableIndex;
                continue;
            }
            Instr::Const(value) => {
                entry_of[at] = compiled.entries as TableIndex;
                compiled.constants.push((entry_of[at], *value));
                compiled.entries += 1;
                continue;
            }
            _ => {}
        }
        for reg in reads.into_iter().flatten() {
            if let Instr::Input(input) = instrs[reg.0 as usize] {
                read_at[input as usize].push(compiled.steps.len());
            }
        }
        // A register whose last reader is this step may hold the result: loops work in place, where sizes are equal.
        let ends = |reg: &Reg| {
            last[reg.0 as usize] == at
                && entry_of[reg.0 as usize] as usize >= inputs + outputs
                && !matches!(instrs[reg.0 as usize], Instr::Const(_))
                // What is the same for all elements is there until the last of them, and is computed before the first.
                && (!is_single[reg.0 as usize] || (is_single[at] && !is_read_by_all[reg.0 as usize]))
        };
        let size = |reg: Reg| expr.type_of(reg).size();
        let mut released: Vec<TableIndex> = Vec::new();
        let mut reuse = None;
        for reg in reads.iter().flatten().filter(|reg| ends(reg)) {
            let entry = entry_of[reg.0 as usize];
            if released.contains(&entry) {
                continue;
            }
            released.push(entry);
            if size(*reg) == size(Reg(at as u32)) {
                reuse = Some(entry);
            }
        }
        let out = match output_of(at) {
            Some(output) => {
                written_at[output] = compiled.steps.len();
                (inputs + output) as TableIndex
            }
            // A place that is free here may be taken by a step before, for other elements.
            None => match reuse.or_else(|| if is_single[at] { None } else { free.pop() }) {
                Some(entry) => entry,
                None => {
                    compiled.entries += 1;
                    (compiled.entries - 1) as TableIndex
                }
            },
        };
        free.extend(released.into_iter().filter(|entry| *entry != out));
        entry_of[at] = out;
        let place = |reg: Option<Reg>| reg.map_or(0, |reg| entry_of[reg.0 as usize]);
        let missing = || Error::unimplemented(format!("{instr:?} on {}", reads[0].map_or("nothing", |reg| expr.type_of(reg).name())));
        let run = match instr {
            Instr::Unary(op, a) => ops::unary(*op, expr.type_of(*a), isa),
            Instr::Binary(op, a, b) => {
                let power = match instrs[b.0 as usize] {
                    Instr::Const(exponent) if *op == BinaryOp::Pow => ops::power(exponent, isa),
                    _ => None,
                };
                power.or_else(|| ops::binary(*op, expr.type_of(*a), isa))
            }
            Instr::Select(_, a, _) => ops::select(size_of_type(expr.type_of(*a))?, isa),
            Instr::Cast(to, a) => ops::cast(expr.type_of(*a), *to, isa),
            Instr::Input(_) | Instr::Const(_) => None,
        }
        .ok_or_else(missing)?;
        let step = Step { run, a: place(reads[0]), b: place(reads[1]), c: place(reads[2]), out };
        match is_single[at] {
            true => compiled.once.push((step, size_of_type(expr.type_of(Reg(at as u32)))?)),
            false => compiled.steps.push(step),
        }
    }

    // Outputs that are operands, numbers, or other outputs once more.
    for (output, reg) in expr.outputs().iter().enumerate() {
        if written_at[output] == usize::MAX {
            if let Instr::Input(input) = instrs[reg.0 as usize] {
                read_at[input as usize].push(compiled.steps.len());
            }
            written_at[output] = compiled.steps.len();
            let run = ops::copy(size_of_type(expr.type_of(*reg))?).ok_or_else(|| Error::internal("no copy loop"))?;
            compiled.steps.push(Step { run, a: entry_of[reg.0 as usize], b: 0, c: 0, out: (inputs + output) as TableIndex });
        }
    }
    for (output, written) in written_at.iter().enumerate() {
        for (input, steps) in read_at.iter().enumerate() {
            if steps.iter().any(|step| step > written) {
                compiled.read_later[output].push(input as u16);
            }
        }
    }
    if compiled.entries > usize::from(TableIndex::MAX) {
        return Err(Error::unimplemented("an expression with more than 65535 places"));
    }
    Ok(compiled)
}
