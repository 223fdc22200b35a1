//! `tf.config` as a value: devices are listed, chosen and divided before they are opened. Two configurations do not know of each
//! other; nothing is kept for the process.
//!
//! TensorFlow's ValueError is INVALID_ARGUMENT here, its RuntimeError FAILED_PRECONDITION.

mod generate;
mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceKind;

pub use memory::{MemoryInfo, MemoryStats, find_device, get_memory_info, get_memory_usage, reset_memory_stats};

use crate::divide::usable_cards;
use crate::{Card, ComputeCapability, Division, Environment, LogicalDevice, Options, PhysicalDevice, resolve};

/// A physical device as `tf.config` lists it: `/physical_device:GPU:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalId {
    /// Its type.
    pub kind: DeviceKind,
    /// 0 for the CPU; the number of a card among those the process sees.
    pub index: u32,
}

impl PhysicalId {
    /// The processor.
    pub const CPU: PhysicalId = PhysicalId { kind: DeviceKind::Cpu, index: 0 };

    /// The card of that number.
    pub fn gpu(index: u32) -> PhysicalId {
        PhysicalId { kind: DeviceKind::Gpu, index }
    }
}

impl fmt::Display for PhysicalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/physical_device:{}:{}", self.kind, self.index)
    }
}

impl FromStr for PhysicalId {
    type Err = Error;

    /// `/physical_device:GPU:0`, and no other form: a logical device is no physical one.
    fn from_str(text: &str) -> Result<PhysicalId> {
        let parts = text.strip_prefix("/physical_device:").and_then(|rest| rest.split_once(':'));
        let id = parts.and_then(|(kind, index)| Some(PhysicalId { kind: DeviceKind::from_name(kind)?, index: index.parse().ok()? }));
        id.ok_or_else(|| {
            Error::invalid_argument(format!("device must be a physical device, but got: {text}"))
                .with_remedy("write /physical_device:GPU:0, as list_physical_devices gives it")
        })
    }
}

/// A part of a physical device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogicalDeviceConfiguration {
    /// MiB; required for GPUs, not allowed for CPUs, as in TensorFlow. ([`Options::limit`] limits CPUs.)
    pub memory_limit: Option<f32>,
    /// The priority of its streams; for all parts of a card or none.
    pub priority: Option<i32>,
    /// Where it comes in the order of all logical GPUs; for all parts of a card or none.
    pub device_ordinal: Option<i32>,
}

/// The details of a card, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDetails {
    /// The model.
    pub device_name: String,
    /// The version of its instructions.
    pub compute_capability: ComputeCapability,
}

/// A configuration of devices, from the first question to the moment they are opened.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    machine: Vec<PhysicalDevice>,
    environment: Environment,
    /// The cards that can be used, in the order of their numbers.
    cards: Vec<Card>,
    base: Options,
    visible: Vec<PhysicalId>,
    growth: BTreeMap<PhysicalId, bool>,
    logical: BTreeMap<PhysicalId, Vec<LogicalDeviceConfiguration>>,
    intra_op: Option<i32>,
    inter_op: Option<i32>,
    tensor_float_32: Option<bool>,
    soft_placement: Option<bool>,
    log_placement: Option<bool>,
    opened: Option<Division>,
}

impl DeviceConfig {
    /// A configuration of a machine with these cards, in which nothing is set.
    ///
    /// # Errors
    /// As [`DeviceConfig::import`].
    pub fn new(machine: Vec<PhysicalDevice>, environment: Environment) -> Result<DeviceConfig> {
        DeviceConfig::import(machine, environment, Options::new())
    }

    /// A configuration that begins with options, as those of a ConfigProto: their counts and lists become the visible devices.
    /// Where there is no card, options of GPUs are passed on unchecked.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an entry of the visible list that is no card.
    pub fn import(machine: Vec<PhysicalDevice>, environment: Environment, base: Options) -> Result<DeviceConfig> {
        let cards = usable_cards(&machine, &environment);
        let mut config = DeviceConfig {
            machine,
            environment,
            cards,
            base,
            visible: Vec::new(),
            growth: BTreeMap::new(),
            logical: BTreeMap::new(),
            intra_op: None,
            inter_op: None,
            tensor_float_32: None,
            soft_placement: None,
            log_placement: None,
            opened: None,
        };
        config.visible = config.list_physical_devices(None);
        config.take_in()?;
        Ok(config)
    }

    /// The physical devices, the CPU first, then every card that can be used.
    pub fn list_physical_devices(&self, kind: Option<DeviceKind>) -> Vec<PhysicalId> {
        let cards = self.cards.iter().map(|card| PhysicalId::gpu(card.ordinal));
        std::iter::once(PhysicalId::CPU).chain(cards).filter(|id| kind.is_none_or(|kind| kind == id.kind)).collect()
    }

    /// The physical devices that will be used.
    pub fn get_visible_devices(&self, kind: Option<DeviceKind>) -> Vec<PhysicalId> {
        self.visible.iter().copied().filter(|id| kind.is_none_or(|kind| kind == id.kind)).collect()
    }

    /// Uses these devices of a type and no others of it; without a type, these and no others at all. Their order does not
    /// count: GPUs are numbered in physical order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there or of another type; FAILED_PRECONDITION for a change after
    /// initialization.
    pub fn set_visible_devices(&mut self, devices: &[PhysicalId], kind: Option<DeviceKind>) -> Result<()> {
        for device in devices {
            self.check_listed(device)?;
            if kind.is_some_and(|kind| kind != device.kind) {
                return Err(unrecognized(device));
            }
        }
        let kept = self.visible.iter().filter(|id| kind.is_some_and(|kind| kind != id.kind));
        let visible: Vec<PhysicalId> = kept.chain(devices).copied().collect();
        if visible != self.visible {
            self.check_open("Visible devices")?;
            self.visible = visible;
        }
        Ok(())
    }

