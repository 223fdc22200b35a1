//! The terminal that this process writes to.

use rustix::termios::tcgetwinsize;

/// Its columns and rows; none where standard output is no terminal, or one that does not say.
pub fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_col.into(), size.ws_row.into())).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}
