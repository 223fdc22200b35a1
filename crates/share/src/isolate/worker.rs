//! The body of a worker: it is the program's own executable, and never gets past [`Functions::begin`].

use std::backtrace::Backtrace;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Bytes, Code};
use plimsoll_memory::{page_size, trim_heap};
use rustix::process::{Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};

use super::failure::{Failure, Panic};
use super::table::{Functions, Key};
use crate::wire::{Channel, Message, Received};

/// The word in the place of a program's name in a worker's arguments, before the number of its supervisor.
const MARK: &str = "plimsoll-worker of ";

/// Its own name for a worker, to begin its arguments.
pub(crate) fn mark(parent: u32) -> String {
    format!("{MARK}{parent}")
}

/// To a worker.
#[derive(Serialize, Deserialize)]
pub(crate) enum Order {
    /// First: the worker's setup.
    Begin(Setup),
    /// Run this, with the input that goes with it.
    Call(Key),
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Address space on top of the worker's own at the start.
    pub address_space: Option<u64>,
    /// The process's name for the system.
    pub name: String,
    /// Bytes in memory above the beginning's that make it worth asking the allocator for freed ones.
    pub keep: u64,
}

/// From a worker.
#[derive(Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// It waits for calls; so much of its own is in memory.
    Ready { resident: u64, pid: u32 },
    /// It has a call, and runs it after this is sent: a call of which this was not sent has not begun.
    Started,
    /// The process may abort: this is the panic.
    Panicking,
    /// The call is over; the message is the output.
    Returned { resident: u64 },
    /// The call is over; the message is the failure.
    Failed { resident: u64 },
    /// From its supervisor: it has ended with that status, as `wait` has it, and so has all that it started.
    Ended { status: i32 },
}

/// The connection to the program for which this process was started as a worker; none if it is no worker.
///
/// A worker is told by its first argument, which programs that it starts do not inherit, and by its standard input. That is the
/// connection: from here on it is empty.
pub(super) fn connection() -> Option<Channel> {
    let first = std::env::args_os().next()?;
    let parent: i32 = first.to_str()?.strip_prefix(MARK)?.parse().ok()?;
    let input = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(input).ok().filter(|kind| *kind == rustix::net::SocketType::SEQPACKET)?;
    // It does not outlive its supervisor.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // That has ended already where it has another parent now; in a namespace of its own it has none that it could see.
    let other = rustix::process::getppid().is_some_and(|now| now.as_raw_nonzero().get() != parent);
    let end: OwnedFd = rustix::io::fcntl_dupfd_cloexec(input, 3).ok()?;
    let nothing = File::open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(&nothing).ok()?;
    if other {
        std::process::exit(1);
    }
    Some(Channel::from_end(end))
}

/// Runs calls until the connection ends, then ends the process.
pub(super) fn work(functions: &Functions, channel: &Channel) -> ! {
    if let Err(why) = serve(functions, channel) {
        eprintln!("plimsoll worker: {why}");
        std::process::exit(1);
    }
    // Processes that calls have started, and left, end too.
    end_all();
}

