//! The folder that ledgers live in: the user's own, and nobody else's.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll_base::{Code, Error, Result};

/// A folder that belongs to this user and that nobody else can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

const REMEDY: &str = "set PLIMSOLL_STATE_DIR to a folder on a local disk that is yours alone";

impl StateDir {
    /// `$PLIMSOLL_STATE_DIR`; else `plimsoll` in `$XDG_RUNTIME_DIR`, where that folder exists; else `/tmp/plimsoll-<uid>`.
    /// Made (mode 0700) where it is missing.
    ///
    /// # Errors
    /// As [`StateDir::open`].
    pub fn find() -> Result<StateDir> {
        StateDir::open(location(|name| std::env::var_os(name), user()))
    }

    /// That folder, made (mode 0700) where it is missing.
    ///
    /// # Errors
    /// PERMISSION_DENIED where it is a link, is not this user's, or may be written by others: somebody else could alter what
    /// the ledger says. Otherwise why it cannot be made.
    pub fn open(path: impl Into<PathBuf>) -> Result<StateDir> {
        let path: PathBuf = path.into();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused("cannot be made", &path, &error)),
            _ => {}
        }
        let facts = fs::symlink_metadata(&path).map_err(|error| refused("cannot be looked at", &path, &error))?;
        let unsafe_because = |why: String| {
            let message = format!("the folder for ledgers {} {why}", path.display());
            Err(Error::new(Code::PermissionDenied, message).with_remedy(REMEDY))
        };
        if facts.is_symlink() {
            return unsafe_because("is a link: whoever made it could change where it points".into());
        }
        if !facts.is_dir() {
            return unsafe_because("is not a folder".into());
        }
        if facts.uid() != user() {
            return unsafe_because(format!("belongs to user {}, and this is user {}", facts.uid(), user()));
        }
        if facts.mode() & 0o022 != 0 {
            return unsafe_because(format!("may be written by others (mode {:04o})", facts.mode() & 0o7777));
        }
        Ok(StateDir(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the ledger of a set of cards is. Different names have different files.
    pub(super) fn file_of(&self, set: &str) -> PathBuf {
        let mut name = String::new();
        for byte in set.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b',' | b'=' | b':' => name.push(byte.into()),
                _ => name.push_str(&format!("%{byte:02x}")),
            }
        }
        if name.len() > 160 {
            let hash = super::record::key_hash(set);
            name.truncate(120);
            name.push_str(&format!("~{hash:016x}"));
        }
        self.0.join(format!("{name}.ledger"))
    }
}

/// Where the folder is, by the environment.
fn location(variable: impl Fn(&str) -> Option<OsString>, user: u32) -> PathBuf {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = folder("PLIMSOLL_STATE_DIR") {
        return folder;
    }
    match folder("XDG_RUNTIME_DIR").filter(|folder| folder.is_absolute() && folder.is_dir()) {
        Some(folder) => folder.join("plimsoll"),
        None => format!("/tmp/plimsoll-{user}").into(),
    }
}

/// The user on whose behalf this process acts.
pub(super) fn user() -> u32 {
    // SAFETY: geteuid reads a number of this process and cannot fail.
    unsafe { libc::geteuid() }
}

/// An error of the operating system about a path of the ledger, with what would help.
pub(super) fn refused(what: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind::*;
    let code = match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => Code::PermissionDenied,
        NotFound | NotADirectory => Code::NotFound,
        StorageFull | QuotaExceeded | FileTooLarge => Code::ResourceExhausted,
        _ => Code::Unavailable,
    };
    Error::new(code, format!("the ledger's {} {what}: {error}", path.display())).with_remedy(REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_where() {
        let at = |ours: Option<&str>, theirs: Option<&str>| {
            let variable = |name: &str| match name {
                "PLIMSOLL_STATE_DIR" => ours.map(OsString::from),
                "XDG_RUNTIME_DIR" => theirs.map(OsString::from),
                _ => None,
            };
            location(variable, 7).to_str().unwrap().to_string()
        };
        assert_eq!(at(Some("/a"), Some("/")), "/a");
        assert_eq!(at(Some(""), Some("/")), "/plimsoll");
        for theirs in [None, Some(""), Some("relative"), Some("/no/such/folder")] {
            assert_eq!(at(None, theirs), "/tmp/plimsoll-7");
        }
    }

    #[test]
    fn different_sets_have_different_files_in_the_folder() {
        let state = StateDir("/s".into());
        let long = "x".repeat(300);
        let names = ["2x4GiB", "2x4 GiB", "../up", "%2f", "/", ".", "..", "é", &long, &long[1..]];
        let files: std::collections::BTreeSet<PathBuf> = names.iter().map(|name| state.file_of(name)).collect();
        assert_eq!(files.len(), names.len());
        for file in files {
            assert_eq!(file.parent(), Some(Path::new("/s")));
            assert!(file.file_name().is_some_and(|name| name.len() < 200), "{}", file.display());
        }
        assert_eq!(state.file_of("k520:4x4095MiB,overhead=1").to_str(), Some("/s/k520:4x4095MiB,overhead=1.ledger"));
    }
}
