//! The expression on the results of a product or a convolution before they leave the cache.

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Prepared;

use crate::expr::{Chain, Functions, TileProgram};
use crate::simd::Isa;
use plimsoll_request::anchor::Epilogue;

/// An epilogue, prepared. Arguments are the two operands, its further operands, its results.
pub(crate) struct Finish {
    pub program: TileProgram,
    /// The expression as changes of a tile of results, where it is a chain: it takes the program's place.
    pub chain: Option<Chain>,
    /// The argument that is its first result.
    pub result: usize,
    /// The argument, a result, where the convolution is computed; or, if `None`, that is in the worker's scratch. So it is where a result
    /// may be written over an operand: that is read when the convolution is there.
    pub in_result: Option<usize>,
    /// Where in the worker's scratch it lies.
    pub place: usize,
}

impl Finish {
    /// Of results of that shape. A chain may have these functions.
    pub(crate) fn new(isa: Isa, shape: &[u64], epilogue: Epilogue, functions: Functions) -> Result<Finish> {
        let Epilogue { expr, operands } = epilogue;
        if expr.inputs().first() != Some(&DataType::Float) {
            return Err(Error::invalid_argument("operand 0 of an epilogue is the convolution, a float"));
        }
        let chain = Chain::of(&expr, shape, &operands, functions);
        let all: Vec<Vec<u64>> = std::iter::once(shape.to_vec()).chain(operands).collect();
        let program = TileProgram::new(&expr, shape, &all, isa)?;
        let pairs = program.in_place();
        let may_be_over = pairs.iter().any(|pair| pair.0 > 0);
        let result = 1 + expr.inputs().len();
        let in_result = pairs.iter().find(|pair| pair.0 == 0 && !may_be_over).map(|pair| result + pair.1);
        Ok(Finish { program, chain, result, in_result, place: 0 })
    }

    /// Whether results wait in the worker's scratch for the program.
    pub(crate) fn waits(&self) -> bool {
        self.chain.is_none() && self.in_result.is_none()
    }

    /// Bytes of the worker's scratch that the program takes.
    pub(crate) fn scratch(&self) -> usize {
        if self.chain.is_some() { 0 } else { (self.program.scratch() as usize).next_multiple_of(64) }
    }

    /// Adds its part to the costs, and says which of its further operands may lie where a result does.
    pub(crate) fn describe(&self, prepared: &mut Prepared) {
        prepared.cost = prepared.cost + self.program.cost();
        // The convolution goes from the cache to the expression.
        prepared.cost.bytes -= 8.0 * self.program.total() as f64;
        // Operand `i` of the expression is argument `i + 1`; the convolution itself is none.
        let others = self.program.in_place().into_iter().filter(|pair| pair.0 > 0);
        prepared.in_place = others.map(|(operand, result)| (operand + 1, result)).collect();
    }
}
