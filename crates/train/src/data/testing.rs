//! Folders with files for tests.

use std::path::{Path, PathBuf};

/// A new folder, removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let path = |number: u32| std::env::temp_dir().join(format!("plimsoll-data-{}-{number}", std::process::id()));
        let is_ours = |path: &PathBuf| std::fs::create_dir(path).is_ok();
        Folder((0..100_000).map(path).find(is_ours).expect("a folder can be made"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, with the folders above it; its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
