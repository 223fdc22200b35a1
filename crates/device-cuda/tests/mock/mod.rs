//! The mock library, compiled: `nvml.rs` beside this file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Shared libraries in a folder of a test's own, one for each machine; removed in the end.
pub struct Mock {
    folder: PathBuf,
}

impl Mock {
    /// Compiles them for these machines, with the functions of an old driver if wanted. None, visibly, where there is no rustc.
    pub fn new(test: &str, old: bool, machines: &[&str]) -> Option<Mock> {
        let mock = Mock { folder: std::env::temp_dir().join(format!("plimsoll-nvml-{test}-{}", std::process::id())) };
        std::fs::create_dir_all(&mock.folder).expect("a folder can be made");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device-cuda/tests/mock/nvml.rs");
        let library = mock.folder.join("library");
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "nvml", "-C", "panic=abort", "-A", "warnings"]);
        command.args(if old { ["--cfg", "old"] } else { ["--cfg", "new"] }).arg("-o").arg(&library).arg(source);
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped: there is no rustc to compile the mock library with");
                return None;
            }
            output => {
                let output = output.expect("rustc starts");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        // Not links: the loader takes two names of one file for one library.
        for machine in machines {
            std::fs::copy(&library, mock.folder.join(format!("{machine}.so"))).expect("a copy");
        }
        Some(mock)
    }

    /// The library of a machine.
    pub fn path(&self, machine: &str) -> String {
        self.folder.join(format!("{machine}.so")).display().to_string()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
