//! The same again and again.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::failure::{Result, wrong_use};
use crate::{output, stop};

/// How long a wish to stop may wait.
const NAP: Duration = Duration::from_millis(50);

/// Shows a text every so many seconds until somebody asks to stop or the reader goes away: in place on a terminal where it is
/// to be `redrawn`, else one after the other.
pub fn watch(seconds: f64, redrawn: bool, look: impl Fn() -> String) -> Result<()> {
    if !(0.05..=86400.0).contains(&seconds) {
        return wrong_use(format!("--watch {seconds}: write a number of seconds from 0.05 to 86400"));
    }
    let (every, stop) = (Duration::from_secs_f64(seconds), stop::on_signals()?);
    let in_place = redrawn && std::io::stdout().is_terminal();
    let mut shown = false;
    while !stop.is_asked() {
        let begin = Instant::now();
        let text = look();
        let frame = if in_place { frame(&text, !shown) } else { text };
        if !output::result_if_read(frame)? {
            break;
        }
        shown = true;
        while !stop.is_asked() && begin.elapsed() < every {
            std::thread::sleep(NAP.min(every.saturating_sub(begin.elapsed())));
        }
    }
    Ok(())
}

/// What makes a terminal show the text and nothing else. It does not flicker: what is there is written over.
fn frame(text: &str, first: bool) -> String {
    let clear = if first { "\x1b[2J" } else { "" };
    let lines: Vec<String> = text.lines().map(|line| format!("{line}\x1b[K")).collect();
    format!("{clear}\x1b[H{}\x1b[J", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_writes_over_the_one_before() {
        assert_eq!(frame("a\nb", true), "\x1b[2J\x1b[Ha\x1b[K\nb\x1b[K\x1b[J");
        assert_eq!(frame("a", false), "\x1b[Ha\x1b[K\x1b[J");
    }

    #[test]
    fn times_that_make_no_sense_are_refused() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(watch(seconds, false, String::new).is_err());
        }
    }
}
