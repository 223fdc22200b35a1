//! `dlsym`. The loader's own `dlsym` looks at its caller. So everything that is not exchanged here jumps to it, with the caller's
//! return address in its place. `dlvsym` finds none of the driver's functions, which have no versions.

use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;

use crate::table::{self, Entry};
use crate::{loader, order};

/// The result: an address to answer with, or else a function to jump to; both 0 where there is neither.
#[repr(C)]
struct Choice {
    answer: usize,
    jump: usize,
}

/// The wrapper for a name, if the name leads to the driver's function.
fn wrapper(handle: *mut c_void, name: *const c_char, caller: usize) -> Option<usize> {
    // The search in the order of loading finds this library's functions by itself.
    if name.is_null() || handle == libc::RTLD_DEFAULT {
        return None;
    }
    // SAFETY: a name ends with zero.
    let name = unsafe { CStr::from_ptr(name) };
    let entry = table::by_symbol(name)?;
    let found = if handle == libc::RTLD_NEXT { next(entry, name, caller)? } else { loader::dlsym(handle, name) as usize };
    (entry.function.address() == Some(found)).then(|| entry.wrapper())
}

/// The result of a search that begins behind a library, if that library is behind this one: a search that begins before this one
/// comes here by itself.
fn next(entry: &Entry, name: &CStr, caller: usize) -> Option<usize> {
    // Before the driver is loaded there is nothing to exchange.
    let driver = entry.function.address()?;
    let loaded = order::loaded();
    let place = |address: usize| loaded.iter().position(|library| library.has(address));
    let (own, from) = (place(entry.wrapper())?, place(caller)?);
    let behind = loaded.get(from + 1..).filter(|_| from > own)?;
    // Mostly no library between has it, and none need be opened.
    if loader::dlsym(libc::RTLD_NEXT, name) as usize == driver {
        return Some(driver);
    }
    let found = behind.iter().find_map(|library| library.find(name));
    // Errors of these questions are no errors of the program's. SAFETY: takes the calling thread's last error away.
    unsafe { libc::dlerror() };
    found
}

extern "C" fn choose(handle: *mut c_void, name: *const c_char, caller: usize) -> Choice {
    let jump = loader::dlsym_address();
    let answer = catch_unwind(|| wrapper(handle, name, caller)).ok().flatten().filter(|_| jump != 0).unwrap_or(0);
    Choice { answer, jump }
}

/// As the loader's; functions of the driver that have a wrapper are exchanged for it.
///
/// # Safety
/// As the loader's.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // Two registers are kept; a third word aligns the stack for the call. The return address names the caller.
    std::arch::naked_asm!(
        "endbr64",
        "mov rdx, [rsp]",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "test rdx, rdx",
        "je 2f",
        "jmp rdx",
        "2: ret",
        choose = sym choose,
    )
}

/// As the loader's; functions of the driver that have a wrapper are exchanged for it.
///
/// # Safety
/// As the loader's.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {choose}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbnz x16, 2f",
        "cbz x17, 2f",
        "br x17",
        "2: mov x0, x16",
        "ret",
        choose = sym choose,
    )
}
