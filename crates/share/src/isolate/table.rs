//! Which functions a program can have run in workers.

use std::any::TypeId;
use std::error::Error as StdError;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use plimsoll_base::{Code, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Workers;
use super::failure::Failure;
use super::worker;
use crate::supervise;
use crate::wire::{Message, WireError};

/// The type of a function's error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The functions of a program that workers can run.
///
/// A worker is this executable, started again, so it has to know the functions too: the table is made first in `main`, the same
/// in every process. [`Functions::begin`] goes on in the program, and never returns in a worker.
///
/// ```no_run
/// use plimsoll_base::Error;
/// use plimsoll_share::Functions;
///
/// fn square(x: u64) -> Result<u64, Error> {
///     Ok(x * x)
/// }
///
/// fn main() -> Result<(), Error> {
///     let workers = Functions::new().with(square).begin(); // first: a worker comes this far and no further
///     let outcome = workers.isolate(None, square, 12)?;
///     assert_eq!(outcome.output, 144);
///     Ok(())
/// }
/// ```
#[derive(Clone, Default)]
pub struct Functions {
    entries: Vec<Entry>,
}

/// A function by the name that it has in every process of one executable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub name: String,
    hash: u64,
}

impl Key {
    pub fn of<F: 'static>() -> Key {
        let mut hasher = DefaultHasher::new();
        TypeId::of::<F>().hash(&mut hasher);
        Key { name: std::any::type_name::<F>().to_string(), hash: hasher.finish() }
    }
}

type Handler = dyn Fn(&Message) -> Result<Message, Failure> + Send + Sync;

#[derive(Clone)]
struct Entry {
    key: Key,
    call: Arc<Handler>,
}

impl Functions {
    /// None yet.
    pub fn new() -> Functions {
        Functions::default()
    }

    /// And this function, or closure that captures nothing. Its argument and result go through serde; its error may be any error,
    /// or a text.
    #[must_use]
    pub fn with<F, I, O, E>(mut self, function: F) -> Functions
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Into<BoxError>,
    {
        const { assert!(size_of::<F>() == 0, "a function, or a closure that captures nothing: what it captured is not in the worker") };
        let call = move |input: &Message| {
            let input = input.read::<I>().map_err(|error| Failure::of_wire(error, Failure::Input))?;
            let output = function(input).map_err(|error| Failure::of_error(error.into()))?;
            // The function's result may panic or fail while it is written: the worker lives on.
            match catch_unwind(AssertUnwindSafe(|| Message::of(&output))) {
                Ok(Ok(message)) => Ok(message),
                Ok(Err(error)) => Err(Failure::of_wire(error, Failure::Output)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        };
        self.entries.push(Entry { key: Key::of::<F>(), call: Arc::new(call) });
        self
    }

    /// Goes on in the program, with the maker of workers. In a worker it runs calls, and never returns. Call it first in `main`:
    /// code before it runs in every worker too, and in its supervisor ([`crate::supervise`]).
    #[must_use]
    pub fn begin(self) -> Workers {
        let _ = supervise::begin();
        if let Some(channel) = worker::connection() {
            worker::work(&self, &channel);
        }
        Workers::new(self)
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.entries.iter().any(|entry| entry.key == *key)
    }

    /// Runs a function of the table.
    pub(super) fn call(&self, key: &Key, input: &Message) -> Result<Message, Failure> {
        match self.entries.iter().find(|entry| entry.key == *key) {
            Some(entry) => (entry.call)(input),
            None => Err(Failure::Unknown(self.missing(key))),
        }
    }

    /// An error: the function is not in the table, and the names that are.
    pub(super) fn missing(&self, key: &Key) -> String {
        let known: Vec<&str> = self.entries.iter().map(|entry| entry.key.name.as_str()).collect();
        let known = if known.is_empty() { "nothing".into() } else { known.join(", ") };
        let short = key.name.rsplit("::").next().unwrap_or(&key.name);
        format!("the program's first table of functions has no '{}', only {known}: add .with({short}) before .begin()", key.name)
    }
}

impl Failure {
    fn of_wire(error: WireError, value: fn(String) -> Failure) -> Failure {
        match error {
            WireError::Value(message) => value(message),
            WireError::Memory(message) => Failure::Error { message, code: Some(Code::ResourceExhausted as u8), trace: Vec::new() },
        }
    }

    pub(super) fn of_error(error: BoxError) -> Failure {
        let mut trace = Vec::new();
        let mut code = code_of(error.as_ref());
        let mut source = error.source();
        while let Some(cause) = source {
            trace.push(cause.to_string());
            code = code.or_else(|| code_of(cause));
            source = cause.source();
        }
        Failure::Error { message: error.to_string(), code: code.map(|code| code as u8), trace }
    }
}

/// Errors of ours have a code, and those of the standard library that mean memory.
fn code_of(error: &(dyn StdError + 'static)) -> Option<Code> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(error.code());
    }
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        // Its source is the cause of its inner error, not that one.
        let inner = error.get_ref().and_then(|inner| code_of(inner));
        return inner.or((error.kind() == std::io::ErrorKind::OutOfMemory).then_some(Code::ResourceExhausted));
    }
    error.is::<std::collections::TryReserveError>().then_some(Code::ResourceExhausted)
}
