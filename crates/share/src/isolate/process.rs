//! A worker, seen from the program that started it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error};
use plimsoll_memory::no_room;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::failure::{Failure, Panic};
use super::kernel::Kills;
use super::table::Key;
use super::words::Words;
use super::worker::{Order, WorkerMessage};
use super::{Cause, Line, Settings, signals};
use crate::enforce::arm_worker;
use crate::lease::Lease;
use crate::supervise;
use crate::wire::{Channel, Message, Received};

/// How long a program may take to come to its table of functions.
const START: Duration = Duration::from_secs(60);

/// How long a process whose connection has ended may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// A process that waits for calls. Dropped, it and all that it started are ended.
#[derive(Debug)]
pub(crate) struct Process {
    /// The worker's supervisor, which ends after the worker and all that it started.
    child: Child,
    /// A handle that is readable once the supervisor has ended, where the kernel has such.
    ended: Option<OwnedFd>,
    /// The worker's number.
    pid: u32,
    /// A handle that is readable once the worker has ended, where the kernel has such.
    worker_ended: Option<OwnedFd>,
    channel: Channel,
    words: Words,
    kills: Kills,
    /// How the worker ended, once its supervisor has said so.
    worker: Option<ExitStatus>,
    /// How it ended, once it was waited for.
    status: Option<ExitStatus>,
    /// Its own memory before the first call, and after the last.
    pub baseline: u64,
    pub resident: u64,
}

/// The result of a call.
pub(crate) struct CallResult {
    /// Whether the worker ended before the function began, so that another worker may run it.
    pub again: bool,
    pub result: Result<Message, Cause>,
    /// Whether the worker is there for more.
    pub alive: bool,
}

