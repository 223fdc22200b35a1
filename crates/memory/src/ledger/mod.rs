//! The line of one device: a limit, the reservations under it, and their holders.
//!
//! Everything a caller sees is in terms of bytes and holders' names. Behind a ledger may stand bytes that several processes share
//! ([`Upstream`]): then bytes reserved here are held there, and other processes see them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use plimsoll_base::Bytes;

use crate::physical_memory;

mod faults;
mod refusal;
mod room;
mod upstream;

pub use faults::Faults;
pub use refusal::Refusal;
pub use upstream::{Denied, Upstream};

use refusal::NAMED_HOLDERS;
pub use room::Listener;
use room::Room;
use upstream::Behind;

/// The limit of a device and its reservations. Thread-safe; shared by [`Arc`].
#[derive(Debug)]
pub struct Ledger {
    device: Arc<str>,
    limit: Option<Bytes>,
    /// The most that may be reserved: the limit, else the memory of the machine.
    line: Bytes,
    state: Mutex<State>,
    behind: Option<Behind>,
    faults: OnceLock<Arc<Faults>>,
    room: Room,
}

#[derive(Debug, Default)]
struct State {
    /// The bytes that may be in use without a request upstream: the line, or the bytes held upstream.
    held: Bytes,
    in_use: Bytes,
    peak: Bytes,
    mapped: Bytes,
    mapped_peak: Bytes,
    holders: BTreeMap<Arc<str>, Bytes>,
    /// How many loans there are; their holders' entries stay even at no bytes.
    loans: usize,
}

/// Bytes reserved in one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder, as given to [`Ledger::reserve`]: `session 1: variables`.
    pub name: Arc<str>,
    /// How much, over all reservations of that name.
    pub bytes: Bytes,
}

/// Bytes reserved in a ledger; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    holder: Arc<str>,
    bytes: Bytes,
}

impl Ledger {
    /// An empty ledger of `device` (its full name, for errors). Without a limit the machine's memory is granted, and counted.
    pub fn new(device: impl Into<Arc<str>>, limit: Option<Bytes>) -> Arc<Ledger> {
        let line = limit.or_else(physical_memory).unwrap_or(Bytes(u64::MAX));
        let state = Mutex::new(State { held: line, ..State::default() });
        Arc::new(Ledger { device: device.into(), limit, line, state, behind: None, faults: OnceLock::new(), room: Room::default() })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Bytes reserved now.
    pub fn in_use(&self) -> Bytes {
        self.state().in_use
    }

    /// The most bytes reserved at once since the ledger was made or the peak was reset.
    pub fn peak(&self) -> Bytes {
        self.state().peak
    }

    /// Bytes mapped by backings now, counted where the operating system is asked for them.
    pub fn mapped(&self) -> Bytes {
        self.state().mapped
    }

    /// The most bytes mapped at once since the ledger was made or the peak was reset.
    pub fn mapped_peak(&self) -> Bytes {
        self.state().mapped_peak
    }

    /// Forgets both peaks: they become the present use.
    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.peak = state.in_use;
        state.mapped_peak = state.mapped;
    }

    /// Each holder and its bytes, largest first; equal amounts by name.
    pub fn holders(&self) -> Vec<Holder> {
        largest(&self.state())
    }

