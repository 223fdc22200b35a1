//! Memory of open regions: of parts of a plan that run as often as a value says, such as the bodies of loops. The sizes and
//! lifetimes of their buffers are not known beforehand, so that no plan can have their offsets. No plan has such a region yet:
//! nothing but tests makes an [`Arena`] today. Every other buffer has its offset from the plan.
//!
//! An arena gives memory out as TensorFlow's best-fit allocator with coalescing (BFC) does, under a line. Three parts: a [`Policy`]
//! that computes with numbers; an [`AddressSpace`] that has the memory; and [`Arena`], which brings both under a [`Ledger`] and may
//! be used from any thread.

mod aging;
mod chunks;
mod dump;
mod exhausted;
mod holding;
mod policy;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_memory::{Address, AddressSpace, HostPages, Ledger};

pub use aging::TimingCounter;
pub use chunks::{BINS, Chunk, ROUNDING, State};
pub use dump::{BinSummary, Dump, Failed, RegionDump};
pub use exhausted::Exhausted;
pub use policy::{Ask, Options, Placed, Policy, Refused, Source, Stats};

use holding::Holding;

/// A wait that ends no sooner is one without end.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// Memory of one device, handed out chunk by chunk.
///
/// Regions are reserved in the ledger before they exist, in the arena's name. Chunks begin at multiples of 256 bytes, and their
/// contents are left over from before.
#[derive(Debug)]
pub struct Arena {
    name: Arc<str>,
    ledger: Arc<Ledger>,
    timing: Option<Arc<TimingCounter>>,
    state: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    policy: Policy,
    holding: Holding,
}

/// A request for a chunk.
#[derive(Clone)]
pub struct Request<'a> {
    /// How much.
    pub bytes: Bytes,
    /// The node that asks.
    pub node: Arc<str>,
    /// How long to wait for others to give memory back. TensorFlow waits ten seconds.
    pub wait: Duration,
    /// The highest age that the memory may have (0: any), asked before every try. It must not call the arena.
    pub frontier: Option<&'a (dyn Fn() -> u64 + Sync)>,
}

impl<'a> Request<'a> {
    /// A request that does not wait and takes memory of any age.
    pub fn new(bytes: Bytes, node: impl Into<Arc<str>>) -> Request<'a> {
        Request { bytes, node: node.into(), wait: Duration::ZERO, frontier: None }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { bytes, node, wait, frontier } = self;
        write!(f, "{node}: {bytes}, waits {wait:?}, {}", if frontier.is_some() { "of an age" } else { "of any age" })
    }
}

impl Arena {
    /// An arena of pages of this machine. No memory is taken yet.
    pub fn host(name: impl Into<Arc<str>>, ledger: &Arc<Ledger>, options: Options) -> Arc<Arena> {
        Arena::new(name, ledger, Box::new(HostPages::new(ledger)), options, None)
    }

    /// An arena under `ledger` of memory from `space`. With a counter, memory that is given back gets an age (see
    /// [`Arena::advance`]).
    pub fn new(
        name: impl Into<Arc<str>>,
        ledger: &Arc<Ledger>,
        space: Box<dyn AddressSpace>,
        options: Options,
        timing: Option<Arc<TimingCounter>>,
    ) -> Arc<Arena> {
        let name = name.into();
        let policy = Policy::new(options, space.granularity());
        let holding = Holding::new(ledger, &name, space);
        let state = Mutex::new(Inside { policy, holding });
        Arc::new(Arena { name, ledger: ledger.clone(), timing, state })
    }

