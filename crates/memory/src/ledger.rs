//! The line of one device: a limit, what is reserved under it, and by whom.
//!
//! Everything a caller sees is in terms of bytes and holders' names, so that a ledger shared between processes can stand
//! behind the same type.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, Error};

use crate::physical_memory;

/// How many holders an error names.
const NAMED_HOLDERS: usize = 5;

/// What may be reserved on a device and what is. Thread-safe; shared by [`Arc`].
#[derive(Debug)]
pub struct Ledger {
    device: Arc<str>,
    limit: Option<Bytes>,
    /// What may be reserved at most: the limit, else the memory of the machine.
    line: Bytes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
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
    /// Who, as given to [`Ledger::reserve`]: `session 1: variables`.
    pub name: Arc<str>,
    /// How much, over all reservations of that name.
    pub bytes: Bytes,
}

/// A reservation that was not granted, with everything that an error needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The device.
    pub device: Arc<str>,
    /// Who asked.
    pub holder: String,
    /// Bytes asked.
    pub asked: Bytes,
    /// Bytes reserved at that time.
    pub in_use: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// The largest holders, largest first.
    pub holders: Vec<Holder>,
    /// How many holders are not in the list.
    pub more_holders: usize,
}

/// Bytes reserved in a ledger; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    holder: Arc<str>,
    bytes: Bytes,
}

impl Ledger {
    /// An empty ledger of `device` (its full name, for errors). Without a limit what the machine has is granted, and counted.
    pub fn new(device: impl Into<Arc<str>>, limit: Option<Bytes>) -> Arc<Ledger> {
        let line = limit.or_else(physical_memory).unwrap_or(Bytes(u64::MAX));
        Arc::new(Ledger { device: device.into(), limit, line, state: Mutex::default() })
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

    /// Forgets both peaks: they become what is in use now.
    pub fn reset_peak(&self) {
        let mut state = self.state();
        state.peak = state.in_use;
        state.mapped_peak = state.mapped;
    }

    /// Who holds how much, largest first; equal amounts by name.
    pub fn holders(&self) -> Vec<Holder> {
        largest(&self.state())
    }

    /// Reserves `bytes` in the name of `holder`.
    ///
    /// # Errors
    /// A refusal, with the ledger as it was, if the limit would be exceeded.
    pub fn reserve(self: &Arc<Ledger>, bytes: Bytes, holder: &str) -> Result<Reservation, Refusal> {
        let mut state = self.state();
        let total = state.in_use.0.checked_add(bytes.0).map(Bytes);
        let limit = self.line;
        let Some(total) = total.filter(|total| *total <= limit) else {
            return Err(self.refusal(&state, bytes, holder));
        };
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
        let mut state = self.state();
        let total = (state.in_use - old).0.checked_add(new.0).map(Bytes);
        let limit = self.line;
        let Some(total) = total.filter(|total| new <= old || *total <= limit) else {
            return Err(self.refusal(&state, new - old, holder));
        };
        state.in_use = total;
        state.peak = state.peak.max(total);
        state.mapped = state.mapped - old + new;
        state.mapped_peak = state.mapped_peak.max(state.mapped);
        let held = state.holders.entry(holder.clone()).or_default();
        *held = *held - old + new;
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
    }

    fn refusal(&self, state: &State, asked: Bytes, holder: &str) -> Refusal {
        let mut holders = largest(state);
        let more_holders = holders.len().saturating_sub(NAMED_HOLDERS);
        holders.truncate(NAMED_HOLDERS);
        let (device, limit) = (self.device.clone(), self.line);
        Refusal { device, holder: holder.to_string(), asked, in_use: state.in_use, limit, holders, more_holders }
    }

    pub(crate) fn count_mapped(&self, bytes: u64) {
        let mut state = self.state();
        state.mapped += Bytes(bytes);
        state.mapped_peak = state.mapped_peak.max(state.mapped);
    }

    pub(crate) fn count_unmapped(&self, bytes: u64) {
        let mut state = self.state();
        state.mapped = state.mapped - Bytes(bytes);
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
            // What was added belongs to this reservation from now on.
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
    }
}

/// A size in its own unit and, unless that says it exactly, in bytes.
fn exact(bytes: Bytes) -> String {
    match bytes.0 {
        0..1024 => bytes.to_string(),
        _ => format!("{bytes} ({} bytes)", bytes.0),
    }
}

impl From<Refusal> for Error {
    /// RESOURCE_EXHAUSTED with the device, what was asked, used and allowed, by whom, and what would help.
    fn from(refusal: Refusal) -> Error {
        let Refusal { device, holder, asked, in_use, limit, holders, more_holders } = refusal;
        let mut message = format!("{holder} asks for {}; {} of a limit of {} are reserved", exact(asked), exact(in_use), exact(limit));
        for (index, holder) in holders.iter().enumerate() {
            message += &format!("{}{}: {}", if index == 0 { " (" } else { ", " }, holder.name, exact(holder.bytes));
        }
        if more_holders > 0 {
            message += &format!(", and {more_holders} more");
        }
        if !holders.is_empty() {
            message += ")";
        }
        let short = Bytes(in_use.0.saturating_add(asked.0)) - limit;
        let mut remedy =
            format!("{} are missing: raise the memory limit to at least {} bytes", exact(short), in_use.0.saturating_add(asked.0));
        if !holders.is_empty() {
            remedy += ", or close one of the holders";
        }
        Error::resource_exhausted(message).on_device(&*device).with_remedy(remedy)
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
    fn a_refusal_says_everything() {
        let ledger = Ledger::new("/device:CPU:0", Some(Bytes(64 << 20)));
        let _a = ledger.reserve(Bytes(40 << 20), "session 1: variables").unwrap();
        let _rest: Vec<_> = (0..6).map(|i| ledger.reserve(Bytes(100 + i), &format!("session 1: feed {i}")).unwrap()).collect();
        let error = Error::from(ledger.reserve(Bytes(32 << 20), "session 2: arena").unwrap_err());
        assert_eq!(
            error.to_string(),
            "RESOURCE_EXHAUSTED: session 2: arena asks for 32 MiB (33554432 bytes); 40.00 MiB (41943655 bytes) of a limit of 64 MiB (67108864 \
             bytes) are reserved (session 1: variables: 40 MiB (41943040 bytes), session 1: feed 5: 105 B, session 1: feed 4: 104 B, \
             session 1: feed 3: 103 B, session 1: feed 2: 102 B, and 2 more) on /device:CPU:0\n  hint: 8.00 MiB (8389223 bytes) are missing: \
             raise the memory limit to at least 75498087 bytes, or close one of the holders"
        );
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
