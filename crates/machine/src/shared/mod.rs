//! One ledger for all users of a machine: a folder that an administrator makes once.
//!
//! ```text
//! /var/lib/plimsoll          root, the group may enter and list
//!   settings                 root: bounds on priorities
//!   lock                     root, the group may open it for reading: transactions lock it (flock)
//!   users                    root, the group may add; sticky, so that users remove only what is their own
//!     1000                   a user's own folder; the group may read
//!       cards.ledger         that user's slots
//!       cards.ledger.leases  a FIFO for each slot in use
//! ```
//!
//! **Each user writes a ledger alone**, the same file as where users share nothing. The machine's members are those of all users'
//! ledgers, read in one transaction. The lock can be held by every user of the group, and changed by none.
//!
//! **The proof of life is a lock that readers can neither take nor prevent.** A user that may read a file can lock it for reading.
//! That keeps its owner from locking it for writing, or looks like a lock. So a slot of a shared ledger is proven by a FIFO of its
//! own ([`proof`]). It is made unreadable, locked for writing, then made readable. A lock for writing needs a handle that may
//! write, and only the owner gets one. Locks for reading are not counted. The lock is there before any other user can open the
//! file.
//!
//! **What other users' ledgers say is read as hostile** ([`others`]). It can claim no more than a card has. It waits only within the
//! bounds of the settings, and costs a bounded time.

pub(super) mod beneath;
pub(super) mod others;
pub(super) mod proof;
mod settings;
mod setup;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_base::{Code, Error, Result};

use super::state_dir::{refused, user};
use super::users::{Group, Numbers, UserId};
pub use settings::Priorities;
pub(super) use settings::Settings;
pub use setup::{SetUp, Setup, remove};

/// Where the folder is if nothing else is said.
pub const MACHINE_DIR: &str = "/var/lib/plimsoll";

/// How many members a user may have in a ledger that users share. The amount that one user can make others read is bounded.
pub(super) const MOST_MEMBERS: u32 = 1000;

const SETTINGS: &str = "settings";
const LOCK: &str = "lock";
const USERS: &str = "users";

/// The mode of a user's own folder: the group may read, and new files are the group's.
const OWN_MODE: u32 = 0o2750;

/// A machine's folder, from the view of this process's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    folder: PathBuf,
    /// This process's user.
    pub(super) user: UserId,
    numbers: Numbers,
}

/// Why a user does not share the machine's ledger.
pub(super) enum NotShared {
    /// It is for a group that the user is not in; its name.
    NotOfTheGroup(String),
    /// It cannot be used.
    Broken(Error),
}

impl From<Error> for NotShared {
    fn from(error: Error) -> NotShared {
        NotShared::Broken(error)
    }
}

