//! The failure that ends a command, with its exit status.

use plimsoll::Error;

use crate::exit_code::ExitCode;
use crate::output;

/// Why a command ended.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    is_usage: bool,
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The command line is wrong: exit status 2.
    pub fn usage(error: Error) -> Failure {
        Failure { error, is_usage: true }
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Says it on standard error; the exit status.
    pub fn report(&self) -> ExitCode {
        if !self.is_usage {
            output::note(format_args!("error: {}", self.error));
            return ExitCode::from(1);
        }
        // The status code says nothing after a typing mistake.
        output::note(format_args!("error: {}", self.error.message()));
        if let Some(remedy) = self.error.remedy() {
            output::note(format_args!("  hint: {remedy}"));
        }
        ExitCode::from(2)
    }
}

/// The command was right, and failed: exit status 1.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, is_usage: false }
    }
}

/// A mistake in the command line.
pub fn wrong_use<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure::usage(Error::invalid_argument(message)))
}

/// Errors of the user's input.
pub trait OrUsage<T> {
    /// The same, with exit status 2.
    fn or_usage(self) -> Result<T>;
}

impl<T> OrUsage<T> for plimsoll::Result<T> {
    fn or_usage(self) -> Result<T> {
        self.map_err(Failure::usage)
    }
}
