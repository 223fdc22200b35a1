//! A ledger that another process has locked and does not let go of.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Code, Error};

use super::file::Inner;
use super::shared::Shared;
use super::{Full, process};

/// A ledger whose lock another process keeps: a process that was stopped in the middle of a change, as a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    ledger: PathBuf,
    /// For how long this process has waited for the lock.
    pub after: Duration,
    /// The process that has the lock, in words.
    pub by: String,
    /// Whether that process is stopped (SIGSTOP): it goes on with SIGCONT.
    pub stopped: bool,
}

/// The obstacle of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle<'a> {
    /// A card has no room for it yet.
    Full(&'a Full),
    /// The ledger is locked: nothing can be granted until that ends.
    Locked(&'a Locked),
}

impl Locked {
    /// The lock of that ledger could not be had for so long.
    pub(super) fn of(inner: &Inner, after: Duration) -> Locked {
        let pid = inner.locked_by();
        let by = match pid {
            Some(pid) if inner.shared.is_some() => process::describe_of(pid),
            Some(pid) => process::describe(pid),
            None if inner.shared.is_some() => "a process that is gone or cannot be seen from here, as one of another container".into(),
            // The process was killed there, and a fork of it has the lock; or it has another number in this namespace.
            None => format!("a process that is gone or cannot be seen, by way of one of these: {}", inner.users()),
        };
        let ledger = inner.shared.as_ref().map_or_else(|| inner.path.clone(), Shared::lock_path);
        Locked { ledger, after, by, stopped: pid.is_some_and(process::is_stopped) }
    }

    /// An error that a wait ends with.
    pub(super) fn ends(&self, code: Code, why: &str) -> Error {
        Error::new(code, format!("{why}: {self}")).with_remedy(REMEDY)
    }
}

const REMEDY: &str = "let that process go on (kill -CONT), or end it";

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ledger {} has been locked for {:?} by {}", self.ledger.display(), self.after, self.by)
    }
}

impl fmt::Display for Obstacle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Full(full) => full.fmt(f),
            Obstacle::Locked(locked) => locked.fmt(f),
        }
    }
}

impl From<Locked> for Error {
    /// UNAVAILABLE, with the process that has the lock.
    fn from(locked: Locked) -> Error {
        Error::new(Code::Unavailable, locked.to_string()).with_remedy(REMEDY)
    }
}
