//! What searches have found, for plans that ask the same again.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::Result;
use plimsoll_device::Variant;
use plimsoll_fit::{Problem, State};
use plimsoll_graph::Graph;
use plimsoll_memory::layout::{self, Buffer, Layout};
use plimsoll_request::KernelRequest;

use super::answers::{Answered, Answers};
use crate::lir::Lir;
use crate::place::Placement;
use crate::plan::DeviceId;
use crate::{Request, Signature};

/// So many steps of schedules and so many buffers of layouts are kept. What would be more makes room: everything before it goes.
const MOST_STEPS: usize = 1 << 20;
const MOST_BUFFERS: usize = 1 << 20;

/// Descents by their problems, layouts by their buffers, and variants by requests. They do not depend on lines: the plan for a limit and
/// the search for the least limit ask for the same. To keep them changes the time that planning takes, and no plan. They belong to the
/// devices, libraries and costs of their plans.
#[derive(Default)]
pub struct Searches {
    descents: Mutex<Kept<Descent>>,
    layouts: Mutex<Kept<Packed>>,
    answers: Answers,
    ordered: Mutex<Option<Ordered>>,
    is_least_expected: AtomicBool,
}

/// The works of a run in order.
struct Ordered {
    graph: Graph,
    signature: Signature,
    placement: Placement,
    lir: Arc<Lir>,
}

impl Ordered {
    /// Whether another request of the same devices, libraries and costs has the same works in the same order.
    fn is_of(&self, request: &Request<'_>) -> bool {
        let Placement { devices, host, soft, .. } = &self.placement;
        let other = request.placement;
        is_same(&self.graph, request.graph)
            && self.signature == *request.signature
            && (devices, host, soft) == (&other.devices, &other.host, &other.soft)
    }
}

/// Whether one graph is a copy of the other, and neither was changed since.
fn is_same(one: &Graph, other: &Graph) -> bool {
    let nodes = || one.nodes().values().zip(other.nodes().values());
    one.nodes().len() == other.nodes().len()
        && Arc::ptr_eq(&one.library, &other.library)
        && nodes().all(|(one, other)| Arc::ptr_eq(one, other))
}

struct Descent {
    problem: Problem,
    effort: u64,
    states: Arc<[State]>,
}

struct Packed {
    buffers: Vec<Buffer>,
    layout: Layout,
}

/// What was found, by a key of what was asked.
struct Kept<T> {
    found: HashMap<u64, Vec<T>>,
    /// What it takes, in units of its limit.
    size: usize,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { found: HashMap::new(), size: 0 }
    }
}

impl<T> Kept<T> {
    fn get(&self, key: u64, is_same: impl Fn(&&T) -> bool) -> Option<&T> {
        self.found.get(&key)?.iter().find(is_same)
    }

    fn keep(&mut self, key: u64, one: T, size: usize, most: usize) {
        if self.size.saturating_add(size) > most {
            *self = Kept::default();
        }
        self.size = self.size.saturating_add(size);
        self.found.entry(key).or_default().push(one);
    }
}

