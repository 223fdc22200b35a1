//! A part of a card behind the ledger of a device.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_memory::Upstream;

use crate::{Denied, Member, OUT_OF_MEMORY, Obstacle, Wait};

/// The reservation of a device's ledger on a card of the machine, through a member.
pub struct CardUpstream {
    member: Arc<Member>,
    card: usize,
    held: Bytes,
    step: Option<Bytes>,
    /// Whether others are told the mapped bytes; otherwise they were told once and for all.
    shows_use: bool,
    wait: Option<(Wait, OnObstacle)>,
    /// Tells the ledger what programs outside of it use now.
    see_outside: Option<Box<dyn Fn() + Send + Sync>>,
}

/// How often use by programs outside of the ledger is looked at while one waits.
const OFTEN: Duration = Duration::from_millis(250);

/// Is told the obstacle, and says whether to wait on.
type OnObstacle = Box<dyn Fn(Obstacle<'_>) -> bool + Send + Sync>;

impl CardUpstream {
    /// Takes over `held` bytes that the member has reserved on the card of that number: the ledger gives them back in the end.
    pub fn new(member: &Arc<Member>, card: usize, held: Bytes) -> CardUpstream {
        CardUpstream { member: member.clone(), card, held, step: None, shows_use: true, wait: None, see_outside: None }
    }

    /// Lets the ledger reserve more when it needs it, in steps of that many bytes.
    pub fn growing(self, step: Bytes) -> CardUpstream {
        CardUpstream { step: Some(step), ..self }
    }

    /// Says that held bytes were touched beforehand, so that mapping changes nothing of the use of the card. The maker of the
    /// reservation tells the machine with [`Member::set_used`].
    pub fn touched(self) -> CardUpstream {
        CardUpstream { shows_use: false, ..self }
    }

    /// Lets it wait for them. `told` is called as [`Member::reserve_waiting`] says, and ends the wait by returning `false`. Other
    /// threads of this process that need more wait behind it; a thread for which the held bytes suffice does not.
    pub fn waiting(self, wait: Wait, told: impl Fn(Obstacle<'_>) -> bool + Send + Sync + 'static) -> CardUpstream {
        CardUpstream { wait: Some((wait, Box::new(told))), ..self }
    }

    /// Lets `see` tell the machine what programs outside of the ledger use ([`super::Machine::set_outside`]): before each request for more,
    /// and now and then during a wait.
    pub fn seeing_outside(self, see: impl Fn() + Send + Sync + 'static) -> CardUpstream {
        CardUpstream { see_outside: Some(Box::new(see)), ..self }
    }

    fn see(&self) {
        if let Some(see) = &self.see_outside {
            see();
        }
    }
}

impl Upstream for CardUpstream {
    fn held(&self) -> Bytes {
        self.held
    }

    fn step(&self) -> Option<Bytes> {
        self.step
    }

    fn capacity(&self) -> Bytes {
        self.member.machine().cards().get(self.card).map_or(Bytes::ZERO, |card| card.capacity)
    }

    fn free(&self) -> Result<Bytes> {
        self.see();
        Ok(self.member.machine().look()?.cards.get(self.card).map_or(Bytes::ZERO, |card| card.free))
    }

    fn reserve(&self, wish: Bytes, least: Bytes) -> Result<Bytes, plimsoll_memory::Denied> {
        self.see();
        if wish > least && self.member.reserve(&[(self.card, wish)]).is_ok() {
            return Ok(wish);
        }
        match &self.wait {
            Some((wait, told)) => {
                let mut seen = Instant::now();
                self.member.reserve_waiting(&[(self.card, least)], wait, &mut |obstacle| {
                    if seen.elapsed() >= OFTEN {
                        self.see();
                        seen = Instant::now();
                    }
                    told(obstacle)
                })
            }
            None => self.member.reserve(&[(self.card, least)]).or_else(|denied| match (denied, &self.see_outside) {
                // A program that has just ended may have been taken for one outside of the ledger.
                (Denied::Full(_), Some(see)) => {
                    see();
                    self.member.reserve(&[(self.card, least)])
                }
                (denied, _) => Err(denied),
            }),
        }?;
        Ok(least)
    }

    fn release(&self, bytes: Bytes) -> Result<()> {
        self.member.release(&[(self.card, bytes)])
    }

    fn show_use(&self, change: &dyn Fn(Bytes) -> Bytes) {
        if self.shows_use {
            self.member.change_used(self.card, change);
        }
    }
}

impl From<Denied> for plimsoll_memory::Denied {
    fn from(denied: Denied) -> plimsoll_memory::Denied {
        match denied {
            Denied::Full(full) => {
                let card = full.card.name.clone();
                plimsoll_memory::Denied::Full { card, code: OUT_OF_MEMORY, error: Error::from(*full) }
            }
            Denied::Broken(error) => plimsoll_memory::Denied::Broken(error),
        }
    }
}

impl fmt::Debug for CardUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CardUpstream { member, card, held, step, shows_use, wait, see_outside: _ } = self;
        let wait = wait.as_ref().map(|(wait, _)| wait);
        let mut out = f.debug_struct("CardUpstream");
        out.field("member", member)
            .field("card", card)
            .field("held", held)
            .field("step", step)
            .field("shows_use", shows_use)
            .field("wait", &wait)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use plimsoll_memory::Ledger;

    use super::*;
    use crate::{CardInfo, Identity, Machine, StateDir};

    #[test]
    fn use_outside_of_the_ledger_is_looked_at_before_each_request_and_in_waits() {
        let folder = std::env::temp_dir().join(format!("plimsoll-upstream-{}", std::process::id()));
        let state = StateDir::open(&folder).unwrap();
        let card = CardInfo { key: "a".into(), name: "a card".into(), capacity: Bytes(100) };
        let machine = Machine::open(&state, "upstream", &[card]).unwrap();
        let member = Arc::new(machine.join(&Identity::this_process("")).unwrap());
        let (outside, looks) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let upstream = |member| {
            let (machine, outside, looks) = (machine.clone(), outside.clone(), looks.clone());
            CardUpstream::new(member, 0, Bytes::ZERO).growing(Bytes(1)).seeing_outside(move || {
                // Use that a wait sees twice ends.
                if looks.fetch_add(1, Ordering::Relaxed) == 40 {
                    outside.store(0, Ordering::Relaxed);
                }
                machine.set_outside(0, Bytes(outside.load(Ordering::Relaxed))).unwrap();
            })
        };
        let ledger = Ledger::with_upstream("GPU:0", None, upstream(&member));
        let first = ledger.reserve(Bytes(40), "a").unwrap();
        outside.store(50, Ordering::Relaxed);
        assert_eq!(ledger.reach().unwrap(), Some(Bytes(50)));
        let refusal = ledger.reserve(Bytes(11), "a").unwrap_err();
        assert!(matches!(refusal.upstream.as_deref(), Some(plimsoll_memory::Denied::Full { .. })), "{refusal:?}");
        let second = ledger.reserve(Bytes(10), "a").unwrap();
        // What the ledger holds already needs no look.
        let before = looks.load(Ordering::Relaxed);
        drop(second);
        drop(ledger.reserve(Bytes(10), "a").unwrap());
        assert_eq!(looks.load(Ordering::Relaxed), before);
        looks.store(39, Ordering::Relaxed);
        let wait = Wait { priority: 0, timeout: Some(Duration::from_secs(60)) };
        let other = Arc::new(machine.join(&Identity::this_process("")).unwrap());
        let waiting = Ledger::with_upstream("GPU:0", None, upstream(&other).waiting(wait, |_| true));
        let third = waiting.reserve(Bytes(45), "b").unwrap();
        assert!(looks.load(Ordering::Relaxed) > 40);
        drop((first, third, ledger, waiting));
        let _ = std::fs::remove_dir_all(folder);
    }
}
