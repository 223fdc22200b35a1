//! Waiting for bytes.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::bell::Bells;
use super::member::Judgement;
use super::record::Place;
use super::transaction::{Scene, Seen};
use super::watch::Watch;
use super::{Bytes, Denied, Full, Member, Why};

/// How many at the front are told by the kernel when a member goes. Few: users may have 128 watches, and not all must wake for
/// each death.
const NEAR: usize = 16;

/// How often those look on their own, for what they are not told: a fork that kept a handle open, use by other programs.
const LOOK: Duration = Duration::from_millis(100);

/// How often they look where the system has no watch to give.
const UNTOLD: Duration = Duration::from_millis(10);

/// How often those behind look, in case that all at the front died at once.
const FAR: Duration = Duration::from_secs(1);

/// When to look again after being told: the kernel tells of a death just before it gives the locks back.
const AFTERWARDS: [Duration; 3] = [Duration::from_micros(300), Duration::from_millis(2), Duration::from_millis(10)];

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Higher comes first; of equals, who came first.
    pub priority: i32,
    /// How long at most; without it, as long as it takes.
    pub timeout: Option<Duration>,
}

impl Member {
    /// As [`Member::reserve`], but waits for its turn, in order of priority and then of arrival. Those behind may pass only
    /// where they cannot delay those before them (`decide.rs` has the rule). `told` is called when waiting begins and each time
    /// it goes on, with what is in the way; it ends the wait by returning `false`.
    ///
    /// # Errors
    /// [`Denied::Full`] after the timeout, where `told` ends it, where the card could never give that much, and where everyone
    /// who holds the bytes waits too, this member last. Nothing has changed then, and nothing is left in the queue.
    pub fn reserve_waiting(&self, request: &[(usize, Bytes)], wait: &Wait, told: &mut dyn FnMut(&Full) -> bool) -> Result<(), Denied> {
        self.wait_for(request, 0, wait, told).map(drop)
    }

