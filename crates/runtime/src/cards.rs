//! Opening simulated cards: a member of the machine's ledger, and a device for each part of a card.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{Division, Environment, LogicalDevice, Options, PhysicalDevice, Reserve};
use plimsoll_device::{Device, DeviceKind, InstructionSet};
use plimsoll_device_sim::{Compute, SimDevice};
use plimsoll_kernels::CpuKernels;
use plimsoll_machine::{CardInfo, CardUpstream, Denied, Identity, Machine, Member, OUT_OF_MEMORY, StateDir, Wait};
use plimsoll_memory::Ledger;

use crate::cancellation::Asking;

/// Memory that grows is reserved on the card in steps of this many bytes.
const STEP: Bytes = Bytes(2 << 20);

/// The logical devices of a division that are simulated GPUs, opened. Bytes that they have to hold from the beginning are reserved
/// on the cards at once, all or nothing.
///
/// # Errors
/// RESOURCE_EXHAUSTED with CUDA_ERROR_OUT_OF_MEMORY, the bytes asked and the holders of the rest, where a card has no room. With
/// `--wait`, that is after the wait. The obstacle to the machine's ledger.
pub(crate) fn open(
    division: &Division,
    cards: &[PhysicalDevice],
    leased: Option<Machine>,
    options: &Options,
    asking: &Arc<Asking>,
) -> Result<Vec<Arc<dyn Device>>> {
    match division.of(DeviceKind::Gpu).next() {
        Some(_) => open_on(leased.map_or_else(|| PhysicalDevice::ledger(cards, &StateDir::find()?), Ok)?, division, options, asking),
        None => Ok(Vec::new()),
    }
}

/// The ledger of the lease under which this program was started: the cards become the lease's part of them. None without one.
///
/// # Errors
/// FAILED_PRECONDITION where the lease has ended; otherwise the obstacle to the machine's ledger.
pub(crate) fn of_a_lease(cards: &mut [PhysicalDevice], environment: &Environment) -> Result<Option<Machine>> {
    if cards.is_empty() || environment.get("PLIMSOLL_LEASE").is_none_or(str::is_empty) {
        return Ok(None);
    }
    PhysicalDevice::leased_ledger(cards, &StateDir::find()?, environment).map(Some)
}

/// As [`open`], with that ledger.
fn open_on(machine: Machine, division: &Division, options: &Options, asking: &Arc<Asking>) -> Result<Vec<Arc<dyn Device>>> {
    let gpus: Vec<&LogicalDevice> = division.of(DeviceKind::Gpu).collect();
    let infos = machine.cards().to_vec();
    let wait = options.wait.map(|wait| Wait { priority: 0, timeout: (wait < Duration::MAX).then_some(wait) });
    let identity = Identity::this_process("");
    let member = Arc::new(match &wait {
        Some(wait) => machine.join_waiting(&identity, wait, &mut |_| true)?,
        None => machine.join(&identity)?,
    });
    let (mut held, mut used): (BTreeMap<usize, Bytes>, BTreeMap<usize, Bytes>) = Default::default();
    for gpu in &gpus {
        let card = card_of(gpu, &infos)?;
        *held.entry(card).or_default() += first_bytes(gpu);
        *used.entry(card).or_default() += if gpu.preallocate { first_bytes(gpu) } else { gpu.overhead };
    }
    let request: Vec<(usize, Bytes)> = held.into_iter().collect();
    let granted = match &wait {
        Some(wait) => member.reserve_waiting(&request, wait, &mut |_| true),
        None => member.reserve(&request),
    };
    granted.map_err(out_of_memory)?;
    used.into_iter().for_each(|(card, used)| member.set_used(card, used));
    let mut computes: BTreeMap<usize, Arc<Compute>> = BTreeMap::new();
    let mut open = |gpu| {
        let card = card_of(gpu, &infos)?;
        device(gpu, card, computes.entry(card).or_default(), &member, wait.map(|wait| (wait, asking)))
    };
    gpus.into_iter().map(&mut open).collect()
}

fn card_of(gpu: &LogicalDevice, infos: &[CardInfo]) -> Result<usize> {
    let uuid = gpu.card.as_ref().map(|card| card.device.uuid.as_str());
    let card = uuid.and_then(|uuid| infos.iter().position(|info| info.key == uuid));
    card.ok_or_else(|| Error::internal(format!("{} is on no card", gpu.name)))
}

