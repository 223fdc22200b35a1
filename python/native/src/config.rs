//! `tf.config` for Python: settings before devices are opened, and the devices that they make.

use std::sync::{Mutex, PoisonError};

use plimsoll::machine::device_config::{DeviceConfig, LogicalDeviceConfiguration, PhysicalId};
use plimsoll::{DeviceKind, Error, Options, formats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::devices::Devices;
use crate::errors::raised;
use crate::process::Own;
use crate::tensor::numpy;

/// A limit in MiB, a priority, an ordinal: each may be missing.
type Part = (Option<f32>, Option<i32>, Option<i32>);

/// Settings for the devices of this machine, and these devices once they are opened.
#[pyclass(frozen, module = "plimsoll._native")]
pub struct Config(Own<Mutex<State>>);

struct State {
    config: DeviceConfig,
    opened: Option<plimsoll::Devices>,
}

impl Config {
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut State) -> plimsoll::Result<T> + Send) -> PyResult<T>
    where
        T: Send,
    {
        let state = self.0.get()?;
        py.detach(|| work(&mut state.lock().unwrap_or_else(PoisonError::into_inner))).map_err(|error| raised(py, &error))
    }
}

/// A type by its name; none is every type. No device is of an unknown type.
fn kind(name: Option<&str>) -> Result<Option<DeviceKind>, Error> {
    let known = |name: &str| {
        DeviceKind::from_name(name).ok_or_else(|| Error::new(plimsoll::Code::InvalidArgument, format!("Unrecognized device type: {name}")))
    };
    name.map(known).transpose()
}

fn names(ids: Vec<PhysicalId>) -> Vec<String> {
    ids.iter().map(PhysicalId::to_string).collect()
}

impl State {
    /// The devices, opened once; with the placement that is set now.
    fn open(&mut self) -> plimsoll::Result<plimsoll::Devices> {
        let devices = match &self.opened {
            Some(devices) => devices.clone(),
            None => {
                let devices = plimsoll::Devices::open(&self.config.options()?)?;
                self.config.initialize()?;
                self.opened.insert(devices).clone()
            }
        };
        Ok(devices.with_placement(self.config.get_soft_device_placement(), self.config.get_log_device_placement()))
    }
}

#[pymethods]
impl Config {
    /// Settings in which nothing is set but what a ConfigProto, encoded or as text, says.
    #[new]
    #[pyo3(signature = (config=None, sim_gpus=None))]
    fn new(py: Python<'_>, config: Option<&[u8]>, sim_gpus: Option<String>) -> PyResult<Config> {
        let make = || {
            let mut options = Options::new();
            if let Some(config) = config {
                plimsoll::config::apply(&formats::read_config(config)?, &mut options)?;
            }
            if let Some(cards) = sim_gpus {
                options = options.sim_gpus(cards);
            }
            plimsoll::Devices::configuration(options)
        };
        let config = py.detach(make).map_err(|error| raised(py, &error))?;
        Ok(Config(Own::new(Mutex::new(State { config, opened: None }))))
    }

