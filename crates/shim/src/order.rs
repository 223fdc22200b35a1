//! The libraries of the program, in the order in which the loader looks in them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;

use crate::loader;

/// A library, or the program itself.
pub struct Loaded {
    /// Its file; empty for the program.
    name: CString,
    /// The mapped parts.
    parts: Vec<Range<usize>>,
}

impl Loaded {
    /// Whether an address is in it.
    pub fn has(&self, address: usize) -> bool {
        self.parts.iter().any(|part| part.contains(&address))
    }

    /// A function or variable of its own.
    pub fn find(&self, name: &CStr) -> Option<usize> {
        if self.name.is_empty() {
            return None;
        }
        // SAFETY: the name ends with zero; nothing is loaded that is not there.
        let handle = unsafe { libc::dlopen(self.name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // With the libraries that it needs itself, which come later.
        let found = loader::dlsym(handle, name) as usize;
        // SAFETY: opened just now.
        unsafe { libc::dlclose(handle) };
        Some(found).filter(|&found| self.has(found))
    }
}

/// All of them in this name space, the first that is looked in first.
pub fn loaded() -> Vec<Loaded> {
    let mut all: Vec<Loaded> = Vec::new();
    // SAFETY: the function adds to its argument, and takes nothing that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

unsafe extern "C" fn add(library: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
    // SAFETY: the loader's pointers are valid during the call, and it hands on the one that `loaded` gave.
    let (library, all) = unsafe { (&*library, &mut *all.cast::<Vec<Loaded>>()) };
    let (name, headers) = match library.dlpi_name.is_null() || library.dlpi_phdr.is_null() {
        true => return 0,
        // SAFETY: the name ends with zero, and there are so many headers.
        false => unsafe { (CStr::from_ptr(library.dlpi_name), std::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into())) },
    };
    let mapped = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let parts = mapped.map(|header| {
        let start = (library.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        start..start.saturating_add(header.p_memsz as usize)
    });
    all.push(Loaded { name: name.into(), parts: parts.collect() });
    0
}
