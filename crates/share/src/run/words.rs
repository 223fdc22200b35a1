//! What people are told of a program under a lease.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_memory::machine::Guarantee;

use super::Ended;
use crate::isolate::signal_name;
use crate::lease::{Lease, Part, Report};

/// `512 MiB of GPU 0 (Tesla T4)`.
fn part(part: &Part) -> String {
    format!("{} of GPU {} ({})", part.bytes, part.ordinal, part.device.name)
}

/// The line before the program starts.
pub(super) fn guarantee(lease: &Lease, held: bool, enforce: bool) -> String {
    if lease.parts().is_empty() {
        return "no GPU: the program sees none".into();
    }
    let parts: Vec<String> = lease.parts().iter().map(part).collect();
    let what = match lease.guarantee() {
        Guarantee::Held => "held: it allocates nothing beyond",
        _ if held => "held: it allocates nothing beyond",
        Guarantee::Watched if enforce => "watched: ended if it uses more; TensorFlow, PyTorch and JAX have settings for a share",
        Guarantee::Watched => "watched: use beyond it is reported; TensorFlow, PyTorch and JAX have settings for a share",
        Guarantee::Framework => "framework setting: TensorFlow, PyTorch and JAX have settings for a share; use is not measured",
        other => other.word(),
    };
    format!("{}; {what}", parts.join(", "))
}

/// The line about use beyond a share.
pub(super) fn beyond(of: &Part, used: Bytes, enforce: bool) -> String {
    let then = if enforce { "it is ended (--enforce=kill)" } else { "--enforce=kill would end it" };
    format!("warning: the program uses {used}, beyond its {}: {then}", part(of))
}

/// The line after the program ended.
pub(super) fn report(ended: Ended, ran: Duration, parts: &[Part], report: &Report) -> String {
    let how = match ended {
        Ended::Exited(0) => "done".to_string(),
        Ended::Exited(code) => format!("exit status {code}"),
        Ended::Signalled(signal) => format!("ended by {}", signal_name(signal)),
        Ended::TimedOut => "ended by --timeout".into(),
        Ended::NotStarted(_) => "not started".into(),
    };
    let mut line = format!("{how} after {:.1} s", ran.as_secs_f64());
    if parts.is_empty() {
        return line;
    }
    for (part, peak) in parts.iter().zip(&report.peaks) {
        line += &format!("; peak use {peak} of {} on GPU {}", part.bytes, part.ordinal);
    }
    if report.all_back() {
        return line + "; all memory came back";
    }
    let who: Vec<String> = report.left.iter().map(|(pid, program)| format!("pid {pid} ({program})")).collect();
    let who = if who.is_empty() { "programs that this user cannot see".into() } else { who.join(", ") };
    line + &format!("; the lease is still held by {who}, which the program left behind")
}
