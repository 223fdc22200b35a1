//! The management library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::machine::Machine;

const SUCCESS: c_uint = 0;
const UNINITIALIZED: c_uint = 1;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const DRIVER_NOT_LOADED: c_uint = 9;

type Handle = *mut c_void;

static OPENED: Mutex<Option<Machine>> = Mutex::new(None);

fn with(act: impl FnOnce(&Machine) -> Result<(), c_uint>) -> c_uint {
    match &*OPENED.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(machine) => act(machine).err().unwrap_or(SUCCESS),
        None => UNINITIALIZED,
    }
}

fn card(machine: &Machine, handle: Handle) -> Result<usize, c_uint> {
    (handle as usize).checked_sub(1).filter(|card| *card < machine.cards().len()).ok_or(INVALID_ARGUMENT)
}

/// # Safety
/// The pointer is null or valid for writes.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), c_uint> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// # Safety
/// There is room for so many bytes, or the pointer is null.
unsafe fn put_text(text: &str, place: *mut c_char, length: c_uint) -> Result<(), c_uint> {
    if place.is_null() || text.len() + 1 > length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's promise.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if opened.is_none() {
        *opened = Machine::found();
    }
    if opened.is_some() { SUCCESS } else { DRIVER_NOT_LOADED }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(place: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { put_text("595.10", place, length) }.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(place: *mut c_int) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { put(place, crate::devices::VERSION) }.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(place: *mut c_uint) -> c_uint {
    // SAFETY: the caller's promise.
    with(|machine| unsafe { put(place, machine.cards().len() as c_uint) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: *mut Handle) -> c_uint {
    let handle = (index as usize + 1) as Handle;
    // SAFETY: the caller's promise.
    with(|machine| card(machine, handle).and_then(|_| unsafe { put(place, handle) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, place: *mut Handle) -> c_uint {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_string_lossy();
    with(|machine| {
        let card = machine.cards().iter().position(|card| card.name() == uuid).ok_or(NOT_FOUND)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, (card + 1) as Handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(handle: Handle, place: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: the caller's promise.
    with(|machine| card(machine, handle).and_then(|_| unsafe { put_text("Mock card", place, length) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(handle: Handle, place: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: the caller's promise.
    with(|machine| card(machine, handle).and_then(|card| unsafe { put_text(&machine.cards()[card].name(), place, length) }))
}

/// That of the driver's attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(handle: Handle, major: *mut c_int, minor: *mut c_int) -> c_uint {
    let (most, least) = crate::devices::CAPABILITY;
    with(|machine| {
        card(machine, handle)?;
        // SAFETY: the caller's promise.
        unsafe { put(major, most).and_then(|()| put(minor, least)) }
    })
}

/// `nvmlPciInfo_t`
#[repr(C)]
pub struct Pci {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    identity: [u32; 2],
    bus_id: [u8; 32],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(handle: Handle, place: *mut Pci) -> c_uint {
    with(|machine| {
        let bus = card(machine, handle)? as u32 + 1;
        let text = format!("00000000:{bus:02X}:00.0");
        let mut bus_id = [0; 32];
        bus_id[..text.len()].copy_from_slice(text.as_bytes());
        // SAFETY: the caller's promise.
        unsafe { put(place, Pci { legacy: [0; 16], domain: 0, bus, device: 0, identity: [0; 2], bus_id }) }
    })
}

/// The memory of a card: in all, kept by the driver, free, used.
fn memory(machine: &Machine, handle: Handle) -> Result<[u64; 4], c_uint> {
    let card = card(machine, handle)?;
    let used = machine.used().map_or(0, |used| used[card]);
    Ok([machine.cards()[card].total, machine.reserved(card), machine.available(card).saturating_sub(used), used])
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(handle: Handle, place: *mut [u64; 3]) -> c_uint {
    with(|machine| {
        let [total, reserved, free, used] = memory(machine, handle)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, [total, free, used + reserved]) }
    })
}

/// Version, total, reserved, free, used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, place: *mut [u64; 5]) -> c_uint {
    with(|machine| {
        let [total, reserved, free, used] = memory(machine, handle)?;
        // SAFETY: the caller's promise.
        let version = if place.is_null() { 0 } else { unsafe { (*place)[0] } };
        // SAFETY: the caller's promise.
        unsafe { put(place, [version, total, reserved, free, used]) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(handle: Handle, now: *mut c_uint, pending: *mut c_uint) -> c_uint {
    with(|machine| {
        let mig = c_uint::from(machine.is_mig(card(machine, handle)?));
        // SAFETY: the caller's promise.
        unsafe { put(now, mig).and_then(|()| put(pending, mig)) }
    })
}

/// `nvmlProcessInfo_v2_t`
#[repr(C)]
pub struct Process {
    pid: u32,
    bytes: u64,
    instances: [u32; 2],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(handle: Handle, count: *mut c_uint, place: *mut Process) -> c_uint {
    with(|machine| {
        let card = card(machine, handle)?;
        let mut programs = machine.programs().map_err(|_| NOT_FOUND)?;
        programs.retain(|program| program.is_on(card) && !machine.is_unlisted(card));
        // SAFETY: the caller's promise.
        let room = if count.is_null() { return Err(INVALID_ARGUMENT) } else { unsafe { *count } };
        // SAFETY: the caller's promise.
        unsafe { put(count, programs.len() as c_uint)? };
        if (room as usize) < programs.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        for (index, program) in programs.iter().enumerate() {
            let bytes = program.used[card].saturating_sub(machine.beside(card));
            // SAFETY: the caller's promise: there is room for as many as it said.
            unsafe { put(place.add(index), Process { pid: program.pid, bytes, instances: [u32::MAX; 2] })? };
        }
        Ok(())
    })
}
