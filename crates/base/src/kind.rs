//! The kind of an error: the part that a program may decide on.

use crate::{Bytes, Code};

/// The kind of an error. The code is TensorFlow's and the text is for people; a program decides by the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Placeholders that the run needs are not fed.
    NotFed(Vec<Unfed>),
    /// A shape, a file name or another part of the plan depends on elements of a feed that the signature does not hold.
    NeedsValues,
    /// Memory would go over a line, or the system has none left.
    NoRoom(Box<Shortage>),
    /// Not built yet, or not for these types.
    NotBuilt,
    /// The request is wrong, or the system is not in the state that it needs.
    WrongUse,
    /// The call or its session was ended.
    Cancelled,
    /// The time that the call was given is over.
    Deadline,
    /// The device is gone, with the memory on it.
    LostDevice,
    /// An operation failed while the graph ran; the code is the operation's own.
    Operation,
    /// The code says all that is known: damaged data, the file system, a broken invariant.
    Other,
}

impl Kind {
    /// The kind of an error of which only the code is known.
    pub(crate) fn of(code: Code) -> Kind {
        match code {
            Code::Unimplemented => Kind::NotBuilt,
            Code::Cancelled => Kind::Cancelled,
            Code::DeadlineExceeded => Kind::Deadline,
            Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition | Code::OutOfRange => Kind::WrongUse,
            _ => Kind::Other,
        }
    }
}

/// A placeholder without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfed {
    /// The node's name.
    pub name: String,
    /// The element type, as TensorFlow spells it.
    pub data_type: String,
    /// The shape, as far as the graph says it: `[?,784]`.
    pub shape: String,
}

/// A request for memory that has no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes requested.
    pub requested: Bytes,
    /// Bytes in use at that time.
    pub used: Bytes,
    /// The line; none where the system itself has no memory left.
    pub limit: Option<Bytes>,
    /// Holders of memory with their bytes, largest first; some entries only.
    pub holders: Vec<(String, Bytes)>,
}

impl Shortage {
    /// The smallest limit with room for the request.
    pub fn least(&self) -> Bytes {
        self.used + self.requested
    }

    /// Bytes that are missing under the line.
    pub fn missing(&self) -> Bytes {
        self.limit.map_or(Bytes::ZERO, |limit| self.least() - limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_code_has_a_kind_and_a_kind_that_is_given_stays() {
        assert_eq!(Error::unimplemented("x").kind(), Kind::NotBuilt);
        assert_eq!(Error::invalid_argument("x").kind(), Kind::WrongUse);
        assert_eq!(Error::invalid_argument("x").with_kind(Kind::Operation).context("y").at_node("z").kind(), Kind::Operation);
        assert_eq!(Error::resource_exhausted("descriptors").kind(), Kind::Other, "no memory is meant");
        assert!(!Error::resource_exhausted("descriptors").is_no_room());
    }

    #[test]
    fn a_shortage_says_by_how_much() {
        let shortage = Shortage { requested: Bytes(70), used: Bytes(40), limit: Some(Bytes(100)), holders: Vec::new() };
        assert_eq!((shortage.least(), shortage.missing()), (Bytes(110), Bytes(10)));
        let error = Error::no_room("full", shortage.clone());
        assert_eq!((error.code(), error.shortage()), (crate::Code::ResourceExhausted, Some(&shortage)));
        assert!(error.is_no_room());
    }
}
