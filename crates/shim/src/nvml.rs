//! How much memory there is and is free, as NVIDIA's management library says it: of the lease, as CUDA does.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};

use crate::abi::{SUCCESS, Status};
use crate::driver::{Function, Library, wrap};
use crate::info::Memory;
use crate::process::{is_leased, with};

/// `nvmlMemory_t`.
#[repr(C)]
pub struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The memory of a device that a program is told; none for a card of which the lease has nothing, which CUDA does not show.
fn seen(device: *mut c_void, total: u64, free: u64) -> Option<Memory> {
    static UUID: Function = Function::new(Library::Nvml, c"nvmlDeviceGetUUID");
    type GetUuid = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> Status;
    let mut text = [0u8; 96];
    // SAFETY: the function has that name and these arguments, and writes at most as many bytes as it is told.
    let status = unsafe { std::mem::transmute::<usize, GetUuid>(UUID.address()?)(device, text.as_mut_ptr().cast(), text.len() as c_uint) };
    let key = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok().filter(|_| status == SUCCESS)?;
    with(|process| {
        let card = process.card_with_key([key])?;
        Some(process.seen(Some(card), total, free))
    })
}

wrap! { Nvml;
    fn nvmlDeviceGetMemoryInfo(device: *mut c_void, memory: *mut MemoryV1) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(device, memory) };
        if status == SUCCESS && is_leased() && !memory.is_null() {
            // SAFETY: the caller's promise.
            let memory = unsafe { &mut *memory };
            if let Some(seen) = seen(device, memory.total, memory.free) {
                *memory = MemoryV1 { total: seen.total, free: seen.free, used: seen.used };
            }
        }
        status
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut MemoryV2) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(device, memory) };
        if status == SUCCESS && is_leased() && !memory.is_null() {
            // SAFETY: the caller's promise.
            let memory = unsafe { &mut *memory };
            if let Some(seen) = seen(device, memory.total, memory.free) {
                let version = memory.version;
                *memory = MemoryV2 { version, total: seen.total, reserved: 0, free: seen.free, used: seen.used };
            }
        }
        status
    }
}
