//! One run as a value: its type says how far it is.
//!
//! [`Prepared`] is a loaded plan with feeds and fetches that fit it. [`Admitted`] has its variables and its memory. [`Running`] is
//! with the devices. [`Done`] is over. Each state is made from the one before. A state that is dropped gives its grants back.
//!
//! Feeds pass six functions between the facade's `Session::run` and [`Executable::submit`](plimsoll_device::Executable::submit):
//! `Session::run`, `Callable::run`, `Callable::run_with`, [`Prepared::new`], [`Prepared::admit`] and [`Admitted::start`].

use std::sync::Arc;
use std::time::Instant;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{Device, Run, Trace};
use plimsoll_graph::HostTensor;
use plimsoll_memory::Address;

use crate::cancellation::{Cancellation, Watched};
use crate::grants::{Held, Lane};
use crate::loaded::Loaded;
use crate::session::Inner;
use crate::times::Times;

/// The trace and the times of a run, and its cancellation.
#[derive(Default)]
pub(crate) struct How<'a> {
    /// Where to write down when commands ran.
    pub trace: Option<Trace>,
    /// Where to add how the time was spent.
    pub times: Option<&'a mut Times>,
    /// The handle that may end the run early.
    pub cancellation: Option<&'a Cancellation>,
}

/// A run with its feeds and fetches, and nothing of the devices.
pub(crate) struct Prepared<'a, 'f, 't> {
    session: &'a Inner,
    loaded: &'a Loaded,
    lane: Option<&'a Lane>,
    feeds: Feeds<'a, 'f>,
    fetches: &'a mut [&'t mut HostTensor],
    how: How<'a>,
}

/// Fed tensors, with all their elements in memory.
enum Feeds<'a, 'f> {
    Given(&'a [&'f HostTensor]),
    Dense(Vec<HostTensor>),
}

impl Feeds<'_, '_> {
    fn get(&self, index: usize) -> Option<&HostTensor> {
        match self {
            Feeds::Given(feeds) => feeds.get(index).copied(),
            Feeds::Dense(feeds) => feeds.get(index),
        }
    }
}

impl<'a, 'f, 't> Prepared<'a, 'f, 't> {
    /// A run of the plan.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for feeds or fetches of another number, type or shape than the plan's.
    pub fn new(
        session: &'a Inner,
        loaded: &'a Loaded,
        lane: Option<&'a Lane>,
        feeds: &'a [&'f HostTensor],
        fetches: &'a mut [&'t mut HostTensor],
        how: How<'a>,
    ) -> Result<Prepared<'a, 'f, 't>> {
        let plan = &loaded.plan;
        if feeds.len() != plan.feeds.len() {
            return Err(Error::invalid_argument(format!("Expected {} feed tensors, but got {}", plan.feeds.len(), feeds.len())));
        }
        if fetches.len() != plan.fetches.len() {
            return Err(Error::invalid_argument(format!("Expected {} fetch tensors, but got {}", plan.fetches.len(), fetches.len())));
        }
        for (feed, wanted) in feeds.iter().zip(&plan.feeds) {
            if feed.data_type() != wanted.data_type || *feed.shape() != wanted.shape {
                let (name, have) = (session.graph().tensor_name(wanted.tensor), (feed.data_type(), feed.shape()));
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
        let dense = |feed: &&HostTensor| if is_ready(feed) { Ok((*feed).clone()) } else { feed.dense() };
        let feeds = match feeds.iter().all(|feed| is_ready(feed)) {
            true => Feeds::Given(feeds),
            false => Feeds::Dense(feeds.iter().map(dense).collect::<Result<_>>()?),
        };
        Ok(Prepared { session, loaded, lane, feeds, fetches, how })
    }

    /// Waits for the run's variables and memory.
    ///
    /// # Errors
    /// As [`crate::grants::Grants::admit`].
    pub fn admit(mut self) -> Result<Admitted<'a, 'f, 't>> {
        let asked = self.how.times.is_some().then(Instant::now);
        let held = loop {
            self.session.refresh(self.loaded, self.how.cancellation)?;
            match self.session.grants().admit(self.loaded, self.lane, self.session.graph(), self.how.cancellation) {
                // Another thread has changed a variable meanwhile.
                Err(_) if self.loaded.is_stale() => {}
                result => break result?,
            }
        };
        if let (Some(times), Some(asked)) = (&mut self.how.times, asked) {
            times.waiting += asked.elapsed();
        }
        Ok(Admitted { prepared: self, held })
    }
}

