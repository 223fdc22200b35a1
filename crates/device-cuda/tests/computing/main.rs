//! Cards that compute, without a card: the driver's library and the compiler's are mocks, opened by their paths as the real ones are.

mod faults;
mod machine;
mod refused;
mod rig;
mod short;

use plimsoll_base::{Bytes, Code};
use plimsoll_device::Device;
use plimsoll_device::conformance::run_all;
use plimsoll_device_cuda::CudaLibrary;

use rig::Cards;

#[test]
fn cards_do_what_devices_do() {
    for is_one in [false, true] {
        let Some(cards) = Cards::new(&format!("suite-{is_one}"), &[256; 3]) else { return };
        run_all(&Cards { is_one, ..cards });
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
