//! Channels that are padded with zeros, so that an engine takes them by whole words, and taken out again.

use plimsoll_base::Result;

use super::write::{Index, Writer, word};
use super::{Kernel, KernelArg, blocks};

/// Bytes of a word.
const WORD: u64 = 16;

/// Rows of `from` elements as rows of `to`: zeros behind them. `to` elements are whole words of 16 bytes. Argument 0 is read, 1 is written.
///
/// # Errors
/// UNIMPLEMENTED for elements of other sizes than kernels move.
pub fn pad(element: u64, rows: u64, [from, to]: [u64; 2]) -> Result<Kernel> {
    let (ctype, vector) = (word(element)?, WORD / element);
    let words = to / vector;
    let mut writer = Writer::new(Index::of(rows * to));
    let index = writer.index();
    writer.input("p", ctype, KernelArg::Argument(0));
    writer.output("q", &format!("{ctype}x{vector}"), KernelArg::Argument(1));
    writer.size("n", (rows * words) as i64);
    writer.size("channels", from as i64);
    writer.divisor("words", words);
    writer.each("i", "n");
    writer.line(format!(
        "{index} row = {}, c = (i - row * words) * {vector}; const {ctype}* at = p + row * channels;",
        writer.quotient("i", "words")
    ));
    writer.line(format!("{ctype}x{vector} made;"));
    writer.line(format!("_Pragma(\"unroll\") for (u32 k = 0; k < {vector}; ++k) made.v[k] = c + k < channels ? at[c + k] : 0;"));
    writer.line("q[i] = made;\n  }");
    writer.finish("pad", blocks(rows * words))
}
