//! Whether `virtual_devices` fit the cards: TensorFlow's checks, in its order.

use plimsoll_base::{Code, Error, Result};

use super::logical::Card;
use crate::GpuConfig;

/// Checks them against three lists: the cards in the order of the visible list (`listed`), those that can be used (`usable`), and
/// how many of those `device_count` leaves. There is at least one.
///
/// # Errors
/// INVALID_ARGUMENT or UNKNOWN, as TensorFlow has it.
pub(super) fn check(config: &GpuConfig, left: usize, listed: usize, usable: &[Card]) -> Result<()> {
    let wrong = |why: String| Err(Error::invalid_argument(why));
    let devices = &config.virtual_devices;
    if config.per_process_gpu_memory_fraction > 0.0 {
        return wrong("It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.".into());
    }
    if left < devices.len() {
        let why = format!("Not enough GPUs to create virtual devices. num_gpus_to_use: {left} #virtual_devices: {}", devices.len());
        return Err(Error::new(Code::Unknown, why));
    }
    if !config.visible_device_list.is_empty() && listed != devices.len() {
        return wrong(format!(
            "The number of GPUs in visible_device_list doesn't match the number of elements in the virtual_devices list. #GPUs in \
             visible_device_list: {listed} virtual_devices.size(): {}",
            devices.len()
        ));
    }
    if usable.len() != devices.len() {
        let why = format!(
            "The number of valid GPUs doesn't match the number of elements in the virtual_devices list. #valid GPUs: {} \
             virtual_devices.size(): {}",
            usable.len(),
            devices.len()
        );
        return Err(Error::new(Code::Unknown, why));
    }
    let ordered = !devices[0].device_ordinal.is_empty();
    if let Some(position) = devices.iter().position(|device| device.device_ordinal.is_empty() == ordered) {
        return wrong(format!("Device ordinals must be set for all virtual devices or none. GPU# {position} is not as GPU# 0"));
    }
    for (position, device) in devices.iter().enumerate().filter(|_| ordered) {
        let (limits, ordinals) = (device.memory_limit_mb.len(), device.device_ordinal.len());
        if limits != ordinals {
            return wrong(format!(
                "Number of virtual device ordinals specified doesn't match with number of memory_limit_mb specified for GPU# {position} \
                 memory_limit_mb size: {limits} and device_ordinal size: {ordinals}"
            ));
        }
    }
    let prioritized = !devices[0].priority.is_empty();
    for (position, (device, card)) in devices.iter().zip(usable).enumerate() {
        let (limits, priorities) = (device.memory_limit_mb.len(), device.priority.len());
        if !prioritized && priorities > 0 {
            return wrong(format!("Priority must be set for all virtual devices or none. GPU# {position} has one and GPU# 0 has none"));
        }
        if prioritized && limits != priorities {
            return wrong(format!(
                "Number of virtual device priorities specified doesn't match with number of memory_limit_mb specified for GPU# {position} \
                 memory_limit_mb size: {limits} and priority size: {priorities}"
            ));
        }
        let range = &card.device.stream_priorities;
        if let Some(priority) = device.priority.iter().find(|priority| !range.contains(priority)) {
            return wrong(format!(
                "Priority {priority} is outside the range of supported priorities [{},{}] for virtual device {position} on GPU# {}",
                range.start(),
                range.end(),
                card.ordinal
            ));
        }
    }
    Ok(())
}
