//! Who has a slot of a ledger: the processes with an open file description that locks its byte, as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file::Inner;
use super::transaction::Seen;
use super::{Entry, Machine, byte_lock};

/// A slot of a ledger, in use or not.
#[derive(Clone, Debug)]
pub struct Slot {
    inner: Arc<Inner>,
    number: u32,
}

impl Slot {
    pub(super) fn new(inner: Arc<Inner>, number: u32) -> Slot {
        Slot { inner, number }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether somebody has it. Not where that cannot be seen.
    pub fn is_held(&self) -> bool {
        self.inner.open_again(false).is_ok_and(|file| byte_lock::is_taken(&file, self.number).unwrap_or(false))
    }

    /// The processes that have it, as far as this user may see them, this one too. Slow: looks at all processes.
    pub fn holders(&self) -> Vec<u32> {
        processes().filter(|pid| slot_of(&self.inner.path, *pid) == Some(self.number)).collect()
    }
}

impl Machine {
    /// The slot that a process has, or the nearest one of those that it descends from. None where there is none, and where this
    /// user may not see it.
    pub fn slot_of(&self, pid: u32) -> Option<u32> {
        let mut pid = pid;
        // More generations than anybody has.
        for _ in 0..64 {
            if let Some(slot) = slot_of(&self.0.path, pid) {
                return Some(slot);
            }
            pid = parent(pid).filter(|&parent| parent > 1)?;
        }
        None
    }
}

/// Where the process that joined has ended, names one of those that have its slot now. `members` are those of the entries.
pub(super) fn show_heirs(ledger: &Path, members: &[Seen], entries: &mut [Entry]) {
    // Of another user's process it is not to be seen what it has.
    let may_have = |pid: u32, slot: u32| match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(_) => slot_of(ledger, pid) == Some(slot),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    let mut heirs = None::<BTreeMap<u32, u32>>;
    for (seen, entry) in members.iter().zip(entries).filter(|(seen, entry)| !may_have(entry.pid, seen.slot)) {
        let heirs = heirs.get_or_insert_with(|| {
            let mut pids: Vec<u32> = processes().collect();
            // The lowest number of a slot is the one that stays.
            pids.sort_by_key(|&pid| std::cmp::Reverse(pid));
            pids.into_iter().filter_map(|pid| Some((slot_of(ledger, pid)?, pid))).collect()
        });
        let Some(&pid) = heirs.get(&seen.slot) else { continue };
        entry.pid = pid;
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !words.is_empty() {
            entry.program = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
        }
    }
}

/// All that this user may see.
fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The slot that the process itself has.
fn slot_of(ledger: &Path, pid: u32) -> Option<u32> {
    let handles = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    handles.filter(|handle| fs::read_link(handle.path()).is_ok_and(|target| target == ledger)).find_map(|handle| {
        let facts = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", handle.file_name().to_str()?)).ok()?;
        facts.lines().find_map(locked_slot)
    })
}

/// The slot of a line `lock: 1: OFDLCK ADVISORY WRITE -1 00:2c:17 FIRST LAST`.
fn locked_slot(line: &str) -> Option<u32> {
    let mut words = line.strip_prefix("lock:")?.split_whitespace();
    words.find(|word| *word == "OFDLCK")?;
    let first = words.rev().nth(1)?.parse::<i64>().ok()?;
    u32::try_from(first.checked_sub(byte_lock::BASE)?).ok()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    status.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_locks_are_read() {
        let line = format!("lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2c:17 {0} {0}", byte_lock::BASE + 7);
        assert_eq!(locked_slot(&line), Some(7));
        for other in ["lock:\t1: POSIX  ADVISORY  WRITE 5 00:2c:17 3 3", "pos:\t0", "lock:\t1: OFDLCK", "lock:\t2: OFDLCK A W -1 0:1:2 4 4"]
        {
            assert_eq!(locked_slot(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
