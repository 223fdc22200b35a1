//! Signals by their numbers: also those that the safe wrappers have no name for (SIGSTKFLT, real-time signals).

use std::io;

/// Sends a signal to a process.
///
/// # Errors
/// As the system says: no such process, no permission, no such signal.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: passes two numbers; a positive number is one process.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process by a signal, whatever its handling of that signal was before. Returns where the signal does not end a process.
pub fn end_by_signal(signal: i32) {
    // SAFETY: a zeroed action is the default one with an empty mask; the calls read and write locals alone. Other threads may
    // be ended by the signal at any time, as by any signal that nothing is done about.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        if libc::sigaddset(&mut mask, signal) != 0 {
            return;
        }
        libc::sigaction(signal, &action, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_others_are_refused() {
        assert!(send_signal(0, 0).is_err() && send_signal(u32::MAX, 0).is_err());
        assert!(send_signal(std::process::id(), 0).is_ok() && send_signal(std::process::id(), 1000).is_err());
        // Neither ends a process.
        end_by_signal(1000);
        end_by_signal(libc::SIGCHLD);
    }
}
