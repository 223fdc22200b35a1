//! A copy that may be passed over.

use plimsoll_base::Result;

use super::write::{Index, Writer};
use super::{Kernel, KernelArg, blocks};

/// The kernel that copies bytes. Its arguments behind the first three: from, to, how many.
///
/// # Errors
/// None: as all kernels are made.
pub fn copy() -> Result<Kernel> {
    let mut writer = Writer::new(Index::U64);
    writer.input("from", "u8", KernelArg::Argument(0));
    writer.output("to", "u8", KernelArg::Argument(1));
    writer.size("bytes", 0);
    writer.line("u64 words = (((u64)from | (u64)to) & 15) == 0 ? bytes / 16 : 0, done = words * 16;");
    writer.each("i", "words");
    writer.line("((w16*)to)[i] = ((const w16*)from)[i];\n  }");
    writer.each("i", "bytes - done");
    writer.line("to[done + i] = from[done + i];\n  }");
    writer.finish("copy", 1)
}

/// The blocks for so many bytes.
pub(crate) fn copy_blocks(bytes: u64) -> u32 {
    blocks(bytes.div_ceil(16))
}
