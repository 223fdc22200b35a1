//! Conditions that a step depends on.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{Args, Cost, CpuKernel, Fault, Prepared};

/// Faults with INVALID_ARGUMENT where the condition, one bool, does not hold. Argument: the condition.
pub fn assert_true() -> Prepared {
    require(Fault::invalid("assertion failed", [0, 0]))
}

/// Gives the fault where the condition, one bool, does not hold. Argument: the condition.
pub fn require(fault: Fault) -> Prepared {
    Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost::default(), in_place: Vec::new(), kernel: Arc::new(Require(fault)) }
}

#[derive(Debug)]
struct Require(Fault);

impl CpuKernel for Require {
    unsafe fn run(&self, _: Range<u32>, args: &Args<'_>) -> Result<(), Fault> {
        // SAFETY: argument 0 holds one bool, as a byte.
        let holds = unsafe { args.input::<u8>(0, 1) }[0] != 0;
        if holds { Ok(()) } else { Err(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_passes() {
        assert_eq!(crate::run_on_bytes(&assert_true(), &[&[1]], &[]).unwrap(), Vec::<Vec<u8>>::new());
        let error = crate::run_on_bytes(&assert_true(), &[&[0]], &[]).unwrap_err();
        assert_eq!(error.code(), plimsoll_base::Code::InvalidArgument);
    }
}
