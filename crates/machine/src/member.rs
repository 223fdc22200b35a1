//! A holder of bytes of cards.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_base::{Bytes, Error, Result};

use super::decide::Verdict;
use super::file::{Inner, MAX_MEMBERS, NotBegun, Patience, offset};
use super::record::{GIVEN_UP_AT, HISTORY_AT, LAST_USE_AT, LEASE_AT, OnCard, Place, Record, SLOT, Use, encode_last_use, encode_use};
use super::shared::MOST_MEMBERS;
use super::transaction::{Scene, SeenMember, Transaction};
use super::{Denied, Full, Guarantee, History, Identity, LastUse, Machine, Obstacle, Slot, Wait, Why, byte_lock, slot, state_dir};

/// A place in the ledger of a machine. Its reserved bytes are its own until it gives them back, is dropped, or ends with the last
/// process that has inherited it.
///
/// Every member stands for itself: two of one process behave as two of different processes. A process that was forked without
/// starting another program has its parent's handle and so keeps the place alive, but cannot use it. A program that is started gets
/// a handle only where [`Member::inherit`] says so, and nothing can be changed with that one.
#[derive(Debug)]
pub struct Member {
    pub(super) inner: Arc<Inner>,
    /// Its open file description has the slot's byte. That makes it a member, where users share nothing.
    file: File,
    pub(super) slot: u32,
    /// The process that joined: only it may change the held bytes.
    pid: u32,
    /// The file that programs inherit, and its number, once one does; from the start where users share a ledger.
    lease: Mutex<Option<(File, u64)>>,
    detached: bool,
    state: Mutex<State>,
    pub(super) turn: Condvar,
    uses: Mutex<Uses>,
}

/// The part of a member that is shown without a transaction.
#[derive(Debug)]
struct Uses {
    cards: Vec<Use>,
    history: History,
    began: Instant,
    /// All that is held.
    held: u64,
}

#[derive(Debug)]
pub(super) struct State {
    /// The record in the slot, or the one that the next transaction will write if one failed to give bytes back.
    pub(super) record: Record,
    /// Whether a thread waits; another has to wait for that.
    pub(super) busy: bool,
}

/// The place of a member that does not wait: after all waiters.
const LAST: Place = Place { priority: i32::MIN, arrival: u64::MAX, near: true, some: 0 };

/// The judgement on a request.
pub(super) enum Judgement {
    /// Of each card so many bytes.
    Granted(Vec<u64>),
    Denied {
        full: Full,
        ahead: usize,
        must_give_up: bool,
    },
}

