//! The owners of a slot of a ledger: the processes with an open file description that locks its byte, as `/proc` shows them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;

use super::file::Inner;
use super::transaction::SeenMember;
use super::{Entry, Full, HolderOn, Machine, byte_lock, process};

/// A slot of a ledger, in use or not.
#[derive(Clone, Debug)]
pub struct Slot {
    inner: Arc<Inner>,
    number: u32,
    /// The number of the file of its lease; 0 where it has none.
    lease: u64,
}

impl Slot {
    pub(super) fn new(inner: Arc<Inner>, number: u32, lease: u64) -> Slot {
        Slot { inner, number, lease }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether a process has it. Not where that cannot be seen.
    pub fn is_held(&self) -> bool {
        let by_a_member = || self.inner.open_again(false).is_ok_and(|file| byte_lock::is_taken(&file, self.number).unwrap_or(false));
        (self.inner.shared.is_none() && by_a_member()) || self.inner.is_leased(self.number, self.lease).unwrap_or(false)
    }

    /// The processes that have it, as far as this user may see them, this one too. Slow: looks at all processes.
    pub fn holders(&self) -> Vec<u32> {
        process::all().filter(|&pid| slot_of(&self.inner, pid) == Some(self.number)).collect()
    }
}

impl Machine {
    /// The slot that a process has, or the nearest one of those that it descends from. None where there is none, and where this
    /// user may not see it.
    pub fn slot_of(&self, pid: u32) -> Option<u32> {
        let mut pid = pid;
        // More generations than any slot has.
        for _ in 0..64 {
            if let Some(slot) = slot_of(&self.0, pid) {
                return Some(slot);
            }
            pid = process::parent(pid).filter(|&parent| parent > 1)?;
        }
        None
    }
}

/// The processes that have a slot, whether or not the file is still there.
pub(super) fn members(inner: &Inner) -> impl Iterator<Item = u32> {
    process::all().filter(|&pid| slot_by(inner, pid, |_| true).is_some())
}

/// Where the process that joined has ended, names one of those that have its slot now. `members` are those of the entries.
pub(super) fn show_heirs(inner: &Inner, members: &[SeenMember], entries: &mut [Entry]) {
    // The handles of other users' processes cannot be seen.
    let own = |seen: &SeenMember| seen.user == inner.user;
    let held = entries.iter().zip(members).filter(|(_, seen)| own(seen)).map(|(entry, seen)| (seen.slot, entry.pid));
    let heirs = heirs(inner, held.collect::<Vec<_>>().into_iter());
    for (seen, entry) in members.iter().zip(entries).filter(|(seen, _)| own(seen)) {
        if let Some(heir) = heirs.get(&seen.slot) {
            heir.name(&mut entry.pid, &mut entry.program);
            // The process that observed it has ended.
            entry.last_use = super::LastUse::default();
        }
    }
}

/// As [`show_heirs`], of those that a refusal names.
pub(super) fn name_heirs(inner: &Inner, full: &mut Full) {
    let user = inner.shared.as_ref().map(|shared| shared.user);
    let is_named = |holder: &HolderOn| !holder.own && holder.user == user;
    let named = || full.holders.iter().chain(&full.ahead).filter(|holder| is_named(holder));
    let heirs = heirs(inner, named().take(MOST).map(|holder| (holder.slot, holder.pid)));
    for holder in full.holders.iter_mut().chain(&mut full.ahead).filter(|holder| is_named(holder)) {
        if let Some(heir) = heirs.get(&holder.slot) {
            heir.name(&mut holder.pid, &mut holder.program);
        }
    }
}

/// How many of those in a refusal are looked for: it does not name more.
const MOST: usize = 10;

/// A process that has a slot since the one that joined has ended.
struct Heir(u32);

impl Heir {
    fn name(&self, pid: &mut u32, program: &mut String) {
        *pid = self.0;
        let words = process::program(self.0);
        if !words.is_empty() {
            *program = words;
        }
    }
}

/// The heirs of those slots whose processes do not have them.
fn heirs(inner: &Inner, held: impl Iterator<Item = (u32, u32)>) -> BTreeMap<u32, Heir> {
    // The handles of another user's process cannot be seen.
    let may_have = |pid: u32, slot: u32| match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(_) => slot_of(inner, pid) == Some(slot),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    let orphans: Vec<u32> = held.filter(|&(slot, pid)| !may_have(pid, slot)).map(|(slot, _)| slot).collect();
    if orphans.is_empty() {
        return BTreeMap::new();
    }
    let mut pids: Vec<u32> = process::all().collect();
    // The lowest number of a slot is the one that stays.
    pids.sort_by_key(|&pid| std::cmp::Reverse(pid));
    let all: BTreeMap<u32, Heir> = pids.into_iter().filter_map(|pid| Some((slot_of(inner, pid)?, Heir(pid)))).collect();
    all.into_iter().filter(|(slot, _)| orphans.contains(slot)).collect()
}

/// The slot that the process itself has.
fn slot_of(inner: &Inner, pid: u32) -> Option<u32> {
    let name = inner.path.file_name()?.to_str()?;
    // A lease's file is in a folder that is called after the ledger. Where the path leads through other mounts it looks different.
    slot_by(inner, pid, |handle| fs::read_link(handle.path()).is_ok_and(|target| target.to_string_lossy().contains(name)))
}

/// The slot that a process has by one of those of its handles.
fn slot_by(inner: &Inner, pid: u32, may_be: impl Fn(&fs::DirEntry) -> bool) -> Option<u32> {
    let handles = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    handles.filter(may_be).find_map(|handle| {
        let facts = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", handle.file_name().to_str()?)).ok()?;
        inner.mark.slot_in(&facts)
    })
}
