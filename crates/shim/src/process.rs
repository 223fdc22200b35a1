//! The part of this process in its lease: its place in the lease's ledger, and the purpose of each byte that it holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::*};
use std::sync::{Mutex, PoisonError};

use plimsoll_base::Bytes;
use plimsoll_machine::{Identity, Last, Machine, Member, StateDir};

use crate::abi::{Device, Opaque, SUCCESS, Uuid};
use crate::driver::driver;
use crate::file_limit::NoSignal;
use crate::{context, graph, plain, pool, vmm};

/// Whether this process was started under a lease. Looked up once: without one the shim does nothing.
pub fn is_leased() -> bool {
    static LEASED: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    match LEASED.load(Relaxed) {
        UNKNOWN => {
            let leased = std::env::var_os("PLIMSOLL_LEASE").is_some_and(|lease| !lease.is_empty());
            LEASED.store(if leased { YES } else { NO }, Relaxed);
            leased
        }
        known => known == YES,
    }
}

/// A process and its state. A fork makes one of its own. The bytes and the place in the ledger stay the parent's. The driver's
/// memory outlives the place no longer than the fork's copies of the driver's files.
struct Cell {
    pid: u32,
    process: Mutex<Process>,
}

static CELL: AtomicPtr<Cell> = AtomicPtr::new(std::ptr::null_mut());

/// Works with this process's part of its lease, while no other thread does. Calls no wrapper.
pub fn with<R>(act: impl FnOnce(&mut Process) -> R) -> R {
    let pid = std::process::id();
    let mut cell = CELL.load(Acquire);
    // SAFETY: a stored value is never freed.
    while cell.is_null() || unsafe { (*cell).pid } != pid {
        let own = Box::into_raw(Box::new(Cell { pid, process: Mutex::new(Process::default()) }));
        cell = match CELL.compare_exchange(cell, own, AcqRel, Acquire) {
            Ok(_) => own,
            Err(other) => {
                // SAFETY: made just now, and not yet visible to other threads.
                drop(unsafe { Box::from_raw(own) });
                other
            }
        };
    }
    // SAFETY: as above; the mutex is this process's own.
    let mut process = unsafe { &(*cell).process }.lock().unwrap_or_else(PoisonError::into_inner);
    let _no_signal = NoSignal::begin();
    act(&mut process)
}

/// As [`with`]; nothing without a lease.
pub fn leased<R: Default>(act: impl FnOnce(&mut Process) -> R) -> R {
    if is_leased() { with(act) } else { R::default() }
}

/// The part of a process in its lease.
#[derive(Default)]
pub struct Process {
    machine: Option<Machine>,
    member: Option<(Member, Option<Last>)>,
    /// The card that each device is: none where the lease has nothing of it.
    cards: HashMap<Device, Option<usize>>,
    /// Bytes of each card that are reserved here.
    held: HashMap<usize, u64>,
    pub plain: plain::Records,
    pub handles: vmm::Records,
    pub pools: pool::Records,
    pub graphs: graph::Records,
    pub contexts: context::Records,
}

impl Process {
    /// The ledger of the lease. Where it cannot be used, it is tried again the next time.
    pub fn machine(&mut self) -> Option<&Machine> {
        if self.machine.is_none() {
            let lease = std::env::var("PLIMSOLL_LEASE").ok()?;
            self.machine = Some(Machine::of_lease(&StateDir::find().ok()?, &lease).ok()?);
        }
        self.machine.as_ref()
    }

    fn member(&mut self) -> Option<&Member> {
        if self.member.is_none() {
            let member = self.machine()?.join(&Identity::this_process("")).ok()?;
            let last = member.give_back_last().ok();
            self.member = Some((member, last));
        }
        self.member.as_ref().map(|(member, _)| member)
    }

