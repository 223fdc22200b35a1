//! Towers: a replica of the network on each device, variables shared.

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::optimizer::average_gradients;
use plimsoll::builder::{Reuse, Variable};
use plimsoll::{DeviceKind, Devices, HostTensor, Output};
use plimsoll::{Error, Result};

/// Where replicas and variables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Towers {
    /// The device of each tower.
    pub devices: Vec<String>,
    /// The device of the variables, where gradients are averaged and applied.
    pub variables: String,
}

impl Towers {
    /// So many towers, tower `i` on `/cpu:i`, variables on `/cpu:0`.
    pub fn on_cpus(count: usize) -> Towers {
        Towers { devices: (0..count).map(|index| format!("/cpu:{index}")).collect(), variables: "/cpu:0".to_string() }
    }

    /// One tower on each logical GPU, variables on `/cpu:0`. Where there are no GPUs, one on each logical CPU device.
    pub fn on(devices: &Devices) -> Towers {
        match count_of(devices, DeviceKind::Gpu) {
            0 => Towers::on_cpus(count_of(devices, DeviceKind::Cpu)),
            gpus => Towers::many_on(devices, gpus),
        }
    }

    /// So many towers on these devices, variables on `/cpu:0`. Where there are logical GPUs, tower `i` is on the `i`-th of them,
    /// counted round and round; else it is on `/cpu:i`.
    pub fn many_on(devices: &Devices, count: usize) -> Towers {
        Towers::many_on_these(devices, count, &[])
    }

    /// As [`Towers::many_on`], on these logical GPUs in this order, if there are any; else on all of them.
    pub fn many_on_these(devices: &Devices, count: usize, gpus: &[u32]) -> Towers {
        let all: Vec<u32> = (0..count_of(devices, DeviceKind::Gpu) as u32).collect();
        match if gpus.is_empty() { &all } else { gpus } {
            [] => Towers::on_cpus(count),
            gpus => {
                let devices = gpus.iter().cycle().take(count).map(|gpu| format!("/gpu:{gpu}")).collect();
                Towers { devices, variables: "/cpu:0".to_string() }
            }
        }
    }

    /// Builds `tower` once for each device, in name scope `tower_i`. The first tower makes the variables, the others find
    /// them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there are no devices; the error of `tower`.
    pub fn build<T>(&self, b: &mut GraphBuilder, mut tower: impl FnMut(&mut GraphBuilder) -> Result<T>) -> Result<Vec<T>> {
        if self.devices.is_empty() {
            return Err(Error::invalid_argument("there have to be towers: at least 1"));
        }
        let mut built = Vec::with_capacity(self.devices.len());
        for (index, device) in self.devices.iter().enumerate() {
            let reuse = if index == 0 { Reuse::No } else { Reuse::Yes };
            let one = |b: &mut GraphBuilder| b.name_scope(&format!("tower_{index}"), |b| b.variable_scope("", reuse, &mut tower));
            built.push(b.device(device, one)?);
        }
        Ok(built)
    }
}

/// How many logical devices of a kind there are.
fn count_of(devices: &Devices, kind: DeviceKind) -> usize {
    devices.specs().iter().filter(|spec| spec.kind == kind).count()
}

/// The mean of scalars, named `name`.
pub(super) fn mean(b: &mut GraphBuilder, values: &[Output], name: &str) -> Result<Output> {
    if let [only] = values {
        return b.identity(*only).name(name).build();
    }
    let sum = b.add_n(values.iter().copied()).build()?;
    let share = b.constant(HostTensor::scalar(1.0 / values.len() as f32)).build()?;
    b.mul(sum, share).name(name).build()
}

/// The mean of the towers' gradients for each variable.
pub(super) fn mean_gradients(b: &mut GraphBuilder, mut towers: Vec<Vec<(Output, Variable)>>) -> Result<Vec<(Output, Variable)>> {
    if towers.len() == 1 {
        return Ok(towers.remove(0));
    }
    b.name_scope("average", |b| average_gradients(b, &towers))
}
