//! Queues of two cards: how they wait for each other, how bytes go between them, and the driver's rules for both.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code};
use plimsoll_device::{Bindings, BufferRef, Command, Device, Executable, Place, Program, Run, Trace, Wait, Work};
use plimsoll_device_cuda::{CudaDevice, CudaLibrary};
use plimsoll_memory::{Address, Block};

use super::driver::{Driver, Handle, INVALID_VALUE, call};
use super::graphs::{buffer, command, fill};
use super::rig::Cards;

const ROUNDS: u32 = 10;

pub fn at(device: u32, round: u32, offset: u64, bytes: u64) -> BufferRef {
    buffer(Place::Arena(device), u64::from(512 * round) + offset, bytes)
}

pub fn waits(command: Command, queue: u32, commands: u32) -> Command {
    Command { waits: vec![Wait { queue, commands }], ..command }
}

/// A value that goes from card to card and back, so often, and is filled into four places each time.
fn programs() -> [Vec<Command>; 2] {
    let copy = |from, to| command(Work::Copy, vec![from, to]);
    let filled = |device, round| fill(at(device, round, 0, 4), at(device, round, 256, 16));
    let mut programs = [vec![copy(buffer(Place::Feed(0), 0, 4), at(0, 0, 0, 4)), filled(0, 0)], vec![]];
    for round in 0..ROUNDS {
        let done = 2 * (round + 1);
        programs[1].extend([waits(copy(at(0, round, 256, 4), at(1, round, 0, 4)), 0, done), filled(1, round)]);
        programs[0].extend([waits(copy(at(1, round, 256, 4), at(0, round + 1, 0, 4)), 1, done), filled(0, round + 1)]);
    }
    programs[0].push(copy(at(0, ROUNDS, 256, 16), buffer(Place::Fetch(0), 0, 16)));
    programs
}

/// Two devices with an arena each, and a run of theirs.
struct Both {
    devices: Vec<CudaDevice>,
    executables: Vec<Box<dyn Executable>>,
    _arenas: Vec<Block>,
    run: Arc<Run>,
}

