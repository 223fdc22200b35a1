//! `dlsym`. The loader's own one looks at who called it: that is why it is jumped to, with the caller's return address in its place,
//! for everything that is not exchanged here. `dlvsym` finds none of the driver's functions, which have no versions.

use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;

use crate::{loader, table};

/// What is to be done: an address to answer with, or else a function to jump to; both 0 where there is neither.
#[repr(C)]
struct Choice {
    answer: usize,
    jump: usize,
}

/// The wrapper for a name that is looked up in a library, where the library's function of that name is the driver's.
fn wrapper(handle: *mut c_void, name: *const c_char) -> Option<usize> {
    // The search that begins behind the caller, and the one in the order of loading, find this library's functions by themselves.
    if name.is_null() || [libc::RTLD_NEXT, libc::RTLD_DEFAULT].contains(&handle) {
        return None;
    }
    // SAFETY: a name ends with zero.
    let name = unsafe { CStr::from_ptr(name) };
    let entry = table::by_symbol(name)?;
    let found = loader::dlsym(handle, name) as usize;
    (entry.function.address() == Some(found)).then(|| entry.wrapper())
}

extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Choice {
    let jump = loader::dlsym_address();
    let answer = catch_unwind(|| wrapper(handle, name)).ok().flatten().filter(|_| jump != 0).unwrap_or(0);
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
    // Two registers are kept; a third word aligns the stack for the call.
    std::arch::naked_asm!(
        "endbr64",
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
