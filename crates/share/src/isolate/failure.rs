//! A worker's message instead of a result.

use plimsoll_base::Code;
use serde::{Deserialize, Serialize};

use super::{Cause, Line};

/// As it goes over the wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Error { message: String, code: Option<u8>, trace: Vec<String> },
    Panic(Panic),
    Input(String),
    Output(String),
    Unknown(String),
}

/// A panic, as it was when it happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Panic {
    pub message: String,
    pub location: String,
    pub backtrace: String,
}

impl From<Panic> for Cause {
    fn from(panic: Panic) -> Cause {
        Cause::Panic { message: panic.message, location: panic.location, backtrace: panic.backtrace }
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Cause {
        match failure {
            Failure::Error { message, code, trace } => match code.and_then(code_of_number) {
                Some(Code::ResourceExhausted) => Cause::OutOfMemory { of: Line::Ledger, message: with_trace(message, &trace) },
                code => Cause::Error { message, code, trace },
            },
            Failure::Panic(panic) => panic.into(),
            Failure::Input(message) => Cause::Input { message },
            Failure::Output(message) => Cause::Output { message },
            Failure::Unknown(message) => Cause::Start { message },
        }
    }
}

fn with_trace(message: String, trace: &[String]) -> String {
    trace.iter().fold(message, |message, cause| format!("{message}\n  caused by: {cause}"))
}

fn code_of_number(number: u8) -> Option<Code> {
    use Code::*;
    let all = [
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
        DataLoss,
    ];
    all.into_iter().find(|code| *code as u8 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive() {
        for number in 0..=20 {
            assert_eq!(code_of_number(number).map(|code| code as u8), (1..=15).contains(&number).then_some(number));
        }
    }

    #[test]
    fn memory_is_told_from_other_errors() {
        let deep = plimsoll_base::Error::resource_exhausted("2 GiB asked");
        let outer = std::io::Error::other(deep);
        assert!(matches!(Failure::of_error(outer.into()).into(), Cause::OutOfMemory { of: Line::Ledger, .. }));
        let text: Cause = Failure::of_error("a text".into()).into();
        assert_eq!(text, Cause::Error { message: "a text".into(), code: None, trace: vec![] });
        let reserve = Vec::<u8>::new().try_reserve(usize::MAX).unwrap_err();
        assert!(matches!(Failure::of_error(reserve.into()).into(), Cause::OutOfMemory { .. }));
    }
}
