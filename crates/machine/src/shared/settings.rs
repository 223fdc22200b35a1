//! The administrator's settings for the users of a machine's ledger.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use plimsoll_base::{Error, Result};

use crate::UserId;

/// Bounds on the priorities of requests that wait, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// The lowest.
    pub least: i32,
    /// The highest.
    pub most: i32,
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities { least: -10, most: 10 }
    }
}

impl Priorities {
    /// The priority within the bounds that is nearest.
    pub(super) fn clamp(self, priority: i32) -> i32 {
        priority.clamp(self.least, self.most)
    }
}

impl fmt::Display for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.least, self.most)
    }
}

impl FromStr for Priorities {
    type Err = Error;

    /// `-10..10`; `5` is that one alone.
    fn from_str(text: &str) -> Result<Priorities> {
        let (least, most) = text.trim().split_once("..").unwrap_or((text.trim(), text.trim()));
        let number = |text: &str| text.trim().parse::<i32>().ok();
        match (number(least), number(most)) {
            (Some(least), Some(most)) if least <= most => Ok(Priorities { least, most }),
            _ => Err(Error::invalid_argument(format!("'{text}' is no range of priorities")).with_remedy("write the bounds as -10..10")),
        }
    }
}

/// The contents of the file of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// For users without bounds of their own.
    pub(super) all: Priorities,
    pub(super) users: BTreeMap<u32, Priorities>,
}

const HEAD: &str = "# Written by `plimsoll setup`, which changes it.\n";

impl Settings {
    /// The bounds of a user.
    pub(crate) fn of(&self, user: UserId) -> Priorities {
        self.users.get(&user.0).copied().unwrap_or(self.all)
    }

    pub(super) fn text(&self) -> String {
        let users: String = self.users.iter().map(|(user, bounds)| format!("priorities {user} = {bounds}\n")).collect();
        format!("{HEAD}priorities = {}\n{users}", self.all)
    }

    /// # Errors
    /// INVALID_ARGUMENT with the line that says nothing.
    pub(super) fn parse(text: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || Error::invalid_argument(format!("'{line}' is no setting"));
            let (name, value) = line.split_once('=').ok_or_else(wrong)?;
            let bounds: Priorities = value.parse()?;
            match name.trim().strip_prefix("priorities").ok_or_else(wrong)?.trim() {
                "" => settings.all = bounds,
                user => drop(settings.users.insert(user.parse().map_err(|_| wrong())?, bounds)),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_both_ways() {
        let one = |least, most| Priorities { least, most };
        let settings = Settings { all: one(-3, 4), users: [(1000, one(0, 20)), (7, one(5, 5))].into() };
        assert_eq!(Settings::parse(&settings.text()).unwrap(), settings);
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        assert_eq!((settings.of(UserId(7)), settings.of(UserId(8))), (one(5, 5), one(-3, 4)));
        for wrong in ["priorities", "colour = 1..2", "priorities x = 1..2", "priorities = 2..1", "priorities = a..b"] {
            assert!(Settings::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bounds_are_read() {
        for (text, least, most) in [("-10..10", -10, 10), ("5", 5, 5), (" 0 .. 3 ", 0, 3)] {
            assert_eq!(text.parse::<Priorities>().unwrap(), Priorities { least, most });
        }
        assert_eq!(Priorities::default().clamp(i32::MAX), 10);
    }
}
