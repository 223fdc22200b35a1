//! Copies of a card beside its works: a queue of copies has a stream of its own, and both streams wait for each other on the card.

use std::ptr::null_mut;
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::{Bindings, Command, Device, Place, Program, Run, Work};
use plimsoll_device_cuda::CudaLibrary;
use plimsoll_memory::Address;

use super::across::{at, waits};
use super::driver::Driver;
use super::graphs::{buffer, command, fill};
use super::rig::Cards;

const ROUNDS: u32 = 8;

/// The works fill what the copies bring; the last copy waits for all of them.
fn programs() -> [Vec<Command>; 2] {
    let copy = |from, to| command(Work::Copy, vec![from, to]);
    let filled = |round| waits(fill(at(0, round, 0, 4), at(0, round, 256, 16)), 1, round + 1);
    let come = |round| copy(buffer(Place::Feed(0), 0, 4), at(0, round, 0, 4));
    let leaves = waits(copy(at(0, ROUNDS - 1, 256, 16), buffer(Place::Fetch(0), 0, 16)), 0, ROUNDS);
    [(0..ROUNDS).map(filled).collect(), (0..ROUNDS).map(come).chain([leaves]).collect()]
}

#[test]
fn a_queue_of_copies_has_a_stream_of_its_own() {
    let Some(cards) = Cards::new("beside", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let device = cards.device(&cards.card(0), 0, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
    let arena = device.allocate(Bytes(1 << 20), "arena").unwrap();
    let streams = || driver.calls(Some("cuStreamCreateWithPriority"));
    let load = |queue: u32, commands: &[Command]| device.load(queue, Arc::new(Program { commands: commands.to_vec() })).unwrap();
    let before = streams();
    let [works, copies] = programs();
    let executables = [load(0, &works), load(1, &copies)];
    assert_eq!(streams(), before + 1);
    load(1, &copies);
    assert_eq!(streams(), before + 1, "all queues of copies have one");

    let bindings = Bindings {
        arenas: vec![arena.address()],
        feeds: vec![Address::new(null_mut())],
        fetches: vec![Address::new(null_mut())],
        ..Bindings::default()
    };
    let mut run = Arc::new(Run::new(2, bindings));
    for value in 1..6u32 {
        let waited = driver.calls(Some("cuStreamWaitEvent"));
        let (feed, mut fetch) = (Box::new(value), Box::new([0u32; 4]));
        let own = Run::alone(&mut run);
        own.bindings.feeds[0] = Address::new((&raw const *feed).cast_mut().cast());
        own.bindings.fetches[0] = Address::new((&raw mut *fetch).cast());
        own.restart();
        executables.iter().for_each(|executable| executable.submit(&run));
        device.drive(&run);
        assert!(run.failure().is_none(), "{:?}", run.failure());
        assert_eq!(*fetch, [value; 4]);
        assert!(driver.calls(Some("cuStreamWaitEvent")) > waited, "the works wait for copies on the card");
    }
}
