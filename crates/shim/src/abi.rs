//! Types and numbers of the driver's interface, as `cuda.h` has them.

use std::ffi::{c_int, c_uint, c_void};

/// The answer of a function of the driver.
pub type Status = c_int;
pub type Device = c_int;
pub type DevicePtr = u64;
/// The address type of CUDA before 3.2.
pub type DevicePtrV1 = c_uint;
/// A context, stream, array, pool, graph or handle: never followed here.
pub type Opaque = *mut c_void;

pub const SUCCESS: Status = 0;
pub const OUT_OF_MEMORY: Status = 2;
pub const NOT_FOUND: Status = 500;
pub const UNKNOWN: Status = 999;

pub const LOCATION_NONE: c_int = 0;
pub const LOCATION_DEVICE: c_int = 1;
pub const LOCATION_INVISIBLE: c_int = 5;
pub const LOCATION_LOCALITY_DOMAIN: c_int = 6;

pub const POOL_RESERVED_NOW: c_int = 5;
pub const GRAPH_RESERVED_NOW: c_int = 2;
pub const NODE_ALLOCATES: c_int = 10;
pub const STREAM_CAPTURES: c_int = 1;

pub const ARRAY_SPARSE: c_uint = 0x40;
pub const ARRAY_DEFERRED: c_uint = 0x80;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: c_int,
    pub id: c_int,
}

/// The beginning of `CUmemAllocationProp` and of `CUmemPoolProps`, which is the same.
#[repr(C)]
pub struct Properties {
    pub kind: c_int,
    pub handle_kinds: c_int,
    pub location: Location,
}

/// `CUmemPoolProps`.
#[repr(C)]
pub struct PoolProperties {
    pub head: Properties,
    pub security: *mut c_void,
    pub max_size: usize,
    pub reserved: [u8; 56],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
pub struct AllocationNode {
    pub pool: PoolProperties,
    pub access: *const c_void,
    pub access_count: usize,
    pub bytes: usize,
    pub pointer: DevicePtr,
}

/// The beginning of `CUgraphNodeParams`, with the member for allocations of its union.
#[repr(C)]
pub struct NodeParameters {
    pub kind: c_int,
    pub reserved: [c_int; 3],
    pub allocation: AllocationNode,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub struct ArrayDescriptor {
    pub width: usize,
    pub height: usize,
    pub format: c_int,
    pub channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
pub struct Array3dDescriptor {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: c_int,
    pub channels: c_uint,
    pub flags: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`.
#[repr(C)]
pub struct ArrayDescriptorV1 {
    pub width: c_uint,
    pub height: c_uint,
    pub format: c_int,
    pub channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[repr(C)]
pub struct Array3dDescriptorV1 {
    pub width: c_uint,
    pub height: c_uint,
    pub depth: c_uint,
    pub format: c_int,
    pub channels: c_uint,
    pub flags: c_uint,
}

/// `CUuuid`.
pub type Uuid = [u8; 16];

/// Reads what a pointer of the caller points to; none where it is null.
///
/// # Safety
/// A pointer that is not null is valid for reads.
pub unsafe fn read<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: the caller's promise.
    (!place.is_null()).then(|| unsafe { place.read_unaligned() })
}

/// Writes where a pointer of the caller points to; nothing where it is null.
///
/// # Safety
/// A pointer that is not null is valid for writes.
pub unsafe fn write<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write_unaligned(value) };
    }
}
