//! What weighs the rows of V: shares, and what is done to them behind the softmax.

use plimsoll_base::{DataType, Result};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Instr};
use plimsoll_request::nn::Nn;
use plimsoll_request::scaled_attention::KeptShares;

use super::reading::{chosen, is_same, maker, operation, scaled};
use super::sizes_of_added;
use crate::fusion::{Becomes, Computes, Patch, View, WorkId, Works};

/// The most works between the softmax and the product.
const MOST: usize = 8;

/// Shares, and what is done to them.
pub(super) struct Weights {
    /// What the softmax makes.
    pub shares: View,
    /// The works between, last one first.
    pub between: Vec<WorkId>,
    /// Conditions without which they are zeros.
    conditions: Vec<View>,
    /// Tensors by which they are multiplied.
    tensors: Vec<View>,
    /// The number by which they are multiplied.
    factor: f32,
}

/// What is kept where shares drop out: a tensor by which they are multiplied, or a condition without which they are zeros.
pub(super) struct Kept {
    view: View,
    pub of: KeptShares,
}

impl Weights {
    /// What a value is that weighs V.
    pub fn of(works: &dyn Works, weights: &View) -> Option<Weights> {
        Weights::behind(works, weights, MOST)
    }

    fn behind(works: &dyn Works, value: &View, most: usize) -> Option<Weights> {
        let work = maker(works, value)?;
        let expr = match works.computes(work) {
            Computes::Request(KernelRequest::Nn(Nn::Softmax { log: false, .. })) => {
                return Some(Weights {
                    shares: value.clone(),
                    between: Vec::new(),
                    conditions: Vec::new(),
                    tensors: Vec::new(),
                    factor: 1.0,
                });
            }
            Computes::Expr(expr, _) => expr,
            _ => return None,
        };
        let most = most.checked_sub(1)?;
        let is_whole = |of: &View| of.elements() == value.elements();
        let mut found = if let ([before], [output]) = (works.inputs(work), expr.outputs()) {
            let factor = scaled(expr, *output).filter(|_| is_whole(before))?;
            let found = Weights::behind(works, before, most)?;
            Weights { factor: found.factor * factor, ..found }
        } else if let Some(choice) = chosen(works, work).filter(|choice| choice.otherwise == 0.0) {
            let mut found = Weights::behind(works, &choice.of, most)?;
            found.conditions.insert(0, choice.condition);
            found
        } else {
            let [one, other] = operation(works, work, BinaryOp::Mul)?;
            let behind = |of: &View| if is_whole(of) { Weights::behind(works, of, most) } else { None };
            let (mut found, tensor) = behind(&one).map(|found| (found, other.clone())).or_else(|| Some((behind(&other)?, one)))?;
            found.tensors.insert(0, tensor);
            found
        };
        found.between.insert(0, work);
        Some(found)
    }

    /// Whether shares are zeros where `hidden` does not hold, too, and what is kept where others drop out. None where something else is done to them.
    pub fn kept(&self, works: &dyn Works, of: DataType, scores: &[u64], hidden: Option<&View>) -> Option<(bool, Option<Kept>)> {
        let is_hidden = |condition: &&View| hidden.is_some_and(|hidden| is_same(works, hidden, condition));
        let (zeros, others): (Vec<&View>, Vec<&View>) = self.conditions.iter().partition(is_hidden);
        let kept = match (&others[..], &self.tensors[..]) {
            ([], []) => None,
            ([condition], []) => Some((*condition).clone()),
            ([], [tensor]) => Some(condition_of(works, tensor).unwrap_or_else(|| tensor.clone())),
            _ => return None,
        };
        if zeros.len() > 1 || kept.is_none() && self.factor != 1.0 {
            return None;
        }
        let kept = match kept {
            Some(view) => {
                let data_type = if view.data_type == DataType::Bool { of } else { view.data_type };
                let of = KeptShares { data_type, sizes: sizes_of_added(&view.shape, scores)?, factor: self.factor };
                Some(Kept { view, of })
            }
            None => None,
        };
        Some((!zeros.is_empty(), kept))
    }
}

impl Kept {
    /// The tensor, which works before another one make where it is a condition.
    pub fn make(&self, patch: Patch, before: WorkId) -> Result<(Patch, View)> {
        let Kept { view, of } = self;
        if view.data_type != DataType::Bool {
            return Ok((patch, view.clone()));
        }
        let mut patch = patch;
        let made = View { value: patch.value(view.shape.bytes(of.data_type)?.0), data_type: of.data_type, shape: view.shape.clone() };
        let mut builder = ExprBuilder::new();
        let holds = builder.input(DataType::Bool)?;
        let (one, zero) = (builder.number(of.data_type, 1.0)?, builder.number(of.data_type, 0.0)?);
        let number = builder.select(holds, one, zero)?;
        let becomes = Becomes::Expr(builder.finish(vec![number]), view.shape.clone());
        Ok((patch.add(before, becomes, vec![view.clone()], vec![made.value]), made))
    }

    /// Whether a tensor, or a condition, says what is kept.
    pub fn is(&self, works: &dyn Works, view: &View) -> bool {
        is_same(works, &self.view, view) || condition_of(works, view).is_some_and(|condition| is_same(works, &self.view, &condition))
    }
}

/// The condition that a tensor of zeros and ones is.
fn condition_of(works: &dyn Works, view: &View) -> Option<View> {
    let work = maker(works, view)?;
    let (Computes::Expr(expr, _), [condition]) = (works.computes(work), works.inputs(work)) else { return None };
    let [output] = expr.outputs() else { return None };
    let Instr::Cast(_, of) = expr.instrs().get(output.0 as usize)? else { return None };
    let is_it = matches!(expr.instrs().get(of.0 as usize)?, Instr::Input(0)) && condition.data_type == DataType::Bool;
    (is_it && condition.elements() == view.elements()).then(|| View { shape: view.shape.clone(), ..condition.clone() })
}
