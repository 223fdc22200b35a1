//! Making a machine's folder, and taking it away: an administrator does this once.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_base::{Code, Error, Result};

use super::{LOCK, MACHINE_DIR, OWN_MODE, Priorities, SETTINGS, Settings, USERS};
use crate::mark::Mark;
use crate::state_dir::user;
use crate::users::{Group, Numbers, UserId, user_of};

/// How a machine's folder is to be.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where.
    pub folder: PathBuf,
    /// Whose users share the ledger: a name or a number.
    pub group: String,
    /// Bounds on priorities for all users; none leaves them as they are.
    pub priorities: Option<Priorities>,
    /// Bounds for some users, by name or number.
    pub users: Vec<(String, Priorities)>,
}

/// The folder that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// Where it is.
    pub folder: PathBuf,
    /// The group's name.
    pub group: String,
    /// The group's number.
    pub gid: u32,
    /// Whether there was no such folder before.
    pub is_new: bool,
    /// Bounds on priorities for all users.
    pub priorities: Priorities,
    /// Bounds for some.
    pub users: Vec<(UserId, Priorities)>,
    /// The users that have a place now. Others of the group get theirs when they come.
    pub places: Vec<UserId>,
    /// Obstacles, as sentences.
    pub warnings: Vec<String>,
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::PermissionDenied { Code::PermissionDenied } else { Code::Unavailable };
    Error::new(code, format!("{} {what}: {error}", path.display()))
}

fn check_root(what: &str) -> Result<()> {
    match user() {
        0 => Ok(()),
        user => {
            let message =
                format!("{what} is for root: it is about all users of the machine, and this is user {}", Numbers::here().name(user));
            Err(Error::new(Code::PermissionDenied, message).with_remedy("run it with sudo"))
        }
    }
}

/// File systems on which locks are not those of one machine, by the numbers of statfs(2).
const FOREIGN: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x794c_7630, "an overlay, which each container has for itself"),
];

/// That the folder is on a file system whose locks all users of the machine see.
///
/// # Errors
/// FAILED_PRECONDITION where it is not.
pub(super) fn check_local(folder: &Path) -> Result<()> {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return Err(Error::invalid_argument("a path with a zero in it")) };
    // SAFETY: numbers only, for which zero is a value.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero, and the structure is the one that the call fills in.
    if unsafe { libc::statfs(path.as_ptr(), &mut facts) } != 0 {
        return Err(failed("cannot be examined", folder, &io::Error::last_os_error()));
    }
    let kind = facts.f_type as i64 & 0xffff_ffff;
    match FOREIGN.iter().find(|(number, _)| *number == kind) {
        None => Ok(()),
        Some((_, name)) => {
            let message = format!("{} is on {name}: locks there are not seen by all of this machine", folder.display());
            Err(Error::failed_precondition(message)
                .with_remedy("name a folder on a local disk with --folder; in a container, mount the machine's"))
        }
    }
}

impl Setup {
    /// That group in the usual folder.
    pub fn group(group: impl Into<String>) -> Setup {
        Setup { folder: MACHINE_DIR.into(), group: group.into(), priorities: None, users: Vec::new() }
    }

    /// Makes the folder, or changes the present one: repeating it is harmless.
    ///
    /// # Errors
    /// PERMISSION_DENIED where this is not root; NOT_FOUND for a group or a user that is not there; FAILED_PRECONDITION for a folder that is
    /// another group's or something else, and for a file system that is not the machine's own; otherwise why it cannot be made.
    pub fn make(&self) -> Result<SetUp> {
        check_root("setup")?;
        let group = Group::find(&self.group).ok_or_else(|| {
            Error::not_found(format!("there is no group '{}'", self.group))
                .with_remedy(format!("make it and add its users: groupadd {0}; usermod -aG {0} USER", self.group))
        })?;
        let bounds: Vec<(u32, Priorities)> =
            self.users.iter().map(|(name, bounds)| Ok((number_of(name)?, *bounds))).collect::<Result<_>>()?;
        let folder = std::path::absolute(&self.folder).map_err(|error| failed("cannot be examined", &self.folder, &error))?;
        let is_new = match fs::symlink_metadata(&folder) {
            Ok(facts) => {
                check_existing(&folder, &facts, &group)?;
                false
            }
            Err(_) => {
                check_around(&folder)?;
                true
            }
        };
        make_dir(&folder, 0, if is_new { 0 } else { group.number }, 0o750)?;
        let made = check_local(&folder).and_then(|()| self.fill(&folder, &group, bounds, is_new));
        if made.is_err() && is_new {
            // Only the new part is there.
            let _ = fs::remove_dir_all(&folder);
        }
        made
    }

    fn fill(&self, folder: &Path, group: &Group, bounds: Vec<(u32, Priorities)>, is_new: bool) -> Result<SetUp> {
        let mut settings = match fs::read_to_string(folder.join(SETTINGS)) {
            Ok(text) => Settings::parse(&text)?,
            Err(_) => Settings::default(),
        };
        settings.all = self.priorities.unwrap_or(settings.all);
        settings.users.extend(bounds);
        let users = folder.join(USERS);
        make_dir(&users, 0, group.number, 0o3770)?;
        make_file(folder, LOCK, group.number, None)?;
        make_file(folder, SETTINGS, group.number, Some(settings.text().as_bytes()))?;
        let mut names: Vec<String> = group.members.clone();
        names.push("root".into());
        let (mut places, mut warnings) = (Vec::new(), Vec::new());
        for name in names {
            let Some(number) = user_of(&name) else { continue };
            let place = users.join(number.to_string());
            match fs::symlink_metadata(&place) {
                Ok(facts) if facts.uid() != number || !facts.is_dir() => {
                    let owner = Numbers::here().name(facts.uid());
                    warnings.push(format!("the place of user {name}, {}, was taken by user {owner}: remove it", place.display()));
                    continue;
                }
                _ => make_dir(&place, number, group.number, OWN_MODE)?,
            }
            places.push(UserId(number));
        }
        places.sort();
        places.dedup();
        // From here on the group can enter.
        make_dir(folder, 0, group.number, 0o750)?;
        Ok(SetUp {
            folder: folder.into(),
            group: group.name.clone(),
            gid: group.number,
            is_new,
            priorities: settings.all,
            users: settings.users.iter().map(|(user, bounds)| (UserId(*user), *bounds)).collect(),
            places,
            warnings,
        })
    }
}

