//! The exit status of a command.

/// A number that the program ends with. `std::process::ExitCode` does not say its own, which a caller outside of Rust needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(u8);

impl ExitCode {
    /// 0.
    pub const SUCCESS: ExitCode = ExitCode(0);
    /// 1.
    pub const FAILURE: ExitCode = ExitCode(1);
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> ExitCode {
        ExitCode(number)
    }
}

impl From<ExitCode> for u8 {
    fn from(code: ExitCode) -> u8 {
        code.0
    }
}
