//! The file of a set of cards: where it is, whether it is the one it was, and whether it is a ledger.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, Error, Result};

use super::mark::Mark;
use super::record::{SLOT, key_hash, word};
use super::shared::{self, Shared};
use super::state_dir::{refused, user};
use super::transaction::Transaction;
use super::users::UserId;
use super::{CardInfo, Locked, StateDir, process, slot};

/// The first bytes of a ledger: the format's name and version. Four numbers follow.
const HEADER: [u8; 12] = *b"PLIMSOLL\x03\0\0\0";

/// The place in the header where the process that is in a transaction names itself.
const LOCKED_BY_AT: u64 = HEADER.len() as u64;

/// Where in the header the file's device and number stand: a copy is no ledger.
const IDENTITY_AT: usize = 16;

/// Where in the header stands how many slots the file has at least: one that is shorter was cut.
const SLOTS_AT: usize = 32;

/// Bytes of the header.
const HEADER_SIZE: usize = 40;

/// The number of members that a ledger may have (fewer where users share one): its file stays below 16 MiB, whatever its contents.
pub(super) const MAX_MEMBERS: u32 = 4000;

/// How often it is looked whether the process that has the lock is stopped.
const STOPPED: Duration = Duration::from_millis(20);

/// A ledger's file, opened.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) cards: Vec<CardInfo>,
    hashes: Vec<u64>,
    outside: Vec<AtomicU64>,
    pub(super) patience: Duration,
    /// For writes without a slot. Never locked.
    pub(super) file: File,
    identity: (u64, u64),
    /// The names by which the ledger is known where its file is not.
    pub(super) mark: Mark,
    /// The parts that it is made of.
    key: String,
    /// Whether it is inside of a member's place.
    pub(super) nested: bool,
    /// Whose ledger it is.
    pub(super) user: UserId,
    /// The folder in which it is one of several users'.
    pub(super) shared: Option<Shared>,
}

/// How long to wait for the transaction of another process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Where that process is stopped.
    pub(super) stopped: Duration,
    /// In any case.
    pub(super) most: Duration,
}

impl From<Duration> for Patience {
    fn from(most: Duration) -> Patience {
        Patience { stopped: most, most }
    }
}

/// Why a transaction did not begin.
pub(super) enum NotBegun {
    /// Another one goes on.
    Locked(Locked),
    /// The ledger cannot be used.
    Broken(Error),
}

