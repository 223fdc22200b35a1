//! A program's place in the ledger of its cards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{Options, PhysicalDevice};
use plimsoll_machine::{Denied, Identity, Machine, Member, OUT_OF_MEMORY, Wait};

use super::nvidia::{Contexts, Nvidia, Outside};

/// The most that is reserved for a context until it is measured: more than one is expected to take.
const CONTEXT: Bytes = Bytes(1 << 30);

/// How often use by programs outside of the ledger is looked at while one waits.
const OFTEN: Duration = Duration::from_millis(250);

/// A member of the ledger of these cards, which waits for bytes or does not.
pub(super) struct Seat<'a> {
    pub member: Arc<Member>,
    pub wait: Option<Wait>,
    ledger: &'a Machine,
    nvidia: Option<&'a Nvidia>,
    pub outside: Option<Arc<Outside>>,
}

impl Seat<'_> {
    /// Joins the ledger.
    ///
    /// # Errors
    /// The obstacle to it.
    pub fn take<'a>(ledger: &'a Machine, cards: &[PhysicalDevice], nvidia: Option<&'a Nvidia>, options: &Options) -> Result<Seat<'a>> {
        let wait = options.wait.map(|wait| Wait { priority: 0, timeout: (wait < Duration::MAX).then_some(wait) });
        let identity = Identity::this_process("");
        let member = match &wait {
            Some(wait) => ledger.join_waiting(&identity, wait, &mut |_| true)?,
            None => ledger.join(&identity)?,
        };
        let outside = nvidia.and_then(|nvidia| nvidia.outside(cards, ledger)).map(Arc::new);
        Ok(Seat { member: Arc::new(member), wait, ledger, nvidia, outside })
    }

    /// Reserves bytes for contexts on the cards with these numbers. A context takes what it takes, and is measured then.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a card has no room; the obstacle to the ledger.
    pub fn make_room(&self, used: &[usize]) -> Result<()> {
        self.reserve(&used.iter().map(|&card| (card, self.bound(card))).collect::<Vec<_>>())
    }

    /// The most that a context on a card is expected to take.
    pub fn bound(&self, card: usize) -> Bytes {
        CONTEXT.min(Bytes(self.ledger.cards()[card].capacity.0 / 16))
    }

    /// Gives back what is reserved of a card.
    ///
    /// # Errors
    /// The obstacle to the ledger.
    pub fn give_back(&self, card: usize) -> Result<()> {
        self.member.release(&[(card, self.member.reserved(card))])
    }

    /// Makes what is held of each card that many bytes. All or nothing, also with contexts: a program that waits has none, and those of
    /// one that has waited are new.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a card has no room; otherwise as [`Nvidia::open`].
    pub fn hold(&self, bytes: &BTreeMap<usize, Bytes>, cards: &[PhysicalDevice], contexts: &mut Contexts) -> Result<()> {
        let all: Vec<(usize, Bytes)> = bytes.iter().map(|(&card, &bytes)| (card, bytes)).collect();
        let Some(nvidia) = self.nvidia else { return self.reserve(&all) };
        // Less than nothing is nothing.
        let missing: Vec<_> = all.iter().map(|&(card, bytes)| (card, bytes - self.member.reserved(card))).collect();
        let beyond: Vec<_> = all.iter().map(|&(card, bytes)| (card, self.member.reserved(card) - bytes)).collect();
        if self.member.reserve(&missing).is_ok() {
            return self.member.release(&beyond);
        }
        contexts.clear();
        self.member.release(&all.iter().map(|&(card, _)| (card, self.member.reserved(card))).collect::<Vec<_>>())?;
        self.reserve(&all)?;
        *contexts = all.iter().map(|&(card, _)| Ok((card, nvidia.open(&cards[card].uuid, self.bound(card))?))).collect::<Result<_>>()?;
        Ok(())
    }

    /// Reserves bytes on top of the held ones, after it has waited for them if it waits.
    fn reserve(&self, request: &[(usize, Bytes)]) -> Result<()> {
        self.see_outside();
        let mut looked = Instant::now();
        let granted = match &self.wait {
            Some(wait) => self.member.reserve_waiting(request, wait, &mut |_| {
                if looked.elapsed() >= OFTEN {
                    self.see_outside();
                    looked = Instant::now();
                }
                true
            }),
            None => self.member.reserve(request).or_else(|denied| match (denied, &self.outside) {
                // A program that has just ended may have been taken for one outside of the ledger.
                (Denied::Full(_), Some(outside)) => {
                    outside.see();
                    self.member.reserve(request)
                }
                (denied, _) => Err(denied),
            }),
        };
        granted.map_err(out_of_memory)
    }

    fn see_outside(&self) {
        if let Some(outside) = &self.outside {
            outside.see();
        }
    }
}

/// The driver's name for it, and the holders.
fn out_of_memory(denied: Denied) -> Error {
    Error::from(denied).context(OUT_OF_MEMORY)
}
