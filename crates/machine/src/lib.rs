//! The ledger of a machine's cards: the bytes that each process holds, in one file, without a daemon and without root.
//!
//! **The file.** Each set of cards has one file in the [`StateDir`]: a page that identifies it, then a page (*slot*) for each
//! [`Member`]. A slot is in use exactly while its byte is locked by an open file description of its member: the kernel gives the
//! lock back when the last process that has the description ends, however it ends. A record in a slot without a lock does not
//! exist. So there is nothing to clean up, nothing can leak, and a process id is only ever shown.
//!
//! **Leases.** Programs that share a slot do not get the ledger. They inherit an empty file of the lease's own, open for reading;
//! its lock keeps the slot in use as the member's does ([`lease`]).
//!
//! **The mark.** All members lock one more range, whose numbers say which ledger it is. The kernel's list of locks shows it
//! whatever becomes of the files ([`mark`]). A process that finds no ledger, or another one than was there, looks for members first,
//! and makes no second ledger beside them.
//!
//! **Transactions.** A process that decides, or changes its reservation, does so under one lock of the whole file. It looks at all
//! slots in use, and writes its own slot and no other, in one write inside one page. A process killed on the way leaves the old
//! record or the new one, in a slot that is free from then on. The part of its reservation that a member *uses* is only shown; it
//! is written without a transaction.
//!
//! **Waiting.** A slot may have its member's request. Grants are decided by [`decide`], a pure function of all slots, which comes
//! to the same result in every process; so a waiter takes its bytes itself. The kernel tells the few waiters at the front when a
//! member closes the file, which a death does too. They wake the waiters that come to the front after them.
//!
//! **Users.** Where an administrator made a folder for the machine, its users share a ledger. It consists of one file for each of
//! them ([`shared`]).
//!
//! The folder must be on a local file system: locks are the machine's.
//!
//! A [`CardUpstream`] puts a part of a card behind the ledger of a device of this process (`plimsoll_memory::Ledger`): bytes that are
//! reserved there are held here.

mod bell;
mod byte_lock;
mod decide;
mod end;
mod file;
mod full;
mod history;
mod last;
mod lease;
mod locked;
mod mark;
mod member;
mod nested;
mod process;
mod record;
mod shared;
mod signals;
mod slot;
mod state_dir;
mod transaction;
mod under;
mod upstream;
mod usage;
mod users;
mod view;
mod wait;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_base::{Bytes, Error, Result};

pub use end::end_with_this_thread;
pub use full::{Denied, Full, HolderOn, OUT_OF_MEMORY, Why};
pub use history::History;
pub use last::Last;
pub use locked::{Locked, Obstacle};
pub use member::Member;
pub use shared::{MACHINE_DIR, Priorities, SetUp, Setup, remove};
pub use signals::{end_by_signal, send_signal};
pub use slot::Slot;
pub use state_dir::{Scope, StateDir};
pub use upstream::CardUpstream;
pub use usage::{ChildrenUsage, children_usage};
pub use users::UserId;
pub use view::{CardUsage, Entry, Share, Snapshot, Waiting};
pub use wait::Wait;

use file::Inner;

/// How many cards a set may have.
pub const MAX_CARDS: usize = 64;

/// How long a transaction waits for another one before it names the process that is stuck in it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A card, as the caller knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardInfo {
    /// The name of the card in the ledger, the same in every process: a UUID.
    pub key: String,
    /// The name of the card for people.
    pub name: String,
    /// The memory that may be reserved on it.
    pub capacity: Bytes,
}

/// How sure it is that a member keeps to its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Guarantee {
    /// Nothing is allocated beyond the reservation: one of our own programs.
    Held = 1,
    /// A framework was told its share by its own settings.
    Framework = 2,
    /// Use is looked at now and then.
    Watched = 3,
    /// Nothing holds it and use cannot be seen.
    NotWatched = 4,
    /// A library between the program and the driver refuses bytes beyond.
    Shim = 5,
    /// The driver's server refuses bytes beyond to each of its processes.
    Mps = 6,
    /// The kernel's driver refuses bytes beyond to the group of its processes.
    Kernel = 7,
}

impl Guarantee {
    /// All of them, the strongest first.
    pub const ALL: [Guarantee; 7] = [
        Guarantee::Held,
        Guarantee::Kernel,
        Guarantee::Mps,
        Guarantee::Shim,
        Guarantee::Framework,
        Guarantee::Watched,
        Guarantee::NotWatched,
    ];

    /// The word for it in listings: `held`, `kernel`, `mps`, `shim`, `framework`, `watched`, `not watched`.
    pub fn word(self) -> &'static str {
        match self {
            Guarantee::Held => "held",
            Guarantee::Kernel => "kernel",
            Guarantee::Mps => "mps",
            Guarantee::Shim => "shim",
            Guarantee::Framework => "framework",
            Guarantee::Watched => "watched",
            Guarantee::NotWatched => "not watched",
        }
    }
}

/// When a member was last seen to use its cards, by the clock of that time: shown, never compared. None where that was not
/// observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastUse {
    /// When something ran on one of them.
    pub card: Option<SystemTime>,
    /// When the bytes in use of one of them last changed.
    pub memory: Option<SystemTime>,
}

