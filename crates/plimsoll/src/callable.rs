//! A signature, prepared: for loops where every microsecond counts.

use std::fmt;

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{HostTensor, Shape};

use crate::{Cancellation, Lane, Profile, RunMetadata, Times};

/// A signature of a session with its plan. Cloning shares it; any number of threads may run it at once.
#[derive(Clone)]
pub struct Callable(plimsoll_runtime::Callable);

impl Callable {
    pub(crate) fn of(inner: plimsoll_runtime::Callable) -> Callable {
        Callable(inner)
    }

    pub(crate) fn inner(&self) -> &plimsoll_runtime::Callable {
        &self.0
    }

    /// The callable with its runs in a lane (see [`crate::Session::lane`]): one at a time, in memory that is kept for them, as are its
    /// constants.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the lane was made for callables that take less. RESOURCE_EXHAUSTED where constants were given back for
    /// other runs and a line has no room for them. CANCELLED after the session was closed.
    pub fn in_lane(&self, lane: &Lane) -> Result<Callable> {
        self.0.in_lane(lane).map(Callable)
    }

    /// The callable with `cancellation` ending its runs.
    #[must_use]
    pub fn until(&self, cancellation: &Cancellation) -> Callable {
        Callable(self.0.until(cancellation))
    }

    /// Times of no runs, for [`Callable::run_timed`].
    pub fn times(&self) -> Times {
        self.0.times()
    }

    /// Types and shapes of the fed tensors, in order.
    pub fn feeds(&self) -> impl Iterator<Item = (DataType, &Shape)> {
        self.0.plan().sources()
    }

    /// Types and shapes of the fetched tensors, in order. Where only a run knows the shape, that of an empty vector.
    pub fn fetches(&self) -> impl Iterator<Item = (DataType, &Shape)> {
        self.0.fetches()
    }

    /// New tensors that fit the fetches, to be used again and again. Where only a run knows the shape, empty ones.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where they do not fit the address space.
    pub fn outputs(&self) -> Result<Vec<HostTensor>> {
        self.0.outputs()
    }

    /// Whether it runs in stages, the later ones planned with values of the run: see [`crate::Plan::stages`].
    pub fn is_in_stages(&self) -> bool {
        self.0.plan().later.is_some()
    }

    /// Runs once, into new tensors.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run(&self, feeds: &[&HostTensor]) -> Result<Vec<HostTensor>> {
        self.0.run(feeds)
    }

    /// Runs once, into tensors that are there already (see [`Callable::outputs`]). After the first few runs nothing is
    /// allocated. A run in stages puts new tensors in their place.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for feeds or fetches of another number, type or shape than the signature's; CANCELLED after the
    /// session was closed; FAILED_PRECONDITION for variables that were not initialised; RESOURCE_EXHAUSTED where the line
    /// has no room for another run; the error of a kernel, with its node.
    pub fn run_into(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<()> {
        self.0.run_into(feeds, fetches)
    }

    /// As [`Callable::run_into`], until `cancellation` ends it. No other cancellation does.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; CANCELLED or DEADLINE_EXCEEDED where it was ended.
    pub fn run_until(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], cancellation: &Cancellation) -> Result<()> {
        self.0.run_until(feeds, fetches, cancellation)
    }

    /// As [`Callable::run_into`], adding to `times` (see [`Callable::times`]) how the run spent its time.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; INVALID_ARGUMENT for times of a session with another number of devices.
    pub fn run_timed(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], times: &mut Times) -> Result<()> {
        self.0.run_timed(feeds, fetches, times)
    }

    /// As [`Callable::run_into`], and says what ran when on which device.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run_with_stats(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<RunMetadata> {
        self.0.run_with_stats(feeds, fetches)
    }

    /// Runs `runs` times (at least once) and says where the time went.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn profile(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], runs: u32) -> Result<Profile> {
        self.0.profile(feeds, fetches, runs)
    }
}

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Callable of {} feeds and {} fetches", self.feeds().count(), self.fetches().count())
    }
}
