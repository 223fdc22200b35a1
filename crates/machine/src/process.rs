//! Processes, as `/proc` shows them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::users::Numbers;

/// All processes that this user may see.
pub(super) fn all() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent of a process.
pub(super) fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a signal has stopped it.
pub(super) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.starts_with(['T', 't']))
}

/// The program and its arguments; empty where that is not to be seen.
pub(super) fn program(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}

/// A process in words, as far as the system tells: `pid 7 (python train.py), which is stopped`.
pub(super) fn describe(pid: u32) -> String {
    let state = match stat(pid).and_then(|stat| stat.chars().next()) {
        Some('T' | 't') => ", which is stopped",
        Some('Z' | 'X') => ", which has ended",
        Some(_) => "",
        None => ", which is not to be found",
    };
    match program(pid) {
        program if program.is_empty() => format!("pid {pid}{state}"),
        program => format!("pid {pid} ({}){state}", program.chars().take(200).collect::<String>()),
    }
}

/// As [`describe`], with its user: `pid 7 of lab (python train.py)`.
pub(super) fn describe_of(pid: u32) -> String {
    let text = describe(pid);
    let Ok(facts) = fs::metadata(format!("/proc/{pid}")) else { return text };
    let number = format!("pid {pid}");
    format!("{number} of {}{}", Numbers::here().name(facts.uid()), text.strip_prefix(&number).unwrap_or_default())
}

/// Several processes in words.
pub(super) fn list(pids: impl IntoIterator<Item = u32>) -> String {
    let words: Vec<String> = pids.into_iter().map(describe).collect();
    if words.is_empty() { "processes that this user cannot see".into() } else { words.join(", ") }
}

/// The processes that have a file open, as far as this user may see them. Slow: for errors.
pub(super) fn with(path: &Path) -> impl Iterator<Item = u32> {
    let own = std::process::id();
    all().filter(move |&pid| {
        let handles = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        // This process has the file open to look at it; that is twice, and a third time if it is a member.
        handles.filter(|handle| fs::read_link(handle.path()).is_ok_and(|target| target == path)).count() > if pid == own { 2 } else { 0 }
    })
}

/// Whether a process is there and has a file of that name open, as far as it is to be seen.
pub(super) fn may_have(pid: u32, file: &Path) -> bool {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(handles) => {
            handles.flatten().any(|handle| fs::read_link(handle.path()).is_ok_and(|target| target.file_name() == file.file_name()))
        }
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// The system's facts about a process behind its name: the state, the parent, and more.
fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
