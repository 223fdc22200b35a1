//! Any program under a lease.
//!
//! The program is a child in the same process group and on the same terminal. Both get the terminal's signals, and the program
//! alone decides; signals that a process sends to this one are passed on. This process ends as the program did. It adopts processes
//! that the program leaves behind, and lives as long as the program itself. Processes that outlive that keep the lease, or are
//! ended on request.

mod idle;
mod program;
mod report;
pub(crate) mod signals;
mod words;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Error, Result};
use plimsoll_machine::send_signal;
use plimsoll_machine::{Guarantee, Obstacle, Scope};
use rustix::process::{Pid, Signal, getpgid, getpgrp, set_child_subreaper};
use signal_hook::consts::signal::{SIGCONT, SIGTERM};

use crate::enforce::{self, Armed, Choice, Enforce, Places};
use crate::lease::activity::Watched;
use crate::lease::{Cards, Lease, Part, Report, Request, Which};
use crate::tree::{self, Descendants};
use idle::{Due, Unused};
use report::{Known, Target};
use signals::Signals;

pub use idle::Idle;

pub(crate) use program::{Change, change, find, is_own, not_started};
pub use signals::end_by;

/// How often use is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How often it is looked whether cards are used: the driver takes its samples about as often.
const LOOK_AT_USE: Duration = Duration::from_secs(1);

/// How long a program may take to end that was asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The request for its lease. The guarantee in it is filled in, and the program where it is empty.
    pub request: Request,
    /// How long it may run: then it is asked to end, and a while later it must.
    pub timeout: Option<Duration>,
    /// By which rung of the ladder it is held to its lease.
    pub enforce: Enforce,
    /// Where this machine keeps the files that rungs need.
    pub places: Places,
    /// Whether it is ended when it uses more than its share, as far as use can be seen.
    pub end_beyond: bool,
    /// The action when it does not use its cards.
    pub idle: Idle,
    /// Whether processes that the program leaves behind are ended when it ends. Otherwise that goes on, and keeps the lease.
    pub end_tree: bool,
    /// The file that gets a report, also where the program is not started.
    pub report: Option<PathBuf>,
}

impl Run {
    /// A program under a lease of one card, held by the best rung that there is.
    pub fn new(command: Vec<OsString>, request: Request) -> Run {
        Run {
            command,
            request,
            timeout: None,
            enforce: Enforce::Best,
            places: Places::here(),
            end_beyond: false,
            idle: Idle::default(),
            end_tree: false,
            report: None,
        }
    }
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
    /// It did not use its cards for too long.
    Idle,
    /// By a signal, since it used more than its share.
    Beyond(i32),
    /// It could not be started; the exit status that shells give for that.
    NotStarted(u8),
}

/// Runs a program under a lease of these cards and waits for its end. `note` gets lines for people: why it waits, the rung that
/// holds the program, and its use beyond its share. At the end it gets the peak and whether all memory came back, as far as that
/// was observed.
///
/// # Errors
/// As [`Cards::lease`] and [`enforce::arm`]; FAILED_PRECONDITION where idle cards are to be noticed and use cannot be observed; those
/// of a report's file. The program was not started then.
pub fn run(cards: &Cards, run: &Run, note: &mut dyn FnMut(&str)) -> Result<Ended> {
    let target = run.report.as_deref().map(Target::find).transpose()?;
    let mut warnings = Vec::new();
    let mut noted = |line: &str| {
        if let Some(warning) = line.strip_prefix("warning: ") {
            warnings.push(warning.to_string());
        }
        note(line);
    };
    let began = Instant::now();
    let mut all = Course::default();
    let done = all.run(cards, run, began, &mut noted);
    if let Some(target) = target {
        let known = Known {
            pid: all.pid,
            ended: done.as_ref().ok().copied(),
            error: done.as_ref().err().or(all.not_started.as_ref()),
            wall: all.wall,
            waited: all.waited,
            choice: all.choice.as_ref(),
            held: all.held,
            parts: &all.parts,
            lease: all.lease.as_ref(),
            warnings: &warnings,
        };
        // The program has ended as it has: that the report cannot be written changes nothing of it.
        if let Err(error) = target.write(run, &known) {
            note(&format!("warning: {}", error.message()));
        }
    }
    done
}

