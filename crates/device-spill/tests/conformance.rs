//! A file passes the part of the suite of all devices that calls no kernel.

use std::sync::{Arc, Mutex};

use plimsoll_base::Bytes;
use plimsoll_device::conformance::{CellOperation, Rig, TestKernels, run_without_kernels};
use plimsoll_device::{Device, DeviceSpec, InstructionSet, KernelCall};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;
use plimsoll_memory::Faults;

/// Files in a folder, beside a processor; the one made last can be broken.
struct Files {
    folder: &'static str,
    kernels: Arc<TestKernels>,
    faults: Mutex<Arc<Faults>>,
}

impl Rig for Files {
    fn call(&self, operation: CellOperation, pieces: u32, _: usize) -> KernelCall {
        self.kernels.cells(operation, pieces)
    }

    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        let pool = CpuPool::new(2).unwrap();
        let spec = DeviceSpec::cpu(0, None, 2, InstructionSet::Baseline);
        let cpu = Arc::new(CpuDevice::new(spec, pool, self.kernels.clone()));
        let file = |index: u32| {
            let spec = DeviceSpec::spill(index, line, self.folder);
            let buffer = cpu.allocate(Bytes(64 << 10), "buffer").unwrap();
            let file = SpillDevice::create(spec, self.folder.as_ref(), buffer).unwrap();
            let faults = Arc::default();
            file.inject(&faults);
            *self.faults.lock().unwrap() = faults;
            Arc::new(file) as Arc<dyn Device>
        };
        match count {
            1 => vec![file(0)],
            _ => std::iter::once(cpu.clone() as Arc<dyn Device>).chain((1..count as u32).map(file)).collect(),
        }
    }

    fn lose(&self, _: &Arc<dyn Device>) -> bool {
        self.faults.lock().unwrap().refuse(0..u64::MAX);
        true
    }
}

#[test]
fn files_do_what_devices_do() {
    // The second is a file system in memory, which knows no direct access; not everywhere.
    for folder in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"].into_iter().filter(|folder| std::fs::exists(folder).unwrap_or(false)) {
        run_without_kernels(&Files { folder, kernels: Arc::default(), faults: Mutex::default() });
    }
}
