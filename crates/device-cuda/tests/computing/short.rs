//! Every call of the driver that may find no memory finds none in turn: an error, and nothing stays behind.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Result};
use plimsoll_device::Bindings;
use plimsoll_device::{BufferRef, Command, Device, KernelCall, Library, Place, Program, Run, Work};
use plimsoll_device_cuda::{CudaCard, CudaLibrary, any_card};
use plimsoll_memory::Address;
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;

use super::driver::Driver;
use super::rig::Cards;

/// Opens a card, and runs a program with a copy from the host, a kernel, and a copy back, four times. With a loop the kernel is in its body, behind
/// which there is another such kernel. Returns whether it was launched as a graph.
fn scenario(cards: &Cards, with_loop: bool) -> Result<bool> {
    let launches = || Driver::open(&cards.machine).calls(Some("cuGraphLaunch"));
    let before = launches();
    let card = CudaCard::open(&cards.driver, &cards.driver.cards()?[0], &cards.compiler, None)?;
    let device = cards.device(&card, 0, Some(Bytes(32 << 20)), Arc::new(CudaLibrary))?;
    let arena = device.allocate(Bytes(3 << 20), "arena")?;
    let fill = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 4 } };
    let variant = CudaLibrary.variants(&any_card(), &fill)?.remove(0);
    let call = KernelCall { request: Arc::new(fill), variant: Arc::new(variant), step: 0 };
    let buffer = |place, offset, bytes| BufferRef { place, offset, bytes };
    let command =
        |work, args| Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "node".into() };
    let (value, filled) = (buffer(Place::Arena(0), 0, 4), buffer(Place::Arena(0), 256, 16));
    let fill = |to| command(Work::Kernel(call.clone()), vec![value, to]);
    let mut commands = vec![command(Work::Copy, vec![buffer(Place::Feed(0), 0, 4), value]), fill(filled)];
    if with_loop {
        // One iteration: the condition is the number's first byte, and its second one behind it.
        let (condition, second) = (buffer(Place::Arena(0), 512, 1), buffer(Place::Arena(0), 1, 1));
        let first = command(Work::Copy, vec![buffer(Place::Arena(0), 0, 1), condition]);
        let body = vec![commands.remove(1), command(Work::Copy, vec![second, condition])];
        commands.extend([first, command(Work::Loop { body: 2, with: vec![] }, vec![condition])]);
        commands.extend(body);
        commands.extend([command(Work::Again { body: 2 }, vec![condition]), fill(buffer(Place::Arena(0), 768, 16))]);
    }
    commands.push(command(Work::Copy, vec![filled, buffer(Place::Fetch(0), 0, 16)]));
    let executable = device.load(0, Arc::new(Program { commands }))?;
    let (feed, mut fetch) = ([7u8, 0, 1, 2], [0u8; 16]);
    let bindings = Bindings {
        arenas: vec![arena.address()],
        feeds: vec![Address::new(feed.as_ptr().cast_mut())],
        fetches: vec![Address::new(fetch.as_mut_ptr())],
        ..Bindings::default()
    };
    let mut run = Arc::new(Run::new(1, bindings));
    for _ in 0..4 {
        Run::alone(&mut run).restart();
        executable.submit(&run);
        device.drive(&run);
        run.failure().map_or(Ok(()), |failure| Err(failure.fault.to_error()))?;
        assert_eq!(std::mem::take(&mut fetch), feed.repeat(4)[..]);
    }
    Ok(launches() > before)
}

#[test]
fn every_call_may_find_no_memory_where_the_card_decides() {
    let Some(cards) = Cards::new("short-loop", &[64]) else { return };
    let gpus = &cards.machine.gpus;
    gpus.refuse(0, u64::MAX).unwrap();
    assert!(scenario(&cards, true).unwrap());
    let calls = u64::MAX - gpus.left(0).unwrap();
    let mut graphs = 0;
    for call in 1..=calls {
        gpus.refuse(0, call).unwrap();
        match scenario(&cards, true) {
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted, "call {call} of {calls}: {error}"),
            // Without room for bodies the host decides.
            Ok(is_a_graph) => graphs += u32::from(is_a_graph),
        }
        assert_eq!((gpus.left(0).unwrap(), cards.machine.used(0)), (0, 0), "call {call} of {calls}");
    }
    // A condition, a graph and its nodes, those of its body; and the kernel that decides.
    assert!(graphs >= 10, "{graphs}");
    gpus.refuse(0, 0).unwrap();
}

#[test]
fn every_call_may_find_no_memory() {
    let Some(cards) = Cards::new("short", &[64]) else { return };
    let gpus = &cards.machine.gpus;
    gpus.refuse(0, u64::MAX).unwrap();
    assert!(scenario(&cards, false).unwrap());
    let calls = u64::MAX - gpus.left(0).unwrap();
    assert!((20..500).contains(&calls), "{calls} calls");
    let mut without = 0;
    for call in 1..=calls {
        gpus.refuse(0, call).unwrap();
        match scenario(&cards, false) {
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted, "call {call} of {calls}: {error}"),
            // Without room for a graph commands are pushed one by one.
            Ok(is_a_graph) => {
                assert!(!is_a_graph, "call {call} of {calls} found no memory");
                without += 1;
            }
        }
        assert_eq!((gpus.left(0).unwrap(), cards.machine.used(0)), (0, 0), "call {call} of {calls}");
    }
    // Pinned memory, a graph, three nodes; made ready to run, and put on the card.
    assert_eq!(without, 7);
    gpus.refuse(0, 0).unwrap();
    assert!(scenario(&cards, false).unwrap());
}