    /// The card of the ledger with one of these keys, if the lease has something of it.
    pub fn card_with_key<'a>(&mut self, keys: impl IntoIterator<Item = &'a str>) -> Option<usize> {
        let machine = self.machine()?;
        let has = |card: &usize| machine.cards().get(*card).is_some_and(|card| card.capacity > Bytes::ZERO);
        keys.into_iter().find_map(|key| machine.card_with_key(key)).filter(has)
    }

    /// The card that a device of CUDA is; none where the lease has nothing of it.
    pub fn card(&mut self, device: Device) -> Option<usize> {
        if let Some(card) = self.cards.get(&device) {
            return *card;
        }
        let keys = keys(device)?;
        self.machine()?;
        let card = self.card_with_key(keys.iter().map(String::as_str));
        self.cards.insert(device, card);
        card
    }

    /// The devices on which something was looked up.
    pub fn devices(&self) -> Vec<Device> {
        self.cards.keys().copied().collect()
    }

    /// How much of a card the lease has.
    pub fn limit(&mut self, card: usize) -> u64 {
        self.machine().and_then(|machine| machine.cards().get(card)).map_or(0, |card| card.capacity.0)
    }

    /// How much of a card all programs under the lease hold; all of it where that cannot be seen.
    pub fn used(&mut self, card: usize) -> u64 {
        let seen = self.machine().and_then(|machine| machine.reserved().ok());
        seen.and_then(|cards| cards.get(card).copied()).map_or(u64::MAX, |bytes| bytes.0)
    }

    /// Reserves bytes of a card; whether there was room. Waits for the ledger at most as long as that does.
    pub fn reserve(&mut self, card: usize, bytes: u64) -> bool {
        self.try_reserve(card, bytes).unwrap_or(false)
    }

    /// As [`Process::reserve`]; a refusal is counted.
    pub fn reserve_or_refuse(&mut self, card: usize, bytes: u64) -> bool {
        let reserved = self.try_reserve(card, bytes);
        // A ledger that cannot be used now is not waited for a second time.
        if reserved == Some(false) {
            self.member().into_iter().for_each(|member| {
                let _ = member.count_refusal(card);
            });
        }
        reserved.unwrap_or(false)
    }

    /// As [`Process::reserve`]; none where the ledger cannot be used.
    fn try_reserve(&mut self, card: usize, bytes: u64) -> Option<bool> {
        if bytes == 0 {
            return Some(true);
        }
        let reserved = self.member()?.try_reserve(card, Bytes(bytes)).ok()?;
        if reserved {
            let held = self.held.entry(card).or_default();
            *held += bytes;
            let held = Bytes(*held);
            self.member().into_iter().for_each(|member| member.set_used(card, held));
        }
        Some(reserved)
    }

    /// Gives bytes of a card back.
    pub fn give_back(&mut self, card: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let held = self.held.entry(card).or_default();
        *held = held.saturating_sub(bytes);
        let held = Bytes(*held);
        if let Some(member) = self.member() {
            member.set_used(card, held);
            // Where the ledger cannot be used, the next change of any kind says it.
            let _ = member.release(&[(card, Bytes(bytes))]);
        }
    }
}

/// A device, and a context on it.
#[derive(Clone, Copy)]
pub struct Place {
    pub device: Device,
    pub context: usize,
}

/// Where the calling thread allocates; none where it has no context, which the driver will say itself.
pub fn place() -> Option<Place> {
    let (mut device, mut context): (Device, Opaque) = (0, std::ptr::null_mut());
    // SAFETY: the driver writes to locals.
    let status =
        unsafe { [driver!(c"cuCtxGetDevice"(*mut Device))?(&mut device), driver!(c"cuCtxGetCurrent"(*mut Opaque))?(&mut context)] };
    (status == [SUCCESS; 2]).then_some(Place { device, context: context as usize })
}

/// The names by which a ledger may know a device. A part of a card has one of its own; before there were such, all had the card's.
fn keys(device: Device) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut uuid: Uuid = [0; 16];
    // SAFETY: the driver writes 16 bytes to the local.
    if driver!(c"cuDeviceGetUuid_v2"(*mut Uuid, Device)).is_some_and(|get| unsafe { get(&mut uuid, device) } == SUCCESS) {
        keys.extend([text("GPU", &uuid), text("MIG", &uuid)]);
    }
    // SAFETY: as above.
    if driver!(c"cuDeviceGetUuid"(*mut Uuid, Device)).is_some_and(|get| unsafe { get(&mut uuid, device) } == SUCCESS) {
        keys.push(text("GPU", &uuid));
    }
    (!keys.is_empty()).then_some(keys)
}

/// Whether the driver knows no such device, or knows none yet.
pub fn is_unknown(device: Device) -> bool {
    let mut uuid: Uuid = [0; 16];
    // SAFETY: the driver writes 16 bytes to the local.
    driver!(c"cuDeviceGetUuid"(*mut Uuid, Device)).is_some_and(|get| unsafe { get(&mut uuid, device) } != SUCCESS)
}

/// A UUID as the driver's tools write it.
fn text(kind: &str, uuid: &Uuid) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_ledger_has_it() {
        let uuid: Uuid = std::array::from_fn(|at| at as u8 * 0x11);
        assert_eq!(text("GPU", &uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