/// The identity of a new member: all of it is shown to others, and cut where it is long.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A name given by the user; may be empty.
    pub name: String,
    /// The program and its arguments.
    pub program: String,
    /// The guarantee for others.
    pub guarantee: Guarantee,
}

impl Identity {
    /// This process under a name of its own.
    pub fn this_process(name: impl Into<String>) -> Identity {
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Identity { name: name.into(), program: words.join(" "), guarantee: Guarantee::Held }
    }
}

/// The ledger of a set of cards, seen from this process. Clones are the same handle; opening it again is as good.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Inner>);

impl Machine {
    /// Opens the ledger of the set named `set`, and makes it where there is none. Every process that names the same set in
    /// the same folder sees the same members. A card that another process knows and this one does not is left alone.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no cards, too many, or two with one key; otherwise the obstacle to using the file.
    pub fn open(state: &StateDir, set: &str, cards: &[CardInfo]) -> Result<Machine> {
        let bad = |what: String| Err(Error::invalid_argument(format!("the set of cards '{set}' {what}")));
        if set.is_empty() || cards.is_empty() || cards.len() > MAX_CARDS {
            return bad(format!("has {} cards: a set has a name and 1 to {MAX_CARDS} cards", cards.len()));
        }
        for (index, card) in cards.iter().enumerate() {
            if let Some(twin) = cards[..index].iter().find(|twin| record::key_hash(&twin.key) == record::key_hash(&card.key)) {
                return bad(format!("has two cards with the key '{}' ('{}', '{}')", card.key, twin.name, card.name));
            }
        }
        Ok(Machine(Arc::new(Inner::open(state, set, cards.to_vec(), PATIENCE)?)))
    }

    /// The same ledger with another bound on how long a transaction waits for another one (10 seconds unless told).
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn with_patience(&self, patience: Duration) -> Result<Machine> {
        Ok(Machine(Arc::new(self.0.reopen(patience)?)))
    }

    /// The cards, in the order in which they are numbered here.
    pub fn cards(&self) -> &[CardInfo] {
        &self.0.cards
    }

    /// Says how much of a card is used by programs that are not in the ledger, as this process sees it. It is not granted by
    /// this process from now on; other processes see for themselves.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is no such card.
    pub fn set_outside(&self, card: usize, bytes: Bytes) -> Result<()> {
        self.0.set_outside(card, bytes)
    }

    /// The bytes of each card that each other user holds, where users share the ledger; empty elsewhere.
    ///
    /// # Errors
    /// Where the ledger cannot be used.
    pub fn held_by_others(&self) -> Result<Vec<BTreeMap<UserId, Bytes>>> {
        let Some(shared) = &self.0.shared else { return Ok(Vec::new()) };
        let mut held = vec![BTreeMap::new(); self.cards().len()];
        for entry in self.look()?.entries {
            let Some(user) = entry.user.filter(|user| *user != shared.user) else { continue };
            for share in entry.shares {
                *held[share.card].entry(user).or_insert(Bytes::ZERO) += share.reserved;
            }
        }
        Ok(held)
    }

    /// For each card the parts that this user's members have of it, by slot.
    ///
    /// # Errors
    /// Where the ledger cannot be used.
    pub fn shares_by_slot(&self) -> Result<Vec<BTreeMap<u32, Share>>> {
        let mut shares = vec![BTreeMap::new(); self.cards().len()];
        let (members, _) = self.0.look(&mut Vec::new())?;
        for seen in members.iter().filter(|seen| seen.user == self.0.user) {
            for share in view::shares(&self.0, seen) {
                shares[share.card].insert(seen.slot, share);
            }
        }
        Ok(shares)
    }

    /// The bytes that [`Machine::set_outside`] set last.
    pub fn outside(&self, card: usize) -> Bytes {
        self.0.check(card).map_or(Bytes::ZERO, |()| self.0.outside(card))
    }

    /// Becomes a member that holds nothing yet.
    ///
    /// # Errors
    /// Where the file cannot be used or has no room.
    pub fn join(&self, identity: &Identity) -> Result<Member> {
        Member::join(&self.0, identity, self.0.transaction()?)
    }

    /// As [`Machine::join`], for a request that may wait: also for a process that is stuck in a change of the ledger. `told` is called
    /// now and then with that process, and ends the wait by returning `false`.
    ///
    /// # Errors
    /// As [`Machine::join`]; DEADLINE_EXCEEDED after the timeout, CANCELLED where `told` ended it.
    pub fn join_waiting(&self, identity: &Identity, wait: &Wait, told: &mut dyn FnMut(Obstacle<'_>) -> bool) -> Result<Member> {
        Member::join(&self.0, identity, wait::begin(&self.0, wait.timeout, told)?)
    }

    /// All members and cards at one instant. A member may live on in programs that inherited its place after the process that
    /// joined has ended. It is shown by the oldest of those. A process that is stuck in a change of the ledger is named, and does
    /// not delay the look.
    ///
    /// # Errors
    /// Where the file cannot be used.
    pub fn look(&self) -> Result<Snapshot> {
        let mut doubts = Vec::new();
        let (members, locked) = self.0.look(&mut doubts)?;
        let mut snapshot = Snapshot::of(&self.0, &members, locked, doubts);
        slot::show_heirs(&self.0, &members, &mut snapshot.entries);
        Ok(snapshot)
    }
}
