//! Graphs, as far as their nodes allocate. Memory of a launched graph stays with the device until it is trimmed.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use crate::state::{BLOCK, INVALID_VALUE, Opaque, State as Process, Status, put, up, with};

#[derive(Clone)]
struct Node {
    device: c_int,
    bytes: u64,
    address: u64,
}

/// The memory of a device for graphs.
#[derive(Default)]
struct Kept {
    reserved: u64,
    used: u64,
}

#[derive(Default)]
pub struct State {
    graphs: HashMap<u64, Vec<Node>>,
    executables: HashMap<u64, (Vec<Node>, bool)>,
    kept: HashMap<c_int, Kept>,
}

impl State {
    /// Whether an address was given out for a node.
    pub fn is_a_node(&self, address: u64) -> bool {
        let executables = self.executables.values().map(|(nodes, _)| nodes);
        self.graphs.values().chain(executables).flatten().any(|node| node.address == address)
    }
}

impl Process {
    pub fn add_node(&mut self, graph: u64, device: c_int, bytes: u64) -> Result<u64, Status> {
        self.card(device)?;
        let bytes = up(bytes, BLOCK);
        let address = self.name(bytes);
        self.graphs.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.push(Node { device, bytes, address });
        Ok(address)
    }

    fn launch(&mut self, executable: u64) -> Result<(), Status> {
        let (nodes, launched) = self.graphs.executables.get(&executable).ok_or(INVALID_VALUE)?.clone();
        if launched {
            return Ok(());
        }
        for node in nodes {
            let card = self.card(node.device)?;
            let kept = self.graphs.kept.entry(node.device).or_default();
            kept.used += node.bytes;
            let missing = kept.used.saturating_sub(kept.reserved);
            if let Err(status) = self.take(card, missing) {
                self.graphs.kept.entry(node.device).or_default().used -= node.bytes;
                return Err(status);
            }
            self.graphs.kept.entry(node.device).or_default().reserved += missing;
        }
        if let Some((_, launched)) = self.graphs.executables.get_mut(&executable) {
            *launched = true;
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(place: *mut Opaque, _flags: c_uint) -> Status {
    with(|state| {
        let graph = state.name(1);
        state.graphs.graphs.insert(graph, Vec::new());
        // SAFETY: the caller's promise.
        unsafe { put(place, graph as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: Opaque) -> Status {
    with(|state| state.graphs.graphs.remove(&(graph as u64)).map(drop).ok_or(INVALID_VALUE))
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
    _after: *const Opaque,
    _edges: *const c_void,
    _count: usize,
    of: *mut NodeParameters,
) -> Status {
    // SAFETY: the caller's promise.
    match !of.is_null() && unsafe { (*of).kind } == 10 {
        // SAFETY: as above; the kind says which member of the union is set.
        true => unsafe { add(place, graph, &raw mut (*of).allocation) },
        false => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(place: *mut Opaque, graph: Opaque, _flags: c_ulonglong) -> Status {
    with(|state| {
        let nodes = state.graphs.graphs.get(&(graph as u64)).ok_or(INVALID_VALUE)?.clone();
        let executable = state.name(1);
        state.graphs.executables.insert(executable, (nodes, false));
        // SAFETY: the caller's promise.
        unsafe { put(place, executable as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: Opaque) -> Status {
    with(|state| {
        let (nodes, launched) = state.graphs.executables.remove(&(executable as u64)).ok_or(INVALID_VALUE)?;
        for node in nodes.iter().filter(|_| launched) {
            state.graphs.kept.entry(node.device).or_default().used -= node.bytes;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(executable: Opaque, _stream: Opaque) -> Status {
    with(|state| state.launch(executable as u64))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch_ptsz(executable: Opaque, _stream: Opaque) -> Status {
    with(|state| state.launch(executable as u64))
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
