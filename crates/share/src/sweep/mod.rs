//! One program many times, with other values each time: as many at once as there are leases to be had.

mod results;
mod space;

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error, Result};
use rustix::process::Pid;
use signal_hook::consts::signal::SIGTERM;

use crate::lease::{Cards, Lease, Request};
use crate::run::signals::{self, Signals};
use results::{Results, last_object, refused};

pub use results::Done;
pub use space::{Axis, Point, points};

/// How often leases that others hold are asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// What is run.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The program and its arguments, with names in braces.
    pub command: Vec<String>,
    /// The values of each run.
    pub points: Vec<Point>,
    /// What each runs under; none leaves it to the programs what they use.
    pub request: Option<Request>,
    /// At most so many at once.
    pub jobs: usize,
    /// Where results are written, a line each; beside it, in a folder of the same name and `.logs`, what each printed. What is there
    /// and ended well is not run again.
    pub results: PathBuf,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All runs.
    pub total: usize,
    /// Those that have ended, earlier ones too.
    pub ended: usize,
    /// Of those, the ones that failed.
    pub failed: usize,
    /// Those that run now.
    pub running: usize,
}

/// What a sweep came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For each point, in order, what came of it; none where it was not run to its end.
    pub done: Vec<Option<Done>>,
    /// How many of them are from before.
    pub before: usize,
    /// The signal that ended the sweep early.
    pub stopped: Option<i32>,
}

/// A run that goes on.
struct Job {
    place: usize,
    child: Child,
    lease: Option<Lease>,
    begin: Instant,
    output: PathBuf,
    command: Vec<String>,
}

/// Runs a sweep. `told` hears of each run that has ended (none now and then in between) and how far it is.
///
/// # Errors
/// INVALID_ARGUMENT for a command that does not use a name; RESOURCE_EXHAUSTED where a lease could never be had; otherwise what stands
/// in the way of the results or the ledger. Runs that go on are asked to end then, and waited for.
pub fn sweep(cards: &Cards, sweep: &Sweep, told: &mut dyn FnMut(Option<&Done>, Progress)) -> Result<Outcome> {
    let commands = sweep.points.iter().map(|point| space::command(&sweep.command, point)).collect::<Result<Vec<_>>>()?;
    let (results, earlier) = Results::open(&sweep.results)?;
    let mut logs = sweep.results.clone().into_os_string();
    logs.push(".logs");
    let logs = PathBuf::from(logs);
    fs::create_dir_all(&logs).map_err(|error| refused(&logs, &error))?;
    let find = |(point, command): (&Point, &Vec<String>)| earlier.iter().rev().find(|done| done.ok && done.is_of(point, command)).cloned();
    let done: Vec<Option<Done>> = sweep.points.iter().zip(&commands).map(find).collect();
    let before = done.iter().flatten().count();
    let left = (0..done.len()).rev().filter(|&place| done[place].is_none()).collect();
    let signals = Signals::listen().map_err(|error| Error::internal(format!("signals cannot be listened to: {error}")))?;
    let mut runner = Runner { cards, sweep, commands, logs, results, signals, done, left, running: Vec::new(), stopped: None, told };
    let outcome = runner.until_the_end();
    if outcome.is_err() {
        runner.end_all();
    }
    outcome.map(|()| Outcome { done: runner.done, before, stopped: runner.stopped })
}

struct Runner<'a> {
    cards: &'a Cards,
    sweep: &'a Sweep,
    commands: Vec<Vec<String>>,
    logs: PathBuf,
    results: Results,
    signals: Signals,
    done: Vec<Option<Done>>,
    /// Places of points that are still to be run, the last one next.
    left: Vec<usize>,
    running: Vec<Job>,
    stopped: Option<i32>,
    told: &'a mut dyn FnMut(Option<&Done>, Progress),
}

