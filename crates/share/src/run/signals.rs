//! Signals, as things that happen beside the death of a child: received, waited for, and passed on.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use plimsoll_machine::end_by_signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpgrp, setrlimit};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

/// Those that a program may be sent, and the one that says that a child changed. Left out are those by which the kernel reports
/// this process's own faults (SIGSEGV, SIGPIPE, SIGXFSZ), and those that do nothing to most programs.
const HEARD: [i32; 15] = [
    SIGINT,
    SIGTERM,
    SIGHUP,
    SIGQUIT,
    SIGUSR1,
    SIGUSR2,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGXCPU,
    SIGIO,
    Signal::STKFLT.as_raw(),
    Signal::POWER.as_raw(),
    SIGTSTP,
    SIGCHLD,
];

/// Real-time signals; the C library keeps the first ones for itself and says so.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// `SI_USER`, `SI_QUEUE` and `SI_TKILL` are 0 and below: signals that a process sent. A signal of the terminal comes from the
/// kernel, and every process of its foreground group gets it.
const FROM_A_PROCESS: i32 = 0;

/// The signals that this process gets, from now on until this is dropped.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithRawSiginfo>);

impl Signals {
    /// Listens. Signals that this process was told to ignore stay ignored, as for a program under `nohup`.
    pub(crate) fn listen() -> io::Result<Signals> {
        Signals::listen_also(&[])
    }

    /// As [`Signals::listen`], to these signals even where this process was told to ignore them.
    pub(crate) fn listen_also(always: &[Signal]) -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let ignored = ignored();
        let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
        let is_heard = |signal: i32| signal == SIGCHLD || always.iter().any(|always| always.as_raw() == signal) || !is_ignored(signal);
        let signals = SignalDelivery::with_pipe(read, write, WithRawSiginfo, HEARD.into_iter().filter(|signal| is_heard(*signal)))?;
        for signal in REAL_TIME.filter(|signal| !is_ignored(*signal)) {
            let _ = signals.handle().add_signal(signal);
        }
        Ok(Signals(signals))
    }

    /// Waits for the next, at most that long. The numbers of the signals that are to be passed on to a child: those that a process
    /// sent to this one alone, and not those that a terminal sent to both.
    pub(crate) fn wait(&mut self, most: Duration) -> Vec<i32> {
        self.receive(most, |code| code <= FROM_A_PROCESS)
    }

    /// As [`Signals::wait`], also signals of a terminal.
    pub(super) fn wait_for_any(&mut self, most: Duration) -> Vec<i32> {
        self.receive(most, |_| true)
    }

    /// As [`Signals::wait_for_any`], but for a wish to stop for a while, which is granted.
    pub(crate) fn wait_for_all(&mut self, most: Duration) -> Vec<i32> {
        let mut all = self.wait_for_any(most);
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

/// Stops this process as its program was stopped, where there is a shell that can let it go on: on a terminal, in the group that
/// it shows. Whether it was.
pub(super) fn stop_here() -> bool {
    let foreground = |terminal: io::Result<Pid>| terminal.is_ok_and(|group| group == getpgrp());
    let on_terminal = foreground(tcgetpgrp(std::io::stdin()).map_err(io::Error::from))
        || foreground(tcgetpgrp(std::io::stdout()).map_err(io::Error::from))
        || foreground(tcgetpgrp(std::io::stderr()).map_err(io::Error::from));
    on_terminal && emulate_default_handler(signal_hook::consts::signal::SIGTSTP).is_ok()
}

/// Ends this process by a signal, as its program ended, so that a waiting parent sees the same. Leaves no core: the program's is
/// the one that counts. Returns the exit status that a shell would show where that cannot be.
pub fn end_by(signal: i32) -> u8 {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    end_by_signal(signal);
    (128 + signal).clamp(1, 255) as u8
}
