//! Memory of graphs. A node that allocates is counted when it is made: a graph has one executable graph at a time, so that its
//! nodes never take more. When the graph and its executable graph are gone, bytes that the driver still keeps for graphs stay
//! counted.

use std::collections::HashMap;
use std::ffi::{c_char, c_ulonglong, c_void};

use crate::abi::{
    AllocationNode, Device, GRAPH_RESERVED_NOW, NODE_ALLOCATES, NodeParameters, OUT_OF_MEMORY, Opaque, SUCCESS, Status, read,
};
use crate::driver::{driver, wrap};
use crate::process::{Process, is_leased, leased, with};
use crate::size;
use crate::vmm::device_of;

/// A graph with nodes that allocate.
#[derive(Default)]
struct Graph {
    /// Bytes on each device.
    bytes: HashMap<Device, u64>,
    /// Its handle and its executable graphs.
    uses: u64,
}

#[derive(Default)]
pub struct Records {
    made: u64,
    graphs: HashMap<u64, Graph>,
    numbers: HashMap<usize, u64>,
    executables: HashMap<usize, u64>,
    /// On each device the bytes of graphs that are gone.
    left: HashMap<Device, u64>,
}

impl Records {
    fn graph(&mut self, handle: usize) -> &mut Graph {
        let (made, graphs) = (&mut self.made, &mut self.graphs);
        let number = *self.numbers.entry(handle).or_insert_with(|| {
            *made += 1;
            graphs.insert(*made, Graph { uses: 1, ..Graph::default() });
            *made
        });
        graphs.entry(number).or_default()
    }
}

/// The bytes that the driver keeps for the graphs on a device.
fn kept(device: Device) -> Option<u64> {
    let mut bytes = 0u64;
    let get = driver!(c"cuDeviceGetGraphMemAttribute"(Device, i32, *mut u64))?;
    // SAFETY: the attribute is a number of 64 bits.
    (unsafe { get(device, GRAPH_RESERVED_NOW, &mut bytes) } == SUCCESS).then_some(bytes)
}

impl Process {
    /// Gives back bytes that neither graphs nor the driver have any more.
    fn settle_graphs(&mut self) {
        let devices: Vec<Device> = self.graphs.left.keys().copied().collect();
        for device in devices {
            let Some(left) = self.graphs.left.get(&device).copied() else { continue };
            let spare = left.saturating_sub(kept(device).unwrap_or(left));
            if spare == left {
                self.graphs.left.remove(&device);
            } else {
                self.graphs.left.insert(device, left - spare);
            }
            if let Some(card) = self.card(device) {
                self.give_back(card, spare);
            }
        }
    }

    /// A graph has a handle or an executable graph less.
    fn unuse_graph(&mut self, number: u64) {
        let Some(graph) = self.graphs.graphs.get_mut(&number) else { return };
        graph.uses = graph.uses.saturating_sub(1);
        if graph.uses > 0 {
            return;
        }
        if let Some(graph) = self.graphs.graphs.remove(&number) {
            for (device, bytes) in graph.bytes {
                *self.graphs.left.entry(device).or_default() += bytes;
            }
        }
        self.settle_graphs();
    }
}

/// Adds a node that allocates on a device.
pub fn add(graph: usize, device: Device, bytes: u64, call: impl FnOnce() -> Status) -> Status {
    let bytes = size::up(bytes, size::BLOCK);
    let card = with(|process| {
        let card = process.card(device)?;
        process.settle_graphs();
        process.reserve_or_refuse(card, bytes).then_some(card)
    });
    let Some(card) = card else { return OUT_OF_MEMORY };
    let status = call();
    with(|process| match status {
        SUCCESS => *process.graphs.graph(graph).bytes.entry(device).or_default() += bytes,
        _ => process.give_back(card, bytes),
    });
    status
}

/// # Safety
/// The pointer is null or points to a structure of the driver's type.
unsafe fn add_allocation(graph: Opaque, node: *const AllocationNode, call: impl FnOnce() -> Status) -> Status {
    if !is_leased() || node.is_null() {
        return call();
    }
    // SAFETY: the caller's promise.
    let (location, bytes) = unsafe { ((*node).pool.head.location, (*node).bytes) };
    match device_of(location) {
        Some(device) => add(graph as usize, device, bytes as u64, call),
        None => call(),
    }
}

/// # Safety
/// As [`add_allocation`].
unsafe fn add_node(graph: Opaque, node: *const NodeParameters, call: impl FnOnce() -> Status) -> Status {
    // SAFETY: the caller's promise; the kind says which member of the union is set.
    match !node.is_null() && unsafe { (*node).kind } == NODE_ALLOCATES {
        // SAFETY: as above.
        true => unsafe { add_allocation(graph, &raw const (*node).allocation, call) },
        false => call(),
    }
}

