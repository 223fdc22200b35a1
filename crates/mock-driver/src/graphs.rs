//! Graphs: nodes that allocate, and nodes that work. A launched graph works on its stream, a node behind those that it names. Memory of
//! nodes that allocate stays with the device until it is trimmed.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::calls::note;
use crate::conditions::{Asked, Conditional, Conditions, add as add_conditional, conditional};
use crate::nodes::after;
use crate::state::{BLOCK, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, Opaque, SUCCESS, State as Process, Status, put, up, with};
use crate::streams::push;

/// The work of a node.
pub type Act = Arc<dyn Fn() -> Status + Send + Sync>;

#[derive(Clone)]
struct Node {
    /// Its handle; of a node that allocates, the address.
    name: u64,
    after: Vec<u64>,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Allocation {
        device: c_int,
        bytes: u64,
    },
    /// On a card; with a kernel's function, which has to be there when the graph is launched.
    Work {
        card: usize,
        function: Option<u64>,
        act: Act,
        /// As how many nodes it counts: a graph in a graph counts as its own.
        count: u64,
    },
    Conditional(Conditional),
}

/// The memory of a device for graphs.
#[derive(Default)]
struct Kept {
    reserved: u64,
    used: u64,
}

struct Executable {
    nodes: Vec<Node>,
    launched: bool,
    /// One launch at a time works.
    turn: Arc<Mutex<()>>,
    /// Bytes of a card that it takes itself.
    takes: Option<(usize, u64)>,
    /// The graph that it was made from, where that has conditions.
    of: Option<u64>,
    /// The kernels of its bodies, which have to be there when it is launched.
    functions: Vec<u64>,
}

#[derive(Default)]
pub struct State {
    graphs: HashMap<u64, Vec<Node>>,
    executables: HashMap<u64, Executable>,
    kept: HashMap<c_int, Kept>,
    pub conditions: Conditions,
}

impl State {
    /// Whether there is such a graph.
    pub fn is_there(&self, graph: u64) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// Whether an address was given out for a node.
    pub fn is_a_node(&self, address: u64) -> bool {
        let executables = self.executables.values().map(|executable| &executable.nodes);
        let mut nodes = self.graphs.values().chain(executables).flatten();
        nodes.any(|node| node.name == address && matches!(node.kind, Kind::Allocation { .. }))
    }
}

/// Nodes in an order that their edges allow: of those that are ready the one that was added last comes first, so that an edge that is
/// missing shows.
fn backwards(mut nodes: Vec<Node>) -> Vec<Node> {
    let mut done = Vec::with_capacity(nodes.len());
    let mut names = HashSet::new();
    while let Some(at) = nodes.iter().rposition(|node| node.after.iter().all(|name| names.contains(name))) {
        let node = nodes.remove(at);
        names.insert(node.name);
        done.push(node);
    }
    done
}

impl Node {
    fn allocation(&self) -> Option<(c_int, u64)> {
        match self.kind {
            Kind::Allocation { device, bytes } => Some((device, bytes)),
            Kind::Work { .. } | Kind::Conditional(_) => None,
        }
    }

    fn count(&self) -> u64 {
        match self.kind {
            Kind::Work { count, .. } => count,
            Kind::Allocation { .. } | Kind::Conditional(_) => 1,
        }
    }
}

impl Process {
    pub fn add_node(&mut self, graph: u64, device: c_int, bytes: u64) -> Result<u64, Status> {
        self.card(device)?;
        let bytes = up(bytes, BLOCK);
        let name = self.name(bytes);
        let node = Node { name, after: Vec::new(), kind: Kind::Allocation { device, bytes } };
        if self.graphs.conditions.is_body(graph) {
            return Err(NOT_SUPPORTED);
        }
        self.graphs.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.push(node);
        Ok(name)
    }

    /// A node of a card that works behind `after`, each of them a node of the graph, named once.
    pub fn add_work(&mut self, graph: Opaque, after: &[u64], card: usize, function: Option<u64>, act: Act) -> Result<u64, Status> {
        self.add_kind(graph as u64, after, card, Kind::Work { card, function, act, count: 1 })
    }

    /// A node that works on a card; those of a body on the card of their condition alone.
    fn add_kind(&mut self, graph: u64, after: &[u64], card: usize, kind: Kind) -> Result<u64, Status> {
        self.has_room(card)?;
        if self.graphs.conditions.card_of_body(graph).is_some_and(|of| of != card) {
            return Err(INVALID_VALUE);
        }
        let name = self.name(1);
        let nodes = self.graphs.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        let is_new = |(at, on): (usize, &u64)| !after[..at].contains(on) && nodes.iter().any(|node| node.name == *on);
        if !after.iter().enumerate().all(is_new) {
            return Err(INVALID_VALUE);
        }
        nodes.push(Node { name, after: after.to_vec(), kind });
        Ok(name)
    }