/// The events of a program, as far as it came.
#[derive(Default)]
struct Course {
    pid: Option<u32>,
    not_started: Option<Error>,
    waited: Duration,
    wall: Duration,
    held: bool,
    choice: Option<Choice>,
    parts: Vec<Part>,
    lease: Option<Report>,
}

impl Course {
    fn run(&mut self, cards: &Cards, run: &Run, began: Instant, note: &mut dyn FnMut(&str)) -> Result<Ended> {
        let Some((program, arguments)) = run.command.split_first() else {
            return Err(Error::invalid_argument("no program is named").with_remedy("write it after --"));
        };
        self.held = program::is_own(Path::new(program));
        let mut request = run.request.clone();
        if request.program.is_empty() {
            request.program = command_line(&run.command);
        }
        // An impossible request is refused before any wait.
        let found = (!self.held).then(|| run.places.look(cards, Some(Path::new(program))));
        let wanted = found.as_ref().map(|found| enforce::choose(found, run.enforce)).transpose();
        let has_cards = !matches!(request.cards, Which::Count(0));
        let wanted = if has_cards { wanted? } else { None };
        request.guarantee = Some(wanted.as_ref().map_or(Guarantee::Held, |choice| choice.rung.guarantee()));
        let mut waits = None;
        let mut lease = cards.lease(&request, &mut |obstacle| {
            let is_locked = matches!(obstacle, Obstacle::Locked(_));
            if waits.replace(is_locked) != Some(is_locked) {
                note(&format!("waits: {obstacle}"));
            }
            true
        })?;
        self.waited = began.elapsed();
        self.parts = lease.parts().to_vec();
        if run.idle.is_wanted() && !self.parts.is_empty() && !Watched::is_possible(&lease) {
            let message = "--idle-timeout and --idle-notify: use of these cards cannot be observed";
            return Err(Error::failed_precondition(message).with_remedy("leave them out: the driver does not say what runs on these cards"));
        }

        let mut command = Command::new(program);
        command.args(arguments).arg0(program);
        let mut armed = match found.filter(|_| has_cards && !self.parts.is_empty()) {
            Some(found) => Some(enforce::arm(&mut lease, &mut command, found, run.enforce, &run.places)?),
            None => None,
        };
        self.choice = armed.as_ref().map(|armed| armed.choice().clone());
        if let Some(Scope::User { why: Some(why) }) = cards.scope().filter(|_| !self.parts.is_empty()) {
            note(&format!("warning: {why}: the lease is in this user's own ledger, and other users do not see it"));
        }
        if let Some(warning) = self.choice.as_ref().and_then(|choice| choice.warning.as_ref()) {
            note(&format!("warning: {warning}"));
        }
        note(&words::guarantee(&lease, self.choice.as_ref(), run.end_beyond));
        let inherited = lease.inherit(&mut command);
        let started = inherited.and_then(|warnings| {
            warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
            let broken = |what: &str, error: std::io::Error| Error::internal(format!("{what}: {error}"));
            Signals::listen().map_err(|error| broken("signals cannot be listened to", error))
        });
        let signals = match started {
            Ok(signals) => signals,
            Err(error) => {
                self.end(lease, armed);
                return Err(error);
            }
        };
        // Without it, orphans are not found when the time is over.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        let begin = Instant::now();
        let child = match &mut armed {
            Some(armed) => armed.spawn(&mut command),
            None => command.spawn(),
        };
        // It has a handle of the lease.
        drop(command);
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let message = format!("{}: {error}", program.to_string_lossy());
                note(&message);
                self.not_started = Some(Error::not_found(message));
                self.end(lease, armed);
                return Ok(Ended::NotStarted(not_started(&error)));
            }
        };
        let Some(pid) = Pid::from_raw(child.id() as i32) else { return Err(Error::internal("a process without a number")) };
        self.pid = Some(child.id());
        let watch = Watch {
            lease: &mut lease,
            armed: armed.as_ref(),
            run,
            signals,
            pid,
            begin,
            term_at: None,
            beyond: vec![],
            is_lost: false,
            watched: Watched::default(),
            unused: Unused::begin(run.idle, begin),
            looked_at_use: None,
        };
        let ended = watch.until_the_end(note);
        self.wall = begin.elapsed();
        self.end(lease, armed);
        note(&words::report(ended, self.wall, &self.parts, self.lease.as_ref().unwrap_or(&Report::default())));
        Ok(ended)
    }

    /// Gives the lease back, and undoes the means that held the program.
    fn end(&mut self, lease: Lease, armed: Option<Armed>) {
        let cards = lease.cards().clone();
        let report = lease.end();
        if let Some(armed) = armed {
            armed.disarm(&cards);
        }
        self.lease = Some(report);
    }
}