fn instantiated(status: Status, executable: *mut Opaque, graph: Opaque) -> Status {
    if status == SUCCESS && is_leased() {
        with(|process| {
            let Some(&number) = process.graphs.numbers.get(&(graph as usize)) else { return };
            // SAFETY: the caller of the wrapper promised that the pointer is null or valid.
            let Some(executable) = (unsafe { read(executable) }) else { return };
            process.graphs.executables.insert(executable as usize, number);
            if let Some(graph) = process.graphs.graphs.get_mut(&number) {
                graph.uses += 1;
            }
        });
    }
    status
}

wrap! { Cuda;
    fn cuGraphAddMemAllocNode(node: *mut Opaque, graph: Opaque, after: *const Opaque, count: usize, allocation: *mut AllocationNode) |real| {
        // SAFETY: the caller's promise.
        unsafe { add_allocation(graph, allocation, || real(node, graph, after, count, allocation)) }
    }

    fn cuGraphAddNode(node: *mut Opaque, graph: Opaque, after: *const Opaque, count: usize, parameters: *mut NodeParameters) |real| {
        // SAFETY: the caller's promise.
        unsafe { add_node(graph, parameters, || real(node, graph, after, count, parameters)) }
    }

    fn cuGraphAddNode_v2(
        node: *mut Opaque, graph: Opaque, after: *const Opaque, edges: *const c_void, count: usize, parameters: *mut NodeParameters,
    ) |real| {
        // SAFETY: the caller's promise.
        unsafe { add_node(graph, parameters, || real(node, graph, after, edges, count, parameters)) }
    }

    fn cuGraphAddNode_v3(
        node: *mut Opaque, graph: Opaque, after: *const Opaque, edges: *const c_void, count: usize, parameters: *mut NodeParameters,
    ) |real| {
        // SAFETY: the caller's promise.
        unsafe { add_node(graph, parameters, || real(node, graph, after, edges, count, parameters)) }
    }

    fn cuGraphInstantiate(executable: *mut Opaque, graph: Opaque, node: *mut Opaque, log: *mut c_char, bytes: usize) |real| {
        // SAFETY: the caller's promise.
        instantiated(unsafe { real(executable, graph, node, log, bytes) }, executable, graph)
    }

    fn cuGraphInstantiate_v2(executable: *mut Opaque, graph: Opaque, node: *mut Opaque, log: *mut c_char, bytes: usize) |real| {
        // SAFETY: the caller's promise.
        instantiated(unsafe { real(executable, graph, node, log, bytes) }, executable, graph)
    }

    fn cuGraphInstantiateWithFlags(executable: *mut Opaque, graph: Opaque, flags: c_ulonglong) |real| {
        // SAFETY: the caller's promise.
        instantiated(unsafe { real(executable, graph, flags) }, executable, graph)
    }

    fn cuGraphInstantiateWithParams(executable: *mut Opaque, graph: Opaque, parameters: *mut c_void) |real| {
        // SAFETY: the caller's promise.
        instantiated(unsafe { real(executable, graph, parameters) }, executable, graph)
    }

    fn cuGraphInstantiateWithParams_ptsz(executable: *mut Opaque, graph: Opaque, parameters: *mut c_void) |real| {
        // SAFETY: the caller's promise.
        instantiated(unsafe { real(executable, graph, parameters) }, executable, graph)
    }

    fn cuGraphExecDestroy(executable: Opaque) |real| {
        let number = leased(|process| process.graphs.executables.remove(&(executable as usize)));
        // SAFETY: the caller's promise.
        let status = unsafe { real(executable) };
        if let Some(number) = number {
            with(|process| match status {
                SUCCESS => process.unuse_graph(number),
                _ => {
                    process.graphs.executables.insert(executable as usize, number);
                }
            });
        }
        status
    }

    fn cuGraphDestroy(graph: Opaque) |real| {
        let number = leased(|process| process.graphs.numbers.remove(&(graph as usize)));
        // SAFETY: the caller's promise.
        let status = unsafe { real(graph) };
        if let Some(number) = number {
            with(|process| match status {
                SUCCESS => process.unuse_graph(number),
                _ => {
                    process.graphs.numbers.insert(graph as usize, number);
                }
            });
        }
        status
    }

    fn cuDeviceGraphMemTrim(device: Device) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(device) };
        if is_leased() {
            with(Process::settle_graphs);
        }
        status
    }
}
