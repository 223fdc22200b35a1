//! A process between a program and one that it starts, so that all ends that is to end.
//!
//! A supervisor is a subreaper: each process that its program starts descends from it, in any session or process group, and is
//! ended with it. The kernel tells it when the process that wants it is gone. It is this executable, started again by exec, and
//! never gets past [`begin`].
//!
//! | it gets | it does |
//! |---|---|
//! | [`NOW`], from the process that started it | ends the program and all that it started at once |
//! | [`ORPHANED`], from the kernel | asks them to end (SIGTERM), and ends what is left after a while |
//! | SIGTERM from a process | passes it on to the program, and ends what that leaves when it ends |
//! | another signal from a process | passes it on to the program |
//!
//! It ends as its program did.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use plimsoll_machine::end_with_this_thread;
use plimsoll_machine::send_signal;
use rustix::process::{Pid, Signal, getppid, set_child_subreaper, set_parent_process_death_signal};

use crate::isolate::{WorkerMessage, worker_mark};
use crate::run::signals::Signals;
use crate::run::{Change, GRACE, change, end_by, not_started};
use crate::tree::{self, Descendants};
use crate::wire::{Channel, Message};

/// By this it is told to end all at once.
pub(crate) const NOW: Signal = Signal::USR1;

/// By this the kernel tells the supervisor of a program that the thread that started it has ended.
const ORPHANED: Signal = Signal::USR2;

/// How often it looks around without being woken.
const LOOK: Duration = Duration::from_secs(1);

/// The word in the place of a program's name in a supervisor's arguments, before the number of the process that started it.
const OF_WORKER: &str = "plimsoll-supervisor for a worker of ";
const OF_PROGRAM: &str = "plimsoll-supervisor for a program of ";

/// That this executable can be its own supervisor: its `main` begins with [`begin`].
#[derive(Clone, Copy, Debug)]
pub struct Supervisors(());

/// Goes on in a program, and never returns in a supervisor: call it first in `main`.
#[must_use]
pub fn begin() -> Supervisors {
    let first = std::env::args_os().next().unwrap_or_default();
    let first = first.to_string_lossy();
    let parent = |mark: &str| first.strip_prefix(mark).and_then(|parent| parent.parse().ok());
    if let Some(parent) = parent(OF_WORKER) {
        of_worker(parent);
    }
    if let Some(parent) = parent(OF_PROGRAM) {
        of_program(parent);
    }
    Supervisors(())
}

/// This executable, to be started again as the supervisor of a worker. Its standard input is the worker's connection.
pub(crate) fn for_worker() -> Command {
    // Not by its path: that may be another program by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(format!("{OF_WORKER}{}", std::process::id())).args(std::env::args_os().skip(1)).process_group(0);
    command
}

impl Supervisors {
    /// This executable, to be started again as the supervisor of a program with its arguments.
    pub(crate) fn for_program(self, program: &str, arguments: &[String]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(format!("{OF_PROGRAM}{}", std::process::id())).arg(program).args(arguments);
        command
    }
}

/// Starts a worker, ends with it, and says how it ended through the worker's connection.
fn of_worker(parent: i32) -> ! {
    let Ok(connection) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(Channel::from_end) else { std::process::exit(1) };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(worker_mark(std::process::id())).args(std::env::args_os().skip(1)).process_group(0);
    match supervise(parent, NOW, command) {
        Ok(status) => {
            tree::end(Descendants::All, None);
            let _ = connection.send(&WorkerMessage::Ended { status: status.into_raw() }, &Message::empty());
            std::process::exit(0);
        }
        Err(error) => {
            eprintln!("the worker cannot be started: {error}");
            std::process::exit(1);
        }
    }
}

/// Starts a program, and ends as it does. Processes that it leaves behind when it ends by itself stay.
fn of_program(parent: i32) -> ! {
    let mut words = std::env::args_os().skip(1);
    let program: OsString = words.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(words);
    // It is asked to end where this process is killed.
    end_with_this_thread(&mut command);
    let status = match supervise(parent, ORPHANED, command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{}: {error}", program.to_string_lossy());
            std::process::exit(not_started(&error).into());
        }
    };
    let code = status.code().unwrap_or_else(|| end_by(status.signal().unwrap_or_default()).into());
    std::process::exit(code)
}

/// Starts a program and waits for its end. Processes that it started have ended too where an end was asked for.
fn supervise(parent: i32, orphaned: Signal, mut command: Command) -> std::io::Result<ExitStatus> {
    let mut signals = Signals::listen_also(&[NOW, ORPHANED])?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    set_parent_process_death_signal(Some(orphaned))?;
    // The parent has ended already where there is another one now; in a namespace of its own it cannot be seen.
    if getppid().is_some_and(|now| now.as_raw_nonzero().get() != parent) {
        std::process::exit(1);
    }
    let child = command.spawn()?;
    drop(command);
    release_input();
    let Some(pid) = Pid::from_raw(child.id() as i32) else { return Err(std::io::Error::other("a process without a number")) };
    let (mut asked, mut ends) = (None::<Instant>, false);
    let status = loop {
        match change(pid) {
            Some(Change::Exited(code)) => break ExitStatus::from_raw((code & 0xff) << 8),
            Some(Change::Signalled { signal, core }) => break ExitStatus::from_raw(signal | if core { 0x80 } else { 0 }),
            Some(Change::Stopped) | None => {}
        }
        let left = asked.map(|asked| GRACE.saturating_sub(asked.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            tree::signal(Signal::KILL, Descendants::All);
        }
        for signal in signals.wait(left.filter(|left| !left.is_zero()).unwrap_or(LOOK).min(LOOK)) {
            if signal == NOW.as_raw() {
                asked = Some(asked.unwrap_or_else(Instant::now));
                tree::signal(Signal::KILL, Descendants::All);
            } else if signal == ORPHANED.as_raw() {
                asked = Some(asked.unwrap_or_else(Instant::now));
                tree::signal(Signal::TERM, Descendants::All);
                // One that is stopped would not hear it.
                tree::signal(Signal::CONT, Descendants::All);
            } else {
                ends |= signal == Signal::TERM.as_raw();
                let _ = send_signal(child.id(), signal);
            }
        }
    };
    if ends || asked.is_some() {
        tree::end(Descendants::All, None);
    }
    Ok(status)
}

/// The program has standard input for itself.
fn release_input() {
    if let Ok(nothing) = File::open("/dev/null").map(OwnedFd::from) {
        let _ = rustix::stdio::dup2_stdin(&nothing);
    }
}
