//! Users: their numbers on the machine, and their names.
//!
//! In a user namespace (a rootless container) a user has another number than outside. Ledgers that several users share name a
//! user by the number of the namespace around, which is the machine's where one namespace lies between.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The kernel's number for a user without a number in this namespace.
const NO_NUMBER: u32 = 65534;

/// A user by the number that the machine counts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// The lines of `/proc/self/uid_map`: first number here, first number outside, count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers(Vec<[u32; 3]>);

impl Numbers {
    fn parse(text: &str) -> Numbers {
        let line = |line: &str| {
            let mut words = line.split_whitespace().map(|word| word.parse().ok());
            Some([words.next()??, words.next()??, words.next()??])
        };
        Numbers(text.lines().filter_map(line).collect())
    }

    /// Those of this process.
    pub(super) fn here() -> Numbers {
        Numbers::parse(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }

    /// Whether numbers are the same here and outside.
    fn is_plain(&self) -> bool {
        self.0.is_empty() || self.0 == [[0, 0, u32::MAX]]
    }

    /// The user with this number of the system; none for a user without a number outside.
    pub(super) fn user(&self, here: u32) -> Option<UserId> {
        self.convert(here, 0).map(UserId)
    }

    /// As [`Numbers::user`], in words.
    pub(super) fn name(&self, here: u32) -> String {
        self.user(here).map_or_else(|| here.to_string(), UserId::name)
    }

    /// Whether a file with this owner, as the system shows it here, may be that user's. Users without a number here look alike.
    pub(super) fn may_own(&self, user: UserId, owner: u32) -> bool {
        owner == self.convert(user.0, 1).unwrap_or(NO_NUMBER)
    }

    fn convert(&self, number: u32, from: usize) -> Option<u32> {
        if self.is_plain() {
            return Some(number);
        }
        let line = self.0.iter().find(|line| number.checked_sub(line[from]).is_some_and(|offset| offset < line[2]))?;
        Some(line[1 - from] + (number - line[from]))
    }
}

impl UserId {
    /// The user on whose behalf a process acts; none where that is not to be seen.
    pub fn of_process(pid: u32) -> Option<UserId> {
        Numbers::here().user(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
    }

    /// The user's name; the number where there is none, or where numbers mean other users here.
    pub fn name(self) -> String {
        let named = Numbers::here().is_plain().then(|| user_name(self.0)).flatten();
        named.unwrap_or_else(|| self.0.to_string())
    }
}

/// Room for an entry of a user or a group.
const ENTRY: usize = 1 << 16;

fn text(pointer: *const libc::c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: a text of an entry that the system filled in, which ends in a zero; its buffer is still there.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn user_name(number: u32) -> Option<String> {
    let mut buffer = vec![0; ENTRY];
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the entry's texts are written into the buffer, whose size is told.
    let status = unsafe { libc::getpwuid_r(number, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    (status == 0 && !found.is_null()).then(|| text(entry.pw_name)).filter(|name| !name.is_empty())
}

/// The number of the user with that name.
pub(super) fn user_of(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0; ENTRY];
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name ends in a zero, and the entry's texts are written into the buffer, whose size is told.
    let status = unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    (status == 0 && !found.is_null()).then_some(entry.pw_uid)
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) number: u32,
    pub(super) name: String,
    /// The members that the group lists. Users that have it as their first group are not among them.
    pub(super) members: Vec<String>,
}

impl Group {
    /// The group with that name, or that number.
    pub(super) fn find(name: &str) -> Option<Group> {
        let by_name = CString::new(name).ok()?;
        Group::read(|entry, buffer, found| {
            // SAFETY: the name ends in a zero, and the entry's texts are written into the buffer, whose size is told.
            unsafe { libc::getgrnam_r(by_name.as_ptr(), entry, buffer.as_mut_ptr(), buffer.len(), found) }
        })
        .or_else(|| {
            let number = name.parse().ok()?;
            let unnamed = Group { number, name: name.into(), members: Vec::new() };
            Some(Group::with(number).unwrap_or(unnamed))
        })
    }

    /// The group with that number, where it has a name.
    pub(super) fn with(number: u32) -> Option<Group> {
        Group::read(|entry, buffer, found| {
            // SAFETY: the entry's texts are written into the buffer, whose size is told.
            unsafe { libc::getgrgid_r(number, entry, buffer.as_mut_ptr(), buffer.len(), found) }
        })
    }

    fn read(look_up: impl FnOnce(&mut libc::group, &mut [libc::c_char], &mut *mut libc::group) -> libc::c_int) -> Option<Group> {
        let mut buffer = vec![0; 16 * ENTRY];
        // SAFETY: numbers and pointers, for which zero is a value.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let status = look_up(&mut entry, &mut buffer, &mut found);
        if status != 0 || found.is_null() {
            return None;
        }
        let mut members = Vec::new();
        let mut next = entry.gr_mem;
        // SAFETY: the list and its texts are in the buffer, and the list ends in a null pointer.
        while let Some(name) = unsafe { next.as_ref() }.filter(|name| !name.is_null()) {
            members.push(text(*name));
            // SAFETY: the entry before was not the last.
            next = unsafe { next.add(1) };
        }
        Some(Group { number: entry.gr_gid, name: text(entry.gr_name), members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_converted_both_ways() {
        let plain = Numbers::parse("         0          0 4294967295\n");
        assert!(plain.is_plain() && plain.convert(7, 0) == Some(7) && plain.convert(7, 1) == Some(7));
        let rootless = Numbers::parse("0 1000 1\n1 100000 65536\n");
        for (here, outside) in [(0, 1000), (1, 100000), (65536, 165535)] {
            assert_eq!((rootless.convert(here, 0), rootless.convert(outside, 1)), (Some(outside), Some(here)));
        }
        assert_eq!((rootless.convert(70000, 0), rootless.convert(0, 1), rootless.convert(1001, 1)), (None, None, None));
        assert_eq!(Numbers::parse("a b\n1 2\n"), Numbers(vec![]));
    }

    #[test]
    fn names_are_looked_up() {
        assert_eq!((UserId(0).name().as_str(), user_of("root"), user_of("17"), user_of("no such user")), ("root", Some(0), Some(17), None));
        assert_eq!(UserId(4_000_000_000).name(), "4000000000");
        let root = Group::find("root").unwrap();
        assert_eq!((root.number, Group::with(0)), (0, Some(root)));
        assert_eq!(Group::find("4000000000").unwrap().number, 4_000_000_000);
        assert!(Group::find("no such group").is_none());
    }
}
