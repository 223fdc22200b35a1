//! The file of a set of cards: where it is, whether it is the one it was, and whether it is a ledger.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, Error, Result};

use super::record::{SLOT, key_hash};
use super::state_dir::{refused, user};
use super::transaction::Transaction;
use super::{CardInfo, StateDir, byte_lock, view};

/// What a ledger begins with: the format's name and version. The number of the process in a transaction follows.
const HEADER: [u8; 12] = *b"PLIMSOLL\x02\0\0\0";

/// Where in the header the process that is in a transaction says who it is.
const LOCKED_BY_AT: u64 = HEADER.len() as u64;

/// How many members a ledger may have: its file stays below 16 MiB, whatever is written into it.
pub(super) const MAX_MEMBERS: u32 = 4000;

/// A ledger's file, opened.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) cards: Vec<CardInfo>,
    hashes: Vec<u64>,
    outside: Vec<AtomicU64>,
    patience: Duration,
    /// For what is written by nobody in particular. Never locked.
    pub(super) file: File,
    identity: (u64, u64),
    /// Whether it is inside of a member's place.
    pub(super) nested: bool,
}

impl Inner {
    pub(super) fn open(state: &StateDir, set: &str, cards: Vec<CardInfo>, patience: Duration) -> Result<Inner> {
        Inner::at(state.file_of(set), cards, patience, false)
    }

    pub(super) fn at(path: PathBuf, cards: Vec<CardInfo>, patience: Duration, nested: bool) -> Result<Inner> {
        // The sticky bit asks those who tidy up temporary folders to leave the file alone.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o1600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path).map_err(|error| refused("cannot be opened", &path, &error))?;
        let facts = file.metadata().map_err(|error| refused("cannot be looked at", &path, &error))?;
        if !facts.is_file() || facts.uid() != user() || facts.mode() & 0o022 != 0 {
            let message = format!("{} is not a file that user {} alone can write", path.display(), user());
            return Err(Error::new(Code::PermissionDenied, message).with_remedy("remove it"));
        }
        let hashes = cards.iter().map(|card| key_hash(&card.key)).collect();
        let outside = cards.iter().map(|_| AtomicU64::new(0)).collect();
        let inner = Inner { path, cards, hashes, outside, patience, file, identity: (facts.dev(), facts.ino()), nested };
        inner.transaction()?;
        Ok(inner)
    }

    pub(super) fn reopen(&self, patience: Duration) -> Result<Inner> {
        Inner::at(self.path.clone(), self.cards.clone(), patience, self.nested)
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

    /// Begins a transaction: nobody else is in one until it is dropped.
    ///
    /// # Errors
    /// Where the file is not the one that was opened, another process is stuck in a transaction, or it is no ledger but in use.
    pub(super) fn transaction(&self) -> Result<Transaction<'_>> {
        let lock = self.open_again(false)?;
        self.wait_for(&lock)?;
        let transaction = Transaction { inner: self, lock };
        // Who is stuck in a transaction is found here; that it cannot be written is no reason to stop.
        let _ = self.file.write_at(&std::process::id().to_le_bytes(), LOCKED_BY_AT);
        self.check_header(&transaction.lock)?;
        Ok(transaction)
    }

    /// A new open file description of the same file.
    pub(super) fn open_again(&self, write: bool) -> Result<File> {
        let opened = OpenOptions::new().read(true).write(write).custom_flags(libc::O_NOFOLLOW).open(&self.path);
        let same = |file: &File| file.metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity);
        match opened {
            Ok(file) if same(&file) => Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused("cannot be opened", &self.path, &error)),
            _ => Err(Error::failed_precondition(format!(
                "the ledger {} was removed or replaced while it was in use: other programs do not see what this one holds",
                self.path.display()
            ))
            .with_remedy("close everything on these cards, then start again")),
        }
    }

    /// Takes the lock of the file, again and again, with ever longer naps.
    fn wait_for(&self, lock: &File) -> Result<()> {
        let begin = Instant::now();
        let mut nap = Duration::from_micros(10);
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(std::fs::TryLockError::WouldBlock) if begin.elapsed() >= self.patience => return Err(self.stuck()),
                Err(std::fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(Duration::from_millis(1));
                }
                Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(std::fs::TryLockError::Error(error)) => return Err(refused("cannot be locked", &self.path, &error)),
            }
        }
    }

    fn stuck(&self) -> Error {
        let mut pid = [0; 4];
        let who = match self.file.read_exact_at(&mut pid, LOCKED_BY_AT).map(|()| u32::from_le_bytes(pid)) {
            Ok(pid) if Path::new(&format!("/proc/{pid}")).exists() => view::describe_process(pid),
            // It was killed there, and a fork of it has the lock.
            _ => format!("a process that is gone, by way of one of these: {}", self.users()),
        };
        let message = format!("the ledger {} has been locked for {:?} by {who}", self.path.display(), self.patience);
        Error::new(Code::Unavailable, message).with_remedy("let that process go on, or end it")
    }

    /// In a transaction: makes a ledger of a file that is none, if nobody uses it.
    fn check_header(&self, lock: &File) -> Result<()> {
        let mut found = [0; HEADER.len()];
        if lock.read_exact_at(&mut found, 0).is_ok() && found == HEADER {
            return Ok(());
        }
        if byte_lock::any_taken_from(lock, 0).map_err(|error| self.broken(&error))? {
            let what = if found[..8] == HEADER[..8] { "of another version" } else { "damaged" };
            return Err(self.unusable(&format!("is {what} and in use")));
        }
        let mut page = vec![0; SLOT];
        page[..HEADER.len()].copy_from_slice(&HEADER);
        page[HEADER.len()..HEADER.len() + 4].copy_from_slice(&std::process::id().to_le_bytes());
        self.file.set_len(0).and_then(|()| self.file.write_all_at(&page, 0)).map_err(|error| self.broken(&error))
    }

    /// Forgets the slots from this one on. Their members must be gone.
    pub(super) fn cut_to(&self, slots: u32) -> Result<()> {
        self.file.set_len(offset(slots)).map_err(|error| self.broken(&error))
    }

    /// Tells those who wait near the front to look again.
    pub(super) fn ring(&self) {
        // They are told when a handle that could write is closed. If none can be opened they look on their own soon.
        let _ = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&self.path);
    }

    /// An error of the operating system while the file is used.
    pub(super) fn broken(&self, error: &io::Error) -> Error {
        refused("cannot be used", &self.path, error)
    }

    /// The file is not what it should be, and there are programs that rely on it.
    pub(super) fn unusable(&self, why: &str) -> Error {
        let users = self.users();
        Error::data_loss(format!("the ledger {} {why}; it is open in {users}", self.path.display()))
            .with_remedy("end those programs: a ledger that nobody uses is made anew")
    }

    /// The processes that have the file open, in words.
    fn users(&self) -> String {
        let users: Vec<String> = view::processes_with(&self.path).into_iter().map(view::describe_process).collect();
        if users.is_empty() { "processes that this user cannot see".into() } else { users.join(", ") }
    }
}

/// Where a slot begins.
pub(super) fn offset(slot: u32) -> u64 {
    (u64::from(slot) + 1) * SLOT as u64
}
