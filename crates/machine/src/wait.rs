//! Waiting for bytes.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Result};

use super::bell::Bells;
use super::file::{Inner, NotBegun, Patience};
use super::member::Judgement;
use super::record::Place;
use super::transaction::{Scene, SeenMember, Transaction};
use super::watch::Watch;
use super::{Bytes, Denied, Full, Member, Obstacle, Why, slot};

/// How many at the front are told by the kernel when a member goes. Few: users may have 128 watches, and not all must wake for
/// each death.
const NEAR: usize = 16;

/// How often those look on their own, for changes without a signal: a fork that kept a handle open, use by other programs.
const LOOK: Duration = Duration::from_millis(100);

/// How often they look where the system has no watch to give.
const UNTOLD: Duration = Duration::from_millis(10);

/// How often those behind look, in case that all at the front died at once.
const FAR: Duration = Duration::from_secs(1);

/// When to look again after being told: the kernel tells of a death just before it gives the locks back.
const AFTERWARDS: [Duration; 3] = [Duration::from_micros(300), Duration::from_millis(2), Duration::from_millis(10)];

/// How long a waiter rests between two looks where other users can wake it.
const BREATH: Duration = Duration::from_millis(2);

/// How often a waiter is told of a process that is stuck in a transaction.
const STUCK: Duration = Duration::from_secs(1);

/// How often the owners of a slot are looked up whose member has ended.
const HEIRS: Duration = Duration::from_secs(1);

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Higher comes first; of equals, the earlier.
    pub priority: i32,
    /// How long at most; without it, as long as it takes.
    pub timeout: Option<Duration>,
}

