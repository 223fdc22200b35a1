//! Processes on a card.

use std::fs;

use plimsoll_base::Bytes;

use super::calls::Listed;

/// The use that a process makes of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// It computes.
    Compute,
    /// It draws.
    Graphics,
    /// Both.
    Both,
    /// It computes through the server that shares a card between processes (MPS).
    Shared,
}

impl ProcessKind {
    /// nvidia-smi's short form: `C`, `G`, `C+G`, `M+C`.
    pub fn short(self) -> &'static str {
        match self {
            ProcessKind::Compute => "C",
            ProcessKind::Graphics => "G",
            ProcessKind::Both => "C+G",
            ProcessKind::Shared => "M+C",
        }
    }
}

/// A process on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The driver's number for it: that of the outermost container.
    pub pid: u32,
    /// Its use of the card.
    pub kind: ProcessKind,
    /// The program and its arguments; none where this process may not know, or does not see that number.
    pub program: Option<String>,
    /// Bytes that it holds; none where the driver does not say.
    pub bytes: Option<Bytes>,
}

/// One list of three, by pid.
pub(super) fn join(compute: Vec<Listed>, graphics: Vec<Listed>, shared: Vec<Listed>) -> Vec<Process> {
    let lists = [(compute, ProcessKind::Compute), (graphics, ProcessKind::Graphics), (shared, ProcessKind::Shared)];
    let mut processes: Vec<Process> = Vec::new();
    for (list, kind) in lists {
        for listed in list {
            match processes.iter_mut().find(|process| process.pid == listed.pid) {
                // Both lists count all that it holds.
                Some(process) => {
                    process.bytes = process.bytes.max(listed.bytes);
                    if (process.kind, kind) == (ProcessKind::Compute, ProcessKind::Graphics) {
                        process.kind = ProcessKind::Both;
                    }
                }
                None => processes.push(Process { pid: listed.pid, kind, program: program(listed.pid), bytes: listed.bytes }),
            }
        }
    }
    processes.sort_by_key(|process| process.pid);
    processes
}

/// The system's name of a process: its program and arguments, else its name.
fn program(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    if !words.trim().is_empty() {
        return Some(words);
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_on_two_lists_is_one() {
        let listed = |pid, bytes: u64| Listed { pid, bytes: (bytes > 0).then_some(Bytes(bytes)) };
        let own = std::process::id();
        let joined = join(vec![listed(own, 5), listed(u32::MAX, 0)], vec![listed(own, 7)], vec![listed(u32::MAX - 1, 1)]);
        let short: Vec<_> = joined.iter().map(|process| (process.pid, process.kind.short(), process.bytes)).collect();
        assert_eq!(short, [(own, "C+G", Some(Bytes(7))), (u32::MAX - 1, "M+C", Some(Bytes(1))), (u32::MAX, "C", None)]);
        assert!(joined[0].program.as_ref().unwrap().contains("device_cuda"), "{joined:?}");
        assert_eq!(joined[1].program, None);
    }
}
