//! The options that divide a machine into logical devices, named after TensorFlow's ConfigProto.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error, Result};

use crate::spec::InstructionSet;
use crate::{DeviceKind, DeviceName, DeviceSpec};

/// How nodes come to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementMode {
    /// By TensorFlow's rules.
    #[default]
    TensorFlow,
    /// By measured cost and memory.
    Auto,
}

/// A memory limit as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The device; `None` is every GPU.
    pub device: Option<(DeviceKind, u32)>,
    /// One size for each logical device that the device is divided into; at least one.
    pub parts: Vec<Bytes>,
}

/// What may be said about devices before they are opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Memory limits in the order given; of two for one device the later counts.
    pub memory_limits: Vec<MemoryLimit>,
    /// Which physical GPUs are seen, in which order: `3,2`; `-1` or the empty text hide all.
    pub visible_devices: Option<String>,
    /// The share of each GPU's memory that is reserved.
    pub memory_fraction: Option<f64>,
    /// Reserve nothing beforehand.
    pub allow_growth: bool,
    /// Touch what is reserved at once.
    pub preallocate: bool,
    /// Wait for memory that others hold, at most that long.
    pub wait: Option<Duration>,
    /// Whether a node may go to another device than the one it names where that has no kernel or is not there. On, as in
    /// TensorFlow 2; a ConfigProto says it explicitly.
    pub soft_placement: bool,
    /// Whether every placement is logged.
    pub log_placement: bool,
    /// How nodes come to devices.
    pub placement: PlacementMode,
    /// Whether a plan that is too big is made to fit.
    pub fit: bool,
    /// Threads that compute at the same time; 0 is one for every core this process may use.
    pub intra_op: i32,
    /// Queues of one run that advance at the same time; 0 is as many as there are threads, less than 0 is one, as 1.
    pub inter_op: i32,
    /// The most logical devices of a type; a `CPU` count is exact.
    pub device_count: BTreeMap<String, i32>,
    /// Simulated GPUs: `2x4GiB`.
    pub sim_gpus: Option<String>,
    /// The first mistake made with a builder method, reported by [`Options::resolve`].
    mistake: Option<Error>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_limits: Vec::new(),
            visible_devices: None,
            memory_fraction: None,
            allow_growth: false,
            preallocate: false,
            wait: None,
            soft_placement: true,
            log_placement: false,
            placement: PlacementMode::TensorFlow,
            fit: true,
            intra_op: 0,
            inter_op: 0,
            device_count: BTreeMap::new(),
            sim_gpus: None,
            mistake: None,
        }
    }
}

impl Options {
    /// One CPU device, all cores, no limit.
    pub fn new() -> Options {
        Options::default()
    }

    /// Limits `device` (`CPU:0`, `/gpu:1`) to `size` (`64MiB`, `1GiB+1GiB`). A mistake is reported when devices are opened.
    pub fn limit(self, device: &str, size: &str) -> Options {
        match parse_limit(&format!("{device}={size}")) {
            Ok(limit) => Options {
                memory_limits: {
                    let mut limits = self.memory_limits;
                    limits.push(limit);
                    limits
                },
                ..self
            },
            Err(error) => Options { mistake: self.mistake.or(Some(error)), ..self },
        }
    }

    /// Threads that compute at the same time.
    pub fn intra_op(self, threads: i32) -> Options {
        Options { intra_op: threads, ..self }
    }

    /// How many threads compute at the same time.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the number makes no sense.
    pub fn threads(&self) -> Result<usize> {
        match self.intra_op {
            0 => Ok(std::thread::available_parallelism().map_or(1, |threads| threads.get())),
            1.. => Ok(self.intra_op as usize),
            _ => Err(Error::invalid_argument(format!("--intra-op {}: a number of threads, or 0 for all cores", self.intra_op))),
        }
    }

    /// The logical devices that the options make of this machine.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for options that contradict each other or the machine.
    pub fn resolve(&self) -> Result<Vec<DeviceSpec>> {
        if let Some(error) = &self.mistake {
            return Err(error.clone());
        }
        let threads = self.threads()? as u32;
        let count = self.device_count.get("CPU").copied().unwrap_or(1);
        if count < 1 {
            return Err(Error::new(Code::NotFound, "No CPU devices are available in this process"));
        }
        let mut specs: Vec<DeviceSpec> = (0..count as u32).map(|i| DeviceSpec::cpu(i, None, threads, InstructionSet::detect())).collect();
        for limit in &self.memory_limits {
            let Some((DeviceKind::Cpu, index)) = limit.device else {
                return Err(Error::invalid_argument("there is no GPU"));
            };
            let Some(spec) = specs.get_mut(index as usize) else {
                return Err(Error::invalid_argument(format!("there is no CPU:{index}")));
            };
            spec.memory_limit = limit.parts.first().copied();
        }
        Ok(specs)
    }
}

fn parse_limit(text: &str) -> Result<MemoryLimit> {
    let (device, size) = text.split_once('=').unwrap_or(("", text));
    let name = DeviceName::parse_full_or_local(device)?;
    let kind = name.kind.as_deref().and_then(DeviceKind::from_name);
    let (Some(kind), Some(index)) = (kind, name.index) else {
        return Err(Error::invalid_argument(format!("'{device}' is no device")));
    };
    let parts =
        size.split('+').map(|part| part.parse::<Bytes>().map_err(|e| Error::invalid_argument(e.to_string()))).collect::<Result<_>>()?;
    Ok(MemoryLimit { device: Some((kind, index)), parts })
}
