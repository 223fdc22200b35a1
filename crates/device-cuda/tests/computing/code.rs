//! The code of kernels on a card: it has a part of what devices keep, and goes where others want its place.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_device::conformance::{CellOperation, Rig};
use plimsoll_device::{Bindings, BufferRef, Command, Device, Executable, Place, Program, Run, Work};
use plimsoll_device_cuda::{CudaCard, CudaDevice, GraphUse, Taken};
use plimsoll_memory::Block;

use super::rig::{Cards, Cells};

const ARENA: u64 = 4096;

/// A program of one kernel, which is another one for each number of arguments.
struct Loaded {
    executable: Box<dyn Executable>,
    arena: Block,
}

fn loaded(cards: &Cards, device: &CudaDevice, arguments: usize) -> Result<Loaded> {
    let arg = |at: usize| BufferRef { place: Place::Arena(0), offset: 256 * at as u64, bytes: 8 };
    let work = Work::Kernel(cards.call(CellOperation::Mix(7), 1, arguments));
    let args = (0..arguments).map(arg).collect();
    let command = Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "cells".into() };
    let arena = device.allocate(Bytes(ARENA), "arena")?;
    Ok(Loaded { executable: device.load(0, Arc::new(Program { commands: vec![command] }))?, arena })
}

fn step(device: &CudaDevice, Loaded { executable, arena }: &Loaded) {
    let bindings = Bindings { arenas: vec![arena.address()], ..Bindings::default() };
    let mut run = Arc::new(Run::new(1, bindings));
    Run::alone(&mut run).restart();
    executable.submit(&run);
    device.drive(&run);
    assert_eq!(run.failure(), None);
}

fn device(cards: &Cards, card: &Arc<CudaCard>, room: u64) -> CudaDevice {
    let taken = Taken { device: Bytes(room), ..cards.graphs.taken };
    let graphs = GraphUse { taken, ..cards.graphs };
    cards.device_with(card, 0, (Some(Bytes(32 << 20)), graphs), Arc::new(Cells)).unwrap()
}

#[test]
fn code_stays_within_the_room_that_is_kept_for_it() {
    let Some(cards) = Cards::new("code-room", &[64]) else { return };
    cards.machine.gpus.set_takes_code(0, true).unwrap();
    let card = cards.card(0);
    let wide = device(&cards, &card, 8 << 20);
    let arena = wide.allocate(Bytes(ARENA), "arena").unwrap();
    let before = cards.machine.used(0);
    drop(arena);
    let first = loaded(&cards, &wide, 2).unwrap();
    let one = card.code_bytes();
    // What the card has given for it is what the device counts.
    assert!(one > 0);
    assert_eq!(cards.machine.used(0) - before, one);
    // The same kernel again takes nothing.
    let again = loaded(&cards, &wide, 2).unwrap();
    assert_eq!(card.code_bytes(), one);
    drop((first, again, wide));
    let narrow = device(&cards, &card, one + one / 2);
    let first = loaded(&cards, &narrow, 3).unwrap();
    // Of the first device's kernel no program is left, but there was room for both.
    assert!(card.code_bytes() >= 2 * one);
    let error = loaded(&cards, &narrow, 4).err().unwrap();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("the code of kernels takes") && error.remedy().is_some(), "{error}");
    // What no program has went for it, and did not do.
    assert!(card.code_bytes() < 2 * one);
    step(&narrow, &first);
    drop(first);
    let second = loaded(&cards, &narrow, 4).unwrap();
    assert!(card.code_bytes() < 2 * one);
    step(&narrow, &second);
    // And the first comes again.
    drop(second);
    step(&narrow, &loaded(&cards, &narrow, 3).unwrap());
    drop((narrow, card));
    assert_eq!(cards.machine.used(0), 0);
}
