//! The mock driver of this library's folder, and handles on its cards.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::descriptor::{Answer, because};
use crate::status::{BAD, DRIVER, NO_CARD_MEMORY, NOT_INITIALIZED};

/// Work on a stream: what it does, and what ends it when it is never done again.
pub type Act = unsafe extern "C" fn(*mut c_void) -> c_int;
pub type End = unsafe extern "C" fn(*mut c_void);

/// The driver's functions; each gives 0 where it has done its work.
struct Driver {
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int,
    setting: unsafe extern "C" fn(c_int, *mut u64) -> c_int,
    push: unsafe extern "C" fn(*mut c_void, Option<Act>, Option<End>, *mut c_void) -> c_int,
    host: unsafe extern "C" fn(u64, u64) -> *mut u8,
    spend: unsafe extern "C" fn(u64),
}

/// What a test sets on a card: the bytes that a handle takes there, and those that plans want beyond what was planned.
const HANDLE: c_int = 0;
const MORE_WORKSPACE: c_int = 1;

/// The driver's status where there is no memory.
const OUT_OF_MEMORY: c_int = 2;

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref()
}

/// The driver beside this library: the same that the program has loaded by that path.
fn load() -> Option<Driver> {
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: it looks for an address of this library, and writes where that is.
    let found = unsafe { libc::dladdr(load as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text that stays as long as the library.
    let own = Path::new(std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()));
    let path = CString::new(own.with_file_name("libcuda.so.1").as_os_str().as_bytes()).ok()?;
    // SAFETY: a text that ends with a zero; the driver is never unloaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    let symbol = |name: &CStr| {
        // SAFETY: a library that stays, and a text that ends with a zero.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    // SAFETY: the mock driver's functions of these names have these types.
    unsafe {
        Some(Driver {
            allocate: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u64, usize) -> c_int>(symbol(c"cuMemAlloc_v2")?),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> c_int>(symbol(c"cuMemFree_v2")?),
            attribute: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(symbol(
                c"cuDeviceGetAttribute",
            )?),
            setting: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut u64) -> c_int>(symbol(c"plimsoll_mock_setting")?),
            push: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, Option<Act>, Option<End>, *mut c_void) -> c_int>(
                symbol(c"plimsoll_mock_push")?,
            ),
            host: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64, u64) -> *mut u8>(symbol(c"plimsoll_mock_host")?),
            spend: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64)>(symbol(c"plimsoll_mock_spend")?),
        })
    }
}

/// A handle on a card.
struct Handle {
    memory: u64,
    stream: usize,
}

#[derive(Default)]
struct Handles {
    last: usize,
    opened: HashMap<usize, Handle>,
}

static HANDLES: Mutex<Option<Handles>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Handles) -> T) -> T {
    act(HANDLES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn setting(driver: &Driver, which: c_int) -> Answer<u64> {
    let mut value = 0;
    // SAFETY: it writes a number.
    match unsafe { (driver.setting)(which, &mut value) } {
        0 => Ok(value),
        OUT_OF_MEMORY => because(NO_CARD_MEMORY, "no memory on the card"),
        status => because(NOT_INITIALIZED, format!("the driver says {status}")),
    }
}

/// Opens a handle on the card of the calling thread's context, which takes memory there.
pub fn open() -> Answer<usize> {
    let Some(driver) = driver() else { return because(NOT_INITIALIZED, "there is no driver") };
    let bytes = setting(driver, HANDLE)?;
    let mut memory = 0;
    if bytes > 0 {
        // SAFETY: it writes a number.
        match unsafe { (driver.allocate)(&mut memory, bytes as usize) } {
            0 => {}
            OUT_OF_MEMORY => return because(NO_CARD_MEMORY, "no memory for a handle"),
            status => return because(NOT_INITIALIZED, format!("the driver says {status}")),
        }
    }
    with(|handles| {
        handles.last += 16;
        handles.opened.insert(handles.last, Handle { memory, stream: 0 });
        Ok(handles.last)
    })
}

pub fn close(handle: usize) -> Answer<()> {
    let Some(Handle { memory, .. }) = with(|handles| handles.opened.remove(&handle)) else { return because(BAD, "no handle") };
    if let Some(driver) = driver().filter(|_| memory != 0) {
        // SAFETY: an allocation of its own.
        unsafe { (driver.free)(memory) };
    }
    Ok(())
}

pub fn set_stream(handle: usize, stream: usize) -> Answer<()> {
    match with(|handles| handles.opened.get_mut(&handle).map(|handle| handle.stream = stream)) {
        Some(()) => Ok(()),
        None => because(BAD, "no handle"),
    }
}

/// Bytes that a handle's card wants beyond what was planned.
pub fn more_workspace(handle: usize) -> Answer<u64> {
    match driver().filter(|_| with(|handles| handles.opened.contains_key(&handle))) {
        Some(driver) => setting(driver, MORE_WORKSPACE),
        None => because(BAD, "no handle"),
    }
}

/// The properties of a card, as JSON: its own, and otherwise such as an H100 has.
pub fn properties(card: c_int) -> Option<String> {
    let driver = driver()?;
    // `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
    let [major, minor] = [75, 76].map(|attribute| {
        let mut value = 0;
        // SAFETY: it writes a number.
        (unsafe { (driver.attribute)(&mut value, attribute, card) } == 0).then_some(value)
    });
    let (major, minor) = (major?, minor?);
    Some(format!(
        "{{\"cudaDeviceId\":{card},\"deviceName\":\"Mock card\",\"deviceVer\":{},\"driverVer\":13000,\"isTccDriver\":false,\
         \"l2CacheSize\":52428800,\"maxBlockSize\":[1024,1024,64],\"maxCtasPerSM\":32,\"maxGridSize\":[2147483647,65535,65535],\
         \"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,\"maxThreadsPerBlock\":1024,\
         \"maxThreadsPerSM\":2048,\"memClockRateKHz\":2619000,\"multiProcessorCount\":132,\"pciDeviceId\":9008,\"regsPerBlock\":65536,\
         \"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":1980000,\"supportCoopLaunch\":true,\"totalGlobalMem\":85029158912,\
         \"warpSize\":32}}",
        major * 100 + minor * 10
    ))
}

/// Where a range of a card's memory is for the work of a stream; null where it cannot be used.
pub fn host(address: u64, bytes: u64) -> *mut u8 {
    // SAFETY: it looks at no memory.
    driver().map_or(std::ptr::null_mut(), |driver| unsafe { (driver.host)(address, bytes) })
}

/// Counts units of work, on the stream that does it.
pub fn spend(units: u64) {
    if let Some(driver) = driver() {
        // SAFETY: it counts.
        unsafe { (driver.spend)(units) };
    }
}

/// Pushes work on a handle's stream.
///
/// # Safety
/// `act` and `end` may be called with `with`, from any thread.
pub unsafe fn push(handle: usize, act: Act, end: End, with_: *mut c_void) -> Answer<()> {
    let stream = with(|handles| handles.opened.get(&handle).map(|handle| handle.stream));
    let (Some(driver), Some(stream)) = (driver(), stream) else {
        // SAFETY: the caller's promise.
        unsafe { end(with_) };
        return because(BAD, "no handle");
    };
    // SAFETY: the caller's promise; the driver ends what it was given, whatever it says.
    match unsafe { (driver.push)(stream as *mut c_void, Some(act), Some(end), with_) } {
        0 => Ok(()),
        OUT_OF_MEMORY => because(NO_CARD_MEMORY, "no memory to push a kernel"),
        status => because(DRIVER, format!("the driver says {status}")),
    }
}
