//! Cards divided into logical GPUs: limits, order, reserved bytes.

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{DeviceKind, DeviceName};

use super::limit::{self, Limit};
use super::logical::{AllocatorKind, AllocatorOptions, Card, Link, LogicalDevice, Reserve};
use crate::{Environment, GpuConfig, Options};

/// A part of a card, before it has a number.
struct Part {
    /// The position of the card among those used.
    card: usize,
    limit: Limit,
    /// Whether the limit was given with the overhead in it.
    overhead_inside: bool,
    ordinal: i32,
}

/// The logical GPUs that the cards become, in the order of their numbers. There is at least one card, and `virtual_devices`, if
/// they count, has one message for each.
///
/// # Errors
/// As [`super::resolve`].
pub(super) fn gpus(cards: &[Card], options: &Options, environment: &Environment, notes: &mut Vec<String>) -> Result<Vec<LogicalDevice>> {
    let config = &options.gpu;
    let configured = if options.divides_as_configured() { config.virtual_devices.as_slice() } else { &[] };
    let mut parts = Vec::new();
    for (position, card) in cards.iter().enumerate() {
        let mut part = |limit, overhead_inside, ordinal| parts.push(Part { card: position, limit, overhead_inside, ordinal });
        if let Some(given) = options.gpu_limit(position as u32) {
            for &bytes in &given.parts {
                let reason = format!("--memory-limit {given}, overhead included");
                part(Limit { bytes, reason, asked: true }, true, 0);
            }
            continue;
        }
        match configured.get(position).filter(|devices| !devices.memory_limit_mb.is_empty()) {
            Some(devices) => {
                for (index, &mebibytes) in devices.memory_limit_mb.iter().enumerate() {
                    part(limit::of_mebibytes(mebibytes)?, false, devices.device_ordinal.get(index).copied().unwrap_or(0));
                }
            }
            None => {
                let whole = limit::whole_card(card, config, options.fraction()?, environment, notes)?;
                let pieces = u64::try_from(config.num_virtual_devices_per_gpu).unwrap_or(0).clamp(1, super::MOST_GPUS as u64 + 1);
                for _ in 0..pieces {
                    let reason = if pieces > 1 { format!("1/{pieces} of {}", whole.reason) } else { whole.reason.clone() };
                    part(Limit { bytes: Bytes(whole.bytes.0 / pieces), reason, asked: whole.asked }, false, 0);
                }
            }
        }
    }
    if parts.len() > super::MOST_GPUS {
        return Err(Error::invalid_argument(format!("more than {} logical GPUs", super::MOST_GPUS)).with_remedy("divide cards into fewer"));
    }
    parts.sort_by_key(|part| part.ordinal);
    let priorities: Vec<i32> = configured.iter().flat_map(|devices| devices.priority.iter().copied()).collect();
    let settings = GpuSettings::new(options, environment, notes)?;
    let numbers = |card: usize| (0u32..).zip(&parts).filter(move |(_, part)| part.card == card).map(|(number, _)| number);
    let mut devices = Vec::with_capacity(parts.len());
    for (number, part) in (0u32..).zip(&parts) {
        let card = &cards[part.card];
        let siblings: Vec<u32> = numbers(part.card).collect();
        let overhead = share_of(card.device.overhead, siblings.iter().position(|&sibling| sibling == number).unwrap_or(0), siblings.len());
        let mut limit = part.limit.bytes;
        if part.overhead_inside {
            check_flag(part, overhead, &parts, card, options, config)?;
            limit = limit - overhead;
        }
        let (reserve, why) = settings.reserve(part.limit.asked);
        let direct = cards
            .iter()
            .enumerate()
            .filter(|(position, other)| *position != part.card && card.device.peers.contains(&other.device.ordinal));
        let mut links: Vec<Link> = direct.flat_map(|(other, _)| numbers(other)).map(|device| Link { device, same_card: false }).collect();
        links.sort_by_key(|link| link.device);
        let same = siblings.iter().filter(|&&sibling| sibling != number);
        links.extend(same.map(|&device| Link { device, same_card: true }));
        devices.push(LogicalDevice {
            name: DeviceName::local("GPU", number),
            kind: DeviceKind::Gpu,
            card: Some(card.clone()),
            folder: None,
            memory_limit: Some(limit),
            overhead,
            reserve,
            preallocate: options.preallocate,
            unified_memory: limit::unified(config, options.memory_fraction),
            priority: priorities.get(number as usize).copied().unwrap_or(0),
            allocator: settings.allocator,
            numa_node: card.device.numa_node.unwrap_or(0),
            links,
            reasons: vec![
                format!("device {} is card {} of the machine", card.ordinal, card.device.ordinal),
                format!("limit: {}", part.limit.reason),
                format!("reserved: {why}"),
            ],
        });
    }
    Ok(devices)
}

