//! The heap of the process: tensors and graphs of the host, which the program's allocator keeps when they are freed.

/// Asks the program's allocator to give the pages of freed memory back to the system. It keeps many megabytes otherwise. The GNU
/// allocator keeps up to twice the largest block that was ever freed, 64 MiB at most, for each of its arenas. It gives back the
/// arena of the program's first thread entirely, and of other arenas the free memory between blocks. Nothing happens where it
/// cannot be asked.
pub fn trim_heap() {
    // SAFETY: may be called at any time from any thread; it changes no memory that is in use.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}
