//! Ctrl-C, SIGTERM and deadlines.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use plimsoll::{Cancellation, Code, Error};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::device_options::duration;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// Whether this process was asked to stop.
#[derive(Clone)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// The latest signal, if one came.
    pub fn signal(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed) as u8).filter(|signal| *signal != 0)
    }

    /// The exit status that shells expect of a program that a signal ended; none if no signal came.
    pub fn exit_status(&self) -> Option<ExitCode> {
        self.signal().map(|signal| ExitCode::from(128 + signal))
    }
}

/// From here on the first signal only asks to stop, and calls `on_first` on a thread of its own. A second one ends the process at
/// once, with exit status 128 and its number.
///
/// # Errors
/// INTERNAL if the system takes no handlers.
pub fn on_signals(on_first: impl FnOnce(u8) + Send + 'static) -> plimsoll::Result<Stop> {
    on(&[SIGINT, SIGTERM], on_first)
}

/// As [`on_signals`], for these.
fn on(signals: &[i32], on_first: impl FnOnce(u8) + Send + 'static) -> plimsoll::Result<Stop> {
    let stop = Stop(Arc::new(AtomicUsize::new(0)));
    let asked = Arc::new(AtomicBool::new(false));
    let (mut heard, pipe) = UnixStream::pair().map_err(|error| Error::internal(format!("no pipe for signals: {error}")))?;
    for &signal in signals {
        // In this order, so that the first signal does not find its own mark.
        let listen = flag::register_conditional_shutdown(signal, 128 + signal, asked.clone())
            .and_then(|_| flag::register(signal, asked.clone()))
            .and_then(|_| flag::register_usize(signal, stop.0.clone(), signal as usize))
            .and_then(|_| low_level::pipe::register(signal, pipe.try_clone()?));
        listen.map_err(|error| Error::internal(format!("no handler for signal {signal}: {error}")))?;
    }
    let came = stop.clone();
    let listen = move || {
        if heard.read_exact(&mut [0]).is_ok()
            && let Some(signal) = came.signal()
        {
            on_first(signal);
        }
    };
    thread("plimsoll-signal", listen)?;
    Ok(stop)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> plimsoll::Result<()> {
    let started = thread::Builder::new().name(name.to_string()).spawn(run);
    started.map(drop).map_err(|error| Error::resource_exhausted(format!("the system has no thread: {error}")))
}

/// How long a command may take.
#[derive(Args, Clone, Debug)]
pub struct TimeoutArgs {
    /// End the command if it takes longer than this: 500ms, 30s, 5min. A run ends between two of its commands
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
}

/// The end of a command at once: by Ctrl-C, or at the deadline. Runs end between two commands. Outside of runs, while the command
/// plans, reads files or waits for cards, the process ends. SIGTERM ends the process as it does by default.
pub struct AtOnce {
    cancellation: Cancellation,
    stop: Stop,
    runs: Arc<AtomicU32>,
}

impl AtOnce {
    /// From here on Ctrl-C ends the command, and so does the deadline.
    ///
    /// # Errors
    /// Wrong use for a duration that makes no sense; otherwise as [`on_signals`].
    pub fn new(args: &TimeoutArgs) -> Result<AtOnce> {
        let timeout = args.timeout.as_deref().map(|text| duration("--timeout", text)).transpose()?.filter(|time| *time < Duration::MAX);
        let cancellation = timeout.map_or_else(|| Ok(Cancellation::new()), Cancellation::after)?;
        let runs = Arc::new(AtomicU32::new(0));
        let (ended, under_way) = (cancellation.clone(), runs.clone());
        let stop = on(&[SIGINT], move |signal| {
            ended.cancel();
            if under_way.load(Ordering::SeqCst) == 0 {
                end_process(128 + i32::from(signal));
            }
        })?;
        if let Some(time) = timeout {
            let under_way = runs.clone();
            thread("plimsoll-timeout", move || {
                thread::sleep(time);
                if under_way.load(Ordering::SeqCst) == 0 {
                    let error = Error::new(Code::DeadlineExceeded, format!("the command was not done in {time:?}"));
                    Failure::from(error).report();
                    end_process(1);
                }
            })?;
        }
        Ok(AtOnce { cancellation, stop, runs })
    }

    /// The handle that ends runs.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Does something that the cancellation ends.
    pub fn during<R>(&self, run: impl FnOnce() -> R) -> R {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let result = run();
        self.runs.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Why the command has to end; nothing if it does not.
    ///
    /// # Errors
    /// CANCELLED after a signal, DEADLINE_EXCEEDED after the deadline.
    pub fn check(&self) -> plimsoll::Result<()> {
        self.cancellation.error().map_or(Ok(()), Err)
    }

    /// The end of the command: after a signal, the exit status that shells expect.
    pub fn end(&self, result: Result<ExitCode>) -> Result<ExitCode> {
        let Some(status) = self.stop.exit_status() else { return result };
        if let Err(failure) = &result {
            failure.report();
        }
        Ok(status)
    }
}

/// Ends the process, after the rest of the output.
pub fn end_process(status: i32) -> ! {
    let _ = std::io::stdout().flush();
    std::process::exit(status)
}