    /// A node that runs its bodies by a condition of the same graph, which no other node has: the list of the bodies, graphs that are empty yet.
    pub fn add_conditional(&mut self, graph: u64, after: &[u64], of: Asked) -> Result<(u64, *const Opaque), Status> {
        let card = self.graphs.conditions.asked(graph, &of)?.card;
        let bodies: Vec<u64> = (0..of.count).map(|_| self.name(1)).collect();
        let kind = Kind::Conditional(Conditional { condition: of.condition, form: of.form, bodies: bodies.clone() });
        let name = self.add_kind(graph, after, card, kind)?;
        bodies.iter().for_each(|body| drop(self.graphs.graphs.insert(*body, Vec::new())));
        Ok((name, self.graphs.conditions.take(of.condition, bodies)))
    }

    /// What a graph's node does; of one with bodies as these are now.
    fn work_of(&self, node: &Node) -> Result<(Kind, Vec<u64>), Status> {
        let Kind::Conditional(Conditional { condition, form, bodies }) = &node.kind else { return Ok((node.kind.clone(), Vec::new())) };
        let (mut acts, mut functions, mut count) = (Vec::new(), Vec::new(), 1);
        for body in bodies {
            let mut inner: Vec<Act> = Vec::new();
            for node in backwards(self.graphs.graphs.get(body).ok_or(INVALID_VALUE)?.clone()) {
                let (kind, more) = self.work_of(&node)?;
                functions.extend(more);
                let Kind::Work { function, act, count: nodes, .. } = kind else { return Err(NOT_SUPPORTED) };
                functions.extend(function);
                count += nodes;
                inner.push(act);
            }
            acts.push(inner);
        }
        let (card, value) = self.graphs.conditions.value(*condition)?;
        let act = conditional(*form, card, value, acts);
        Ok((Kind::Work { card, function: None, act, count }, functions))
    }

    /// A node that is all of another graph as it is now. That works on one card, and allocates nothing.
    fn add_child(&mut self, graph: Opaque, after: &[u64], child: u64) -> Result<u64, Status> {
        if self.graphs.conditions.has(child) || self.graphs.conditions.is_body(child) {
            return Err(NOT_SUPPORTED);
        }
        let nodes = self.graphs.graphs.get(&child).filter(|_| child != graph as u64).ok_or(INVALID_VALUE)?.clone();
        let mut cards = HashSet::new();
        let mut acts: Vec<Act> = Vec::new();
        let mut count = 1;
        for node in backwards(nodes) {
            count += node.count();
            let Kind::Work { card, function: None, act, .. } = node.kind else { return Err(INVALID_VALUE) };
            cards.insert(card);
            acts.push(act);
        }
        let card = match cards.into_iter().collect::<Vec<_>>()[..] {
            [card] => card,
            _ => return Err(INVALID_VALUE),
        };
        let all: Act = Arc::new(move || acts.iter().map(|act| act()).find(|status| *status != SUCCESS).unwrap_or(SUCCESS));
        let name = self.add_work(graph, after, card, None, all)?;
        let nodes = self.graphs.graphs.get_mut(&(graph as u64)).ok_or(INVALID_VALUE)?;
        if let Some(Node { kind: Kind::Work { count: of, .. }, .. }) = nodes.last_mut() {
            *of = count;
        }
        Ok(name)
    }

    /// Puts work behind all that a stream's capture has; whether the stream is captured.
    pub fn captured(&mut self, stream: Opaque, card: usize, act: &Act) -> Result<bool, Status> {
        let Some(graph) = self.pools.capturing.get(&(stream as u64)).copied() else { return Ok(false) };
        let last = self.graphs.graphs.get(&graph).and_then(|nodes| nodes.last()).map(|node| node.name);
        self.add_work(graph as Opaque, last.as_slice(), card, None, act.clone()).map(|_| true)
    }

