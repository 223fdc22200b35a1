//! A name for a ledger that does not live in the file system: a range of bytes that its members lock.
//!
//! The kernel lists all locks in `/proc/locks`, also those on removed files. The list has all processes and users, in whatever
//! namespaces of processes, mounts and network. The range has two ends: one is made of the folder's identity, the other of its
//! place (its name in the folder around it). So a ledger is found again where its file was removed or replaced, and where its
//! folder was.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::byte_lock::{BASE, MARKS};
use super::record::key_hash;

/// The range of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Where the folder is.
    place: i64,
    /// Which folder it is.
    folder: i64,
}

impl Mark {
    /// That of the ledger with this name in a folder.
    pub(super) fn of(folder: &Path, name: &str) -> io::Result<Mark> {
        let facts = fs::metadata(folder)?;
        let around = fs::metadata(folder.join(".."))?;
        Ok(Mark::made_of(&facts, &around, folder.file_name().unwrap_or_default().as_encoded_bytes(), name))
    }

    /// As [`Mark::of`], of a folder and the one around it, in which it has that name.
    pub(super) fn made_of(folder: &fs::Metadata, around: &fs::Metadata, own: &[u8], name: &str) -> Mark {
        let place = format!("{}:{}/{}/{name}", around.dev(), around.ino(), own.escape_ascii());
        Mark { place: number(&place), folder: number(&format!("{}:{}/{name}", folder.dev(), folder.ino())) }
    }

    /// Its first byte.
    pub(super) fn first(self) -> i64 {
        MARKS | self.place
    }

    /// Its last byte.
    pub(super) fn last(self) -> i64 {
        (2 * MARKS) | self.folder
    }

    fn is_in(self, lock: &Lock) -> bool {
        lock.first == self.first() || lock.last == self.last()
    }

    /// Whether a member of the ledger lives, wherever its files are.
    pub(super) fn is_held(self) -> bool {
        locks().iter().any(|lock| self.is_in(lock))
    }

    /// Whether a member of the ledger lives that shares that slot with programs.
    pub(super) fn is_shared(self, slot: u32) -> bool {
        let locks = locks();
        let marked: BTreeSet<&str> = locks.iter().filter(|lock| self.is_in(lock)).map(|lock| lock.file.as_str()).collect();
        locks.iter().any(|lock| lock.is_read && lock.slot() == Some(slot) && marked.contains(lock.file.as_str()))
    }

    /// The slot that a process has by one of these locks: the line in `/proc/<pid>/fdinfo/<number>` of one of its handles.
    pub(super) fn slot_in(self, facts: &str) -> Option<u32> {
        let locks = || facts.lines().filter_map(|line| Lock::parse(line.strip_prefix("lock:")?));
        locks().find(|lock| self.is_in(lock))?;
        locks().find_map(|lock| lock.slot())
    }
}

/// The process that has locked the file with that number as a whole (flock), as far as it is to be seen: not from another namespace of
/// processes.
pub(super) fn flock_of(file: u64) -> Option<u32> {
    let list = list().ok()?;
    list.lines().find_map(|line| flock_in(line, file))
}

/// `1: FLOCK  ADVISORY  WRITE 77 fe:00:17 0 EOF`
fn flock_in(line: &str, file: u64) -> Option<u32> {
    let mut words = line.split_once(':')?.1.split_whitespace();
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok().filter(|&pid| pid > 0)?;
    (words.next()?.rsplit(':').next()?.parse() == Ok(file)).then_some(pid)
}

fn number(text: &str) -> i64 {
    (key_hash(text) & (MARKS as u64 - 1)) as i64
}

/// A lock of an open file description, as the kernel shows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    /// The file's device and number.
    file: String,
    is_read: bool,
    first: i64,
    last: i64,
}

impl Lock {
    /// `1: OFDLCK ADVISORY  WRITE -1 00:2c:17 FIRST LAST`
    fn parse(line: &str) -> Option<Lock> {
        let mut words = line.split_once(':')?.1.split_whitespace();
        if words.next()? != "OFDLCK" {
            return None;
        }
        let (is_read, file) = (words.nth(1)? == "READ", words.nth(1)?.to_string());
        let first = words.next()?.parse().ok()?;
        let last = words.next().map(|word| if word == "EOF" { Ok(i64::MAX) } else { word.parse() })?.ok()?;
        Some(Lock { file, is_read, first, last })
    }

    /// The slot whose byte it is.
    fn slot(&self) -> Option<u32> {
        u32::try_from(self.first.checked_sub(BASE)?).ok().filter(|_| self.first == self.last)
    }
}