impl Member {
    pub(super) fn join(inner: &Arc<Inner>, identity: &Identity, transaction: Transaction<'_>) -> Result<Member> {
        let pid = std::process::id();
        let record = Record {
            pid,
            uid: state_dir::user(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            guarantee: identity.guarantee,
            name: identity.name.clone(),
            program: identity.program.clone(),
            cards: inner.hashes().iter().map(|&card| OnCard { card, ..OnCard::default() }).collect(),
            waiting: None,
        };
        let members = transaction.own_members()?;
        let slot = (0..).zip(&members).find(|(slot, seen)| *slot != seen.slot).map_or(members.len() as u32, |(slot, _)| slot);
        let most = if inner.shared.is_some() { MOST_MEMBERS } else { MAX_MEMBERS };
        if slot >= most {
            let message = format!("the ledger {} has {most} members, which is all it has room for", inner.path.display());
            return Err(Error::resource_exhausted(message).with_remedy("wait until some of them end"));
        }
        // The member that was inside of the slot and is gone.
        inner.remove_nested(slot);
        inner.keep_peaks(slot);
        let file = inner.open_again(true)?;
        let mut page = record.encode();
        page.resize(SLOT, 0);
        // Written before it is locked: a locked record is always whole. The page has its place on the disk from now on, so that
        // later changes cannot fail for want of room.
        file.write_all_at(&page, offset(slot)).map_err(|error| inner.broken(&error))?;
        let mut lease = None;
        if inner.shared.is_some() {
            lease = Some(inner.make_lease(slot)?);
        } else {
            if !byte_lock::take(&file, slot).map_err(|error| inner.broken(&error))? {
                return Err(Error::internal(format!("slot {slot} of {} is free and locked", inner.path.display())));
            }
            byte_lock::mark(&file, inner.mark).map_err(|error| inner.broken(&error))?;
            inner.remove_lease(slot);
        }
        match !inner.nested && members.last().is_none_or(|last| last.slot < slot) {
            true => inner.end_with(slot)?,
            false => inner.extend_to(slot)?,
        }
        // A process that makes a new ledger in the place of this one sees the mark, or this sees that the file has gone.
        inner.check_place()?;
        drop(transaction);
        let cards = vec![Use::default(); inner.cards.len()];
        let uses = Uses { cards, history: History::default(), began: Instant::now(), held: 0 };
        let state = State { record, busy: false };
        Ok(Member {
            inner: inner.clone(),
            file,
            slot,
            pid,
            lease: Mutex::new(lease),
            detached: false,
            state: Mutex::new(state),
            turn: Condvar::new(),
            uses: Mutex::new(uses),
        })
    }

    /// The ledger it is a member of.
    pub fn machine(&self) -> Machine {
        Machine(self.inner.clone())
    }

    /// Bytes held of a card; none where there is no such card.
    pub fn reserved(&self, card: usize) -> Bytes {
        self.state().record.cards.get(card).map_or(Bytes::ZERO, |on| Bytes(on.reserved))
    }

    /// Reserves bytes of one or several cards (by number) on top of the held ones: all of them or none. A request that does not
    /// wait comes after all waiters.
    ///
    /// # Errors
    /// [`Denied::Full`] where a card has no room, or its room is reserved for earlier requests. Nothing has changed then.
    pub fn reserve(&self, request: &[(usize, Bytes)]) -> Result<(), Denied> {
        self.reserve_now(&self.dense(request)?, 0).map(drop)
    }

    /// The bytes that were taken of each card; `some` as in [`Place`].
    pub(super) fn reserve_now(&self, asked: &[u64], some: u8) -> Result<Vec<u64>, Denied> {
        let done = self.reserve_within(asked, some, self.inner.patience.into()).map_err(Error::from)?;
        done.map_err(|full| self.named(full))
    }

    /// As [`Member::reserve_now`], with another bound on waiting for the transaction of another process.
    pub(super) fn reserve_within(&self, asked: &[u64], some: u8, patience: Patience) -> Result<Result<Vec<u64>, Full>, NotBegun> {
        let mut state = self.state();
        let transaction = self.begin_within(patience)?;
        match self.judge(&transaction.members()?, &state.record, asked, Place { some, ..LAST })? {
            Judgement::Granted(taken) => {
                self.grant(&mut state.record, &taken)?;
                Ok(Ok(taken))
            }
            Judgement::Denied { full, .. } => Ok(Err(full)),
        }
    }

    /// A refusal that names the processes that live.
    pub(super) fn named(&self, mut full: Full) -> Denied {
        slot::name_heirs(&self.inner, &mut full);
        full.into()
    }

    /// As [`Member::reserve`], on so many of the cards of the request, whichever have room, the emptiest first. Their numbers, in
    /// the order of the request. With a `wait`, waits for its turn as [`Member::reserve_waiting`] does.
    ///
    /// # Errors
    /// As those.
    pub fn reserve_some(
        &self,
        request: &[(usize, Bytes)],
        count: u8,
        wait: Option<&Wait>,
        told: &mut dyn FnMut(Obstacle<'_>) -> bool,
    ) -> Result<Vec<usize>, Denied> {
        let taken = match wait {
            Some(wait) => self.wait_for(request, count, wait, told)?,
            None => self.reserve_now(&self.dense(request)?, count)?,
        };
        Ok(request.iter().map(|&(card, _)| card).filter(|&card| taken[card] > 0).collect())
    }

    /// Gives bytes of cards back; more than is held is all of it.
    ///
    /// # Errors
    /// Where the ledger cannot be used: others see the bytes as held then, until this member's next change of any kind.
    pub fn release(&self, request: &[(usize, Bytes)]) -> Result<()> {
        let given = self.dense(request)?;
        let mut state = self.state();
        self.check_process()?;
        for (on, given) in state.record.cards.iter_mut().zip(&given) {
            on.reserved = on.reserved.saturating_sub(*given);
        }
        let transaction = self.begin()?;
        let others_wait = transaction.members()?.iter().any(|seen| !self.is(seen) && seen.record.waiting.is_some());
        self.write(&state.record)?;
        drop(transaction);
        if others_wait {
            self.inner.ring();
        }
        Ok(())
    }

    /// Its use over time, as others are shown it.
    pub fn history(&self) -> History {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).history.clone()
    }

    /// Says how much of a card is used now. Others are shown it, and the peak of it; nothing is decided by it.
    pub fn set_used(&self, card: usize, used: Bytes) {
        self.change_used(card, |_| used);
    }

    /// As [`Member::set_used`], with the last figures.
    pub(crate) fn change_used(&self, card: usize, change: impl FnOnce(Bytes) -> Bytes) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(on) = uses.cards.get_mut(card) else { return };
        on.used = change(Bytes(on.used)).0;
        on.peak = on.peak.max(on.used);
        let (used, held, after) = (uses.cards.iter().map(|on| on.used).sum(), uses.held, uses.began.elapsed());
        uses.history.note(after, used, held);
        self.show(&uses);
    }

