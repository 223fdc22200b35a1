//! Bytes that other processes share, behind the ledger of a device.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use plimsoll_base::{Bytes, Error, Result};

use super::{Ledger, Refusal, State};

/// A part of something that several processes share, behind a ledger: the bytes reserved in the ledger are held there.
///
/// Either everything is held from the beginning and nothing is asked for later, or the ledger grows. Then it reserves missing bytes
/// behind it first, in whole steps where there is room for them.
pub trait Upstream: fmt::Debug + Send + Sync {
    /// The bytes that are held when the ledger begins. The ledger gives them back in the end.
    fn held(&self) -> Bytes;

    /// The step in which more is reserved; none where nothing is asked for later.
    fn step(&self) -> Option<Bytes>;

    /// The most that there is to share.
    fn capacity(&self) -> Bytes;

    /// The bytes without a holder now.
    ///
    /// # Errors
    /// The error that prevents an answer.
    fn free(&self) -> Result<Bytes>;

    /// Reserves `wish` more bytes, or else `least`, for which it may wait. How much it was. One thread of the process asks at a time.
    ///
    /// # Errors
    /// Why `least` cannot be had.
    fn reserve(&self, wish: Bytes, least: Bytes) -> Result<Bytes, Denied>;

    /// Gives bytes back.
    ///
    /// # Errors
    /// The error of the place where they are counted.
    fn release(&self, bytes: Bytes) -> Result<()>;

    /// Shows others how many bytes are mapped: `change` makes it of the number before.
    fn show_use(&self, change: &dyn Fn(Bytes) -> Bytes);
}

/// Why bytes behind a ledger were not reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no room.
    Full {
        /// The name of the card that is full.
        card: String,
        /// The driver's word for that.
        code: &'static str,
        /// The holders of the bytes, and a remedy.
        error: Error,
    },
    /// The place where bytes are counted cannot be used.
    Broken(Error),
}

/// What stands behind a ledger.
#[derive(Debug)]
pub(super) struct Behind {
    upstream: Box<dyn Upstream>,
    /// Only one thread reserves more at a time: two would reserve twice the bytes that both lack.
    growing: Mutex<()>,
}

impl Ledger {
    /// An empty ledger of a device with shared bytes behind it. Its line is the limit, at most the held bytes or, where it grows,
    /// all that there is to share.
    pub fn with_upstream(device: impl Into<Arc<str>>, limit: Option<Bytes>, upstream: impl Upstream + 'static) -> Arc<Ledger> {
        let held = upstream.held();
        let most = if upstream.step().is_some() { upstream.capacity() } else { held };
        let line = limit.map_or(most, |limit| limit.min(most));
        Arc::new(Ledger {
            device: device.into(),
            limit,
            line,
            state: Mutex::new(State { held, ..State::default() }),
            behind: Some(Behind { upstream: Box::new(upstream), growing: Mutex::default() }),
            faults: OnceLock::new(),
            room: super::Room::default(),
        })
    }

    /// Bytes that may be in use without a request: the line, or the bytes held behind the ledger.
    pub fn held(&self) -> Bytes {
        self.state().held.min(self.line)
    }

    /// Bytes that no other program can have because of this ledger: those held behind it; where nothing is behind it, those
    /// reserved here.
    pub fn kept(&self) -> Bytes {
        let state = self.state();
        if self.behind.is_some() { state.held } else { state.in_use }
    }

    /// The most that could be in use here as things are: the line, or held bytes and those free behind the ledger. None where
    /// there is neither.
    ///
    /// # Errors
    /// As [`Upstream::free`].
    pub fn reach(&self) -> Result<Option<Bytes>> {
        let Some(Behind { upstream, .. }) = &self.behind else { return Ok(self.limit) };
        let free = if upstream.step().is_some() { upstream.free()? } else { Bytes::ZERO };
        Ok(Some(self.line.min(self.state().held + free)))
    }

    /// Makes sure that `bytes` more can be reserved without asking behind the ledger, as long as no other thread of this process
    /// reserves.
    ///
    /// # Errors
    /// As [`Ledger::reserve`]; nothing has changed then.
    pub fn ensure(&self, bytes: Bytes, holder: &str) -> Result<(), Refusal> {
        self.room(Bytes::ZERO, bytes, holder).map(|_| ())
    }

    /// Gives back bytes that are held behind the ledger and not in use, but for the rest of a step. How much that was; nothing where
    /// the ledger does not grow, since it could not get it back.
    ///
    /// # Errors
    /// As [`Upstream::release`].
    pub fn release_unused(&self) -> Result<Bytes> {
        let Some((upstream, step)) = self.behind.as_ref().and_then(|behind| Some((&behind.upstream, behind.upstream.step()?))) else {
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
            upstream.release(given)?;
        }
        Ok(given)
    }

    /// As `room`, when the held bytes are not enough.
    pub(super) fn go_out(&self, behind: &Behind, old: Bytes, new: Bytes, holder: &str) -> Result<(MutexGuard<'_, State>, Bytes), Refusal> {
        let _alone = behind.growing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Meanwhile other threads may have given back bytes, or taken those that were reserved for them to find.
            let (state, total) = self.within_line(old, new, holder)?;
            let held = state.held;
            if total <= held {
                return Ok((state, total));
            }
            drop(state);
            let step = behind.upstream.step().map_or(1, |step| step.0);
            let wish = total.round_up(step).min(self.line) - held;
            match behind.upstream.reserve(wish, total - held) {
                Ok(got) => self.state().held += got,
                Err(denied) => return Err(Refusal { upstream: Some(Box::new(denied)), ..self.refusal(&self.state(), new - old, holder) }),
            }
        }
    }

    /// Shows others how much is mapped.
    pub(super) fn show_use(&self, change: impl Fn(Bytes) -> Bytes) {
        if let Some(behind) = &self.behind {
            behind.upstream.show_use(&change);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let held = self.state().held;
        if let Some(behind) = &self.behind {
            // Where the bytes cannot be given back, they come back when this process ends.
            let _ = behind.upstream.release(held);
        }
    }
}
