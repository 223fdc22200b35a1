//! A part of a machine's card behind a ledger of this process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use plimsoll_base::{Bytes, Result};

use super::{Ledger, Refusal, State};
use crate::machine::{Denied, Member, Obstacle, Wait};

/// The reservation of a ledger on a card of the machine, through a member.
///
/// Either everything is held from the beginning and nothing is asked for later, or the ledger grows. Then it reserves missing bytes
/// on the card first, in whole steps where there is room for them.
pub struct Upstream {
    member: Arc<Member>,
    card: usize,
    /// Held when the ledger begins.
    held: Bytes,
    step: Option<Bytes>,
    /// Whether others are told the mapped bytes; otherwise they were told once and for all.
    shows_use: bool,
    wait: Option<(Wait, OnObstacle)>,
    /// Only one thread reserves more at a time: two would reserve twice the bytes that both lack.
    growing: Mutex<()>,
}

/// Is told the obstacle, and says whether to wait on.
type OnObstacle = Box<dyn Fn(Obstacle<'_>) -> bool + Send + Sync>;

impl Upstream {
    /// Takes over `held` bytes that the member has reserved on the card of that number: the ledger gives them back in the end.
    pub fn new(member: &Arc<Member>, card: usize, held: Bytes) -> Upstream {
        Upstream { member: member.clone(), card, held, step: None, shows_use: true, wait: None, growing: Mutex::default() }
    }

    /// Lets the ledger reserve more when it needs it, in steps of that many bytes.
    pub fn growing(self, step: Bytes) -> Upstream {
        Upstream { step: Some(step), ..self }
    }

    /// Says that held bytes were touched beforehand, so that mapping changes nothing of the use of the card. The maker of the
    /// reservation tells the machine with [`Member::set_used`].
    pub fn touched(self) -> Upstream {
        Upstream { shows_use: false, ..self }
    }

    /// Lets it wait for them. `told` is called as [`Member::reserve_waiting`] says, and ends the wait by returning `false`. Other
    /// threads of this process that need more wait behind it; a thread for which the held bytes suffice does not.
    pub fn waiting(self, wait: Wait, told: impl Fn(Obstacle<'_>) -> bool + Send + Sync + 'static) -> Upstream {
        Upstream { wait: Some((wait, Box::new(told))), ..self }
    }

    fn reserve(&self, wish: Bytes, least: Bytes) -> Result<Bytes, Denied> {
        if wish > least && self.member.reserve(&[(self.card, wish)]).is_ok() {
            return Ok(wish);
        }
        match &self.wait {
            Some((wait, told)) => self.member.reserve_waiting(&[(self.card, least)], wait, &mut |obstacle| told(obstacle))?,
            None => self.member.reserve(&[(self.card, least)])?,
        }
        Ok(least)
    }
}

impl Ledger {
    /// An empty ledger of a device on a card of the machine. Its line is the limit, at most the held bytes or, where it grows,
    /// those of the card.
    pub fn with_upstream(device: impl Into<Arc<str>>, limit: Option<Bytes>, upstream: Upstream) -> Arc<Ledger> {
        let most = match upstream.step {
            Some(_) => upstream.member.machine().cards().get(upstream.card).map_or(Bytes::ZERO, |card| card.capacity),
            None => upstream.held,
        };
        let line = limit.map_or(most, |limit| limit.min(most));
        let state = Mutex::new(State { held: upstream.held, ..State::default() });
        Arc::new(Ledger {
            device: device.into(),
            limit,
            line,
            state,
            upstream: Some(upstream),
            faults: OnceLock::new(),
            room: super::Room::default(),
        })
    }

    /// Bytes that may be in use without a request: the line, or the bytes held on the machine's card.
    pub fn held(&self) -> Bytes {
        self.state().held.min(self.line)
    }

    /// Bytes that no other program can have because of this ledger: those held on the machine's card; without a card, those
    /// reserved here.
    pub fn kept(&self) -> Bytes {
        let state = self.state();
        if self.upstream.is_some() { state.held } else { state.in_use }
    }

    /// The most that could be in use here as things are: the line, or held bytes and those free on the machine's card. None where
    /// there is neither.
    ///
    /// # Errors
    /// Where the machine's ledger cannot be used.
    pub fn reach(&self) -> Result<Option<Bytes>> {
        let Some(upstream) = &self.upstream else { return Ok(self.limit) };
        let free = match upstream.step {
            Some(_) => upstream.member.machine().look()?.cards.get(upstream.card).map_or(Bytes::ZERO, |card| card.free),
            None => Bytes::ZERO,
        };
        Ok(Some(self.line.min(self.state().held + free)))
    }

    /// Makes sure that `bytes` more can be reserved without asking the machine, as long as no other thread of this process
    /// reserves.
    ///
    /// # Errors
    /// As [`Ledger::reserve`]; nothing has changed then.
    pub fn ensure(&self, bytes: Bytes, holder: &str) -> Result<(), Refusal> {
        self.room(Bytes::ZERO, bytes, holder).map(|_| ())
    }

    /// Gives back to the machine bytes that are held and not in use, but for the rest of a step. How much that was; nothing where
    /// the ledger does not grow, since it could not get it back.
    ///
    /// # Errors
    /// Where the machine's ledger cannot be used; see [`Member::release`].
    pub fn release_unused(&self) -> Result<Bytes> {
        let Some((upstream, step)) = self.upstream.as_ref().and_then(|upstream| Some((upstream, upstream.step?))) else {
            return Ok(Bytes::ZERO);
        };
        let given = {
            let mut state = self.state();
            let kept = state.in_use.round_up(step.0).min(state.held);
            let given = state.held - kept;
            state.held = kept;
            given
        };
        if given > Bytes::ZERO {
            upstream.member.release(&[(upstream.card, given)])?;
        }
        Ok(given)
    }

    /// As `room`, when the held bytes are not enough.
    pub(super) fn go_out(
        &self,
        upstream: &Upstream,
        old: Bytes,
        new: Bytes,
        holder: &str,
    ) -> Result<(MutexGuard<'_, State>, Bytes), Refusal> {
        let _alone = upstream.growing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Meanwhile other threads may have given back bytes, or taken those that were reserved for them to find.
            let (state, total) = self.within_line(old, new, holder)?;
            let held = state.held;
            if total <= held {
                return Ok((state, total));
            }
            drop(state);
            let step = upstream.step.map_or(1, |step| step.0);
            let wish = total.round_up(step).min(self.line) - held;
            match upstream.reserve(wish, total - held) {
                Ok(got) => self.state().held += got,
                Err(denied) => return Err(Refusal { upstream: Some(Box::new(denied)), ..self.refusal(&self.state(), new - old, holder) }),
            }
        }
    }

    /// Tells the machine how much is mapped.
    pub(super) fn show_use(&self, change: impl FnOnce(Bytes) -> Bytes) {
        if let Some(upstream) = self.upstream.as_ref().filter(|upstream| upstream.shows_use) {
            upstream.member.change_used(upstream.card, change);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let held = self.state().held;
        if let Some(upstream) = &self.upstream {
            // Where the machine's ledger cannot be used, the bytes come back with the member.
            let _ = upstream.member.release(&[(upstream.card, held)]);
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Upstream { member, card, held, step, shows_use, wait, .. } = self;
        let wait = wait.as_ref().map(|(wait, _)| wait);
        let mut out = f.debug_struct("Upstream");
        out.field("member", member)
            .field("card", card)
            .field("held", held)
            .field("step", step)
            .field("shows_use", shows_use)
            .field("wait", &wait)
            .finish()
    }
}
