//! `cuGetProcAddress`: the way on which the runtime, and all that stands on it, comes to the driver's functions.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{NOT_FOUND, SUCCESS, Status, read, write};
use crate::driver::wrap;
use crate::table::{self, Entry, NEWEST};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub const LEGACY: u64 = 1;
pub const PER_THREAD: u64 = 2;

/// `CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`
const TOO_OLD: c_int = 2;

/// The treatment of the driver's answer.
enum Answer {
    /// It is given as it is.
    Driver,
    Wrapper(usize),
    /// A function that allocates and is newer than this library: a program that had it could go over the line.
    None,
}

/// The answer where the driver gave this address for a name.
fn answer(name: &CStr, address: usize, version: c_int, flags: u64) -> Answer {
    if table::by_base(name).next().is_none() {
        return Answer::Driver;
    }
    table::ask_the_driver();
    let wrapper = |entry: &Entry| Answer::Wrapper(entry.wrapper());
    if let Some(entry) = table::by_address(address) {
        return wrapper(entry);
    }
    if version > NEWEST {
        return Answer::None;
    }
    let is_meant = |entry: &&Entry| entry.since <= version && (!entry.per_thread || flags & PER_THREAD != 0);
    table::by_base(name).filter(is_meant).max_by_key(|entry| (entry.since, entry.per_thread)).map_or(Answer::Driver, wrapper)
}

/// # Safety
/// Pointers are null or valid; the name ends with zero.
unsafe fn exchange(
    status: Status,
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut c_int,
) -> Status {
    // SAFETY: the caller's promise.
    let address = unsafe { read(function) }.filter(|address| status == SUCCESS && !address.is_null() && !name.is_null());
    let Some(address) = address else { return status };
    // SAFETY: the caller's promise.
    match answer(unsafe { CStr::from_ptr(name) }, address as usize, version, flags) {
        Answer::Driver => status,
        Answer::Wrapper(wrapper) => {
            // SAFETY: the caller's promise.
            unsafe { write(function, wrapper as *mut c_void) };
            status
        }
        Answer::None => {
            // SAFETY: the caller's promise.
            unsafe {
                write(function, std::ptr::null_mut());
                write(found, TOO_OLD);
            }
            // With a place for the reason, that is where it is said.
            if found.is_null() { NOT_FOUND } else { status }
        }
    }
}

wrap! { Cuda;
    fn cuGetProcAddress(name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) |real| {
        // SAFETY: the caller's promise.
        unsafe { exchange(real(name, function, version, flags), name, function, version, flags, std::ptr::null_mut()) }
    }

    fn cuGetProcAddress_v2(name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut c_int) |real| {
        // SAFETY: the caller's promise.
        unsafe { exchange(real(name, function, version, flags, found), name, function, version, flags, found) }
    }
}