/// The same open file under a number that is none of the standard files'. A program that has closed those may write to them.
pub(super) fn apart<F: AsRawFd + From<OwnedFd>>(file: F) -> io::Result<F> {
    if file.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(file);
    }
    // SAFETY: makes a new descriptor of an open one and touches nothing else.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) } {
        // SAFETY: the descriptor was made just now, and nothing else has it.
        raw @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(raw) }.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Inner {
    pub(super) fn open(state: &StateDir, set: &str, cards: Vec<CardInfo>, patience: Duration) -> Result<Inner> {
        let path = state.file_of(set);
        let key = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hashes = cards.iter().map(|card| key_hash(&card.key)).collect();
        Inner::at(path, key, cards, hashes, patience, state.shared().cloned(), false)
    }

    /// The ledger in that file; `key` is its name among all ledgers that the folder ever had, `hashes` are those of the cards' keys.
    pub(super) fn at(
        path: PathBuf,
        key: String,
        cards: Vec<CardInfo>,
        hashes: Vec<u64>,
        patience: Duration,
        shared: Option<Shared>,
        nested: bool,
    ) -> Result<Inner> {
        // The sticky bit asks programs that tidy up temporary folders to leave the file alone.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o1600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path).and_then(apart).map_err(|error| refused("cannot be opened", &path, &error))?;
        let mut facts = file.metadata().map_err(|error| refused("cannot be examined", &path, &error))?;
        // Made just now, under a mask by which no process could open it again.
        if facts.is_file() && facts.uid() == user() && facts.mode() & 0o600 != 0o600 {
            let mode = fs::Permissions::from_mode(0o1600 | facts.mode() & 0o7777);
            let changed = file.set_permissions(mode).and_then(|()| file.metadata());
            facts = changed.map_err(|error| refused("cannot be changed", &path, &error))?;
        }
        if !facts.is_file() || facts.uid() != user() || facts.mode() & 0o022 != 0 {
            let message = format!("{} is not a file that user {} alone can write", path.display(), user());
            return Err(Error::new(Code::PermissionDenied, message).with_remedy("remove it"));
        }
        if shared.is_some() && facts.mode() & 0o040 == 0 {
            shared::open_to_group(&file).map_err(|error| refused("cannot be changed", &path, &error))?;
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mark = Mark::of(folder, &key).map_err(|error| refused("cannot be examined", folder, &error))?;
        let outside = cards.iter().map(|_| AtomicU64::new(0)).collect();
        let user = shared.as_ref().map_or(UserId(user()), |shared| shared.user);
        let identity = (facts.dev(), facts.ino());
        let inner = Inner { path, cards, hashes, outside, patience, file, identity, mark, key, nested, user, shared };
        if inner.check_header().is_err() {
            match inner.transaction_within(Duration::ZERO.into()) {
                // The process that has the lock makes the ledger, or a later transaction does.
                Ok(_) | Err(NotBegun::Locked(_)) => {}
                Err(NotBegun::Broken(error)) => return Err(error),
            }
        }
        Ok(inner)
    }

    pub(super) fn reopen(&self, patience: Duration) -> Result<Inner> {
        Inner::at(self.path.clone(), self.key.clone(), self.cards.clone(), self.hashes.clone(), patience, self.shared.clone(), self.nested)
    }

    /// The number here of the card with that hash.
    pub(super) fn card_of(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|&known| known == hash)
    }

    /// The hashes of the cards' keys.
    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(super) fn set_outside(&self, card: usize, bytes: Bytes) -> Result<()> {
        self.check(card)?;
        self.outside[card].store(bytes.0, Relaxed);
        Ok(())
    }

    pub(super) fn outside(&self, card: usize) -> Bytes {
        Bytes(self.outside[card].load(Relaxed))
    }

    /// That there is a card of that number.
    pub(super) fn check(&self, card: usize) -> Result<()> {
        match card < self.cards.len() {
            true => Ok(()),
            false => Err(Error::invalid_argument(format!("card {card} of {} cards", self.cards.len()))),
        }
    }

    /// Begins a transaction: no other process is in one until it is dropped.
    ///
    /// # Errors
    /// Fails if the file is not the one that was opened, if another process is stuck in a transaction, or if it is in use but no
    /// ledger.
    pub(super) fn transaction(&self) -> Result<Transaction<'_>> {
        Ok(self.transaction_within(self.patience.into())?)
    }

    /// As [`Inner::transaction`], with another bound on waiting for the transaction of another process.
    pub(super) fn transaction_within(&self, patience: Patience) -> Result<Transaction<'_>, NotBegun> {
        let file = self.open_again(false)?;
        let lock = self.shared.as_ref().map(Shared::open_lock).transpose()?;
        self.wait_for(lock.as_ref().unwrap_or(&file), patience)?;
        let transaction = Transaction { inner: self, file, lock };
        if let Err(why) = self.check_header() {
            self.begin_anew(&transaction.file, &why)?;
        }
        // The process that is stuck in a transaction is found here; a failed write is no reason to stop.
        let _ = self.file.write_at(&std::process::id().to_le_bytes(), LOCKED_BY_AT);
        Ok(transaction)
    }

    /// The process that was in a transaction last, if it is there and may have the file open. Else it has another number here, and
    /// this is the number of another process. Where users share a lock, the one that the kernel says has it.
    pub(super) fn locked_by(&self) -> Option<u32> {
        if let Some(shared) = &self.shared {
            return shared.locked_by();
        }
        let mut pid = [0; 4];
        self.file.read_exact_at(&mut pid, LOCKED_BY_AT).ok()?;
        Some(u32::from_le_bytes(pid)).filter(|&pid| process::may_have(pid, &self.path))
    }

    /// A new open file description of the same file.
    pub(super) fn open_again(&self, write: bool) -> Result<File> {
        let opened = OpenOptions::new().read(true).write(write).custom_flags(libc::O_NOFOLLOW).open(&self.path);
        match opened.and_then(apart) {
            Ok(file) if file.metadata().is_ok_and(|facts| self.is_this(&facts)) => Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused("cannot be opened", &self.path, &error)),
            _ => Err(self.replaced()),
        }
    }

    fn is_this(&self, facts: &fs::Metadata) -> bool {
        (facts.dev(), facts.ino()) == self.identity
    }

    /// That the file is still where it was: else other programs do not see it.
    pub(super) fn check_place(&self) -> Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(facts) if self.is_this(&facts) => Ok(()),
            _ => Err(self.replaced()),
        }
    }

    fn replaced(&self) -> Error {
        let path = self.path.display();
        let message =
            format!("the ledger {path} was removed or replaced while it was in use: other programs do not see what this one holds");
        Error::failed_precondition(message).with_remedy("close everything on these cards, then start again")
    }

    /// Takes the lock of the file, again and again, with ever longer naps.
    fn wait_for(&self, lock: &File, patience: Patience) -> Result<(), NotBegun> {
        let begin = Instant::now();
        let (mut nap, mut next_look) = (Duration::from_micros(10), patience.stopped);
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) => {
                    let after = begin.elapsed();
                    if after >= patience.most {
                        return Err(NotBegun::Locked(Locked::of(self, patience.most)));
                    }
                    if after >= next_look {
                        if self.locked_by().is_some_and(process::is_stopped) {
                            return Err(NotBegun::Locked(Locked::of(self, patience.stopped)));
                        }
                        next_look = after + STOPPED;
                    }
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(Duration::from_millis(1));
                }
                Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(std::fs::TryLockError::Error(error)) => return Err(refused("cannot be locked", &self.path, &error).into()),
            }
        }
    }

    /// Whether the file is a ledger, the one that was made here, and whole; else why it is not.
    pub(super) fn check_header(&self) -> Result<(), String> {
        damage(&self.file, Some(self.identity))
    }

    /// Writes to a handle of the ledger. A program under a lease may close handles that it does not know, and open files of its own
    /// that get their numbers.
    ///
    /// # Errors
    /// The system's error; where the handle is one of another file, which is left alone.
    pub(super) fn put(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check_handle(file)?;
        file.write_all_at(bytes, at)
    }

    fn check_handle(&self, file: &File) -> io::Result<()> {
        match self.is_this(&file.metadata()?) {
            true => Ok(()),
            false => Err(io::Error::other("this program has closed its handle of the ledger")),
        }
    }

    /// In a transaction: makes a ledger of a file that is none, if it has no members.
    fn begin_anew(&self, file: &File, why: &str) -> Result<()> {
        if self.any_in_use_from(file, 0)? || self.mark.is_held() {
            return Err(self.unusable(&format!("{why} and in use: what its members hold is not known")));
        }
        let mut page = vec![0; SLOT];
        page[..HEADER.len()].copy_from_slice(&HEADER);
        page[IDENTITY_AT..][..8].copy_from_slice(&self.identity.0.to_le_bytes());
        page[IDENTITY_AT + 8..][..8].copy_from_slice(&self.identity.1.to_le_bytes());
        let made = self.check_handle(&self.file).and_then(|()| self.file.set_len(0)).and_then(|()| self.put(&self.file, &page, 0));
        made.map_err(|error| self.broken(&error))
    }

    /// In a transaction: the file ends with this slot from now on. Slots behind are forgotten; their members must be gone.
    pub(super) fn end_with(&self, slot: u32) -> Result<()> {
        let done = self.say_slots(slot + 1).and_then(|()| self.file.set_len(offset(slot + 1)));
        done.map_err(|error| self.broken(&error))
    }

    /// In a transaction: the file has this slot.
    pub(super) fn extend_to(&self, slot: u32) -> Result<()> {
        let mut slots = [0; 8];
        self.file.read_exact_at(&mut slots, SLOTS_AT as u64).map_err(|error| self.broken(&error))?;
        match u64::from_le_bytes(slots) > u64::from(slot) {
            true => Ok(()),
            false => self.say_slots(slot + 1).map_err(|error| self.broken(&error)),
        }
    }

    fn say_slots(&self, slots: u32) -> io::Result<()> {
        self.put(&self.file, &u64::from(slots).to_le_bytes(), SLOTS_AT as u64)
    }

    /// Tells the waiters near the front to look again.
    pub(super) fn ring(&self) {
        // They are told when a handle that could write is closed. If none can be opened they look on their own soon.
        let _ = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&self.path);
    }

    /// An error of the operating system while the file is used.
    pub(super) fn broken(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.unusable("was cut short while it was in use"),
            _ => refused("cannot be used", &self.path, error),
        }
    }

    /// The file is damaged, and there are programs that rely on it.
    pub(super) fn unusable(&self, why: &str) -> Error {
        let members = process::list(slot::members(self));
        Error::data_loss(format!("the ledger {} {why}; its members are {members}", self.path.display()))
            .with_remedy("end those programs: a ledger that no program uses is replaced")
    }

    /// The processes that have the file open, in words.
    pub(super) fn users(&self) -> String {
        process::list(process::with(&self.path))
    }
}

