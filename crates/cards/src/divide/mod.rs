//! From cards, options and environment to logical devices: pure, by TensorFlow's rules.
//!
//! CUDA_VISIBLE_DEVICES narrows and renumbers first. `visible_device_list` or `--visible-devices` chooses among the rest. Cards
//! that cannot be used are dropped; `device_count` cuts the list; the rest is divided.
//!
//! This module alone decides which cards a program uses, how much of each, and how many logical devices. `config` is `tf.config` as a
//! value on top of it. The result is a [`Division`]; the library writes no log, the command line writes the division's.

mod choose;
mod limit;
mod logical;
mod share;
mod virtual_devices;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{DeviceKind, DeviceName, DeviceSpec};

pub use choose::{seen, visible_device_list};
pub use limit::system_memory;
pub use logical::{AllocatorKind, AllocatorOptions, Card, Division, LeftOut, Link, LogicalDevice, PinnedHost, Reserve};

use crate::{Environment, GpuConfig, Options, PhysicalDevice, Spill};

/// More logical GPUs than this are taken for a mistake.
const MOST_GPUS: usize = 256;

/// Divides a machine with these cards. CPUs come first; then, unless `device_filters` leave them out, GPUs; the file of a `--spill` is
/// last.
///
/// Nothing that is configured for GPUs is looked at where no card is seen, as in TensorFlow; flags that name a GPU are.
///
/// # Errors
/// Those of TensorFlow. NOT_FOUND for no CPU. INVALID_ARGUMENT for lists, limits and priorities that make no sense. UNKNOWN for
/// virtual devices without their GPUs. INTERNAL for an allocator that is none, and for memory that cannot spill.
pub fn resolve(physical: &[PhysicalDevice], options: &Options, environment: &Environment) -> Result<Division> {
    options.check()?;
    let cpus = options.cpu_limits()?.into_iter().enumerate().map(|(index, limit)| cpu(index as u32, limit));
    let (seen, left_out, notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut division = Division { devices: cpus.collect(), seen, left_out, pinned_host: None, notes, obstacle: None };
    let passed = choose::gpus_pass(&options.device_filters)?;
    division.seen = choose::seen(physical, environment, &mut division.notes);
    let used = if !passed {
        division.notes.push("device_filters leave no GPU".into());
        Vec::new()
    } else if division.seen.is_empty() {
        no_card(options, &mut division.notes)?;
        Vec::new()
    } else {
        used(options, environment, &mut division)?
    };
    options.check_gpu_limits(used.len())?;
    if !used.is_empty() {
        let gpus = share::gpus(&used, options, environment, &mut division.notes)?;
        division.pinned_host = Some(pinned_host(&options.gpu, environment));
        division.devices.extend(gpus);
    }
    if let Some(file) = &options.spill {
        spill(file, &mut division.devices)?;
    }
    Ok(division)
}

/// Whether these options and variables leave all cards out, whichever there are: a program that has them need not look for cards.
pub fn leaves_cards_out(options: &Options, environment: &Environment) -> bool {
    let hides_all = |list: &str| matches!(list.trim(), "" | "-1");
    let count = options.device_count.get("GPU").copied();
    let by_options = match &options.visible_devices {
        Some(list) => hides_all(list),
        None => count == Some(0),
    };
    // Virtual devices without their cards are an error where there are cards.
    (by_options && options.gpu.virtual_devices.is_empty())
        || environment.get("CUDA_VISIBLE_DEVICES").is_some_and(hides_all)
        || choose::gpus_pass(&options.device_filters).is_ok_and(|passed| !passed)
}

/// The cards that a process sees and can use, in the order of their numbers.
pub(crate) fn usable_cards(physical: &[PhysicalDevice], environment: &Environment) -> Vec<Card> {
    let mut notes = Vec::new();
    let seen = choose::seen(physical, environment, &mut notes);
    choose::usable(seen, environment, &mut notes).0
}

/// The file, behind the devices that compute. Its buffer is a part of the first processor's line.
fn spill(file: &Spill, devices: &mut Vec<LogicalDevice>) -> Result<()> {
    let buffer = DeviceSpec::spill_buffer(file.bytes);
    if let Some(cpu) = devices.iter_mut().find(|device| device.kind == DeviceKind::Cpu) {
        if let Some(limit) = cpu.memory_limit.filter(|limit| *limit <= buffer) {
            let why = format!("--spill {file}: its buffer alone takes {buffer} of {limit}");
            return Err(Error::invalid_argument(why)
                .on_device(cpu.name.to_string())
                .with_remedy("raise the limit, or ask for a smaller file"));
        }
        cpu.overhead = buffer;
        cpu.memory_limit = cpu.memory_limit.map(|limit| limit - buffer);
        cpu.reasons.push(format!("--spill {file}: a buffer of {buffer}"));
    }
    let file = LogicalDevice {
        name: DeviceName::local("SPILL", 0),
        kind: DeviceKind::Spill,
        folder: Some(file.folder.clone()),
        reserve: Reserve::Whole,
        reasons: vec![format!("--spill {file}")],
        ..cpu(0, Some(file.bytes))
    };
    devices.push(file);
    Ok(())
}

fn cpu(index: u32, memory_limit: Option<Bytes>) -> LogicalDevice {
    LogicalDevice {
        name: DeviceName::local("CPU", index),
        kind: DeviceKind::Cpu,
        card: None,
        folder: None,
        memory_limit,
        overhead: Bytes::ZERO,
        reserve: Reserve::Plan,
        preallocate: false,
        unified_memory: false,
        priority: 0,
        allocator: AllocatorOptions::default(),
        numa_node: 0,
        links: Vec::new(),
        reasons: vec![memory_limit.map_or("no limit".into(), |limit| format!("--memory-limit: {limit}"))],
    }
}

/// Checks flags where no card is seen.
fn no_card(options: &Options, notes: &mut Vec<String>) -> Result<()> {
    if let Some(list) = options.visible_devices.as_ref().filter(|list| !matches!(list.trim(), "" | "-1")) {
        return Err(Error::invalid_argument(format!("--visible-devices {list}: no GPU is seen")).with_remedy("leave the option out"));
    }
    if options.gpu != GpuConfig::default() {
        notes.push("gpu_options has no effect: no GPU is seen".into());
    }
    let flags = [
        (options.memory_fraction.is_some(), "--memory-fraction"),
        (options.allow_growth == Some(true), "--allow-growth"),
        (options.preallocate, "--preallocate"),
    ];
    notes.extend(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| format!("{flag} has no effect: no GPU is seen")));
    Ok(())
}

