//! Scores that a condition hides, as a tensor that is added to them.
//!
//! To a hidden score a number is added that is not changed by it: [`HIDDEN`]. Its share is zero, as in the graph. A score that is no number stays
//! none, though; the graph hides it.
//!
//! Of a row whose scores are all hidden the graph has equal shares. Logarithms of their sums would not tell how many these are: a float of that size
//! has no room for it. So nothing is added to such a row. Its row of Q is zeros instead: then its scores are, and it adds nothing to the gradient by K.
//! The gradient by it is zeros, too. Where the graph has zeros for hidden shares, the row of the result is zeros instead.

use plimsoll_base::{DataType, Result};
use plimsoll_graph::Shape;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Instr, Reg, Scalar};
use plimsoll_request::reduce::ReduceOp;
use plimsoll_request::scaled_attention::{Lies, ScoreBias};

use super::lying::Lying;
use super::reading::{is_same, maker};
use crate::fusion::{Becomes, Computes, Patch, View, WorkId, Works};
use crate::math::reduction::folded;

/// What is added to a hidden score. A float that is nearer to zero than 2^95 adds nothing to it; its product with any number that engines
/// multiply scores by is a float.
const HIDDEN: f32 = -1.329_228e36;

/// Which scores are seen.
pub(super) struct Mask {
    /// These hold, all of them.
    conditions: Vec<View>,
    /// Each is the size of the scores, or 1.
    sizes: [u64; 4],
}

/// Values of a mask, in works that a patch adds.
pub(super) struct Made {
    /// What is added to scores.
    pub bias: View,
    /// Whether a row has a score that is seen: `[batch, heads, rows, 1]`, each the size of the scores or 1.
    pub seen: View,
}

impl Mask {
    /// The mask that a condition is. None where all is seen, and where it does not tell keys from each other.
    pub fn of(works: &dyn Works, condition: &View, scores: [u64; 4]) -> Option<Mask> {
        let (mut conditions, mut sizes) = (Vec::new(), [1; 4]);
        conjunction(works, condition, &mut conditions)?;
        for condition in &mut conditions {
            let missing = 4usize.checked_sub(condition.shape.rank())?;
            let all: Vec<u64> = std::iter::repeat_n(1, missing).chain(condition.shape.dims().iter().copied()).collect();
            for (axis, size) in all.iter().enumerate().filter(|(_, size)| **size != 1) {
                if *size != scores[axis] {
                    return None;
                }
                sizes[axis] = *size;
            }
            condition.shape = Shape::new(all);
        }
        (!conditions.is_empty() && sizes[3] == scores[3]).then_some(Mask { conditions, sizes })
    }

    /// What is added to scores.
    pub fn bias(&self) -> ScoreBias {
        ScoreBias { data_type: DataType::Float, sizes: self.sizes }
    }

    /// Whether [`Made::seen`] is a tensor for each row of one that lies so.
    pub fn is_of_rows(&self, lies: Lies) -> bool {
        let [_, heads, rows, _] = self.sizes;
        lies == Lies::ByHeads || heads == 1 || rows == 1
    }