/// All locks of this machine, each of which existed at some time during the call; where the kernel has no list, those of processes that
/// this user may see.
///
/// The kernel hands the list out page by page and counts its entries, so a lock that ends between two pages hides another one. Equal
/// readings in a row say that none ended; before that, all readings count together.
fn locks() -> Vec<Lock> {
    let (mut before, mut equal) = (String::new(), 0);
    let mut found = BTreeSet::new();
    for _ in 0..MOST_READINGS {
        let Ok(list) = list() else { return locks_of_processes() };
        // The number in front of a lock is its place in the list.
        found.extend(list.lines().filter_map(Lock::parse));
        equal = if list == before { equal + 1 } else { 0 };
        if list.len() < ONE_READING || equal == EQUAL_READINGS {
            break;
        }
        before = list;
    }
    found.into_iter().collect()
}

/// The kernel's list. A reader that asks for less than a page is given less, and the rest as it is by then.
fn list() -> io::Result<String> {
    let mut file = fs::File::open("/proc/locks")?;
    let (mut list, mut page) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut page)? {
            0 => break,
            count => list.extend_from_slice(&page[..count]),
        }
    }
    String::from_utf8(list).map_err(io::Error::other)
}

/// A list of fewer bytes is one page of the kernel's, which is made at one instant.
const ONE_READING: usize = 2048;

/// So often is a list what it was before, if it stands still: a program that takes and gives back the same locks all the time may make
/// two readings the same.
const EQUAL_READINGS: usize = 3;

/// How often a list is read that never stands still.
const MOST_READINGS: usize = 16;

/// As [`locks`], from the handles of each process.
fn locks_of_processes() -> Vec<Lock> {
    let pids =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    let handles = pids.flat_map(|process| fs::read_dir(process.path().join("fdinfo")).into_iter().flatten().flatten());
    let facts = handles.filter_map(|handle| fs::read_to_string(handle.path()).ok());
    facts.flat_map(|facts| facts.lines().filter_map(|line| Lock::parse(line.strip_prefix("lock:")?)).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_lock;

    const MARK: Mark = Mark { place: 5, folder: 9 };

    #[test]
    fn lines_of_locks_are_read() {
        let line = format!("lock:\t1: OFDLCK  ADVISORY  WRITE -1 00:2c:17 {0} {0}", BASE + 7);
        let mark = format!("lock:\t2: OFDLCK ADVISORY  READ -1 00:2c:17 {} {}", MARK.first(), MARK.last());
        assert_eq!(MARK.slot_in(&format!("pos:\t0\n{line}\n{mark}\n")), Some(7));
        assert_eq!(MARK.slot_in(&mark), None);
        assert_eq!(MARK.slot_in(&line), None, "a lock of another ledger");
        for other in [
            "1: POSIX  ADVISORY  WRITE 5 00:2c:17 3 3",
            "1: -> OFDLCK ADVISORY READ -1 0:1:2 3 3",
            "1: OFDLCK",
            "",
            "1: OFDLCK A READ -1 0:1:2 x 4",
        ] {
            assert_eq!(Lock::parse(other), None, "{other}");
        }
        let whole = Lock { file: "0:1:2".into(), is_read: true, first: 0, last: i64::MAX };
        assert_eq!(Lock::parse("7: OFDLCK ADVISORY  READ -1 0:1:2 0 EOF"), Some(whole));
    }

    #[test]
    fn the_holder_of_a_whole_lock_is_read() {
        let line = "20: FLOCK  ADVISORY  WRITE 9356 fe:00:5726300 0 EOF";
        assert_eq!((flock_in(line, 5726300), flock_in(line, 57263)), (Some(9356), None));
        for other in [
            "20: -> FLOCK  ADVISORY  WRITE 7 fe:00:5 0 EOF",
            "20: FLOCK ADVISORY WRITE 0 fe:00:5 0 EOF",
            "20: POSIX ADVISORY WRITE 7 fe:00:5 0 EOF",
            "FLOCK",
        ] {
            assert_eq!(flock_in(other, 5), None, "{other}");
        }
    }

    /// A mark is found while hundreds of other locks come and go.
    #[test]
    fn a_lock_that_ends_hides_no_other() {
        let mark = Mark { place: i64::from(std::process::id()), folder: 7 };
        let file = || {
            let path = std::env::temp_dir().join(format!("plimsoll-mark-{}-{:?}", std::process::id(), std::thread::current().id()));
            let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            file
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let others = file();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    (0..200).for_each(|slot| assert!(byte_lock::take(&others, 2 * slot).unwrap()));
                    byte_lock::give_back(&others).unwrap();
                }
            });
            let marked = file();
            let missed = (0..300).filter(|_| {
                byte_lock::mark(&marked, mark).unwrap();
                !mark.is_held()
            });
            let missed = missed.count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn either_end_is_enough() {
        let lock = |first, last| Lock { file: String::new(), is_read: true, first, last };
        assert!(MARK.is_in(&lock(MARK.first(), 2 * MARKS)) && MARK.is_in(&lock(MARKS, MARK.last())));
        assert!(!MARK.is_in(&lock(MARKS, 2 * MARKS)));
        assert!(MARK.first() < MARK.last());
    }
}
