//! What the system says of this process.

/// The most memory that was resident at once, in bytes; 0 where the system does not say.
pub fn max_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().map_or(0, |kib: u64| kib * 1024)
}