    /// As [`Member::reserve_waiting`], on `some` of the cards, 0 being all. What was taken of each card.
    pub(super) fn wait_for(
        &self,
        request: &[(usize, Bytes)],
        some: u8,
        wait: &Wait,
        told: &mut dyn FnMut(&Full) -> bool,
    ) -> Result<Vec<u64>, Denied> {
        let begin = Instant::now();
        let left = || wait.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(begin.elapsed()));
        let asked = self.dense(request)?;
        let Some(_turn) = self.take_turn(&left) else {
            let now = match some {
                0 => self.reserve(request).map(|()| asked),
                some => self
                    .reserve_some(request, some, None, told)
                    .map(|cards| (0..asked.len()).map(|card| if cards.contains(&card) { asked[card] } else { 0 }).collect()),
            };
            return now.map_err(|denied| match denied {
                Denied::Full(full) => Full { why: Why::TimedOut(wait.timeout.unwrap_or_default()), ..*full }.into(),
                broken => broken,
            });
        };
        self.wait_in_turn(&asked, some, wait, &left, told)
    }

    /// A member has one place in the queue: its threads take turns. None where time is over before.
    fn take_turn(&self, left: &dyn Fn() -> Duration) -> Option<Turn<'_>> {
        let mut state = self.state();
        while state.busy {
            let left = left();
            if left.is_zero() {
                return None;
            }
            state = self.turn.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.busy = true;
        Some(Turn(self))
    }

    fn wait_in_turn(
        &self,
        asked: &[u64],
        some: u8,
        wait: &Wait,
        left: &dyn Fn() -> Duration,
        told: &mut dyn FnMut(&Full) -> bool,
    ) -> Result<Vec<u64>, Denied> {
        let bells = Bells::of(&self.inner.file).map_err(|error| self.inner.broken(&error))?;
        let (mut near, mut watch) = (false, None);
        let mut look_again = AFTERWARDS.iter();
        loop {
            let heard = bells.listen(self.slot).map_err(|error| self.inner.broken(&error))?;
            let (mut full, ahead) = match self.attempt(asked, some, wait.priority, near, &bells)? {
                Ok(taken) => return Ok(taken),
                Err(denied) => denied,
            };
            if !told(&full) {
                full.why = Why::Stopped;
                return Err(full.into());
            }
            let left = left();
            if left.is_zero() {
                full.why = Why::TimedOut(wait.timeout.unwrap_or_default());
                return Err(full.into());
            }
            if ahead < NEAR && !near {
                (near, watch) = (true, Watch::on(&self.inner.path));
                // What happened before the watch is not told.
                continue;
            }
            let soon = look_again.next().copied();
            match &watch {
                Some(watch) if watch.sleep(soon.unwrap_or(LOOK).min(left)) => look_again = AFTERWARDS.iter(),
                Some(_) => {}
                None if near => std::thread::sleep(UNTOLD.min(left)),
                None => bells.sleep(self.slot, heard, FAR.min(left)),
            }
        }
    }

    /// Takes the bytes if they are granted; else waits, and says what is in the way and how many are before.
    fn attempt(
        &self,
        asked: &[u64],
        some: u8,
        priority: i32,
        near: bool,
        bells: &Bells,
    ) -> Result<Result<Vec<u64>, (Full, usize)>, Denied> {
        let mut state = self.state();
        let transaction = self.begin()?;
        let members = transaction.members()?;
        let arrivals = || members.iter().filter_map(|seen| seen.record.waiting);
        let next = || arrivals().map(|place| place.arrival.saturating_add(1)).max().unwrap_or(0);
        let place = Place { near, ..state.record.waiting.unwrap_or_else(|| Place { priority, arrival: next(), near, some }) };
        let outcome = match self.judge(&members, &state.record, asked, place)? {
            Judgement::Granted(taken) => {
                let waited = state.record.waiting.is_some();
                self.grant(&mut state.record, &taken)?;
                (waited, Ok(taken))
            }
            Judgement::Denied { mut full, must_give_up: true, .. } => {
                if full.why != Why::Never {
                    full.why = Why::Deadlock;
                }
                return Err(full.into());
            }
            Judgement::Denied { full, ahead, .. } => {
                let comes = state.record.waiting.is_none();
                if state.record.waiting != Some(place) {
                    let mut waiting = state.record.clone();
                    waiting.waiting = Some(place);
                    for (on, asked) in waiting.cards.iter_mut().zip(asked) {
                        on.asked = *asked;
                    }
                    self.write(&waiting)?;
                    state.record = waiting;
                }
                (comes, Err((full, ahead)))
            }
        };
        drop(transaction);
        let (changed, outcome) = outcome;
        self.wake(&members, changed, bells);
        Ok(outcome)
    }

    /// Wakes those who have come to the front and do not know it; where the queue has changed, all at the front: they may be
    /// granted now, or be in a deadlock.
    fn wake(&self, members: &[Seen], changed: bool, bells: &Bells) {
        let order = Scene::order(members);
        let others = || order.iter().map(|&index| &members[index]).filter(|seen| seen.slot != self.slot);
        if changed && others().next().is_some() {
            self.inner.ring();
        }
        for seen in others().take(NEAR).filter(|seen| seen.record.waiting.is_some_and(|place| !place.near)) {
            // Where it cannot be woken, it looks on its own.
            let _ = bells.ring(seen.slot);
        }
    }
}

/// The time in which a thread of a member may wait. Nothing is left of it in the queue afterwards, however it ends.
struct Turn<'a>(&'a Member);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy = false;
        self.0.turn.notify_one();
        if state.record.waiting.take().is_some() {
            state.record.cards.iter_mut().for_each(|on| on.asked = 0);
            // Where this fails, the place in the queue stays until the member's next change.
            let Ok(transaction) = self.0.begin() else { return };
            let _ = self.0.write(&state.record);
            drop(transaction);
            // Those at the front look, and wake who comes after them.
            self.0.inner.ring();
        }
    }
}