impl Shared {
    /// The folder, checked: all that this user relies on is root's.
    pub(super) fn open(folder: &Path) -> Result<Shared, NotShared> {
        let facts = fs::symlink_metadata(folder).map_err(|error| refused("cannot be examined", folder, &error))?;
        let is_unsafe = |path: &Path, why: &str| -> NotShared {
            let message = format!("the machine's folder for ledgers {}: {} {why}", folder.display(), path.display());
            Error::new(Code::PermissionDenied, message).with_remedy("let an administrator run plimsoll setup again").into()
        };
        if !facts.is_dir() {
            return Err(is_unsafe(folder, "is not a folder"));
        }
        let numbers = Numbers::here();
        if !numbers.may_own(UserId(0), facts.uid()) || facts.mode() & 0o022 != 0 {
            return Err(is_unsafe(folder, "may be changed by others than root"));
        }
        let Some(own) = numbers.user(user()) else {
            return Err(is_unsafe(folder, "cannot be used by a user without a number on this machine"));
        };
        let shared = Shared { folder: folder.into(), user: own, numbers };
        let lock = match shared.lock_file() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let group = Group::with(facts.gid()).map_or_else(|| facts.gid().to_string(), |group| group.name);
                return Err(NotShared::NotOfTheGroup(group));
            }
            opened => opened.map_err(|error| refused("cannot be opened", &folder.join(LOCK), &error))?,
        };
        let may_change = |path: &Path, sticky: bool| {
            let facts = fs::symlink_metadata(path).map_err(|error| refused("cannot be examined", path, &error))?;
            let mask = if sticky { 0o002 } else { 0o022 };
            let is_safe =
                shared.numbers.may_own(UserId(0), facts.uid()) && facts.mode() & mask == 0 && (!sticky || facts.mode() & 0o1000 != 0);
            if is_safe { Ok(()) } else { Err(is_unsafe(path, "may be changed by others than root")) }
        };
        drop(lock);
        may_change(&folder.join(LOCK), false)?;
        may_change(&folder.join(SETTINGS), false)?;
        may_change(&folder.join(USERS), true)?;
        setup::check_local(folder)?;
        shared.settings()?;
        shared.make_own()?;
        Ok(shared)
    }

    /// The folder of all of it.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    fn users(&self) -> PathBuf {
        self.folder.join(USERS)
    }

    /// This user's folder.
    pub(super) fn own(&self) -> PathBuf {
        self.users().join(self.user.0.to_string())
    }

    /// Makes this user's folder where it is missing.
    fn make_own(&self) -> Result<()> {
        let path = self.own();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused("cannot be made", &path, &error)),
            _ => {}
        }
        let facts = fs::symlink_metadata(&path).map_err(|error| refused("cannot be examined", &path, &error))?;
        if facts.uid() != user() || !facts.is_dir() {
            let owner = self.numbers.name(facts.uid());
            let message =
                format!("the place of user {} in the machine's ledger, {}, was taken by user {owner}", self.user.name(), path.display());
            return Err(
                Error::new(Code::PermissionDenied, message).with_remedy("let an administrator remove it and run plimsoll setup again")
            );
        }
        if facts.mode() & 0o7777 != OWN_MODE {
            fs::set_permissions(&path, fs::Permissions::from_mode(OWN_MODE))
                .map_err(|error| refused("cannot be changed", &path, &error))?;
        }
        Ok(())
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(self.folder.join(LOCK))
    }

    /// A handle of the file that transactions lock.
    pub(super) fn open_lock(&self) -> Result<File> {
        self.lock_file().map_err(|error| refused("cannot be opened", &self.lock_path(), &error))
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK)
    }

    /// The administrator's settings, now.
    pub(super) fn settings(&self) -> Result<Settings> {
        let path = self.folder.join(SETTINGS);
        let text = fs::read_to_string(&path).map_err(|error| refused("cannot be read", &path, &error))?;
        Settings::parse(&text).map_err(|error| error.context(path.display()))
    }

    /// That a request of this user may have that priority.
    pub(super) fn check_priority(&self, priority: i32) -> Result<()> {
        let bounds = self.settings()?.of(self.user);
        if (bounds.least..=bounds.most).contains(&priority) {
            return Ok(());
        }
        let message = format!("the priority {priority} is outside of {bounds}, which this machine allows user {}", self.user.name());
        Err(Error::new(Code::PermissionDenied, message)
            .with_remedy("ask within the bounds; an administrator sets them with plimsoll setup --priorities"))
    }

    /// The group that shares the ledger.
    pub(super) fn group(&self) -> String {
        let number = fs::metadata(&self.folder).map_or(0, |facts| facts.gid());
        Group::with(number).map_or_else(|| number.to_string(), |group| group.name)
    }

    /// The process that has the lock, in words, and whether it is stopped.
    pub(super) fn locked_by(&self) -> Option<u32> {
        let facts = fs::metadata(self.lock_path()).ok()?;
        super::mark::flock_of(facts.ino())
    }
}

/// Makes a file readable for the group whatever the mask of this process is.
pub(super) fn open_to_group(file: &File) -> io::Result<()> {
    // SAFETY: changes the mode of a file by an open descriptor of it.
    match unsafe { libc::fchmod(file.as_raw_fd(), 0o1640) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
