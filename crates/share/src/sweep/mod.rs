//! One program many times, with other values each time: as many at once as there are leases to be had.

mod engine;
mod ranking;
mod results;
mod space;

use std::fs::{self, File, TryLockError};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error, Result};
use plimsoll_machine::{Guarantee, end_with_this_thread};
use rustix::process::{Pid, Signal, kill_process};

use crate::enforce::{Armed, Enforce, Found, Places, arm};
use crate::isolate::signal_name;
use crate::lease::{Cards, Lease, Request};
use crate::run::{GRACE, find, is_own, signals::Signals};
use crate::supervise::{self, Supervisors};
use results::{Results, last_object, refused};

pub use engine::Engine;
pub use ranking::Best;
pub use results::Done;
pub use space::{Axis, Point, command, points};

/// How often leases that others hold are asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// A wish to end that comes so long after the first is another one.
const INSISTS: Duration = Duration::from_secs(1);

/// The programs and their points.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The program and its arguments, with names in braces.
    pub command: Vec<String>,
    /// The values of each run.
    pub points: Vec<Point>,
    /// The request of each; none leaves the use of cards to the programs.
    pub request: Option<Request>,
    /// At most so many at once.
    pub jobs: usize,
    /// Where results are written, a line each; beside it, in a folder of the same name and `.logs`, the output of each. A run that
    /// is there and ended well is not repeated.
    pub results: PathBuf,
    /// The maker of supervisors between this process and each program. With them, processes that programs started are ended too
    /// where they must end, and where this process is killed. Without, only the programs themselves are asked to.
    pub supervisors: Option<Supervisors>,
    /// What takes runs to other machines, where that is wanted; none has them here.
    pub engine: Option<Engine>,
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
    /// Of the rest, those that wait because processes of a killed sweep, started for them, have not ended yet.
    pub lingering: usize,
}

/// The result of a sweep.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For each point, in order, its result; none where it was not run to its end.
    pub done: Vec<Option<Done>>,
    /// How many of them are from before.
    pub before: usize,
    /// The signal that ended the sweep early.
    pub stopped: Option<i32>,
}

/// The result of trying to start a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It runs.
    Runs,
    /// There is no lease for it now.
    NoLease,
    /// An earlier sweep's program still writes its output.
    Lingers,
}

/// A run that goes on.
struct Job {
    place: usize,
    /// The engine's node that it is on; 0 without one.
    node: usize,
    child: Child,
    lease: Option<Lease>,
    armed: Option<Armed>,
    begin: Instant,
    output: PathBuf,
    command: Vec<String>,
}

/// Runs a sweep. `told` hears of each run that has ended (none now and then in between) and how far it is. Programs are asked to
/// end when the calling thread ends, however that ends. Those under supervisors are made to after a while, with all that they
/// started. The next sweep waits for processes that still write the output of a run, before it repeats that run.
///
/// # Errors
/// INVALID_ARGUMENT for a command that does not use a name. RESOURCE_EXHAUSTED where a lease could never be had. Otherwise the
/// obstacle to the results or the ledger. Runs that go on are asked to end then, and after a while made to.
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
    let (program, places) = (commands.first().and_then(|command| command.first()), Places::here());
    // Programs of ours hold themselves. Where none is named, starting it says so.
    let foreign = program.map(Path::new).filter(|program| !is_own(program));
    let found = foreign.filter(|_| sweep.request.is_some() && sweep.engine.is_none()).map(|program| places.look(cards, Some(program)));
    let mut runner = Runner {
        found,
        places,
        cards,
        sweep,
        commands,
        logs,
        results,
        signals,
        done,
        left,
        running: Vec::new(),
        lingering: 0,
        stopped: None,
        told,
    };
    let outcome = runner.until_the_end();
    if outcome.is_err() {
        runner.end_all();
    }
    outcome.map(|()| Outcome { done: runner.done, before, stopped: runner.stopped.map(|(signal, _)| signal) })
}

