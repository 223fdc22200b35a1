//! Programs: order, waits, copies, guards, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_base::{Bytes, Code};
use plimsoll_memory::{Address, Block};

use super::kernel::{CellOperation, call, cells, copy, mix};
use super::{Rig, device};
use crate::{Bindings, BufferRef, Command, Device, Executable, Failure, Place, Program, Run};

/// The devices' line, in the rig's units.
const UNITS: u64 = 16;

pub(super) fn line(rig: &dyn Rig) -> Bytes {
    Bytes(UNITS * rig.unit())
}

/// Programs of several queues, queue `i` on device `i`, with an arena of cells on each device.
pub(super) struct Loaded {
    devices: Vec<Arc<dyn Device>>,
    executables: Arc<Vec<Box<dyn Executable>>>,
    arenas: Vec<Block>,
    pub run: Arc<Run>,
}

impl Loaded {
    pub fn new(devices: &[Arc<dyn Device>], programs: Vec<Vec<Command>>, count: u64) -> Loaded {
        let load = |(queue, commands): (usize, Vec<Command>)| devices[queue].load(queue as u32, Arc::new(Program { commands })).unwrap();
        let executables: Vec<_> = programs.into_iter().enumerate().map(load).collect();
        Loaded::with(devices, Arc::new(executables), count)
    }

    fn with(devices: &[Arc<dyn Device>], executables: Arc<Vec<Box<dyn Executable>>>, count: u64) -> Loaded {
        let arenas: Vec<Block> = devices.iter().map(|device| device.allocate(Bytes(count * 8), "arena").unwrap()).collect();
        let bindings = Bindings { arenas: arenas.iter().map(Block::address).collect(), ..Bindings::default() };
        let run = Arc::new(Run::new(executables.len(), bindings));
        Loaded { devices: devices.to_vec(), executables, arenas, run }
    }

    pub fn submit(&mut self) {
        Run::alone(&mut self.run).restart();
        self.executables.iter().for_each(|executable| executable.submit(&self.run));
    }

    pub fn step(&mut self) -> Option<Failure> {
        self.submit();
        self.devices[0].drive(&self.run);
        assert!(self.run.is_over());
        self.run.failure()
    }