fn number_of(name: &str) -> Result<u32> {
    user_of(name)
        .ok_or_else(|| Error::not_found(format!("there is no user '{name}'")).with_remedy("name a user of this machine, or its number"))
}

/// That a folder is one that this made, for the same group.
fn check_existing(folder: &Path, facts: &fs::Metadata, group: &Group) -> Result<()> {
    let refused = |why: String| Err(Error::failed_precondition(format!("{} {why}", folder.display())));
    if !facts.is_dir() || facts.uid() != 0 {
        return refused("is there and is not a folder of root".into())
            .map_err(|error| error.with_remedy("name another folder with --folder"));
    }
    let is_ours = folder.join(SETTINGS).exists();
    let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if !is_ours && !is_empty {
        return refused("is there and holds something else".into()).map_err(|error| error.with_remedy("name another folder with --folder"));
    }
    if is_ours && facts.gid() != group.number {
        let other = Group::with(facts.gid()).map_or_else(|| facts.gid().to_string(), |group| group.name);
        return refused(format!("is for the group {other}"))
            .map_err(|error| error.with_remedy("take it away first with plimsoll setup --remove"));
    }
    check_around(folder)
}

/// That no other user can move the folder away.
fn check_around(folder: &Path) -> Result<()> {
    let around = folder.parent().unwrap_or(folder);
    let facts = fs::metadata(around).map_err(|error| failed("cannot be examined", around, &error))?;
    if facts.uid() != 0 || (facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0) {
        let message = format!("{} can be changed by others than root, and so could the folder in it", around.display());
        return Err(Error::failed_precondition(message).with_remedy("name a folder in one of root's with --folder"));
    }
    Ok(())
}

fn own(file: &File, user: u32, group: u32, mode: u32) -> io::Result<()> {
    fchown(file, Some(user), Some(group))?;
    // SAFETY: changes the mode of a file by an open descriptor of it. After the owner, whose change takes bits away.
    match unsafe { libc::fchmod(file.as_raw_fd(), mode) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a folder where it is missing, and gives it that owner, group and mode.
fn make_dir(path: &Path, user: u32, group: u32, mode: u32) -> Result<()> {
    let make = || {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let folder = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY).open(path)?;
        own(&folder, user, group, mode)
    };
    make().map_err(|error| failed("cannot be made", path, &error))
}

/// Makes a file of root that the group may read: at once with all that is in it. Without contents, one that is there stays.
fn make_file(folder: &Path, name: &str, group: u32, contents: Option<&[u8]>) -> Result<()> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let make = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        match contents {
            None => own(&options.truncate(false).open(&path)?, 0, group, 0o640),
            Some(contents) => {
                let mut file = options.truncate(true).open(&fresh)?;
                file.write_all(contents)?;
                own(&file, 0, group, 0o640)?;
                file.sync_all()?;
                fs::rename(&fresh, &path)
            }
        }
    };
    make().map_err(|error| failed("cannot be made", &path, &error))
}

/// How long taking a folder away waits for a change of the ledger.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes a machine's folder away, if no lease is held in it. Users have ledgers of their own from then on.
///
/// # Errors
/// PERMISSION_DENIED where this is not root. NOT_FOUND where there is no such folder. FAILED_PRECONDITION with the users that hold
/// leases. Otherwise the reason why it cannot be removed.
pub fn remove(folder: &Path) -> Result<()> {
    check_root("setup --remove")?;
    let folder = std::path::absolute(folder).map_err(|error| failed("cannot be examined", folder, &error))?;
    if !folder.join(SETTINGS).exists() || !folder.join(USERS).is_dir() {
        return Err(Error::not_found(format!("{} is no folder that plimsoll setup made", folder.display())));
    }
    let lock = File::open(folder.join(LOCK)).map_err(|error| failed("cannot be opened", &folder.join(LOCK), &error))?;
    let begin = Instant::now();
    while lock.try_lock().is_err() {
        if begin.elapsed() > PATIENCE {
            return Err(Error::new(Code::Unavailable, format!("a process keeps the ledger {} locked", folder.display())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for home in fs::read_dir(folder.join(USERS)).into_iter().flatten().flatten() {
        for ledger in fs::read_dir(home.path()).into_iter().flatten().flatten() {
            let name = ledger.file_name().to_string_lossy().into_owned();
            if name.ends_with(".ledger") && Mark::of(&home.path(), &name).is_ok_and(Mark::is_held) {
                let user = home.file_name().to_str().and_then(|name| name.parse().ok()).map(UserId);
                *held.entry(user.map_or_else(String::new, UserId::name)).or_default() += 1;
            }
        }
    }
    if !held.is_empty() {
        let users = held.into_keys().collect::<Vec<_>>().join(", ");
        let message = format!("leases are held in {} by: {users}", folder.display());
        return Err(Error::failed_precondition(message).with_remedy("wait until they have ended: plimsoll devices shows them"));
    }
    fs::remove_dir_all(&folder).map_err(|error| failed("cannot be removed", &folder, &error))
}
