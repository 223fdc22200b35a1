//! The devices that parts can be on.

use crate::Device;

/// For each part the devices that it can be on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Where the devices of a part end.
    ends: Vec<usize>,
    devices: Vec<Device>,
}

impl Choices {
    /// Of so many parts. Each needs a device.
    pub fn new(parts: impl IntoIterator<Item = Vec<Device>>) -> Choices {
        let mut choices = Choices::default();
        for mut devices in parts {
            devices.sort_unstable();
            devices.dedup();
            choices.devices.extend(devices);
            choices.ends.push(choices.devices.len());
        }
        choices
    }

    /// How many parts there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The devices of a part, ascending.
    pub fn of(&self, part: usize) -> &[Device] {
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        &self.devices[start..self.ends[part]]
    }

    /// Whether a part can be on a device.
    pub fn allows(&self, part: usize, device: Device) -> bool {
        self.of(part).binary_search(&device).is_ok()
    }
}