/// The part of a card's overhead that the `position`-th of `count` devices bears: equal shares, and the first devices take the
/// rest.
fn share_of(overhead: Bytes, position: usize, count: usize) -> Bytes {
    let count = count.max(1) as u64;
    Bytes(overhead.0 / count + u64::from((position as u64) < overhead.0 % count))
}

/// Whether a limit given by a flag, overhead included, can be on its card.
fn check_flag(part: &Part, overhead: Bytes, parts: &[Part], card: &Card, options: &Options, config: &GpuConfig) -> Result<()> {
    let on_card = parts.iter().filter(|other| other.card == part.card);
    let sum: Bytes = on_card.map(|other| other.limit.bytes).sum();
    let given = options.gpu_limit(part.card as u32).map(ToString::to_string).unwrap_or_default();
    let wrong = |why: String, remedy: String| {
        Err(Error::invalid_argument(format!("--memory-limit {given}: {why}")).on_device(card.description()).with_remedy(remedy))
    };
    if part.limit.bytes <= overhead {
        let remedy = format!("give each device of the card more than {overhead}");
        return wrong(format!("the overhead of the card alone takes {overhead} of {}", part.limit.bytes), remedy);
    }
    if sum > card.device.total && !limit::unified(config, options.memory_fraction) {
        return wrong(format!("the card has {}", card.device.total), format!("give at most {}", card.device.total));
    }
    Ok(())
}

/// Settings of all GPUs: the allocator, and what makes it grow.
struct GpuSettings {
    allocator: AllocatorOptions,
    preallocate: bool,
    /// The source of the setting that memory grows, or that it does not although the ConfigProto may say so.
    growth: Option<(bool, String)>,
}

impl GpuSettings {
    fn new(options: &Options, environment: &Environment, notes: &mut Vec<String>) -> Result<GpuSettings> {
        let config = &options.gpu;
        if !matches!(config.allocator_type.as_str(), "" | "BFC") {
            let why = format!("Failed to get memory allocator for TF GPU 0: allocator_type '{}' is none", config.allocator_type);
            return Err(Error::internal(why).with_remedy("write BFC, or leave it out"));
        }
        let growth = growth(options, environment, notes);
        let kind = match environment.get("TF_GPU_ALLOCATOR") {
            Some("cuda_malloc") => AllocatorKind::CudaMalloc,
            Some("cuda_malloc_async") => AllocatorKind::CudaMallocAsync,
            Some("memory_guard") => AllocatorKind::MemoryGuard,
            _ if config.use_cuda_malloc_async => AllocatorKind::CudaMallocAsync,
            _ => AllocatorKind::Bfc,
        };
        let allocator = AllocatorOptions {
            kind,
            growth: growth.as_ref().is_some_and(|(growth, _)| *growth),
            retry: !config.disallow_retry_on_allocation_failure,
            garbage_collection: environment.get("TF_ENABLE_GPU_GARBAGE_COLLECTION") != Some("false"),
            fragmentation_fraction: config.internal_fragmentation_fraction,
        };
        Ok(GpuSettings { allocator, preallocate: options.preallocate, growth })
    }

    /// The bytes that are reserved when a device is opened, and why. `asked` is true where its limit was set.
    fn reserve(&self, asked: bool) -> (Reserve, String) {
        match &self.growth {
            _ if self.preallocate => (Reserve::Whole, "all of it, and touched (--preallocate)".into()),
            Some((true, who)) => (Reserve::Growth, format!("as steps need it ({who})")),
            Some((false, who)) => (Reserve::Whole, format!("all of it ({who})")),
            None if asked => (Reserve::Whole, "all of it, as it was asked for".into()),
            None => (Reserve::Plan, "as the plans need it".into()),
        }
    }
}

/// Whether memory grows, and the source of that setting; none where it is not set. A flag is heard before the environment, and that
/// before a ConfigProto.
fn growth(options: &Options, environment: &Environment, notes: &mut Vec<String>) -> Option<(bool, String)> {
    const VARIABLE: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
    match options.allow_growth {
        Some(true) => return Some((true, "--allow-growth".into())),
        Some(false) => return None,
        None if options.preallocate => return None,
        None => {}
    }
    match environment.get(VARIABLE) {
        Some(value @ ("true" | "false")) => return Some((value == "true", format!("{VARIABLE}={value}"))),
        Some(value) => notes.push(format!("{VARIABLE}={value} is neither true nor false: ignored")),
        None => {}
    }
    options.gpu.allow_growth.then(|| (true, "allow_growth".into()))
}
