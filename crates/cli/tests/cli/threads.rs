//! How many threads there are, seen from outside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cases;

/// A bench that goes on until it is dropped.
struct Running(Child);

impl Running {
    fn new(options: &str) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["bench", "towers", "--runs", "10000000"]).args(options.split_whitespace()).current_dir(cases());
        Running(command.stdout(Stdio::null()).spawn().expect("the program starts"))
    }

    /// The most threads at once, of many looks, without the one that sleeps until a signal comes.
    fn threads(&mut self) -> usize {
        // A thread has its name a moment after it begins: the last name counts.
        let (mut names, mut looks) = (BTreeMap::new(), Vec::new());
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(5));
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id()));
            let tasks: Vec<std::fs::DirEntry> = tasks.map_or(Vec::new(), |tasks| tasks.flatten().collect());
            for task in &tasks {
                names.insert(task.file_name(), std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
            }
            looks.push(tasks.iter().map(|task| task.file_name()).collect::<Vec<_>>());
        }
        let computes = |task: &&OsString| names.get(*task).is_none_or(|name| name.trim_end() != "plimsoll-signal");
        let most = looks.iter().map(|tasks| tasks.iter().filter(computes).count()).max().unwrap_or(0);
        assert!(self.0.try_wait().expect("it can be waited for").is_none(), "it ended early");
        most
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn no_more_than_were_asked_for() {
    for (options, most) in
        [("--intra-op 1 --inter-op 1", 1), ("--intra-op 1", 1), ("--intra-op 2", 2), ("--intra-op 2 --device-count CPU=4", 2)]
    {
        let threads = Running::new(options).threads();
        assert!((1..=most).contains(&threads), "{options}: {threads} threads");
    }
}