    pub fn cell(&self, device: usize, cell: u64) -> u64 {
        let mut bytes = [0; 8];
        self.arenas[device].read(cell * 8, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    pub fn set(&self, device: usize, cell: u64, value: u64) {
        self.arenas[device].write(cell * 8, &value.to_ne_bytes()).unwrap();
    }
}

pub(super) fn submitting_does_not_wait(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let now = Arc::new(AtomicBool::new(false));
    // The first queue waits for the second, which waits for the test.
    let first = vec![
        copy(cells(1, 0, 1), cells(0, 0, 1), &[(1, 1)]),
        call(rig, CellOperation::Mix(1), 1, vec![cells(0, 0, 1), cells(0, 1, 1)], &[]),
    ];
    let second = vec![call(rig, CellOperation::When(now.clone()), 1, vec![cells(1, 0, 1)], &[])];
    let mut loaded = Loaded::new(&devices, vec![first, second], 2);
    loaded.submit();
    assert!(!loaded.run.is_over());
    now.store(true, Ordering::Release);
    loaded.devices[0].drive(&loaded.run);
    assert_eq!((loaded.run.failure(), loaded.cell(0, 1)), (None, mix(1, 0)));
}

pub(super) fn queues_wait_for_each_other(rig: &dyn Rig) {
    const ROUNDS: u32 = 40;
    const PIECES: u32 = 8;
    let devices = rig.devices(3, line(rig));
    // Of the row of each device and round: its results, and its copies from the two others.
    let cell = |round: u32, from: u32| u64::from((round * 3 + from) * PIECES);
    let program = |queue: u32| {
        let commands = |round: u32| {
            let count = u64::from(PIECES);
            let others = (0..3).filter(|other| *other != queue && round > 0);
            // Three commands a round, of which the last computes.
            let fetch = |other: u32| {
                let done = 1 + 3 * (round - 1);
                copy(cells(other, cell(round - 1, other), count), cells(queue, cell(round - 1, other), count), &[(other, done)])
            };
            let mut args: Vec<BufferRef> =
                if round == 0 { vec![] } else { (0..3).map(|other| cells(queue, cell(round - 1, other), count)).collect() };
            args.push(cells(queue, cell(round, queue), count));
            let compute = call(rig, CellOperation::Mix(u64::from(queue + 7 * round)), PIECES, args, &[]);
            others.map(fetch).chain([compute]).collect::<Vec<_>>()
        };
        (0..ROUNDS).flat_map(commands).collect()
    };
    let mut loaded = Loaded::new(&devices, (0..3).map(program).collect(), u64::from(ROUNDS * 3 * PIECES));
    let mut last = [0u64; 3];
    for round in 0..ROUNDS {
        let before = last;
        let value = |queue: u64| {
            let inputs: &[u64] = if round == 0 { &[] } else { &before };
            inputs.iter().fold(queue + 7 * u64::from(round), |value, input| mix(value, *input))
        };
        last = [value(0), value(1), value(2)];
    }
    for _ in 0..20 {
        assert_eq!(loaded.step(), None);
        for (device, expected) in last.iter().enumerate() {
            for piece in 0..u64::from(PIECES) {
                let at = cell(ROUNDS - 1, device as u32) + piece;
                assert_eq!(loaded.cell(device, at), *expected);
                loaded.set(device, at, 0);
            }
        }
    }
}

pub(super) fn copies_go_in_every_direction(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    for count in [1u64, 32_767, 32_769, 100_003] {
        let here = |device| BufferRef { place: Place::Arena(device), offset: 0, bytes: count * 8 };
        let (feed, fetch) = (Place::Feed(0), Place::Fetch(0));
        let host = |place| BufferRef { place, offset: 0, bytes: count * 8 };
        // From the host to the first device, to the second, and back to the host.
        let first = vec![copy(host(feed), here(0), &[])];
        let second = vec![copy(here(0), here(1), &[(0, 1)]), copy(here(1), host(fetch), &[])];
        let mut loaded = Loaded::new(&devices, vec![first, second], count);
        let fed: Vec<u64> = (0..count).map(|at| mix(at, count)).collect();
        let mut fetched = vec![0u64; count as usize];
        let run = Run::alone(&mut loaded.run);
        run.bindings.feeds = vec![Address::new(fed.as_ptr().cast_mut().cast())];
        run.bindings.fetches = vec![Address::new(fetched.as_mut_ptr().cast())];
        assert_eq!(loaded.step(), None);
        assert!(fetched == fed);
    }
}

pub(super) fn a_guard_passes_a_command_over(rig: &dyn Rig) {
    let devices = [device(rig, line(rig).0)];
    let mut guarded = call(rig, CellOperation::Mix(5), 1, vec![cells(0, 1, 1)], &[]);
    guarded.guard = Some(BufferRef { place: Place::Arena(0), offset: 0, bytes: 1 });
    let after = call(rig, CellOperation::Mix(6), 1, vec![cells(0, 1, 1), cells(0, 2, 1)], &[]);
    let mut loaded = Loaded::new(&devices, vec![vec![guarded, after]], 3);
    for (guard, expected) in [(0u64, 9u64), (1, 5), (0, 9)] {
        loaded.set(0, 0, guard);
        loaded.set(0, 1, 9);
        assert_eq!(loaded.step(), None);
        assert_eq!((loaded.cell(0, 1), loaded.cell(0, 2)), (expected, mix(6, expected)));
    }
}

pub(super) fn a_failure_ends_the_run_and_nothing_else(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let panics = rig.can_panic().then_some((CellOperation::Panic, Code::Internal));
    for (does, code) in [(CellOperation::Fail(3), Code::InvalidArgument)].into_iter().chain(panics) {
        let first = vec![call(rig, CellOperation::Mix(1), 1, vec![cells(0, 0, 1)], &[]), call(rig, does, 1, vec![cells(0, 1, 1)], &[])];
        // Waits for an event that never happens.
        let second = vec![call(rig, CellOperation::Mix(2), 1, vec![cells(1, 0, 1)], &[(0, 2)])];
        let mut loaded = Loaded::new(&devices, vec![first, second], 2);
        for _ in 0..3 {
            let failure = loaded.step().expect("it fails");
            assert_eq!((failure.queue, failure.command, failure.fault.code), (0, 1, code));
            assert_eq!(loaded.cell(1, 0), 0);
        }
    }
    let mut loaded = Loaded::new(&devices, vec![vec![call(rig, CellOperation::Mix(4), 1, vec![cells(0, 0, 1)], &[])]], 1);
    assert_eq!((loaded.step(), loaded.cell(0, 0)), (None, 4));
}

/// Kernels, copies on the device, from the host and to it, that come behind one that fails: none of them changes what is there. What came before
/// stays.
pub(super) fn nothing_behind_a_failure_is_written(rig: &dyn Rig) {
    let devices = [device(rig, line(rig).0)];
    let (feed, fetch) = (Place::Feed(0), Place::Fetch(0));
    let host = |place| BufferRef { place, offset: 0, bytes: 8 };
    let mut guarded = call(rig, CellOperation::Mix(3), 1, vec![cells(0, 4, 1)], &[]);
    guarded.guard = Some(BufferRef { place: Place::Arena(0), offset: 0, bytes: 1 });
    for fails in [true, false] {
        let first = call(rig, CellOperation::Mix(1), 1, vec![cells(0, 1, 1)], &[]);
        let behind = [
            call(rig, CellOperation::Mix(2), 1, vec![cells(0, 2, 1)], &[]),
            copy(cells(0, 1, 1), cells(0, 3, 1), &[]),
            guarded.clone(),
            copy(host(feed), cells(0, 5, 1), &[]),
            copy(cells(0, 1, 1), host(fetch), &[]),
        ];
        let failing = fails.then(|| call(rig, CellOperation::Fail(5), 1, vec![cells(0, 6, 1)], &[]));
        let commands = [first].into_iter().chain(failing).chain(behind).collect();
        let mut loaded = Loaded::new(&devices, vec![commands], 8);
        let (fed, mut fetched) = (Box::new([77u64]), Box::new([9u64]));
        let run = Run::alone(&mut loaded.run);
        run.bindings.feeds = vec![Address::new(fed.as_ptr().cast_mut().cast())];
        run.bindings.fetches = vec![Address::new(fetched.as_mut_ptr().cast())];
        // Devices that make graphs of what comes again do so by then.
        for _ in 0..3 {
            loaded.set(0, 0, 1);
            (1..6).for_each(|cell| loaded.set(0, cell, 9));
            *fetched = [9];
            let failure = loaded.step();
            assert_eq!(failure.map(|failure| failure.command), fails.then_some(1));
            let now = [1, 2, 3, 4, 5].map(|cell| loaded.cell(0, cell));
            assert_eq!((now, fetched[0]), if fails { ([1, 9, 9, 9, 9], 9) } else { ([1, 2, 1, 3, 77], 1) });
        }
    }
}

pub(super) fn runs_go_side_by_side(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let program = |queue: u32| {
        let command = |round: u32| {
            let other = 1 - queue;
            let waits: &[(u32, u32)] = if round == 0 { &[] } else { &[(other, round)] };
            call(rig, CellOperation::Mix(u64::from(round)), 1, vec![cells(queue, 0, 1), cells(queue, 0, 1)], waits)
        };
        (0..30).map(command).collect::<Vec<_>>()
    };
    let load = |queue: u32| devices[queue as usize].load(queue, Arc::new(Program { commands: program(queue) })).unwrap();
    let executables = Arc::new(vec![load(0), load(1)]);
    let expected = |start: u64, runs: u64| (0..runs * 30).fold(start, |value, step| mix(step % 30, value));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (devices, executables) = (&devices, executables.clone());
            scope.spawn(move || {
                let mut loaded = Loaded::with(devices, executables, 1);
                loaded.set(0, 0, thread);
                for _ in 0..25 {
                    assert_eq!(loaded.step(), None);
                }
                assert_eq!((loaded.cell(0, 0), loaded.cell(1, 0)), (expected(thread, 25), expected(0, 25)));
            });
        }
    });
}

