//! A reservation that a card has no room for.

use std::fmt;
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Kind, Shortage, exact};

use super::transaction::SeenMember;
use super::{CardInfo, UserId, file::Inner};

/// How many members an error names.
const NAMED: usize = 5;

/// Why a reservation was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A card has no room for it.
    Full(Box<Full>),
    /// The ledger cannot be used.
    Broken(Error),
}

/// A request to a card that could not grant it, with all that an error needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// The card: of several, the first that lacks room.
    pub card: CardInfo,
    /// Bytes asked, on top of those that the member holds.
    pub asked: Bytes,
    /// Bytes of the card without a holder.
    pub free: Bytes,
    /// Bytes used by programs that are not in the ledger, as this process sees it.
    pub outside: Bytes,
    /// The holders of bytes of the card, most first.
    pub holders: Vec<HolderOn>,
    /// The waiters for bytes of the card that come first, in order.
    pub ahead: Vec<HolderOn>,
    /// The final reason.
    pub why: Why,
}

/// A member's part in a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderOn {
    /// The process that joined, or one that inherited its place where that has ended.
    pub pid: u32,
    /// Its user, where users share the ledger.
    pub user: Option<UserId>,
    /// Its program and arguments.
    pub program: String,
    /// The member's name; may be empty.
    pub name: String,
    /// Bytes held, or asked.
    pub bytes: Bytes,
    /// Whether it is the member that asks.
    pub own: bool,
    pub(super) slot: u32,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The bytes are taken.
    Taken,
    /// They are free, and other waiters come first.
    Spoken,
    /// The card has not that much, whichever holder gives back.
    Never,
    /// They were not given back in this time.
    TimedOut(Duration),
    /// The holders of the bytes wait for each other; this was the last of them.
    Deadlock,
    /// The caller did not want to wait any longer.
    Stopped,
}

impl Full {
    /// The members' records about a card for the one of them that asks; `ahead` are the waiters before it.
    pub(super) fn new(inner: &Inner, members: &[SeenMember], asks: usize, card: usize, asked: u64, ahead: &[usize], why: Why) -> Full {
        let on = |seen: &SeenMember| seen.record.cards.iter().find(|on| inner.card_of(on.card) == Some(card)).copied().unwrap_or_default();
        let holder = |seen: &SeenMember, bytes: u64| {
            let record = &seen.record;
            let (program, name) = (record.program.clone(), record.name.clone());
            let user = inner.shared.as_ref().map(|_| seen.user);
            HolderOn { pid: record.pid, user, program, name, bytes: Bytes(bytes), own: std::ptr::eq(seen, &members[asks]), slot: seen.slot }
        };
        let some = |holder: &HolderOn| holder.bytes > Bytes::ZERO;
        let mut holders: Vec<HolderOn> = members.iter().map(|seen| holder(seen, on(seen).reserved)).filter(some).collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.pid));
        let ahead = ahead.iter().map(|&index| holder(&members[index], on(&members[index]).asked)).filter(some).collect();
        let (info, outside) = (inner.cards[card].clone(), inner.outside(card));
        let free = info.capacity - outside - holders.iter().map(|holder| holder.bytes).sum();
        Full { card: info, asked: Bytes(asked), free, outside, holders, ahead, why }
    }

    fn shortage(&self) -> Shortage {
        let holders = self.holders.iter().map(|holder| (format!("pid {} ({})", holder.pid, holder.program), holder.bytes)).collect();
        Shortage { requested: self.asked, used: self.card.capacity - self.free, limit: Some(self.card.capacity), holders }
    }

    /// Those in the list but this member, in words: `pid 7 (python train.py) "mine": 2 GiB (2147483648 bytes)`.
    pub fn others(&self) -> String {
        list(&self.holders)
    }
}

/// The name in CUDA's driver for a card without room.
pub const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY: out of memory";

fn list(holders: &[HolderOn]) -> String {
    let others: Vec<String> = holders.iter().filter(|holder| !holder.own).map(HolderOn::to_string).collect();
    match others.len() {
        0..=NAMED => others.join(", "),
        more => format!("{}, and {} more", others[..NAMED].join(", "), more - NAMED),
    }
}

impl fmt::Display for HolderOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}", self.pid)?;
        if let Some(user) = self.user {
            write!(f, " of {}", user.name())?;
        }
        write!(f, " ({})", self.program)?;
        if !self.name.is_empty() {
            write!(f, " \"{}\"", self.name)?;
        }
        write!(f, ": {}", exact(self.bytes))
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} asked; {} of {} are free", exact(self.asked), exact(self.free), exact(self.card.capacity))?;
        let own: Bytes = self.holders.iter().filter(|holder| holder.own).map(|holder| holder.bytes).sum();
        let mut parts = Vec::new();
        if own > Bytes::ZERO {
            parts.push(format!("{} are held by this program itself", exact(own)));
        }
        if self.holders.iter().any(|holder| !holder.own) {
            parts.push(format!("held by {}", list(&self.holders)));
        }
        if self.outside > Bytes::ZERO {
            parts.push(format!("{} are used by programs that are not in the ledger", exact(self.outside)));
        }
        if !self.ahead.is_empty() {
            parts.push(format!("waited for by {}", list(&self.ahead)));
        }
        for part in parts {
            write!(f, "; {part}")?;
        }
        match self.why {
            Why::Taken | Why::Spoken | Why::Never | Why::Stopped => Ok(()),
            Why::TimedOut(after) => write!(f, "; waited for {after:?}"),
            Why::Deadlock => f.write_str("; the holders of the rest wait for each other, and this request closed the circle"),
        }
    }
}

impl From<Full> for Error {
    /// RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED after waiting, ABORTED in a deadlock, CANCELLED if the caller ended it. With the card,
    /// bytes asked and free, the holders of the rest, and a remedy.
    fn from(full: Full) -> Error {
        use plimsoll_base::Code;
        let (code, remedy) = match full.why {
            Why::Taken => (Code::ResourceExhausted, "end one of the holders, ask for less, or wait until there is room"),
            Why::Spoken => (Code::ResourceExhausted, "wait for memory, too (--wait): requests that wait come first"),
            Why::Never => (Code::ResourceExhausted, "ask for less: the card has less than that for one program"),
            Why::TimedOut(_) => (Code::DeadlineExceeded, "wait longer, end one of the holders, or ask for less"),
            Why::Deadlock => (Code::Aborted, "give back the held bytes, then ask for all of them at once"),
            Why::Stopped => (Code::Cancelled, "wait longer, end one of the holders, or ask for less"),
        };
        let error = Error::new(code, full.to_string()).with_remedy(remedy);
        let error = if code == Code::ResourceExhausted { error.with_kind(Kind::NoRoom(Box::new(full.shortage()))) } else { error };
        error.on_device(full.card.name)
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Error {
        match denied {
            Denied::Full(full) => Error::from(*full),
            Denied::Broken(error) => error,
        }
    }
}

impl From<Error> for Denied {
    fn from(error: Error) -> Denied {
        Denied::Broken(error)
    }
}

impl From<Full> for Denied {
    fn from(full: Full) -> Denied {
        Denied::Full(Box::new(full))
    }
}
