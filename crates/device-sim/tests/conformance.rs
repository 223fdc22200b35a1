//! Simulated cards pass the suite of all devices, and so do parts of one card.

use std::sync::{Arc, Mutex};

use plimsoll_base::Bytes;
use plimsoll_device::conformance::{CellOperation, Rig, TestKernels, run_all};
use plimsoll_device::{CardPart, Device, DeviceKind, DeviceName, DeviceSpec, InstructionSet, KernelCall};
use plimsoll_device_sim::{Compute, SimDevice};
use plimsoll_memory::Ledger;

/// Devices that take so much for themselves, each on a card of its own or all on one; those made last can be lost.
struct Cards {
    overhead: Bytes,
    is_one: bool,
    kernels: Arc<TestKernels>,
    made: Mutex<Vec<Arc<SimDevice>>>,
}

impl Rig for Cards {
    fn call(&self, operation: CellOperation, pieces: u32, _: usize) -> KernelCall {
        self.kernels.cells(operation, pieces)
    }

    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        let shared = Arc::new(Compute::default());
        let device = |index: u32| {
            let name = DeviceName::local("GPU", index);
            let cpu = DeviceSpec::cpu(index, Some(line), 1, InstructionSet::Baseline);
            let (card, compute) = if self.is_one { (0, shared.clone()) } else { (index, Arc::default()) };
            let card = Some(CardPart { card, priority: -(index as i32), modelled: None, real: None });
            let spec = DeviceSpec { name, kind: DeviceKind::Gpu, overhead: self.overhead, card, ..cpu };
            let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
            Arc::new(SimDevice::on(&compute, spec, ledger, self.kernels.clone()).unwrap())
        };
        let cards: Vec<Arc<SimDevice>> = (0..count as u32).map(device).collect();
        *self.made.lock().unwrap() = cards.clone();
        cards.into_iter().map(|card| card as Arc<dyn Device>).collect()
    }

    fn lose(&self, device: &Arc<dyn Device>) -> bool {
        let cards = self.made.lock().unwrap();
        let name = &device.spec().name;
        cards.iter().find(|card| card.spec().name == *name).map(|card| card.lose()).is_some()
    }
}

#[test]
fn cards_do_what_devices_do() {
    for (overhead, is_one) in [(0, false), (256 << 10, false), (0, true)] {
        run_all(&Cards { overhead: Bytes(overhead), is_one, kernels: Arc::default(), made: Mutex::default() });
    }
}
