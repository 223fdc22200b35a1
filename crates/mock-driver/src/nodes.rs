//! Nodes of graphs that work: kernels, copies, fills. What they are made from is read when they are added.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::calls::note;
use crate::graphs::Act;
use crate::modules::prepare;
use crate::space::host;
use crate::state::{INVALID_VALUE, Opaque, SUCCESS, Status, put, with};
use crate::streams::usable;

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub struct KernelNode {
    function: Opaque,
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Opaque,
    context: Opaque,
}

/// `CUDA_MEMCPY3D_v2`
#[repr(C)]
pub struct CopyNode {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
}

/// A side of a copy.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    offsets: [usize; 4],
    kind: c_int,
    host: *mut c_void,
    device: u64,
    array: Opaque,
    reserved: Opaque,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`
#[repr(C)]
pub struct FillNode {
    to: u64,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}

/// The nodes that a node comes behind.
///
/// # Safety
/// The driver's: there are so many.
pub unsafe fn after<'a>(nodes: *const Opaque, count: usize) -> Result<&'a [u64], Status> {
    match (nodes.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(INVALID_VALUE),
        // SAFETY: the caller's promise; handles are as wide as numbers.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(nodes.cast(), count) }),
    }
}

/// Adds a node that works on the card of a context, or of the calling thread's.
unsafe fn add(
    place: *mut Opaque,
    graph: Opaque,
    nodes: (*const Opaque, usize),
    context: Opaque,
    (function, act): (Option<u64>, Act),
) -> Status {
    with(|state| {
        // SAFETY: the caller's promise.
        let after = unsafe { after(nodes.0, nodes.1) }?;
        let card = state.card_of(context)?;
        let node = state.add_work(graph, after, card, function, act)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, node as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    place: *mut Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    count: usize,
    of: *const KernelNode,
) -> Status {
    note("cuGraphAddKernelNode");
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let of = unsafe { &*of };
    if !of.kernel.is_null() || !of.extra.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    match unsafe { prepare(of.function, of.blocks, of.threads, of.shared, of.params) } {
        Err(status) => status,
        Ok(launch) => {
            let act: Act = Arc::new(move || launch.run());
            // SAFETY: the caller's promise.
            unsafe { add(place, graph, (nodes, count), of.context, (Some(of.function as u64), act)) }
        }
    }
}

/// The address of a side of a copy of one row, and whether it is the host's. Memory of the host has to be pinned: the driver would copy
/// other memory, too, but not while the host goes on.
fn side(side: &Side, bytes: usize) -> Result<(u64, bool), Status> {
    if side.offsets != [0; 4] || !side.array.is_null() || !side.reserved.is_null() || side.pitch < bytes {
        return Err(INVALID_VALUE);
    }
    match side.kind {
        1 if with(|state| if state.pinned.contains(side.host as u64, bytes as u64) { Ok(()) } else { Err(INVALID_VALUE) }) == SUCCESS => {
            Ok((side.host as u64, true))
        }
        2 => Ok((side.device, false)),
        _ => Err(INVALID_VALUE),
    }
}

/// Copies of one row alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    place: *mut Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    count: usize,
    of: *const CopyNode,
    context: Opaque,
) -> Status {
    note("cuGraphAddMemcpyNode");
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let of = unsafe { &*of };
    let bytes = of.width;
    let sides = side(&of.from, bytes).and_then(|from| Ok((from, side(&of.to, bytes)?)));
    let ((from, from_host), (to, to_host)) = match sides {
        // The longest row: the attribute for it.
        Ok(sides) if bytes > 0 && bytes < 1 << 31 && of.height == 1 && of.depth == 1 && !(sides.0.1 && sides.1.1) => sides,
        Ok(_) => return INVALID_VALUE,
        Err(status) => return status,
    };
    let act: Act = Arc::new(move || {
        let sides = [(from, from_host), (to, to_host)];
        let bad = sides.iter().filter(|(_, of_host)| !of_host).map(|(at, _)| usable(*at, bytes as u64)).find(|status| *status != SUCCESS);
        if let Some(status) = bad {
            return status;
        }
        // SAFETY: the card's memory, which nothing but its streams uses, and pinned memory that the caller keeps.
        unsafe { host(to).copy_from(host(from), bytes) };
        SUCCESS
    });
    // SAFETY: the caller's promise.
    unsafe { add(place, graph, (nodes, count), context, (None, act)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemsetNode(
    place: *mut Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    count: usize,
    of: *const FillNode,
    context: Opaque,
) -> Status {
    note("cuGraphAddMemsetNode");
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let &FillNode { to, value, element, width, height, .. } = unsafe { &*of };
    // A value has as many bits as an element.
    let fits = matches!(element, 1 | 2 | 4) && u64::from(value) < 1 << (8 * element) && to.is_multiple_of(u64::from(element));
    let bytes = width.saturating_mul(element as usize);
    if !fits || bytes == 0 || height != 1 {
        return INVALID_VALUE;
    }
    let act: Act = Arc::new(move || match usable(to, bytes as u64) {
        SUCCESS => {
            let word = value.to_le_bytes();
            // SAFETY: the card's memory, which nothing but its streams uses.
            (0..bytes).for_each(|at| unsafe { host(to).add(at).write(word[at % element as usize]) });
            SUCCESS
        }
        status => status,
    });
    // SAFETY: the caller's promise.
    unsafe { add(place, graph, (nodes, count), context, (None, act)) }
}