impl Process {
    /// Starts this executable as a worker, and waits until it is ready.
    pub fn start(settings: &Settings, lease: Option<&Lease>) -> Result<Process, Cause> {
        let (channel, end) = Channel::pair().map_err(not_started)?;
        let mut command = supervise::for_worker();
        command.stdin(end).stderr(Stdio::piped());
        command.envs(settings.environment.iter().map(|(name, value)| (name, value)));
        if let Some(lease) = lease {
            arm_worker(lease, &mut command).map_err(|error| not_started(error.context("its lease cannot be handed down")))?;
        }
        let kills = Kills::now();
        let mut child = command.spawn().map_err(|error| not_started(no_room("this program, started again", &error)))?;
        drop(command);
        let words = match child.stderr.take().ok_or_else(|| std::io::Error::other("there is none")).and_then(Words::pass_on) {
            Ok(words) => words,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(not_started(no_room("the worker's standard error", &error)));
            }
        };
        let ended = handle_of(child.id());
        let (pid, worker_ended) = (child.id(), None);
        let mut process =
            Process { child, ended, pid, worker_ended, channel, words, kills, worker: None, status: None, baseline: 0, resident: 0 };
        let begun = process.channel.send(&Order::Begin(settings.setup()), &Message::empty());
        begun.or_else(|error| error.map_or(Ok(()), |error| Err(not_started(error))))?;
        match process.next(Some(Instant::now() + START)) {
            Next::WorkerMessage(WorkerMessage::Ready { resident, pid }, _) => {
                (process.pid, process.worker_ended) = (pid, handle_of(pid));
                (process.baseline, process.resident) = (resident, resident);
                Ok(process)
            }
            Next::Nothing => Err(Cause::Start {
                message: format!("the program started again is not ready after {START:?}: call Functions::begin first in main"),
            }),
            Next::Broken(error) => Err(not_started(error.context("it does not answer"))),
            Next::WorkerMessage(..) | Next::End => {
                process.finish();
                let said = process.words.last();
                let status = process.status.map_or("without a trace".into(), |status| status.to_string());
                Err(Cause::Start {
                    message: format!(
                        "the program started again ended ({status}) before it was ready: call Functions::begin first in main{}{}",
                        if said.is_empty() { "" } else { "; it said: " },
                        said.trim_end()
                    ),
                })
            }
        }
    }

    /// The worker's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The number of its supervisor, from which all that it starts descends.
    pub fn supervisor(&self) -> u32 {
        self.child.id()
    }

    /// Another handle by which the connection can be closed, which ends the worker.
    pub fn handle(&self) -> Result<Channel, Error> {
        self.channel.another()
    }

    /// Its last output on standard error.
    pub fn last_words(&self) -> String {
        self.words.last()
    }

    /// Has a function run. The process is gone where that is said, and has left nothing.
    pub fn call(&mut self, key: &Key, input: &Message, timeout: Option<Duration>) -> CallResult {
        self.words.forget();
        self.kills.refresh();
        // A time beyond all clocks is no bound.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.channel.send(&Order::Call(key.clone()), input) {
            Ok(()) => {}
            // It may have ended before, or just now: the news tell.
            Err(None) => {}
            Err(Some(error)) => {
                self.finish_by_force();
                let result = Err(or_no_room(error, |message| Cause::Input { message }));
                return CallResult { again: false, result, alive: false };
            }
        }
        let (mut started, mut panic) = (false, None::<Panic>);
        loop {
            match self.next(deadline) {
                Next::WorkerMessage(WorkerMessage::Started, _) => started = true,
                Next::WorkerMessage(WorkerMessage::Panicking, message) => panic = message.read().ok(),
                Next::WorkerMessage(WorkerMessage::Returned { resident }, message) => {
                    self.resident = resident;
                    return CallResult { again: false, result: Ok(message), alive: true };
                }
                Next::WorkerMessage(WorkerMessage::Failed { resident }, message) => {
                    self.resident = resident;
                    let cause = match message.read::<Failure>() {
                        Ok(failure) => failure.into(),
                        Err(error) => Cause::Output { message: format!("the worker's error cannot be read: {error}") },
                    };
                    return CallResult { again: false, result: Err(cause), alive: true };
                }
                Next::WorkerMessage(WorkerMessage::Ready { .. } | WorkerMessage::Ended { .. }, _) => {}
                Next::Nothing => {
                    self.finish_by_force();
                    let after = timeout.unwrap_or_default();
                    return CallResult { again: false, result: Err(Cause::Timeout { after }), alive: false };
                }
                Next::Broken(error) => {
                    // The answer was taken, and there is no room for it: the worker can go on.
                    let alive = error.code() == Code::ResourceExhausted;
                    if !alive {
                        self.finish_by_force();
                    }
                    return CallResult { again: false, result: Err(or_no_room(error, |message| Cause::Output { message })), alive };
                }
                Next::End => {
                    let by_itself = self.finish();
                    return CallResult { again: !started, result: Err(self.cause(by_itself, panic)), alive: false };
                }
            }
        }
    }

    fn next(&mut self, deadline: Option<Instant>) -> Next {
        match self.channel.receive::<WorkerMessage>(deadline, self.ended.as_ref().map(AsFd::as_fd)) {
            Ok(Received::Packet(WorkerMessage::Ended { status }, _)) => {
                self.worker = Some(ExitStatus::from_raw(status));
                Next::End
            }
            Ok(Received::Packet(news, message)) => Next::WorkerMessage(news, message),
            Ok(Received::Nothing) => Next::Nothing,
            Ok(Received::End) => Next::End,
            Err(error) => Next::Broken(error),
        }
    }

    /// The way in which it ended.
    fn cause(&self, by_itself: bool, panic: Option<Panic>) -> Cause {
        let Some(status) = self.status.filter(|_| by_itself) else { return Cause::Lost { status: None } };
        let Some(number) = status.signal() else { return Cause::Lost { status: status.code() } };
        let name = signals::name(number);
        const ABORT: i32 = Signal::ABORT.as_raw();
        const KILL: i32 = Signal::KILL.as_raw();
        match number {
            ABORT if panic.is_some() => panic.unwrap_or_default().into(),
            ABORT => match self.words.about_memory() {
                Some(message) => Cause::OutOfMemory { of: Line::Allocator, message },
                None => Cause::Signal { number, name, core: status.core_dumped() },
            },
            KILL => match self.kills.since() {
                Some(message) => Cause::OutOfMemory { of: Line::Kernel, message },
                None => Cause::Signal { number, name, core: false },
            },
            _ => Cause::Signal { number, name, core: status.core_dumped() },
        }
    }

    /// Waits until the process, whose connection has ended, has ended too, and ends it where it does not. Whether it did by
    /// itself.
    fn finish(&mut self) -> bool {
        let begin = Instant::now();
        while !self.has_ended() && begin.elapsed() < ENDING {
            self.wait(ENDING.saturating_sub(begin.elapsed()));
        }
        let by_itself = self.has_ended();
        self.finish_by_force();
        by_itself
    }

    /// Ends the process and all that it started, and waits for it.
    fn finish_by_force(&mut self) {
        if self.status.is_none() {
            // Before it is waited for, its number is its own.
            if let Some(supervisor) = Pid::from_raw(self.child.id() as i32) {
                let _ = kill_process(supervisor, supervise::NOW);
                let _ = kill_process(supervisor, Signal::CONT);
            }
            let begin = Instant::now();
            while !self.has_ended() && begin.elapsed() < ENDING {
                self.wait(ENDING.saturating_sub(begin.elapsed()));
            }
            // A worker ends with its supervisor: the kernel sends it a signal, and it is gone a while later.
            let _ = self.child.kill();
            let of_supervisor = self.child.wait().ok();
            if let Some(worker) = &self.worker_ended {
                wait_for(worker, ENDING);
            }
            self.status = self.worker.or(of_supervisor);
        }
        self.words.rest();
    }

    /// Whether the process has ended, without waiting for it, so that its number stays.
    pub fn has_ended(&self) -> bool {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        if self.status.is_some() {
            return true;
        }
        let Some(pid) = Pid::from_raw(self.child.id() as i32) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    fn wait(&self, at_most: Duration) {
        match &self.ended {
            Some(ended) => wait_for(ended, at_most),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A handle that is readable once the process has ended, where the kernel has such.
fn handle_of(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()
}

/// Waits until a handle is readable, for so long at most.
fn wait_for(handle: &OwnedFd, at_most: Duration) {
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout));
}

fn not_started(error: Error) -> Cause {
    or_no_room(error, |message| Cause::Start { message })
}

/// A lack of memory, descriptors or the like is told from other failures.
fn or_no_room(error: Error, other: fn(String) -> Cause) -> Cause {
    match error.code() {
        Code::ResourceExhausted => Cause::OutOfMemory { of: Line::Ledger, message: error.to_string() },
        _ => other(error.to_string()),
    }
}

enum Next {
    WorkerMessage(WorkerMessage, Message),
    Nothing,
    End,
    Broken(Error),
}

impl Drop for Process {
    fn drop(&mut self) {
        self.finish_by_force();
    }
}
