//! The decision of a graph's condition: whether a body of commands is run, and whether it is run again.

use plimsoll_base::Result;

use super::write::{Index, Writer};
use super::{Kernel, KernelArg};

/// What the driver has for kernels. No library defines it: the driver does, where it loads a cubin that names it.
const DECLARED: &str = "#ifdef __cplusplus
extern \"C\" __device__ void cudaGraphSetConditional(u64 handle, u32 value);
#endif
";

/// The kernel that sets a condition, of one thread. Its arguments behind the first three: the fault word, the command's number, a bool
/// or 0 for yes, a byte of the host or 0, and the handle of the condition. The condition is 0 where the command is passed over.
///
/// Where the condition is not 0, and the byte of the host is not, the run is given up: the condition is 0 then, and a fault of number
/// [`super::GIVEN_UP`] lets the commands behind be passed over.
///
/// # Errors
/// None: as all kernels are made.
pub fn decide() -> Result<Kernel> {
    let mut writer = Writer::new(Index::U64);
    writer.before.push_str(DECLARED);
    writer.text = String::from(
        "  u32 goes = !is_passed_over(guard, stop, command) && (!condition || *condition);
  if (goes && halt && *(const volatile u8*)halt) {
    fail(fault, base, 0, 0);
    goes = 0;
  }
  cudaGraphSetConditional(handle, goes);
",
    );
    writer.fault();
    writer.input("condition", "u8", KernelArg::Argument(0));
    writer.input("halt", "u8", KernelArg::Argument(1));
    writer.long("u64", "handle", 0);
    writer.finish("decide", 1)
}
