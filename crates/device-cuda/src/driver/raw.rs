//! The driver as C has it: numbers, structures, functions. From `cuda.h` as the CUDA toolkit publishes it. A function that a driver does
//! not have is [`Trouble::Missing`].

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;

use crate::library::functions;

/// A handle: of a context, stream, event, module or function.
pub(crate) type Handle = *mut c_void;
/// Memory of a card, by the number that the driver has for it.
pub(crate) type MemoryHandle = c_ulonglong;

/// Why a call gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The driver has no function of that name.
    Missing(&'static str),
    /// The returned code.
    Code(c_uint),
    /// The status of cuDNN, which pushes work of its own.
    Cudnn(c_int),
}

impl Trouble {
    pub(crate) const OUT_OF_MEMORY: Trouble = Trouble::Code(2);
    pub(crate) const INVALID_VALUE: Trouble = Trouble::Code(1);

    /// Whether nothing works on the card any more: it is gone, or its context is broken.
    pub(crate) fn ends_the_card(self) -> bool {
        matches!(self, Trouble::Code(46 | 101 | 214 | 220 | 226 | 700..=702 | 709 | 710 | 714..=719 | 721 | 999))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match *self {
            Trouble::Missing(name) => return write!(f, "this driver has no {name}: it is too old"),
            Trouble::Cudnn(status) => return write!(f, "cuDNN refuses to compute (status {status})"),
            Trouble::Code(code) => code,
        };
        let text = match code {
            1 => "invalid value",
            2 => "out of memory",
            3 => "not initialized",
            4 => "the driver is shutting down",
            34 => "the library is a stub",
            46 => "the card is not available",
            100 => "there is no card",
            101 => "there is no such card",
            200 => "the compiled kernels are damaged",
            201 => "invalid context",
            209 => "there is no code for this card",
            214 => "an error in the card's memory that cannot be corrected",
            218 => "the compiled kernels are invalid",
            222 => "the compiler is newer than the driver",
            304 => "the operating system refused",
            400 => "invalid handle",
            500 => "not found",
            700 => "a kernel used an address that is none",
            701 => "the card has not enough resources for a kernel",
            702 => "a kernel took too long",
            716 => "a kernel used a misaligned address",
            719 => "a kernel was ended by the card",
            801 => "not supported",
            802 => "the system is not ready",
            803 => "driver and library versions differ: restart the machine, or reload the driver",
            999 => "unknown error",
            code => return write!(f, "CUDA error {code}"),
        };
        write!(f, "{text} (CUDA error {code})")
    }
}

/// `CUmemAllocationProp`: pinned memory of a card.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MemoryKind {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: Location,
    pub security: *mut c_void,
    pub flags: [u8; 8],
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    pub kind: c_int,
    pub id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct Access {
    pub location: Location,
    pub flags: c_int,
}

