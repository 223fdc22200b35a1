//! Plans: peaks by device, before anything runs.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The plan of a run. Prints as the table of `plimsoll plan`.
#[pyclass(frozen, module = "plimsoll")]
pub struct Plan(pub plimsoll::Plan);

#[pymethods]
impl Plan {
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let verdict = if self.0.fits() { "fits" } else { "does not fit" };
        format!("<plimsoll.Plan: {verdict}, the smallest limit is {} bytes>", self.0.minimum_limit().0)
    }

    /// The plan as a picture, in notebooks: the page of `plimsoll plan --html`, in a frame of its own.
    fn _repr_html_(&self) -> String {
        self.0.picture("plan").frame()
    }

    /// Whether every device's peak is under its line.
    #[getter]
    fn fits(&self) -> bool {
        self.0.fits()
    }

    /// The smallest limit of the fullest device with which it fits, in bytes.
    #[getter]
    fn minimum_limit_bytes(&self) -> u64 {
        self.0.minimum_limit().0
    }

    /// The bytes that are missing, 0 where it fits.
    #[getter]
    fn shortfall_bytes(&self) -> u64 {
        self.0.shortfall().0
    }

    /// The predicted seconds of a run; None where they are not known.
    #[getter]
    fn predicted_seconds(&self) -> Option<f64> {
        self.0.predicted_seconds()
    }

    /// Everything above and the peak of each device, as numbers and names.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plan = PyDict::new(py);
        plan.set_item("fits", self.0.fits())?;
        plan.set_item("minimum_limit_bytes", self.0.minimum_limit().0)?;
        plan.set_item("shortfall_bytes", self.0.shortfall().0)?;
        plan.set_item("predicted_seconds", self.0.predicted_seconds())?;
        let devices = PyList::empty(py);
        for (need, certainty) in self.0.footprint().needs().iter().zip(self.0.certainties()) {
            let device = PyDict::new(py);
            device.set_item("name", &need.name)?;
            device.set_item("limit_bytes", need.limit.map(|limit| limit.0))?;
            device.set_item("peak_bytes", need.peak.0)?;
            device.set_item("certainty", certainty)?;
            let parts = need.parts;
            let all = [
                ("variables_bytes", parts.variables),
                ("constants_bytes", parts.constants),
                ("activations_bytes", parts.activations),
                ("workspace_bytes", parts.workspace),
                ("transfer_bytes", parts.transfer),
                ("overhead_bytes", parts.overhead),
            ];
            all.into_iter().try_for_each(|(name, bytes)| device.set_item(name, bytes.0))?;
            devices.append(device)?;
        }
        plan.set_item("devices", devices)?;
        Ok(plan)
    }
}
