//! A signature, prepared: the hot path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Trace;
use plimsoll_graph::HostTensor;
use plimsoll_plan::Plan;

use crate::cancellation::Cancellation;
use crate::lane::Lane;
use crate::loaded::{Ends, Loaded};
use crate::profile::{Profile, Recorder};
use crate::session::Inner;
use crate::stats::RunMetadata;
use crate::times::Times;

/// A signature of a session with its plan. Cloning shares it; any number of threads may run it at once.
#[derive(Clone)]
pub struct Callable {
    session: Arc<Inner>,
    loaded: Arc<Loaded>,
    lane: Option<Lane>,
}

impl Callable {
    pub(crate) fn new(session: Arc<Inner>, loaded: Arc<Loaded>) -> Callable {
        Callable { session, loaded, lane: None }
    }

    pub(crate) fn session(&self) -> &Inner {
        &self.session
    }

    pub(crate) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The callable with its runs in a lane (see [`crate::Session::lane`]): one at a time, in memory that is kept for them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the lane was made for callables that take less.
    pub fn in_lane(&self, lane: &Lane) -> Result<Callable> {
        if !lane.fits(&self.loaded) {
            return Err(Error::invalid_argument("the lane has no room for this callable: name it when the lane is made"));
        }
        Ok(Callable { lane: Some(lane.clone()), ..self.clone() })
    }

    /// Times of no runs, for [`Callable::run_timed`].
    pub fn times(&self) -> Times {
        Times { busy: vec![Duration::ZERO; self.session.devices().all().len()], ..Times::default() }
    }

    /// The plan that it runs.
    pub fn plan(&self) -> &Plan {
        &self.loaded.plan
    }

    /// New tensors that fit the fetches, to be used again and again.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where they do not fit the address space.
    pub fn outputs(&self) -> Result<Vec<HostTensor>> {
        self.loaded.plan.fetches.iter().map(|fetch| HostTensor::zeros(fetch.data_type, fetch.shape.clone())).collect()
    }

    /// Runs once, into tensors that are there already (see [`Callable::outputs`]). After the first few runs nothing is
    /// allocated.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for feeds or fetches of another number, type or shape than the signature's. CANCELLED after the session was
    /// closed. FAILED_PRECONDITION for variables that were not initialised. RESOURCE_EXHAUSTED where the line has no room for
    /// another run. The error of a kernel, with its node.
    pub fn run_into(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<()> {
        self.run_with(feeds, fetches, None, None, None).map(drop)
    }

    /// As [`Callable::run_into`], until `cancellation` ends it.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; CANCELLED or DEADLINE_EXCEEDED where it was ended.
    pub fn run_until(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], cancellation: &Cancellation) -> Result<()> {
        self.run_with(feeds, fetches, None, None, Some(cancellation)).map(drop)
    }

    /// As [`Callable::run_into`], adding to `times` (see [`Callable::times`]) how the run spent its time.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; INVALID_ARGUMENT for times of a session with another number of devices.
    pub fn run_timed(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], times: &mut Times) -> Result<()> {
        if times.busy.len() != self.session.devices().all().len() {
            return Err(Error::invalid_argument("the times are not of this session"));
        }
        self.run_with(feeds, fetches, None, Some(times), None).map(drop)
    }

    /// As [`Callable::run_into`], and says what ran when on which device.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run_with_stats(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<RunMetadata> {
        let trace = Trace::new(self.plan().queues().iter().map(|queue| queue.program.commands.len()));
        let start = Instant::now();
        let trace = self.run_with(feeds, fetches, Some(trace), None, None)?;
        let elapsed = start.elapsed();
        let trace = trace.unwrap_or_else(|| Trace::new([]));
        Ok(RunMetadata::new(self.plan(), self.session.graph(), self.session.devices().specs(), &trace, elapsed))
    }

    /// Runs `runs` times (at least once) and says where the time went.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn profile(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], runs: u32) -> Result<Profile> {
        let mut recorder = Recorder::new(self.plan());
        for _ in 0..runs.max(1) {
            let start = Instant::now();
            let trace = self.run_with(feeds, fetches, Some(recorder.trace()), None, None)?;
            recorder.add(start.elapsed(), trace, self.plan(), self.session.devices().specs());
        }
        Ok(recorder.finish(self.plan(), self.session.graph()))
    }

    /// As [`Callable::run_into`]; gives the trace back.
    fn run_with(
        &self,
        feeds: &[&HostTensor],
        fetches: &mut [&mut HostTensor],
        trace: Option<Trace>,
        times: Option<&mut Times>,
        cancellation: Option<&Cancellation>,
    ) -> Result<Option<Trace>> {
        let plan = &self.loaded.plan;
        if feeds.len() != plan.feeds.len() {
            return Err(Error::invalid_argument(format!("Expected {} feed tensors, but got {}", plan.feeds.len(), feeds.len())));
        }
        if fetches.len() != plan.fetches.len() {
            return Err(Error::invalid_argument(format!("Expected {} fetch tensors, but got {}", plan.fetches.len(), fetches.len())));
        }
        for (feed, wanted) in feeds.iter().zip(&plan.feeds) {
            if feed.data_type() != wanted.data_type || *feed.shape() != wanted.shape {
                let (name, have) = (self.session.graph().tensor_name(wanted.tensor), (feed.data_type(), feed.shape()));
                return Err(Error::invalid_argument(format!(
                    "Type mismatch: actual {}{} vs. expect {}{} for {name}",
                    have.0, have.1, wanted.data_type, wanted.shape
                )));
            }
        }
        for (fetch, wanted) in fetches.iter_mut().zip(&plan.fetches) {
            if fetch.data_type() != wanted.data_type || *fetch.shape() != wanted.shape || fetch.bytes_mut().is_none() {
                return Err(Error::invalid_argument(format!(
                    "{} needs a tensor of type {} and shape {}",
                    wanted.name, wanted.data_type, wanted.shape
                )));
            }
        }
        let is_ready = |feed: &HostTensor| feed.bytes().is_some() || feed.data_type() == DataType::String;
        if feeds.iter().all(|feed| is_ready(feed)) {
            return self.run_dense(Ends { feeds, fetches, trace, times, cancellation });
        }
        let dense = |feed: &&HostTensor| if is_ready(feed) { Ok((*feed).clone()) } else { feed.dense() };
        let dense = feeds.iter().map(dense).collect::<Result<Vec<_>>>()?;
        let feeds: Vec<&HostTensor> = dense.iter().collect();
        self.run_dense(Ends { feeds: &feeds, fetches, trace, times, cancellation })
    }

    fn run_dense(&self, mut ends: Ends<'_, '_, '_>) -> Result<Option<Trace>> {
        self.session.run_loaded(&self.loaded, self.lane.as_ref(), &mut ends).map(|()| ends.trace)
    }

    /// Runs once, into new tensors.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run(&self, feeds: &[&HostTensor]) -> Result<Vec<HostTensor>> {
        let mut outputs = self.outputs()?;
        self.run_into(feeds, &mut outputs.iter_mut().collect::<Vec<_>>())?;
        Ok(outputs)
    }
}
