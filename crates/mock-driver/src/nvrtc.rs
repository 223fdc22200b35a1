//! The compiler of kernels: the system's C compiler, whose libraries of this machine stand for cubins.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use plimsoll_ptx::Host;

/// What a cubin begins with, before its length.
pub const MARK: &[u8] = b"PLIMSOLL MOCK CUBIN\0";

#[derive(Default)]
struct Unit {
    source: String,
    cubin: Vec<u8>,
    log: Vec<u8>,
}

#[derive(Default)]
struct Units {
    last: usize,
    units: HashMap<usize, Unit>,
}

const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

fn units() -> MutexGuard<'static, Units> {
    static LOCK: OnceLock<Mutex<Units>> = OnceLock::new();
    LOCK.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

fn compiled(source: &str, options: &[String]) -> Result<Vec<u8>, (c_int, String)> {
    let cards = options.iter().filter(|option| option.strip_prefix("-arch=sm_").is_some_and(|of| of.len() >= 2));
    if cards.count() != 1 {
        return Err((INVALID_OPTION, "no architecture".to_string()));
    }
    if let Some(unknown) = options.iter().find(|option| !option.starts_with('-')) {
        return Err((INVALID_OPTION, format!("what is {unknown}")));
    }
    let library = Host::plain().library(source).map_err(|log| (COMPILATION, log))?;
    Ok([MARK, &(library.len() as u64).to_le_bytes(), &library].concat())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    if major.is_null() || minor.is_null() {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    unsafe {
        *major = 13;
        *minor = 5;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(status: c_int) -> *const c_char {
    let text = match status {
        SUCCESS => c"NVRTC_SUCCESS",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    place: *mut *mut c_void,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _texts: *const *const c_char,
    _names: *const *const c_char,
) -> c_int {
    if place.is_null() || source.is_null() || headers != 0 {
        return INVALID_INPUT;
    }
    // SAFETY: the caller's promise.
    let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
    let mut units = units();
    units.last += 1;
    let number = units.last;
    units.units.insert(number, Unit { source, ..Unit::default() });
    // SAFETY: the caller's promise.
    unsafe { *place = number as *mut c_void };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char) -> c_int {
    let Some(source) = units().units.get(&(program as usize)).map(|unit| unit.source.clone()) else { return INVALID_PROGRAM };
    // SAFETY: the caller's promise: so many texts that end with zeros.
    let option = |at: usize| unsafe { CStr::from_ptr(*options.add(at)) }.to_string_lossy().into_owned();
    let options: Vec<String> = (0..usize::try_from(count).unwrap_or(0)).map(option).collect();
    let made = compiled(&source, &options);
    let mut units = units();
    let Some(unit) = units.units.get_mut(&(program as usize)) else { return INVALID_PROGRAM };
    match made {
        Ok(cubin) => {
            unit.cubin = cubin;
            SUCCESS
        }
        Err((status, log)) => {
            unit.log = log.into_bytes();
            status
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> c_int {
    if program.is_null() {
        return INVALID_PROGRAM;
    }
    // SAFETY: the caller's promise.
    let number = unsafe { std::mem::replace(&mut *program, std::ptr::null_mut()) } as usize;
    units().units.remove(&number).map_or(INVALID_PROGRAM, |_| SUCCESS)
}

/// Gives a size, or the bytes and a zero where the text is one.
unsafe fn give(program: *mut c_void, size: *mut usize, bytes: *mut c_char, of: fn(&Unit) -> Vec<u8>) -> c_int {
    let units = units();
    let Some(unit) = units.units.get(&(program as usize)) else { return INVALID_PROGRAM };
    let what = of(unit);
    // SAFETY: the caller's promise: one of them is null, and the other has room.
    unsafe {
        if !size.is_null() {
            *size = what.len();
        }
        if !bytes.is_null() {
            bytes.copy_from_nonoverlapping(what.as_ptr().cast(), what.len());
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut c_void, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(program, size, std::ptr::null_mut(), |unit| unit.cubin.clone()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut c_void, bytes: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(program, std::ptr::null_mut(), bytes, |unit| unit.cubin.clone()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut c_void, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(program, size, std::ptr::null_mut(), |unit| [&unit.log[..], &[0]].concat()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: *mut c_void, bytes: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { give(program, std::ptr::null_mut(), bytes, |unit| [&unit.log[..], &[0]].concat()) }
}
