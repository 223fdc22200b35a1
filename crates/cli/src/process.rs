//! The system's facts about this process.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::{Code, Error, Result};

/// The most memory that was resident at once, in bytes; 0 where the system does not say.
pub fn max_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse().map_or(0, |kib: u64| kib * 1024)
}

/// A folder of this process's own, removed when this is dropped.
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes one among temporary files, which no other user can look into.
///
/// # Errors
/// The system's error.
pub fn own_folder(what: &str) -> Result<OwnFolder> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let path = std::env::temp_dir().join(format!("plimsoll-{what}-{}-{nanos}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| Error::new(Code::Unavailable, format!("{}: {error}", path.display())))?;
    Ok(OwnFolder(path))
}
