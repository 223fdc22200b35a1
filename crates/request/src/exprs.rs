//! The same expression for several groups of tensors: updates of many variables by one optimizer.

use plimsoll_base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::KernelRequest;
use crate::expr::Expr;

/// An expression for every element of several groups of tensors. Each group has its own number of elements.
///
/// Arguments: the single operands, in order; then for each group its other operands, in order; then for each group its results.
/// A result may lie where an operand of the same group does. No two groups share bytes that one of them writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exprs {
    /// The computation on one element of each operand.
    pub expr: Expr,
    /// For each operand, whether it is one element, the same for all groups.
    pub single: Vec<bool>,
    /// For each group, the elements of its tensors.
    pub elements: Vec<u64>,
}

impl Exprs {
    /// How many single operands there are.
    pub fn singles(&self) -> usize {
        self.single.iter().filter(|single| **single).count()
    }

    /// The argument that is an operand of a group.
    pub fn operand(&self, group: usize, operand: usize) -> usize {
        let own = |of: &[bool]| of.iter().filter(|single| !**single).count();
        if self.single[operand] {
            return operand - own(&self.single[..operand]);
        }
        self.singles() + group * own(&self.single) + own(&self.single[..operand])
    }

    /// The argument that is a result of a group.
    pub fn result(&self, group: usize, result: usize) -> usize {
        let own = self.single.len() - self.singles();
        self.singles() + self.elements.len() * own + group * self.expr.outputs().len() + result
    }

    /// A group by itself.
    pub fn group(&self, elements: u64) -> KernelRequest {
        let operands = self.single.iter().map(|single| if *single { Vec::new() } else { vec![elements] }).collect();
        KernelRequest::Expr { expr: self.expr.clone(), shape: vec![elements], operands }
    }

    /// Checks that there is a word for each operand.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is not.
    pub fn check(&self) -> Result<()> {
        let (words, operands) = (self.single.len(), self.expr.inputs().len());
        if words == operands {
            Ok(())
        } else {
            Err(Error::invalid_argument(format!("{words} words on {operands} operands of an expression")))
        }
    }
}