    /// Reserves `bytes` in the name of `holder`.
    ///
    /// Takes no system call where an upstream holds enough already.
    ///
    /// # Errors
    /// A refusal, with the ledger as it was, if the limit would be exceeded or the upstream has not that much.
    pub fn reserve(self: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Reservation, Refusal> {
        let (mut state, total) = self.room(Bytes::ZERO, bytes, holder)?;
        state.in_use = total;
        state.peak = state.peak.max(total);
        let name = match state.holders.get_key_value(holder) {
            Some((name, _)) => name.clone(),
            None => Arc::from(holder),
        };
        *state.holders.entry(name.clone()).or_default() += bytes;
        Ok(Reservation { ledger: self.clone(), holder: name, bytes })
    }

    /// Keeps an entry for a holder of loans, so that changing them allocates nothing.
    pub(crate) fn register(&self, holder: &str) -> Arc<str> {
        let mut state = self.state();
        state.loans += 1;
        let name = match state.holders.get_key_value(holder) {
            Some((name, _)) => name.clone(),
            None => Arc::from(holder),
        };
        state.holders.entry(name.clone()).or_default();
        name
    }

    /// Lent memory counts as reserved and as mapped.
    pub(crate) fn change_loan(&self, holder: &Arc<str>, old: Bytes, new: Bytes) -> Result<(), Refusal> {
        let (mut state, total) = self.room(old, new, holder)?;
        state.in_use = total;
        state.peak = state.peak.max(total);
        state.mapped = state.mapped - old + new;
        state.mapped_peak = state.mapped_peak.max(state.mapped);
        let held = state.holders.entry(holder.clone()).or_default();
        *held = *held - old + new;
        drop(state);
        if new < old {
            self.ring();
        }
        Ok(())
    }

    pub(crate) fn end_loan(&self, holder: &Arc<str>, bytes: Bytes) {
        let mut state = self.state();
        state.in_use = state.in_use - bytes;
        state.mapped = state.mapped - bytes;
        state.loans -= 1;
        if let Some(held) = state.holders.get_mut(holder) {
            *held = *held - bytes;
        }
        // Entries of other loans may be empty for now: without any loan there is no reason to keep an empty one.
        if state.loans == 0 {
            state.holders.retain(|_, bytes| *bytes > Bytes::ZERO);
        }
        drop(state);
        self.ring();
    }

    /// A listener for bytes given back in this ledger. It does not hear of bytes that others give back behind the ledger: the
    /// upstream waits for those itself ([`Upstream::reserve`]).
    pub fn listen(&self) -> Listener<'_> {
        self.room.listen()
    }

    /// Wakes listeners: for a holder that gives out memory under its reservation, and has some again.
    pub fn ring(&self) {
        self.room.ring();
    }

    /// The state, and the bytes in use when `old` bytes have become `new`, if that is allowed.
    fn room(&self, old: Bytes, new: Bytes, holder: &str) -> Result<(MutexGuard<'_, State>, Bytes), Refusal> {
        if new > old && self.is_faulty() {
            let state = self.state();
            // As if the line were here.
            return Err(Refusal { limit: state.in_use, ..self.refusal(&state, new - old, holder) });
        }
        let (state, total) = self.within_line(old, new, holder)?;
        match &self.behind {
            Some(behind) if total > state.held && new > old => {
                drop(state);
                self.go_out(behind, old, new, holder)
            }
            _ => Ok((state, total)),
        }
    }

    fn within_line(&self, old: Bytes, new: Bytes, holder: &str) -> Result<(MutexGuard<'_, State>, Bytes), Refusal> {
        let state = self.state();
        let total = (state.in_use - old).0.checked_add(new.0).map(Bytes);
        match total.filter(|total| new <= old || *total <= self.line) {
            Some(total) => Ok((state, total)),
            None => Err(self.refusal(&state, new - old, holder)),
        }
    }

    fn refusal(&self, state: &State, asked: Bytes, holder: &str) -> Refusal {
        let mut holders = largest(state);
        let more_holders = holders.len().saturating_sub(NAMED_HOLDERS);
        holders.truncate(NAMED_HOLDERS);
        let (device, limit) = (self.device.clone(), self.line);
        Refusal { device, holder: holder.to_string(), asked, in_use: state.in_use, limit, holders, more_holders, upstream: None }
    }

    /// Counts bytes that an address space has backed with memory.
    pub fn count_mapped(&self, bytes: u64) {
        let mut state = self.state();
        state.mapped += Bytes(bytes);
        state.mapped_peak = state.mapped_peak.max(state.mapped);
        drop(state);
        self.show_use(|used| used + Bytes(bytes));
    }

    /// Counts bytes that an address space has given back.
    pub fn count_unmapped(&self, bytes: u64) {
        let mut state = self.state();
        state.mapped = state.mapped - Bytes(bytes);
        drop(state);
        self.show_use(|used| used - Bytes(bytes));
    }

