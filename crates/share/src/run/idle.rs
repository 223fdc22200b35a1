//! A program that does not use its cards.

use std::time::{Duration, Instant};

use crate::lease::activity::{InUse, Look};

/// How long a program may leave its cards unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// It is ended after that long.
    pub end_after: Option<Duration>,
    /// A warning is given after that long.
    pub warn_after: Option<Duration>,
}

impl Idle {
    /// Whether anything is to be done.
    pub fn is_wanted(&self) -> bool {
        self.end_after.is_some() || self.warn_after.is_some()
    }
}

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A warning: unused for that long.
    Warning(Duration),
    /// An end.
    End,
}

/// How long cards have not been used. A card counts as used where that cannot be told.
#[derive(Debug)]
pub(super) struct Unused {
    idle: Idle,
    since: Instant,
    is_warned: bool,
}

impl Unused {
    /// From now on.
    pub fn begin(idle: Idle, now: Instant) -> Unused {
        Unused { idle, since: now, is_warned: false }
    }

    /// Takes note of a look, and returns the action that is due.
    pub fn note(&mut self, look: Look, now: Instant) -> Option<Due> {
        if look.card != InUse::No || look.memory == InUse::Yes {
            self.since = self.since.max(now);
            self.is_warned = false;
            return None;
        }
        let unused = now.saturating_duration_since(self.since);
        if self.idle.end_after.is_some_and(|after| unused >= after) {
            return Some(Due::End);
        }
        let is_due = self.idle.warn_after.is_some_and(|after| unused >= after);
        (is_due && !std::mem::replace(&mut self.is_warned, true)).then_some(Due::Warning(unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn look(card: InUse, memory: InUse) -> Look {
        Look { card, memory }
    }

    #[test]
    fn what_is_due_after_how_long() {
        let begin = Instant::now();
        let idle = Idle { end_after: Some(10 * SECOND), warn_after: Some(3 * SECOND) };
        let mut unused = Unused::begin(idle, begin);
        let mut after = |seconds: u32, card, memory| unused.note(look(card, memory), begin + seconds * SECOND);
        use InUse::*;
        assert_eq!(after(2, No, No), None);
        assert_eq!(after(3, No, No), Some(Due::Warning(3 * SECOND)));
        assert_eq!(after(4, No, No), None, "one warning each time");
        assert_eq!(after(5, Yes, No), None);
        assert_eq!(after(8, No, No), Some(Due::Warning(3 * SECOND)), "unused again");
        assert_eq!(after(9, No, Yes), None, "memory that changes is used");
        assert_eq!(after(10, No, Unknown), None);
        assert_eq!(after(18, No, No), Some(Due::Warning(9 * SECOND)), "a look may be late");
        assert_eq!(after(19, Unknown, No), None, "unknown activity counts as use");
        assert_eq!(after(28, No, Unknown), Some(Due::Warning(9 * SECOND)));
        assert_eq!(after(29, No, No), Some(Due::End));
    }

    #[test]
    fn a_time_that_goes_back_does_no_harm() {
        let begin = Instant::now() + 100 * SECOND;
        let mut unused = Unused::begin(Idle { end_after: Some(SECOND), warn_after: None }, begin);
        assert_eq!(unused.note(look(InUse::No, InUse::No), begin - 50 * SECOND), None);
        assert_eq!(unused.note(look(InUse::Yes, InUse::No), begin - 50 * SECOND), None);
        assert_eq!(unused.note(look(InUse::No, InUse::No), begin), None);
        assert_eq!(unused.note(look(InUse::No, InUse::No), begin + SECOND), Some(Due::End));
        let mut never = Unused::begin(Idle { end_after: Some(Duration::MAX), warn_after: None }, begin);
        assert_eq!(never.note(look(InUse::No, InUse::No), begin + 1_000_000 * SECOND), None);
    }
}
