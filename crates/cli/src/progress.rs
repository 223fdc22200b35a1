//! How far a training has come, on standard error: a bar where that is a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::show;

/// Characters of the bar.
const WIDTH: u64 = 30;
/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);
/// A line comes at every tenth of the way, and after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// The progress of a training.
pub struct Progress {
    is_terminal: bool,
    first: u64,
    last: u64,
    shown: Instant,
    is_drawn: bool,
}

impl Progress {
    /// From after step `first` to step `last`.
    pub fn new(first: u64, last: u64) -> Progress {
        Progress { is_terminal: std::io::stderr().is_terminal(), first, last, shown: Instant::now(), is_drawn: false }
    }

    /// A step was taken.
    pub fn show(&mut self, step: u64, loss: Option<f32>) {
        let waited = self.shown.elapsed();
        let is_due = if self.is_terminal { step == self.last || waited >= EVERY } else { self.is_tenth(step) || waited >= PATIENCE };
        if !is_due {
            return;
        }
        self.shown = Instant::now();
        let mut err = std::io::stderr().lock();
        let _ = if self.is_terminal {
            self.is_drawn = true;
            write!(err, "\r{}", bar(self.first, step, self.last, loss)).and_then(|()| err.flush())
        } else {
            writeln!(err, "step {step}{}", after(": ", loss))
        };
    }

    /// Says a line between two steps, above the bar.
    pub fn say(&mut self, text: impl std::fmt::Display) {
        let clear = if self.is_drawn { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{clear}{text}");
    }

    /// There is nothing more to come: the bar goes away.
    pub fn end(&self) {
        if self.is_drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn is_tenth(&self, step: u64) -> bool {
        let tenth = |step: u64| (step - self.first) * 10 / (self.last - self.first).max(1);
        step > self.first && tenth(step) > tenth(step - 1)
    }
}

/// The loss, where there is one.
fn after(mark: &str, loss: Option<f32>) -> String {
    loss.map_or_else(String::new, |loss| format!("{mark}loss {}", show::significant(loss)))
}

fn bar(first: u64, step: u64, last: u64, loss: Option<f32>) -> String {
    let done = ((step - first) * WIDTH / (last - first).max(1)).min(WIDTH);
    let (full, empty) = ("#".repeat(done as usize), ".".repeat((WIDTH - done) as usize));
    format!("[{full}{empty}] step {step} of {last}{}\x1b[K", after(", ", loss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_as_the_way() {
        assert!(bar(0, 300, 600, Some(0.5)).starts_with("[###############...............] step 300 of 600, loss 0.5000"));
        assert!(bar(100, 100, 100, None).starts_with("[.............................."));
    }

    #[test]
    fn a_line_comes_at_every_tenth() {
        let lines = |first, last| {
            let progress = Progress::new(first, last);
            (first + 1..=last).filter(|step| progress.is_tenth(*step)).count()
        };
        assert_eq!((lines(0, 600), lines(7, 607), lines(0, 3), lines(0, 0)), (10, 10, 3, 0));
        assert!(Progress::new(0, 600).is_tenth(600));
    }
}
