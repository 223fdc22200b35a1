//! The view of a transaction: the members, and which of them may take bytes.

use std::cmp::Reverse;
use std::fs::File;
use std::os::unix::fs::FileExt;

use plimsoll_base::Result;

use super::decide::{self, Card, Request, Verdict};
use super::file::{Inner, MAX_MEMBERS, NotBegun, Patience, offset};
use super::record::{GIVEN_UP_AT, HISTORY_AT, LEASE_AT, OnCard, Place, Record, SLOT, USAGE_AT, Use, decode_last_use, decode_use, word};
use super::users::UserId;
use super::{History, LastUse, Locked};

/// The time in which this process alone looks at the ledger and changes it.
pub(super) struct Transaction<'a> {
    pub(super) inner: &'a Inner,
    /// A handle of the ledger that has no slot's byte, and the lock unless there is another file for that.
    pub(super) file: File,
    /// That of the lock that users share.
    pub(super) lock: Option<File>,
}

/// A member, as the ledger says.
#[derive(Clone, Debug)]
pub(super) struct SeenMember {
    /// In whose ledger it is.
    pub(super) user: UserId,
    /// Its slot there.
    pub(super) slot: u32,
    pub(super) record: Record,
    pub(super) uses: Vec<Use>,
    pub(super) history: History,
    pub(super) last_use: LastUse,
}

impl Transaction<'_> {
    /// All members: this user's by slot, then those of other users.
    ///
    /// # Errors
    /// DATA_LOSS where a slot of this user is in use and cannot be read: then the free bytes are unknown.
    pub(super) fn members(&self) -> Result<Vec<SeenMember>> {
        self.inner.members(&self.file, &mut Vec::new())
    }

    /// As [`Transaction::members`], those of this user.
    ///
    /// # Errors
    /// As there.
    pub(super) fn own_members(&self) -> Result<Vec<SeenMember>> {
        self.inner.own_members(&self.file)
    }
}

impl SeenMember {
    /// The record in a slot; none where it is no record.
    pub(super) fn decode(slot: u32, user: UserId, page: &[u8]) -> Option<SeenMember> {
        let mut record = Record::decode(page)?;
        if record.waiting.is_some_and(|place| place.arrival.wrapping_add(1) == word(page, GIVEN_UP_AT)) {
            record.waits_no_longer();
        }
        let uses = decode_use(page, record.cards.len());
        let history = History::decode(&page[HISTORY_AT..USAGE_AT]);
        Some(SeenMember { user, slot, record, uses, history, last_use: decode_last_use(page) })
    }
}

impl Inner {
    /// All members, as a handle of the file without a slot's byte shows them. `doubts` gets the flaws of other users' ledgers.
    ///
    /// # Errors
    /// As [`Transaction::members`].
    fn members(&self, file: &File, doubts: &mut Vec<String>) -> Result<Vec<SeenMember>> {
        let mut members = self.own_members(file)?;
        if let Some(shared) = &self.shared {
            members.extend(shared.others(self, doubts)?);
        }
        Ok(members)
    }

    fn own_members(&self, file: &File) -> Result<Vec<SeenMember>> {
        let broken = |error: std::io::Error| self.broken(&error);
        let length = file.metadata().map_err(broken)?.len().min(offset(MAX_MEMBERS));
        let mut pages = vec![0; length.saturating_sub(offset(0)) as usize];
        file.read_exact_at(&mut pages, offset(0)).map_err(broken)?;
        let mut members = Vec::new();
        let mut slots = 0;
        for page in pages.chunks_exact(SLOT) {
            if self.is_in_use(file, slots, word(page, LEASE_AT))? {
                let Some(seen) = SeenMember::decode(slots, self.user, page) else {
                    return Err(self.unusable(&format!("is damaged: slot {slots} is in use and cannot be read")));
                };
                members.push(seen);
            }
            slots += 1;
        }
        if self.any_in_use_from(file, slots)? {
            return Err(self.unusable(&format!("was cut short to {length} bytes: slot {slots} or one behind it is in use")));
        }
        Ok(members)
    }

