//! Access of runs to variables: any number of readers, or one writer. All variables of a run are granted at once, first come, first
//! served; runs with no variable in common go side by side.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_base::Result;

use crate::cancellation::{self, Cancellation};

/// A variable, by its number in the session, and whether it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub variable: u32,
    pub writes: bool,
}

/// The access that a run asks for.
#[derive(Clone, Debug)]
pub(crate) enum AccessRequest {
    /// These variables, each once, in the order of their numbers.
    Some(Arc<[Access]>),
    /// Everything, alone.
    All,
}

impl AccessRequest {
    /// One variable.
    pub fn one(variable: u32, writes: bool) -> AccessRequest {
        AccessRequest::Some(Arc::new([Access { variable, writes }]))
    }

    fn conflicts(&self, other: &AccessRequest) -> bool {
        let (AccessRequest::Some(mine), AccessRequest::Some(theirs)) = (self, other) else { return true };
        let (mut a, mut b) = (0, 0);
        while let (Some(mine), Some(theirs)) = (mine.get(a), theirs.get(b)) {
            if mine.variable == theirs.variable && (mine.writes || theirs.writes) {
                return true;
            }
            a += usize::from(mine.variable <= theirs.variable);
            b += usize::from(theirs.variable <= mine.variable);
        }
        false
    }
}

/// The table of a session.
#[derive(Debug)]
pub(crate) struct Accesses {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug)]
struct Table {
    /// For each variable how many read it, or [`WRITTEN`]. As long as the greatest number that was ever asked for.
    held: Vec<u32>,
    /// How many grants are held.
    holders: u32,
    /// Whether one grant is of everything.
    alone: bool,
    /// The waiting requests, in the order in which they came.
    waiting: VecDeque<(u64, AccessRequest)>,
    tickets: u64,
}

/// The mark of a variable that a run writes.
const WRITTEN: u32 = u32::MAX;

/// Granted access; given back when dropped.
#[derive(Debug)]
pub(crate) struct Granted<'a> {
    accesses: &'a Accesses,
    request: &'a AccessRequest,
}

/// So many may wait before the list of them grows.
const WAITING: usize = 64;

impl Default for Accesses {
    fn default() -> Accesses {
        let table = Table { held: Vec::new(), holders: 0, alone: false, waiting: VecDeque::with_capacity(WAITING), tickets: 0 };
        Accesses { table: Mutex::new(table), changed: Condvar::new() }
    }
}

impl Accesses {
    /// Waits until no granted access conflicts with the request, and no earlier request that conflicts is waiting. Allocates
    /// nothing, but for a variable or for many waiting threads, where there are more than ever before.
    pub fn take<'a>(&'a self, request: &'a AccessRequest) -> Granted<'a> {
        match self.take_until(request, None) {
            Ok(granted) => granted,
            Err(_) => unreachable!("nothing ends this wait"),
        }
    }

    /// As [`Accesses::take`], as long as nothing cancels it.
    ///
    /// # Errors
    /// As [`Cancellation::error`]: nothing was granted.
    pub fn take_until<'a>(&'a self, request: &'a AccessRequest, cancellation: Option<&Cancellation>) -> Result<Granted<'a>> {
        let mut table = self.table();
        if !table.waiting.is_empty() || !table.is_free(request) {
            let ticket = table.tickets;
            table.tickets += 1;
            table.waiting.push_back((ticket, request.clone()));
            let mut ended = None;
            while !table.is_turn_of(ticket) && ended.is_none() {
                table = cancellation::wait(&self.changed, table, cancellation);
                ended = cancellation.and_then(Cancellation::error);
            }
            // A request that this one held up while it waited is held up by it now, or by nothing.
            table.waiting.retain(|(other, _)| *other != ticket);
            if let Some(error) = ended {
                self.changed.notify_all();
                return Err(error);
            }
        }
        table.hold(request);
        Ok(Granted { accesses: self, request })
    }

    /// Whether a request would be granted at once.
    #[cfg(test)]
    fn is_free(&self, request: &AccessRequest) -> bool {
        let table = self.table();
        table.waiting.is_empty() && table.is_free(request)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        let mut table = self.accesses.table();
        table.release(self.request);
        if !table.waiting.is_empty() {
            self.accesses.changed.notify_all();
        }
    }
}

impl Table {
    fn is_free(&self, request: &AccessRequest) -> bool {
        match request {
            AccessRequest::All => self.holders == 0,
            AccessRequest::Some(wanted) => {
                let is_free = |access: &Access| match self.held.get(access.variable as usize) {
                    None | Some(0) => true,
                    Some(&WRITTEN) => false,
                    Some(_) => !access.writes,
                };
                !self.alone && wanted.iter().all(is_free)
            }
        }
    }

    /// Whether nothing holds up the request with that ticket: neither granted access nor an earlier request.
    fn is_turn_of(&self, ticket: u64) -> bool {
        let mut earlier = self.waiting.iter().take_while(|(other, _)| *other < ticket);
        let Some((_, request)) = self.waiting.iter().find(|(other, _)| *other == ticket) else { return true };
        self.is_free(request) && !earlier.any(|(_, other)| other.conflicts(request))
    }