    /// Forgets the peaks: they become the present use.
    pub fn reset_peak(&self) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        for on in uses.cards.iter_mut() {
            on.peak = on.used;
        }
        self.show(&uses);
    }

    /// Says when the cards were last used. It is shown to others until said anew; nothing is decided by it.
    pub fn set_last_use(&self, last: LastUse) {
        if self.pid == std::process::id() {
            // It is only shown: that it cannot be is no reason to stop.
            let _ = self.inner.put(&self.file, &encode_last_use(last), offset(self.slot) + LAST_USE_AT as u64);
        }
    }

    /// Sets the guarantee for others anew.
    ///
    /// # Errors
    /// Where the ledger cannot be used: others see the former record, until this member's next change of any kind.
    pub fn set_guarantee(&self, guarantee: Guarantee) -> Result<()> {
        let mut state = self.state();
        state.record.guarantee = guarantee;
        let _transaction = self.begin()?;
        self.write(&state.record)
    }

    fn show(&self, uses: &Uses) {
        if self.pid == std::process::id() {
            let bytes = [&uses.history.encode()[..], &encode_use(&uses.cards)].concat();
            // It is only shown: that it cannot be is no reason to stop.
            let _ = self.inner.put(&self.file, &bytes, offset(self.slot) + HISTORY_AT as u64);
        }
    }

    /// Lets the program that `command` starts, and all that it starts, share this place. It lasts until the last of them has ended,
    /// unless this member is dropped before. See [`Member::detach`]. A program that closes handles that it does not know gives up
    /// its part in the place. It inherits no handle of the ledger: its handle proves the place and changes nothing.
    ///
    /// # Errors
    /// Where the process has no handle left, and where the file of the lease cannot be made.
    pub fn inherit(&self, command: &mut Command) -> Result<()> {
        self.check_process()?;
        let handle = {
            let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
            let (file, _) = match &mut *lease {
                Some(made) => made,
                none => none.insert(self.make_lease()?),
            };
            out_of_the_way(file).map_err(|error| self.inner.broken(&error))?
        };
        let pass_on = move || {
            // SAFETY: changes a flag of a descriptor that the closure owns; fcntl may be called between fork and exec.
            match unsafe { libc::fcntl(handle.as_raw_fd(), libc::F_SETFD, 0) } {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure makes one system call that is safe after a fork, and allocates nothing.
        unsafe { command.pre_exec(pass_on) };
        Ok(())
    }

    /// The descriptor whose open file description is the place.
    pub(super) fn handle(&self) -> RawFd {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match &*lease {
            Some((fifo, _)) if self.inner.shared.is_some() => fifo.as_raw_fd(),
            _ => self.file.as_raw_fd(),
        }
    }

    fn make_lease(&self) -> Result<(File, u64)> {
        let (file, number) = self.inner.make_lease(self.slot)?;
        self.say(LEASE_AT, number).map_err(|error| self.inner.broken(&error))?;
        Ok((file, number))
    }

    /// Writes a word of the slot, outside of transactions.
    fn say(&self, at: usize, word: u64) -> std::io::Result<()> {
        self.inner.put(&self.file, &word.to_le_bytes(), offset(self.slot) + at as u64)
    }

    /// That others see this member: its ledger is where it was.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where it was removed or replaced: others do not see the bytes of this member then.
    pub fn check_place(&self) -> Result<()> {
        self.inner.check_place()
    }

    /// Its slot, which outlives it where others have inherited the place.
    pub fn slot(&self) -> Slot {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        Slot::new(self.inner.clone(), self.slot, lease.as_ref().map_or(0, |(_, number)| *number))
    }

    /// Leaves the place to the processes that inherited it: bytes stay taken until the last of them has ended. Commands that were
    /// given the place must have been dropped.
    pub fn detach(mut self) {
        self.detached = true;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> Result<Transaction<'_>> {
        self.check_process()?;
        self.inner.transaction()
    }

    /// As [`Member::begin`], with another bound.
    pub(super) fn begin_within(&self, patience: Patience) -> Result<Transaction<'_>, NotBegun> {
        self.check_process()?;
        self.inner.transaction_within(patience)
    }

    fn check_process(&self) -> Result<()> {
        match std::process::id() {
            own if own == self.pid => Ok(()),
            own => Err(Error::failed_precondition(format!(
                "process {} holds memory of a device, and its fork {own} tried to change that: open the device anew in a fork",
                self.pid
            ))),
        }
    }

    /// Whether it is this member.
    pub(super) fn is(&self, seen: &SeenMember) -> bool {
        (seen.user, seen.slot) == (self.inner.user, self.slot)
    }

    /// A number for each card.
    pub(super) fn dense(&self, request: &[(usize, Bytes)]) -> Result<Vec<u64>> {
        let mut asked = vec![0u64; self.inner.cards.len()];
        for &(card, bytes) in request {
            self.inner.check(card)?;
            asked[card] = asked[card].saturating_add(bytes.0);
        }
        Ok(asked)
    }

    /// In a transaction: the judgement on a request of this member at that place of the queue.
    pub(super) fn judge(&self, members: &[SeenMember], own: &Record, asked: &[u64], place: Place) -> Result<Judgement> {
        let mut members = members.to_vec();
        let Some(index) = members.iter().position(|seen| self.is(seen)) else {
            return Err(Error::data_loss(format!("this program has lost its place in the ledger {}", self.inner.path.display())));
        };
        let record = &mut members[index].record;
        record.clone_from(own);
        record.waiting = Some(place);
        for (on, asked) in record.cards.iter_mut().zip(asked) {
            on.asked = *asked;
        }
        let scene = Scene::of(&self.inner, &members);
        let ahead = scene.order.iter().position(|&other| other == index).unwrap_or(0);
        let full = |card: usize, why: Why| Full::new(&self.inner, &members, index, card, asked[card], &scene.order[..ahead], why);
        let too_much = |card: &usize| own.cards[*card].reserved.saturating_add(asked[*card]) > self.inner.cards[*card].capacity.0;
        let cards = || (0..asked.len()).filter(|&card| asked[card] > 0);
        let wanted = if place.some > 0 { place.some.into() } else { cards().count() };
        if cards().filter(|card| !too_much(card)).count() < wanted {
            return Ok(Judgement::Denied { full: full(cards().find(too_much).unwrap_or(0), Why::Never), ahead, must_give_up: true });
        }
        let full = match &scene.decide()[ahead] {
            (Verdict::Granted, granted) => {
                return Ok(Judgement::Granted(
                    (0..asked.len()).map(|card| if granted.contains(&card) { asked[card] } else { 0 }).collect(),
                ));
            }
            (Verdict::Short { card }, _) => full(*card, Why::Taken),
            (Verdict::Behind { card, .. }, _) => full(*card, Why::Spoken),
        };
        Ok(Judgement::Denied { full, ahead, must_give_up: scene.must_give_up() == Some(ahead) })
    }

    /// In a transaction: takes the granted bytes, and no longer waits.
    pub(super) fn grant(&self, record: &mut Record, asked: &[u64]) -> Result<()> {
        let mut granted = record.clone();
        granted.waiting = None;
        for (on, asked) in granted.cards.iter_mut().zip(asked) {
            *on = OnCard { reserved: on.reserved.saturating_add(*asked), asked: 0, ..*on };
        }
        self.write(&granted)?;
        *record = granted;
        Ok(())
    }

    /// In a transaction: makes the slot say so.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        let held = record.cards.iter().map(|on| on.reserved).fold(0, u64::saturating_add);
        self.uses.lock().unwrap_or_else(PoisonError::into_inner).held = held;
        self.inner.put(&self.file, &record.encode(), offset(self.slot)).map_err(|error| self.inner.broken(&error))
    }

    /// Says without a transaction that a place in the queue is given up.
    pub(super) fn give_up(&self, place: Place) {
        // Where this fails, the place in the queue stays until the member's next change.
        let _ = self.say(GIVEN_UP_AT, place.arrival.wrapping_add(1));
    }

    /// In a transaction, before a new place in the queue is taken: arrivals are counted anew when there is no waiter.
    pub(super) fn give_nothing_up(&self) -> Result<()> {
        self.say(GIVEN_UP_AT, 0).map_err(|error| self.inner.broken(&error))
    }
}

/// The same open file description under a number that shells do not use for files of their own: a script that opens its third
/// file must not close it.
fn out_of_the_way(file: &File) -> std::io::Result<File> {
    for least in [500, 100] {
        // SAFETY: makes a new descriptor of an open one and touches nothing else.
        let raw = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
        if raw >= 0 {
            // SAFETY: the descriptor was made just now and has no other owner.
            return Ok(unsafe { File::from_raw_fd(raw) });
        }
    }
    file.try_clone()
}

impl Drop for Member {
    fn drop(&mut self) {
        // A fork has the same open file description: the place is its parent's.
        if self.detached || self.pid != std::process::id() {
            return;
        }
        // The slot is free at once, whichever process still has the handle; closing it tells the waiters. All changes by the slot's
        // number come before that: from then on another member may have the slot, with a file of its own under the same name.
        let lease = self.lease.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((lease, _)) = &lease {
            let _ = self.say(LEASE_AT, 0);
            self.inner.remove_nested(self.slot);
            self.inner.remove_lease(self.slot);
            let _ = byte_lock::give_back(lease);
        }
        let _ = byte_lock::give_back(&self.file);
        if lease.is_some() {
            self.inner.ring();
        }
    }
}
