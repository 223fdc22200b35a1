//! Commands of later work: the parser knows them, and they are refused.

use clap::Args;

/// Anything.
#[derive(Args)]
pub struct LaterArgs {
    /// What the command will take
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<std::ffi::OsString>,
}
