//! A condition that has to hold: one thread looks at it.

use plimsoll_base::Result;
use plimsoll_request::check::Requirement;

use super::write::{Index, Writer};
use super::{Emitted, FaultNumber, FaultText, KernelArg};

/// A fault where the bool that is the argument is 0.
///
/// # Errors
/// None: as all kernels are made.
pub(super) fn emit(requirement: Requirement) -> Result<Emitted> {
    let mut writer = Writer::new(Index::U32);
    writer.input("condition", "u8", KernelArg::Argument(0));
    writer.fault();
    writer.line("if (threadIdx.x == 0 && !*condition) fail(fault, base, 0, 1);");
    let (code, message, number) = requirement.refusal();
    let fault = FaultText { code, message, numbers: [number, 0].map(FaultNumber::Constant) };
    Ok(Emitted { kernels: vec![writer.finish("require", 1)?], faults: vec![fault], ..Emitted::default() })
}
