//! The memory that the machine has left.

use std::path::Path;

use crate::Bytes;

/// Bytes that this process can still have without pushing others out: the kernel's `MemAvailable`, or less where a control group of
/// the process has less. None where the system does not say.
pub fn available() -> Option<Bytes> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| of_groups(&text, Path::new("/sys/fs/cgroup")));
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

fn of_machine(text: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kibibytes.saturating_mul(1024)))
}

/// The least that a control group of version 2 leaves, up to the root.
fn of_groups(text: &str, root: &Path) -> Option<Bytes> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |group: &Path| Some(Bytes(number(&group.join("memory.max"))?.saturating_sub(number(&group.join("memory.current"))?)));
    root.join(path).ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read() {
        let text = "MemTotal:       24676196 kB\nMemFree:         1000 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(of_machine(text), Some(Bytes(2 << 20)));
        assert_eq!(of_machine("MemTotal: 1 kB"), None);
        let root = std::env::temp_dir().join(format!("plimsoll-groups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |folder: &Path, most: &str, current: &str| {
            std::fs::write(folder.join("memory.max"), most).unwrap();
            std::fs::write(folder.join("memory.current"), current).unwrap();
        };
        write(&inner, "max\n", "5\n");
        assert_eq!(of_groups("0::/outer/inner\n", &root), None);
        write(&root.join("outer"), "100\n", "30\n");
        assert_eq!(of_groups("1:cpu:/x\n0::/outer/inner\n", &root), Some(Bytes(70)));
        write(&inner, "20\n", "30\n");
        assert_eq!(of_groups("0::/outer/inner\n", &root), Some(Bytes(0)));
        assert_eq!(of_groups("", &root), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