    /// Whether a card's memory grows; none if that was not set.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there.
    pub fn get_memory_growth(&self, device: PhysicalId) -> Result<Option<bool>> {
        self.check_listed(&device)?;
        Ok(self.growth.get(&device).copied())
    }

    /// Whether a card's memory is taken as it is needed. It must be said of all visible cards alike, which is checked when the
    /// options are made.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there, is divided, or is no GPU; FAILED_PRECONDITION for a change after
    /// initialization.
    pub fn set_memory_growth(&mut self, device: PhysicalId, enable: bool) -> Result<()> {
        self.check_listed(&device)?;
        if self.logical.contains_key(&device) {
            return Err(
                Error::invalid_argument("Cannot set memory growth on device when virtual devices configured").on_device(device.to_string())
            );
        }
        if device.kind != DeviceKind::Gpu {
            return Err(
                Error::invalid_argument("Cannot set memory growth on non-GPU and non-Pluggable devices").on_device(device.to_string())
            );
        }
        if self.growth.get(&device) != Some(&enable) {
            self.check_open("Physical devices")?;
            self.growth.insert(device, enable);
        }
        Ok(())
    }

    /// The division of a physical device; none if it was not set.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there.
    pub fn get_logical_device_configuration(&self, device: PhysicalId) -> Result<Option<&[LogicalDeviceConfiguration]>> {
        self.check_listed(&device)?;
        Ok(self.logical.get(&device).map(Vec::as_slice))
    }

    /// Divides a physical device. As in TensorFlow, dividing any device, even the CPU, ends the growth of all GPUs.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there, and for a part of a GPU without a limit. The same for a part of a CPU with
    /// a limit, a priority or an ordinal. FAILED_PRECONDITION for a change after initialization.
    pub fn set_logical_device_configuration(&mut self, device: PhysicalId, parts: Vec<LogicalDeviceConfiguration>) -> Result<()> {
        self.check_listed(&device)?;
        let wrong = |what: &str| Err(Error::invalid_argument(what).on_device(device.to_string()));
        for part in &parts {
            match device.kind {
                DeviceKind::Cpu if part.memory_limit.is_some() => {
                    return wrong("Setting memory limit on CPU virtual devices is currently not supported");
                }
                DeviceKind::Cpu if part.priority.is_some() => {
                    return wrong("Setting experimental_priority on CPU virtual devices is currently not supported");
                }
                DeviceKind::Cpu if part.device_ordinal.is_some() => {
                    return wrong("Setting experimental_device_ordinal on CPU virtual devices is currently not supported");
                }
                DeviceKind::Gpu if part.memory_limit.is_none() => {
                    return wrong("Setting memory limit is required for GPU virtual devices");
                }
                _ => {}
            }
        }
        if self.logical.get(&device) != Some(&parts) {
            self.check_open("Virtual devices")?;
            self.logical.insert(device, parts);
        }
        Ok(())
    }

    /// The details of a physical device: none for a CPU.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a device that is not there.
    pub fn get_device_details(&self, device: PhysicalId) -> Result<Option<DeviceDetails>> {
        let card = self.cards.iter().find(|card| PhysicalId::gpu(card.ordinal) == device).map(|card| &card.device);
        if card.is_none() && device != PhysicalId::CPU {
            return Err(Error::invalid_argument(format!(
                "The PhysicalDevice must be one obtained from calling `list_physical_devices`, but got: {device}"
            )));
        }
        Ok(card.map(|card| DeviceDetails { device_name: card.name.clone(), compute_capability: card.compute_capability }))
    }

    /// Whether the devices are made: from then on hardly anything can be changed.
    pub fn is_initialized(&self) -> bool {
        self.opened.is_some()
    }

    /// Makes the logical devices, once.
    ///
    /// # Errors
    /// As [`DeviceConfig::options`] and [`resolve`]; nothing is initialized then.
    pub fn initialize(&mut self) -> Result<&Division> {
        let division = match self.opened.take() {
            Some(division) => division,
            None => resolve(&self.machine, &self.options()?, &self.environment)?,
        };
        Ok(self.opened.insert(division))
    }

    /// The logical devices of a type, or all; makes them.
    ///
    /// # Errors
    /// As [`DeviceConfig::initialize`].
    pub fn list_logical_devices(&mut self, kind: Option<DeviceKind>) -> Result<Vec<LogicalDevice>> {
        let devices = &self.initialize()?.devices;
        // A file is no device of TensorFlow's.
        let is_listed = |device: &&LogicalDevice| device.kind.computes() && kind.is_none_or(|kind| kind == device.kind);
        Ok(devices.iter().filter(is_listed).cloned().collect())
    }

    /// Whether a device is among the physical ones.
    fn check_listed(&self, device: &PhysicalId) -> Result<()> {
        if self.list_physical_devices(None).contains(device) { Ok(()) } else { Err(unrecognized(device)) }
    }

    fn check_open(&self, what: &str) -> Result<()> {
        if self.opened.is_none() {
            return Ok(());
        }
        Err(Error::failed_precondition(format!("{what} cannot be modified after being initialized"))
            .with_remedy("configure devices before the first question about logical ones, or begin a new configuration"))
    }
}

fn unrecognized(device: &PhysicalId) -> Error {
    Error::invalid_argument(format!("Unrecognized device: {device}"))
}