impl Both {
    fn new(cards: &Cards, programs: [Vec<Command>; 2]) -> Both {
        let device =
            |number: usize| cards.device(&cards.card(number), number as u32, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
        let devices: Vec<CudaDevice> = (0..2).map(device).collect();
        let arenas: Vec<Block> = devices.iter().map(|device| device.allocate(Bytes(1 << 20), "arena").unwrap()).collect();
        let loaded = devices.iter().zip(0..).zip(programs);
        let executables = loaded.map(|((device, queue), commands)| device.load(queue, Arc::new(Program { commands })).unwrap()).collect();
        let nowhere = Address::new(null_mut());
        let arenas_at = arenas.iter().map(Block::address).collect();
        let bindings = Bindings { arenas: arenas_at, feeds: vec![nowhere], fetches: vec![nowhere], ..Bindings::default() };
        Both { devices, executables, _arenas: arenas, run: Arc::new(Run::new(2, bindings)) }
    }

    fn step(&mut self, value: u32) -> std::result::Result<[u32; 4], Code> {
        let (feed, mut fetch) = (Box::new(value), Box::new([0u32; 4]));
        let run = Run::alone(&mut self.run);
        run.bindings.feeds[0] = Address::new((&raw const *feed).cast_mut().cast());
        run.bindings.fetches[0] = Address::new((&raw mut *fetch).cast());
        run.restart();
        self.executables.iter().for_each(|executable| executable.submit(&self.run));
        self.devices[0].drive(&self.run);
        self.run.failure().map_or(Ok(*fetch), |failure| Err(failure.fault.code))
    }
}

#[test]
fn cards_wait_for_each_other_without_the_host() {
    let Some(cards) = Cards::new("across", &[64; 2]) else { return };
    let driver = Driver::open(&cards.machine);
    let mut both = Both::new(&cards, programs());
    (1..5).for_each(|value| assert_eq!(both.step(value), Ok([value; 4])));
    let count = |function| driver.calls(Some(function));
    let before = ["cuMemcpyPeerAsync", "cuStreamWaitEvent", "cuEventSynchronize", "cuMemcpyDtoHAsync"].map(count);
    assert_eq!(both.step(7), Ok([7; 4]));
    let after = ["cuMemcpyPeerAsync", "cuStreamWaitEvent", "cuEventSynchronize", "cuMemcpyDtoHAsync"].map(count);
    let [across, ordered, slept, out] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
    // Each of the copies waits for the other card, which the host never does: a thread sleeps at the end of its queue alone, and before the
    // result goes out. The last of them may find that the other queue has ended.
    let copies = 2 * u64::from(ROUNDS);
    assert!(across == copies && (copies - 1..=copies).contains(&ordered), "{across} copies, {ordered} waits");
    assert!(slept <= 4 && out <= 1, "{slept} sleeps, {out} copies");
    // Commands that are timed wait for what has run.
    Run::alone(&mut both.run).trace = Some(Trace::new([2 * ROUNDS as usize + 3, 2 * ROUNDS as usize]));
    assert_eq!((both.step(8), count("cuStreamWaitEvent")), (Ok([8; 4]), after[1]));
    Run::alone(&mut both.run).trace = None;
    // Memory is opened once.
    let (opened, copies) = (count("cuMemSetAccess"), count("cuMemcpyPeerAsync"));
    assert_eq!((both.step(8), count("cuMemSetAccess"), count("cuMemcpyPeerAsync")), (Ok([8; 4]), opened, copies + 2 * u64::from(ROUNDS)));
    // A card that reaches no other: the host carries the bytes, and they are the same.
    cards.machine.gpus.set_alone(1, true).unwrap();
    (9..12).for_each(|value| assert_eq!(both.step(value), Ok([value; 4])));
    assert_eq!(count("cuMemcpyPeerAsync"), after[0] + 4 * u64::from(ROUNDS), "none since");
}

#[test]
fn a_lost_card_ends_a_run_of_two_and_is_the_one_that_is_lost() {
    let Some(cards) = Cards::new("across-lost", &[64; 2]) else { return };
    let mut both = Both::new(&cards, programs());
    assert_eq!((both.step(1), both.step(2)), (Ok([1; 4]), Ok([2; 4])));
    cards.machine.gpus.lose(1).unwrap();
    assert_eq!(both.step(3), Err(Code::Unavailable));
    // The other card works.
    assert!(both.devices[0].allocate(Bytes(1 << 20), "block").is_ok());
    assert_eq!(both.devices[1].allocate(Bytes(1 << 20), "block").map(drop).unwrap_err().code(), Code::Unavailable);
    drop(both);
    cards.machine.gpus.mend(1).unwrap();
    assert_eq!([0, 1].map(|card| cards.machine.used(card)), [0, 0]);
}

#[test]
fn the_mock_refuses_waits_and_copies_that_the_driver_would_not_order() {
    let Some(cards) = Cards::new("across-rules", &[64; 2]) else { return };
    let driver = Driver::open(&cards.machine);
    let device = |number: usize| cards.device(&cards.card(number), number as u32, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
    let devices = [device(0), device(1)];
    let blocks = [0, 1].map(|at| devices[at].allocate(Bytes(1 << 20), "block").unwrap());
    let [first, second] = [0, 1].map(|at| blocks[at].address().number());
    let mut contexts = [null_mut::<std::ffi::c_void>(); 2];
    let (mut streams, mut event) = ([null_mut::<std::ffi::c_void>(); 2], null_mut());
    for card in 0..2 {
        contexts[card] = driver.enter(card);
        assert_eq!(call!(driver, "cuStreamCreateWithPriority"(*mut Handle, c_uint, c_int), &mut streams[card], 1, 0), 0);
    }
    // Of the second card.
    assert_eq!(call!(driver, "cuEventCreate"(*mut Handle, c_uint), &mut event, 3), 0);
    let wait = |stream| call!(driver, "cuStreamWaitEvent"(Handle, Handle, c_uint), stream, event, 0);
    let record = |stream| call!(driver, "cuEventRecord"(Handle, Handle), event, stream);
    assert_eq!(wait(streams[0]), INVALID_VALUE, "nothing was recorded: the wait would pass");
    assert_eq!(record(streams[0]), 400, "an event of another card");
    assert_eq!((record(streams[1]), wait(streams[0]), wait(streams[1])), (0, 0, 0));
    let copy = |to: u64, onto: usize, from: u64, of: usize, stream: usize| {
        call!(
            driver,
            "cuMemcpyPeerAsync"(u64, Handle, u64, Handle, usize, Handle),
            to,
            contexts[onto],
            from,
            contexts[of],
            64,
            streams[stream]
        )
    };
    // Memory that was mapped for one card is no other's before it is opened to it.
    assert_eq!((copy(first, 0, second, 1, 0), copy(second, 1, first, 0, 0)), (INVALID_VALUE, INVALID_VALUE));
    let open = |address: u64, access: &[[c_int; 3]]| call!(driver, "cuMemSetAccess"(u64, usize, *const [c_int; 3], usize), address, 2 << 20, access.as_ptr(), access.len());
    assert_eq!((open(second, &[[1, 0, 3]]), copy(first, 0, second, 1, 0), copy(second, 1, first, 0, 0)), (0, 0, 0));
    // In one direction; for a stream of the other card it is still closed.
    assert_eq!(copy(first, 0, second, 1, 1), INVALID_VALUE);
    assert_eq!((open(first, &[[1, 0, 3], [1, 1, 3]]), copy(first, 0, second, 1, 1)), (0, 0));
    // A copy that runs when its memory is closed ends the context.
    streams.iter().for_each(|&stream| assert_eq!(call!(driver, "cuStreamSynchronize"(Handle), stream), 0));
    assert_eq!((open(first, &[[1, 1, 0]]), copy(first, 0, second, 1, 1)), (0, INVALID_VALUE));
    for wrong in [&[][..], &[[1, 7, 3]], &[[2, 0, 3]], &[[1, 0, 2]]] {
        assert_ne!(open(first, wrong), 0, "{wrong:?}");
    }
    // A card that reaches no other.
    cards.machine.gpus.set_alone(1, true).unwrap();
    assert_eq!((open(first, &[[1, 1, 3]]), open(second, &[[1, 1, 3]])), (INVALID_VALUE, 0));
    cards.machine.gpus.set_alone(1, false).unwrap();
    for (to, onto, from, of) in [(first, 1, second, 1), (first, 0, second, 0), (first, 0, 64, 1)] {
        assert_eq!(copy(to, onto, from, of, 0), INVALID_VALUE);
    }
    let mut reaches = 7;
    let asked = call!(driver, "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int), &mut reaches, 0, 0);
    assert_eq!((asked, reaches), (0, 0), "no card is its own peer");
    for (card, stream) in streams.into_iter().enumerate() {
        assert_eq!(call!(driver, "cuStreamDestroy_v2"(Handle), stream), 0);
        assert_eq!(call!(driver, "cuDevicePrimaryCtxRelease_v2"(c_int), card as c_int), 0);
    }
}
