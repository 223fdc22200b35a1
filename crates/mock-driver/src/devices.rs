//! Devices, and questions to the driver that come before everything else.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::state::{INVALID_VALUE, NOT_FOUND, Status, begin, put, status, with};

/// The version of CUDA that the driver is of.
pub const VERSION: c_int = 13050;

/// The compute capability of all cards, major and minor.
pub const CAPABILITY: (c_int, c_int) = (9, 0);

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> Status {
    begin()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    status(unsafe { put(version, VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(count, state.visible.len() as c_int) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| state.card(number).and_then(|_| unsafe { put(device, number) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, length: c_int, device: c_int) -> Status {
    with(|state| {
        state.card(device)?;
        let name = b"Mock card\0";
        if text.is_null() || length < name.len() as c_int {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's promise; there is room for the text.
        unsafe { text.copy_from_nonoverlapping(name.as_ptr().cast(), name.len()) };
        Ok(())
    })
}

unsafe fn uuid(place: *mut [u8; 16], device: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(place, state.machine.cards()[state.card(device)?].uuid) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(place: *mut [u8; 16], device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { uuid(place, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(place: *mut [u8; 16], device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { uuid(place, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(bytes, state.machine.available(state.card(device)?) as usize) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem(bytes: *mut c_uint, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(bytes, c_uint::try_from(state.machine.available(state.card(device)?)).unwrap_or(c_uint::MAX)) })
}

/// But for the compute capability all attributes are 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status {
    let known = match attribute {
        75 => CAPABILITY.0,
        76 => CAPABILITY.1,
        _ => 1,
    };
    // SAFETY: the caller's promise.
    with(|state| state.card(device).and_then(|_| unsafe { put(value, known) }))
}

/// Cards reach each other, unless one is alone ([`crate::Machine::set_alone`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(reaches: *mut c_int, device: c_int, other: c_int) -> Status {
    with(|state| {
        let (card, other) = (state.card(device)?, state.card(other)?);
        let alone = state.machine.is_alone(card) || state.machine.is_alone(other);
        // SAFETY: the caller's promise.
        unsafe { put(reaches, c_int::from(card != other && !alone)) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) -> Status {
    NOT_FOUND
}

unsafe fn error(code: Status, text: *mut *const c_char) -> Status {
    let name = match code {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        3 => c"CUDA_ERROR_NOT_INITIALIZED",
        100 => c"CUDA_ERROR_NO_DEVICE",
        101 => c"CUDA_ERROR_INVALID_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        500 => c"CUDA_ERROR_NOT_FOUND",
        801 => c"CUDA_ERROR_NOT_SUPPORTED",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    status(unsafe { put(text, name.as_ptr()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's promise.
    unsafe { error(code, text) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's promise.
    unsafe { error(code, text) }
}
