//! Attempts that are made beside what comes next. None knows of another, and they end in the order in which they began: what there is
//! of them, and when, does not depend on how fast they are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use plimsoll_base::Result;
use plimsoll_graph::{IdVec, NodeId};

use crate::by_runs::trial::{Needed, attempt_from};
use crate::by_runs::{Fitted, How, PlaceRequest};
use crate::lir::Lir;
use crate::place::Placement;
use crate::plan::DeviceId;
use crate::side_by_side::STACK;

/// What an attempt came to, and the last run's works in order.
pub(super) type Made = Result<(Fitted, Option<Arc<Lir>>)>;

/// Attempts that have begun.
pub(super) struct Begun<'s, 'e, 'a> {
    scope: &'s Scope<'s, 'e>,
    request: &'s PlaceRequest<'a>,
    needed: Arc<Needed>,
    attempts: VecDeque<Attempt<'s>>,
}

struct Attempt<'s> {
    asked: Arc<Asked>,
    making: Making<'s>,
}

struct Asked {
    placement: Placement,
    /// None where it has a number, which it gets in its turn.
    how: Option<How>,
    /// The last run's works, where they are known: see [`attempt_from`].
    fused: Mutex<Option<Lir>>,
}

enum Making<'s> {
    Beside(ScopedJoinHandle<'s, Made>),
    Done(Box<Made>),
}

impl Asked {
    fn make(&self, request: &PlaceRequest<'_>, needed: &Needed) -> Made {
        let fused = self.fused.lock().unwrap_or_else(PoisonError::into_inner).take();
        attempt_from(request, self.placement.clone(), self.how.clone().unwrap_or(How::TensorFlow), Vec::new(), needed, fused)
    }
}

impl<'s, 'e, 'a> Begun<'s, 'e, 'a> {
    pub fn new(scope: &'s Scope<'s, 'e>, request: &'s PlaceRequest<'a>, needed: Arc<Needed>) -> Begun<'s, 'e, 'a> {
        Begun { scope, request, needed, attempts: VecDeque::new() }
    }

    /// Begins with a placement. It is made beside what comes next unless another one still is: no more than two plans are made at once.
    pub fn begin(&mut self, placement: Placement, how: Option<How>, fused: Option<Lir>) {
        let asked = Arc::new(Asked { placement, how, fused: Mutex::new(fused) });
        let is_made = |attempt: &Attempt<'_>| matches!(&attempt.making, Making::Beside(thread) if !thread.is_finished());
        let thread = if self.attempts.iter().any(is_made) {
            None
        } else {
            let (asked, request, needed) = (Arc::clone(&asked), self.request, Arc::clone(&self.needed));
            Builder::new().stack_size(STACK).spawn_scoped(self.scope, move || asked.make(request, &needed)).ok()
        };
        let making = thread.map_or_else(|| Making::Done(Box::new(asked.make(self.request, &self.needed))), Making::Beside);
        self.attempts.push_back(Attempt { asked, making });
    }

    /// Whether an attempt with these devices has begun and not ended.
    pub fn has(&self, devices: &IdVec<NodeId, DeviceId>) -> bool {
        self.attempts.iter().any(|attempt| attempt.asked.placement.devices == *devices)
    }

    /// Ends the attempt that began first: what it came to, and whether it gets a number.
    pub fn end(&mut self) -> Option<(Made, bool)> {
        let Attempt { asked, making } = self.attempts.pop_front()?;
        let made = match making {
            Making::Beside(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Making::Done(made) => *made,
        };
        Some((made, asked.how.is_none()))
    }
}
