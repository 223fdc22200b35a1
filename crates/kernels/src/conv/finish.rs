//! The expression on a convolution's results before they leave the cache.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;

use crate::expr::TileProgram;
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;

/// An epilogue, prepared. Arguments are the convolution's two operands, its further operands, its results.
pub(super) struct Finish {
    pub program: TileProgram,
    /// The argument, a result, where the convolution is computed; or, if `None`, that is in the worker's scratch.
    pub in_result: Option<usize>,
    /// Where in the worker's scratch it lies.
    pub place: usize,
}

impl Finish {
    /// Of results of that shape.
    pub(super) fn new(isa: Isa, shape: &[u64], epilogue: Epilogue) -> Result<Finish> {
        let Epilogue { expr, operands } = epilogue;
        if expr.inputs().first() != Some(&DataType::Float) {
            return Err(Error::invalid_argument("operand 0 of an epilogue is the convolution, a float"));
        }
        let all: Vec<Vec<u64>> = std::iter::once(shape.to_vec()).chain(operands).collect();
        let program = TileProgram::new(&expr, shape, &all, isa)?;
        let in_result = program.in_place().iter().find(|pair| pair.0 == 0).map(|pair| 1 + expr.inputs().len() + pair.1);
        Ok(Finish { program, in_result, place: 0 })
    }

    /// Adds its part to the costs, and says which of its further operands may lie where a result does: none where the convolution
    /// itself is computed.
    pub(super) fn describe(&self, operands: usize, prepared: &mut Prepared) {
        prepared.cost = prepared.cost + self.program.cost();
        // The convolution goes from the cache to the expression.
        prepared.cost.bytes -= 8.0 * self.program.total() as f64;
        // Operand `i` of the expression is argument `i + 1`.
        let elsewhere = |pair: &(usize, usize)| pair.0 > 0 && Some(2 + operands + pair.1) != self.in_result;
        prepared.in_place = self.program.in_place().into_iter().filter(elsewhere).map(|(operand, result)| (operand + 1, result)).collect();
    }
}