pub(super) fn programs_that_contradict_themselves_are_refused(rig: &dyn Rig) {
    let device = device(rig, line(rig).0);
    let mut guarded = copy(cells(0, 0, 1), cells(0, 1, 1), &[]);
    guarded.guard = Some(cells(0, 0, 1));
    for command in [copy(cells(0, 0, 1), cells(0, 1, 2), &[]), guarded] {
        let refused = device.load(0, Arc::new(Program { commands: vec![command] })).err();
        assert_eq!(refused.map(|error| error.code()), Some(Code::Internal));
    }
}

pub(super) fn a_lost_device_says_so(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let first = vec![copy(cells(0, 0, 1), cells(0, 1, 1), &[(1, 1)])];
    let second = vec![copy(cells(0, 0, 1), cells(1, 0, 1), &[])];
    let mut loaded = Loaded::new(&devices, vec![first, second], 2);
    assert_eq!(loaded.step(), None);
    if !rig.lose(&devices[1]) {
        return;
    }
    let failure = loaded.step().expect("the device is lost");
    assert_eq!((failure.queue, failure.fault.code), (1, Code::Unavailable));
    let error = devices[1].allocate(Bytes(1), "block").unwrap_err();
    assert_eq!((error.code(), error.device()), (Code::Unavailable, Some(devices[1].spec().name.to_string().as_str())));
    // The memory that it held is gone, and can only be given back.
    let codes = [loaded.arenas[1].read(0, &mut [0]), loaded.arenas[1].write(0, &[0])].map(|result| result.unwrap_err().code());
    assert_eq!(codes, [Code::Unavailable; 2]);
    // The ledger gets it back all the same.
    let lost = devices[1].ledger().clone();
    let before = lost.in_use();
    drop(loaded);
    assert!(lost.in_use() < before, "{} of {before} are left", lost.in_use());
    // The other one goes on.
    let mut alone = Loaded::new(&devices[..1], vec![vec![copy(cells(0, 0, 1), cells(0, 1, 1), &[])]], 2);
    alone.set(0, 0, 4);
    assert_eq!((alone.step(), alone.cell(0, 1)), (None, 4));
}

