//! CPU devices pass the suite of all devices, on any number of threads.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::conformance::{CellOperation, Rig, TestKernels, run_all};
use plimsoll_device::{Device, DeviceSpec, InstructionSet, KernelCall};
use plimsoll_device_cpu::{CpuDevice, CpuPool};

struct Cpus(usize, Arc<TestKernels>);

impl Rig for Cpus {
    fn call(&self, operation: CellOperation, pieces: u32, _: usize) -> KernelCall {
        self.1.cells(operation, pieces)
    }

    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        let pool = CpuPool::new(self.0).unwrap();
        let device = |index| CpuDevice::new(DeviceSpec::cpu(index, Some(line), 1, InstructionSet::Baseline), pool.clone(), self.1.clone());
        (0..count as u32).map(|index| Arc::new(device(index)) as Arc<dyn Device>).collect()
    }
}

#[test]
fn cpus_do_what_devices_do() {
    [1, 2, 3].into_iter().for_each(|threads| run_all(&Cpus(threads, Arc::default())));
}
