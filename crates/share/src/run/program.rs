//! The program and its tree: started, watched, told, ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It ended with that exit status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It was stopped.
    Stopped,
}

/// What has become of the program since the last time; what it left behind is taken note of too.
pub(super) fn change(program: Pid) -> Option<Change> {
    loop {
        let (pid, status) = match waitpid(None, WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some(changed)) => changed,
            Err(rustix::io::Errno::INTR) => continue,
            _ => return None,
        };
        if pid != program {
            continue;
        }
        if let Some(code) = status.exit_status() {
            return Some(Change::Exited(code));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some(Change::Signalled(signal));
        }
        // It may be running again.
        if status.stopped() && is_stopped(program) {
            return Some(Change::Stopped);
        }
    }
}

fn is_stopped(pid: Pid) -> bool {
    stat(pid.as_raw_nonzero().get()).is_some_and(|(state, _)| state == 'T')
}

/// A process's state and parent.
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(") ")?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Sends a signal to all that descend from this process: a program and its tree, also what is left of it where its middle has gone,
/// since this process takes in orphans. Those that act for another user are left alone.
pub(super) fn signal_tree(signal: Signal) {
    let own = std::process::id() as i32;
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: BTreeMap<i32, i32> = pids.filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let descends = |mut pid: i32| {
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == own => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    let own_user = rustix::process::geteuid().as_raw();
    let is_own = |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|facts| facts.uid() == own_user);
    for pid in parents.keys().copied().filter(|&pid| descends(pid)).filter(is_own).filter_map(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Where a program is found, as `execvp` looks for it.
pub(super) fn find(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Some(program.to_path_buf());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether that is this very program: ours keep to what they hold.
pub(super) fn is_own(program: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    let own = std::env::current_exe().ok().and_then(|own| identity(&own));
    own.is_some() && find(program).and_then(|file| identity(&file)) == own
}

/// The exit status by which shells say why a program could not be started.
pub(super) fn not_started(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}
