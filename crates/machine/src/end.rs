//! Programs that end with the one that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel ask the program that `command` starts to end (SIGTERM) when the thread that starts it ends, however that ends.
/// Processes that the program starts itself are not told, and a program that becomes another user's is not either.
pub fn end_with_this_thread(command: &mut Command) {
    let own = std::process::id();
    let tie = move || {
        // SAFETY: changes an attribute of the calling process by numbers alone; prctl may be called between fork and exec.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong, 0, 0, 0) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // It may have ended before: then there would be no signal.
        match std::os::unix::process::parent_id() == own {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::Interrupted)),
        }
    };
    // SAFETY: the closure makes two system calls that are safe after a fork, and allocates nothing.
    unsafe { command.pre_exec(tie) };
}
