//! Ctrl-C and SIGTERM as a wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether this process was asked to stop.
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// The latest signal, if one came.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed) as i32).filter(|signal| *signal != 0)
    }
}

/// From here on the first signal only asks to stop. A second one ends the process at once, with exit status 128 and its number.
///
/// # Errors
/// INTERNAL where the system takes no handlers.
pub fn on_signals() -> Result<Stop> {
    let signal_that_came = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that the first signal does not find its own mark.
        let listen = flag::register_conditional_shutdown(signal, 128 + signal, asked.clone())
            .and_then(|_| flag::register(signal, asked.clone()))
            .and_then(|_| flag::register_usize(signal, signal_that_came.clone(), signal as usize));
        listen.map_err(|error| Error::internal(format!("no handler for signal {signal}: {error}")))?;
    }
    Ok(Stop(signal_that_came))
}
