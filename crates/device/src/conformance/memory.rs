//! Memory under a line.

use plimsoll_base::{Bytes, Code};
use plimsoll_memory::Address;

use super::{Rig, device};
use crate::Usage;

pub(super) fn a_line_holds_and_everything_comes_back(rig: &dyn Rig) {
    let of = |units: u64| Bytes(units * rig.unit());
    let device = device(rig, of(8).0);
    let before = device.usage();
    let first = device.allocate(of(5), "first").unwrap();
    let error = device.allocate(of(4), "second").unwrap_err();
    assert_eq!((error.code(), error.device()), (Code::ResourceExhausted, Some(device.spec().name.to_string().as_str())));
    for words in ["first", "second", &of(4).to_string(), &of(8).to_string()] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    let usage = device.usage();
    assert_eq!(usage.in_use, before.in_use + of(5));
    assert_eq!((usage.measured, usage.peak), (before.measured + of(5), usage.in_use));
    drop(first);
    assert_eq!((device.usage().in_use, device.usage().measured), (before.in_use, before.measured));
    let whole = of(8) - before.in_use;
    drop(device.allocate(whole, "all of it").unwrap());
    assert!(device.allocate(whole + Bytes(1), "more").is_err());
    assert_eq!(device.usage().peak, of(8));
    device.reset_peak();
    let Usage { in_use, peak, measured, measured_peak, .. } = device.usage();
    assert_eq!((peak, measured_peak), (in_use, measured));
}

pub(super) fn blocks_are_zeroed_and_aligned(rig: &dyn Rig) {
    let device = device(rig, 8 * rig.unit());
    for round in 0..3 {
        let block = device.allocate(Bytes(70_000), "block").unwrap();
        assert!(block.address() != Address::NULL && block.address().number().is_multiple_of(device.spec().alignment));
        let mut bytes = vec![1u8; 70_000];
        block.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "round {round}");
        block.write(69_000, &[7; 1000]).unwrap();
    }
}

pub(super) fn the_host_reads_what_it_wrote(rig: &dyn Rig) {
    let devices = rig.devices(2, Bytes(8 * rig.unit()));
    let length = 70_001usize;
    let blocks = [0, 1].map(|device: usize| devices[device].allocate(Bytes(length as u64), "block").unwrap());
    let mut plain = [vec![0u8; length], vec![0u8; length]];
    // Pieces that overlap each other, of both devices in turns; the source is changed as soon as the call is back.
    for round in 0..60usize {
        let (device, offset) = (round % 2, round * 7_919 % length);
        let mut piece = vec![round as u8 + 1; (round * 4_099 % 20_000).min(length - offset)];
        blocks[device].write(offset as u64, &piece).unwrap();
        plain[device][offset..offset + piece.len()].copy_from_slice(&piece);
        piece.fill(0xEE);
    }
    // From any thread.
    std::thread::scope(|scope| {
        for (block, plain) in blocks.iter().zip(&plain) {
            scope.spawn(move || {
                let mut all = vec![0xAA; length];
                block.read(0, &mut all).unwrap();
                assert!(all == *plain);
                for (offset, count) in [(0, 0), (1, 1), (4_097, 12_345), (length - 1, 1), (length, 0)] {
                    let mut some = vec![0xAA; count];
                    block.read(offset as u64, &mut some).unwrap();
                    assert!(some == plain[offset..offset + count]);
                }
            });
        }
    });
    for (offset, count) in [(length as u64, 1), (0, length + 1), (u64::MAX, 2)] {
        let mut bytes = vec![0; count];
        let codes = [blocks[0].read(offset, &mut bytes), blocks[0].write(offset, &bytes)].map(|result| result.unwrap_err().code());
        assert_eq!(codes, [Code::Internal; 2]);
    }
}

pub(super) fn lent_memory_counts(rig: &dyn Rig) {
    let line = Bytes(4 * rig.unit());
    let device = device(rig, line.0);
    let before = device.usage();
    let room = line - before.in_use;
    let mut loan = device.lend("feeds");
    assert!(loan.set(room + Bytes(1)).is_err());
    loan.set(room).unwrap();
    assert!(device.allocate(Bytes(1), "block").is_err());
    assert_eq!(device.usage().in_use, line);
    drop(loan);
    assert_eq!(device.usage().in_use, before.in_use);
}
