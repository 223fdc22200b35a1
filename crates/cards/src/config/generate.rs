//! From settings to options, and from a ConfigProto's options to settings.

use std::collections::BTreeSet;

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceKind;

use super::{DeviceConfig, LogicalDeviceConfiguration, PhysicalId};
use crate::{Options, VirtualDevices};

impl DeviceConfig {
    /// The options that the settings make: a ConfigProto's, with TensorFlow's meaning.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where growth differs between visible GPUs (unless a device is divided). The same where some parts of a card
    /// have a priority or an ordinal and some have none.
    pub fn options(&self) -> Result<Options> {
        let mut options = self.base.clone();
        options.intra_op = self.intra_op.unwrap_or(options.intra_op);
        options.inter_op = self.inter_op.unwrap_or(options.inter_op);
        options.soft_placement = self.soft_placement.unwrap_or(true);
        options.log_placement = self.get_log_device_placement();
        options.tensor_float_32 = self.tensor_float_32_execution_enabled();
        let visible: Vec<PhysicalId> = self.list_physical_devices(None).into_iter().filter(|id| self.visible.contains(id)).collect();
        for kind in [DeviceKind::Cpu, DeviceKind::Gpu] {
            let parts = visible.iter().filter(|id| id.kind == kind).map(|id| self.logical.get(id).map_or(1, Vec::len));
            options.device_count.insert(kind.name().into(), i32::try_from(parts.sum::<usize>()).unwrap_or(i32::MAX));
        }
        let gpus: Vec<PhysicalId> = visible.into_iter().filter(|id| id.kind == DeviceKind::Gpu).collect();
        if gpus.is_empty() {
            return Ok(options);
        }
        let list: Vec<String> = gpus.iter().map(|id| id.index.to_string()).collect();
        options.gpu.visible_device_list = list.join(",");
        if self.logical.is_empty() {
            let growth: BTreeSet<Option<bool>> = gpus.iter().map(|id| self.growth.get(id).copied()).collect();
            if growth.len() > 1 {
                return Err(Error::invalid_argument("Memory growth cannot differ between GPU devices")
                    .with_remedy("call set_memory_growth with the same value for every visible GPU"));
            }
            options.gpu.allow_growth = growth.into_iter().next().flatten().unwrap_or(options.gpu.allow_growth);
        } else {
            options.gpu.virtual_devices = gpus.iter().map(|id| self.virtual_devices(id)).collect::<Result<_>>()?;
        }
        Ok(options)
    }

    /// The message for a card: empty where it is not divided.
    fn virtual_devices(&self, id: &PhysicalId) -> Result<VirtualDevices> {
        let parts = self.logical.get(id).map_or(&[][..], Vec::as_slice);
        let all_or_none = |values: Vec<i32>, what: &str| {
            if values.is_empty() || values.len() == parts.len() {
                return Ok(values);
            }
            Err(Error::invalid_argument(format!("{what} must be specified for all virtual devices")).on_device(id.to_string()))
        };
        Ok(VirtualDevices {
            memory_limit_mb: parts.iter().filter_map(|part| part.memory_limit).collect(),
            priority: all_or_none(parts.iter().filter_map(|part| part.priority).collect(), "priority")?,
            device_ordinal: all_or_none(parts.iter().filter_map(|part| part.device_ordinal).collect(), "device_ordinals")?,
        })
    }

    /// Makes settings of the base's options.
    pub(super) fn take_in(&mut self) -> Result<()> {
        match self.base.device_count.get("CPU") {
            Some(0) => self.set_visible_devices(&[], Some(DeviceKind::Cpu))?,
            Some(&count) if count > 1 => {
                let parts = vec![LogicalDeviceConfiguration::default(); count.min(1 << 16) as usize];
                self.set_logical_device_configuration(PhysicalId::CPU, parts)?;
            }
            _ => {}
        }
        let gpus = self.list_physical_devices(Some(DeviceKind::Gpu));
        if gpus.is_empty() {
            return Ok(());
        }
        let list = self.base.gpu.visible_device_list.clone();
        let mut visible = if list.is_empty() { gpus.clone() } else { Vec::new() };
        for entry in list.split(',').filter(|_| !list.is_empty()) {
            // A negative number counts from the end, as in Python.
            let position = entry.trim().parse::<i64>().ok().map(|index| if index < 0 { index + gpus.len() as i64 } else { index });
            let gpu = position.and_then(|position| gpus.get(usize::try_from(position).ok()?));
            visible.push(*gpu.ok_or_else(|| {
                Error::invalid_argument(format!("Invalid visible device index: {entry}"))
                    .with_remedy(format!("list numbers from 0 to {}", gpus.len() - 1))
            })?);
        }
        if let Some(&count) = self.base.device_count.get("GPU") {
            // `visible[:count]`, where a negative count drops so many at the end.
            let kept = if count < 0 { visible.len().saturating_sub(count.unsigned_abs() as usize) } else { count as usize };
            visible.truncate(kept);
        }
        self.set_visible_devices(&visible, Some(DeviceKind::Gpu))
    }

    /// Threads of one operation; 0 lets the system choose.
    pub fn intra_op_parallelism_threads(&self) -> i32 {
        self.intra_op.unwrap_or(self.base.intra_op)
    }

    /// Sets the threads of one operation.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a change after initialization.
    pub fn set_intra_op_parallelism_threads(&mut self, threads: i32) -> Result<()> {
        if self.intra_op != Some(threads) {
            self.check_open("Intra op parallelism")?;
            self.intra_op = Some(threads);
        }
        Ok(())
    }

    /// Operations at the same time; 0 lets the system choose.
    pub fn inter_op_parallelism_threads(&self) -> i32 {
        self.inter_op.unwrap_or(self.base.inter_op)
    }

    /// Sets how many operations go at the same time.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a change after initialization.
    pub fn set_inter_op_parallelism_threads(&mut self, threads: i32) -> Result<()> {
        if self.inter_op != Some(threads) {
            self.check_open("Inter op parallelism")?;
            self.inter_op = Some(threads);
        }
        Ok(())
    }

    /// Whether cards may round floats to TF32. Unlike TensorFlow's, it is off unless it was turned on.
    pub fn tensor_float_32_execution_enabled(&self) -> bool {
        self.tensor_float_32.unwrap_or(self.base.tensor_float_32)
    }

    /// Sets whether cards may round floats to TF32.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a change after initialization: engines are chosen for the devices.
    pub fn enable_tensor_float_32_execution(&mut self, enabled: bool) -> Result<()> {
        if self.tensor_float_32_execution_enabled() != enabled {
            self.check_open("TensorFloat-32 execution")?;
        }
        self.tensor_float_32 = Some(enabled);
        Ok(())
    }

    /// Whether a node may go elsewhere than it asks: on, unless it was turned off here, whatever an imported ConfigProto says.
    pub fn get_soft_device_placement(&self) -> bool {
        self.soft_placement.unwrap_or(true)
    }

    /// Turns soft placement on or off, at any time.
    pub fn set_soft_device_placement(&mut self, enabled: bool) {
        self.soft_placement = Some(enabled);
    }

    /// Whether placements are logged.
    pub fn get_log_device_placement(&self) -> bool {
        self.log_placement.unwrap_or(self.base.log_placement)
    }

    /// Turns the log of placements on or off, at any time.
    pub fn set_log_device_placement(&mut self, enabled: bool) {
        self.log_placement = Some(enabled);
    }
}
