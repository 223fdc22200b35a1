//! Memory of cards that programs without a lease use.
//!
//! The driver says how much each process uses. A process is in the ledger if it, or one that it descends from, has the open file
//! description of a slot: looked up in `/proc`, which shows a user's own processes.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_cards::PhysicalDevice;
use plimsoll_machine::{Machine, Share, UserId};

use super::raw::Handle;
use super::{Look, Memory, Nvml, Process, process};

/// The use of a card.
struct Use<'a> {
    memory: Option<Memory>,
    processes: &'a [Process],
}

/// Tells the ledger of these cards how much of each is used by programs without a lease, by the driver's figures, so that it is not
/// granted. A lease accounts for as much as it has reserved: what its processes use beyond that is outside of it.
pub fn subtract(look: &Look, cards: &[PhysicalDevice], machine: &Machine) {
    let seen = look.cards.iter().map(|card| (card.device.uuid.as_str(), Use { memory: card.memory, processes: &card.processes }));
    tell(&seen.collect(), cards, machine);
}

impl Nvml {
    /// As [`subtract`], of a look at nothing but memory and processes.
    pub fn subtract(&self, cards: &[PhysicalDevice], machine: &Machine) {
        let seen: Vec<(String, Option<Memory>, Vec<Process>)> = (0..self.count().unwrap_or(0))
            .filter_map(|index| self.handle(index).ok())
            .filter_map(|card| Some((self.text(card, |functions| functions.uuid).ok()?, card)))
            .filter(|(uuid, _)| cards.iter().any(|device| device.uuid == *uuid))
            .map(|(uuid, card)| (uuid, self.memory(card).ok(), self.processes(card)))
            .collect();
        let seen = seen.iter().map(|(uuid, memory, processes)| (uuid.as_str(), Use { memory: *memory, processes }));
        tell(&seen.collect(), cards, machine);
    }

    fn processes(&self, card: Handle) -> Vec<Process> {
        let [compute, graphics, shared] = [self.compute(card), self.graphics(card), self.shared(card)].map(|list| list.unwrap_or_default());
        process::join(compute, graphics, shared)
    }
}

fn tell(seen: &BTreeMap<&str, Use<'_>>, cards: &[PhysicalDevice], machine: &Machine) {
    let mut known = BTreeMap::new();
    // Unknown use is not counted as leased.
    let held = machine.held_by_others().unwrap_or_default();
    let shares = machine.shares_by_slot().unwrap_or_default();
    for (number, device) in cards.iter().enumerate() {
        let Some(card) = seen.get(device.uuid.as_str()) else { continue };
        let mut slot_of = |pid: u32| *known.entry(pid).or_insert_with(|| machine.slot_of(pid));
        let (mut by_slot, mut others): (BTreeMap<u32, Bytes>, Vec<&Process>) = (BTreeMap::new(), Vec::new());
        let mut attributed = Bytes::ZERO;
        for process in card.processes {
            let bytes = process.bytes.unwrap_or_default();
            match slot_of(process.pid) {
                Some(slot) => *by_slot.entry(slot).or_default() += bytes,
                None => others.push(process),
            }
            // One that is not to be seen may be a member's under another number: that of another container.
            if process.program.is_some() {
                attributed += bytes;
            }
        }
        let used = card.memory.map_or(Bytes::ZERO, |memory| memory.used);
        let none = BTreeMap::new();
        let leased = leased(&by_slot, shares.get(number).unwrap_or(&none), used - attributed);
        let mut theirs: BTreeMap<UserId, Bytes> = BTreeMap::new();
        for process in others.into_iter().filter(|_| !held.is_empty()) {
            if let (Some(user), Some(bytes)) = (UserId::of_process(process.pid), process.bytes) {
                *theirs.entry(user).or_default() += bytes;
            }
        }
        let theirs = held.get(number).map_or(Bytes::ZERO, |held| under_leases(&theirs, held));
        // The number is that of a card of this ledger.
        let _ = machine.set_outside(number, used - leased - theirs);
    }
}

/// How much of a card's use leases account for: each as much as it has reserved. `unknown` is the use that the driver attributes to no
/// process that is seen here; members without processes account for it up to the use that they report.
fn leased(by_slot: &BTreeMap<u32, Bytes>, shares: &BTreeMap<u32, Share>, unknown: Bytes) -> Bytes {
    let reserved = |slot: &u32| shares.get(slot).map_or(Bytes::ZERO, |share| share.reserved);
    let seen: Bytes = by_slot.iter().map(|(slot, bytes)| (*bytes).min(reserved(slot))).sum();
    let reported = shares.iter().filter(|(slot, _)| !by_slot.contains_key(slot)).map(|(_, share)| share.used.min(share.reserved));
    seen + unknown.min(reported.sum())
}

/// How much of other users' use is under their leases. Which of another user's processes has a lease cannot be seen: a user's use
/// counts as leased up to the user's holding.
fn under_leases(used: &BTreeMap<UserId, Bytes>, held: &BTreeMap<UserId, Bytes>) -> Bytes {
    held.iter().map(|(user, held)| used.get(user).copied().unwrap_or_default().min(*held)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_use_is_leased_up_to_what_they_hold() {
        let map = |all: &[(u32, u64)]| all.iter().map(|&(user, bytes)| (UserId(user), Bytes(bytes))).collect::<BTreeMap<_, _>>();
        for (used, held, leased) in
            [(&[(1, 3)][..], &[(1, 4)][..], 3), (&[(1, 5)], &[(1, 4)], 4), (&[(1, 5), (2, 1)], &[(2, 9), (3, 7)], 1), (&[], &[(1, 4)], 0)]
        {
            assert_eq!(under_leases(&map(used), &map(held)), Bytes(leased), "{used:?} {held:?}");
        }
    }

    #[test]
    fn a_lease_accounts_for_what_it_has_reserved() {
        let share = |reserved, used| Share { card: 0, reserved: Bytes(reserved), used: Bytes(used), peak: Bytes::ZERO };
        let shares = BTreeMap::from([(0, share(10, 8)), (1, share(20, 6))]);
        let leased = |by_slot: &[(u32, u64)], unknown| {
            leased(&by_slot.iter().map(|&(slot, bytes)| (slot, Bytes(bytes))).collect(), &shares, Bytes(unknown)).0
        };
        // Beyond its part, a lease's processes are outside of it.
        assert_eq!((leased(&[(0, 7)], 0), leased(&[(0, 15)], 0), leased(&[(0, 15), (1, 3)], 0)), (7, 10, 13));
        // The driver names no process of theirs: what they report is theirs, as far as there is use that is nobody's.
        assert_eq!((leased(&[], 9), leased(&[], 99), leased(&[(0, 7)], 99), leased(&[(0, 0), (1, 0)], 99)), (9, 14, 13, 0));
        // A member that has gone.
        assert_eq!(leased(&[(7, 5)], 0), 0);
    }
}