fn serve(functions: &Functions, channel: &Channel) -> Result<(), String> {
    let setup = match channel.receive::<Order>(None, None).map_err(|error| error.to_string())? {
        Received::Packet(Order::Begin(setup), _) => setup,
        _ => return Ok(()),
    };
    let name: Vec<u8> = setup.name.bytes().filter(|byte| *byte != 0).take(15).collect();
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
    let watched = channel.another().map_err(|error| error.to_string())?;
    let (ready, begun) = std::sync::mpsc::channel();
    let watches = move || {
        let _ = ready.send(());
        watch(&watched);
    };
    let thread = std::thread::Builder::new().name("plimsoll-watch".into()).stack_size(64 << 10).spawn(watches);
    thread.map_err(|error| format!("no thread: {error}"))?;
    // An allocator may reserve much address space for a thread: before that is limited.
    let _ = begun.recv();
    if let Some(more) = setup.address_space {
        limit_address_space(more)?;
    }
    let last_panic = hook(channel)?;
    let memory = Memory::open();
    let baseline = memory.resident();
    say(channel, &WorkerMessage::Ready { resident: baseline, pid: std::process::id() }, &empty())?;
    loop {
        let (key, input) = match channel.receive::<Order>(None, None) {
            Ok(Received::Packet(Order::Call(key), input)) => (key, input),
            Ok(Received::Packet(Order::Begin(_), _) | Received::Nothing) => continue,
            Ok(Received::End) => return Ok(()),
            // The call was taken, and there is no room for its input.
            Err(error) if error.code() == Code::ResourceExhausted => {
                let failed = failure(&Failure::of_error(error.into()))?;
                say(channel, &WorkerMessage::Failed { resident: memory.resident() }, &failed)?;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        say(channel, &WorkerMessage::Started, &empty())?;
        *last_panic.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let result = catch_unwind(AssertUnwindSafe(|| functions.call(&key, &input)));
        drop(input);
        let result = result.unwrap_or_else(|payload| {
            let seen = last_panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            Err(Failure::Panic(seen.unwrap_or_else(|| Panic { message: text_of(&*payload), ..Panic::default() })))
        });
        // Output of the call is printed before the answer is there.
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().flush();
        let mut resident = memory.resident();
        if resident > baseline.saturating_add(setup.keep) {
            trim_heap();
            resident = memory.resident();
        }
        match result {
            Ok(output) => match channel.send(&WorkerMessage::Returned { resident }, &output) {
                Err(Some(error)) => say(channel, &WorkerMessage::Failed { resident }, &failure(&Failure::Output(error.to_string()))?)?,
                Err(None) => return Ok(()),
                Ok(()) => {}
            },
            Err(failed) => say(channel, &WorkerMessage::Failed { resident }, &failure(&failed)?)?,
        }
    }
}

fn say(channel: &Channel, news: &WorkerMessage, message: &Message) -> Result<(), String> {
    channel.send(news, message).or_else(|error| error.map_or(Ok(()), |error| Err(error.to_string())))
}

fn empty() -> Message {
    Message::empty()
}

fn failure(failure: &Failure) -> Result<Message, String> {
    Message::of(failure).map_err(|error| error.to_string())
}

/// Ends the process and all that it started when the program that it works for is gone, at any time.
fn watch(channel: &Channel) {
    channel.wait_for_end();
    end_all();
}

/// Ends the process and its group, by a signal that cannot be refused.
fn end_all() -> ! {
    // A group of its own, since it was started so; without one, only itself.
    if rustix::process::getpgrp() == rustix::process::getpid() {
        let _ = rustix::process::kill_current_process_group(Signal::KILL);
    }
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// Remembers this thread's panics, beside their usual handling.
fn hook(channel: &Channel) -> Result<Arc<Mutex<Option<Panic>>>, String> {
    let last = Arc::new(Mutex::new(None));
    let before = std::panic::take_hook();
    let functions = std::thread::current().id();
    let aborts = if cfg!(panic = "abort") { Some(channel.another().map_err(|error| error.to_string())?) } else { None };
    let seen = Arc::clone(&last);
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = std::thread::current().id() == functions;
        if is_ours || aborts.is_some() {
            let panic = Panic {
                message: text_of(info.payload()),
                location: info.location().map(ToString::to_string).unwrap_or_default(),
                backtrace: Backtrace::force_capture().to_string(),
            };
            if let (Some(channel), Ok(message)) = (&aborts, Message::of(&panic)) {
                let _ = channel.send(&WorkerMessage::Panicking, &message);
            }
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        before(info);
    }));
    Ok(last)
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".into())
}

fn limit_address_space(more: u64) -> Result<(), String> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(|error| format!("/proc/self/statm: {error}"))?;
    let pages: u64 = statm.split(' ').next().and_then(|word| word.parse().ok()).ok_or("/proc/self/statm cannot be read")?;
    let limit = pages.saturating_mul(page_size()).saturating_add(more);
    let now = rustix::process::getrlimit(Resource::As);
    let limit = Rlimit { current: Some(now.maximum.map_or(limit, |maximum| maximum.min(limit))), maximum: now.maximum };
    rustix::process::setrlimit(Resource::As, limit)
        .map_err(|error| format!("the address space cannot be limited to {}: {error}", Bytes(more)))
}

/// The memory of this process that is its own: files, which others see too, do not count.
struct Memory(Option<File>);

impl Memory {
    fn open() -> Memory {
        Memory(File::open("/proc/self/statm").ok())
    }

    fn resident(&self) -> u64 {
        let mut text = [0u8; 128];
        let Some(length) = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()) else { return 0 };
        let text = String::from_utf8_lossy(&text[..length]);
        let mut words = text.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
        let (all, of_files) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        all.saturating_sub(of_files) * page_size()
    }
}
