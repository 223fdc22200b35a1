//! A program with a bound on the size of files (RLIMIT_FSIZE). The kernel ends a thread that writes beyond it by a signal; a write of
//! ours, which the program knows nothing of, just fails.

use std::mem::zeroed;
use std::ptr::null_mut;

/// While it lives, writing beyond the bound is an error and no signal, in the calling thread.
pub struct NoSignal {
    /// The thread's mask before; none where there is no bound.
    mask: Option<libc::sigset_t>,
}

impl NoSignal {
    pub fn begin() -> NoSignal {
        // SAFETY: numbers, for which zero is a value; the calls read and write locals, and the calling thread's mask.
        unsafe {
            let mut limit: libc::rlimit = zeroed();
            if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0 || limit.rlim_cur == libc::RLIM_INFINITY || is_pending() {
                return NoSignal { mask: None };
            }
            let mut before = zeroed();
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, &only(), &mut before) == 0;
            NoSignal { mask: Some(before).filter(|_| blocked) }
        }
    }
}

impl Drop for NoSignal {
    fn drop(&mut self) {
        let Some(mask) = &self.mask else { return };
        // SAFETY: as above.
        unsafe {
            if is_pending() {
                let none: libc::timespec = zeroed();
                libc::sigtimedwait(&only(), null_mut(), &none);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut());
        }
    }
}

/// The set of that signal alone.
fn only() -> libc::sigset_t {
    // SAFETY: numbers, for which zero is a value; the calls write to the local.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGXFSZ);
        set
    }
}

/// Whether that signal waits for the calling thread: then it is blocked, and the program's.
fn is_pending() -> bool {
    // SAFETY: as above.
    unsafe {
        let mut set = zeroed();
        libc::sigpending(&mut set) == 0 && libc::sigismember(&set, libc::SIGXFSZ) == 1
    }
}
