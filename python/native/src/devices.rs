//! Devices with their lines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll::machine::MachineDescription;
use plimsoll::model::{self, Tags};
use plimsoll::{Options, Result, formats};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::errors::raised;
use crate::process::Own;
use crate::session::Session;
use crate::tensor::numpy;

/// What devices are opened by. The same names are those of `plimsoll.session.open_devices`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Given {
    /// A ConfigProto, encoded or as text.
    config: Option<PyBackedBytes>,
    /// Limits by device; the empty name is that of every GPU.
    limits: Option<BTreeMap<String, String>>,
    /// Counts by kind.
    device_count: Option<BTreeMap<String, i32>>,
    /// Simulated cards, as `2x4GiB`.
    sim_gpus: Option<String>,
    /// A file for values of processors, as `/var/tmp=8GiB`.
    spill: Option<String>,
    /// Whether convolutions do all multiplications; a ConfigProto may ask for it, too.
    exact_convolutions: bool,
    /// How products of floats are computed on processors; a ConfigProto may say it, too.
    matmul_precision: Option<String>,
    /// Whether a plan over a limit is made to fit.
    fit: bool,
    /// The description of a machine that need not be here.
    described: Option<PathBuf>,
}

impl Given {
    fn options(&self) -> Result<Options> {
        let mut options = Options::new().fit(self.fit);
        if let Some(config) = &self.config {
            plimsoll::config::apply(&formats::read_config(config)?, &mut options)?;
        }
        for (device, limit) in self.limits.iter().flatten() {
            options = match device.as_str() {
                "" => options.memory_limit_flag(limit)?,
                _ => options.memory_limit_flag(&format!("{device}={limit}"))?,
            };
        }
        options.device_count.extend(self.device_count.clone().into_iter().flatten());
        if let Some(cards) = &self.sim_gpus {
            options = options.sim_gpus(cards);
        }
        options.spill = self.spill.as_deref().map(str::parse).transpose()?;
        options.exact_convolutions |= self.exact_convolutions;
        if let Some(precision) = &self.matmul_precision {
            options.matmul_precision = precision.parse()?;
        }
        Ok(options)
    }

    fn open(&self) -> Result<plimsoll::Devices> {
        let options = self.options()?;
        let Some(path) = &self.described else { return plimsoll::Devices::open(&options) };
        let machine = MachineDescription::from_json(&model::read_file(path)?).map_err(|error| error.context(path.display()))?;
        plimsoll::Devices::described(&options, &machine)
    }
}

/// Logical devices, each with its line.
#[pyclass(frozen, module = "plimsoll._native")]
pub struct Devices(Own<plimsoll::Devices>);

impl Devices {
    /// Devices whose sessions log their placement by `plimsoll._log`, where that is asked for.
    pub fn logging(devices: plimsoll::Devices) -> Devices {
        Devices(Own::new(devices.with_placement_log(|log| {
            Python::attach(|py| {
                let write = || py.import("plimsoll._log")?.getattr("placement")?.call1((log.notes.clone(), log.lines.clone()));
                // A log that cannot be written fails no session; Python reports it as it does for callbacks.
                if let Err(error) = write() {
                    error.write_unraisable(py, None);
                }
            });
        })))
    }
}

#[pymethods]
impl Devices {
    /// Opens devices.
    #[new]
    fn new(py: Python<'_>, given: Given) -> PyResult<Devices> {
        numpy(py)?;
        py.detach(|| given.open()).map(Devices::logging).map_err(|error| raised(py, &error))
    }

    /// A session for the model at a path.
    #[pyo3(signature = (path, tags=None))]
    fn load(&self, py: Python<'_>, path: PathBuf, tags: Option<Vec<String>>) -> PyResult<Session> {
        let tags = tags.map(Tags::of).unwrap_or_default();
        let devices = self.0.get()?;
        let session = py.detach(|| devices.load_tagged(path, &tags)).map_err(|error| raised(py, &error))?;
        Ok(Session::new(session))
    }

    /// A session for an encoded GraphDef, or one as text.
    fn session(&self, py: Python<'_>, graph: &[u8]) -> PyResult<Session> {
        let devices = self.0.get()?;
        let open = || devices.session(devices.resolve(formats::read_graph_def(graph)?)?);
        py.detach(open).map(Session::new).map_err(|error| raised(py, &error))
    }

    /// A session for the graph that a builder has built so far.
    fn build(&self, py: Python<'_>, builder: &crate::builder::Builder) -> PyResult<Session> {
        let (devices, graph) = (self.0.get()?, builder.graph()?);
        py.detach(|| devices.session(graph)).map(Session::new).map_err(|error| raised(py, &error))
    }

    /// Which logical device is on which card, in TensorFlow's words; none where placements are not logged.
    fn device_mapping(&self) -> PyResult<Option<String>> {
        let devices = self.0.get()?;
        Ok(devices.options().log_placement.then(|| devices.device_mapping()))
    }

    /// The full names of the devices, with their kinds and lines in bytes.
    fn names(&self) -> PyResult<Vec<(String, &'static str, Option<u64>)>> {
        let of = |spec: &plimsoll::DeviceSpec| (spec.name.to_string(), spec.kind.name(), spec.memory_limit.map(|limit| limit.0));
        Ok(self.0.get()?.specs().iter().map(of).collect())
    }

    /// What sessions have of a device now and had at most, in bytes.
    fn memory_info<'py>(&self, py: Python<'py>, device: &str) -> PyResult<Bound<'py, PyDict>> {
        let (info, devices) = (PyDict::new(py), self.0.get()?);
        info.set_item("current", devices.memory_allocated(device).map_err(|error| raised(py, &error))?.0)?;
        info.set_item("peak", devices.max_memory_allocated(device).map_err(|error| raised(py, &error))?.0)?;
        Ok(info)
    }

    /// The most that a device had is what it has now.
    fn reset_memory_stats(&self, py: Python<'_>, device: &str) -> PyResult<()> {
        self.0.get()?.reset_max_memory_allocated(device).map(drop).map_err(|error| raised(py, &error))
    }
}
