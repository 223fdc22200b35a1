//! Grants: the variables, the memory and the turn of a run.
//!
//! [`Grants::admit`] grants a run everything at once, or nothing. A run that finds no room waits for its turn behind the runs of
//! all sessions of the devices. A waiting run holds neither variables nor memory, so that runs under way come to their end.
//!
//! # The order of locks
//!
//! A thread takes locks in this order only. The locks of one line are never held together.
//!
//! 1. `Session::loading`, while a plan is loaded; then `Session::planning`, while one is made;
//! 2. the variables of a run ([`Accesses`]; a wait, not a mutex);
//! 3. the memory of a lane ([`Lane::memory`]); the list of lanes;
//! 4. the plans of a session (`crate::plans`); the nodes placed before;
//! 5. the storage of variables (`crate::variables`);
//! 6. contexts of a loaded plan; idle arenas of a device; the list of plans with constants; the constants of a plan;
//! 7. the constants of a device that plans share;
//! 8. the memory ledger of a device, and of the machine behind it;
//! 9. the states of [`Turns`], [`Accesses`], [`Idle`], [`Asking`](crate::cancellation::Asking) and a cancellation, each for a
//!    moment.

mod access;
mod arenas;
mod constants;
mod idle;
mod kept;
mod lane;
mod turns;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::Run;
use plimsoll_graph::Graph;
use plimsoll_memory::Address;

pub(crate) use access::{Access, AccessRequest, Granted};
pub(crate) use arenas::Arenas;
pub(crate) use constants::{Constants, Pinned, PlanConstants, Used};
pub(crate) use idle::Idle;
pub use lane::Lane;
pub(crate) use turns::Turns;

use crate::Devices;
use crate::cancellation::Cancellation;
use crate::loaded::{Context, Loaded};
use access::Accesses;
use kept::{Kept, UnderWay};
use lane::{Memory, WeakLane};
use turns::Attempt;

/// The grants of one session.
pub(crate) struct Grants {
    devices: Devices,
    accesses: Accesses,
    kept: Arc<Kept>,
    lanes: Mutex<Vec<WeakLane>>,
    closed: AtomicBool,
}

impl Grants {
    /// Those of a new session.
    pub fn new(devices: &Devices, holder: &str) -> Grants {
        let kept = Arc::new(Kept::new(devices.all(), holder));
        devices.idle().register(&kept);
        let (accesses, lanes, closed) = (Accesses::default(), Mutex::default(), AtomicBool::new(false));
        Grants { devices: devices.clone(), accesses, kept, lanes, closed }
    }

