//! Whether the cards of a lease are used, as far as the driver shows it.

use std::collections::BTreeSet;
use std::time::SystemTime;

use plimsoll_base::Bytes;
use plimsoll_device_cuda::Activity;
use plimsoll_machine::LastUse;

use super::Lease;
use super::outside::{SeenCard, is_seen};

/// Whether something is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InUse {
    /// It is not.
    No,
    /// That cannot be told.
    Unknown,
    /// It is.
    Yes,
}

/// The cards of a lease, looked at again and again.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    before: Vec<Activity>,
    /// Processes that were under the lease.
    own: BTreeSet<u32>,
    bytes: Vec<Option<Bytes>>,
    last: LastUse,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether something ran on one of the cards for the lease since the look before.
    pub card: InUse,
    /// Whether the bytes in use of one of them have changed since.
    pub memory: InUse,
}

impl Watched {
    /// Looks whether the cards were used since the look before, and tells others. `seen` is the driver's view of memory.
    pub fn look(&mut self, lease: &Lease, seen: &[SeenCard]) -> Look {
        let bytes: Vec<Option<Bytes>> = seen.iter().map(|seen| seen.bytes).collect();
        let memory = changed(&self.bytes, &bytes);
        self.bytes = bytes;
        self.own.extend(seen.iter().flat_map(|seen| &seen.own));
        let now = lease.cards().nvml().map(|nvml| nvml.activity(&self.before)).unwrap_or_default();
        let is_first = self.before.is_empty();
        let on = |(part, seen): (&super::Part, &SeenCard)| {
            let Some(activity) = now.iter().find(|activity| activity.uuid == part.device.uuid) else { return InUse::Unknown };
            let is_own = |pid: u32| self.own.contains(&pid) || lease.has(pid);
            judge(activity, &seen.own, &seen.others, &is_own, &is_seen)
        };
        let uses: Vec<InUse> = lease.parts().iter().zip(seen).map(on).collect();
        let card = uses.into_iter().max().unwrap_or(InUse::Unknown);
        self.before = now;
        let time = Some(SystemTime::now());
        // The beginning counts as a use, so that there is something to count from.
        if card == InUse::Yes || (is_first && card == InUse::No) {
            self.last.card = time;
        }
        if memory == InUse::Yes || (is_first && memory == InUse::No) {
            self.last.memory = time;
        }
        lease.show_last_use(self.last);
        Look { card, memory }
    }

    /// Whether use of the cards can be observed: of each of them the driver says which processes run, or at least whether any does.
    pub fn is_possible(lease: &Lease) -> bool {
        let now = lease.cards().nvml().map(|nvml| nvml.activity(&[])).unwrap_or_default();
        let says = |activity: &Activity| activity.processes.is_some() || activity.utilisation.is_some();
        lease.parts().iter().all(|part| now.iter().any(|activity| activity.uuid == part.device.uuid && says(activity)))
    }
}

/// Whether bytes in use have changed.
fn changed(before: &[Option<Bytes>], now: &[Option<Bytes>]) -> InUse {
    if now.iter().any(Option::is_none) {
        return InUse::Unknown;
    }
    let is_other = !before.is_empty() && before != now;
    if is_other { InUse::Yes } else { InUse::No }
}

/// Whether a card is used by processes under a lease. `own` and `others` are those that have memory on it.
fn judge(activity: &Activity, own: &[u32], others: &[u32], is_own: &dyn Fn(u32) -> bool, is_seen: &dyn Fn(u32) -> bool) -> InUse {
    let nothing_runs = activity.utilisation == Some(0);
    match &activity.processes {
        Some(ran) if ran.iter().any(|&pid| is_own(pid)) => InUse::Yes,
        // A process that ran and is not seen may be ours, and the driver counts outside of a container.
        Some(ran) if !nothing_runs && ran.iter().any(|&pid| !is_seen(pid)) => InUse::Unknown,
        Some(_) => InUse::No,
        None if nothing_runs => InUse::No,
        // Something runs: ours, where there is nothing else.
        None if activity.utilisation.is_some() && others.is_empty() && !own.is_empty() => InUse::Yes,
        None if activity.utilisation.is_some() && own.is_empty() && others.iter().all(|&pid| is_seen(pid)) => InUse::No,
        None => InUse::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_told_where_it_can_be() {
        use InUse::*;
        let judged = |processes: Option<&[u32]>, utilisation: Option<u32>, own: &[u32], others: &[u32]| {
            let activity = Activity { uuid: String::new(), processes: processes.map(<[u32]>::to_vec), utilisation, at: 0 };
            // Numbers below 10 are ours, those from 100 on are not seen.
            judge(&activity, own, others, &|pid| pid < 10, &|pid| pid < 100)
        };
        // The driver says which process ran.
        assert_eq!(judged(Some(&[7]), Some(3), &[7], &[]), Yes);
        assert_eq!(judged(Some(&[50, 7]), None, &[7], &[50]), Yes);
        assert_eq!(judged(Some(&[50]), Some(99), &[7], &[50]), No, "another one computes");
        assert_eq!(judged(Some(&[]), Some(99), &[7], &[]), No);
        assert_eq!(judged(Some(&[100]), Some(9), &[7], &[]), Unknown, "that may be ours in a container");
        assert_eq!(judged(Some(&[100]), Some(0), &[7], &[]), No);
        // It says how busy the card is.
        assert_eq!(judged(None, Some(0), &[7], &[50]), No);
        assert_eq!(judged(None, Some(1), &[7], &[]), Yes);
        assert_eq!(judged(None, Some(1), &[7], &[50]), Unknown);
        assert_eq!(judged(None, Some(1), &[], &[50]), No, "ours have nothing on it");
        assert_eq!(judged(None, Some(1), &[], &[100]), Unknown);
        // It says nothing.
        assert_eq!(judged(None, None, &[7], &[]), Unknown);
    }

    #[test]
    fn memory_that_changes_is_used() {
        let bytes = |values: &[Option<u64>]| values.iter().map(|value| value.map(Bytes)).collect::<Vec<_>>();
        let told = |before: &[Option<u64>], now: &[Option<u64>]| changed(&bytes(before), &bytes(now));
        assert_eq!(told(&[], &[Some(5)]), InUse::No, "the first look");
        assert_eq!(told(&[Some(5)], &[Some(5)]), InUse::No);
        assert_eq!(told(&[Some(5), Some(1)], &[Some(5), Some(0)]), InUse::Yes);
        assert_eq!(told(&[Some(5)], &[None]), InUse::Unknown);
        assert_eq!(told(&[None], &[Some(5)]), InUse::Yes);
    }
}
