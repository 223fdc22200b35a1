//! What is seen in a transaction: the members, and who of them may take what.

use std::cmp::Reverse;
use std::fs::File;
use std::os::unix::fs::FileExt;

use plimsoll_base::Result;

use super::decide::{self, Card, Request, Verdict};
use super::file::{Inner, MAX_MEMBERS, offset};
use super::record::{HISTORY_AT, OnCard, Place, Record, SLOT, USAGE_AT, Use, decode_use};
use super::{History, byte_lock};

/// The time in which this process alone looks at the ledger and changes it.
pub(super) struct Transaction<'a> {
    pub(super) inner: &'a Inner,
    /// Its open file description has the lock, and no slot's byte.
    pub(super) lock: File,
}

/// A member, as the ledger says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) slot: u32,
    pub(super) record: Record,
    pub(super) uses: Vec<Use>,
    pub(super) history: History,
}

impl Transaction<'_> {
    /// All members, by slot.
    ///
    /// # Errors
    /// DATA_LOSS where a slot in use cannot be read: nobody knows then what is free.
    pub(super) fn members(&self) -> Result<Vec<Seen>> {
        let length = self.lock.metadata().map_err(|error| self.inner.broken(&error))?.len().min(offset(MAX_MEMBERS));
        let mut pages = vec![0; length.saturating_sub(offset(0)) as usize];
        self.lock.read_exact_at(&mut pages, offset(0)).map_err(|error| self.inner.broken(&error))?;
        let mut members = Vec::new();
        let mut slots = 0;
        for page in pages.chunks_exact(SLOT) {
            if self.is_taken(slots)? {
                let Some(record) = Record::decode(page) else { return Err(self.damaged(slots)) };
                let uses = decode_use(page, record.cards.len());
                let history = History::decode(&page[HISTORY_AT..USAGE_AT]);
                members.push(Seen { slot: slots, record, uses, history });
            }
            slots += 1;
        }
        if byte_lock::any_taken_from(&self.lock, slots).map_err(|error| self.inner.broken(&error))? {
            return Err(self.damaged(slots));
        }
        Ok(members)
    }

    fn is_taken(&self, slot: u32) -> Result<bool> {
        byte_lock::is_taken(&self.lock, slot).map_err(|error| self.inner.broken(&error))
    }

    fn damaged(&self, slot: u32) -> plimsoll_base::Error {
        self.inner.unusable(&format!("is damaged: slot {slot} is in use and cannot be read"))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Said, not left to closing: a process that was forked meanwhile has the description too.
        let _ = self.lock.unlock();
    }
}

/// The members in numbers: what each card has, and the queue.
pub(super) struct Scene {
    pub(super) cards: Vec<Card>,
    /// Indices of those who wait among the members, in the order of the queue.
    pub(super) order: Vec<usize>,
    pub(super) queue: Vec<Request>,
}

impl Scene {
    /// What these members make. The order of the queue is priority, then arrival, then slot.
    pub(super) fn of(inner: &Inner, members: &[Seen]) -> Scene {
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

    /// Those who wait, in the order of the queue.
    pub(super) fn order(members: &[Seen]) -> Vec<usize> {
        let place = |index: &usize| members[*index].record.waiting.map(|place: Place| (Reverse(place.priority), place.arrival));
        let mut order: Vec<usize> = (0..members.len()).filter(|index| place(index).is_some()).collect();
        order.sort_by_key(place);
        order
    }

    /// What becomes of each that waits.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        decide::verdicts(&self.cards, &self.queue)
    }

    /// As [`Scene::verdicts`], each with the cards that it is granted.
    pub(super) fn decide(&self) -> Vec<(Verdict, Vec<usize>)> {
        decide::decide(&self.cards, &self.queue)
    }

    /// Who must give up so that a deadlock ends: the last of those in it that hold something.
    pub(super) fn must_give_up(&self) -> Option<usize> {
        let stuck = decide::deadlocked(&self.cards, &self.queue);
        (0..self.queue.len()).rev().find(|&place| stuck[place] && self.queue[place].held.iter().any(|&bytes| bytes > 0))
    }
}

/// What a record says that its member holds and asks.
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
