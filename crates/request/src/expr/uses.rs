//! Which steps of an expression are needed, and how long.

use super::Expr;

/// Which steps the results need, and the last reader of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// For each step, whether some result needs it.
    pub needed: Vec<bool>,
    /// For each step, the last step that reads it; `usize::MAX` for results, which are read after all steps.
    pub last: Vec<usize>,
}

impl Expr {
    /// The uses of its steps.
    pub fn uses(&self) -> Uses {
        let instrs = self.instrs();
        let mut needed = vec![false; instrs.len()];
        let mut last = vec![0; instrs.len()];
        for reg in self.outputs() {
            needed[reg.0 as usize] = true;
            last[reg.0 as usize] = usize::MAX;
        }
        for at in (0..instrs.len()).rev() {
            if needed[at] {
                for reg in instrs[at].operands().into_iter().flatten() {
                    needed[reg.0 as usize] = true;
                    last[reg.0 as usize] = last[reg.0 as usize].max(at);
                }
            }
        }
        Uses { needed, last }
    }
}