    /// The memory that the session keeps between two runs.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Waits for the variables and the memory of a run. The session's variables have storage.
    ///
    /// # Errors
    /// CANCELLED after the session was closed, or the error of `cancellation`. FAILED_PRECONDITION for variables that were not
    /// initialised. RESOURCE_EXHAUSTED where the line has no room even if no other run is under way.
    pub fn admit<'a>(
        &'a self,
        loaded: &'a Loaded,
        lane: Option<&'a Lane>,
        graph: &Graph,
        cancellation: Option<&Cancellation>,
    ) -> Result<Held<'a>> {
        let turns = self.devices.turns();
        let attempt = || self.attempt(loaded, lane, graph, cancellation).unwrap_or_else(|error| Attempt::Over(Err(error)));
        if lane.is_some() || turns.is_free() {
            let attempt = attempt();
            match attempt {
                Attempt::Over(Ok(held)) => return Ok(held),
                Attempt::Over(Err(error)) => {
                    turns.ended();
                    return Err(error);
                }
                Attempt::NoRoom(_) => turns.ended(),
            }
        }
        turns.wait(self.devices.idle(), cancellation, attempt)
    }

    /// One attempt to grant everything.
    fn attempt<'a>(
        &'a self,
        loaded: &'a Loaded,
        lane: Option<&'a Lane>,
        graph: &Graph,
        cancellation: Option<&Cancellation>,
    ) -> Result<Attempt<Held<'a>>> {
        self.check_open()?;
        if let Some(error) = cancellation.and_then(Cancellation::error) {
            return Err(error);
        }
        let granted = self.accesses.take_until(&loaded.request, cancellation)?;
        self.check_open()?;
        let room = match lane {
            Some(lane) => {
                let memory = lane.memory(cancellation)?;
                if memory.is_none() {
                    return Err(closed());
                }
                Room::Lane(memory)
            }
            None => Room::Shared(self.kept.under_way()),
        };
        loaded.check_initialized(graph)?;
        let mut context = loaded.context();
        let reserved = {
            let _asked = cancellation.map(|cancellation| self.devices.asking().until(cancellation));
            let reserved = match &room {
                Room::Lane(_) => Ok(()),
                Room::Shared(_) => loaded.reserve(&mut context, &self.kept.arenas),
            };
            reserved.and_then(|()| loaded.bind_constants(&mut context, cancellation))
        };
        let arenas = &self.kept.arenas;
        let mut held = Held { loaded, context: Some(context), arenas, room, constants: None, _granted: granted, ended: Ended(None) };
        match reserved {
            Ok(constants) => {
                held.constants = Some(constants);
                held.ended = Ended(Some(self));
                Ok(Attempt::Over(Ok(held)))
            }
            // A wait for memory that other programs hold may have been cancelled.
            Err(error) => match cancellation.and_then(Cancellation::error) {
                Some(error) => Err(error),
                None if error.is_no_room() => Ok(Attempt::NoRoom(error)),
                None => Err(error),
            },
        }
    }

    /// Takes memory that stays. Where there is no room, waits for runs that are under way, and has idle memory given back.
    ///
    /// # Errors
    /// The last error of `take`; the error of `cancellation`.
    pub fn make_room<R>(&self, mut take: impl FnMut() -> Result<R>, cancellation: Option<&Cancellation>) -> Result<R> {
        let turns = self.devices.turns();
        let _asked = cancellation.map(|cancellation| self.devices.asking().until(cancellation));
        let ended = || cancellation.and_then(Cancellation::error);
        let mut attempt = || match ended() {
            Some(error) => Attempt::Over(Err(error)),
            None => Attempt::of(take().map_err(|error| ended().unwrap_or(error))),
        };
        if turns.is_free()
            && let Attempt::Over(result) = attempt()
        {
            return result;
        }
        turns.wait(self.devices.idle(), cancellation, attempt)
    }

    /// Waits for variables, for something else than a run.
    pub fn variables<'a>(&'a self, request: &'a AccessRequest) -> Granted<'a> {
        self.accesses.take(request)
    }

    /// Keeps memory for the runs of these plans.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; the error of `cancellation`.
    pub fn lane(&self, plans: &[&Loaded], holder: &str, cancellation: Option<&Cancellation>) -> Result<Lane> {
        let lane = self.make_room(|| Lane::new(plans, self.devices.all(), holder), cancellation)?;
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.upgrade().is_some());
        lanes.push(lane.downgrade());
        Ok(lane)
    }

    /// Keeps the constants of a plan on their devices.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where a line has no room; the error of `cancellation`; CANCELLED after the session was closed.
    pub fn pin(&self, loaded: &Loaded, cancellation: Option<&Cancellation>) -> Result<Pinned> {
        self.make_room(|| loaded.constants().pin(cancellation), cancellation)
    }

    /// # Errors
    /// CANCELLED after the session was closed.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Grants nothing from now on, and gives everything back after the runs under way. `variables` gives back their storage.
    pub fn close(&self, variables: impl FnOnce()) {
        self.closed.store(true, Ordering::Release);
        let _alone = self.accesses.take(&AccessRequest::All);
        self.kept.plans.clear();
        self.kept.constants.close();
        variables();
        self.kept.arenas.clear();
        self.kept.set_limit(None);
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        lanes.iter().filter_map(WeakLane::upgrade).for_each(|lane| lane.empty());
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        // Now, and not when another thread that looks at it lets go.
        self.kept.arenas.clear();
        self.kept.plans.clear();
        self.kept.constants.close();
    }
}

/// The grants of a run; given back when dropped, the variables last.
pub(crate) struct Held<'a> {
    loaded: &'a Loaded,
    context: Option<Context>,
    arenas: &'a Arenas,
    room: Room<'a>,
    constants: Option<Used<'a>>,
    _granted: Granted<'a>,
    ended: Ended<'a>,
}

/// Where the memory of a run comes from.
enum Room<'a> {
    /// From the arenas that the session's runs share.
    Shared(#[allow(dead_code, reason = "counts the run as under way while it lives")] UnderWay<'a>),
    /// From a lane.
    Lane(MutexGuard<'a, Option<Memory>>),
}

impl Held<'_> {
    /// The context of the run.
    ///
    /// # Errors
    /// INTERNAL where it was given back.
    pub fn context(&mut self) -> Result<&mut Context> {
        self.context.as_mut().ok_or_else(|| Error::internal("a run without a context"))
    }

    /// The context of the run, with its arenas bound.
    ///
    /// # Errors
    /// As [`Held::context`].
    pub fn bound(&mut self) -> Result<&mut Context> {
        let context = self.context.as_mut().ok_or_else(|| Error::internal("a run without a context"))?;
        let bindings = &mut Run::alone(&mut context.run).bindings;
        match &self.room {
            Room::Shared(_) => context.blocks.iter().for_each(|(device, block)| bindings.arenas[*device] = block.address()),
            Room::Lane(memory) => {
                let address = |device| memory.as_ref().map_or(Address::NULL, |memory| memory.arena(device));
                self.loaded.arenas().iter().for_each(|(device, _)| bindings.arenas[*device] = address(*device));
            }
        }
        Ok(context)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(mut context) = self.context.take() else { return };
        self.constants = None;
        if let Room::Shared(_) = self.room {
            context.blocks.drain(..).for_each(|(device, block)| self.arenas.put(device, block));
            // Less is always granted.
            let _ = context.ends.set(Bytes::ZERO);
        }
        self.loaded.put_back(context);
    }
}

/// Tells the runs that wait that one has ended, when the grants of that one are given back.
struct Ended<'a>(Option<&'a Grants>);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(grants) = self.0 {
            grants.kept.ran();
            grants.devices.turns().ended();
        }
    }
}

fn closed() -> Error {
    Error::cancelled("Session has been closed.")
}
