//! The folder that ledgers live in: the user's own.

use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use plimsoll_base::{Code, Error, Result};

use super::shared::{MACHINE_DIR, NotShared, Priorities, Shared};
use super::users::{Numbers, UserId};

/// A folder that belongs to this user and that no other user can write: the user's own ledgers, or the user's part of the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
    shared: Option<Shared>,
    /// Why it is not the machine's, where that is to be said.
    alone: Option<String>,
}

const REMEDY: &str = "set PLIMSOLL_STATE_DIR to a folder on a local disk that is yours alone";

impl StateDir {
    /// `$PLIMSOLL_STATE_DIR`. Else the user's part of the machine's folder, which `plimsoll setup` made: `$PLIMSOLL_MACHINE_DIR`
    /// (empty for none) or [`MACHINE_DIR`], if the user is in its group. Else `plimsoll` in `$XDG_RUNTIME_DIR`, where that is a
    /// folder of this user (after `su` and `sudo -E` it is another one's). Else `/tmp/plimsoll-<uid>`. Made (mode 0700) where it is
    /// missing.
    ///
    /// # Errors
    /// As [`StateDir::open`] and [`StateDir::shared`]; NOT_FOUND where `$PLIMSOLL_MACHINE_DIR` is not there.
    pub fn find() -> Result<StateDir> {
        let variable = |name: &str| std::env::var_os(name);
        let (machine, named) = match variable("PLIMSOLL_MACHINE_DIR") {
            _ if variable("PLIMSOLL_STATE_DIR").is_some_and(|value| !value.is_empty()) => (None, false),
            Some(folder) => (Some(PathBuf::from(folder)).filter(|folder| !folder.as_os_str().is_empty()), true),
            None => (Some(PathBuf::from(MACHINE_DIR)), false),
        };
        let mut alone = None;
        if let Some(machine) = machine.filter(|machine| named || fs::symlink_metadata(machine).is_ok()) {
            match StateDir::in_machine(&machine) {
                Ok(state) => return Ok(state),
                Err(NotShared::Broken(error)) => return Err(error),
                Err(NotShared::NotOfTheGroup(group)) => alone = Some(not_of_the_group(&machine, &group)),
            }
        }
        Ok(StateDir { alone, ..StateDir::open(location(variable, user()))? })
    }

    /// This user's part of a machine's folder, which `plimsoll setup` made.
    ///
    /// # Errors
    /// PERMISSION_DENIED where the user is not in its group, and where others than root could change files that must be root's.
    /// Otherwise why it cannot be used.
    pub fn of_machine(folder: impl AsRef<Path>) -> Result<StateDir> {
        StateDir::in_machine(folder.as_ref()).map_err(|not| match not {
            NotShared::Broken(error) => error,
            NotShared::NotOfTheGroup(group) => Error::new(Code::PermissionDenied, not_of_the_group(folder.as_ref(), &group))
                .with_remedy("ask an administrator to be added to it"),
        })
    }

    fn in_machine(folder: &Path) -> Result<StateDir, NotShared> {
        let folder = named(folder).map_err(|error| refused("cannot be examined", folder, &error))?;
        let shared = Shared::open(&folder)?;
        Ok(StateDir { path: shared.own(), shared: Some(shared), alone: None })
    }

    /// The folder in which it is one of several users'.
    pub(super) fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    /// Which ledgers these are.
    pub fn scope(&self) -> Scope {
        match &self.shared {
            Some(shared) => Scope::Machine {
                folder: shared.path().into(),
                group: shared.group(),
                user: shared.user,
                priorities: shared.settings().map(|settings| settings.of(shared.user)).unwrap_or_default(),
            },
            None => Scope::User { why: self.alone.clone() },
        }
    }

