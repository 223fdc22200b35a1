//! Simulated cards pass the suite of all devices.

use std::sync::{Arc, Mutex};

use plimsoll_base::Bytes;
use plimsoll_device::conformance::{Rig, run_all};
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_device_sim::SimDevice;
use plimsoll_memory::Ledger;

/// Cards that take so much for themselves; those made last can be lost.
struct Cards(Bytes, Mutex<Vec<Arc<SimDevice>>>);

impl Rig for Cards {
    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        let device = |index| {
            let name = DeviceName::local("GPU", index);
            let cpu = DeviceSpec::cpu(index, Some(line), 1, InstructionSet::Baseline);
            let spec = DeviceSpec { name, kind: DeviceKind::Gpu, overhead: self.0, ..cpu };
            let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
            Arc::new(SimDevice::new(spec, ledger).unwrap())
        };
        let cards: Vec<Arc<SimDevice>> = (0..count as u32).map(device).collect();
        *self.1.lock().unwrap() = cards.clone();
        cards.into_iter().map(|card| card as Arc<dyn Device>).collect()
    }

    fn lose(&self, device: &Arc<dyn Device>) -> bool {
        let cards = self.1.lock().unwrap();
        let name = &device.spec().name;
        cards.iter().find(|card| card.spec().name == *name).map(|card| card.lose()).is_some()
    }
}

#[test]
fn cards_do_what_devices_do() {
    for overhead in [0, 256 << 10] {
        run_all(&Cards(Bytes(overhead), Mutex::default()));
    }
}
