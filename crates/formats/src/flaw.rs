//! A flaw of a file and its place: the error that becomes [`plimsoll_base::Error`] at the door of this crate.

use plimsoll_base::Error;

/// A flaw, with the path of fields that leads to it, and its byte or line, as far as these are known.
#[derive(Debug)]
pub(crate) struct Flaw(Box<Inner>);

#[derive(Debug)]
struct Inner {
    error: Error,
    path: String,
    offset: Option<usize>,
}

/// A result with a flaw.
pub(crate) type Found<T> = Result<T, Flaw>;

impl Flaw {
    /// Bytes that are no such encoding (DATA_LOSS, as TensorFlow says of files that do not parse).
    pub(crate) fn malformed(message: impl Into<String>) -> Flaw {
        Flaw::from(Error::data_loss(message))
    }

    /// Well-formed bytes that make no sense (INVALID_ARGUMENT).
    pub(crate) fn invalid(message: impl Into<String>) -> Flaw {
        Flaw::from(Error::invalid_argument(message))
    }

    /// Says at which byte of the file; the innermost place stays.
    pub(crate) fn at(mut self, offset: Option<usize>) -> Flaw {
        self.0.offset = self.0.offset.or(offset);
        self
    }

    /// Puts a field (`node`) or an element (`[3]`) before the path.
    pub(crate) fn within(mut self, segment: &str) -> Flaw {
        let path = &self.0.path;
        self.0.path = if path.is_empty() || path.starts_with('[') { format!("{segment}{path}") } else { format!("{segment}.{path}") };
        self
    }

    /// Names the node; the innermost name stays.
    pub(crate) fn at_node(mut self, name: &str) -> Flaw {
        if !name.is_empty() {
            self.0.error = self.0.error.at_node(name);
        }
        self
    }
}

impl From<Error> for Flaw {
    fn from(error: Error) -> Flaw {
        Flaw(Box::new(Inner { error, path: String::new(), offset: None }))
    }
}

impl From<Flaw> for Error {
    fn from(flaw: Flaw) -> Error {
        let Inner { error, path, offset } = *flaw.0;
        match (path.is_empty(), offset) {
            (true, None) => error,
            (true, Some(offset)) => error.context(format!("at byte {offset}")),
            (false, None) => error.context(path),
            (false, Some(offset)) => error.context(format!("{path}, at byte {offset}")),
        }
    }
}

/// A flaw's code, for tests and for choosing between two.
impl Flaw {
    #[cfg(test)]
    pub(crate) fn code(&self) -> plimsoll_base::Code {
        self.0.error.code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_path_place_and_node() {
        let flaw =
            Flaw::malformed("cut off").at(Some(7)).at(Some(1)).within("tensor").within("['value']").within("attr").at_node("x").at_node("");
        assert_eq!(flaw.code(), plimsoll_base::Code::DataLoss);
        assert_eq!(Error::from(flaw).to_string(), "DATA_LOSS: attr['value'].tensor, at byte 7: cut off {{node x}}");
    }
}
