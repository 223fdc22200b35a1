//! The loader's own `dlsym`. This library has a function of that name, so it cannot be had by name alone: the versions that the C
//! library gives it are asked for.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Since 2.34 in the C library itself, before in a library of its own.
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" }];

/// The address of the loader's `dlsym`; 0 where there is none.
pub fn dlsym_address() -> usize {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let found = FOUND.load(Relaxed);
    if found != 0 {
        return found;
    }
    // SAFETY: names end with zeros; the search begins behind this library.
    let find = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) } as usize;
    let found = VERSIONS.into_iter().map(find).find(|&found| found != 0).unwrap_or(0);
    FOUND.store(found, Relaxed);
    found
}

/// As `dlsym`, asked on behalf of this library.
pub fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    match dlsym_address() {
        0 => std::ptr::null_mut(),
        // SAFETY: the address is that of the loader's function.
        address => unsafe { std::mem::transmute::<usize, Dlsym>(address)(handle, name.as_ptr()) },
    }
}
