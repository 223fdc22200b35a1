//! The cards of a program: found and divided, then opened as a member of the machine's ledger, with a device for each part of a card.

mod described;
mod found;
mod nvidia;
mod seat;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_cards::{Division, Environment, LogicalDevice, Options, PhysicalDevice, Processor, Reserve, resolve};
use plimsoll_device::{Bf16Instructions, Device, DeviceKind, DeviceSpec, InstructionSet};
use plimsoll_device_cuda::{CudaCard, CudaDevice, EngineLimits, GraphUse};
use plimsoll_device_sim::{Compute, SimDevice};
use plimsoll_kernels::CpuKernels;
use plimsoll_machine::{CardInfo, CardUpstream, Machine, StateDir};
use plimsoll_memory::Ledger;

use crate::cancellation::Asking;
pub(crate) use described::{describe, described};
pub(crate) use found::Found;
use nvidia::{Contexts, Nvidia};
use seat::Seat;

/// The processor of this machine.
pub(crate) fn processor() -> Processor {
    Processor {
        instructions: InstructionSet::detect(),
        bf16: Bf16Instructions::detect(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        caches: plimsoll_device_cpu::caches(),
        memory: plimsoll_memory::physical_memory(),
    }
}

/// The logical devices of a processor that computes with so many threads, as the options say.
pub(crate) fn processors(division: &Division, processor: &Processor, threads: usize, options: &Options) -> Vec<DeviceSpec> {
    let bf16 = options.matmul_precision.instructions(processor.bf16);
    let spec = |cpu: &LogicalDevice| DeviceSpec {
        machine: processor.memory,
        bf16,
        caches: processor.caches,
        ..cpu.cpu_spec(threads as u32, processor.instructions)
    };
    division.of(DeviceKind::Cpu).map(spec).collect()
}

/// Memory that grows is reserved on the card in steps of this many bytes.
const STEP: Bytes = Bytes(2 << 20);

/// The logical devices that are GPUs, opened, and the division that has them. Bytes that they have to hold from the beginning are
/// reserved on the cards at once, all or nothing. Where NVIDIA's driver refuses to compute there is none, and the division says why.
///
/// # Errors
/// RESOURCE_EXHAUSTED with CUDA_ERROR_OUT_OF_MEMORY, the bytes asked and the holders of the rest, where a card has no room. With
/// `--wait`, that is after the wait. The obstacle to the machine's ledger.
pub(crate) fn open(
    mut found: Found,
    options: &Options,
    environment: &Environment,
    asking: &Arc<Asking>,
) -> Result<(Division, Vec<Arc<dyn Device>>)> {
    if found.division.of(DeviceKind::Gpu).next().is_none() {
        return Ok((found.division, Vec::new()));
    }
    let ledger = found.ledger.take().map_or_else(|| PhysicalDevice::ledger(&found.cards, &StateDir::find()?), Ok)?;
    open_on(&ledger, found, options, environment, asking)
}

/// As [`open`], with that ledger.
fn open_on(
    ledger: &Machine,
    found: Found,
    options: &Options,
    environment: &Environment,
    asking: &Arc<Asking>,
) -> Result<(Division, Vec<Arc<dyn Device>>)> {
    let Found { mut cards, mut division, nvidia, .. } = found;
    let infos = ledger.cards();
    let seat = Seat::take(ledger, &cards, nvidia.as_ref(), options)?;
    let mut contexts = Contexts::new();
    if let Some(nvidia) = &nvidia {
        let mut failed = None;
        // Where a card is left out, another one may come in its place.
        loop {
            let parts = parts(&division, infos)?;
            failed = open_new(nvidia, &seat, parts.keys().copied(), &mut cards, &mut contexts)?.or(failed);
            for (&card, opened) in &contexts {
                // Each logical device has a piece of the card, and room for graphs, for itself.
                let count = parts.get(&card).copied().unwrap_or(0);
                cards[card].overhead = opened.context + Bytes(CudaDevice::own(opened.card.name(), opened.card.granularity()).0 * count);
            }
            division = resolve(&cards, options, environment)?;
            if self::parts(&division, infos)? == parts {
                close_others(&seat, &parts, &mut contexts)?;
                break;
            }
        }
        if let Some(why) = failed.filter(|_| contexts.is_empty()) {
            return Found::without(&why, options, environment).map(|found| (found.division, Vec::new()));
        }
        division.notes.extend_from_slice(&nvidia.notes);
        division.notes.extend(contexts.values().filter_map(|opened| opened.trouble.clone()));
    }
    let gpus: Vec<&LogicalDevice> = division.of(DeviceKind::Gpu).collect();
    let (mut held, mut used): (BTreeMap<usize, Bytes>, BTreeMap<usize, Bytes>) = Default::default();
    for gpu in &gpus {
        let card = card_of(gpu, infos)?;
        *held.entry(card).or_default() += first_bytes(gpu);
        *used.entry(card).or_default() += if gpu.preallocate { first_bytes(gpu) } else { gpu.overhead };
    }
    seat.hold(&held, &cards, &mut contexts)?;
    used.into_iter().for_each(|(card, used)| seat.member.set_used(card, used));
    let opened = contexts.into_iter().map(|(card, opened)| (card, Board::Nvidia(opened.card)));
    let mut boards: BTreeMap<usize, Board> = opened.collect();
    let limits = limits(options, environment);
    let mut open = |gpu| {
        let card = card_of(gpu, infos)?;
        device(gpu, card, boards.entry(card).or_default(), &seat, asking, (limits, options))
    };
    let devices = gpus.into_iter().map(&mut open).collect::<Result<_>>()?;
    Ok((division, devices))
}

/// What engines of cuDNN have to keep to.
fn limits(options: &Options, environment: &Environment) -> EngineLimits {
    let workspace = options.cudnn_workspace_in(environment).unwrap_or(EngineLimits::WORKSPACE);
    EngineLimits { tensor_float_32: options.tensor_float_32, workspace }
}

/// Opens those of these cards that are not open. One that cannot compute is unusable then; the first of their errors.
fn open_new(
    nvidia: &Nvidia,
    seat: &Seat,
    wanted: impl Iterator<Item = usize>,
    cards: &mut [PhysicalDevice],
    contexts: &mut Contexts,
) -> Result<Option<Error>> {
    let new: Vec<usize> = wanted.filter(|card| !contexts.contains_key(card)).collect();
    if new.is_empty() {
        return Ok(None);
    }
    seat.make_room(&new)?;
    if let Some(outside) = &seat.outside {
        // Programs came and went during a wait.
        outside.see_available(cards);
    }
    let mut failed = None;
    for number in new {
        let card = &mut cards[number];
        match nvidia.open(&card.uuid, seat.bound(number)) {
            Ok(opened) => {
                contexts.insert(number, opened);
            }
            Err(error) if error.code() == Code::ResourceExhausted => return Err(error),
            Err(error) => {
                seat.give_back(number)?;
                card.unusable = Some(format!("because {}", error.message()));
                failed.get_or_insert(error);
            }
        }
    }
    Ok(failed)
}

/// Closes cards of which nothing is made.
fn close_others(seat: &Seat, parts: &BTreeMap<usize, u64>, contexts: &mut Contexts) -> Result<()> {
    let others: Vec<usize> = contexts.keys().copied().filter(|card| !parts.contains_key(card)).collect();
    others.into_iter().try_for_each(|card| {
        contexts.remove(&card);
        seat.give_back(card)
    })
}

/// What computes on a card.
enum Board {
    Simulated(Arc<Compute>),
    Nvidia(Arc<CudaCard>),
}

impl Default for Board {
    fn default() -> Board {
        Board::Simulated(Arc::default())
    }
}

/// How many logical devices each card becomes.
fn parts(division: &Division, infos: &[CardInfo]) -> Result<BTreeMap<usize, u64>> {
    let mut parts = BTreeMap::new();
    for gpu in division.of(DeviceKind::Gpu) {
        *parts.entry(card_of(gpu, infos)?).or_default() += 1;
    }
    Ok(parts)
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
    board: &Board,
    seat: &Seat,
    asking: &Arc<Asking>,
    (limits, options): (EngineLimits, &Options),
) -> Result<Arc<dyn Device>> {
    let instructions = InstructionSet::detect();
    let spec = match board {
        Board::Simulated(_) => gpu.simulated_spec(instructions),
        Board::Nvidia(card) => CudaDevice::spec(card.granularity(), gpu.real_spec(instructions)),
    };
    let ledger = Ledger::with_upstream(spec.name.to_string(), spec.memory_limit, upstream(gpu, card, &spec, seat, asking));
    Ok(match board {
        Board::Simulated(compute) => Arc::new(SimDevice::on(compute, spec, ledger, Arc::new(CpuKernels))?),
        Board::Nvidia(card) => {
            let library = card.library(limits, options.cudnn, options.tuned.as_deref());
            Arc::new(CudaDevice::on(card, spec, ledger, library, GraphUse::on(card.name()))?)
        }
    })
}

/// The device's part of the card.
fn upstream(gpu: &LogicalDevice, card: usize, spec: &DeviceSpec, seat: &Seat, asking: &Arc<Asking>) -> CardUpstream {
    let mut upstream = CardUpstream::new(&seat.member, card, first_bytes(gpu));
    if let Some(step) = match gpu.reserve {
        Reserve::Whole => None,
        Reserve::Growth => Some(STEP),
        Reserve::Plan => Some(Bytes(spec.granularity)),
    } {
        upstream = upstream.growing(step);
        if let Some(outside) = seat.outside.clone() {
            upstream = upstream.seeing_outside(move || outside.see());
        }
        if let Some(wait) = seat.wait {
            let asking = asking.clone();
            upstream = upstream.waiting(wait, move |_| asking.may_wait());
        }
    }
    if gpu.preallocate { upstream.touched() } else { upstream }
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
        let division = resolve(&cards, &options, &Environment::new()).unwrap();
        let found = Found { cards: cards.clone(), ledger: None, division, nvidia: None };
        let ledger = PhysicalDevice::ledger(&cards, &folder).unwrap();
        let (_, devices) = open_on(&ledger, found, &options, &Environment::new(), &Arc::default()).unwrap();
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
