//! Opening simulated cards: a member of the machine's ledger, and a device for each part of a card.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Device, DeviceKind, DeviceSpec, Division, InstructionSet, LogicalDevice, Options, PhysicalDevice, Reserve};
use plimsoll_device_sim::SimDevice;
use plimsoll_memory::machine::{CardInfo, Denied, Member, StateDir, Wait, Who};
use plimsoll_memory::{Ledger, Upstream};

/// Memory that grows is reserved on the card in steps of this many bytes.
const STEP: Bytes = Bytes(2 << 20);

/// The logical devices of a division that are simulated GPUs, opened: what they have to hold from the beginning is reserved
/// on the cards at once, all or nothing.
///
/// # Errors
/// RESOURCE_EXHAUSTED with CUDA_ERROR_OUT_OF_MEMORY, what was asked and who holds the rest, where a card has no room (after
/// `--wait`, if it is given); what stands in the way of the machine's ledger.
pub(crate) fn open(division: &Division, cards: &[PhysicalDevice], options: &Options) -> Result<Vec<Arc<dyn Device>>> {
    let gpus: Vec<&LogicalDevice> = division.of(DeviceKind::Gpu).collect();
    if gpus.is_empty() {
        return Ok(Vec::new());
    }
    let machine = PhysicalDevice::ledger(cards, &StateDir::find()?)?;
    let infos = machine.cards().to_vec();
    let member = Arc::new(machine.join(&Who::this_process(""))?);
    let wait = options.wait.map(|wait| Wait { priority: 0, timeout: (wait < Duration::MAX).then_some(wait) });
    let mut held: BTreeMap<usize, Bytes> = BTreeMap::new();
    for gpu in &gpus {
        *held.entry(card_of(gpu, &infos)?).or_default() += first_bytes(gpu);
    }
    let request: Vec<(usize, Bytes)> = held.into_iter().collect();
    let granted = match &wait {
        Some(wait) => member.reserve_waiting(&request, wait, &mut |_| true),
        None => member.reserve(&request),
    };
    granted.map_err(out_of_memory)?;
    gpus.into_iter().map(|gpu| device(gpu, card_of(gpu, &infos)?, &member, wait)).collect()
}

fn card_of(gpu: &LogicalDevice, infos: &[CardInfo]) -> Result<usize> {
    let uuid = gpu.card.as_ref().map(|card| card.device.uuid.as_str());
    let card = uuid.and_then(|uuid| infos.iter().position(|info| info.key == uuid));
    card.ok_or_else(|| Error::internal(format!("{} is on no card", gpu.name)))
}

/// What it holds from the beginning.
fn first_bytes(gpu: &LogicalDevice) -> Bytes {
    match gpu.reserve {
        Reserve::Whole => gpu.line().unwrap_or_default(),
        Reserve::Growth | Reserve::Plan => gpu.overhead,
    }
}

fn device(gpu: &LogicalDevice, card: usize, member: &Arc<Member>, wait: Option<Wait>) -> Result<Arc<dyn Device>> {
    let spec = DeviceSpec::simulated(gpu, InstructionSet::detect());
    let mut upstream = Upstream::new(member, card, first_bytes(gpu));
    if let Some(step) = match gpu.reserve {
        Reserve::Whole => None,
        Reserve::Growth => Some(STEP),
        Reserve::Plan => Some(Bytes(spec.granularity)),
    } {
        upstream = upstream.growing(step);
        if let Some(wait) = wait {
            upstream = upstream.waiting(wait, |_| true);
        }
    }
    let ledger = Ledger::with_upstream(spec.name.to_string(), spec.memory_limit, upstream);
    Ok(Arc::new(SimDevice::new(spec, ledger)?))
}

/// What the driver calls it, and who is in the way.
fn out_of_memory(denied: Denied) -> Error {
    Error::from(denied).context("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
}
