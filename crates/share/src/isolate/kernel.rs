//! What the kernel's out-of-memory killer has done: it says nothing to the process that it ends, but it counts.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How old the counts before a call may be.
const FRESH: Duration = Duration::from_secs(1);

/// The counts at some time.
#[derive(Debug)]
pub(super) struct Kills {
    at: Instant,
    counters: Vec<(Counter, u64)>,
}

/// A file with a line `name number`.
#[derive(Clone, Debug)]
struct Counter {
    path: PathBuf,
    whose: &'static str,
}

impl Kills {
    pub fn now() -> Kills {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut counters = vec![Counter { path: "/proc/vmstat".into(), whose: "on this machine" }];
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let path = path.trim_start_matches('/');
            if controllers.is_empty() {
                counters.push(Counter {
                    path: PathBuf::from("/sys/fs/cgroup").join(path).join("memory.events"),
                    whose: "in this control group",
                });
            } else if controllers.split(',').any(|controller| controller == "memory") {
                let folder = PathBuf::from("/sys/fs/cgroup/memory").join(path);
                counters.push(Counter { path: folder.join("memory.oom_control"), whose: "in this control group" });
            }
        }
        let counters = counters.into_iter().filter_map(|counter| Some((counter.clone(), counter.read()?))).collect();
        Kills { at: Instant::now(), counters }
    }

    /// Counts anew what was counted long ago.
    pub fn refresh(&mut self) {
        if self.at.elapsed() > FRESH {
            for (counter, count) in &mut self.counters {
                *count = counter.read().unwrap_or(*count);
            }
            self.at = Instant::now();
        }
    }

    /// What it did since, if anything; the nearest first.
    pub fn since(&self) -> Option<String> {
        let more = |(counter, before): &(Counter, u64)| counter.read().filter(|now| now > before).map(|_| counter.whose);
        let whose = self.counters.iter().rev().find_map(more)?;
        Some(format!("killed, and the kernel's out-of-memory killer ended a process {whose} meanwhile"))
    }
}

impl Counter {
    fn read(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok())
    }
}