/// A run that has its variables and its memory.
pub(crate) struct Admitted<'a, 'f, 't> {
    prepared: Prepared<'a, 'f, 't>,
    held: Held<'a>,
}

impl<'a, 'f, 't> Admitted<'a, 'f, 't> {
    /// Gives every queue to its device.
    ///
    /// # Errors
    /// The error of the cancellation: nothing has run then.
    pub fn start(self) -> Result<Running<'a, 'f, 't>> {
        let Admitted { mut prepared, mut held } = self;
        let loaded = prepared.loaded;
        let context = held.bound()?;
        let run = Run::alone(&mut context.run);
        for (index, address) in run.bindings.feeds.iter_mut().enumerate() {
            let feed = prepared.feeds.get(index).ok_or_else(|| Error::internal("a plan with more feeds than its signature"))?;
            // Elements that the plan knows (strings are only known that way) are not read.
            if feed.data_type() != DataType::String {
                let bytes = feed.bytes().ok_or_else(|| Error::internal("a feed is not dense"))?;
                *address = Address::new(bytes.as_ptr().cast_mut());
            }
        }
        for (address, fetch) in run.bindings.fetches.iter_mut().zip(prepared.fetches.iter_mut()) {
            let bytes = fetch.bytes_mut().ok_or_else(|| Error::internal("a fetch is not dense"))?;
            *address = Address::new(bytes.as_mut_ptr());
        }
        run.trace = prepared.how.trace.take();
        run.is_timed = prepared.how.times.is_some();
        let since = run.begins();
        run.restart();
        let run = context.run.clone();
        let watched = prepared.how.cancellation.map(|cancellation| cancellation.watch(&run)).transpose()?;
        let submitted = Submitted { driver: loaded.driver(), run: Some(run) };
        loaded.executables().iter().for_each(|executable| executable.submit(&context.run));
        Ok(Running { submitted, watched, prepared, held, since })
    }
}

/// A run that the devices have.
pub(crate) struct Running<'a, 'f, 't> {
    /// First: buffers stay until the devices are done with the run.
    submitted: Submitted<'a>,
    watched: Option<Watched<'a>>,
    prepared: Prepared<'a, 'f, 't>,
    held: Held<'a>,
    since: Option<Instant>,
}

/// Queues that devices have. When dropped, they are over.
struct Submitted<'a> {
    driver: &'a dyn Device,
    run: Option<Arc<Run>>,
}

impl Submitted<'_> {
    /// Lends the thread to the run until it is over.
    fn drive(&mut self) {
        if let Some(run) = self.run.take()
            && !run.queues.is_empty()
        {
            self.driver.drive(&run);
        }
    }
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.give_up();
        }
        self.drive();
    }
}

impl Running<'_, '_, '_> {
    /// Lends the thread to the run until it is over, and gives its grants back.
    ///
    /// # Errors
    /// The error of the operation that failed; the error of the cancellation.
    pub fn finish(self) -> Result<Done> {
        let Running { mut submitted, watched, mut prepared, mut held, since } = self;
        submitted.drive();
        drop((submitted, watched));
        let context = held.context()?;
        if let (Some(times), Some(since)) = (&mut prepared.how.times, since) {
            prepared.loaded.note(times, since, &context.run);
        }
        let trace = if context.run.trace.is_some() { Run::alone(&mut context.run).trace.take() } else { None };
        match prepared.loaded.end(context)? {
            true => Ok(Done { trace }),
            false => Err(prepared.how.cancellation.and_then(Cancellation::error).unwrap_or_else(|| Error::internal("a run gave up"))),
        }
    }
}

/// A run that is over.
pub(crate) struct Done {
    /// When commands ran, where that was asked for.
    pub trace: Option<Trace>,
}
