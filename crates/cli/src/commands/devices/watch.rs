//! The same again and again.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll::machine::View;
use plimsoll::share::terminal;

use super::screen;
use crate::failure::{Result, wrong_use};
use crate::{output, stop};

/// How long a wish to stop, or a new size of the terminal, may wait.
const NAP: Duration = Duration::from_millis(50);

/// How long the same page is shown where not all fit on one.
const PAGE: Duration = Duration::from_secs(3);

/// The other screen of a terminal, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Looks every so many seconds until a stop is asked for or the reader goes away. A terminal shows a screen; elsewhere one text
/// follows the other, as `text` says.
pub fn watch(seconds: f64, on_screen: bool, look: impl Fn() -> View, text: impl Fn(&View) -> String) -> Result<()> {
    if !(0.05..=86400.0).contains(&seconds) {
        return wrong_use(format!("--watch {seconds}: write a number of seconds from 0.05 to 86400"));
    }
    let (every, stop) = (Duration::from_secs_f64(seconds), stop::on_signals(|_| ())?);
    let size = || terminal::size().filter(|_| on_screen && std::io::stdout().is_terminal());
    let in_place = size().is_some();
    let resized = Arc::new(AtomicBool::new(false));
    // Without it the new size is seen at the next look.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGWINCH, resized.clone());
    let began = Instant::now();
    if in_place {
        output::print_raw(ENTER);
    }
    let mut result = Ok(());
    'looks: while !stop.is_asked() {
        let begin = Instant::now();
        let view = look();
        loop {
            resized.store(false, Relaxed);
            let turn = (began.elapsed().as_millis() / PAGE.as_millis()) as usize;
            let written = match size() {
                Some(size) => Ok(output::print_raw(&frame(&screen::of(&view, size, turn)))),
                None => output::result_if_read(text(&view)),
            };
            match written {
                Ok(true) => {}
                Ok(false) => break 'looks,
                Err(error) => {
                    result = Err(error.into());
                    break 'looks;
                }
            }
            while !stop.is_asked() && begin.elapsed() < every && !resized.load(Relaxed) {
                std::thread::sleep(NAP.min(every.saturating_sub(begin.elapsed())));
            }
            if !in_place || !resized.load(Relaxed) {
                break;
            }
        }
    }
    if in_place {
        output::print_raw(LEAVE);
    }
    result
}

/// The sequence that makes a terminal show the text and nothing else. It does not flicker: the text is written over the old one.
fn frame(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("{line}\x1b[K")).collect();
    format!("\x1b[H{}\x1b[J", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_writes_over_the_one_before() {
        assert_eq!(frame("a\nb"), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }

    #[test]
    fn times_that_make_no_sense_are_refused() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(watch(seconds, false, View::default, |_| String::new()).is_err());
        }
    }
}