impl MemoryKind {
    /// Of a card.
    pub(crate) fn of(device: c_int) -> MemoryKind {
        let location = Location { kind: 1, id: device };
        MemoryKind { kind: 1, handle_types: 0, location, security: std::ptr::null_mut(), flags: [0; 8] }
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
pub(crate) struct KernelNode {
    pub function: Handle,
    pub blocks: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: Handle,
    pub context: Handle,
}

/// `CUDA_MEMCPY3D_v2`.
#[repr(C)]
pub(crate) struct CopyNode {
    pub from: CopySide,
    pub to: CopySide,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of it.
#[repr(C)]
pub(crate) struct CopySide {
    pub offsets: [usize; 4],
    pub kind: c_int,
    pub host: *mut c_void,
    pub device: u64,
    pub array: Handle,
    pub reserved: *mut c_void,
    pub pitch: usize,
    pub height: usize,
}

/// `CU_MEMORYTYPE_HOST`.
pub(crate) const OF_THE_HOST: c_int = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const OF_A_CARD: c_int = 2;

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
pub(crate) struct FillNode {
    pub to: u64,
    pub pitch: usize,
    pub value: c_uint,
    pub element: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUgraphNodeParams` of a node of kind 13, `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct ConditionalNode {
    pub kind: c_int,
    pub reserved: [c_int; 3],
    pub condition: c_ulonglong,
    pub form: c_int,
    pub count: c_uint,
    /// The driver's own list of bodies, set by the driver.
    pub bodies: *const Handle,
    pub context: Handle,
    pub rest: [u64; 26],
}

const _: () = assert!(size_of::<ConditionalNode>() == 256);

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
pub(crate) const CONDITIONAL: c_int = 13;
/// `CU_GRAPH_COND_TYPE_IF`.
pub(crate) const IF: c_int = 0;
/// `CU_GRAPH_COND_TYPE_WHILE`.
pub(crate) const WHILE: c_int = 1;
/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: a condition has its first value at every launch.
pub(crate) const WITH_DEFAULT: c_uint = 1;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: c_int = 3;
/// `CU_MEMHOSTALLOC_PORTABLE`: of all contexts.
pub(crate) const PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: kernels can use it.
pub(crate) const MAPPED: c_uint = 2;
/// `CU_CTX_SCHED_BLOCKING_SYNC`: threads that wait for the card sleep.
pub(crate) const BLOCKING: c_uint = 4;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT: c_uint = 3;
/// `CU_EVENT_BLOCKING_SYNC`: with the time.
pub(crate) const TIMED_EVENT: c_uint = 1;
/// `CU_STREAM_NON_BLOCKING`: without ties to the context's own stream.
pub(crate) const STREAM: c_uint = 1;

/// `CUdevice_attribute`.
pub(crate) mod attribute {
    pub(crate) const MAJOR: i32 = 75;
    pub(crate) const MINOR: i32 = 76;
    pub(crate) const VIRTUAL_MEMORY: i32 = 102;
}

/// The most arguments of a launch.
pub(crate) const MOST_ARGUMENTS: usize = 512;

functions! {
    init: unsafe extern "C" fn(c_uint) -> c_uint = c"cuInit";
    version: unsafe extern "C" fn(*mut c_int) -> c_uint = c"cuDriverGetVersion";
    count: unsafe extern "C" fn(*mut c_int) -> c_uint = c"cuDeviceGetCount";
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_uint = c"cuDeviceGet";
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint = c"cuDeviceGetName";
    uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_uint = c"cuDeviceGetUuid_v2" | c"cuDeviceGetUuid";
    total: unsafe extern "C" fn(*mut usize, c_int) -> c_uint = c"cuDeviceTotalMem_v2";
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_uint = c"cuDeviceGetAttribute";
    context_flags: unsafe extern "C" fn(c_int, c_uint) -> c_uint = c"cuDevicePrimaryCtxSetFlags_v2" | c"cuDevicePrimaryCtxSetFlags";
    context_retain: unsafe extern "C" fn(*mut Handle, c_int) -> c_uint = c"cuDevicePrimaryCtxRetain";
    context_release: unsafe extern "C" fn(c_int) -> c_uint = c"cuDevicePrimaryCtxRelease_v2" | c"cuDevicePrimaryCtxRelease";
    context_state: unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_uint = c"cuDevicePrimaryCtxGetState";
    context_now: unsafe extern "C" fn(*mut Handle) -> c_uint = c"cuCtxGetCurrent";
    context_set: unsafe extern "C" fn(Handle) -> c_uint = c"cuCtxSetCurrent";
    free_bytes: unsafe extern "C" fn(*mut usize, *mut usize) -> c_uint = c"cuMemGetInfo_v2";
    granularity: unsafe extern "C" fn(*mut usize, *const MemoryKind, c_uint) -> c_uint = c"cuMemGetAllocationGranularity";
    address_reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, c_ulonglong) -> c_uint = c"cuMemAddressReserve";
    address_free: unsafe extern "C" fn(u64, usize) -> c_uint = c"cuMemAddressFree";
    memory_create: unsafe extern "C" fn(*mut MemoryHandle, usize, *const MemoryKind, c_ulonglong) -> c_uint = c"cuMemCreate";
    memory_release: unsafe extern "C" fn(MemoryHandle) -> c_uint = c"cuMemRelease";
    map: unsafe extern "C" fn(u64, usize, usize, MemoryHandle, c_ulonglong) -> c_uint = c"cuMemMap";
    unmap: unsafe extern "C" fn(u64, usize) -> c_uint = c"cuMemUnmap";
    set_access: unsafe extern "C" fn(u64, usize, *const Access, usize) -> c_uint = c"cuMemSetAccess";
    set_bytes: unsafe extern "C" fn(u64, u8, usize, Handle) -> c_uint = c"cuMemsetD8Async";
    copy_in: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_uint = c"cuMemcpyHtoDAsync_v2";
    copy_out: unsafe extern "C" fn(*mut c_void, u64, usize, Handle) -> c_uint = c"cuMemcpyDtoHAsync_v2";
    copy: unsafe extern "C" fn(u64, u64, usize, Handle) -> c_uint = c"cuMemcpyDtoDAsync_v2";
    host_allocate: unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_uint = c"cuMemHostAlloc";
    host_free: unsafe extern "C" fn(*mut c_void) -> c_uint = c"cuMemFreeHost";
    stream_create: unsafe extern "C" fn(*mut Handle, c_uint, c_int) -> c_uint = c"cuStreamCreateWithPriority";
    stream_destroy: unsafe extern "C" fn(Handle) -> c_uint = c"cuStreamDestroy_v2";
    event_create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_uint = c"cuEventCreate";
    event_destroy: unsafe extern "C" fn(Handle) -> c_uint = c"cuEventDestroy_v2";
    event_elapsed: unsafe extern "C" fn(*mut f32, Handle, Handle) -> c_uint = c"cuEventElapsedTime_v2" | c"cuEventElapsedTime";
    event_record: unsafe extern "C" fn(Handle, Handle) -> c_uint = c"cuEventRecord";
    stream_wait: unsafe extern "C" fn(Handle, Handle, c_uint) -> c_uint = c"cuStreamWaitEvent";
    can_reach: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_uint = c"cuDeviceCanAccessPeer";
    copy_across: unsafe extern "C" fn(u64, Handle, u64, Handle, usize, Handle) -> c_uint = c"cuMemcpyPeerAsync";
    event_synchronize: unsafe extern "C" fn(Handle) -> c_uint = c"cuEventSynchronize";
    module_load: unsafe extern "C" fn(*mut Handle, *const c_void) -> c_uint = c"cuModuleLoadData";
    module_unload: unsafe extern "C" fn(Handle) -> c_uint = c"cuModuleUnload";
    module_function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_uint = c"cuModuleGetFunction";
    graph_create: unsafe extern "C" fn(*mut Handle, c_uint) -> c_uint = c"cuGraphCreate";
    graph_destroy: unsafe extern "C" fn(Handle) -> c_uint = c"cuGraphDestroy";
    graph_kernel: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const KernelNode) -> c_uint = c"cuGraphAddKernelNode_v2";
    graph_copy: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const CopyNode, Handle) -> c_uint = c"cuGraphAddMemcpyNode";
    graph_fill: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const FillNode, Handle) -> c_uint = c"cuGraphAddMemsetNode";
    graph_child: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, Handle) -> c_uint = c"cuGraphAddChildGraphNode";
    graph_condition: unsafe extern "C" fn(*mut c_ulonglong, Handle, Handle, c_uint, c_uint) -> c_uint = c"cuGraphConditionalHandleCreate";
    graph_node: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, *const c_void, usize, *mut ConditionalNode) -> c_uint = c"cuGraphAddNode_v2";
    graph_nodes: unsafe extern "C" fn(Handle, *mut Handle, *mut usize) -> c_uint = c"cuGraphGetNodes";
    capture_begin: unsafe extern "C" fn(Handle, c_int) -> c_uint = c"cuStreamBeginCapture_v2";
    capture_end: unsafe extern "C" fn(Handle, *mut Handle) -> c_uint = c"cuStreamEndCapture";
    graph_instantiate: unsafe extern "C" fn(*mut Handle, Handle, c_ulonglong) -> c_uint = c"cuGraphInstantiateWithFlags";
    graph_exec_destroy: unsafe extern "C" fn(Handle) -> c_uint = c"cuGraphExecDestroy";
    graph_upload: unsafe extern "C" fn(Handle, Handle) -> c_uint = c"cuGraphUpload";
    graph_launch: unsafe extern "C" fn(Handle, Handle) -> c_uint = c"cuGraphLaunch";
    launch: unsafe extern "C" fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void) -> c_uint = c"cuLaunchKernel";
}

/// The text before the first zero.
pub(crate) fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |text| text.to_string_lossy().trim().to_string())
}
