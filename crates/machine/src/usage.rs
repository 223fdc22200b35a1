//! Processor time and memory of processes that have ended.

use std::time::Duration;

use plimsoll_base::Bytes;

/// The resources of the children of this process that have ended and were waited for, and of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildrenUsage {
    /// Time of processors in the programs.
    pub user: Duration,
    /// Time of processors in the kernel for them.
    pub system: Duration,
    /// The most that one of them had resident at once. A child begins with the use of this process when it was started.
    pub peak_resident: Bytes,
}

/// The system's counts for children of this process.
pub fn children_usage() -> ChildrenUsage {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes the structure and keeps nothing.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0 {
        return ChildrenUsage::default();
    }
    let time = |value: libc::timeval| Duration::new(value.tv_sec.max(0) as u64, (value.tv_usec.clamp(0, 999_999) as u32) * 1000);
    // The unit is KiB on Linux.
    ChildrenUsage { user: time(usage.ru_utime), system: time(usage.ru_stime), peak_resident: Bytes((usage.ru_maxrss.max(0) as u64) << 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_were_waited_for_count() {
        let before = children_usage();
        assert!(std::process::Command::new("true").status().unwrap().success());
        let after = children_usage();
        assert!(after.peak_resident > Bytes::ZERO && after.user >= before.user && after.system >= before.system);
    }
}
