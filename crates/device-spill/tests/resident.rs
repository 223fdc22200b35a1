//! What a file holds is not in memory. A process of its own: other tests take memory, too.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::conformance::TestKernels;
use plimsoll_device::{Device, DeviceSpec, InstructionSet};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;

const FILE: Bytes = Bytes(64 << 20);
const BUFFER: Bytes = Bytes(1 << 20);

/// The pages of this process in memory, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn what_a_file_holds_is_not_in_memory() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let spec = DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline);
    let cpu = CpuDevice::new(spec, CpuPool::new(1).unwrap(), Arc::<TestKernels>::default());
    let before = resident();
    let file = SpillDevice::create(DeviceSpec::spill(0, FILE, folder), folder.as_ref(), cpu.allocate(BUFFER, "buffer").unwrap()).unwrap();
    let block = file.allocate(FILE, "values").unwrap();
    let piece = |number: u64| (0..64u64 << 10).map(|at| (at * 7 + number) as u8).collect::<Vec<u8>>();
    for number in 0..FILE.0 >> 16 {
        block.write(number << 16, &piece(number)).unwrap();
    }
    let mut read = vec![0; 64 << 10];
    for number in (0..FILE.0 >> 16).rev() {
        block.read(number << 16, &mut read).unwrap();
        assert_eq!(read, piece(number), "{number}");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < BUFFER.0 + (2 << 20), "{} more for a file of {FILE}, with a buffer of {BUFFER}", Bytes(grown));
    assert_eq!(file.usage().measured, FILE);
}