    /// That folder, made (mode 0700) where it is missing.
    ///
    /// # Errors
    /// PERMISSION_DENIED where it is a link (also with a slash behind it), is not this user's, or may be written by others: another
    /// user could alter the ledger. The same where it is missing and would be made in a folder of another user: that would lock the
    /// other user out. Otherwise why it cannot be made.
    pub fn open(path: impl Into<PathBuf>) -> Result<StateDir> {
        let path = named(&path.into()).map_err(|error| refused("cannot be examined", Path::new("."), &error))?;
        let unsafe_because = |why: String| {
            let message = format!("the folder for ledgers {} {why}", path.display());
            Err(Error::new(Code::PermissionDenied, message).with_remedy(REMEDY))
        };
        if let Some(owner) = fs::symlink_metadata(&path).is_err().then(|| owner_around(&path)).flatten() {
            return unsafe_because(format!("would be made in a folder of user {owner}, and this is user {}", user()));
        }
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => made(&path, 0o700).map_err(|error| refused("cannot be changed", &path, &error))?,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused("cannot be made", &path, &error)),
            _ => {}
        }
        let facts = fs::symlink_metadata(&path).map_err(|error| refused("cannot be examined", &path, &error))?;
        if facts.is_symlink() {
            return unsafe_because("is a link: its owner could change where it points".into());
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
        Ok(StateDir { path, shared: None, alone: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
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
        self.path.join(format!("{name}.ledger"))
    }
}

/// Whose leases a ledger shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of all users of a group.
    Machine {
        /// The machine's folder.
        folder: PathBuf,
        /// The group.
        group: String,
        /// This process's user.
        user: UserId,
        /// The priorities that this user's requests may have.
        priorities: Priorities,
    },
    /// Those of this user alone.
    User {
        /// Why it is not the machine's, where there is one.
        why: Option<String>,
    },
}

fn not_of_the_group(folder: &Path, group: &str) -> String {
    format!(
        "the ledger of this machine ({}) is for the group {group}, and user {} is not in it",
        folder.display(),
        Numbers::here().name(user())
    )
}

/// The path as it is checked: from the root, and without a slash or a dot behind the folder's name, which would hide a link.
fn named(path: &Path) -> io::Result<PathBuf> {
    let path: PathBuf = std::path::absolute(path)?.components().collect();
    match path.components().next_back() {
        Some(Component::ParentDir) => path.canonicalize(),
        _ => Ok(path),
    }
}

/// The owner of the folder around a path, where that is another user in whose folder nothing is to be made. That is neither this
/// user nor root, and not a folder in which all may make their own, as /tmp.
fn owner_around(path: &Path) -> Option<u32> {
    let around = fs::metadata(path.parent()?).ok()?;
    let is_for_all = around.mode() & 0o1002 == 0o1002;
    Some(around.uid()).filter(|&owner| owner != user() && owner != 0 && !is_for_all)
}

/// Whether it is a folder of this user.
fn is_own(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|facts| facts.is_dir() && facts.uid() == user())
}

/// Where the folder is, by the environment.
fn location(variable: impl Fn(&str) -> Option<OsString>, user: u32) -> PathBuf {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = folder("PLIMSOLL_STATE_DIR") {
        return folder;
    }
    match folder("XDG_RUNTIME_DIR").filter(|folder| folder.is_absolute() && is_own(folder)) {
        Some(folder) => folder.join("plimsoll"),
        None => format!("/tmp/plimsoll-{user}").into(),
    }
}

/// Gives a new file its mode, whatever the mask of this process is: the owner could not open it. A link is not followed.
pub(super) fn made(path: &Path, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path)?.mode() & 0o7777 == mode {
        return Ok(());
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the path ends in a zero and is read during the call.
    match unsafe { libc::fchmodat(libc::AT_FDCWD, name.as_ptr(), mode, libc::AT_SYMLINK_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The user on whose behalf this process acts.
pub(super) fn user() -> u32 {
    // SAFETY: geteuid reads a number of this process and cannot fail.
    unsafe { libc::geteuid() }
}

/// An error of the operating system about a path of the ledger, with a remedy.
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
        let own = std::env::temp_dir().join(format!("plimsoll-state-dir-{}", std::process::id()));
        fs::create_dir(&own).unwrap();
        let own_text = own.to_str().unwrap();
        assert_eq!(at(Some("/a"), Some(own_text)), "/a");
        assert_eq!(at(Some(""), Some(own_text)), format!("{own_text}/plimsoll"));
        for theirs in [None, Some(""), Some("relative"), Some("/no/such/folder"), Some("/dev/null")] {
            assert_eq!(at(None, theirs), "/tmp/plimsoll-7");
        }
        let folder_of_another = if user() == 0 {
            std::os::unix::fs::chown(&own, Some(65534), None).unwrap();
            own_text
        } else {
            "/"
        };
        assert_eq!(at(None, Some(folder_of_another)), "/tmp/plimsoll-7");
        fs::remove_dir(&own).unwrap();
    }

    #[test]
    fn different_sets_have_different_files_in_the_folder() {
        let state = StateDir { path: "/s".into(), shared: None, alone: None };
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
