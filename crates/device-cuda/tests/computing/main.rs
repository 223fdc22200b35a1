//! Cards that compute, without a card: the driver's library and the compiler's are mocks, opened by their paths as the real ones are.

mod across;
mod batched;
mod beside;
mod bodies;
mod card;
mod code;
mod convolutions;
mod descriptors;
mod driver;
mod engines;
mod faults;
mod finished;
mod fusions;
mod graphs;
mod machine;
mod refused;
mod rig;
mod short;
mod tuning;

use std::sync::{Arc, Mutex};

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_device::conformance::run_all;
use plimsoll_device::{CardPart, Device, DeviceName, DeviceSpec};
use plimsoll_device_cuda::{CudaCard, CudaDevice, CudaLibrary, GraphUse, any_card};
use plimsoll_memory::{Denied, Ledger, Upstream};
use plimsoll_mock_driver as mock;

use rig::Cards;

#[test]
fn cards_do_what_devices_do() {
    // Whether devices are parts of one card, and whether graphs are made at the first step.
    for (is_one, at_once) in [(false, false), (true, false), (false, true), (true, true)] {
        let Some(cards) = Cards::new(&format!("suite-{is_one}-{at_once}"), &[256; 3]) else { return };
        // One of the cards reaches no other, in half of the rounds.
        cards.machine.gpus.set_alone(2, at_once).unwrap();
        run_all(&Cards { is_one, graphs: GraphUse { at_once, ..cards.graphs }, ..cards });
    }
}

#[test]
fn what_is_promised_is_mapped_to_the_byte() {
    let Some(cards) = Cards::new("promise", &[64]) else { return };
    let card = cards.card(0);
    let before = cards.machine.used(0);
    let device = cards.device(&card, 0, Some(Bytes(48 << 20)), std::sync::Arc::new(CudaLibrary)).unwrap();
    let used = || Bytes(cards.machine.used(0) - before);
    assert_eq!((used(), device.usage().in_use, device.usage().measured), (Bytes(2 << 20), Bytes(2 << 20), Bytes(2 << 20)));
    let blocks: Vec<_> = [1, 3 << 20, 5 << 20, 0].into_iter().map(|bytes| device.allocate(Bytes(bytes), "block").unwrap()).collect();
    assert_eq!((used(), device.usage().in_use, device.usage().measured), (Bytes(14 << 20), Bytes(14 << 20), Bytes(14 << 20)));
    drop(blocks);
    assert_eq!((used(), device.usage().measured, device.usage().peak), (Bytes(2 << 20), Bytes(2 << 20), Bytes(14 << 20)));
    drop(device);
    assert_eq!(used(), Bytes::ZERO);
}

#[test]
fn a_card_without_room_changes_nothing() {
    let Some(cards) = Cards::new("room", &[8]) else { return };
    let card = cards.card(0);
    let device = cards.device(&card, 0, None, std::sync::Arc::new(CudaLibrary)).unwrap();
    let (before, used) = (device.usage(), cards.machine.used(0));
    for bytes in [8 << 20, 1 << 40, 1 << 62, u64::MAX] {
        let error = device.allocate(Bytes(bytes), "block").unwrap_err();
        assert_eq!((error.code(), error.device()), (Code::ResourceExhausted, Some("/job:localhost/replica:0/task:0/device:GPU:0")));
        let after = device.usage();
        assert_eq!((after.in_use, after.measured, cards.machine.used(0)), (before.in_use, before.measured, used), "{error}");
    }
    let block = device.allocate(Bytes(6 << 20), "block").unwrap();
    assert_eq!((card.free_bytes().unwrap(), block.bytes()), (0, Bytes(6 << 20)));
    // Another device finds no room for what it takes itself.
    let error = cards.device(&card, 1, None, std::sync::Arc::new(CudaLibrary)).err().unwrap();
    assert!(error.message().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
}

/// What a card has in use whenever bytes behind a ledger are given back.
#[derive(Debug)]
struct Behind {
    gpus: mock::Machine,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Upstream for Behind {
    fn held(&self) -> Bytes {
        Bytes(48 << 20)
    }

    fn step(&self) -> Option<Bytes> {
        None
    }

    fn capacity(&self) -> Bytes {
        self.held()
    }

    fn free(&self) -> Result<Bytes> {
        Ok(Bytes::ZERO)
    }

    fn reserve(&self, _: Bytes, least: Bytes) -> std::result::Result<Bytes, Denied> {
        panic!("{least} more than is held")
    }

    fn release(&self, _: Bytes) -> Result<()> {
        self.seen.lock().unwrap().push(self.gpus.used().unwrap()[0]);
        Ok(())
    }

    fn show_use(&self, _: &dyn Fn(Bytes) -> Bytes) {}
}

#[test]
fn bytes_go_back_to_others_after_the_card_has_them() {
    let Some(cards) = Cards::new("after", &[64]) else { return };
    cards.machine.gpus.set_context(0, 3 << 20).unwrap();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let open = |card: &Arc<CudaCard>, overhead: u64| {
        let part = CardPart { card: 0, priority: 0, modelled: None, real: None };
        let spec = DeviceSpec { name: DeviceName::local("GPU", 0), overhead: Bytes(overhead), card: Some(part), ..any_card() };
        let spec = CudaDevice::spec(card.granularity(), spec);
        let gpus = mock::Machine::open(cards.machine.folder()).unwrap();
        let ledger = Ledger::with_upstream("GPU:0", Some(Bytes(48 << 20)), Behind { gpus, seen: seen.clone() });
        CudaDevice::on(card, spec, ledger, Arc::new(CudaLibrary), GraphUse::on(""))
    };
    let card = cards.card(0);
    let device = open(&card, 6 << 20).unwrap();
    let block = device.allocate(Bytes(5 << 20), "block").unwrap();
    assert_eq!(cards.machine.used(0), (3 + 2 + 6) << 20);
    drop((block, card));
    assert_eq!((seen.lock().unwrap().len(), cards.machine.used(0)), (0, (3 + 2) << 20));
    drop(device);
    assert_eq!((std::mem::take(&mut *seen.lock().unwrap()), cards.machine.used(0)), (vec![0], 0));
    // A device that cannot be opened gives them back with the context, too.
    let card = cards.card(0);
    assert_eq!(open(&card, 64 << 20).err().unwrap().code(), Code::ResourceExhausted);
    drop(card);
    assert_eq!((seen.lock().unwrap().clone(), cards.machine.used(0)), (vec![0], 0));
}
