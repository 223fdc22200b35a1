//! The lines for people about a program under a lease.

use std::time::Duration;

use plimsoll_base::Bytes;

use super::Ended;
use crate::enforce::{Choice, Rung};
use crate::isolate::signal_name;
use crate::lease::{Lease, Part, Report};

/// `512 MiB of GPU 0 (Tesla T4)`.
fn part(part: &Part) -> String {
    format!("{} of GPU {} ({})", part.bytes, part.ordinal, part.device.name)
}

/// The line before the program starts: its lease, and the rung. Without a choice the program is one of ours.
pub(super) fn guarantee(lease: &Lease, choice: Option<&Choice>, end_beyond: bool) -> String {
    if lease.parts().is_empty() {
        return "no GPU: the program sees none".into();
    }
    let parts: Vec<String> = lease.parts().iter().map(part).collect();
    let what = choice.map_or("held: it allocates nothing beyond".into(), |choice| rung(choice, end_beyond));
    format!("{}; {what}", parts.join(", "))
}

/// The rung, and its meaning.
fn rung(choice: &Choice, end_beyond: bool) -> String {
    let word = choice.rung.word();
    let use_beyond = match (choice.has(Rung::Watched), end_beyond) {
        (true, false) => "use beyond it is reported",
        (true, true) => "ended if it uses more",
        (false, _) => "use is not observed",
    };
    match choice.rung {
        Rung::Kernel => format!("{word}: the driver refuses what its processes together ask for beyond"),
        Rung::Mps if choice.has(Rung::Shim) => {
            format!("{word}: the driver's server refuses bytes beyond to each process, and the shim to all of them together")
        }
        Rung::Mps => format!("{word}: the driver's server refuses bytes beyond to each process; several together are not held"),
        Rung::Shim => format!("{word}: a library before the driver refuses what its processes together ask for beyond"),
        Rung::Framework => format!("{word}: TensorFlow, PyTorch and JAX are told their share; {use_beyond}"),
        Rung::Watched | Rung::NotWatched if choice.tells_frameworks => {
            format!("{word}: {use_beyond}; TensorFlow, PyTorch and JAX have settings for a share")
        }
        Rung::Watched | Rung::NotWatched => format!("{word}: {use_beyond}"),
    }
}

/// The line about use beyond a share.
pub(super) fn beyond(of: &Part, used: Bytes, end_beyond: bool) -> String {
    let then = if end_beyond { "it is ended (--enforce=kill)" } else { "--enforce=kill would end it" };
    format!("warning: the program uses {used}, beyond its {}: {then}", part(of))
}

/// The line about cards that are not used.
pub(super) fn unused(since: Duration, is_end: bool) -> String {
    let seconds = since.as_secs();
    let time = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    };
    let then = if is_end { ": it is ended (--idle-timeout)" } else { "" };
    format!("warning: the program has not used its cards for {time}{then}")
}

/// How a program ended.
pub(super) fn how(ended: Ended) -> String {
    match ended {
        Ended::Exited(0) => "done".to_string(),
        Ended::Exited(code) => format!("exit status {code}"),
        Ended::Signalled(signal) => format!("ended by {}", signal_name(signal)),
        Ended::TimedOut => "ended by --timeout".into(),
        Ended::Idle => "ended by --idle-timeout".into(),
        Ended::Beyond(signal) => format!("ended by {} (--enforce=kill)", signal_name(signal)),
        Ended::NotStarted(_) => "not started".into(),
    }
}

/// The line after the program ended.
pub(super) fn report(ended: Ended, ran: Duration, parts: &[Part], report: &Report) -> String {
    let how = how(ended);
    let mut line = format!("{how} after {:.1} s", ran.as_secs_f64());
    if parts.is_empty() {
        return line;
    }
    if report.peaks.iter().all(|peak| peak.most().is_none()) {
        line += "; use not observed";
    } else {
        for (part, peak) in parts.iter().zip(&report.peaks) {
            line += &match peak.most() {
                Some(peak) => format!("; peak use {peak} of {} on GPU {}", part.bytes, part.ordinal),
                None => format!("; use of {} on GPU {} not observed", part.bytes, part.ordinal),
            };
        }
    }
    if let Some(count @ 1..) = report.refusals {
        line += &format!("; refused {count} time{}", if count == 1 { "" } else { "s" });
    }
    if report.is_free() {
        return line
            + match report.came_back {
                Some(true) => "; all memory came back",
                Some(false) => "; NOT all memory came back",
                None => "; the lease is free",
            };
    }
    let who: Vec<String> = report.left.iter().map(|(pid, program)| format!("pid {pid} ({program})")).collect();
    let who = if who.is_empty() { "programs that this user cannot see".into() } else { who.join(", ") };
    line + &format!("; the lease is still held by {who}, which the program left behind")
}
