//! The thread that gives back memory that sessions keep when they have not run for a while. There is one for all sessions of a
//! [`crate::Devices`], made when the first asks for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_base::{Error, Result};
use plimsoll_device::Device;
use plimsoll_memory::trim_heap;

use super::kept::Kept;
use super::turns::Others;

/// Sessions of some devices, and the thread that looks after those that want it.
pub(crate) struct Idle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    devices: Vec<Arc<dyn Device>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    sessions: Vec<Weak<Kept>>,
    closed: bool,
}

/// The thread does not look more often than this.
const PATIENCE: Duration = Duration::from_millis(1);

impl Idle {
    pub fn new(devices: &[Arc<dyn Device>]) -> Idle {
        let shared = Shared { devices: devices.to_vec(), state: Mutex::default(), changed: Condvar::new() };
        Idle { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Knows a session from now on, until it ends.
    pub fn register(&self, kept: &Arc<Kept>) {
        let mut state = self.shared.state();
        state.sessions.retain(|session| session.strong_count() > 0);
        state.sessions.push(Arc::downgrade(kept));
    }

    /// Gives back memory that sessions keep and devices hold without need.
    pub fn release_all(&self) {
        self.sessions().iter().for_each(|kept| kept.release());
        self.shared.devices.iter().for_each(|device| device.release_unused());
        trim_heap();
    }

    fn sessions(&self) -> Vec<Arc<Kept>> {
        self.shared.state().sessions.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes sure that the thread is there and knows the present settings of sessions.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has no thread for it.
    pub fn watch(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name("plimsoll-idle".to_string()).spawn(move || shared.work());
            *thread = Some(started.map_err(|cause| Error::resource_exhausted(format!("no thread looks after idle sessions: {cause}")))?);
        }
        // Under the lock: the thread has either not looked yet, or it waits.
        let _state = self.shared.state();
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Others for Idle {
    fn is_any_under_way(&self) -> bool {
        self.sessions().iter().any(|kept| kept.is_under_way())
    }

    fn release_arenas(&self) {
        self.sessions().iter().for_each(|kept| kept.arenas.clear());
        self.shared.devices.iter().for_each(|device| device.release_unused());
    }

    fn release_constants(&self) -> bool {
        let oldest = || self.sessions().iter().filter_map(|kept| kept.constants.oldest()).min_by_key(|(since, _)| *since);
        while let Some((_, plan)) = oldest() {
            // A run may have begun to use them meanwhile.
            if plan.give_back() {
                self.shared.devices.iter().for_each(|device| device.release_unused());
                return true;
            }
        }
        false
    }

    fn release_all(&self) {
        Idle::release_all(self);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // It holds no session and no devices of its own: this is never that thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        while !state.closed {
            let looks = state.sessions.iter().filter_map(|session| session.upgrade()?.look());
            let (next, released) = looks.fold((None, false), |(next, released), (wait, now)| {
                (Some(next.map_or(wait, |next: Duration| next.min(wait))), released | now)
            });
            if released {
                drop(state);
                self.devices.iter().for_each(|device| device.release_unused());
                trim_heap();
                state = self.state();
                if state.closed {
                    return;
                }
            }
            state = match next {
                Some(next) => self.changed.wait_timeout(state, next.max(PATIENCE)).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
