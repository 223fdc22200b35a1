//! Workers that stay for the next call.
//!
//! Each worker has a thread here that gives it one call at a time. A call of which the worker never said that it began is given to
//! another one. Any other is answered, whatever happened, and never run again.

mod driver;
mod job;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_base::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::isolate::{BoxError, Cause, Death, Key, Outcome, Report, Workers};
use crate::lease::Lease;
use crate::wire::Channel;
use driver::Driver;
use job::Job;

/// The answer of a call.
pub type Answer<O> = Result<Outcome<O>, Death>;

/// Processes that are ready for the next call, each under a lease of its own, a shared one or none.
///
/// One that dies is replaced, and so is one that keeps memory after a call: of a card, or of its own more than
/// [`Workers::keep`]. Dropping the pool ends them all; calls that have no answer yet get [`Cause::Cancelled`].
pub struct Pool {
    workers: Workers,
    shared: Arc<Shared>,
    drivers: Vec<JoinHandle<()>>,
}

/// How the workers of a pool have fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes started, those that replaced others among them.
    pub started: u64,
    /// Ended during a call, by whatever.
    pub died: u64,
    /// Replaced because they kept memory.
    pub recycled: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
    counts: Counts,
    /// For each driver its worker's process, and a handle that ends it.
    running: Vec<Option<(u32, Channel)>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    /// So many workers without a lease. They start at once.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for none; RESOURCE_EXHAUSTED where the system has no thread. A worker that cannot be started is told by
    /// the calls that it would have run.
    pub fn pool(&self, size: usize) -> Result<Pool> {
        Pool::new(self, vec![None; size])
    }

    /// A worker under each of the leases; the same one may be there several times. They are kept until the pool is dropped.
    ///
    /// # Errors
    /// As [`Workers::pool`].
    pub fn pool_under(&self, leases: impl IntoIterator<Item = Arc<Lease>>) -> Result<Pool> {
        Pool::new(self, leases.into_iter().map(Some).collect())
    }
}

impl Pool {
    fn new(workers: &Workers, leases: Vec<Option<Arc<Lease>>>) -> Result<Pool> {
        if leases.is_empty() {
            return Err(Error::invalid_argument("a pool has one worker at least"));
        }
        let shared = Arc::new(Shared::default());
        shared.state().running.resize_with(leases.len(), || None);
        let mut pool = Pool { workers: workers.clone(), shared, drivers: Vec::new() };
        for (place, lease) in leases.into_iter().enumerate() {
            let driver = Driver::new(&pool.shared, place, workers.settings.clone(), lease);
            let thread = std::thread::Builder::new().name(format!("plimsoll-pool-{place}")).spawn(move || driver.run());
            pool.drivers.push(thread.map_err(|error| Error::resource_exhausted(format!("no thread for a worker: {error}")))?);
        }
        Ok(pool)
    }

    /// How many workers it has.
    pub fn size(&self) -> usize {
        self.drivers.len()
    }

    /// The processes of the workers that there are now.
    pub fn pids(&self) -> Vec<u32> {
        self.shared.state().running.iter().flatten().map(|(pid, _)| *pid).collect()
    }

    /// How they have fared.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// Has a function of the table run with an input by the next worker that is free: first come, first served.
    pub fn submit<F, I, O, E>(&self, function: F, input: I) -> Handle<O>
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: Serialize,
        O: DeserializeOwned + Send + 'static,
        E: Into<BoxError>,
    {
        let (sender, receiver) = channel();
        self.add(function, &input, move |answer| {
            let _ = sender.send(answer);
        });
        Handle { function: Key::of::<F>().name, receiver }
    }

    /// Has a function run with each of the inputs. The answers come in their order.
    pub fn map<F, I, O, E>(&self, function: F, inputs: impl IntoIterator<Item = I>) -> InOrder<O>
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: Serialize,
        O: DeserializeOwned + Send + 'static,
        E: Into<BoxError>,
    {
        let handles: Vec<Handle<O>> = inputs.into_iter().map(|input| self.submit(function, input)).collect();
        InOrder(handles.into_iter())
    }

    /// Has a function run with each of the inputs. The answers come as they are there, each with its input's number.
    pub fn as_completed<F, I, O, E>(&self, function: F, inputs: impl IntoIterator<Item = I>) -> AsCompleted<O>
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: Serialize,
        O: DeserializeOwned + Send + 'static,
        E: Into<BoxError>,
    {
        let (sender, receiver) = channel();
        for (number, input) in inputs.into_iter().enumerate() {
            let sender = sender.clone();
            self.add(function, &input, move |answer| {
                let _ = sender.send((number, answer));
            });
        }
        AsCompleted(receiver.into_iter())
    }

    fn add<F, I, O, E>(&self, _: F, input: &I, done: impl FnOnce(Answer<O>) + Send + 'static)
    where
        F: Fn(I) -> Result<O, E> + Copy + Send + Sync + 'static,
        I: Serialize,
        O: DeserializeOwned + Send + 'static,
    {
        let key = Key::of::<F>();
        let input = match self.workers.message(&key, input) {
            Ok(input) => input,
            Err(cause) => return done(Err(Death::new(cause, key.name, String::new(), Report::default()))),
        };
        let mut state = self.shared.state();
        state.jobs.push_back(Job::new(key, input, done));
        drop(state);
        self.shared.more.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        state.running.iter().flatten().for_each(|(_, connection)| connection.close());
        drop(state);
        self.shared.more.notify_all();
        jobs.into_iter().for_each(|job| job.fail(Cause::Cancelled, String::new(), Report::default()));
        for driver in self.drivers.drain(..) {
            let _ = driver.join();
        }
    }
}

/// The answers of [`Pool::map`], each waited for.
#[derive(Debug)]
pub struct InOrder<O>(std::vec::IntoIter<Handle<O>>);

impl<O> Iterator for InOrder<O> {
    type Item = Answer<O>;

    fn next(&mut self) -> Option<Answer<O>> {
        self.0.next().map(Handle::wait)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// The answers of [`Pool::as_completed`], each with its input's number.
#[derive(Debug)]
pub struct AsCompleted<O>(std::sync::mpsc::IntoIter<(usize, Answer<O>)>);

impl<O> Iterator for AsCompleted<O> {
    type Item = (usize, Answer<O>);

    fn next(&mut self) -> Option<(usize, Answer<O>)> {
        self.0.next()
    }
}

/// A call that was submitted.
#[derive(Debug)]
pub struct Handle<O> {
    function: String,
    receiver: Receiver<Answer<O>>,
}

impl<O> Handle<O> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The death, in place of a result.
    pub fn wait(self) -> Answer<O> {
        self.receiver.recv().unwrap_or_else(|_| Err(self.lost()))
    }

    /// Waits for the answer for some time, or gives the handle back.
    ///
    /// # Errors
    /// The handle, where there is no answer yet.
    pub fn wait_timeout(self, at_most: Duration) -> Result<Answer<O>, Handle<O>> {
        match self.receiver.recv_timeout(at_most) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(self.lost())),
        }
    }

    fn lost(&self) -> Death {
        Death::new(Cause::Cancelled, self.function.as_str(), String::new(), Report::default())
    }
}
