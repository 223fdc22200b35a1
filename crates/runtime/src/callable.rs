//! A signature, prepared: the hot path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::Trace;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_plan::{Plan, Value};

use crate::cancellation::Cancellation;
use crate::grants::{Lane, Pinned};
use crate::loaded::Loaded;
use crate::profile::{Profile, Recorder};
use crate::run::{Done, How, Prepared};
use crate::session::{Inner, Staged};
use crate::stats::RunMetadata;
use crate::times::Times;

/// A signature of a session with its plan. Cloning shares it; any number of threads may run it at once.
#[derive(Clone)]
pub struct Callable {
    session: Arc<Inner>,
    loaded: Arc<Loaded>,
    lane: Option<Lane>,
    /// Constants that stay for runs in the lane.
    _pinned: Option<Arc<Pinned>>,
    cancellation: Option<Cancellation>,
}

impl Callable {
    pub(crate) fn new(session: Arc<Inner>, loaded: Arc<Loaded>, cancellation: Option<Cancellation>) -> Callable {
        Callable { session, loaded, lane: None, _pinned: None, cancellation }
    }

    pub(crate) fn session(&self) -> &Inner {
        &self.session
    }

    pub(crate) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The callable with its runs in a lane (see [`crate::Session::lane`]): one at a time, in memory that is kept for them, as are its
    /// constants.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the lane was made for callables that take less. RESOURCE_EXHAUSTED where constants were given back for
    /// other runs and a line has no room for them. CANCELLED after the session was closed.
    pub fn in_lane(&self, lane: &Lane) -> Result<Callable> {
        if self.plan().later.is_some() {
            return Err(Error::unimplemented("not yet: a lane for runs in stages"));
        }
        if !lane.fits(&self.loaded) {
            return Err(Error::invalid_argument("the lane has no room for this callable: name it when the lane is made"));
        }
        let pinned = self.session.grants().pin(&self.loaded, self.cancellation.as_ref())?;
        Ok(Callable { lane: Some(lane.clone()), _pinned: Some(Arc::new(pinned)), ..self.clone() })
    }

    /// The callable with `cancellation` ending its runs.
    #[must_use]
    pub fn until(&self, cancellation: &Cancellation) -> Callable {
        Callable { cancellation: Some(cancellation.clone()), ..self.clone() }
    }

    /// Times of no runs, for [`Callable::run_timed`].
    pub fn times(&self) -> Times {
        Times { busy: vec![Duration::ZERO; self.session.devices().all().len()], ..Times::default() }
    }

    /// The plan that it runs.
    pub fn plan(&self) -> &Plan {
        &self.loaded.plan
    }

    /// New tensors that fit the fetches, to be used again and again. Where only a run knows the shape, an empty vector.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where they do not fit the address space.
    pub fn outputs(&self) -> Result<Vec<HostTensor>> {
        self.fetches().map(|(data_type, shape)| HostTensor::zeros(data_type, shape.clone())).collect()
    }

    /// Types and shapes of the fetched tensors, in order: see [`Callable::outputs`].
    pub fn fetches(&self) -> impl Iterator<Item = (DataType, &Shape)> {
        self.plan().results().map(|(_, data_type, shape)| (data_type, shape))
    }

    /// Runs once, into tensors that are there already (see [`Callable::outputs`]). After the first few runs nothing is
    /// allocated. A run in stages (see [`plimsoll_plan::Later`]) puts new tensors in their place.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for feeds or fetches of another number, type or shape than the signature's. CANCELLED after the session was
    /// closed. FAILED_PRECONDITION for variables that were not initialised. RESOURCE_EXHAUSTED where the line has no room for
    /// another run. The error of a kernel, with its node.
    pub fn run_into(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<()> {
        self.run_with(feeds, fetches, How::default()).map(drop)
    }

    /// As [`Callable::run_into`], until `cancellation` ends it. No other cancellation does.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; CANCELLED or DEADLINE_EXCEEDED where it was ended.
    pub fn run_until(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], cancellation: &Cancellation) -> Result<()> {
        self.run_with(feeds, fetches, How { cancellation: Some(cancellation), ..How::default() }).map(drop)
    }