/// The cards that are divided, in the order of the GPUs that they become.
fn used(options: &Options, environment: &Environment, division: &mut Division) -> Result<Vec<Card>> {
    // A negative number is no bound, as in TensorFlow.
    let bound = options.device_count.get("GPU").and_then(|&count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let (mut listed, mut usable) = (0, Vec::new());
    if bound > 0 {
        let count = division.seen.len() as u32;
        let order = match options.visible_devices.as_deref().map(str::trim) {
            Some("") => Vec::new(),
            Some(list) => visible_device_list(list, count, None).map_err(|error| {
                error.context(format!("--visible-devices {list}")).with_remedy(format!("list numbers from 0 to {}, as 1,0", count - 1))
            })?,
            None => visible_device_list(&options.gpu.visible_device_list, count, None)?,
        };
        listed = order.len();
        let order = order.into_iter().map(|id| division.seen[id as usize].clone()).collect();
        (usable, division.left_out) = choose::usable(order, environment, &mut division.notes);
    } else {
        division.notes.push("device_count GPU=0: no GPU is used".into());
    }
    let mut count = bound.min(usable.len());
    if options.divides_as_configured() && !options.gpu.virtual_devices.is_empty() {
        let mut config = options.gpu.clone();
        if let Some(list) = &options.visible_devices {
            config.visible_device_list.clone_from(list);
        }
        virtual_devices::check(&config, count, listed, &usable)?;
        count = config.virtual_devices.len();
    }
    if count < usable.len() {
        division.notes.push(format!("device_count GPU={count}: {} of {} cards are used", count, usable.len()));
    }
    usable.truncate(count);
    Ok(usable)
}

fn pinned_host(config: &GpuConfig, environment: &Environment) -> PinnedHost {
    let configured = config.gpu_host_mem_limit_in_mb;
    let limit = if configured > 0.0 {
        Bytes((f64::from(configured) * f64::from(1 << 20)) as u64)
    } else {
        let mebibytes = environment.number("TF_GPU_HOST_MEM_LIMIT_IN_MB").and_then(|number| u64::try_from(number).ok());
        Bytes(mebibytes.unwrap_or(128 << 10).saturating_mul(1 << 20))
    };
    PinnedHost { limit, growth: !config.gpu_host_mem_disallow_growth }
}
