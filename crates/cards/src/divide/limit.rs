//! How much of a card a device may take that has no limit of its own.

use plimsoll_base::{Bytes, Error, Result};

use super::logical::Card;
use crate::{Environment, GpuConfig};

/// A limit and where it comes from.
#[derive(Debug, PartialEq)]
pub(super) struct Limit {
    /// Bytes that may be handed out.
    pub bytes: Bytes,
    /// The reason, as a sentence.
    pub reason: String,
    /// Whether this much was asked for.
    pub asked: bool,
}

/// The part of `available` bytes that TensorFlow leaves to the system on a card of that major capability.
pub fn system_memory(available: Bytes, capability_major: u32) -> Bytes {
    let mebibytes = match capability_major {
        _ if available < Bytes(2 << 30) => 225,
        0..=6 => 500,
        7 => 1050,
        8 => 1536,
        _ => 1800,
    };
    Bytes(mebibytes << 20)
}

/// Whether memory may spill to the host.
pub(super) fn unified(config: &GpuConfig, fraction: Option<f64>) -> bool {
    config.use_unified_memory || fraction.unwrap_or(config.per_process_gpu_memory_fraction) > 1.0
}

/// The limit of a card's only device. A `fraction` given by a flag counts whatever ConfigProto and environment say.
///
/// # Errors
/// INVALID_ARGUMENT for a fraction that is none; INTERNAL, as in TensorFlow, where memory should spill to the host and the card
/// cannot.
pub(super) fn whole_card(
    card: &Card,
    config: &GpuConfig,
    fraction: Option<f64>,
    environment: &Environment,
    notes: &mut Vec<String>,
) -> Result<Limit> {
    let device = &card.device;
    let configured = config.per_process_gpu_memory_fraction;
    if !configured.is_finite() || configured < 0.0 {
        return Err(Error::invalid_argument(format!("per_process_gpu_memory_fraction {configured}: not a share of memory"))
            .with_remedy("write a number above 0, or leave it out"));
    }
    if unified(config, fraction) && (device.compute_capability.0 < 6 || !device.unified_memory) {
        return Err(Error::internal(
            "Unified memory on GPUs with compute capability lower than 6.0 (pre-Pascal class GPUs) does not support oversubscription.",
        )
        .on_device(card.description())
        .with_remedy("ask for a fraction of at most 1"));
    }
    // The context is there before memory is asked for.
    let available = device.available - device.overhead;
    let of_total = |fraction: f64| Bytes((device.total.0 as f64 * fraction) as u64);
    if let Some(fraction) = fraction {
        return Ok(Limit { bytes: of_total(fraction), reason: format!("--memory-fraction {fraction} of {}", device.total), asked: true });
    }
    let mut limit = if configured > 0.0 {
        let reason = format!("per_process_gpu_memory_fraction {configured} of {}", device.total);
        Limit { bytes: of_total(configured), reason, asked: true }
    } else if device.leased {
        Limit { bytes: available, reason: format!("{available} of a lease"), asked: false }
    } else {
        let system = system_memory(available, device.compute_capability.0);
        let system = if system < available { system } else { Bytes::ZERO };
        Limit { bytes: available - system, reason: format!("{available} available, {system} of them left to the system"), asked: false }
    };
    let mut leave = |mebibytes: i64, who: &str| {
        let system = Bytes(u64::try_from(mebibytes).unwrap_or(0).saturating_mul(1 << 20));
        if system > available {
            notes.push(format!("{who}={mebibytes} is more than the {available} available on device {}: ignored", card.ordinal));
        } else {
            limit.bytes = available - system;
            limit.reason = format!("{available} available, {system} of them left to the system ({who})");
        }
    };
    if config.gpu_system_memory_size_in_mb > 0 {
        leave(config.gpu_system_memory_size_in_mb.into(), "gpu_system_memory_size_in_mb");
    }
    const VARIABLE: &str = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB";
    match environment.number(VARIABLE) {
        Some(mebibytes) if mebibytes >= 0 => leave(mebibytes, VARIABLE),
        _ => {
            if let Some(value) = environment.get(VARIABLE).filter(|value| !value.is_empty()) {
                notes.push(format!("{VARIABLE}={value} is not a number of MiB: ignored"));
            }
        }
    }
    Ok(limit)
}

/// The limit of a device that `virtual_devices` names: whole MiB, the fraction dropped. Whether the card has so much is not
/// asked.
///
/// # Errors
/// INVALID_ARGUMENT for a text that is no amount of memory.
pub(super) fn of_mebibytes(mebibytes: f32) -> Result<Limit> {
    if !(0.0..=(1u64 << 43) as f32).contains(&mebibytes) {
        return Err(
            Error::invalid_argument(format!("memory_limit_mb {mebibytes}: not an amount of memory")).with_remedy("write MiB, 0 or more")
        );
    }
    Ok(Limit { bytes: Bytes((mebibytes as u64) << 20), reason: format!("memory_limit_mb {mebibytes}"), asked: true })
}