impl Member {
    /// As [`Member::reserve`], but waits for its turn, in order of priority and then of arrival. Those behind may pass only where
    /// they cannot delay those before them (`decide.rs` has the rule). `told` is called with the obstacle when waiting begins and
    /// each time it goes on. It ends the wait by returning `false`. A process that is stuck in a change of the ledger is one more
    /// thing that is waited for.
    ///
    /// # Errors
    /// [`Denied::Full`] after the timeout, where `told` ends it, and where the card could never give that much. The same where all
    /// holders of the bytes wait too, this member last. DEADLINE_EXCEEDED or CANCELLED where the ledger is locked at that time.
    /// Nothing has changed then, and nothing is left in the queue.
    pub fn reserve_waiting(
        &self,
        request: &[(usize, Bytes)],
        wait: &Wait,
        told: &mut dyn FnMut(Obstacle<'_>) -> bool,
    ) -> Result<(), Denied> {
        self.wait_for(request, 0, wait, told).map(drop)
    }

    /// As [`Member::reserve_waiting`], on `some` of the cards, 0 being all. The bytes that were taken of each card.
    pub(super) fn wait_for(
        &self,
        request: &[(usize, Bytes)],
        some: u8,
        wait: &Wait,
        told: &mut dyn FnMut(Obstacle<'_>) -> bool,
    ) -> Result<Vec<u64>, Denied> {
        if let Some(shared) = &self.inner.shared {
            shared.check_priority(wait.priority)?;
        }
        let clock = Clock { begin: Instant::now(), timeout: wait.timeout };
        let asked = self.dense(request)?;
        match self.take_turn(&clock) {
            Some(mut turn) => self.wait_in_turn(&mut turn, &asked, some, wait, &clock, told),
            None => until_it_begins(&self.inner, &clock, told, &mut |patience| self.reserve_within(&asked, some, patience))?
                .map_err(|full| self.named(Full { why: Why::TimedOut(wait.timeout.unwrap_or_default()), ..full })),
        }
    }

    /// A member has one place in the queue: its threads take turns. None where time is over before.
    fn take_turn(&self, clock: &Clock) -> Option<Turn<'_>> {
        let mut state = self.state();
        while state.busy {
            let left = clock.left();
            if left.is_zero() {
                return None;
            }
            state = self.turn.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.busy = true;
        Some(Turn { member: self, is_stuck: false })
    }

    fn wait_in_turn(
        &self,
        turn: &mut Turn<'_>,
        asked: &[u64],
        some: u8,
        wait: &Wait,
        clock: &Clock,
        told: &mut dyn FnMut(Obstacle<'_>) -> bool,
    ) -> Result<Vec<u64>, Denied> {
        let bells = Bells::of(&self.inner.file).map_err(|error| self.inner.broken(&error))?;
        let (mut near, mut watch, mut heirs) = (false, None, Heirs::default());
        let mut look_again = AFTERWARDS.iter();
        loop {
            let heard = bells.listen(self.slot).map_err(|error| self.inner.broken(&error))?;
            turn.is_stuck = true;
            let attempt = until_it_begins(&self.inner, clock, told, &mut |patience| {
                self.attempt(asked, Place { priority: wait.priority, arrival: 0, near, some }, &bells, patience)
            })?;
            turn.is_stuck = false;
            let (mut full, ahead) = match attempt {
                Attempt::Granted(taken) => return Ok(taken),
                Attempt::Denied { mut full, ahead, must_give_up } => {
                    heirs.name(&self.inner, &mut full);
                    if must_give_up {
                        return Err(full.into());
                    }
                    (full, ahead)
                }
            };
            if !told(Obstacle::Full(&full)) {
                full.why = Why::Stopped;
                return Err(full.into());
            }
            let left = clock.left();
            if left.is_zero() {
                full.why = Why::TimedOut(wait.timeout.unwrap_or_default());
                return Err(full.into());
            }
            if ahead < NEAR && !near {
                let leases = self.inner.make_leases().map(|()| self.inner.leases());
                (near, watch) = (true, leases.ok().and_then(|leases| Watch::on(&self.inner, &leases)));
                // Changes before the watch are not told.
                continue;
            }
            let soon = look_again.next().copied();
            if let (Some(shared), Some(watch)) = (&self.inner.shared, &watch) {
                // Users come and go. Another user can close files as often as a loop does: that must not keep this process busy.
                shared.watched(&self.inner).iter().for_each(|file| watch.also(file));
                std::thread::sleep(BREATH.min(left));
            }
            match &watch {
                Some(watch) if watch.sleep(soon.unwrap_or(LOOK).min(left)) => look_again = AFTERWARDS.iter(),
                Some(_) => {}
                None if near => std::thread::sleep(UNTOLD.min(left)),
                None => bells.sleep(self.slot, heard, FAR.min(left)),
            }
        }
    }

    /// Takes the bytes if they are granted. Else waits, and says the obstacle and how many are before. The number of the arrival in
    /// `place` is that of the first time.
    fn attempt(&self, asked: &[u64], place: Place, bells: &Bells, patience: Patience) -> Result<Attempt, NotBegun> {
        let mut state = self.state();
        let transaction = self.begin_within(patience)?;
        let members = transaction.members()?;
        let arrivals = || members.iter().filter_map(|seen| seen.record.waiting);
        let next = || arrivals().map(|place| place.arrival.saturating_add(1)).max().unwrap_or(0);
        let place = Place { near: place.near, ..state.record.waiting.unwrap_or_else(|| Place { arrival: next(), ..place }) };
        let outcome = match self.judge(&members, &state.record, asked, place)? {
            Judgement::Granted(taken) => {
                let waited = state.record.waiting.is_some();
                self.grant(&mut state.record, &taken)?;
                (waited, Attempt::Granted(taken))
            }
            Judgement::Denied { mut full, ahead, must_give_up: true } => {
                if full.why != Why::Never {
                    full.why = Why::Deadlock;
                }
                return Ok(Attempt::Denied { full, ahead, must_give_up: true });
            }
            Judgement::Denied { full, ahead, must_give_up } => {
                let comes = state.record.waiting.is_none();
                if comes {
                    self.give_nothing_up()?;
                }
                if state.record.waiting != Some(place) {
                    let mut waiting = state.record.clone();
                    waiting.waiting = Some(place);
                    for (on, asked) in waiting.cards.iter_mut().zip(asked) {
                        on.asked = *asked;
                    }
                    self.write(&waiting)?;
                    state.record = waiting;
                }
                (comes, Attempt::Denied { full, ahead, must_give_up })
            }
        };
        drop(transaction);
        let (changed, outcome) = outcome;
        self.wake(&members, changed, bells);
        Ok(outcome)
    }

    /// Wakes waiters that have come to the front and do not know it. Where the queue has changed it wakes all at the front: they
    /// may be granted now, or be in a deadlock.
    fn wake(&self, members: &[SeenMember], changed: bool, bells: &Bells) {
        let order = Scene::order(members);
        let others = || order.iter().map(|&index| &members[index]).filter(|seen| !self.is(seen));
        if changed && others().next().is_some() {
            self.inner.ring();
        }
        let far = |seen: &&SeenMember| seen.user == self.inner.user && seen.record.waiting.is_some_and(|place| !place.near);
        for seen in others().take(NEAR).filter(far) {
            // Where it cannot be woken, as another user's, it looks on its own.
            let _ = bells.ring(seen.slot);
        }
    }
}

/// The result of a look whether a request is granted.
enum Attempt {
    /// So much was taken of each card.
    Granted(Vec<u64>),
    Denied {
        full: Full,
        /// How many come before.
        ahead: usize,
        must_give_up: bool,
    },
}

/// How long a wait may last.
struct Clock {
    begin: Instant,
    timeout: Option<Duration>,
}

impl Clock {
    fn left(&self) -> Duration {
        self.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(self.begin.elapsed()))
    }
}

/// Begins a transaction for a request that waits.
pub(super) fn begin<'a>(
    inner: &'a Inner,
    timeout: Option<Duration>,
    told: &mut dyn FnMut(Obstacle<'_>) -> bool,
) -> Result<Transaction<'a>> {
    let clock = Clock { begin: Instant::now(), timeout };
    until_it_begins(inner, &clock, told, &mut |patience| inner.transaction_within(patience))
}

/// Tries to begin a transaction until it does. A wait with a bound ends with it where that process is stopped, else when the
/// ledger's patience is over as well.
fn until_it_begins<T>(
    inner: &Inner,
    clock: &Clock,
    told: &mut dyn FnMut(Obstacle<'_>) -> bool,
    attempt: &mut dyn FnMut(Patience) -> Result<T, NotBegun>,
) -> Result<T> {
    let since = Instant::now();
    loop {
        let most = STUCK.min(inner.patience);
        let mut locked = match attempt(Patience { stopped: clock.left().min(most), most }) {
            Ok(done) => return Ok(done),
            Err(NotBegun::Broken(error)) => return Err(error),
            Err(NotBegun::Locked(locked)) => locked,
        };
        let after = since.elapsed();
        locked.after = in_words(after);
        if !told(Obstacle::Locked(&locked)) {
            return Err(locked.ends(Code::Cancelled, "the wait was ended"));
        }
        if clock.left().is_zero() && (locked.stopped || after >= inner.patience) {
            let timeout = clock.timeout.unwrap_or_default();
            return Err(locked.ends(Code::DeadlineExceeded, &format!("waited for {timeout:?}")));
        }
    }
}

/// Rounded to the digits that people read.
fn in_words(time: Duration) -> Duration {
    match time.as_secs() {
        0 => Duration::from_millis(time.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    }
}

/// The processes that have slots of members that have ended, as they were seen last.
#[derive(Default)]
struct Heirs {
    looked: Option<Instant>,
    /// By slot and the process that joined.
    known: BTreeMap<(u32, u32), (u32, String)>,
}

impl Heirs {
    fn name(&mut self, inner: &Inner, full: &mut Full) {
        let own = inner.shared.as_ref().map(|shared| shared.user);
        let members = |full: &Full| full.holders.iter().chain(&full.ahead).map(|holder| (holder.slot, holder.pid)).collect::<Vec<_>>();
        if self.looked.is_none_or(|at| at.elapsed() >= HEIRS) {
            let before = members(full);
            slot::name_heirs(inner, full);
            let after = full.holders.iter().chain(&full.ahead).map(|holder| (holder.pid, holder.program.clone()));
            self.known = before.into_iter().zip(after).filter(|((_, pid), (heir, _))| pid != heir).collect();
            self.looked = Some(Instant::now());
            return;
        }
        for holder in full.holders.iter_mut().chain(&mut full.ahead).filter(|holder| holder.user == own) {
            if let Some(heir) = self.known.get(&(holder.slot, holder.pid)) {
                (holder.pid, holder.program) = heir.clone();
            }
        }
    }
}

/// The time in which a thread of a member may wait. Nothing is left of it in the queue afterwards, however it ends.
struct Turn<'a> {
    member: &'a Member,
    /// Whether it ends because another process is stuck in a transaction.
    is_stuck: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let member = self.member;
        let mut state = member.state();
        state.busy = false;
        member.turn.notify_one();
        let Some(place) = state.record.waiting else { return };
        state.record.waits_no_longer();
        let patience = if self.is_stuck { Duration::ZERO } else { member.inner.patience };
        match member.begin_within(patience.into()) {
            Ok(transaction) => {
                let _ = member.write(&state.record);
                drop(transaction);
            }
            Err(_) => member.give_up(place),
        }
        // Waiters at the front look, and wake those that come after them.
        member.inner.ring();
    }
}
