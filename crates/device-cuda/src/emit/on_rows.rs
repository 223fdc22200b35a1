//! Expressions of which some operands and results are rows of larger tensors. Each thread finds by their indices where the rows begin. Where one is
//! outside, none of them writes anything.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::on_rows::{OnRows, RowOf};

use super::expr;
use super::write::{Writer, stored};
use super::{Emitted, FaultNumber, FaultText, KernelArg, count};

/// The most faults that a kernel can tell apart.
const MOST_FAULTS: usize = 15;

/// The rows of a kernel.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// The outputs that are rows.
    outputs: Vec<u32>,
    /// The inputs that are.
    inputs: Vec<u32>,
}

/// An argument that is a row.
struct Row {
    /// The name of its address.
    name: String,
    of: RowOf,
    /// Elements of a row.
    elements: u64,
}

/// # Errors
/// UNIMPLEMENTED for rows of what is no expression, for more of them than faults can tell apart, and as expressions.
pub(super) fn emit(on: &OnRows) -> Result<Emitted> {
    let KernelRequest::Expr { expr, shape, operands } = &*on.request else {
        return Err(Error::unimplemented("a kernel for a card: rows of what is no expression"));
    };
    let row = |name: &str, of: &RowOf, elements| Row { name: format!("{name}{}", of.argument), of: *of, elements };
    let of_inputs = on.inputs.iter().map(|of| row("p", of, count(&operands[of.argument as usize])));
    let of_outputs = on.outputs.iter().map(|of| row("q", of, count(shape)));
    let numbers = |rows: &[RowOf]| rows.iter().map(|of| of.argument).collect();
    let rows = Rows { rows: of_inputs.chain(of_outputs).collect(), outputs: numbers(&on.outputs), inputs: numbers(&on.inputs) };
    expr::emit_on(&rows, expr, shape, operands)
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Arguments between the operands and the results: tensors that have rows written, and indices.
    pub fn arguments(&self) -> usize {
        self.outputs.len() + self.rows.len()
    }

    /// Writes the statements that move the addresses to the rows, and adds a fault for each.
    ///
    /// # Errors
    /// UNIMPLEMENTED for more rows than faults can tell apart.
    pub fn find(&self, writer: &mut Writer, operands: usize, faults: &mut Vec<FaultText>) -> Result<()> {
        if faults.len() + self.rows.len() > MOST_FAULTS {
            return Err(Error::unimplemented(format!("a kernel for a card: {} rows", self.rows.len())));
        }
        for (number, Row { of: RowOf { rows, index_type, .. }, elements, .. }) in self.rows.iter().enumerate() {
            let ctype = match index_type {
                DataType::Int32 | DataType::Int64 => stored(*index_type)?,
                other => return Err(Error::unimplemented(format!("indices of {other}"))),
            };
            let argument = operands + self.outputs.len() + number;
            writer.input(format!("x{number}"), ctype, KernelArg::Argument(argument as u32));
            writer.long("i64", format!("rows{number}"), *rows);
            writer.long("i64", format!("row{number}"), *elements);
            faults.push(FaultText::of(
                "indices[{0}] is not in [0, {1})",
                FaultNumber::Constant(0),
                FaultNumber::Constant(i64::try_from(*rows).unwrap_or(i64::MAX)),
            ));
            writer.line(format!("i64 at{number} = (i64)*x{number};"));
            writer.line(format!("if (at{number} < 0 || at{number} >= rows{number}) {{"));
            writer.line(format!("  if (blockIdx.x == 0 && threadIdx.x == 0) fail(fault, base, 0, {});", faults.len()));
            writer.line("  return;");
            writer.line("}");
        }
        for (number, Row { name, .. }) in self.rows.iter().enumerate() {
            writer.line(format!("{name} += at{number} * row{number};"));
        }
        Ok(())
    }

    /// As many elements at once as every row begins with.
    pub fn aligned(&self, lanes: u64) -> u64 {
        let mut lanes = lanes;
        while self.rows.iter().any(|row| !row.elements.is_multiple_of(lanes)) {
            lanes /= 2;
        }
        lanes
    }

    /// The inputs that outputs may be written over: those of the expression that are no rows, and tensors that have rows written.
    pub fn in_place(&self, own: Vec<(usize, usize)>, operands: usize) -> Vec<(usize, usize)> {
        let is_row = |rows: &[u32], argument: usize| rows.iter().any(|row| *row as usize == argument);
        let kept = own.into_iter().filter(|(input, output)| !is_row(&self.inputs, *input) && !is_row(&self.outputs, *output));
        let tensors = self.outputs.iter().enumerate().map(|(number, output)| (operands + number, *output as usize));
        kept.chain(tensors).collect()
    }
}
