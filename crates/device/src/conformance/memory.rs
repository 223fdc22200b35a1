//! Memory under a line.

use plimsoll_base::{Bytes, Code};

use super::{Rig, device};
use crate::Usage;

pub(super) fn a_line_holds_and_everything_comes_back(rig: &dyn Rig) {
    let device = device(rig, 8 << 20);
    let before = device.usage();
    let first = device.allocate(Bytes(5 << 20), "first").unwrap();
    let error = device.allocate(Bytes(4 << 20), "second").unwrap_err();
    assert_eq!((error.code(), error.device()), (Code::ResourceExhausted, Some(device.spec().name.to_string().as_str())));
    for words in ["first", "second", "4 MiB", "8 MiB"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    let usage = device.usage();
    assert_eq!(usage.in_use, before.in_use + Bytes(5 << 20));
    assert_eq!((usage.measured, usage.peak), (before.measured + Bytes(5 << 20), usage.in_use));
    drop(first);
    assert_eq!((device.usage().in_use, device.usage().measured), (before.in_use, before.measured));
    let whole = Bytes(8 << 20) - before.in_use;
    drop(device.allocate(whole, "all of it").unwrap());
    assert!(device.allocate(whole + Bytes(1), "more").is_err());
    assert_eq!(device.usage().peak, Bytes(8 << 20));
    device.reset_peak();
    let Usage { in_use, peak, measured, measured_peak, .. } = device.usage();
    assert_eq!((peak, measured_peak), (in_use, measured));
}

pub(super) fn blocks_are_zeroed_and_aligned(rig: &dyn Rig) {
    let device = device(rig, 8 << 20);
    for round in 0..3 {
        let block = device.allocate(Bytes(70_000), "block").unwrap();
        assert!(block.as_ptr().addr().is_multiple_of(device.spec().alignment as usize) && !block.as_ptr().is_null());
        let mut bytes = vec![1u8; 70_000];
        block.copy_out(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0), "round {round}");
        block.copy_in(69_000, &[7; 1000]);
    }
}

pub(super) fn lent_memory_counts(rig: &dyn Rig) {
    let device = device(rig, 1 << 20);
    let before = device.usage();
    let room = Bytes(1 << 20) - before.in_use;
    let mut loan = device.lend("feeds");
    assert!(loan.set(room + Bytes(1)).is_err());
    loan.set(room).unwrap();
    assert!(device.allocate(Bytes(1), "block").is_err());
    assert_eq!(device.usage().in_use, Bytes(1 << 20));
    drop(loan);
    assert_eq!(device.usage().in_use, before.in_use);
}