    /// Adds works that make its values, before another one.
    pub fn make(&self, patch: Patch, before: WorkId) -> Result<(Patch, Made)> {
        let (all, [batch, heads, rows, _]) = (Shape::from(self.sizes), self.sizes);
        let (mut patch, seen_shape) = (patch, Shape::from([batch, heads, rows, 1]));
        let value = |data_type: DataType, shape: &Shape, patch: &mut Patch| -> Result<View> {
            let bytes = shape.bytes(data_type)?.0;
            Ok(View { value: patch.value(bytes), data_type, shape: shape.clone() })
        };
        let whole = match &self.conditions[..] {
            [one] if one.shape == all => one.clone(),
            several => {
                let mut builder = ExprBuilder::new();
                let mut holds = builder.constant(Scalar::Bool(true));
                for (number, _) in several.iter().enumerate() {
                    let one = builder.input(DataType::Bool)?;
                    holds = if number == 0 { one } else { builder.binary(BinaryOp::LogicalAnd, holds, one)? };
                }
                let whole = value(DataType::Bool, &all, &mut patch)?;
                let becomes = Becomes::Expr(builder.finish(vec![holds]), all.clone());
                patch = patch.add(before, becomes, several.to_vec(), vec![whole.value]);
                whole
            }
        };
        let seen = value(DataType::Bool, &seen_shape, &mut patch)?;
        let becomes = Becomes::Request(folded(ReduceOp::Any, DataType::Bool, self.sizes.to_vec(), vec![3]));
        patch = patch.add(before, becomes, vec![whole.clone()], vec![seen.value]);
        let bias = value(DataType::Float, &all, &mut patch)?;
        let mut builder = ExprBuilder::new();
        let (holds, is_seen) = (builder.input(DataType::Bool)?, builder.input(DataType::Bool)?);
        let (zero, hidden) = (builder.constant(Scalar::F32(0.0)), builder.constant(Scalar::F32(HIDDEN)));
        let low = builder.select(is_seen, hidden, zero)?;
        let added = builder.select(holds, zero, low)?;
        let becomes = Becomes::Expr(builder.finish(vec![added]), all);
        patch = patch.add(before, becomes, vec![whole, seen.clone()], vec![bias.value]);
        Ok((patch, Made { bias, seen }))
    }
}

impl Made {
    /// An expression that has zeros in rows of a tensor where nothing is seen: what it becomes and reads. `sizes` are examples, heads, rows and
    /// columns of the tensor.
    pub fn without_hidden(&self, of: &Lying, sizes: [u64; 4]) -> Result<(Becomes, Vec<View>)> {
        let by_lies = |sizes: [u64; 4]| match of.lies {
            Lies::ByHeads => sizes,
            Lies::ByRows => [sizes[0], sizes[2], sizes[1], sizes[3]],
        };
        let dims: [u64; 4] = std::array::from_fn(|axis| self.seen.shape.dims()[axis]);
        let (shape, seen) = (Shape::from(by_lies(sizes)), View { shape: by_lies(dims).into(), ..self.seen.clone() });
        let mut builder = ExprBuilder::new();
        let (is_seen, value) = (builder.input(DataType::Bool)?, builder.input(of.view.data_type)?);
        let zero = builder.number(of.view.data_type, 0.0)?;
        let kept = builder.select(is_seen, value, zero)?;
        let becomes = Becomes::Expr(builder.finish(vec![kept]), shape.clone());
        Ok((becomes, vec![seen, View { shape, ..of.view.clone() }]))
    }
}

/// The conditions of which a value is the conjunction, itself if it is none. What always holds is none.
fn conjunction(works: &dyn Works, value: &View, conditions: &mut Vec<View>) -> Option<()> {
    let mut operands = Vec::new();
    if let Some(work) = maker(works, value)
        && let Computes::Expr(expr, shape) = works.computes(work)
        && let ([output], true) = (expr.outputs(), *shape == value.shape)
        && is_conjunction(expr, *output, &mut operands)
    {
        return operands.into_iter().try_for_each(|number| conjunction(works, works.inputs(work).get(number)?, conditions));
    }
    if conditions.iter().all(|other| !is_same(works, other, value)) {
        conditions.push(value.clone());
    }
    (value.data_type == DataType::Bool).then_some(())
}

/// Whether a value of an expression is a conjunction of operands, whose numbers are added, and of what always holds.
fn is_conjunction(expr: &Expr, reg: Reg, operands: &mut Vec<usize>) -> bool {
    match expr.instrs().get(reg.0 as usize) {
        Some(Instr::Input(number)) => {
            operands.push(*number as usize);
            expr.type_of(reg) == DataType::Bool
        }
        Some(Instr::Const(Scalar::Bool(holds))) => *holds,
        Some(Instr::Binary(BinaryOp::LogicalAnd, one, other)) => {
            is_conjunction(expr, *one, operands) && is_conjunction(expr, *other, operands)
        }
        _ => false,
    }
}
