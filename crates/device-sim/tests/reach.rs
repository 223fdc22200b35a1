//! The reach of a card's kernels: the memory of cards, and nothing of the processor's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_base::{Bytes, Code};
use plimsoll_device::conformance::TestKernels;
use plimsoll_device::*;
use plimsoll_device_sim::SimDevice;
use plimsoll_memory::{Address, Ledger};

/// Counts its calls and touches nothing.
#[derive(Debug, Default)]
struct Counts(AtomicU32);

impl CpuKernel for Counts {
    unsafe fn run(&self, _: Range<u32>, _: &Args<'_>) -> Result<(), Fault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_kernel_that_is_given_memory_of_the_processor_is_refused() {
    let spec =
        DeviceSpec { name: DeviceName::local("GPU", 0), kind: DeviceKind::Gpu, ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) };
    let kernels = Arc::<TestKernels>::default();
    let device = SimDevice::new(spec, Ledger::new("GPU:0", None), kernels.clone()).unwrap();
    let arena = device.allocate(Bytes(64), "arena").unwrap();
    let fed = [7u8; 64];
    let feed = Address::new(fed.as_ptr().cast_mut());
    for (place, calls) in [(Place::Arena(0), 1), (Place::Feed(0), 0), (Place::Constant(0), 0), (Place::VariableFlag(0), 0)] {
        let kernel = Arc::new(Counts::default());
        let prepared = Prepared { chunks: 1, scratch: 0, per_worker: 0, cost: Cost::default(), in_place: vec![], kernel: kernel.clone() };
        let buffer = |place| BufferRef { place, offset: 0, bytes: 64 };
        let command =
            |work, args| Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "a".into() };
        let copy = command(Work::Copy, vec![buffer(Place::Feed(0)), buffer(Place::Arena(0))]);
        let program = Program { commands: vec![copy, command(Work::Kernel(kernels.call(prepared)), vec![buffer(place)])] };
        let executable = device.load(0, Arc::new(program)).unwrap();
        let bindings =
            Bindings { arenas: vec![arena.address()], feeds: vec![feed], constants: vec![feed], flags: vec![feed], ..Bindings::default() };
        let mut run = Arc::new(Run::new(1, bindings));
        for _ in 0..2 {
            Run::alone(&mut run).restart();
            executable.submit(&run);
            device.drive(&run);
            let refused = run.failure().map(|failure| (failure.command, failure.fault.code));
            assert_eq!(refused, (calls == 0).then_some((1, Code::Internal)), "{place:?}");
        }
        assert_eq!(kernel.0.load(Ordering::Relaxed), 2 * calls, "{place:?}");
    }
    let command = Command {
        work: Work::Outside { call: 0, inputs: 0 },
        args: vec![],
        scratch: None,
        worker_scratch: None,
        guard: None,
        waits: vec![],
        label: "file".into(),
    };
    let refused = device.load(0, Arc::new(Program { commands: vec![command] })).err().map(|error| error.code());
    assert_eq!(refused, Some(Code::Unimplemented), "a card has no files");
    let mut there = [0; 64];
    arena.read(0, &mut there).unwrap();
    assert_eq!(there, fed, "a copy brings it there");
}
