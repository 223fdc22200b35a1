//! Conditions of graphs: the nodes that look at them, their bodies, and the kernels that set them.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::calls::note;
use crate::graphs::Act;
use crate::nodes::after;
use crate::state::{INVALID_CONTEXT, INVALID_VALUE, NO_ADDRESS, NOT_SUPPORTED, Opaque, SUCCESS, Status, put, with};

/// A value that nothing has set: what a node does with it is undefined.
const UNSET: u64 = u64::MAX;

/// `CU_GRAPH_COND_TYPE_IF`, `_WHILE` and `_SWITCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    If,
    While,
    Switch,
}

/// A condition.
pub struct Condition {
    graph: u64,
    pub card: usize,
    /// What it is when a graph is launched, where the program said so.
    default: Option<c_uint>,
    value: Arc<AtomicU64>,
    /// The bodies of its node, once it has one: the driver's own list.
    bodies: Option<Box<[u64]>>,
}

#[derive(Default)]
pub struct Conditions {
    by_handle: HashMap<u64, Condition>,
    /// The card and the graph around each body.
    bodies: HashMap<u64, (usize, u64)>,
}

/// A node that looks at a condition.
#[derive(Clone)]
pub struct Conditional {
    pub condition: u64,
    pub form: Form,
    pub bodies: Vec<u64>,
}

/// What a program asks for.
pub struct Asked {
    pub condition: u64,
    pub form: Form,
    pub count: c_uint,
    /// The card of the context that it names, if any.
    pub card: Option<usize>,
}

impl Conditions {
    pub fn is_body(&self, graph: u64) -> bool {
        self.bodies.contains_key(&graph)
    }

    pub fn card_of_body(&self, graph: u64) -> Option<usize> {
        self.bodies.get(&graph).map(|(card, _)| *card)
    }

    /// Whether there are conditions of this graph, or of its bodies.
    pub fn has(&self, graph: u64) -> bool {
        self.of(graph).next().is_some()
    }

    /// Those of a graph and of the bodies in it.
    fn of(&self, graph: u64) -> impl Iterator<Item = &Condition> {
        let is_in = move |mut inner: u64| loop {
            if inner == graph {
                return true;
            }
            let Some((_, around)) = self.bodies.get(&inner) else { return false };
            inner = *around;
        };
        self.by_handle.values().filter(move |condition| is_in(condition.graph))
    }

    /// Whether each of them has its node.
    pub fn all_have_nodes(&self, graph: u64) -> bool {
        self.of(graph).all(|condition| condition.bodies.is_some())
    }

    /// The condition for a node, which none has yet.
    pub fn asked(&self, graph: u64, asked: &Asked) -> Result<&Condition, Status> {
        let condition = self.by_handle.get(&asked.condition).ok_or(INVALID_VALUE)?;
        let fits = condition.graph == graph && condition.bodies.is_none() && asked.card.is_none_or(|card| card == condition.card);
        let count = match asked.form {
            Form::If => 1..=2,
            Form::While => 1..=1,
            Form::Switch => 1..=c_uint::MAX,
        };
        if fits && count.contains(&asked.count) { Ok(condition) } else { Err(INVALID_VALUE) }
    }

    /// Gives the condition its node's bodies: their list.
    pub fn take(&mut self, handle: u64, bodies: Vec<u64>) -> *const Opaque {
        let Some(condition) = self.by_handle.get_mut(&handle) else { return std::ptr::null() };
        self.bodies.extend(bodies.iter().map(|body| (*body, (condition.card, condition.graph))));
        // Handles are as wide as numbers.
        condition.bodies.insert(bodies.into()).as_ptr().cast()
    }

    /// The card and the value of a condition.
    pub fn value(&self, handle: u64) -> Result<(usize, Arc<AtomicU64>), Status> {
        self.by_handle.get(&handle).map(|condition| (condition.card, condition.value.clone())).ok_or(INVALID_VALUE)
    }

    /// What every launch of a graph begins with.
    pub fn beginning(&self, graph: u64) -> Act {
        let values: Vec<_> = self.of(graph).map(|condition| (condition.value.clone(), condition.default)).collect();
        Arc::new(move || {
            values.iter().for_each(|(value, default)| value.store(default.map_or(UNSET, u64::from), Ordering::SeqCst));
            SUCCESS
        })
    }

    /// Forgets the conditions of a graph that ends: the bodies, which end with it.
    pub fn forget(&mut self, graph: u64) -> Vec<u64> {
        self.by_handle.retain(|_, condition| condition.graph != graph);
        let bodies: Vec<u64> = self.bodies.iter().filter(|(_, (_, around))| *around == graph).map(|(body, _)| *body).collect();
        self.bodies.retain(|_, (_, around)| *around != graph);
        bodies
    }
}