    fn hold(&mut self, request: &AccessRequest) {
        self.holders += 1;
        match request {
            AccessRequest::All => self.alone = true,
            AccessRequest::Some(wanted) => {
                if let Some(last) = wanted.last()
                    && last.variable as usize >= self.held.len()
                {
                    self.held.resize(last.variable as usize + 1, 0);
                }
                for access in wanted.iter() {
                    let held = &mut self.held[access.variable as usize];
                    *held = if access.writes { WRITTEN } else { *held + 1 };
                }
            }
        }
    }

    fn release(&mut self, request: &AccessRequest) {
        self.holders -= 1;
        match request {
            AccessRequest::All => self.alone = false,
            AccessRequest::Some(wanted) => {
                for access in wanted.iter() {
                    let held = &mut self.held[access.variable as usize];
                    *held = if access.writes { 0 } else { *held - 1 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    fn request(accesses: &[(u32, bool)]) -> AccessRequest {
        AccessRequest::Some(accesses.iter().map(|(variable, writes)| Access { variable: *variable, writes: *writes }).collect())
    }

    #[test]
    fn requests_conflict_where_one_writes_a_variable_of_the_other() {
        let some = [(0, false), (2, true), (5, false)];
        for (other, conflicts) in [
            (vec![], false),
            (vec![(0, false), (1, true), (5, false)], false),
            (vec![(1, true), (2, false)], true),
            (vec![(5, true)], true),
            (vec![(3, true), (4, true), (6, true)], false),
        ] {
            assert_eq!(request(&some).conflicts(&request(&other)), conflicts, "{other:?}");
            assert_eq!(request(&other).conflicts(&request(&some)), conflicts, "{other:?}");
            assert!(AccessRequest::All.conflicts(&request(&other)));
        }
    }

    #[test]
    fn readers_share_writers_do_not_and_disjoint_writers_do_not_meet() {
        let accesses = Accesses::default();
        let (reads, writes, other) = (request(&[(1, false)]), request(&[(1, true)]), request(&[(0, true), (7, true)]));
        let (a, b) = (accesses.take(&reads), accesses.take(&reads));
        let c = accesses.take(&other);
        assert!(
            accesses.is_free(&reads) && !accesses.is_free(&writes) && !accesses.is_free(&other) && !accesses.is_free(&AccessRequest::All)
        );
        drop((a, b));
        assert!(accesses.is_free(&writes) && !accesses.is_free(&AccessRequest::All));
        drop(c);
        let all = accesses.take(&AccessRequest::All);
        assert!(!accesses.is_free(&request(&[])));
        drop(all);
        let nothing = request(&[]);
        let _running = accesses.take(&nothing);
        assert!(!accesses.is_free(&AccessRequest::All));
    }

    #[test]
    fn a_writer_that_waits_is_not_overtaken_by_readers_that_come_later() {
        let accesses = Accesses::default();
        let (reads, writes, elsewhere) = (request(&[(0, false)]), request(&[(0, true)]), request(&[(1, true)]));
        let (sender, order) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = accesses.take(&reads);
            let waits_for = |count: usize| {
                while accesses.table().waiting.len() < count {
                    std::thread::yield_now();
                }
            };
            let spawn = |name: &'static str, request| {
                let (sender, accesses) = (sender.clone(), &accesses);
                scope.spawn(move || {
                    let _granted = accesses.take(request);
                    sender.send(name).unwrap();
                });
            };
            spawn("writer", &writes);
            waits_for(1);
            spawn("reader", &reads);
            waits_for(2);
            // A request without conflicts goes at once.
            spawn("elsewhere", &elsewhere);
            assert_eq!(order.recv().unwrap(), "elsewhere");
            drop(first);
            assert_eq!([order.recv().unwrap(), order.recv().unwrap()], ["writer", "reader"]);
        });
    }

    #[test]
    fn many_threads_never_meet_where_they_should_not() {
        let accesses = Accesses::default();
        // Readers of each variable, or minus one for a writer.
        let state: [AtomicI64; 4] = Default::default();
        let turns = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (accesses, state, turns) = (&accesses, &state, &turns);
                scope.spawn(move || {
                    let mut random = thread + 1;
                    for _ in 0..300 {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let chosen = (random >> 24) & 15;
                        let wanted: Vec<(u32, bool)> =
                            (0..4).filter(|bit| chosen >> bit & 1 == 1).map(|bit| (bit, random >> (16 + bit) & 1 == 1)).collect();
                        let request = if random >> 28 == 0 { AccessRequest::All } else { request(&wanted) };
                        let _granted = accesses.take(&request);
                        for (variable, writes) in &wanted {
                            let before = if *writes {
                                state[*variable as usize].compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst).unwrap_or(i64::MIN)
                            } else {
                                state[*variable as usize].fetch_add(1, Ordering::SeqCst)
                            };
                            assert!(before >= 0, "variable {variable} is held by others");
                        }
                        std::thread::yield_now();
                        for (variable, writes) in &wanted {
                            state[*variable as usize].fetch_add(if *writes { 1 } else { -1 }, Ordering::SeqCst);
                        }
                        turns.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 1200);
        assert!(accesses.is_free(&AccessRequest::All));
    }
}
