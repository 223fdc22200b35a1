//! The processes that descend from this one, in whatever session or group they are.
//!
//! A descendant whose parent ends becomes a child of its nearest ancestor that is a subreaper. A process that is one can find and
//! end all that it started: nothing that it started has another parent than one of its descendants or itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, geteuid, getpgrp, kill_process, kill_process_group, pidfd_open, pidfd_send_signal, wait,
};

/// How long to wait between two looks at processes that were killed.
const LOOK: Duration = Duration::from_millis(2);

/// A process as the system shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// `T` where it is stopped, `Z` where it has ended and was not waited for.
    pub state: char,
    pub parent: i32,
    pub group: i32,
}

impl Process {
    /// None where there is no such process.
    pub fn of(pid: i32) -> Option<Process> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = text.rsplit_once(") ")?.1.split_whitespace();
        let state = words.next()?.chars().next()?;
        Some(Process { state, parent: words.next()?.parse().ok()?, group: words.next()?.parse().ok()? })
    }
}

/// Which descendants are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descendants {
    /// Those that act for the user of this process.
    Own,
    /// All that the system lets this process signal.
    All,
}

/// Whether a process descends from another one, or is it.
pub(crate) fn descends(pid: u32, from: u32) -> bool {
    let (mut pid, from) = (pid as i32, from as i32);
    // There is no process above the first.
    while pid > 1 && pid != from {
        match Process::of(pid) {
            Some(process) => pid = process.parent,
            None => return false,
        }
    }
    pid == from
}

/// Sends a signal to all that descend from this process. How many processes there are that it was sent to.
pub(crate) fn signal(signal: Signal, whose: Descendants) -> usize {
    let own = std::process::id() as i32;
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let all: BTreeMap<i32, Process> = pids.filter_map(|pid| Some((pid, Process::of(pid)?))).collect();
    let descends = |mut pid: i32| {
        for _ in 0..all.len() {
            match all.get(&pid) {
                Some(process) if process.parent == own => return true,
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    };
    let user = geteuid().as_raw();
    let is_meant = |pid: i32| whose == Descendants::All || fs::metadata(format!("/proc/{pid}")).is_ok_and(|facts| facts.uid() == user);
    let targets: BTreeMap<i32, Process> = all
        .iter()
        .filter(|&(&pid, process)| process.state != 'Z' && descends(pid) && is_meant(pid))
        .map(|(pid, process)| (*pid, *process))
        .collect();
    if signal == Signal::KILL {
        // A group gets it at one instant: none of its processes can start another one meanwhile.
        for group in groups(&all, &targets) {
            let _ = kill_process_group(group, signal);
        }
    }
    targets.iter().filter(|(pid, process)| send(**pid, process.parent, signal)).count()
}

/// The groups that have none but these processes, this one's own group left out.
fn groups(all: &BTreeMap<i32, Process>, targets: &BTreeMap<i32, Process>) -> Vec<Pid> {
    let mut groups: Vec<i32> = targets.values().map(|process| process.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let own = getpgrp().as_raw_nonzero().get();
    let is_theirs = |group: i32| all.iter().filter(|(_, process)| process.group == group).all(|(pid, _)| targets.contains_key(pid));
    groups.into_iter().filter(|&group| group > 1 && group != own && is_theirs(group)).filter_map(Pid::from_raw).collect()
}

/// Sends a signal to a process, if its number still belongs to one with that parent, or with this process as its parent.
fn send(pid: i32, parent: i32, signal: Signal) -> bool {
    let Some(number) = Pid::from_raw(pid) else { return false };
    let own = std::process::id() as i32;
    let is_same = || Process::of(pid).is_some_and(|now| now.parent == parent || now.parent == own);
    match pidfd_open(number, PidfdFlags::empty()) {
        // The handle is of the process that has the number now, and stays so.
        Ok(handle) => is_same() && pidfd_send_signal(&handle, signal).is_ok(),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
            is_same() && kill_process(number, signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Ends all that descend from this process, which is a subreaper, and waits until they are gone: for ever, or for as long as is
/// said. Those that cannot be signalled are left. Whether none is left.
pub(crate) fn end(whose: Descendants, at_most: Option<Duration>) -> bool {
    let begin = Instant::now();
    // A process that was born during a look may be missed by it, and is seen by the next one.
    let mut in_vain = 0;
    while has_children() {
        in_vain = if signal(Signal::KILL, whose) == 0 { in_vain + 1 } else { 0 };
        if in_vain > 2 || at_most.is_some_and(|most| begin.elapsed() >= most) {
            return !has_children();
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Whether there is a child; those that have ended are waited for and forgotten.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
