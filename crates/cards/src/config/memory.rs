//! Memory of opened devices, by name.

use plimsoll_base::{Error, Result};
use plimsoll_device::{Device, DeviceName};

/// Bytes on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// In use now.
    pub current: u64,
    /// The most that were in use at once since the statistics were last reset.
    pub peak: u64,
}

/// Opened devices that count their memory.
pub trait MemoryStats {
    /// The full names of the devices.
    fn names(&self) -> Vec<DeviceName>;
    /// The bytes that the device at that position counted; none if it does not count.
    fn memory_info(&self, position: usize) -> Option<MemoryInfo>;
    /// Makes the peak of the device at that position the present use; false if it cannot.
    fn reset(&self, position: usize) -> bool;
}

impl<D: AsRef<dyn Device>> MemoryStats for [D] {
    fn names(&self) -> Vec<DeviceName> {
        self.iter().map(|device| device.as_ref().spec().name.clone()).collect()
    }

    fn memory_info(&self, position: usize) -> Option<MemoryInfo> {
        let usage = self.get(position)?.as_ref().usage();
        Some(MemoryInfo { current: usage.in_use.0, peak: usage.peak.0 })
    }

    fn reset(&self, position: usize) -> bool {
        self.get(position).map(|device| device.as_ref().reset_peak()).is_some()
    }
}

/// The memory of a device: `GPU:0`, `/gpu:0`, or any name that one device alone matches.
///
/// # Errors
/// INVALID_ARGUMENT for a text that is no name, names no device, or several, and for a device that does not count.
pub fn get_memory_info(opened: &(impl MemoryStats + ?Sized), device: &str) -> Result<MemoryInfo> {
    let position = find_device(opened, device)?;
    opened.memory_info(position).ok_or_else(|| Error::invalid_argument(format!("Allocator stats not available for device '{device}'")))
}

/// The bytes in use on a device.
///
/// # Errors
/// As [`get_memory_info`].
pub fn get_memory_usage(opened: &(impl MemoryStats + ?Sized), device: &str) -> Result<u64> {
    get_memory_info(opened, device).map(|info| info.current)
}

/// Makes the peak of a device the present use.
///
/// # Errors
/// As [`get_memory_info`].
pub fn reset_memory_stats(opened: &(impl MemoryStats + ?Sized), device: &str) -> Result<()> {
    let position = find_device(opened, device)?;
    if opened.reset(position) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("Cannot reset memory stats for device '{device}'")))
}

/// The position of the device of that name: see [`get_memory_info`].
///
/// # Errors
/// INVALID_ARGUMENT for a text that is no name, names no device, or several.
pub fn find_device(opened: &(impl MemoryStats + ?Sized), device: &str) -> Result<usize> {
    let pattern = DeviceName::parse_full_or_local(device).map_err(|_| {
        Error::invalid_argument(format!("Failed parsing device name: '{device}'"))
            .with_remedy("a device string has at least a device type and a device index, like \"GPU:0\"")
    })?;
    let names = opened.names();
    let mut matching = (0..names.len()).filter(|&position| names[position].satisfies(&pattern));
    match (matching.next(), matching.next()) {
        (Some(position), None) => Ok(position),
        (None, _) => {
            let there: Vec<String> = names.iter().map(DeviceName::short).collect();
            Err(Error::invalid_argument(format!("No matching devices found for '{device}'"))
                .with_remedy(format!("the devices are {}", there.join(", "))))
        }
        _ => Err(Error::invalid_argument(format!("Multiple devices match '{device}'")).with_remedy("name one of them")),
    }
}
