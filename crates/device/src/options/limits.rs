//! The memory limits that flags give, device by device.

use plimsoll_base::{Bytes, Code, Error, Result};

use super::resolve::MOST;
use super::{MemoryLimit, Options};
use crate::DeviceKind;

impl Options {
    /// Whether the flags are as they should be, whatever the machine.
    ///
    /// # Errors
    /// The first mistake made with a builder method; INVALID_ARGUMENT for flags that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        self.fraction()?;
        let wrong = |what: &str, remedy: &str| Err(Error::invalid_argument(what.to_string()).with_remedy(remedy));
        if self.preallocate && self.allow_growth == Some(true) {
            return wrong("--preallocate and --allow-growth contradict each other", "leave one of them out");
        }
        if self.memory_fraction.is_some() && self.memory_limits.iter().any(|limit| limit.device.is_none()) {
            return wrong("--memory-fraction and a --memory-limit for every GPU contradict each other", "leave one of them out");
        }
        Ok(())
    }

    /// The share that a flag gives.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where it is none.
    pub(crate) fn fraction(&self) -> Result<Option<f64>> {
        match self.memory_fraction {
            Some(fraction) if !(fraction.is_finite() && fraction > 0.0) => {
                Err(Error::invalid_argument(format!("--memory-fraction {fraction}: not a share of memory"))
                    .with_remedy("write a number above 0, as 0.4"))
            }
            fraction => Ok(fraction),
        }
    }

    /// Whether `virtual_devices` count: no flag says how much of every GPU is taken.
    pub(crate) fn divides_as_configured(&self) -> bool {
        self.memory_fraction.is_none() && self.memory_limits.iter().all(|limit| limit.device.is_some())
    }

    /// What flags say of the card that is GPU `index` before cards are divided; the last one counts.
    pub(crate) fn gpu_limit(&self, index: u32) -> Option<&MemoryLimit> {
        let meant = |limit: &&MemoryLimit| limit.device.is_none_or(|device| device == (DeviceKind::Gpu, index));
        self.memory_limits.iter().rev().find(meant)
    }

    /// Whether every GPU that has a limit is there.
    pub(crate) fn check_gpu_limits(&self, gpus: usize) -> Result<()> {
        for limit in &self.memory_limits {
            let wrong = |why: &str| Error::invalid_argument(format!("--memory-limit {limit}: {why}"));
            match limit.device {
                None if gpus == 0 => {
                    return Err(wrong("a size alone limits every GPU, and there is no GPU")
                        .with_remedy(format!("to limit the processor write --memory-limit CPU:0={limit}")));
                }
                Some((DeviceKind::Gpu, index)) if index as usize >= gpus => {
                    return Err(wrong("there is no such device").with_remedy(match gpus {
                        0 => there_are(DeviceKind::Cpu, self.cpu_limits()?.len()),
                        _ => there_are(DeviceKind::Gpu, gpus),
                    }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The limits of the logical CPU devices, as many as there are devices.
    ///
    /// # Errors
    /// NOT_FOUND for no CPU, as in TensorFlow; INVALID_ARGUMENT for limits of CPUs that are not there.
    pub(crate) fn cpu_limits(&self) -> Result<Vec<Option<Bytes>>> {
        let asked = match self.device_count.get(DeviceKind::Cpu.name()) {
            Some(&number) if number > MOST => {
                return Err(Error::invalid_argument(format!("--device-count CPU={number}: not a number of devices"))
                    .with_remedy(format!("write 1 to {MOST}")));
            }
            Some(&number) if number <= 0 => {
                let error = Error::new(Code::NotFound, "No CPU devices are available in this process");
                return Err(error.with_remedy("ask for at least CPU=1"));
            }
            number => number.map(|&number| number as usize),
        };
        let given = self.memory_limits.iter().filter_map(|limit| match limit.device {
            Some((DeviceKind::Cpu, index)) => Some((limit, index as usize)),
            _ => None,
        });
        let divided = given.clone().map(|(limit, _)| limit.parts.len()).max();
        let mut limits = vec![None; asked.or(divided).unwrap_or(1)];
        for (limit, index) in given {
            let wrong = |why: &str| Error::invalid_argument(format!("--memory-limit {limit}: {why}"));
            let there_are = there_are(DeviceKind::Cpu, limits.len());
            if let [size] = limit.parts[..] {
                *limits.get_mut(index).ok_or_else(|| wrong("there is no such device").with_remedy(there_are))? = Some(size);
            } else if index != 0 || limit.parts.len() != limits.len() {
                return Err(wrong("it does not divide the processor into the CPU devices that there are")
                    .with_remedy(format!("{there_are}; give a limit for each")));
            } else {
                limits = limit.parts.iter().copied().map(Some).collect();
            }
        }
        Ok(limits)
    }
}

/// The sentence that names the devices of a kind.
fn there_are(kind: DeviceKind, count: usize) -> String {
    match count {
        1 => format!("the only device is {kind}:0"),
        _ => format!("the devices are {kind}:0 to {kind}:{}", count - 1),
    }
}