impl From<NotBegun> for Error {
    fn from(not: NotBegun) -> Error {
        match not {
            NotBegun::Locked(locked) => locked.into(),
            NotBegun::Broken(error) => error,
        }
    }
}

impl From<Error> for NotBegun {
    fn from(error: Error) -> NotBegun {
        NotBegun::Broken(error)
    }
}

/// Why a file is no ledger, or not a whole one; with an identity, not that of this device and number.
pub(super) fn damage(file: &File, identity: Option<(u64, u64)>) -> Result<(), String> {
    let length = file.metadata().map_or(0, |facts| facts.len());
    let mut found = [0; HEADER_SIZE];
    if length < SLOT as u64 || file.read_exact_at(&mut found, 0).is_err() {
        return Err(format!("was removed, replaced or cut short to {length} bytes"));
    }
    if found[..HEADER.len()] != HEADER {
        let is_old = found[..8] == HEADER[..8];
        return Err(if is_old { "is of another version".into() } else { "is damaged".into() });
    }
    if identity.is_some_and(|identity| (word(&found, IDENTITY_AT), word(&found, IDENTITY_AT + 8)) != identity) {
        return Err("was replaced by a copy".into());
    }
    match u32::try_from(word(&found, SLOTS_AT)) {
        Ok(slots) if slots <= MAX_MEMBERS && length >= offset(slots) => Ok(()),
        _ => Err(format!("was cut short to {length} bytes")),
    }
}

/// Where a slot begins.
pub(super) fn offset(slot: u32) -> u64 {
    (u64::from(slot) + 1) * SLOT as u64
}
