//! The promised peak of each device beside the measured one.

use plimsoll_base::{Bytes, Error, Result};

use crate::{Certainty, DeviceReport, Devices, Need};

/// The peaks of a device: what was promised for all runs, and what was measured so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The full name.
    pub name: String,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The most that it will have held in the end; where the peak is open, the most that is known of it.
    pub promised: Bytes,
    /// Whether it may hold more: the peak is open.
    pub is_open: bool,
    /// The most that it has held.
    pub measured: Bytes,
}

impl Peak {
    /// Of each device, whose needs these are.
    pub fn of(devices: &Devices, needs: &[Need]) -> Vec<Peak> {
        let peak = |(report, need): (DeviceReport, &Need)| Peak {
            name: report.name,
            limit: report.limit,
            promised: need.peak,
            is_open: matches!(need.certainty, Certainty::OpenFrom(_)),
            measured: report.peak,
        };
        devices.report().into_iter().zip(needs).map(peak).collect()
    }

    /// `CPU:0`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit("device:").next().unwrap_or(&self.name)
    }

    /// Whether the promise was kept.
    ///
    /// # Errors
    /// INTERNAL where more was held than was promised.
    pub fn check(&self) -> Result<()> {
        if self.measured <= self.promised || self.is_open {
            return Ok(());
        }
        let (measured, promised) = (self.measured.0, self.promised.0);
        Err(Error::internal(format!("{} held {measured} bytes, and the plan promised {promised}", self.short_name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_up_to_the_last_byte() {
        let peak = |measured| Peak {
            name: "/job:localhost/replica:0/task:0/device:CPU:0".into(),
            limit: None,
            promised: Bytes(64),
            is_open: false,
            measured: Bytes(measured),
        };
        assert!(peak(64).check().is_ok() && peak(0).check().is_ok());
        assert!(Peak { is_open: true, ..peak(65) }.check().is_ok());
        assert_eq!(peak(65).check().unwrap_err().message(), "CPU:0 held 65 bytes, and the plan promised 64");
    }
}