    /// Opens the devices at the first call, and gives them.
    fn open(&self, py: Python<'_>) -> PyResult<Devices> {
        numpy(py)?;
        self.with(py, State::open).map(Devices::logging)
    }

    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.opened.is_some()))
    }

    fn physical_devices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |state| Ok(names(state.config.list_physical_devices(None))))
    }

    fn visible_devices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |state| Ok(names(state.config.get_visible_devices(None))))
    }

    #[pyo3(signature = (devices, kind_of=None))]
    fn set_visible_devices(&self, py: Python<'_>, devices: Vec<String>, kind_of: Option<&str>) -> PyResult<()> {
        self.with(py, |state| {
            let devices = devices.iter().map(|name| name.parse()).collect::<plimsoll::Result<Vec<PhysicalId>>>()?;
            state.config.set_visible_devices(&devices, kind(kind_of)?)
        })
    }

    fn memory_growth(&self, py: Python<'_>, device: &str) -> PyResult<Option<bool>> {
        self.with(py, |state| state.config.get_memory_growth(device.parse()?))
    }

    fn set_memory_growth(&self, py: Python<'_>, device: &str, enable: bool) -> PyResult<()> {
        self.with(py, |state| state.config.set_memory_growth(device.parse()?, enable))
    }

    fn logical_device_configuration(&self, py: Python<'_>, device: &str) -> PyResult<Option<Vec<Part>>> {
        self.with(py, |state| {
            let parts = state.config.get_logical_device_configuration(device.parse()?)?;
            Ok(parts.map(|parts| parts.iter().map(|part| (part.memory_limit, part.priority, part.device_ordinal)).collect()))
        })
    }

    fn set_logical_device_configuration(&self, py: Python<'_>, device: &str, parts: Vec<Part>) -> PyResult<()> {
        let part = |(memory_limit, priority, device_ordinal)| LogicalDeviceConfiguration { memory_limit, priority, device_ordinal };
        self.with(py, |state| state.config.set_logical_device_configuration(device.parse()?, parts.into_iter().map(part).collect()))
    }

    /// Model and compute capability; none for the processor.
    fn device_details(&self, py: Python<'_>, device: &str) -> PyResult<Option<(String, (u32, u32))>> {
        self.with(py, |state| {
            let details = state.config.get_device_details(device.parse()?)?;
            Ok(details.map(|details| (details.device_name, (details.compute_capability.0, details.compute_capability.1))))
        })
    }

    fn intra_op(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |state| Ok(state.config.intra_op_parallelism_threads()))
    }

    fn set_intra_op(&self, py: Python<'_>, threads: i32) -> PyResult<()> {
        self.with(py, |state| state.config.set_intra_op_parallelism_threads(threads))
    }

    fn inter_op(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |state| Ok(state.config.inter_op_parallelism_threads()))
    }

    fn set_inter_op(&self, py: Python<'_>, threads: i32) -> PyResult<()> {
        self.with(py, |state| state.config.set_inter_op_parallelism_threads(threads))
    }

    fn tensor_float_32(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.config.tensor_float_32_execution_enabled()))
    }

    fn set_tensor_float_32(&self, py: Python<'_>, enabled: bool) -> PyResult<()> {
        self.with(py, |state| state.config.enable_tensor_float_32_execution(enabled))
    }

    fn soft_placement(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.config.get_soft_device_placement()))
    }

    fn set_soft_placement(&self, py: Python<'_>, enabled: bool) -> PyResult<()> {
        self.with(py, |state| {
            state.config.set_soft_device_placement(enabled);
            Ok(())
        })
    }

    fn log_placement(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| Ok(state.config.get_log_device_placement()))
    }

    fn set_log_placement(&self, py: Python<'_>, enabled: bool) -> PyResult<()> {
        self.with(py, |state| {
            state.config.set_log_device_placement(enabled);
            Ok(())
        })
    }

    /// The fields of the ConfigProto that the settings make, as far as they are set here.
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = self.with(py, |state| state.config.options())?;
        let fields = PyDict::new(py);
        fields.set_item("device_count", options.device_count)?;
        fields.set_item("intra_op_parallelism_threads", options.intra_op)?;
        fields.set_item("inter_op_parallelism_threads", options.inter_op)?;
        fields.set_item("allow_soft_placement", options.soft_placement)?;
        fields.set_item("log_device_placement", options.log_placement)?;
        fields.set_item("tensor_float_32_execution", options.tensor_float_32)?;
        fields.set_item("visible_device_list", options.gpu.visible_device_list)?;
        fields.set_item("allow_growth", options.gpu.allow_growth)?;
        let message = |part: plimsoll::machine::VirtualDevices| (part.memory_limit_mb, part.priority, part.device_ordinal);
        fields.set_item("virtual_devices", options.gpu.virtual_devices.into_iter().map(message).collect::<Vec<_>>())?;
        Ok(fields)
    }
}