/// The work of a node with bodies.
pub fn conditional(form: Form, card: usize, value: Arc<AtomicU64>, bodies: Vec<Vec<Act>>) -> Act {
    let run = move |body: &[Act]| body.iter().map(|act| act()).find(|status| *status != SUCCESS).unwrap_or(SUCCESS);
    Arc::new(move || {
        loop {
            let now = match value.load(Ordering::SeqCst) {
                UNSET => return NO_ADDRESS,
                now => now as usize,
            };
            let body = match form {
                Form::If => bodies.get(usize::from(now == 0)),
                Form::While if now == 0 => None,
                Form::While => bodies.first(),
                Form::Switch => bodies.get(now),
            };
            let status = body.map_or(SUCCESS, |body| run(body));
            // A card that is lost ends its loops.
            if form != Form::While || body.is_none() || status != SUCCESS || with(|state| state.works(card)) != SUCCESS {
                return status;
            }
        }
    })
}

thread_local! {
    /// The card of the kernel that this thread runs.
    static ON: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether it set what it may not.
    static WRONG: Cell<bool> = const { Cell::new(false) };
}

/// Runs a kernel of a card: whether it has set a condition that is none there.
pub fn watched<T>(card: usize, run: impl FnOnce() -> T) -> (T, bool) {
    ON.set(Some(card));
    WRONG.set(false);
    let done = run();
    ON.set(None);
    (done, WRONG.get())
}

/// `cudaGraphSetConditional`, as kernels call it.
pub extern "C" fn set(handle: u64, value: c_uint) {
    let status = with(|state| {
        let (card, place) = state.graphs.conditions.value(handle)?;
        if ON.get() != Some(card) {
            return Err(INVALID_CONTEXT);
        }
        place.store(value.into(), Ordering::SeqCst);
        Ok(())
    });
    if status != SUCCESS {
        WRONG.set(true);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphConditionalHandleCreate(
    place: *mut c_ulonglong,
    graph: Opaque,
    context: Opaque,
    default: c_uint,
    flags: c_uint,
) -> Status {
    note("cuGraphConditionalHandleCreate");
    with(|state| {
        let graph = graph as u64;
        if flags > 1 || !state.graphs.is_there(graph) {
            return Err(INVALID_VALUE);
        }
        let card = state.card_of(context)?;
        state.has_room(card)?;
        if state.machine.is_without_bodies(card) {
            return Err(NOT_SUPPORTED);
        }
        let handle = state.name(1);
        let default = (flags == 1).then_some(default);
        let condition = Condition { graph, card, default, value: Arc::new(AtomicU64::new(UNSET)), bodies: None };
        state.graphs.conditions.by_handle.insert(handle, condition);
        // SAFETY: the caller's promise.
        unsafe { put(place, handle) }
    })
}

/// `CUgraphNodeParams` with `CUDA_CONDITIONAL_NODE_PARAMS`
#[repr(C)]
pub struct ConditionalNode {
    kind: c_int,
    reserved: [c_int; 3],
    condition: c_ulonglong,
    form: c_int,
    count: c_uint,
    bodies: *const Opaque,
    context: Opaque,
    rest: [u64; 26],
}

/// # Safety
/// As the driver's functions.
pub unsafe fn add(
    place: *mut Opaque,
    graph: Opaque,
    (nodes, edges, count): (*const Opaque, *const c_void, usize),
    of: *mut ConditionalNode,
) -> Status {
    note("cuGraphAddNode");
    with(|state| {
        // SAFETY: the caller's promise.
        let (of, after) = unsafe { (&mut *of, after(nodes, count)?) };
        let form = match of.form {
            0 => Form::If,
            1 => Form::While,
            2 => Form::Switch,
            _ => return Err(INVALID_VALUE),
        };
        // Edges have no data here; what is reserved is 0.
        if !edges.is_null() || of.reserved != [0; 3] || of.rest != [0; 26] {
            return Err(INVALID_VALUE);
        }
        let card = if of.context.is_null() { None } else { Some(state.card_of(of.context)?) };
        let asked = Asked { condition: of.condition, form, count: of.count, card };
        let (node, bodies) = state.add_conditional(graph as u64, after, asked)?;
        of.bodies = bodies;
        // SAFETY: the caller's promise.
        unsafe { put(place, node as Opaque) }
    })
}
