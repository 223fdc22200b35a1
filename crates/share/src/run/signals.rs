//! Signals, as things that happen beside the death of a child: received, waited for, and passed on.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpgrp, kill_process, setrlimit};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::signal::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

/// Those that a program may be sent, and the one that says that a child changed.
const HEARD: [i32; 9] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTSTP, SIGCHLD];

/// `SI_USER`, `SI_QUEUE` and `SI_TKILL` are 0 and below: what a process sent. What a terminal sends comes from the kernel, and
/// every process of its foreground group gets it.
const FROM_A_PROCESS: i32 = 0;

/// The signals that this process gets, from now on until this is dropped.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithRawSiginfo>);

impl Signals {
    /// Listens. What this process was told to ignore stays ignored, as for a program under `nohup`.
    pub(crate) fn listen() -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let ignored = ignored();
        let heard = HEARD.into_iter().filter(|&signal| signal == SIGCHLD || ignored >> (signal - 1) & 1 == 0);
        SignalDelivery::with_pipe(read, write, WithRawSiginfo, heard).map(Signals)
    }

    /// Waits for the next, at most that long. The numbers of those that are to be passed on to a child: what a process sent to this
    /// one alone, and not what a terminal sent to both.
    pub(super) fn wait(&mut self, most: Duration) -> Vec<i32> {
        self.receive(most, |code| code <= FROM_A_PROCESS)
    }

    /// As [`Signals::wait`], all that came: also what a terminal sent, but for a wish to stop for a while.
    pub(crate) fn wait_for_all(&mut self, most: Duration) -> Vec<i32> {
        let mut all = self.receive(most, |_| true);
        if all.contains(&SIGTSTP) {
            all.retain(|&signal| signal != SIGTSTP);
            let _ = emulate_default_handler(SIGTSTP);
        }
        all
    }

    fn receive(&mut self, most: Duration, is_wanted: impl Fn(i32) -> bool) -> Vec<i32> {
        let most = Timespec { tv_sec: most.as_secs().min(1 << 20) as i64, tv_nsec: most.subsec_nanos().into() };
        // A signal ends the wait with an error, and is found below.
        let _ = poll(&mut [PollFd::new(self.0.get_read(), PollFlags::IN)], Some(&most));
        let infos = self.0.pending().filter(|info| info.si_signo != SIGCHLD && is_wanted(info.si_code));
        infos.map(|info| info.si_signo).collect()
    }
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
}

/// Sends a signal to a process; one that is gone does not mind.
pub(crate) fn send(pid: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops this process as its program was stopped, where there is a shell that can let it go on: on a terminal, in the group that
/// it shows. Whether it was.
pub(super) fn stop_here() -> bool {
    let foreground = |terminal: io::Result<Pid>| terminal.is_ok_and(|group| group == getpgrp());
    let on_terminal = foreground(tcgetpgrp(std::io::stdin()).map_err(io::Error::from))
        || foreground(tcgetpgrp(std::io::stdout()).map_err(io::Error::from))
        || foreground(tcgetpgrp(std::io::stderr()).map_err(io::Error::from));
    on_terminal && emulate_default_handler(signal_hook::consts::signal::SIGTSTP).is_ok()
}

/// Ends this process by a signal, as its program ended, so that who waits for it sees the same. Leaves no core: the program's is
/// the one that counts. Returns the exit status that a shell would show where that cannot be.
pub fn end_by(signal: i32) -> u8 {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
    (128 + signal).clamp(1, 255) as u8
}
