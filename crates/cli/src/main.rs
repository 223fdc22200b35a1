//! The program `plimsoll`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(plimsoll_cli::main())
}
