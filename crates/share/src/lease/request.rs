//! A request to a machine.

use std::str::FromStr;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_machine::{Guarantee, Wait};

/// A lease, as it is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which cards, all of them or none.
    pub cards: Which,
    /// How much of each of them.
    pub memory: Amount,
    /// How to wait where they are taken; none is not at all.
    pub wait: Option<Wait>,
    /// A name for listings; may be empty.
    pub name: String,
    /// The program and its arguments, for listings; this process's where it is empty.
    pub program: String,
    /// The facts about the program. Without one, the cards decide: use is watched where the driver shows it.
    pub guarantee: Option<Guarantee>,
}

/// Which cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// So many of those that are seen, the emptiest first; 0 is none.
    Count(usize),
    /// These, in this order: by the numbers that CUDA_VISIBLE_DEVICES leaves.
    List(Vec<usize>),
}

/// How much of a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// All that programs without a lease leave.
    All,
    /// So many bytes.
    Bytes(Bytes),
    /// So much of all its memory, above 0 and at most 1.
    Fraction(f64),
}

impl Default for Request {
    fn default() -> Request {
        Request { cards: Which::Count(1), memory: Amount::All, wait: None, name: String::new(), program: String::new(), guarantee: None }
    }
}

impl Request {
    /// So many cards, all of each.
    pub fn cards(count: usize) -> Request {
        Request { cards: Which::Count(count), ..Request::default() }
    }

    /// Of each card this much.
    pub fn memory(self, memory: Amount) -> Request {
        Request { memory, ..self }
    }

    /// Waits.
    pub fn wait(self, wait: Wait) -> Request {
        Request { wait: Some(wait), ..self }
    }

    /// Under that name.
    pub fn name(self, name: impl Into<String>) -> Request {
        Request { name: name.into(), ..self }
    }
}

impl FromStr for Which {
    type Err = Error;

    /// `2` is so many cards; `0,`, `3,2` and `[3]` are numbers of cards.
    fn from_str(text: &str) -> Result<Which> {
        let wrong = || {
            Error::invalid_argument(format!("'{text}' is neither a number of cards nor a list of them"))
                .with_remedy("write 2 for any two cards, 3,2 for those, and 3, for that one")
        };
        let text = text.trim();
        let (inside, listed) = match text.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(inside) => (inside.ok_or_else(wrong)?, true),
            None => (text, text.contains(',')),
        };
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number <= 4096).ok_or_else(wrong);
        if !listed {
            return Ok(Which::Count(number(inside)?));
        }
        let list: Vec<usize> = inside.strip_suffix(',').unwrap_or(inside).split(',').map(number).collect::<Result<_>>()?;
        match (1..list.len()).find(|&at| list[..at].contains(&list[at])) {
            Some(at) => Err(Error::invalid_argument(format!("'{text}' lists card {} twice", list[at])).with_remedy("list each card once")),
            None => Ok(Which::List(list)),
        }
    }
}

impl FromStr for Amount {
    type Err = Error;

    /// `2GiB`; `0.4` and `40%` are shares; `all`. A number of bytes below 1 MiB needs its unit.
    fn from_str(text: &str) -> Result<Amount> {
        let wrong = |why: &str| {
            Error::invalid_argument(format!("'{text}' {why}")).with_remedy("write a size as 2GiB, a share as 0.4 or 40%, or all")
        };
        let text = text.trim();
        if text == "all" {
            return Ok(Amount::All);
        }
        let fraction = match text.strip_suffix('%') {
            Some(percent) => Some(percent.trim().parse::<f64>().map(|percent| percent / 100.0).map_err(|_| wrong("is not a share"))?),
            // 1.0 is all.
            None if text.contains('.') => text.parse::<f64>().ok(),
            None => None,
        };
        match fraction {
            Some(fraction) if fraction > 0.0 && fraction <= 1.0 => Ok(Amount::Fraction(fraction)),
            Some(_) => Err(wrong("is not above 0 and at most 1")),
            None => match Bytes::of_option(text) {
                Ok(Bytes::ZERO) => Err(wrong("is not an amount: it is 0 bytes")),
                Ok(bytes) => Ok(Amount::Bytes(bytes)),
                Err(error) if error.is_without_unit() => {
                    Err(Error::invalid_argument(error.to_string()).with_remedy("write a size as 2GiB, a share as 0.4 or 40%, or all"))
                }
                Err(error) => Err(wrong(&format!("is not an amount: {error}"))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_counted_or_listed() {
        for (text, which) in [
            ("2", Which::Count(2)),
            (" 0 ", Which::Count(0)),
            ("3,2", Which::List(vec![3, 2])),
            ("3,", Which::List(vec![3])),
            ("[0]", Which::List(vec![0])),
            ("0, 1 ,2", Which::List(vec![0, 1, 2])),
        ] {
            assert_eq!(text.parse::<Which>().unwrap(), which, "{text}");
        }
        for text in ["", "-1", "a", "1,a", ",", "1,1", "[1", "1.5", "99999", "[]"] {
            assert!(text.parse::<Which>().is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_sizes_or_shares() {
        for (text, amount) in [
            ("2GiB", Amount::Bytes(Bytes(2 << 30))),
            ("1.5GiB", Amount::Bytes(Bytes(3 << 29))),
            ("512B", Amount::Bytes(Bytes(512))),
            ("2000000", Amount::Bytes(Bytes(2_000_000))),
            ("0.4", Amount::Fraction(0.4)),
            ("25 %", Amount::Fraction(0.25)),
            ("1.0", Amount::Fraction(1.0)),
            ("all", Amount::All),
        ] {
            assert_eq!(text.parse::<Amount>().unwrap(), amount, "{text}");
        }
        for text in ["", "0", "2", "512", "0.0", "1.1", "-0.5", "nan%", "0%", "101%", "much", "2 parsecs"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
    }
}
