//! `cuGetProcAddress`.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::state::{INVALID_VALUE, NOT_FOUND, SUCCESS, Status, put};
use crate::{contexts as c, devices as d, graphs as g, memory as m, physical as v, pools as p};

/// Names with the version of CUDA from which they mean a function, and whether it is the one with streams per thread.
type Line = (&'static str, c_int, bool, *const ());

macro_rules! lines {
    ($($name:literal $since:literal $per_thread:literal $function:path;)*) => {
        vec![$(($name, $since, $per_thread, $function as *const ()),)*]
    };
}

fn lines() -> Vec<Line> {
    lines! {
        "cuArray3DCreate" 3020 false m::cuArray3DCreate_v2;
        "cuArrayCreate" 3020 false m::cuArrayCreate_v2;
        "cuArrayDestroy" 2000 false m::cuArrayDestroy;
        "cuCtxCreate" 3020 false c::cuCtxCreate_v2;
        "cuCtxCreate" 12050 false c::cuCtxCreate_v4;
        "cuCtxDestroy" 4000 false c::cuCtxDestroy_v2;
        "cuCtxGetCurrent" 4000 false c::cuCtxGetCurrent;
        "cuCtxGetDevice" 2000 false c::cuCtxGetDevice;
        "cuCtxSetCurrent" 4000 false c::cuCtxSetCurrent;
        "cuCtxSynchronize" 2000 false c::cuCtxSynchronize;
        "cuDeviceGet" 2000 false d::cuDeviceGet;
        "cuDeviceGetCount" 2000 false d::cuDeviceGetCount;
        "cuDeviceGetUuid" 9020 false d::cuDeviceGetUuid;
        "cuDeviceGetUuid" 11040 false d::cuDeviceGetUuid_v2;
        "cuDevicePrimaryCtxRelease" 11000 false c::cuDevicePrimaryCtxRelease_v2;
        "cuDevicePrimaryCtxReset" 11000 false c::cuDevicePrimaryCtxReset_v2;
        "cuDevicePrimaryCtxRetain" 7000 false c::cuDevicePrimaryCtxRetain;
        "cuDeviceTotalMem" 3020 false d::cuDeviceTotalMem_v2;
        "cuGetProcAddress" 11030 false cuGetProcAddress;
        "cuGetProcAddress" 12000 false cuGetProcAddress_v2;
        "cuGraphAddMemAllocNode" 11040 false g::cuGraphAddMemAllocNode;
        "cuGraphAddNode" 12030 false g::cuGraphAddNode_v2;
        "cuGraphExecDestroy" 10000 false g::cuGraphExecDestroy;
        "cuGraphInstantiate" 12000 false g::cuGraphInstantiateWithFlags;
        "cuInit" 2000 false d::cuInit;
        "cuMemAlloc" 3020 false m::allocate_otherwise;
        "cuMemAllocAsync" 11020 false p::cuMemAllocAsync;
        "cuMemAllocAsync" 11020 true p::cuMemAllocAsync_ptsz;
        "cuMemAllocFromPoolAsync" 11020 false p::cuMemAllocFromPoolAsync;
        "cuMemAllocFromPoolAsync" 11020 true p::cuMemAllocFromPoolAsync_ptsz;
        "cuMemAllocManaged" 6000 false m::cuMemAllocManaged;
        "cuMemAllocPitch" 3020 false m::cuMemAllocPitch_v2;
        "cuMemCreate" 10020 false v::cuMemCreate;
        "cuMemFree" 3020 false m::cuMemFree_v2;
        "cuMemFreeAsync" 11020 false p::cuMemFreeAsync;
        "cuMemFreeAsync" 11020 true p::cuMemFreeAsync_ptsz;
        "cuMemGetInfo" 3020 false m::cuMemGetInfo_v2;
        "cuMemRelease" 10020 false v::cuMemRelease;
        // A function of a driver that is newer than everything.
        "cuMemAllocManaged" 99000 false m::allocate_in_future;
    }
}

fn find(name: &str, version: c_int, flags: u64) -> Option<*const ()> {
    let is_meant = |line: &Line| line.0 == name && line.1 <= version && (!line.2 || flags & 2 != 0);
    lines().into_iter().filter(is_meant).max_by_key(|line| (line.1, line.2)).map(|line| line.3)
}

/// # Safety
/// As the driver's function.
unsafe fn look_up(name: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64) -> Result<(), Status> {
    if name.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| NOT_FOUND)?;
    let found = find(name, version, flags);
    // SAFETY: the caller's promise.
    unsafe { put(place, found.map_or(std::ptr::null_mut(), |found| found as *mut c_void))? };
    found.map(drop).ok_or(NOT_FOUND)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(name: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { look_up(name, place, version, flags) }.err().unwrap_or(SUCCESS)
}

/// With a place for the reason, a missing function is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    reason: *mut c_int,
) -> Status {
    // SAFETY: the caller's promise.
    let found = unsafe { look_up(name, place, version, flags) };
    if reason.is_null() {
        return found.err().unwrap_or(SUCCESS);
    }
    // SAFETY: the caller's promise.
    match (unsafe { put(reason, c_int::from(found.is_err())) }, found) {
        (Ok(()), Ok(()) | Err(NOT_FOUND)) => SUCCESS,
        (_, Err(status)) | (Err(status), _) => status,
    }
}