    /// No code that holds the lock can panic half-way through a change, so a poisoned lock still guards a sound state.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn largest(state: &State) -> Vec<Holder> {
    let mut holders: Vec<Holder> = state
        .holders
        .iter()
        .filter(|(_, bytes)| **bytes > Bytes::ZERO)
        .map(|(name, &bytes)| Holder { name: name.clone(), bytes })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

impl Reservation {
    /// How much is reserved.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// In whose name.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The ledger.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Changes how much is reserved. Less is always granted.
    ///
    /// # Errors
    /// A refusal, with the reservation as it was, if the limit would be exceeded.
    pub fn resize(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let more = bytes - self.bytes;
        if more > Bytes::ZERO {
            let ledger = self.ledger.clone();
            let mut added = ledger.reserve(more, &self.holder)?;
            // Added bytes belong to this reservation from now on.
            self.bytes += std::mem::take(&mut added.bytes);
        } else {
            // A part of its own, which ends here.
            drop(Reservation { ledger: self.ledger.clone(), holder: self.holder.clone(), bytes: self.bytes - bytes });
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        state.in_use = state.in_use - self.bytes;
        if let Some(held) = state.holders.get_mut(&self.holder) {
            *held = *held - self.bytes;
            if *held == Bytes::ZERO && state.loans == 0 {
                state.holders.remove(&self.holder);
            }
        }
        drop(state);
        self.ledger.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_up_to_the_limit_and_takes_back() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(100)));
        let first = ledger.reserve(Bytes(60), "a").unwrap();
        let second = ledger.reserve(Bytes(40), "b").unwrap();
        assert!(ledger.reserve(Bytes(1), "c").is_err());
        assert_eq!((ledger.in_use(), ledger.peak()), (Bytes(100), Bytes(100)));
        drop(first);
        assert_eq!((ledger.in_use(), ledger.peak()), (Bytes(40), Bytes(100)));
        ledger.reset_peak();
        assert_eq!(ledger.peak(), Bytes(40));
        drop(second);
        assert_eq!((ledger.in_use(), ledger.holders()), (Bytes::ZERO, vec![]));
    }

    #[test]
    fn a_reservation_changes_its_size() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(100)));
        let mut a = ledger.reserve(Bytes(40), "a").unwrap();
        let _other = ledger.reserve(Bytes(20), "a").unwrap();
        a.resize(Bytes(80)).unwrap();
        assert_eq!((a.bytes(), ledger.in_use(), ledger.holders()[0].bytes), (Bytes(80), Bytes(100), Bytes(100)));
        assert_eq!(a.resize(Bytes(81)).unwrap_err().asked, Bytes(1));
        assert_eq!((a.bytes(), ledger.in_use()), (Bytes(80), Bytes(100)));
        a.resize(Bytes::ZERO).unwrap();
        assert_eq!((a.bytes(), ledger.in_use(), ledger.holders()[0].bytes), (Bytes::ZERO, Bytes(20), Bytes(20)));
        a.resize(Bytes(1)).unwrap();
        drop(a);
        assert_eq!(ledger.in_use(), Bytes(20));
    }

    #[test]
    fn adds_what_a_holder_has() {
        let ledger = Ledger::new("CPU:0", None);
        let _a = ledger.reserve(Bytes(1), "x").unwrap();
        let b = ledger.reserve(Bytes(2), "x").unwrap();
        let _c = ledger.reserve(Bytes(2), "y").unwrap();
        let names = |ledger: &Ledger| ledger.holders().iter().map(|h| (h.name.to_string(), h.bytes.0)).collect::<Vec<_>>();
        assert_eq!(names(&ledger), [("x".to_string(), 3), ("y".to_string(), 2)]);
        drop(b);
        assert_eq!(names(&ledger), [("y".to_string(), 2), ("x".to_string(), 1)]);
    }

    #[test]
    fn without_a_limit_the_machines_memory_is_the_line() {
        let ledger = Ledger::new("CPU:0", None);
        let all = physical_memory().unwrap_or(Bytes(u64::MAX));
        let held = ledger.reserve(all, "a").unwrap();
        let refusal = ledger.reserve(Bytes(1), "b").unwrap_err();
        assert_eq!((refusal.limit, refusal.in_use, ledger.limit()), (all, all, None));
        drop(held);
        assert!(ledger.reserve(Bytes(u64::MAX), "a").is_err() || all == Bytes(u64::MAX));
    }

    #[test]
    fn many_threads_never_cross_the_line() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(5)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let ledger = &ledger;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let held: Vec<_> =
                            (1..4).filter_map(|bytes| ledger.reserve(Bytes(bytes), &format!("thread {thread}")).ok()).collect();
                        assert!(ledger.in_use() <= Bytes(5));
                        drop(held);
                    }
                });
            }
        });
        assert!(ledger.peak() <= Bytes(5));
        assert_eq!(ledger.in_use(), Bytes::ZERO);
    }
}
