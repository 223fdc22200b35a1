//! Constants in the memory of devices: which are equal, and the bytes that plans reserve for theirs.
//!
//! A session has an equal value once on a device, however many of its plans read it. Kernels of a processor read constants where the
//! graph has them: all values of the session are one reservation there. In a device's own memory a large value is a reservation
//! that plans share; the small values of a plan are one reservation of the plan's own. So the bytes of some plans depend on the
//! plans alone, and not on the order in which they were loaded.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use plimsoll_base::{Bytes, Panels, Result};
use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_graph::id::Id;
use plimsoll_graph::{HostTensor, TensorData};

use crate::plan::{Plan, PlanConstant};

/// In a device's own memory, values of at least so many times its granularity are shared: rounding adds little to them.
const SHARED_GRANULES: u64 = 16;

/// Whether kernels of the device read constants where the graph has them.
pub fn reads_from_graph(spec: &DeviceSpec) -> bool {
    spec.kind == DeviceKind::Cpu
}

/// Whether plans share a value of that size on the device.
pub fn shares_value(spec: &DeviceSpec, bytes: Bytes) -> bool {
    reads_from_graph(spec) || bytes.0 >= spec.granularity.saturating_mul(SHARED_GRANULES)
}

/// The elements of a constant, in the order in which kernels read them. Two are equal where type, order and bytes are, whatever their
/// shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantValue {
    tensor: HostTensor,
    panels: Option<Panels>,
}

impl ConstantValue {
    /// Of a constant of a plan, and its elements.
    pub fn new(constant: &PlanConstant, tensor: &HostTensor) -> ConstantValue {
        let tensor = tensor.reshaped([tensor.elements()].into()).unwrap_or_else(|_| tensor.clone());
        ConstantValue { tensor, panels: constant.panels }
    }

    /// All elements, as a vector that is held in their order. Where the graph has them so, they are the graph's.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the system has not the memory for what the graph has in another form; INVALID_ARGUMENT for panels that
    /// the elements do not make.
    pub fn full(&self) -> Result<HostTensor> {
        self.panels.map_or_else(|| self.tensor.dense(), |panels| self.tensor.in_panels(panels))
    }
}

impl Eq for ConstantValue {}

impl Hash for ConstantValue {
    /// The first and the last element: they are the same however the elements are held.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tensor.data_type(), self.tensor.elements(), self.panels).hash(state);
        let held = match self.tensor.data() {
            TensorData::Repeated(leading) => Some(&leading[..]),
            _ => self.tensor.held(),
        };
        let size = self.tensor.data_type().size().unwrap_or_default();
        if let Some(held) = held.filter(|held| held.len() >= size) {
            (&held[..size], &held[held.len() - size..]).hash(state);
        }
    }
}

/// The bytes that a device reserves for the constants of plans that are loaded at the same time.
#[derive(Clone, Debug)]
pub(crate) struct ConstantBytes<'a> {
    spec: &'a DeviceSpec,
    shared: HashSet<ConstantValue>,
    /// Bytes of shared values in one reservation.
    slots: Bytes,
    /// Bytes of reservations.
    blocks: Bytes,
}

impl<'a> ConstantBytes<'a> {
    /// Of no plan yet.
    pub fn new(spec: &'a DeviceSpec) -> ConstantBytes<'a> {
        ConstantBytes { spec, shared: HashSet::new(), slots: Bytes::ZERO, blocks: Bytes::ZERO }
    }

    /// Adds those constants of a plan that this device, `index`, reads.
    pub fn add<'v>(&mut self, index: usize, constants: impl IntoIterator<Item = (&'v PlanConstant, &'v HostTensor)>) {
        let mut own = HashSet::new();
        for (constant, value) in constants {
            if constant.device.is_none_or(|device| device.index() != index) {
                continue;
            }
            let value = ConstantValue::new(constant, value);
            if !shares_value(self.spec, constant.bytes) {
                own.insert(value);
            } else if self.shared.insert(value) {
                match reads_from_graph(self.spec) {
                    true => self.slots += self.spec.slot(constant.bytes),
                    false => self.blocks += self.spec.reserved(constant.bytes),
                }
            }
        }
        self.blocks += self.spec.reserved_for(own.iter().map(|value| Bytes(value.tensor.byte_len())));
    }

    /// The bytes that are reserved.
    pub fn reserved(&self) -> Bytes {
        self.blocks + self.spec.reserved(self.slots)
    }
}

impl Plan {
    /// The constants with their elements.
    pub fn constant_values(&self) -> impl Iterator<Item = (&PlanConstant, &HostTensor)> {
        self.constants.iter().zip(&self.values)
    }
}