struct Runner<'a> {
    /// The means to hold the programs to their leases; none for programs of ours.
    found: Option<Found>,
    places: Places,
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
    lingering: usize,
    /// The signal that ends the sweep early, and since when.
    stopped: Option<(i32, Instant)>,
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
            if is_time && self.stopped.is_none() {
                asked = self.start_all()?.then(Instant::now);
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

    /// Starts the runs that may begin now. Whether something is left that could not.
    fn start_all(&mut self) -> Result<bool> {
        self.lingering = 0;
        let mut at = self.left.len();
        while at > 0 && self.running.len() < self.sweep.jobs.max(1) {
            at -= 1;
            match self.start(self.left[at])? {
                Start::Runs => drop(self.left.remove(at)),
                Start::NoLease => return Ok(true),
                Start::Lingers => self.lingering += 1,
            }
        }
        Ok(self.lingering > 0)
    }

    /// Starts a run, if there is a lease to be had.
    fn start(&mut self, place: usize) -> Result<Start> {
        let command = &self.commands[place];
        if command.is_empty() {
            return Err(Error::invalid_argument("no program is named").with_remedy("write it after --"));
        }
        let node = self.emptiest();
        let mut words = self.sweep.engine.as_ref().map_or(Vec::new(), |engine| engine.words(node, self.sweep.request.as_ref()));
        words.extend_from_slice(command);
        let (program, arguments) = (&words[0], &words[1..]);
        let output = self.logs.join(format!("{}.out", place + 1));
        let errors = output.with_extension("err");
        let Some(out) = take(&output)? else { return Ok(Start::Lingers) };
        let request = self.sweep.request.clone().filter(|_| self.sweep.engine.is_none()).map(|request| Request {
            program: command.join(" "),
            wait: None,
            guarantee: self.found.is_none().then_some(Guarantee::Held),
            ..request
        });
        let mut lease = match request.as_ref().map(|request| self.cards.lease(request, &mut |_| true)).transpose() {
            Ok(lease) => lease,
            // Others hold the missing part, for now.
            Err(error)
                if error.code() == Code::ResourceExhausted && request.is_some_and(|request| self.cards.could_grant(&request).is_ok()) =>
            {
                return Ok(Start::NoLease);
            }
            Err(error) => return Err(error),
        };
        out.set_len(0).map_err(|error| refused(&output, &error))?;
        let err = plimsoll_base::create_file(&errors).map_err(|error| refused(&errors, &error))?;
        let missing = |error: std::io::Error| {
            let remedy = match self.sweep.engine {
                Some(_) => "the engine's program has to be on the PATH",
                None => "write a program that can be started after --",
            };
            Error::new(Code::NotFound, format!("{program}: {error}")).with_remedy(remedy)
        };
        let mut child = match self.sweep.supervisors {
            Some(supervisors) => {
                // A supervisor could only say so where it is not read.
                find(Path::new(program)).ok_or(std::io::ErrorKind::NotFound.into()).and_then(fs::metadata).map_err(missing)?;
                supervisors.for_program(program, arguments)
            }
            None => {
                let mut child = Command::new(program);
                child.args(arguments);
                // The result would have no reader.
                end_with_this_thread(&mut child);
                child
            }
        };
        child.stdin(Stdio::null()).stdout(out).stderr(err);
        let mut armed = match (lease.as_mut().filter(|lease| !lease.parts().is_empty()), &self.found) {
            (Some(lease), Some(found)) => Some(arm(lease, &mut child, found.clone(), Enforce::Best, &self.places)?),
            _ => None,
        };
        lease.as_ref().map_or(Ok(Vec::new()), |lease| lease.inherit(&mut child))?;
        let begin = Instant::now();
        let child = match &mut armed {
            Some(armed) => armed.spawn(&mut child),
            None => child.spawn(),
        };
        let child = child.map_err(missing)?;
        self.running.push(Job { place, node, child, lease, armed, begin, output, command: command.clone() });
        Ok(Start::Runs)
    }

    /// The engine's node that the runs of this sweep leave most of.
    fn emptiest(&self) -> usize {
        let runs = |node: usize| self.running.iter().filter(|job| job.node == node).count();
        self.sweep.engine.as_ref().map_or(0, |engine| engine.next(runs))
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
            lingering: self.lingering,
        };
        (self.told)(place.and_then(|place| self.done[place].as_ref()), progress);
    }

    /// An end is wanted: running programs are asked too, and ended if it is wanted again a while later.
    fn stop(&mut self, signal: i32) {
        let &mut (_, since) = self.stopped.get_or_insert((signal, Instant::now()));
        self.send(since.elapsed() >= INSISTS);
    }

    /// Asks those that run to end, or makes them.
    fn send(&self, insists: bool) {
        let signal = match (insists, self.sweep.supervisors) {
            (false, _) => Signal::TERM,
            (true, Some(_)) => supervise::NOW,
            (true, None) => Signal::KILL,
        };
        for pid in self.running.iter().filter_map(|job| Pid::from_raw(job.child.id() as i32)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks those that run to end, and a while later makes them.
    fn end_all(&mut self) {
        for insists in [false, true] {
            self.send(insists);
            let begin = Instant::now();
            let mut is_running = |job: &mut Job| matches!(job.child.try_wait(), Ok(None));
            while begin.elapsed() < GRACE && self.running.iter_mut().any(&mut is_running) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        for job in &mut self.running {
            let _ = job.child.kill();
            // It is a child: it can be waited for.
            let _ = job.child.wait();
        }
    }
}

/// A run's output, which its programs keep locked as long as one of them can write it; none while an earlier run's do.
fn take(output: &Path) -> Result<Option<File>> {
    let file = plimsoll_base::keep_file(output).map_err(|error| refused(output, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(refused(output, &error)),
    }
}

fn ended(job: Job, status: Option<ExitStatus>, points: &[Point]) -> (usize, Done) {
    let seconds = job.begin.elapsed().as_secs_f64();
    let cards = job.lease.as_ref().map(|lease| lease.cards().clone());
    let report = job.lease.map(Lease::end).unwrap_or_default();
    if let (Some(armed), Some(cards)) = (job.armed, cards) {
        armed.disarm(&cards);
    }
    let words = match status {
        Some(status) if status.success() => "done".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("ended by {}", signal_name(signal)),
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
        peak_bytes: report.peaks.iter().map(|peak| peak.most().map(|bytes| bytes.0)).collect(),
        result: last_object(&job.output),
    };
    (job.place, done)
}
