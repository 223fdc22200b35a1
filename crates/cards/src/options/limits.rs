//! The memory limits that flags give, device by device.

use std::collections::HashMap;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_device::DeviceKind;

use super::resolve::MOST;
use super::{MatmulPrecision, MemoryLimit, Options, Spill};

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
        self.spill.as_ref().map_or(Ok(()), Spill::check)?;
        let wrong = |what: &str, remedy: &str| Err(Error::invalid_argument(what.to_string()).with_remedy(remedy));
        if self.preallocate && self.allow_growth == Some(true) {
            return wrong("--preallocate and --allow-growth contradict each other", "leave one of them out");
        }
        if self.exact_convolutions && self.matmul_precision != MatmulPrecision::Float32 {
            let what = format!("--exact-convolutions and --matmul-precision {} contradict each other", self.matmul_precision);
            return wrong(&what, "leave one of them out");
        }
        if self.buckets.contains(&0) {
            return wrong("a bucket of size 0", "name sizes above 0");
        }
        let of_gpus = |limit: &&MemoryLimit| !matches!(limit.device, Some((DeviceKind::Cpu, _)));
        if let Some(limit) = self.memory_limits.iter().find(of_gpus).filter(|_| self.memory_fraction.is_some()) {
            let what = format!("--memory-fraction and --memory-limit {limit} contradict each other: both are for GPUs");
            return wrong(&what, "leave one of them out");
        }
        self.check_that_each_is_limited_once()
    }

    /// Whether no two limits are for the same device.
    fn check_that_each_is_limited_once(&self) -> Result<()> {
        let mut limited = HashMap::new();
        for limit in &self.memory_limits {
            if let Some(before) = limited.insert(limit.device, limit) {
                let device = limit.device.map_or("every GPU".to_string(), |(kind, index)| format!("{kind}:{index}"));
                return Err(Error::invalid_argument(format!("--memory-limit {before},{limit}: {device} has two limits"))
                    .with_remedy("leave one of them out"));
            }
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

    /// The limit that flags set for the card that is GPU `index` before cards are divided: its own, else that of every GPU.
    pub(crate) fn gpu_limit(&self, index: u32) -> Option<&MemoryLimit> {
        let of = |device| self.memory_limits.iter().find(|limit| limit.device == device);
        of(Some((DeviceKind::Gpu, index))).or_else(|| of(None))
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
                let place = limits.get_mut(index).ok_or_else(|| wrong("there is no such device").with_remedy(there_are))?;
                if place.replace(size).is_some() {
                    return Err(wrong("CPU:0's limits are the limit of this device, too").with_remedy("leave one of them out"));
                }
            } else if limits.iter().any(Option::is_some) {
                return Err(wrong("another limit is for one of these devices").with_remedy("leave one of them out"));
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
