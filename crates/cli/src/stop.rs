//! Ctrl-C and SIGTERM as a wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether somebody asked to stop.
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether somebody did.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// From here on the first signal only asks to stop. A second one ends the process at once, with exit status 1.
///
/// # Errors
/// INTERNAL where the system does not let us listen.
pub fn on_signals() -> Result<Stop> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that the first signal does not find its own mark.
        let listen = flag::register_conditional_shutdown(signal, 1, asked.clone()).and_then(|_| flag::register(signal, asked.clone()));
        listen.map_err(|error| Error::internal(format!("signal {signal} cannot be listened to: {error}")))?;
    }
    Ok(Stop(asked))
}
