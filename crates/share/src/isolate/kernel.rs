//! The counts of the kernel's out-of-memory killer: it says nothing to the process that it ends, but it counts.

use std::path::{Path, PathBuf};
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
        let mut counters = vec![Counter { path: "/proc/vmstat".into(), whose: "on this machine" }];
        counters.extend(of_groups(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()));
        Kills::of(counters)
    }

    fn of(counters: Vec<Counter>) -> Kills {
        let counters = counters.into_iter().filter_map(|counter| Some((counter.clone(), counter.read()?))).collect();
        Kills { at: Instant::now(), counters }
    }

    /// Counts anew from old counts.
    pub fn refresh(&mut self) {
        if self.at.elapsed() > FRESH {
            for (counter, count) in &mut self.counters {
                *count = counter.read().unwrap_or(*count);
            }
            self.at = Instant::now();
        }
    }

    /// Its kills since then, if any; the nearest first.
    pub fn since(&self) -> Option<String> {
        let more = |(counter, before): &(Counter, u64)| counter.read().filter(|now| now > before).map(|_| counter.whose);
        let whose = self.counters.iter().rev().find_map(more)?;
        Some(format!("killed, and the kernel's out-of-memory killer ended a process {whose} meanwhile"))
    }
}

/// The counters of the control groups that a process is in, by `/proc/self/cgroup`: of the second version, and of the first. Where
/// the process is in a namespace of its own, the root of the file system is its group.
fn of_groups(text: &str) -> Vec<Counter> {
    let mut counters = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|controller| controller == "memory") => ("/sys/fs/cgroup/memory", "memory.oom_control"),
            _ => continue,
        };
        let whose = "in this control group";
        counters.push(Counter { path: Path::new(root).join(file), whose });
        counters.push(Counter { path: Path::new(root).join(path.trim_start_matches('/')).join(file), whose });
    }
    counters
}

impl Counter {
    fn read(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let paths = |text: &str| of_groups(text).into_iter().map(|counter| counter.path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths("0::/user/a\n"), ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/user/a/memory.events"]);
        let first = "9:name=systemd:/\n4:memory,hugetlb:/a:b\n1:cpu:/x\nnonsense\n";
        assert_eq!(paths(first), ["/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory/a:b/memory.oom_control"]);
    }

    #[test]
    fn what_has_grown_is_told_and_the_nearest_first() {
        let folder = std::env::temp_dir().join(format!("plimsoll-test-kills-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, count: u64| std::fs::write(folder.join(name), format!("oom 7\noom_kill {count}\nlow 1\n")).unwrap();
        write("machine", 3);
        write("group", 0);
        let counter = |name: &str, whose| Counter { path: folder.join(name), whose };
        let mut kills = Kills::of(vec![counter("machine", "on this machine"), counter("absent", "nowhere"), counter("group", "here")]);
        assert_eq!(kills.since(), None);
        write("machine", 4);
        assert!(kills.since().unwrap().contains("on this machine"));
        write("group", 1);
        assert!(kills.since().unwrap().contains("here"));
        kills.at -= 2 * FRESH;
        kills.refresh();
        assert_eq!(kills.since(), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