    /// All members at one instant, for callers that only look. Where another process is stuck in a transaction, the file is read as it
    /// is: nothing changes meanwhile, since no other transaction begins.
    ///
    /// # Errors
    /// As [`Transaction::members`].
    pub(super) fn look(&self, doubts: &mut Vec<String>) -> Result<(Vec<SeenMember>, Option<Locked>)> {
        let mut tries = TRIES;
        loop {
            let locked = match self.transaction_within(Patience { stopped: GLANCE, most: self.patience }) {
                Ok(transaction) => return Ok((self.members(&transaction.file, doubts)?, None)),
                Err(NotBegun::Locked(locked)) => locked,
                Err(NotBegun::Broken(error)) => return Err(error),
            };
            let seen = match self.check_header() {
                Ok(()) => self.members(&self.open_again(false)?, doubts),
                Err(_) => return Err(locked.into()),
            };
            match seen {
                Ok(members) => return Ok((members, Some(locked))),
                // It may go on just now.
                Err(_) if tries > 1 => tries -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// How long a look waits for a process that is stopped in a transaction.
const GLANCE: std::time::Duration = std::time::Duration::from_millis(250);

/// How often an unreadable slot is read again.
const TRIES: u32 = 3;

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Said, not left to closing: a process that was forked meanwhile has the description too.
        let _ = self.lock.as_ref().unwrap_or(&self.file).unlock();
    }
}

/// The members in numbers: the bytes of each card, and the queue.
pub(super) struct Scene {
    pub(super) cards: Vec<Card>,
    /// Indices of the waiters among the members, in the order of the queue.
    pub(super) order: Vec<usize>,
    pub(super) queue: Vec<Request>,
}

impl Scene {
    /// The scene of these members. The order of the queue is priority, then arrival, then user and slot.
    pub(super) fn of(inner: &Inner, members: &[SeenMember]) -> Scene {
        let mut cards: Vec<Card> = inner.cards.iter().map(|card| Card { room: card.capacity.0, taken: 0 }).collect();
        for (index, card) in cards.iter_mut().enumerate() {
            card.room = card.room.saturating_sub(inner.outside(index).0);
        }
        for seen in members {
            for (card, held) in cards.iter_mut().zip(dense(inner, &seen.record, |on| on.reserved)) {
                card.taken = card.taken.saturating_add(held);
            }
        }
        let order = Scene::order(members);
        let queue = order.iter().map(|&index| request(inner, &members[index].record)).collect();
        Scene { cards, order, queue }
    }

    /// The waiters, in the order of the queue.
    pub(super) fn order(members: &[SeenMember]) -> Vec<usize> {
        let place = |index: &usize| {
            let seen = &members[*index];
            seen.record.waiting.map(|place: Place| (Reverse(place.priority), place.arrival, seen.user, seen.slot))
        };
        let mut order: Vec<usize> = (0..members.len()).filter(|index| place(index).is_some()).collect();
        order.sort_by_key(place);
        order
    }

    /// The verdict on each waiter.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        decide::verdicts(&self.cards, &self.queue)
    }

    /// As [`Scene::verdicts`], each with the cards that it is granted.
    pub(super) fn decide(&self) -> Vec<(Verdict, Vec<usize>)> {
        decide::decide(&self.cards, &self.queue)
    }

    /// The member that must give up so that a deadlock ends: the last of its waiters that hold something.
    pub(super) fn must_give_up(&self) -> Option<usize> {
        let stuck = decide::deadlocked(&self.cards, &self.queue);
        (0..self.queue.len()).rev().find(|&place| stuck[place] && self.queue[place].held.iter().any(|&bytes| bytes > 0))
    }
}

/// The bytes that a record says its member holds and asks.
pub(super) fn request(inner: &Inner, record: &Record) -> Request {
    let some = record.waiting.map_or(0, |place| place.some.into());
    Request { held: dense(inner, record, |on| on.reserved), asked: dense(inner, record, |on| on.asked), some }
}

/// A number for each card that is known here.
fn dense(inner: &Inner, record: &Record, number: impl Fn(&OnCard) -> u64) -> Vec<u64> {
    let mut out = vec![0; inner.cards.len()];
    for on in &record.cards {
        if let Some(card) = inner.card_of(on.card) {
            out[card] = number(on);
        }
    }
    out
}