/// A command as listings show it.
fn command_line(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The work while the program runs.
struct Watch<'a> {
    lease: &'a mut Lease,
    armed: Option<&'a Armed>,
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
    watched: Watched,
    unused: Unused,
    /// When use of the cards was looked at.
    looked_at_use: Option<Instant>,
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
            // A signal of the terminal reaches the program by itself, unless it is in a group of its own.
            let is_apart = getpgid(Some(self.pid)).is_ok_and(|group| group != getpgrp());
            let heard = if is_apart { self.signals.wait_for_any(wait) } else { self.signals.wait(wait) };
            heard.into_iter().for_each(|signal| self.pass_on(signal));
        }
    }

    /// Sends a signal to the program; one that is gone does not mind.
    fn pass_on(&self, signal: i32) {
        let _ = send_signal(self.pid.as_raw_nonzero().get() as u32, signal);
    }

    /// The program has ended. The rest of a tree that was to end, ends too.
    fn ended(&self, by_itself: Ended) -> Ended {
        if self.term_at.is_some() || self.run.end_tree {
            tree::end(Descendants::Own, Some(GRACE));
        }
        let Some((_, why)) = self.term_at else { return by_itself };
        match (why, by_itself) {
            (Ended::Beyond(_), Ended::Signalled(signal)) => Ended::Beyond(signal),
            // It came to its end by itself.
            (Ended::Beyond(_), _) => by_itself,
            _ => why,
        }
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
                tree::signal(Signal::KILL, Descendants::Own);
            }
        }
    }

    fn ask_to_end(&mut self, why: Ended) {
        self.term_at = Some((Instant::now(), why));
        tree::signal(Signal::TERM, Descendants::Own);
        // One that is stopped would not hear it.
        tree::signal(Signal::CONT, Descendants::Own);
    }

    /// Looks at the use, and warns where it is more than the share.
    fn look(&mut self, note: &mut dyn FnMut(&str)) {
        if let Err(error) = self.lease.check_place().map_err(|error| error.message().to_string())
            && !std::mem::replace(&mut self.is_lost, true)
        {
            note(&format!("warning: {error}"));
        }
        let (armed, cards) = (self.armed, self.lease.cards().clone());
        let seen = self.lease.see(|part| armed.and_then(|armed| armed.used(&cards, part)));
        self.beyond.resize(seen.len(), false);
        let mut over = false;
        for ((part, seen), beyond) in self.lease.parts().iter().zip(&seen).zip(&mut self.beyond) {
            let used = seen.bytes.unwrap_or_default();
            let is_beyond = used > part.bytes;
            if is_beyond && !*beyond {
                note(&words::beyond(part, used, self.run.end_beyond));
            }
            *beyond = is_beyond;
            over |= is_beyond;
        }
        if over && self.run.end_beyond && self.term_at.is_none() {
            self.ask_to_end(Ended::Beyond(SIGTERM));
        }
        let now = Instant::now();
        if self.lease.cards().nvml().is_none()
            || self.looked_at_use.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_AT_USE)
        {
            return;
        }
        self.looked_at_use = Some(now);
        let look = self.watched.look(self.lease, &seen);
        match self.unused.note(look, now) {
            Some(Due::Warning(since)) => note(&words::unused(since, false)),
            Some(Due::End) if self.term_at.is_none() => {
                note(&words::unused(self.run.idle.end_after.unwrap_or_default(), true));
                self.ask_to_end(Ended::Idle);
            }
            _ => {}
        }
    }
}