pub(super) fn a_device_may_be_lost_in_the_last_command(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let now = Arc::new(AtomicBool::new(false));
    // A lost device may look at it later than the run lasts.
    std::mem::forget(now.clone());
    let waits = vec![call(rig, CellOperation::When(now.clone()), 1, vec![cells(1, 0, 1)], &[])];
    let mut loaded = Loaded::new(&devices, vec![Vec::new(), waits], 1);
    loaded.submit();
    // The device is at the end of its queue by then, or the test shows less.
    std::thread::sleep(Duration::from_millis(50));
    let is_lost = rig.lose(&devices[1]);
    now.store(true, Ordering::SeqCst);
    devices[0].drive(&loaded.run);
    // A device that did the command before it noticed has not failed yet.
    let failure = loaded.run.failure().map(|failure| (failure.queue, failure.command, failure.fault.code));
    let lost = Some((1, 0, Code::Unavailable));
    assert!(if is_lost { failure.is_none() || failure == lost } else { failure.is_none() }, "{failure:?}");
}

pub(super) fn a_device_closes_when_it_is_dropped(rig: &dyn Rig) {
    for _ in 0..20 {
        let devices = rig.devices(2, line(rig));
        let program = |queue: u32| vec![call(rig, CellOperation::Mix(1), 4, vec![cells(queue, 0, 4)], &[])];
        let mut loaded = Loaded::new(&devices, vec![program(0), program(1)], 4);
        assert_eq!(loaded.step(), None);
        drop(loaded);
    }
}