    /// As [`Callable::run_into`], adding to `times` (see [`Callable::times`]) how the run spent its time.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; INVALID_ARGUMENT for times of a session with another number of devices.
    pub fn run_timed(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], times: &mut Times) -> Result<()> {
        if times.busy.len() != self.session.devices().all().len() {
            return Err(Error::invalid_argument("the times are not of this session"));
        }
        self.run_with(feeds, fetches, How { times: Some(times), ..How::default() }).map(drop)
    }

    /// As [`Callable::run_into`], and says what ran when on which device.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run_with_stats(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor]) -> Result<RunMetadata> {
        if self.plan().later.is_some() {
            let (made, stages) = self.run_stages(feeds, How::default(), true)?;
            put(made, fetches)?;
            return RunMetadata::of_stages(stages).ok_or_else(|| Error::internal("a run without stages"));
        }
        let trace = Trace::new(self.plan().queues.iter().map(|queue| queue.program.commands.len()));
        let start = Instant::now();
        let done = self.run_with(feeds, fetches, How { trace: Some(trace), ..How::default() })?;
        let elapsed = start.elapsed();
        let trace = done.trace.unwrap_or_else(|| Trace::new([]));
        Ok(RunMetadata::new(self.plan(), self.session.graph(), self.session.devices().specs(), &trace, elapsed))
    }

    /// Runs `runs` times (at least once) and says where the time went.
    ///
    /// # Errors
    /// As [`Callable::run_into`]; UNIMPLEMENTED for runs in stages.
    pub fn profile(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], runs: u32) -> Result<Profile> {
        if self.plan().later.is_some() {
            return Err(Error::unimplemented("not yet: a profile of runs in stages"));
        }
        let mut recorder = Recorder::new(self.plan());
        for _ in 0..runs.max(1) {
            let start = Instant::now();
            let done = self.run_with(feeds, fetches, How { trace: Some(recorder.trace()), ..How::default() })?;
            recorder.add(start.elapsed(), done.trace, self.plan(), self.session.devices().specs());
        }
        Ok(recorder.finish(self.plan(), self.session.graph(), self.session.devices().specs()))
    }

    /// As [`Callable::run_into`], to its end.
    fn run_with(&self, feeds: &[&HostTensor], fetches: &mut [&mut HostTensor], how: How<'_>) -> Result<Done> {
        let how = How { cancellation: how.cancellation.or(self.cancellation.as_ref()), ..how };
        if self.plan().later.is_some() {
            put(self.run_stages(feeds, how, false)?.0, fetches)?;
            return Ok(Done { trace: None });
        }
        Prepared::new(&self.session, &self.loaded, self.lane.as_ref(), feeds, fetches, how)?.admit()?.start()?.finish()
    }

    /// A run in stages: what it fetches, and its records, where they are wanted.
    fn run_stages(&self, feeds: &[&HostTensor], how: How<'_>, is_traced: bool) -> Result<(Vec<HostTensor>, Vec<RunMetadata>)> {
        let cancellation = how.cancellation.or(self.cancellation.as_ref());
        let mut how = Staged { cancellation, times: how.times, records: is_traced.then(Vec::new) };
        let feeds: Vec<Value> = feeds.iter().map(|feed| Value::from((*feed).clone())).collect();
        let made = self.session.run_stages(self.loaded.clone(), &feeds.iter().collect::<Vec<_>>(), &mut how)?;
        Ok((made.into_iter().map(|value| value.tensor).collect(), how.records.unwrap_or_default()))
    }

    /// Runs once, into new tensors.
    ///
    /// # Errors
    /// As [`Callable::run_into`].
    pub fn run(&self, feeds: &[&HostTensor]) -> Result<Vec<HostTensor>> {
        let mut outputs = self.outputs()?;
        self.run_with(feeds, &mut outputs.iter_mut().collect::<Vec<_>>(), How::default())?;
        Ok(outputs)
    }
}

/// Puts new tensors in the place of others.
///
/// # Errors
/// INVALID_ARGUMENT where there is another number of them.
fn put(made: Vec<HostTensor>, fetches: &mut [&mut HostTensor]) -> Result<()> {
    if made.len() != fetches.len() {
        return Err(Error::invalid_argument(format!("Expected {} fetch tensors, but got {}", made.len(), fetches.len())));
    }
    fetches.iter_mut().zip(made).for_each(|(fetch, made)| **fetch = made);
    Ok(())
}
