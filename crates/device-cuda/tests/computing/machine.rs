//! A machine with mock cards: a folder with the driver's libraries, the compiler's, and the machine's file.

use std::path::{Path, PathBuf};

use plimsoll_mock_driver as mock;

/// A machine of a test's own; its folder is removed in the end.
pub struct Machine {
    folder: PathBuf,
    /// What is known of its cards from outside.
    pub gpus: mock::Machine,
}

impl Machine {
    /// A machine whose cards have so many MiB. None, visibly, where kernels cannot be compiled for it.
    pub fn new(test: &str, mebibytes: &[u64]) -> Option<Machine> {
        let compiler = std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into());
        if std::process::Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped: there is no C compiler to compile kernels for the mock cards with");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("plimsoll-computing-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libcuda.so.1", "libnvrtc.so.13", "libnvidia-ml.so.1"] {
            // Not links: the loader takes two names of one file for one library.
            copy("libplimsoll_mock_driver.so", &folder.join(name));
        }
        let totals: Vec<u64> = mebibytes.iter().map(|size| size << 20).collect();
        let gpus = mock::Machine::create(&folder, &totals).expect("a machine");
        Some(Machine { folder, gpus })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn driver(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    pub fn compiler(&self) -> PathBuf {
        self.folder.join("libnvrtc.so.13")
    }

    /// Puts cuDNN beside them.
    pub fn add_cudnn(&self) {
        copy("libplimsoll_mock_cudnn.so", &self.folder.join("libcudnn.so.9"));
    }

    /// Bytes of a card that are used now.
    pub fn used(&self, card: usize) -> u64 {
        self.gpus.used().expect("the machine's file")[card]
    }
}

fn copy(library: &str, to: &Path) {
    let built = std::env::current_exe().expect("this program").with_file_name(library);
    std::fs::copy(built, to).expect("the mock libraries were built");
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
