//! Threads of a device that computes apart from its callers: one for each run that is under way, made when they are needed and kept
//! until the device closes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that take jobs. A job may wait for another one of the device, so every job has a thread at once.
pub struct Threads<J> {
    state: Mutex<State<J>>,
    arrived: Condvar,
    name: &'static str,
    act: Box<dyn Fn(J) + Send + Sync>,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that wait for a job.
    idle: usize,
    threads: Vec<std::thread::JoinHandle<()>>,
    closed: bool,
}

impl<J: Send + 'static> Threads<J> {
    /// None yet; each will have this name, and do this with its jobs.
    pub fn new(name: &'static str, act: impl Fn(J) + Send + Sync + 'static) -> Arc<Threads<J>> {
        let state = State { jobs: VecDeque::new(), idle: 0, threads: Vec::new(), closed: false };
        Arc::new(Threads { state: Mutex::new(state), arrived: Condvar::new(), name, act: Box::new(act) })
    }

    /// Hands a job to a thread. Allocates only where there are more jobs under way than ever before.
    ///
    /// # Errors
    /// Why there is no thread for it.
    pub fn push(self: &Arc<Threads<J>>, job: J) -> Result<(), &'static str> {
        let mut state = self.state();
        if state.closed {
            return Err("the device is closed");
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() {
            let threads = self.clone();
            match std::thread::Builder::new().name(self.name.to_string()).spawn(move || threads.work()) {
                Ok(thread) => state.threads.push(thread),
                Err(_) => {
                    state.jobs.pop_back();
                    return Err("the system has no thread for the device");
                }
            }
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Ends the threads once they have done their jobs.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.arrived.notify_all();
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                (self.act)(job);
                state = self.state();
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}
