//! Any program under a lease.
//!
//! The program is a child in the same process group and on the same terminal: what the terminal sends, both get, and the program
//! alone decides; what a process sends to this one is passed on. This process ends as the program did. It takes in what the
//! program leaves behind, and lives as long as the program itself; what outlives that keeps the lease, or is ended on request.

mod program;
pub(crate) mod signals;
mod words;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_memory::machine::{Guarantee, Obstacle};
use plimsoll_memory::send_signal;
use rustix::process::{Pid, Signal, getpgid, getpgrp, set_child_subreaper};
use signal_hook::consts::signal::{SIGCONT, SIGTERM};

use crate::lease::{Cards, Lease, Request};
use crate::tree::{self, Whose};
use signals::Signals;

pub(crate) use program::{Change, change, find, not_started};
pub use signals::end_by;

/// How often use is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long a program may take to end that was asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What it runs under. The guarantee in it is filled in, and the program where it is empty.
    pub request: Request,
    /// How long it may run: then it is asked to end, and a while later it must.
    pub timeout: Option<Duration>,
    /// Whether it is ended when it uses more than its share, as far as use can be seen.
    pub enforce: bool,
    /// Whether what the program leaves behind is ended when it ends. Otherwise that goes on, and keeps the lease.
    pub end_tree: bool,
}

/// How a program under a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With that exit status.
    Exited(u8),
    /// By a signal: see [`end_by`].
    Signalled(i32),
    /// It was not done in time.
    TimedOut,
    /// It could not be started; the exit status that shells give for that.
    NotStarted(u8),
}

/// Runs a program under a lease of these cards and waits for its end. `note` gets lines for people: why it waits, the guarantee
/// that the program got, what it uses beyond its share, and at the end its peak and whether all memory came back.
///
/// # Errors
/// As [`Cards::lease`]: the program was not started then.
pub fn run(cards: &Cards, run: &Run, note: &mut dyn FnMut(&str)) -> Result<Ended> {
    let Some((program, arguments)) = run.command.split_first() else {
        return Err(Error::invalid_argument("no program is named").with_remedy("write it after --"));
    };
    let held = program::is_own(Path::new(program));
    let mut request = run.request.clone();
    if request.program.is_empty() {
        request.program = command_line(&run.command);
    }
    request.guarantee = held.then_some(Guarantee::Held);
    let mut waits = None;
    let mut lease = cards.lease(&request, &mut |obstacle| {
        let is_locked = matches!(obstacle, Obstacle::Locked(_));
        if waits.replace(is_locked) != Some(is_locked) {
            note(&format!("waits: {obstacle}"));
        }
        true
    })?;
    note(&words::guarantee(&lease, held, run.enforce));

    let mut command = Command::new(program);
    command.args(arguments).arg0(program);
    for warning in lease.inherit(&mut command)? {
        note(&format!("warning: {warning}"));
    }
    let broken = |what: &str, error: std::io::Error| Error::internal(format!("{what}: {error}"));
    let signals = Signals::listen().map_err(|error| broken("signals cannot be listened to", error))?;
    // Without it, orphans are not found when the time is over.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
    let begin = Instant::now();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            note(&format!("{}: {error}", program.to_string_lossy()));
            return Ok(Ended::NotStarted(not_started(&error)));
        }
    };
    // It has a handle of the lease.
    drop(command);
    let Some(pid) = Pid::from_raw(child.id() as i32) else { return Err(Error::internal("a process without a number")) };
    let ended = Watch { lease: &mut lease, run, signals, pid, begin, term_at: None, beyond: vec![], is_lost: false }.until_the_end(note);
    let parts = lease.parts().to_vec();
    let report = lease.end();
    note(&words::report(ended, begin.elapsed(), &parts, &report));
    Ok(ended)
}

