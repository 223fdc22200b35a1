//! The state of this machine for sharing cards, for people: working parts, missing parts, broken parts.

mod checks;
mod overheads;

use plimsoll_cards::{Environment, Options};

use crate::enforce::Places;

pub use overheads::measure;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Pass,
    /// It should work, and does not.
    Fail,
    /// It is not here, which is no fault.
    NotHere,
}

impl State {
    /// `pass`, `fail`, `not here`.
    pub fn word(self) -> &'static str {
        match self {
            State::Pass => "pass",
            State::Fail => "fail",
            State::NotHere => "not here",
        }
    }
}

/// A check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The subject in one or two words; several checks may have the same subject.
    pub name: &'static str,
    /// The result.
    pub state: State,
    /// The finding, as a sentence without its end.
    pub what: String,
    /// A remedy; none where nothing has to be done.
    pub remedy: Option<String>,
}

impl Check {
    fn pass(name: &'static str, what: impl Into<String>) -> Check {
        Check { name, state: State::Pass, what: what.into(), remedy: None }
    }

    fn fail(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, state: State::Fail, what: what.into(), remedy: Some(remedy.into()) }
    }

    fn not_here(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Check {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Check { name, state: State::NotHere, what: what.into(), remedy }
    }
}

/// Looks at everything. It takes no lease and opens no device; the folder for ledgers is made where it is missing.
pub fn examine(options: &Options, environment: &Environment, places: &Places) -> Vec<Check> {
    let mut checks = Vec::new();
    checks::driver(environment, &mut checks);
    checks::mps(places, &mut checks);
    checks::groups(places, &mut checks);
    checks::ledger(&mut checks);
    checks::cards(options, environment, places, &mut checks);
    checks
}