/// The bytes that it holds from the beginning.
fn first_bytes(gpu: &LogicalDevice) -> Bytes {
    match gpu.reserve {
        Reserve::Whole => gpu.line().unwrap_or_default(),
        Reserve::Growth | Reserve::Plan => gpu.overhead,
    }
}

fn device(
    gpu: &LogicalDevice,
    card: usize,
    compute: &Arc<Compute>,
    member: &Arc<Member>,
    wait: Option<(Wait, &Arc<Asking>)>,
) -> Result<Arc<dyn Device>> {
    let spec = gpu.simulated_spec(InstructionSet::detect());
    let mut upstream = CardUpstream::new(member, card, first_bytes(gpu));
    if let Some(step) = match gpu.reserve {
        Reserve::Whole => None,
        Reserve::Growth => Some(STEP),
        Reserve::Plan => Some(Bytes(spec.granularity)),
    } {
        upstream = upstream.growing(step);
        if let Some((wait, asking)) = wait {
            let asking = asking.clone();
            upstream = upstream.waiting(wait, move |_| asking.may_wait());
        }
    }
    if gpu.preallocate {
        upstream = upstream.touched();
    }
    let ledger = Ledger::with_upstream(spec.name.to_string(), spec.memory_limit, upstream);
    Ok(Arc::new(SimDevice::on(compute, spec, ledger, Arc::new(CpuKernels))?))
}

/// The driver's name for it, and the holders.
fn out_of_memory(denied: Denied) -> Error {
    Error::from(denied).context(OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reserved and used on each card by the process that opens devices so, as another process sees them.
    fn seen_from_outside(spec: &str, options: &Options, touch: Bytes) -> Vec<(Bytes, Bytes)> {
        let name = format!("plimsoll-runtime-cards-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let folder = StateDir::open(&path).unwrap();
        let options = options.clone().sim_gpus(spec);
        let cards = options.simulated_cards(&Environment::new()).unwrap();
        let division = plimsoll_cards::resolve(&cards, &options, &Environment::new()).unwrap();
        let devices = open_on(PhysicalDevice::ledger(&cards, &folder).unwrap(), &division, &options, &Arc::default()).unwrap();
        let blocks: Vec<_> = devices.iter().map(|device| device.allocate(touch, "a block").unwrap()).collect();
        let machine = PhysicalDevice::ledger(&cards, &folder).unwrap();
        let look = || {
            let seen = machine.look().unwrap();
            let sum = |card, of: fn(&plimsoll_machine::Share) -> Bytes| seen.holders(card).iter().map(|(_, share)| of(share)).sum();
            (0..cards.len()).map(|card| (sum(card, |share| share.reserved), sum(card, |share| share.used))).collect::<Vec<(Bytes, Bytes)>>()
        };
        let held = look();
        drop(blocks);
        drop(devices);
        assert!(look().iter().all(|card| *card == (Bytes::ZERO, Bytes::ZERO)), "{spec}: all comes back");
        let _ = std::fs::remove_dir_all(path);
        held
    }

    #[test]
    fn others_see_what_is_reserved_and_what_of_it_is_used() {
        let mib = |n: u64| Bytes(n << 20);
        let with_context = "1x256MiB,overhead=6MiB";
        let fraction = Options::new().memory_fraction(0.25);
        // Context and block count as used; reserved bytes that were not touched do not.
        assert_eq!(seen_from_outside(with_context, &fraction, mib(1)), [(mib(70), mib(7))]);
        assert_eq!(seen_from_outside(with_context, &Options::new().allow_growth(true), mib(1)), [(mib(8), mib(7))]);
        // Touched beforehand: all that is reserved, on every card, whatever steps take of it.
        assert_eq!(seen_from_outside(with_context, &fraction.preallocate(true), mib(1)), [(mib(70), mib(70))]);
        // Without a fraction the whole card, but for the 225 MiB that TensorFlow leaves to the system.
        assert_eq!(seen_from_outside("2x256MiB", &Options::new().preallocate(true), mib(1)), [(mib(31), mib(31)); 2]);
        // Two parts of one card add up.
        let parts = Options::new().limit("GPU:0", "8MiB+8MiB").preallocate(true);
        assert_eq!(seen_from_outside(with_context, &parts, mib(1)), [(mib(16), mib(16))]);
    }
}
