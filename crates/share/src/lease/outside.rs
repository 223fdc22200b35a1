//! Whose memory it is: programs under a lease, and other programs.
//!
//! The driver says how much each process uses. A process is under a lease if it, or one that it descends from, has the open file
//! description of the lease: looked up in `/proc`, which shows a user's own processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_machine::Member;

use super::{Cards, Part};

/// How often use by programs without a lease is looked at while one waits.
pub(super) const OFTEN: Duration = Duration::from_millis(250);

/// A card as the driver shows it to one that has a lease of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenCard {
    /// Used under the lease; none where that cannot be told.
    pub bytes: Option<Bytes>,
    /// Processes under the lease that use it.
    pub own: Vec<u32>,
    /// Other processes that use it.
    pub others: Vec<u32>,
}

/// The bytes of each of its cards that are used under a lease.
pub(super) fn seen_under(cards: &Cards, member: &Member, parts: &[Part]) -> Vec<SeenCard> {
    let Some(nvml) = cards.nvml() else {
        // On simulated cards our own programs say so themselves, inside of the lease.
        let inside = member.used_inside().and_then(|inside| inside.map(|inside| inside.look()).transpose()).ok().flatten();
        let on = |part: &Part| inside.as_ref()?.cards.get(part.card).map(|card| card.used);
        return parts.iter().map(|part| SeenCard { bytes: on(part), ..SeenCard::default() }).collect();
    };
    let look = nvml.look();
    let (machine, slot) = (member.machine(), member.slot().number());
    let mut known = BTreeMap::new();
    let mut is_under = |pid: u32| *known.entry(pid).or_insert_with(|| machine.slot_of(pid)) == Some(slot);
    let on = |part: &Part| {
        let Some(card) = look.cards.iter().find(|card| card.device.uuid == part.device.uuid) else { return SeenCard::default() };
        let (own, others): (Vec<_>, Vec<_>) = card.processes.iter().partition(|process| is_under(process.pid));
        let sum = own.iter().map(|process| process.bytes).try_fold(Bytes::ZERO, |sum, bytes| Some(sum + bytes?));
        let pids = |processes: Vec<&plimsoll_device_cuda::Process>| processes.iter().map(|process| process.pid).collect::<Vec<u32>>();
        let (own, others) = (pids(own), pids(others));
        // A number that is not seen here may be that of a process of ours, as the driver counts outside of a container.
        let may_be_ours = own.is_empty() && others.iter().any(|&pid| !is_seen(pid));
        SeenCard { bytes: sum.filter(|_| !may_be_ours), own, others }
    };
    parts.iter().map(on).collect()
}

/// Whether a process is seen under that number.
pub(super) fn is_seen(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The bytes of the cards that these processes use; none where the driver does not say.
pub(super) fn used_by(cards: &Cards, pids: &[u32], parts: &[Part]) -> Option<Bytes> {
    let look = cards.nvml()?.look();
    let here = |uuid: &str| parts.iter().any(|part| part.device.uuid == uuid);
    let processes = look.cards.iter().filter(|card| here(&card.device.uuid)).flat_map(|card| &card.processes);
    processes
        .filter(|process| pids.contains(&process.pid))
        .map(|process| process.bytes)
        .try_fold(Bytes::ZERO, |sum, bytes| Some(sum + bytes?))
}