    fn instantiate(&mut self, graph: u64) -> Result<u64, Status> {
        let nodes = self.graphs.graphs.get(&graph).ok_or(INVALID_VALUE)?;
        let has_conditions = self.graphs.conditions.has(graph);
        let is_there = has_conditions && self.graphs.executables.values().any(|executable| executable.of == Some(graph));
        if is_there || self.graphs.conditions.is_body(graph) || !self.graphs.conditions.all_have_nodes(graph) {
            return Err(INVALID_VALUE);
        }
        let (mut bound, mut functions) = (Vec::new(), Vec::new());
        for node in nodes {
            let (kind, more) = self.work_of(node)?;
            functions.extend(more);
            bound.push(Node { kind, ..node.clone() });
        }
        let nodes = bound;
        let card = nodes.iter().find_map(|node| if let Kind::Work { card, .. } = node.kind { Some(card) } else { None });
        let mut takes = None;
        if let Some(card) = card {
            self.has_room(card)?;
            let bytes = self.machine.graph_node(card) * nodes.iter().map(Node::count).sum::<u64>();
            self.take(card, bytes)?;
            takes = Some((card, bytes));
        }
        let (executable, nodes) = (self.name(1), backwards(nodes));
        let of = has_conditions.then_some(graph);
        self.graphs.executables.insert(executable, Executable { nodes, launched: false, turn: Arc::default(), takes, of, functions });
        Ok(executable)
    }

    /// Ends a graph with its bodies. A body ends with its graph alone.
    fn destroy(&mut self, graph: u64) -> Result<(), Status> {
        if self.graphs.conditions.is_body(graph) {
            return Err(INVALID_VALUE);
        }
        let mut ends = vec![graph];
        while let Some(graph) = ends.pop() {
            self.graphs.graphs.remove(&graph).ok_or(INVALID_VALUE)?;
            ends.extend(self.graphs.conditions.forget(graph));
        }
        Ok(())
    }

    /// Takes the memory of nodes that allocate, at the first launch.
    fn allocate_nodes(&mut self, executable: u64) -> Result<(), Status> {
        let Executable { nodes, launched, .. } = self.graphs.executables.get(&executable).ok_or(INVALID_VALUE)?;
        if *launched {
            return Ok(());
        }
        let allocations: Vec<_> = nodes.iter().filter_map(Node::allocation).collect();
        for (device, bytes) in allocations {
            let card = self.card(device)?;
            let kept = self.graphs.kept.entry(device).or_default();
            kept.used += bytes;
            let missing = kept.used.saturating_sub(kept.reserved);
            if let Err(status) = self.take(card, missing) {
                self.graphs.kept.entry(device).or_default().used -= bytes;
                return Err(status);
            }
            self.graphs.kept.entry(device).or_default().reserved += missing;
        }
        if let Some(executable) = self.graphs.executables.get_mut(&executable) {
            executable.launched = true;
        }
        Ok(())
    }

