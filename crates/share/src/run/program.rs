//! The program and its tree: started, watched, told, ended.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Pid, WaitOptions, wait};

use crate::tree::Process;

/// The change of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended with that exit status.
    Exited(i32),
    /// A signal ended it, and whether a core file was written.
    Signalled { signal: i32, core: bool },
    /// It was stopped.
    Stopped,
}

/// The change of the program since the last time; processes that it left behind are recorded too.
pub(crate) fn change(program: Pid) -> Option<Change> {
    loop {
        let (pid, status) = match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some(changed)) => changed,
            Err(rustix::io::Errno::INTR) => continue,
            _ => return None,
        };
        if pid != program {
            continue;
        }
        if let Some(code) = status.exit_status() {
            return Some(Change::Exited(code));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some(Change::Signalled { signal, core: status.as_raw() & 0x80 != 0 });
        }
        // It may be running again.
        if status.stopped() && is_stopped(program) {
            return Some(Change::Stopped);
        }
    }
}

fn is_stopped(pid: Pid) -> bool {
    Process::of(pid.as_raw_nonzero().get()).is_some_and(|process| process.state == 'T')
}

/// Where a program is found, as `execvp` looks for it.
pub(crate) fn find(program: &Path) -> Option<PathBuf> {
    find_in(program, std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()))
}

fn find_in(program: &Path, path: OsString) -> Option<PathBuf> {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Some(program.to_path_buf());
    }
    // One that this user cannot start is passed over.
    let is_program = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

/// Whether that is this very program: ours keep to their holding.
pub(crate) fn is_own(program: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    let own = std::env::current_exe().ok().and_then(|own| identity(&own));
    own.is_some() && find(program).and_then(|file| identity(&file)) == own
}

/// The exit status by which shells say why a program could not be started.
pub(crate) fn not_started(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_the_first_that_can_be_started() {
        let folder = std::env::temp_dir().join(format!("plimsoll-find-{}", std::process::id()));
        let place = |name: &str, mode: u32| {
            let file = folder.join(name).join("train");
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(&file, "echo\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (notes, program) = (place("notes", 0o644), place("program", 0o755));
        fs::create_dir_all(folder.join("folder/train")).unwrap();
        let path = std::env::join_paths(["notes", "folder", "program"].map(|name| folder.join(name))).unwrap();
        assert_eq!(find_in(Path::new("train"), path.clone()), Some(program));
        assert_eq!(find_in(&notes, path), Some(notes.clone()), "a path is taken as it is");
        assert_eq!(find_in(Path::new("train"), "".into()), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
