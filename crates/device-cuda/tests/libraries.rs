//! Libraries for computing: found by path, asked for their versions, and a sentence for what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_cards::Environment;
use plimsoll_device_cuda::ComputeLibrary;

/// All four libraries in one file: each is asked for its own function. With `refuses` they answer with an error, with `bare` they
/// have no function.
const SOURCE: &str = r#"
#[cfg(not(bare))] #[unsafe(no_mangle)] pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> i32 {
    unsafe { *version = 13020 }; if cfg!(refuses) { 3 } else { 0 }
}
#[cfg(not(bare))] #[unsafe(no_mangle)] pub unsafe extern "C" fn nvrtcVersion(major: *mut i32, minor: *mut i32) -> i32 {
    unsafe { *major = 13; *minor = 5 }; if cfg!(refuses) { 3 } else { 0 }
}
#[cfg(not(bare))] #[unsafe(no_mangle)] pub extern "C" fn cudnnGetVersion() -> usize { if cfg!(refuses) { 0 } else { 91900 } }
#[cfg(not(bare))] #[unsafe(no_mangle)] pub extern "C" fn cublasLtGetVersion() -> usize { if cfg!(refuses) { 0 } else { 130101 } }
"#;

/// A folder of a test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("plimsoll-libraries-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    /// Compiles the libraries into a folder in it. None, visibly, where there is no rustc.
    fn libraries(&self, name: &str, option: &str) -> Option<PathBuf> {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let source = self.0.join("libraries.rs");
        std::fs::write(&source, SOURCE).unwrap();
        let made = self.0.join("made.so");
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "libraries", "-C", "panic=abort", "-A", "warnings"]);
        match command.args(["--cfg", option, "-o"]).arg(&made).arg(&source).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped: there is no rustc to compile the libraries with");
                return None;
            }
            output => {
                let output = output.unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        for library in ComputeLibrary::ALL {
            std::fs::copy(&made, folder.join(library.file())).unwrap();
        }
        Some(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn found(folders: &[&Path]) -> [String; 4] {
    let named = std::env::join_paths(folders).unwrap();
    let environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", named.to_str().unwrap());
    ComputeLibrary::ALL.map(|library| library.find(&environment).to_string())
}

#[test]
fn libraries_are_found_by_path_and_say_their_versions() {
    let folder = Folder::new("found");
    let Some(good) = folder.libraries("good", "good") else { return };
    let expected = [("libcuda", "13.2.0"), ("NVRTC", "13.5.0"), ("cuDNN", "9.19.0"), ("cuBLASLt", "13.1.1")];
    let lines = |expected: [(&str, &str); 4], folder: &Path| {
        let mut lines = expected.into_iter().zip(ComputeLibrary::ALL);
        [(); 4]
            .map(|()| lines.next().unwrap())
            .map(|((name, version), library)| format!("{name} {version}: {}", folder.join(library.file()).display()))
    };
    assert_eq!(found(&[&good]), lines(expected, &good));
    // A folder that is not there, and one without libraries, are passed over; so are those that do not say what they are.
    assert_eq!(found(&[Path::new("/nowhere"), &folder.0, &good]), lines(expected, &good));
    let refuses = folder.libraries("refuses", "refuses").unwrap();
    assert_eq!(found(&[&refuses, &good]), lines(expected, &good));
    // The built-in functions of the compiler are loaded before it: where they are no library, it is none.
    std::fs::write(good.join("libnvrtc-builtins.so.13.5"), "not a library").unwrap();
    let line = &found(&[&good])[1];
    assert!(
        line.contains("NVRTC was not found: ") && line.contains("libnvrtc-builtins") || !line.contains(good.to_str().unwrap()),
        "{line}"
    );
}

#[test]
fn what_is_missing_is_a_sentence() {
    let folder = Folder::new("missing");
    let Some(bare) = folder.libraries("bare", "bare") else { return };
    let refuses = folder.libraries("refuses", "refuses").unwrap();
    let broken = folder.0.join("broken");
    std::fs::create_dir_all(&broken).unwrap();
    for library in ComputeLibrary::ALL {
        std::fs::write(broken.join(library.file()), "not a library").unwrap();
    }
    for (place, text) in [(&bare, "does not say its version"), (&refuses, "does not say its version"), (&broken, "broken/lib")] {
        for (line, library) in found(&[place]).iter().zip(ComputeLibrary::ALL) {
            // A machine with a card has others behind them.
            if !line.contains("was not found") {
                continue;
            }
            assert!(line.starts_with(&format!("{} was not found: ", library.name())) && line.contains(text), "{line}");
            assert!(line.ends_with(&format!("; {}", library.install())) && line.lines().count() == 1, "{line}");
        }
    }
    let nothing = ComputeLibrary::Cudnn.find(&Environment::new());
    if nothing.found.is_err() {
        let line = nothing.to_string();
        assert!(line.contains("libcudnn.so.9") && line.ends_with("; pip install nvidia-cudnn-cu13"), "{line}");
    }
    // A name with a zero in it, and a folder that is a file.
    let odd = Environment::new().with("PLIMSOLL_CUDA_LIBS", "a\0b:/proc/self/cmdline").with("VIRTUAL_ENV", "").with("PATH", ":::");
    assert!(ComputeLibrary::Nvrtc.find(&odd).to_string().starts_with("NVRTC"));
}