impl Runner<'_> {
    fn until_the_end(&mut self) -> Result<()> {
        let mut asked = None::<Instant>;
        loop {
            self.collect()?;
            if self.running.is_empty() && (self.left.is_empty() || self.stopped.is_some()) {
                return Ok(());
            }
            let is_time = asked.is_none_or(|asked| asked.elapsed() >= AGAIN);
            while is_time && self.stopped.is_none() && self.running.len() < self.sweep.jobs.max(1) {
                let Some(&place) = self.left.last() else { break };
                if !self.start(place)? {
                    asked = Some(Instant::now());
                    break;
                }
                asked = None;
                self.left.pop();
            }
            self.tell(None);
            for signal in self.signals.wait_for_all(AGAIN) {
                self.stop(signal);
            }
            for job in &mut self.running {
                job.lease.as_mut().map(Lease::look);
            }
        }
    }

    /// Starts a run, if there is a lease to be had.
    fn start(&mut self, place: usize) -> Result<bool> {
        let command = &self.commands[place];
        let Some((program, arguments)) = command.split_first() else {
            return Err(Error::invalid_argument("no program is named").with_remedy("write it after --"));
        };
        let request = self.sweep.request.clone().map(|request| Request { program: command.join(" "), wait: None, ..request });
        let lease = match request.as_ref().map(|request| self.cards.lease(request, &mut |_| true)).transpose() {
            Ok(lease) => lease,
            // Others hold what is missing, for now.
            Err(error)
                if error.code() == Code::ResourceExhausted && request.is_some_and(|request| self.cards.could_grant(&request).is_ok()) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let output = self.logs.join(format!("{}.out", place + 1));
        let errors = output.with_extension("err");
        let file = |path: &Path| File::create(path).map_err(|error| refused(path, &error));
        let (out, err) = (file(&output)?, file(&errors)?);
        let mut child = Command::new(program);
        child.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
        lease.as_ref().map_or(Ok(()), |lease| lease.inherit(&mut child))?;
        let begin = Instant::now();
        let child = child.spawn().map_err(|error| {
            Error::new(Code::NotFound, format!("{program}: {error}")).with_remedy("write a program that can be started after --")
        })?;
        self.running.push(Job { place, child, lease, begin, output, command: command.clone() });
        Ok(true)
    }

    /// Takes note of runs that have ended.
    fn collect(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.running.len() {
            let status = match self.running[at].child.try_wait() {
                Ok(None) => {
                    at += 1;
                    continue;
                }
                status => status.ok().flatten(),
            };
            let job = self.running.swap_remove(at);
            let (place, done) = ended(job, status, &self.sweep.points);
            // One that was asked to end did not come to its end.
            if self.stopped.is_some() && !done.ok {
                continue;
            }
            self.results.add(&done)?;
            self.done[place] = Some(done);
            self.tell(Some(place));
        }
        Ok(())
    }

    fn tell(&mut self, place: Option<usize>) {
        let ended = self.done.iter().flatten();
        let progress = Progress {
            total: self.done.len(),
            ended: ended.clone().count(),
            failed: ended.filter(|done| !done.ok).count(),
            running: self.running.len(),
        };
        (self.told)(place.and_then(|place| self.done[place].as_ref()), progress);
    }

    /// Somebody wants an end: those that run are asked too.
    fn stop(&mut self, signal: i32) {
        self.stopped = Some(signal);
        for job in &self.running {
            Pid::from_raw(job.child.id() as i32).into_iter().for_each(|pid| signals::send(pid, SIGTERM));
        }
    }

    fn end_all(&mut self) {
        self.stop(SIGTERM);
        for job in &mut self.running {
            // It is a child: it can be waited for.
            let _ = job.child.wait();
        }
    }
}

fn ended(job: Job, status: Option<ExitStatus>, points: &[Point]) -> (usize, Done) {
    let seconds = job.begin.elapsed().as_secs_f64();
    let report = job.lease.map(Lease::end).unwrap_or_default();
    let words = match status {
        Some(status) if status.success() => "done".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("ended by {}", signal_hook::low_level::signal_name(signal).unwrap_or("a signal")),
            _ => "lost".into(),
        },
        None => "lost".into(),
    };
    let done = Done {
        set: points[job.place].iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
        command: job.command,
        ok: status.is_some_and(|status| status.success()),
        status: words,
        seconds,
        peak_bytes: report.peaks.iter().map(|peak| peak.0).collect(),
        result: last_object(&job.output),
    };
    (job.place, done)
}
