//! The promised and the measured peak of a device, for documents.

use plimsoll::peaks::Peak;
use serde::Serialize;

/// The promised and the measured peak of a device.
#[derive(Clone, Debug, Serialize)]
pub struct DevicePeaks {
    name: String,
    limit_bytes: Option<u64>,
    pub planned_peak_bytes: u64,
    pub measured_peak_bytes: u64,
}

impl DevicePeaks {
    /// A device's peaks.
    pub fn new(peak: &Peak) -> DevicePeaks {
        DevicePeaks {
            name: peak.name.clone(),
            limit_bytes: peak.limit.map(|limit| limit.0),
            planned_peak_bytes: peak.promised.0,
            measured_peak_bytes: peak.measured.0,
        }
    }

    /// `CPU:0`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit("device:").next().unwrap_or(&self.name)
    }
}
