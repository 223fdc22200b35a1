//! How a call can end without a result.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use plimsoll_base::{Code, Error};

use super::Report;

/// A call that has no result: the reason, and the state of the memory. It reads as its [`Details`].
///
/// Boxed inside so that a result stays small.
#[derive(Clone)]
pub struct Death(Box<Details>);

/// The known facts about a call that has no result.
#[derive(Clone, Debug)]
pub struct Details {
    /// Why there is no result.
    pub cause: Cause,
    /// The function, as the program calls it.
    pub function: String,
    /// The last output of the worker on standard error, of the call or before it; it was passed on too.
    pub last_words: String,
    /// The memory before and after.
    pub report: Report,
}

impl Death {
    pub(crate) fn new(cause: Cause, function: impl Into<String>, last_words: String, report: Report) -> Death {
        Death(Box::new(Details { cause, function: function.into(), last_words, report }))
    }

    /// All of it, to be taken apart.
    pub fn into_details(self) -> Details {
        *self.0
    }
}

impl Deref for Death {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl fmt::Debug for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The function returned an error.
    Error {
        /// The error in words.
        message: String,
        /// Its code, where it is one of ours or came of one.
        code: Option<Code>,
        /// Its causes: each error's source, the nearest first.
        trace: Vec<String>,
    },
    /// The function panicked.
    Panic {
        /// Its text.
        message: String,
        /// File, line and column.
        location: String,
        /// The stack at that moment.
        backtrace: String,
    },
    /// A signal ended the process.
    Signal {
        /// Its number.
        number: i32,
        /// Its name: `SIGSEGV`.
        name: String,
        /// Whether the system wrote a core file.
        core: bool,
    },
    /// Memory ran out.
    OutOfMemory {
        /// Whose line it was.
        of: Line,
        /// In words.
        message: String,
    },
    /// The function took longer than it may.
    Timeout {
        /// The time that it was given.
        after: Duration,
    },
    /// The worker ended without an answer: the function ended the process.
    Lost {
        /// Its exit status, where it ended by itself.
        status: Option<i32>,
    },
    /// The input cannot be sent, or not be read by the worker. The function did not run.
    Input {
        /// Why.
        message: String,
    },
    /// The function has run, and its result cannot be sent, or not be read here.
    Output {
        /// Why.
        message: String,
    },
    /// No worker came to be, or none that has the function. The function did not run.
    Start {
        /// Why.
        message: String,
    },
    /// The pool was dropped before the function had ended.
    Cancelled,
}

/// The limit that was reached when there was no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A limit (of memory, of file sizes, of descriptors), a card or the system. The function, or the code that sends its values,
    /// returned an error (RESOURCE_EXHAUSTED). The process lived, or was not started.
    Ledger,
    /// The process's allocator, which the system gave no more: a limit of the address space (`ulimit -v`), as a rule. The
    /// process said so on standard error and aborted.
    Allocator,
    /// The kernel, which ended a process to make room. A process cannot tell by which kill it ended. This is said where it was
    /// killed and the kernel counted an end of that kind in the meantime, on the machine or in the control group.
    Kernel,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Error { message, trace, .. } => {
                f.write_str(message)?;
                trace.iter().try_for_each(|cause| write!(f, "\n  caused by: {cause}"))
            }
            Cause::Panic { message, location, .. } => write!(f, "panicked at {location}: {message}"),
            Cause::Signal { name, core, .. } => write!(f, "ended by {name}{}", if *core { " (core dumped)" } else { "" }),
            Cause::OutOfMemory { message, .. } => write!(f, "out of memory: {message}"),
            Cause::Timeout { after } => write!(f, "not done after {after:?}, and ended"),
            Cause::Lost { status: Some(status) } => write!(f, "ended its process with status {status} instead of returning"),
            Cause::Lost { status: None } => f.write_str("closed its connection instead of returning, and was ended"),
            Cause::Input { message } => write!(f, "its input cannot be sent: {message}"),
            Cause::Output { message } => write!(f, "its result cannot be sent: {message}"),
            Cause::Start { message } => write!(f, "not started: {message}"),
            Cause::Cancelled => f.write_str("cancelled: its pool was dropped"),
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.cause)
    }
}

impl std::error::Error for Death {}

impl From<Death> for Error {
    /// With the code of the error, or the nearest one.
    fn from(death: Death) -> Error {
        let code = match &death.cause {
            Cause::Error { code, .. } => code.unwrap_or(Code::Unknown),
            Cause::OutOfMemory { .. } => Code::ResourceExhausted,
            Cause::Timeout { .. } => Code::DeadlineExceeded,
            Cause::Input { .. } | Cause::Output { .. } => Code::InvalidArgument,
            Cause::Start { .. } => Code::FailedPrecondition,
            Cause::Cancelled => Code::Cancelled,
            Cause::Panic { .. } => Code::Internal,
            Cause::Signal { .. } | Cause::Lost { .. } => Code::Aborted,
        };
        Error::new(code, death.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_happened_and_where() {
        let cause = Cause::Error { message: "no data".into(), code: Some(Code::NotFound), trace: vec!["no file".into()] };
        let death = Death::new(cause, "train", String::new(), Report::default());
        assert_eq!(death.to_string(), "train: no data\n  caused by: no file");
        assert_eq!(Error::from(death.clone()).code(), Code::NotFound);
        let killed = Cause::Signal { number: 9, name: "SIGKILL".into(), core: false };
        let killed = Death::new(killed, death.into_details().function, String::new(), Report::default());
        assert_eq!(Error::from(killed).to_string(), "ABORTED: train: ended by SIGKILL");
    }
}
