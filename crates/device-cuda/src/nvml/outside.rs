//! Memory of cards that programs without a lease use.
//!
//! The driver says how much each process uses. A process is in the ledger if it, or one that it descends from, has the open file
//! description of a slot: looked up in `/proc`, which shows a user's own processes.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_cards::PhysicalDevice;
use plimsoll_machine::{Machine, UserId};

use super::Look;

/// Tells the ledger of these cards how much of each is used by programs without a lease, by the driver's figures, so that it is not
/// granted.
pub fn subtract(look: &Look, cards: &[PhysicalDevice], machine: &Machine) {
    let mut known = BTreeMap::new();
    // Unknown use is not counted as leased.
    let held = machine.held_by_others().unwrap_or_default();
    for (number, device) in cards.iter().enumerate() {
        let Some(card) = look.cards.iter().find(|card| card.device.uuid == device.uuid) else { continue };
        let mut is_leased = |pid: u32| known.entry(pid).or_insert_with(|| machine.slot_of(pid)).is_some();
        let leased: Bytes = card.processes.iter().filter(|process| is_leased(process.pid)).filter_map(|process| process.bytes).sum();
        let mut theirs: BTreeMap<UserId, Bytes> = BTreeMap::new();
        for process in card.processes.iter().filter(|_| !held.is_empty()).filter(|process| !is_leased(process.pid)) {
            if let (Some(user), Some(bytes)) = (UserId::of_process(process.pid), process.bytes) {
                *theirs.entry(user).or_default() += bytes;
            }
        }
        let theirs = held.get(number).map_or(Bytes::ZERO, |held| under_leases(&theirs, held));
        let used = card.memory.map_or(Bytes::ZERO, |memory| memory.used);
        // The number is that of a card of this ledger.
        let _ = machine.set_outside(number, used - leased - theirs);
    }
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
}
