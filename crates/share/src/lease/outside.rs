//! Whose memory it is: programs under a lease, and programs without one.
//!
//! The driver says how much each process uses. A process is under a lease if it, or one that it descends from, has the open file
//! description of the lease: looked up in `/proc`, which shows a user's own processes.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_device::PhysicalDevice;
use plimsoll_device_cuda::Look;
use plimsoll_memory::machine::{Machine, Member};

use super::{Cards, Part};

/// How often use by programs without a lease is looked at while one waits.
pub(super) const OFTEN: Duration = Duration::from_millis(250);

/// What is used under a lease of each of its cards; none where nobody can say.
pub(super) fn used_under(cards: &Cards, member: &Member, parts: &[Part]) -> Vec<Option<Bytes>> {
    let Some(nvml) = cards.nvml() else {
        // On simulated cards our own programs say so themselves, inside of the lease.
        let seen = match member.used_inside().and_then(|inside| inside.map(|inside| inside.look()).transpose()) {
            Ok(Some(seen)) => seen,
            Ok(None) => return vec![Some(Bytes::ZERO); parts.len()],
            Err(_) => return vec![None; parts.len()],
        };
        return parts.iter().map(|part| seen.cards.get(part.card).map(|card| card.used)).collect();
    };
    let look = nvml.look();
    let (machine, slot) = (member.machine(), member.slot().number());
    let mut known = BTreeMap::new();
    let mut is_under = |pid: u32| *known.entry(pid).or_insert_with(|| machine.slot_of(pid)) == Some(slot);
    let on = |part: &Part| {
        let card = look.cards.iter().find(|card| card.device.uuid == part.device.uuid)?;
        let own: Vec<_> = card.processes.iter().filter(|process| is_under(process.pid)).collect();
        own.iter().map(|process| process.bytes).try_fold(Bytes::ZERO, |sum, bytes| Some(sum + bytes?))
    };
    parts.iter().map(on).collect()
}

/// What these processes use of the cards.
pub(super) fn used_by(cards: &Cards, pids: &[u32], parts: &[Part]) -> Bytes {
    let Some(nvml) = cards.nvml() else { return Bytes::ZERO };
    let look = nvml.look();
    let here = |uuid: &str| parts.iter().any(|part| part.device.uuid == uuid);
    let processes = look.cards.iter().filter(|card| here(&card.device.uuid)).flat_map(|card| &card.processes);
    processes.filter(|process| pids.contains(&process.pid)).filter_map(|process| process.bytes).sum()
}

/// Tells the ledger of these cards how much of each is used by programs without a lease, as the driver was seen to say, so that
/// it is not granted.
pub fn subtract(look: &Look, cards: &[PhysicalDevice], machine: &Machine) {
    let mut known = BTreeMap::new();
    for (number, device) in cards.iter().enumerate() {
        let Some(card) = look.cards.iter().find(|card| card.device.uuid == device.uuid) else { continue };
        let mut is_leased = |pid: u32| known.entry(pid).or_insert_with(|| machine.slot_of(pid)).is_some();
        let leased: Bytes = card.processes.iter().filter(|process| is_leased(process.pid)).filter_map(|process| process.bytes).sum();
        let used = card.memory.map_or(Bytes::ZERO, |memory| memory.used);
        // The number is that of a card of this ledger.
        let _ = machine.set_outside(number, used - leased);
    }
}