    /// The work of a graph that is launched on a stream of that card.
    fn works_of(&self, executable: u64, on: usize) -> Result<(Vec<Act>, Arc<Mutex<()>>), Status> {
        let executable = self.graphs.executables.get(&executable).ok_or(INVALID_VALUE)?;
        if executable.functions.iter().any(|function| !self.functions.contains_key(function)) {
            return Err(INVALID_HANDLE);
        }
        let mut acts: Vec<Act> = executable.of.map(|graph| self.graphs.conditions.beginning(graph)).into_iter().collect();
        for node in &executable.nodes {
            if let Kind::Work { card, function, act, .. } = &node.kind {
                if *card != on {
                    return Err(INVALID_VALUE);
                }
                if function.is_some_and(|function| !self.functions.contains_key(&function)) {
                    return Err(INVALID_HANDLE);
                }
                acts.push(act.clone());
            }
        }
        Ok((acts, executable.turn.clone()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(place: *mut Opaque, flags: c_uint) -> Status {
    note("cuGraphCreate");
    if flags != 0 {
        return INVALID_VALUE;
    }
    with(|state| {
        state.has_room_here()?;
        let graph = state.name(1);
        state.graphs.graphs.insert(graph, Vec::new());
        // SAFETY: the caller's promise.
        unsafe { put(place, graph as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: Opaque) -> Status {
    note("cuGraphDestroy");
    with(|state| state.destroy(graph as u64))
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
pub struct AllocationNode {
    pool: [c_int; 4],
    rest_of_pool: [u8; 72],
    access: *const c_void,
    count: usize,
    bytes: usize,
    address: u64,
}

/// `CUgraphNodeParams`
#[repr(C)]
pub struct NodeParameters {
    kind: c_int,
    reserved: [c_int; 3],
    allocation: AllocationNode,
}

/// # Safety
/// As the driver's functions.
unsafe fn add(place: *mut Opaque, graph: Opaque, of: *mut AllocationNode) -> Status {
    if of.is_null() {
        return INVALID_VALUE;
    }
    with(|state| {
        // SAFETY: the caller's promise.
        let of = unsafe { &mut *of };
        of.address = state.add_node(graph as u64, of.pool[3], of.bytes as u64)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, of.address as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemAllocNode(
    place: *mut Opaque,
    graph: Opaque,
    _after: *const Opaque,
    _count: usize,
    of: *mut AllocationNode,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { add(place, graph, of) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddNode_v2(
    place: *mut Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    edges: *const c_void,
    count: usize,
    of: *mut NodeParameters,
) -> Status {
    // SAFETY: the caller's promise.
    match unsafe { of.as_ref() }.map(|of| of.kind) {
        // SAFETY: as above; the kind says which member of the union is set.
        Some(10) => unsafe { add(place, graph, &raw mut (*of).allocation) },
        // SAFETY: as above.
        Some(13) => unsafe { add_conditional(place, graph, (nodes, edges, count), of.cast()) },
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddChildGraphNode(
    place: *mut Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    count: usize,
    child: Opaque,
) -> Status {
    note("cuGraphAddChildGraphNode");
    with(|state| {
        // SAFETY: the caller's promise.
        let after = unsafe { after(nodes, count) }?;
        let node = state.add_child(graph, after, child as u64)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, node as Opaque) }
    })
}

/// With null how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: Opaque, places: *mut Opaque, count: *mut usize) -> Status {
    if count.is_null() {
        return INVALID_VALUE;
    }
    with(|state| {
        let nodes = state.graphs.graphs.get(&(graph as u64)).ok_or(INVALID_VALUE)?;
        // SAFETY: the caller's promise: as many places as it says, or none.
        unsafe {
            if !places.is_null() {
                nodes.iter().take(*count).enumerate().for_each(|(at, node)| places.add(at).write(node.name as Opaque));
            }
            *count = nodes.len();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(place: *mut Opaque, graph: Opaque, _flags: c_ulonglong) -> Status {
    note("cuGraphInstantiateWithFlags");
    with(|state| {
        let executable = state.instantiate(graph as u64)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, executable as Opaque) }
    })
}

/// The bytes go back at once: a launch that still works has what it needs.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: Opaque) -> Status {
    note("cuGraphExecDestroy");
    with(|state| {
        let Executable { nodes, launched, takes, .. } = state.graphs.executables.remove(&(executable as u64)).ok_or(INVALID_VALUE)?;
        for (device, bytes) in nodes.iter().filter(|_| launched).filter_map(Node::allocation) {
            state.graphs.kept.entry(device).or_default().used -= bytes;
        }
        if let Some((card, bytes)) = takes {
            state.give_back(card, bytes);
        }
        Ok(())
    })
}

/// Takes an executable graph's work to a stream. Graphs of nodes that allocate alone may be launched on the null stream.
fn launch(executable: Opaque, stream: Opaque) -> Status {
    let mut found = None;
    let status = with(|state| {
        state.allocate_nodes(executable as u64)?;
        let on = if stream.is_null() { None } else { Some(state.stream(stream)?.card) };
        let (acts, turn) = state.works_of(executable as u64, on.unwrap_or(usize::MAX))?;
        found = on.map(|_| (acts, turn));
        Ok(())
    });
    match found.filter(|(acts, _)| status == SUCCESS && !acts.is_empty()) {
        None => status,
        Some((acts, turn)) => push(stream, move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            acts.iter().map(|act| act()).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
        }),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(executable: Opaque, stream: Opaque) -> Status {
    note("cuGraphUpload");
    with(|state| {
        let card = state.stream(stream)?.card;
        state.has_room(card)?;
        state.works_of(executable as u64, card).map(drop)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: Opaque, stream: Opaque) -> Status {
    note("cuGraphLaunch");
    launch(executable, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch_ptsz(executable: Opaque, stream: Opaque) -> Status {
    launch(executable, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGraphMemTrim(device: c_int) -> Status {
    with(|state| {
        let card = state.card(device)?;
        let kept = state.graphs.kept.entry(device).or_default();
        let spare = kept.reserved - kept.used;
        kept.reserved = kept.used;
        state.give_back(card, spare);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, place: *mut u64) -> Status {
    with(|state| {
        state.card(device)?;
        let kept = state.graphs.kept.entry(device).or_default();
        // SAFETY: the caller's promise.
        unsafe { put(place, if attribute >= 2 { kept.reserved } else { kept.used }) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: Opaque, _mode: c_int) -> Status {
    with(|state| {
        state.has_room_here()?;
        let graph = state.name(1);
        state.graphs.graphs.insert(graph, Vec::new());
        state.pools.capturing.insert(stream as u64, graph);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Opaque, place: *mut Opaque) -> Status {
    with(|state| {
        let graph = state.pools.capturing.remove(&(stream as u64)).ok_or(INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, graph as Opaque) }
    })
}
