//! A card's context: what this process has on it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_memory::{Ledger, Loan, Refusal};

use super::raw::{self, Handle, MemoryKind, Trouble};
use super::{CudaDriver, DriverCard, Pinned, Stream, call};

/// Cards from this compute capability on.
const OLDEST: (u32, u32) = (8, 0);

/// Bytes that go between the host and a card at once.
const PIECE: usize = 1 << 20;

/// A card's context, which a process has once. It ends with the last value that uses it.
#[derive(Debug)]
pub(crate) struct Context {
    pub driver: Arc<CudaDriver>,
    pub device: c_int,
    handle: Handle,
    /// Bytes in which the card gives out memory.
    pub granularity: u64,
    pub capability: (u32, u32),
    lost: AtomicBool,
    /// Whether the driver has refused a graph with bodies.
    refuses_bodies: AtomicBool,
    /// The way of the host's own reads and writes.
    way: Mutex<Option<(Stream, Pinned)>>,
    /// The bytes of ledgers that it counts for. They go back after the context has ended.
    charges: Mutex<Vec<Loan>>,
}

// SAFETY: a context may be used from any thread, several at a time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of a card.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a card that is too old; the driver's error.
    pub fn new(driver: &Arc<CudaDriver>, card: &DriverCard) -> Result<Arc<Context>> {
        let what = format!("{} (card {})", card.name, card.number);
        let (major, minor) = card.capability;
        if card.capability < OLDEST {
            let message = format!("{what} has compute capability {major}.{minor}; cards compute from {}.{} on", OLDEST.0, OLDEST.1);
            return Err(Error::failed_precondition(message));
        }
        let opened = || {
            let mut device = 0;
            call!(driver, device(&mut device, card.number))?;
            let has_virtual_memory = driver.attribute(device, raw::attribute::VIRTUAL_MEMORY)? != 0;
            let mut granularity = 0;
            call!(driver, granularity(&mut granularity, &MemoryKind::of(device), 0))?;
            // Another library of this process may have the context already: its flags stay then.
            let _ = call!(driver, context_flags(device, raw::BLOCKING));
            let mut handle = std::ptr::null_mut();
            call!(driver, context_retain(&mut handle, device))?;
            Ok((device, has_virtual_memory, granularity as u64, handle))
        };
        let (device, has_virtual_memory, granularity, handle) = opened().map_err(|trouble| driver.error(&what, trouble))?;
        let (lost, refuses_bodies, way) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None));
        let (driver, capability, charges) = (driver.clone(), card.capability, Mutex::default());
        let context = Context { driver, device, handle, granularity, capability, lost, refuses_bodies, way, charges };
        if !has_virtual_memory || granularity == 0 || !granularity.is_multiple_of(256) {
            return Err(Error::failed_precondition(format!("{what} has no virtual memory that programs can map")));
        }
        Ok(Arc::new(context))
    }

    /// Whether graphs here are made without bodies, since the driver has refused one.
    pub fn refuses_bodies(&self) -> bool {
        self.refuses_bodies.load(Ordering::Relaxed)
    }

    /// From now on they are.
    pub fn without_bodies(&self) {
        self.refuses_bodies.store(true, Ordering::Relaxed);
    }

    /// Whether this card copies from and to the memory of another one by itself.
    pub fn reaches(&self, other: &Context) -> bool {
        let mut reaches = 0;
        let asked = call!(self.driver, can_reach(&mut reaches, self.device, other.device));
        asked.is_ok() && reaches != 0 && self.driver.functions.copy_across.is_some()
    }

    /// Counts bytes in a ledger, which lasts until the context has ended: other programs are not granted bytes that the card still has
    /// in use.
    ///
    /// # Errors
    /// A refusal, where the line has no room for them.
    pub fn charge(&self, ledger: &Arc<Ledger>, bytes: Bytes) -> std::result::Result<(), Refusal> {
        let mut loan = Loan::new(ledger, "context of the card");
        let counted = loan.set(bytes);
        self.charges.lock().unwrap_or_else(PoisonError::into_inner).push(loan);
        counted
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes it the calling thread's, which has its own again when the guard is dropped: other libraries of the process, and their cards, do
    /// not notice.
    pub fn enter(&self) -> Result<Entered, Trouble> {
        Entered::new(&self.driver, self.handle)
    }

    /// The error of a call on this card. The card is lost from then on, where nothing works any more.
    pub fn error(&self, what: &str, trouble: Trouble) -> Error {
        self.note(trouble);
        self.driver.error(what, trouble)
    }

    /// Remembers that the card is lost, where that is the trouble.
    pub fn note(&self, trouble: Trouble) {
        if trouble.ends_the_card() {
            self.lost.store(true, Ordering::Release);
        }
    }

    /// Whether the card is lost, as far as a call has said.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Bytes of the card that nobody has.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        let asked = self.enter().and_then(|_entered| call!(self.driver, free_bytes(&mut free, &mut total)));
        asked.map(|()| free as u64).map_err(|trouble| self.error("the card's free memory", trouble))
    }

    /// Writes bytes to an address of this card, and waits for it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Trouble> {
        self.on_the_way(|stream, pinned| {
            for (piece, at) in bytes.chunks(PIECE).zip((address..).step_by(PIECE)) {
                pinned.write(0, piece);
                stream.copy_in(at, pinned, 0, piece.len())?;
                stream.synchronize()?;
            }
            Ok(())
        })
    }

    /// Reads bytes at an address of this card.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Trouble> {
        self.on_the_way(|stream, pinned| {
            for (piece, at) in bytes.chunks_mut(PIECE).zip((address..).step_by(PIECE)) {
                stream.copy_out(pinned, 0, at, piece.len())?;
                stream.synchronize()?;
                pinned.read(0, piece);
            }
            Ok(())
        })
    }

    /// Fills bytes of this card with zeros, and waits for it.
    pub fn zero(&self, address: u64, bytes: u64) -> Result<(), Trouble> {
        self.on_the_way(|stream, _| {
            stream.set_bytes(address, 0, bytes)?;
            stream.synchronize()
        })
    }

    fn on_the_way(&self, act: impl FnOnce(&mut Stream, &mut Pinned) -> Result<(), Trouble>) -> Result<(), Trouble> {
        let _entered = self.enter()?;
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if way.is_none() {
            *way = Some((Stream::new(&self.driver, 0)?, Pinned::new(&self.driver, PIECE)?));
        }
        let done = way.as_mut().map_or(Ok(()), |(stream, pinned)| act(stream, pinned));
        done.inspect_err(|trouble| self.note(*trouble))
    }
}

/// The calling thread is in a card's context, until this is dropped. It stays on its thread.
#[must_use]
pub(crate) struct Entered {
    /// What the thread has left for it; none where it was there already.
    left: Option<(Arc<CudaDriver>, Handle)>,
}

impl Entered {
    /// As [`Context::enter`], for a context that lives.
    pub(super) fn new(driver: &Arc<CudaDriver>, context: Handle) -> Result<Entered, Trouble> {
        let before = driver.context_now()?;
        if before == context {
            return Ok(Entered { left: None });
        }
        call!(driver, context_set(context))?;
        Ok(Entered { left: Some((driver.clone(), before)) })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((driver, before)) = &self.left {
            let _ = call!(driver, context_set(*before));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _entered = self.enter();
        *self.way.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = call!(self.driver, context_release(self.device));
    }
}
