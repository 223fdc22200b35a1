//! A lease for a library that knows nothing of the machine but the lease's name. It has cards by the keys that it comes across,
//! requests that are granted or refused at once, and their results.

use std::os::unix::fs::FileExt;

use plimsoll_base::{Bytes, Error, Result};

use super::file::Inner;
use super::nested::ended;
use super::record::{OnCard, key_hash};
use super::transaction::{Scene, SeenMember};
use super::{CardInfo, Machine, Member, PATIENCE, StateDir};

/// The place in the first page of a ledger inside of a place where refusals are counted, a number for each card.
const REFUSED_AT: u64 = 3072;

/// Where stands the most of each card that its members held together.
const MOST_AT: u64 = REFUSED_AT + 8 * super::MAX_CARDS as u64;

impl Machine {
    /// The ledger inside of a lease: the value of PLIMSOLL_LEASE, one token for each lease inside of another. Its cards are those
    /// of the lease, in its holder's order, as large as the lease's part of them. Their keys are not known (see
    /// [`Machine::card_with_key`]).
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a text that names no lease, FAILED_PRECONDITION where the lease has ended; otherwise where a ledger
    /// cannot be used.
    pub fn of_lease(state: &StateDir, lease: &str) -> Result<Machine> {
        let mut machine: Option<Machine> = None;
        for token in lease.split('/') {
            let Some((named, name)) = token.split_once('@').filter(|(_, name)| !name.is_empty() && !name.starts_with('.')) else {
                return Err(Error::invalid_argument(format!("'{lease}' names no lease")).with_remedy("do not set PLIMSOLL_LEASE by hand"));
            };
            machine = Some(match machine {
                Some(around) => around.0.inside_of(named)?,
                None => {
                    let path = state.path().join(name);
                    if !path.exists() {
                        return Err(ended());
                    }
                    Inner::at(path, name.to_string(), Vec::new(), Vec::new(), PATIENCE, state.shared().cloned(), false)?.inside_of(named)?
                }
            });
        }
        machine.ok_or_else(ended)
    }

    /// The number of the card with that key; none where the ledger has no such card.
    pub fn card_with_key(&self, key: &str) -> Option<usize> {
        self.0.card_of(key_hash(key))
    }

    /// The bytes of each card that all members hold. Cheaper than [`Machine::look`].
    ///
    /// # Errors
    /// Where the ledger cannot be used.
    pub fn reserved(&self) -> Result<Vec<Bytes>> {
        let (members, _) = self.0.look(&mut Vec::new())?;
        Ok(Scene::of(&self.0, &members).cards.iter().map(|card| Bytes(card.taken)).collect())
    }

    /// How often [`Member::count_refusal`] was told of a refused request for bytes of a card, if this ledger is inside of a place; 0 elsewhere.
    pub fn refused(&self, card: usize) -> u64 {
        self.0.word_of(REFUSED_AT, card)
    }

    /// The most that members held of a card together when [`Member::try_reserve`] granted bytes, if this ledger is inside of
    /// a place; 0 elsewhere.
    pub fn most_reserved(&self, card: usize) -> Bytes {
        Bytes(self.0.word_of(MOST_AT, card))
    }
}

impl Member {
    /// Reserves bytes of a card on top of the held ones; whether they were. A member that does not wait comes after all waiters. No
    /// process is looked at and none named: for callers that ask often.
    ///
    /// # Errors
    /// Where there is no such card, or the ledger cannot be used.
    pub fn try_reserve(&self, card: usize, bytes: Bytes) -> Result<bool> {
        self.inner.check(card)?;
        let mut state = self.state();
        let transaction = self.begin()?;
        let members = transaction.members()?;
        let mut scene = Scene::of(&self.inner, &members);
        let on = &mut scene.cards[card];
        // This record is newer where bytes could not be given back.
        let stands =
            |seen: &SeenMember| seen.record.cards.iter().find(|on| self.inner.card_of(on.card) == Some(card)).map_or(0, |on| on.reserved);
        let own = members.iter().find(|seen| self.is(seen)).map_or(0, stands);
        on.taken = on.taken.saturating_sub(own).saturating_add(state.record.cards[card].reserved);
        // Waiters come first: they are told when bytes come back.
        let asked: u64 = scene.queue.iter().map(|request| request.asked[card]).fold(0, u64::saturating_add);
        if on.taken.saturating_add(asked).saturating_add(bytes.0) > on.room {
            return Ok(false);
        }
        let taken = on.taken + bytes.0;
        let mut asked = vec![0; self.inner.cards.len()];
        asked[card] = bytes.0;
        self.grant(&mut state.record, &asked)?;
        self.inner.raise(MOST_AT, card, |most| most.max(taken));
        Ok(true)
    }

    /// Counts a request for bytes of a card that was refused in the end: see [`Machine::refused`].
    ///
    /// # Errors
    /// As [`Member::try_reserve`].
    pub fn count_refusal(&self, card: usize) -> Result<()> {
        self.inner.check(card)?;
        let _transaction = self.begin()?;
        self.inner.raise(REFUSED_AT, card, |count| count.saturating_add(1));
        Ok(())
    }
}

impl Inner {
    fn inside_of(&self, named: &str) -> Result<Machine> {
        let holder = self.holder(named)?;
        let card = |(number, on): (usize, &OnCard)| CardInfo {
            key: String::new(),
            name: format!("card {number} of the lease"),
            capacity: Bytes(on.reserved),
        };
        let cards = holder.record.cards.iter().enumerate().map(card).collect();
        let hashes = holder.record.cards.iter().map(|on| on.card).collect();
        self.nested_of(holder.slot, &holder.record, cards, hashes)
    }

    /// A word of the first page for each card, in the order of the cards; 0 where none was written.
    pub(super) fn words(&self, at: u64) -> Vec<u64> {
        let mut bytes = [0; 8 * super::MAX_CARDS];
        let _ = self.file.read_exact_at(&mut bytes, at);
        bytes.as_chunks::<8>().0.iter().take(self.cards.len()).map(|word| u64::from_le_bytes(*word)).collect()
    }

    fn word_of(&self, at: u64, card: usize) -> u64 {
        if self.nested { self.words(at).get(card).copied().unwrap_or(0) } else { 0 }
    }

    /// In a transaction, inside of a place: changes a word of the first page.
    fn raise(&self, at: u64, card: usize, change: impl FnOnce(u64) -> u64) {
        if self.nested && card < super::MAX_CARDS {
            let word = change(self.word_of(at, card));
            // It is only shown.
            let _ = self.put(&self.file, &word.to_le_bytes(), at + 8 * card as u64);
        }
    }
}
