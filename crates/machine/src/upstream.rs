//! A part of a card behind the ledger of a device.

use std::fmt;
use std::sync::Arc;

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
}

/// Is told the obstacle, and says whether to wait on.
type OnObstacle = Box<dyn Fn(Obstacle<'_>) -> bool + Send + Sync>;

impl CardUpstream {
    /// Takes over `held` bytes that the member has reserved on the card of that number: the ledger gives them back in the end.
    pub fn new(member: &Arc<Member>, card: usize, held: Bytes) -> CardUpstream {
        CardUpstream { member: member.clone(), card, held, step: None, shows_use: true, wait: None }
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
        Ok(self.member.machine().look()?.cards.get(self.card).map_or(Bytes::ZERO, |card| card.free))
    }

    fn reserve(&self, wish: Bytes, least: Bytes) -> Result<Bytes, plimsoll_memory::Denied> {
        if wish > least && self.member.reserve(&[(self.card, wish)]).is_ok() {
            return Ok(wish);
        }
        match &self.wait {
            Some((wait, told)) => self.member.reserve_waiting(&[(self.card, least)], wait, &mut |obstacle| told(obstacle)),
            None => self.member.reserve(&[(self.card, least)]),
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
        let CardUpstream { member, card, held, step, shows_use, wait } = self;
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