    /// The arena's name, in which it reserves.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `bytes` for `node`, now or not at all.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn allocate(self: &Arc<Arena>, bytes: Bytes, node: impl Into<Arc<str>>) -> Result<Allocation, Exhausted> {
        self.allocate_with(Request::new(bytes, node))
    }

    /// As [`Arena::allocate`]; it may wait. Every allocation that ends, every move of the frontier, and whatever others give back
    /// in the ledger wakes it. A request that would not fit into an empty arena is not waited for.
    ///
    /// # Errors
    /// Where there is no room until the wait is over.
    pub fn allocate_with(self: &Arc<Arena>, request: Request<'_>) -> Result<Allocation, Exhausted> {
        let Request { bytes, node, wait, frontier } = request;
        if bytes == Bytes::ZERO {
            return Ok(Allocation { arena: self.clone(), start: Address::from_number(ROUNDING), chunk: None, bytes, allocated: bytes });
        }
        let mut ask = Ask { bytes: bytes.0, frontier: 0, owner: node };
        let mut inside = self.inside();
        let (mut deadline, mut listener) = (None, None);
        loop {
            let Inside { policy, holding, .. } = &mut *inside;
            ask.frontier = frontier.map_or(0, |frontier| frontier());
            let _of_the_try_before = holding.take_refusal();
            let mut placed = policy.allocate(&ask, holding);
            if placed.is_none() && holding.by_the_line() && decommit(policy, holding) > Bytes::ZERO {
                // The line had no more, but the arena had pages for nothing.
                placed = policy.allocate(&ask, holding);
            }
            if let Some(placed) = placed
                && let Some(start) = holding.address(&placed)
            {
                let (chunk, allocated) = (Some(placed.address), Bytes(placed.bytes));
                return Ok(Allocation { arena: self.clone(), start, chunk, bytes, allocated });
            }
            let now = Instant::now();
            let until = *deadline.get_or_insert_with(|| now.checked_add(wait).unwrap_or(now + FOREVER));
            if now >= until || !policy.possible(bytes.0) {
                let mut dump = Box::new(policy.dump(&self.name));
                dump.failed = Some(Failed { bytes, rounded: bytes.round_up(ROUNDING), owner: ask.owner.clone() });
                let (refused, waited) = (holding.take_refusal(), wait > Duration::ZERO && policy.possible(bytes.0));
                return Err(Exhausted { device: self.ledger.device().into(), node: ask.owner, asked: bytes, waited, refused, dump });
            }
            drop(inside);
            match &mut listener {
                // Once more, now that nothing is missed.
                None => listener = Some(self.ledger.listen()),
                Some(listener) => listener.wait(until),
            }
            inside = self.inside();
        }
    }

    /// Says that the device is done with everything up to, not including, this count of the arena's counter. It only moves
    /// forward.
    pub fn advance(&self, safe_frontier: u64) {
        let mut inside = self.inside();
        let is_changed = inside.policy.advance(safe_frontier);
        drop(inside);
        if is_changed {
            self.ledger.ring();
        }
    }

    /// Gives back regions without a chunk in use, and of other regions the whole pages inside free chunks. Returns the bytes given
    /// back. Pages come back, under the line, when their chunk is handed out.
    pub fn release_unused(&self) -> Bytes {
        let mut inside = self.inside();
        let before = inside.holding.reserved();
        let Inside { policy, holding, .. } = &mut *inside;
        policy.release_unused(holding);
        decommit(policy, holding);
        before - inside.holding.reserved()
    }

    /// The counts.
    pub fn stats(&self) -> Stats {
        self.inside().policy.stats()
    }

    /// Begins to count anew: no allocations, the peak is the present use, no largest.
    pub fn clear_stats(&self) {
        self.inside().policy.clear_stats();
    }

    /// Bytes that the arena has under the line: its regions without the pages that it gave back.
    pub fn reserved(&self) -> Bytes {
        self.inside().holding.reserved()
    }

    /// Everything there is to know at this moment.
    pub fn dump(&self) -> Dump {
        self.inside().policy.dump(&self.name)
    }

    /// A flaw of the arena's state, which never has one. For tests: it looks at everything.
    pub fn defect(&self) -> Option<String> {
        self.inside().policy.defect()
    }

    fn end(&self, address: u64) {
        // The counter is read under the lock: chunks are queued in the order of their ages.
        let mut inside = self.inside();
        let freed_at = self.timing.as_ref().map_or(0, |timing| timing.next());
        inside.policy.free(address, freed_at);
        drop(inside);
        self.ledger.ring();
    }

    /// A panic half-way through a change would be a broken invariant of the policy; there is nothing better than to go on.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives back the whole pages inside of free chunks.
fn decommit(policy: &Policy, holding: &mut Holding) -> Bytes {
    policy.idle().map(|chunk| holding.decommit(chunk.region, chunk.address..chunk.end())).sum()
}

/// A chunk of an arena; dropping it gives it back.
pub struct Allocation {
    arena: Arc<Arena>,
    start: Address,
    /// The policy's number for it; none where no bytes were asked for.
    chunk: Option<u64>,
    bytes: Bytes,
    allocated: Bytes,
}

impl Allocation {
    /// The first byte, aligned to 256. Not null, even where there are no bytes; then it is nowhere.
    pub fn address(&self) -> Address {
        self.start
    }

    /// Bytes asked for, all of which may be used.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Bytes of the chunk, with its padding.
    pub fn allocated(&self) -> Bytes {
        self.allocated
    }

    /// The arena.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {} at {:?}", self.bytes.0, self.arena.name, self.start)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk {
            self.arena.end(chunk);
        }
    }
}