/// A command as listings show it.
fn command_line(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What is done while the program runs.
struct Watch<'a> {
    lease: &'a mut Lease,
    run: &'a Run,
    signals: Signals,
    pid: Pid,
    begin: Instant,
    /// When it was asked to end, and why that was.
    term_at: Option<(Instant, Ended)>,
    /// Whether it is beyond its share of each card.
    beyond: Vec<bool>,
    /// Whether it was said that others do not see the lease.
    is_lost: bool,
}

impl Watch<'_> {
    fn until_the_end(mut self, note: &mut dyn FnMut(&str)) -> Ended {
        let mut next_look = Instant::now() + LOOK;
        loop {
            match change(self.pid) {
                Some(Change::Exited(code)) => return self.ended(Ended::Exited(code as u8)),
                Some(Change::Signalled { signal, .. }) => return self.ended(Ended::Signalled(signal)),
                Some(Change::Stopped) if signals::stop_here() => self.pass_on(SIGCONT),
                Some(Change::Stopped) | None => {}
            }
            let now = Instant::now();
            if now >= next_look {
                self.look(note);
                next_look = Instant::now() + LOOK;
            }
            self.keep_time(now);
            let mut wait = next_look.saturating_duration_since(now);
            if let Some(at) = self.deadline() {
                wait = wait.min(at.saturating_duration_since(now));
            }
            // What a terminal sends reaches the program by itself, unless it is in a group of its own.
            let is_apart = getpgid(Some(self.pid)).is_ok_and(|group| group != getpgrp());
            let heard = if is_apart { self.signals.wait_for_any(wait) } else { self.signals.wait(wait) };
            heard.into_iter().for_each(|signal| self.pass_on(signal));
        }
    }

    /// Sends a signal to the program; one that is gone does not mind.
    fn pass_on(&self, signal: i32) {
        let _ = send_signal(self.pid.as_raw_nonzero().get() as u32, signal);
    }

    /// The program has ended. What is left of a tree that was to end, ends too.
    fn ended(&self, by_itself: Ended) -> Ended {
        if self.term_at.is_some() || self.run.end_tree {
            tree::end(Whose::Own, Some(GRACE));
        }
        let Some((_, why)) = self.term_at else { return by_itself };
        if why == Ended::TimedOut { why } else { by_itself }
    }

    /// When something is due.
    fn deadline(&self) -> Option<Instant> {
        match self.term_at {
            Some((at, _)) => at.checked_add(GRACE),
            None => self.begin.checked_add(self.run.timeout?),
        }
    }

    fn keep_time(&mut self, now: Instant) {
        let Some(_) = self.deadline().filter(|deadline| *deadline <= now) else { return };
        match &mut self.term_at {
            None => self.ask_to_end(Ended::TimedOut),
            Some((at, _)) => {
                *at = now;
                tree::signal(Signal::KILL, Whose::Own);
            }
        }
    }

    fn ask_to_end(&mut self, why: Ended) {
        self.term_at = Some((Instant::now(), why));
        tree::signal(Signal::TERM, Whose::Own);
        // One that is stopped would not hear it.
        tree::signal(Signal::CONT, Whose::Own);
    }

    /// Looks what is used, and says so where it is more than the share.
    fn look(&mut self, note: &mut dyn FnMut(&str)) {
        if let Err(error) = self.lease.check_place().map_err(|error| error.message().to_string())
            && !std::mem::replace(&mut self.is_lost, true)
        {
            note(&format!("warning: {error}"));
        }
        let uses = self.lease.look();
        self.beyond.resize(uses.len(), false);
        let mut over = false;
        for ((part, used), beyond) in self.lease.parts().iter().zip(&uses).zip(&mut self.beyond) {
            let is_beyond = used.unwrap_or(Bytes::ZERO) > part.bytes;
            if is_beyond && !*beyond {
                note(&words::beyond(part, used.unwrap_or_default(), self.run.enforce));
            }
            *beyond = is_beyond;
            over |= is_beyond;
        }
        if over && self.run.enforce && self.term_at.is_none() {
            self.ask_to_end(Ended::Signalled(SIGTERM));
        }
    }
}
