//! The same expression for several groups of tensors: a block computes a part of one group, which it finds by its number.
//!
//! The addresses of all groups are arguments of the launch. So a launch takes as many groups as these have room for.

use std::fmt::Write;
use std::ops::Range;

use plimsoll_base::{Error, Result};
use plimsoll_request::exprs::Exprs;

use super::expr::{Launch, function, lanes};
use super::view::Joined;
use super::write::{Index, Writer, stored};
use super::{Emitted, KernelArg, THREADS};

/// How often each thread of a block takes elements.
const ROUNDS: u64 = 4;

/// # Errors
/// UNIMPLEMENTED for primitives without code, for those that find faults, and for more arguments than a launch has.
pub(super) fn emit(request: &Exprs) -> Result<Emitted> {
    let Exprs { expr, single, elements } = request;
    if expr.can_fail() {
        return Err(Error::unimplemented("a kernel for a card: faults of several groups of tensors"));
    }
    let most = elements.iter().copied().max().unwrap_or(0);
    let function = function(expr)?;
    let mut writer = Writer::new(Index::of(most));
    writer.before.push_str(&function.text);
    let moves: Vec<bool> = single.iter().map(|single| !single).collect();
    let joined = Joined { sizes: vec![most], strides: moves.iter().map(|moves| vec![u64::from(*moves)]).collect() };
    let outputs = expr.output_types();
    let launch = Launch { expr, outputs: &outputs, joined: &joined, lanes: lanes(expr, &joined), can_fail: false };

    // The names that an element's code knows, and those of the arguments of each group.
    let mut names: Vec<String> = Vec::new();
    for (operand, data_type) in expr.inputs().iter().enumerate() {
        let ctype = stored(*data_type)?;
        if single[operand] {
            writer.input(format!("p{operand}"), ctype, KernelArg::Argument(request.operand(0, operand) as u32));
        } else {
            names.push(format!("p{operand}"));
            writer.line(format!("const {ctype}* p{operand};"));
        }
    }
    for (output, data_type) in outputs.iter().enumerate() {
        names.push(format!("q{output}"));
        writer.line(format!("{}* q{output};", stored(*data_type)?));
    }
    names.push("n".to_string());
    let index = writer.index();
    writer.line(format!("{index} n; u32 first;"));
    let mut blocks = 0u64;
    let mut groups = 0;
    let mut in_place = Vec::new();
    for (group, elements) in elements.iter().enumerate().filter(|(_, elements)| **elements > 0) {
        for (operand, data_type) in expr.inputs().iter().enumerate().filter(|(operand, _)| moves[*operand]) {
            let argument = request.operand(group, operand);
            writer.input(format!("p{operand}_{groups}"), stored(*data_type)?, KernelArg::Argument(argument as u32));
            for (output, _) in outputs.iter().enumerate().filter(|(_, result)| data_type.size() == result.size()) {
                in_place.push((argument, group * outputs.len() + output));
            }
        }
        for (output, data_type) in outputs.iter().enumerate() {
            writer.output(format!("q{output}_{groups}"), stored(*data_type)?, KernelArg::Argument(request.result(group, output) as u32));
        }
        writer.size(format!("n_{groups}"), *elements as i64);
        let first = u32::try_from(blocks).map_err(|_| Error::unimplemented("a kernel for a card with that many blocks"))?;
        writer.word("u32", format!("first_{groups}"), first);
        blocks += elements.div_ceil(launch.lanes * ROUNDS * u64::from(THREADS));
        groups += 1;
    }
    if groups == 0 {
        return Ok(Emitted::default());
    }
    let blocks = i32::try_from(blocks).map_err(|_| Error::unimplemented("a kernel for a card with that many blocks"))?;
    let mut found = String::new();
    find(&mut found, 0..groups, &names);
    writer.line(found);
    let (chunk, lanes) = (ROUNDS * u64::from(THREADS), launch.lanes);
    writer.line(format!("const {index} begin = ({index})(blockIdx.x - first) * {chunk}, all = (n + {}) / {lanes};", lanes - 1));
    writer.line(format!("const {index} end = begin + {chunk} < all ? begin + {chunk} : all;"));
    writer.line(format!("for ({index} g = begin + threadIdx.x; g < end; g += THREADS) {{"));
    writer.line(format!("{index} i = g * {lanes};"));
    launch.elements_at_i(&mut writer, &moves)?;
    writer.line("}");
    Ok(Emitted { kernels: vec![writer.finish("exprs", blocks as u32)?], in_place, ..Emitted::default() })
}

/// Statements that give each name the argument of the group to which the block belongs.
fn find(text: &mut String, groups: Range<u32>, names: &[String]) {
    // Writing to a text does not fail.
    if groups.len() == 1 {
        let group = groups.start;
        for name in names {
            let _ = write!(text, "{name} = {name}_{group}; ");
        }
        let _ = write!(text, "first = first_{group};");
        return;
    }
    let middle = groups.start + groups.len() as u32 / 2;
    let _ = write!(text, "if (blockIdx.x < first_{middle}) {{ ");
    find(text, groups.start..middle, names);
    text.push_str(" } else { ");
    find(text, middle..groups.end, names);
    text.push_str(" }");
}