impl Searches {
    /// The least limit will be asked for, which takes all descents: a plan for a limit may search all of them side by side.
    pub fn expect_least(&self) {
        self.is_least_expected.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_least_expected(&self) -> bool {
        self.is_least_expected.load(Ordering::Relaxed)
    }

    /// The variant that `choose` says for a request of a device, or what it said before.
    pub(crate) fn answer(&self, device: DeviceId, request: &KernelRequest, choose: impl Fn() -> Result<Arc<Variant>>) -> Result<Answered> {
        self.answers.answer(device, request, choose)
    }

    /// Keeps the works of a run in order for a plan of the same graph, signature and placement.
    pub(crate) fn keep_ordered(&self, request: &Request<'_>, lir: Arc<Lir>) {
        let (graph, signature, placement) = (request.graph.clone(), request.signature.clone(), request.placement.clone());
        *lock(&self.ordered) = Some(Ordered { graph, signature, placement, lir });
    }

    /// What was kept for such a request. It is given once.
    pub(crate) fn take_ordered(&self, request: &Request<'_>) -> Option<Arc<Lir>> {
        lock(&self.ordered).take_if(|ordered| ordered.is_of(request)).map(|ordered| ordered.lir)
    }

    /// [`plimsoll_fit::descend`], or what it was before.
    pub(super) fn descend(&self, problem: &Problem, effort: u64) -> Arc<[State]> {
        let mut hasher = DefaultHasher::new();
        (effort, problem.works.len(), problem.values.len()).hash(&mut hasher);
        problem.works.iter().for_each(|work| (work.seconds.to_bits(), work.scratch, &work.reads, &work.writes).hash(&mut hasher));
        let key = hasher.finish();
        let is_same = |found: &&Descent| found.effort == effort && found.problem == *problem;
        if let Some(known) = lock(&self.descents).get(key, is_same) {
            return Arc::clone(&known.states);
        }
        let states: Arc<[State]> = plimsoll_fit::descend(problem, effort).into();
        let size = states.iter().map(|state| state.steps.len()).sum();
        let found = Descent { problem: problem.clone(), effort, states: Arc::clone(&states) };
        lock(&self.descents).keep(key, found, size, MOST_STEPS);
        states
    }

    /// [`layout::pack`], or what it was before.
    pub(crate) fn pack(&self, buffers: &[Buffer]) -> Layout {
        let mut hasher = DefaultHasher::new();
        buffers.iter().for_each(|buffer| (buffer.first, buffer.last, buffer.bytes, buffer.align).hash(&mut hasher));
        let key = hasher.finish();
        if let Some(known) = lock(&self.layouts).get(key, |found| found.buffers == buffers) {
            return known.layout.clone();
        }
        let layout = layout::pack(buffers);
        // What is found at once is found again at once.
        if layout.steps == 0 {
            return layout;
        }
        let found = Packed { buffers: buffers.to_vec(), layout: layout.clone() };
        lock(&self.layouts).keep(key, found, buffers.len(), MOST_BUFFERS);
        layout
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Searches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Searches").field("descents", &lock(&self.descents).size).field("layouts", &lock(&self.layouts).size).finish()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fit::{Value, Work};

    use super::*;

    #[test]
    fn descents_are_found_again() {
        let work = |reads: Vec<usize>, writes: Vec<usize>| Work { seconds: 1.0, again: true, reads, writes, ..Work::default() };
        let works = vec![work(vec![], vec![0]), work(vec![0], vec![1]), work(vec![1], vec![2]), work(vec![0, 2], vec![3])];
        let values = vec![Value { bytes: 64, ..Value::default() }; 4];
        let problem = Problem { works, values, ..Problem::default() };
        let searches = Searches::default();
        let expected = plimsoll_fit::descend(&problem, 10_000);
        for _ in 0..2 {
            assert_eq!(*searches.descend(&problem, 10_000), expected);
        }
        let one = lock(&searches.descents).size;
        assert!(one > 0);
        // Another effort, and other bytes, are other questions.
        assert_eq!(*searches.descend(&problem, 20_000), plimsoll_fit::descend(&problem, 20_000));
        let mut larger = problem.clone();
        larger.values[1].bytes = 128;
        assert_eq!(*searches.descend(&larger, 10_000), plimsoll_fit::descend(&larger, 10_000));
        assert!(lock(&searches.descents).size > 2 * one);
    }

    #[test]
    fn layouts_are_found_again() {
        let searches = Searches::default();
        // Too many lives for a sweep to pack without a gap.
        let buffers = |bytes: u64| -> Vec<Buffer> {
            let one = |at: u32| Buffer {
                first: at * 7 % 40,
                last: at * 7 % 40 + at * 5 % 13,
                bytes: bytes * u64::from(1 + at * 11 % 17),
                align: 64,
            };
            (0..60).map(one).collect()
        };
        for bytes in [64, 128, 64] {
            assert_eq!(searches.pack(&buffers(bytes)), layout::pack(&buffers(bytes)));
        }
        assert_eq!(lock(&searches.layouts).size, 120);
        let simple = [Buffer { first: 0, last: 1, bytes: 64, align: 64 }];
        assert_eq!(searches.pack(&simple), layout::pack(&simple));
        assert_eq!(lock(&searches.layouts).size, 120);
    }

    #[test]
    fn what_would_be_too_much_makes_room() {
        let mut kept = Kept::default();
        for key in 0..10 {
            kept.keep(key, key, 4, 10);
            assert_eq!(kept.get(key, |_| true), Some(&key));
            assert!(kept.size <= 10);
        }
    }
}
