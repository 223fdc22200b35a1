//! MatrixBandPart: matrices with zeros outside of a band around the main diagonal.

use plimsoll_base::{Error, Result};
use plimsoll_graph::{NodeId, Output};
use plimsoll_request::diagonals::{DiagonalForm, Diagonals};
use plimsoll_request::movement::Movement;

use crate::gradient::from_one;
use crate::infer::count;
use crate::registry::Gradient;
use crate::{Call, GraphBuilder, InferCx, KernelCx, Lower, OpRules};

/// The rules of MatrixBandPart.
pub const RULES: &[OpRules] =
    &[OpRules { name: "MatrixBandPart", infer, lower: Lower::Kernel(prepare), gradient: Gradient::Rule(gradient) }];

/// The number of diagonals on a side; a negative one means all of them.
fn side(name: &str, number: i64, size: u64, of: &str) -> Result<()> {
    if number > i64::try_from(size).unwrap_or(i64::MAX) {
        return Err(Error::invalid_argument(format!("{name} must be negative or less or equal to number of {of} ({size}) got: {number}")));
    }
    Ok(())
}

fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.with_rank_at_least(0, 2)?;
    if let Some([.., rows, columns]) = dims {
        for (input, name, size, of) in [(1, "num_lower", *rows, "rows"), (2, "num_upper", *columns, "columns")] {
            if let (Some(number), Some(size)) = (cx.int(input), size) {
                side(name, number, size, of)?;
            }
        }
    }
    cx.set(0, cx.shape(0).clone());
    Ok(())
}

fn prepare(cx: &KernelCx<'_>) -> Result<Call> {
    let &[ref batch @ .., rows, columns] = cx.dims(0) else { return Err(Error::internal("matrices of fewer than two dimensions")) };
    let [lower, upper] = [cx.int(1)?, cx.int(2)?].map(|number| if number < 0 { i64::MAX } else { number });
    let band = Diagonals { form: DiagonalForm::Band, matrices: count(batch), rows, columns, lower: -lower, upper, from_left: [true; 2] };
    Ok(Call::moving(cx.element(0)?, Movement::Diagonals(band), [0]))
}

fn gradient(builder: &mut GraphBuilder, node: NodeId, gradients: &[Option<Output>]) -> Result<Vec<Option<Output>>> {
    from_one(builder, node, gradients, |g, gradient| {
        Ok(vec![Some(g.op("MatrixBandPart", &[gradient, g.input(1), g.input(2)])?), None, None])
    })
}
