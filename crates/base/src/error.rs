//! One error for the whole project, with TensorFlow's canonical status codes.

use std::fmt;

use crate::kind::{Kind, Shortage};

/// TensorFlow's status codes, with their wire numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the documentation: they are TensorFlow's")]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
}

impl Code {
    /// The canonical spelling, `INVALID_ARGUMENT`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A result with the project's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failure, its place, and a remedy.
///
/// Boxed inside so that `Result<T>` stays small on the hot path.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    /// The kind, where the code does not say it.
    kind: Option<Kind>,
    message: String,
    node: Option<String>,
    device: Option<String>,
    remedy: Option<String>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        $($(#[$doc])* pub fn $name(message: impl Into<String>) -> Error { Error::new(Code::$code, message) })*
    };
}

impl Error {
    /// An error with `code` and a message that names the request and the reason.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { code, kind: None, message: message.into(), node: None, device: None, remedy: None }))
    }

    constructors! {
        /// The input is wrong whatever the state of the system.
        invalid_argument => InvalidArgument;
        /// A name that does not exist.
        not_found => NotFound;
        /// An index past an end, or the end of a sequence.
        out_of_range => OutOfRange;
        /// The system is not in the state that the call needs.
        failed_precondition => FailedPrecondition;
        /// Memory, or another thing that is counted, ran out.
        resource_exhausted => ResourceExhausted;
        /// Not built yet, or not for these types.
        unimplemented => Unimplemented;
        /// A broken invariant of ours.
        internal => Internal;
        /// Bytes that were stored are not the bytes that are there.
        data_loss => DataLoss;
        /// The call or its session was ended.
        cancelled => Cancelled;
        /// It exists already.
        already_exists => AlreadyExists;
    }

    /// RESOURCE_EXHAUSTED of the kind [`Kind::NoRoom`].
    pub fn no_room(message: impl Into<String>, shortage: Shortage) -> Error {
        Error::resource_exhausted(message).with_kind(Kind::NoRoom(Box::new(shortage)))
    }

    /// UNIMPLEMENTED of the kind [`Kind::NeedsValues`].
    pub fn needs_values(message: impl Into<String>) -> Error {
        Error::unimplemented(message).with_kind(Kind::NeedsValues)
    }

    /// Says the kind, where the code does not.
    pub fn with_kind(mut self, kind: Kind) -> Error {
        self.0.kind = Some(kind);
        self
    }

    /// Names the node; the innermost name stays.
    pub fn at_node(mut self, node: impl Into<String>) -> Error {
        self.0.node.get_or_insert_with(|| node.into());
        self
    }

    /// Names the device; the innermost name stays.
    pub fn on_device(mut self, device: impl Into<String>) -> Error {
        self.0.device.get_or_insert_with(|| device.into());
        self
    }

    /// Adds a remedy.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Error {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Puts `context: ` before the message.
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// The status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The kind: programs decide by it.
    pub fn kind(&self) -> Kind {
        self.0.kind.clone().unwrap_or_else(|| Kind::of(self.0.code))
    }

    /// Whether memory had no room for the request. It may have room later.
    pub fn is_no_room(&self) -> bool {
        matches!(self.0.kind, Some(Kind::NoRoom(_)))
    }

    /// The numbers of a request for memory that had no room.
    pub fn shortage(&self) -> Option<&Shortage> {
        match &self.0.kind {
            Some(Kind::NoRoom(shortage)) => Some(shortage),
            _ => None,
        }
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The node that failed, if one did.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The device it failed on, if it is known.
    pub fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    /// A remedy, if one is known.
    pub fn remedy(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)?;
        if let Some(node) = &self.0.node {
            write!(f, " {{{{node {node}}}}}")?;
        }
        if let Some(device) = &self.0.device {
            write!(f, " on {device}")?;
        }
        if let Some(remedy) = &self.0.remedy {
            write!(f, "\n  hint: {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_code_message_node_device_remedy() {
        let error = Error::resource_exhausted("64 MiB asked")
            .at_node("conv1")
            .at_node("outer")
            .on_device("/device:CPU:0")
            .with_remedy("raise the limit");
        assert_eq!(error.to_string(), "RESOURCE_EXHAUSTED: 64 MiB asked {{node conv1}} on /device:CPU:0\n  hint: raise the limit");
    }

    #[test]
    fn a_result_stays_one_word() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
