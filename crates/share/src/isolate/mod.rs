//! Functions in processes of their own: however one ends, this program, the machine's memory and the other calls are as before.
//!
//! A worker is this executable, started again by exec, never a fork: it shares no lock, thread or device context with the
//! program. It has a connection by which it gets calls and answers, and a supervisor ([`crate::supervise`]) between it and the
//! program. When the program ends, however it does, the kernel tells the supervisor, which ends the worker and all that it
//! started. It shares the lease that it is started under, and gives up its part by ending.

mod death;
mod failure;
mod kernel;
mod process;
mod report;
mod signals;
mod table;
mod words;
mod worker;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use death::{Cause, Death, Details, Line};
pub use report::{OnCard, Outcome, Report};
pub use table::{BoxError, Functions};

pub(crate) use process::Process;
pub(crate) use report::Look;
pub(crate) use signals::name as signal_name;
pub(crate) use table::Key;
pub(crate) use worker::{WorkerMessage, mark as worker_mark};

use crate::lease::Lease;
use crate::wire::{Message, WireError};

/// The maker of workers: the program's functions, and how they are to be run. Clones are the same table with settings of their own.
#[derive(Clone)]
pub struct Workers {
    functions: Arc<Functions>,
    pub(crate) settings: Settings,
}

/// How workers are run.
#[derive(Clone)]
pub(crate) struct Settings {
    pub timeout: Option<Duration>,
    pub address_space: Option<Bytes>,
    pub environment: Vec<(OsString, OsString)>,
    pub keep: Bytes,
}

impl Settings {
    fn setup(&self) -> worker::Setup {
        let program = std::env::args_os().next().unwrap_or_default();
        let name = std::path::Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        worker::Setup { address_space: self.address_space.map(|bytes| bytes.0), name, keep: self.keep.0 }
    }
}

impl Workers {
    pub(super) fn new(functions: Functions) -> Workers {
        let settings = Settings { timeout: None, address_space: None, environment: Vec::new(), keep: Bytes(32 << 20) };
        Workers { functions: Arc::new(functions), settings }
    }

    /// A call that takes longer is ended, and is a [`Cause::Timeout`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Workers {
        self.settings.timeout = Some(timeout);
        self
    }

    /// A worker gets so much address space beside its own at the start (RLIMIT_AS). So a function that allocates without end ends
    /// itself and not the machine. Stacks and shared memory count.
    #[must_use]
    pub fn address_space(mut self, bytes: Bytes) -> Workers {
        self.settings.address_space = Some(bytes);
        self
    }

    /// A variable of workers' environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Workers {
        self.settings.environment.push((name.into(), value.into()));
        self
    }

    /// How much more memory of its own than at its start a pool's worker may keep after a call (32 MiB unless told). One that keeps
    /// more is replaced, after every call where functions keep something on purpose: say here how much that is. The symbols that a
    /// trace is resolved with count too: a worker of a program with debug information is replaced after its first panic.
    #[must_use]
    pub fn keep(mut self, bytes: Bytes) -> Workers {
        self.settings.keep = bytes;
        self
    }

    /// Runs a function of the table in a process of its own, under a lease if there is one, and waits for it. The process and all
    /// that it started have ended when this returns.
    ///
    /// # Errors
    /// [`Death`] is the outcome instead of a result.
    pub fn isolate<'a, F, I, O, E>(&self, lease: impl Into<Option<&'a Lease>>, function: F, input: I) -> Result<Outcome<O>, Death>
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: Serialize,
        O: DeserializeOwned,
        E: Into<BoxError>,
    {
        let _ = function;
        let (lease, key, begin) = (lease.into(), Key::of::<F>(), Instant::now());
        let death = |cause: Cause, last_words: String, report: Report| Death::new(cause, key.name.as_str(), last_words, report);
        let input = match self.message(&key, &input) {
            Ok(input) => input,
            Err(cause) => return Err(death(cause, String::new(), Report::default())),
        };
        let look = Look::at(lease);
        let (before, driver) = (look.reserved(None), lease.and_then(Lease::driver_use));
        let mut process = match Process::start(&self.settings, lease) {
            Ok(process) => process,
            Err(cause) => {
                let report =
                    Report { took: begin.elapsed(), cards: look.report(&before, &look.settled(None, &before)), ..Report::default() };
                return Err(death(cause, String::new(), report));
            }
        };
        let called = process.call(&key, &input, self.settings.timeout);
        let (pid, baseline) = (process.pid(), process.baseline);
        let last_words = called.result.as_ref().err().map(|_| process.last_words()).unwrap_or_default();
        drop(process);
        let mut cards = look.report(&before, &look.settled(None, &before));
        Look::add_driver(&mut cards, driver, lease);
        let report = Report { pid, took: begin.elapsed(), cards, resident: (Bytes(baseline), Bytes::ZERO), ended: true };
        match called.result.and_then(|message| output(&message)) {
            Ok(output) => Ok(Outcome { output, report }),
            Err(cause) => Err(death(cause, last_words, report)),
        }
    }

    /// A call's input as it is sent; an error where the table lacks the function.
    pub(crate) fn message<I: Serialize>(&self, key: &Key, input: &I) -> Result<Message, Cause> {
        if !self.functions.has(key) {
            return Err(Cause::Start { message: self.functions.missing(key) });
        }
        Message::of(input).map_err(|error| cause(error, |message| Cause::Input { message }))
    }
}

/// The result of a function.
pub(crate) fn output<O: DeserializeOwned>(message: &Message) -> Result<O, Cause> {
    message.read().map_err(|error| cause(error, |message| Cause::Output { message }))
}

fn cause(error: WireError, value: fn(String) -> Cause) -> Cause {
    match error {
        WireError::Value(message) => value(message),
        WireError::Memory(message) => Cause::OutOfMemory { of: Line::Ledger, message },
    }
}
