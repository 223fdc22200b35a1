//! The thread of a worker.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use plimsoll_base::Bytes;

use super::Shared;
use super::job::Job;
use crate::isolate::{Cause, Look, Process, Report, Settings};
use crate::lease::Lease;

/// A call is given up after so many workers that end before they begin it, or do not come to be.
const TRIES: u32 = 5;

/// Keeps one worker alive, and gives it calls.
pub(super) struct Driver {
    shared: Arc<Shared>,
    place: usize,
    settings: Settings,
    lease: Option<Arc<Lease>>,
    look: Look,
}

impl Driver {
    pub fn new(shared: &Arc<Shared>, place: usize, settings: Settings, lease: Option<Arc<Lease>>) -> Driver {
        let look = Look::at(lease.as_deref());
        Driver { shared: Arc::clone(shared), place, settings, lease, look }
    }

    pub fn run(self) {
        // Before the first call, so that it is warm; why it failed is told when there is a call for it.
        let mut process = self.start().ok();
        while let Some(job) = self.next() {
            // One that has ended while it was idle is replaced before anything is asked of it.
            process = process.filter(|process| !process.has_ended());
            process = match process.map_or_else(|| self.start(), Ok) {
                Ok(process) => self.call(process, job),
                Err(cause) => {
                    self.again(job, cause);
                    None
                }
            };
            if process.is_none() && !self.shared.state().closed {
                process = self.start().ok();
            }
        }
        self.forget();
    }

    /// The next call; none where the pool is dropped.
    fn next(&self) -> Option<Job> {
        let state = self.shared.state();
        let wait = self.shared.more.wait_while(state, |state| state.jobs.is_empty() && !state.closed);
        wait.unwrap_or_else(PoisonError::into_inner).jobs.pop_front()
    }

    fn start(&self) -> Result<Process, Cause> {
        let process = Process::start(&self.settings, self.lease.as_deref())?;
        let handle = process.handle().map_err(|error| Cause::Start { message: error.to_string() })?;
        let mut state = self.shared.state();
        if state.closed {
            return Err(Cause::Cancelled);
        }
        state.counts.started += 1;
        state.running[self.place] = Some((process.pid(), handle));
        Ok(process)
    }

    fn forget(&self) {
        self.shared.state().running[self.place] = None;
    }

    /// Has a worker run a call, and gives the worker back if it is as good as before.
    fn call(&self, mut process: Process, job: Job) -> Option<Process> {
        let begin = Instant::now();
        let (pid, supervisor) = (process.pid(), process.supervisor());
        let before = self.look.reserved(Some(supervisor));
        let called = process.call(&job.key, &job.input, self.settings.timeout);
        let (baseline, resident) = (Bytes(process.baseline), Bytes(process.resident));
        let report = |resident: Bytes, ended: bool| {
            let after = if ended { self.look.settled(Some(supervisor), &before) } else { self.look.reserved(Some(supervisor)) };
            let cards = self.look.report(&before, &after);
            Report { pid, took: begin.elapsed(), cards, resident: (baseline, resident), ended }
        };
        let words = called.result.as_ref().err().map(|_| process.last_words()).unwrap_or_default();
        if called.alive {
            let report = report(resident, false);
            let keeps = !report.all_back() || resident > baseline + self.settings.keep;
            if keeps {
                self.forget();
                self.shared.state().counts.recycled += 1;
            }
            match called.result {
                Ok(message) => job.finish(message, report),
                Err(cause) => job.fail(cause, words, report),
            }
            return (!keeps).then_some(process);
        }
        self.forget();
        drop(process);
        let mut state = self.shared.state();
        state.counts.died += 1;
        let closed = state.closed;
        drop(state);
        match called.result {
            Err(cause) if called.again && !closed => self.again(job, cause),
            Err(Cause::Signal { .. } | Cause::Lost { .. } | Cause::Start { .. }) if closed => {
                job.fail(Cause::Cancelled, words, report(Bytes::ZERO, true));
            }
            Err(cause) => job.fail(cause, words, report(Bytes::ZERO, true)),
            Ok(message) => job.finish(message, report(Bytes::ZERO, true)),
        }
        None
    }

    /// A call that no worker has begun goes back to where it came from, if there is hope.
    fn again(&self, mut job: Job, cause: Cause) {
        job.tries += 1;
        let mut state = self.shared.state();
        if job.tries < TRIES && !state.closed {
            state.jobs.push_front(job);
            drop(state);
            self.shared.more.notify_one();
            return;
        }
        let cause = match cause {
            _ if state.closed => Cause::Cancelled,
            cause @ (Cause::Start { .. } | Cause::OutOfMemory { .. }) => cause,
            other => Cause::Start { message: format!("{} workers ended before they began it; the last one: {other}", job.tries) },
        };
        drop(state);
        job.fail(cause, String::new(), Report::default());
    }
}
