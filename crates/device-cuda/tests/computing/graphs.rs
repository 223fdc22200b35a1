//! Graphs: what a step costs in calls, what stays when one of its kernels fails, their memory, and the driver's rules.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::{Bindings, BufferRef, Command, Device, Executable, KernelCall, Library, Place, Program, Run, Trace, Work};
use plimsoll_device_cuda::{CudaDevice, CudaLibrary, GraphUse, any_card};
use plimsoll_memory::{Address, Block};
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;

use super::driver::{Driver, Handle, INVALID_VALUE, call};
use super::rig::Cards;

pub fn command(work: Work, args: Vec<BufferRef>) -> Command {
    Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "node".into() }
}

pub fn buffer(place: Place, offset: u64, bytes: u64) -> BufferRef {
    BufferRef { place, offset, bytes }
}

fn here(offset: u64, bytes: u64) -> BufferRef {
    buffer(Place::Arena(0), offset, bytes)
}

/// A four-byte value, sixteen bytes of it.
pub fn fill(from: BufferRef, to: BufferRef) -> Command {
    let request = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: to.bytes / 4 } };
    let variant = CudaLibrary.variants(&any_card(), &request).unwrap().remove(0);
    command(Work::Kernel(KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }), vec![from, to])
}

/// A value from the caller, filled into as many places as there are, the last of which goes back.
pub fn program(fills: u64) -> Vec<Command> {
    let mut commands = vec![command(Work::Copy, vec![buffer(Place::Feed(0), 0, 4), here(0, 4)])];
    commands.extend((1..=fills).map(|at| fill(here(if at == 1 { 0 } else { 256 * (at - 1) }, 4), here(256 * at, 16))));
    commands.push(command(Work::Copy, vec![here(256 * fills, 16), buffer(Place::Fetch(0), 0, 16)]));
    commands
}

/// A program of one queue, and its run.
pub struct Loaded {
    executable: Box<dyn Executable>,
    _arena: Block,
    device: CudaDevice,
    run: Arc<Run>,
}

impl Loaded {
    fn new(cards: &Cards, commands: Vec<Command>) -> Loaded {
        Loaded::on(cards.device(&cards.card(0), 0, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap(), commands)
    }

    pub fn on(device: CudaDevice, commands: Vec<Command>) -> Loaded {
        let arena = device.allocate(Bytes(1 << 20), "arena").unwrap();
        let executable = device.load(0, Arc::new(Program { commands })).unwrap();
        let nowhere = Address::new(null_mut());
        let bindings = Bindings { arenas: vec![arena.address()], feeds: vec![nowhere], fetches: vec![nowhere], ..Bindings::default() };
        Loaded { device, executable, _arena: arena, run: Arc::new(Run::new(1, bindings)) }
    }

    /// A step whose caller's memory is elsewhere than before: what came back.
    pub fn step(&mut self, value: u32) -> [u32; 4] {
        let (feed, mut fetch) = (Box::new(value), Box::new([0u32; 4]));
        let run = Run::alone(&mut self.run);
        run.bindings.feeds[0] = Address::new((&raw const *feed).cast_mut().cast());
        run.bindings.fetches[0] = Address::new((&raw mut *fetch).cast());
        self.submit();
        *fetch
    }

    /// So many steps with the same memory of the caller; what each is timed by.
    pub fn steps(&mut self, count: u32, mut time: impl FnMut(&mut dyn FnMut())) {
        let (feed, mut fetch) = (Box::new(7u32), Box::new([0u32; 4]));
        let run = Run::alone(&mut self.run);
        run.bindings.feeds[0] = Address::new((&raw const *feed).cast_mut().cast());
        run.bindings.fetches[0] = Address::new((&raw mut *fetch).cast());
        (0..count).for_each(|_| time(&mut || self.submit()));
        assert_eq!(*fetch, [7; 4]);
    }

    fn submit(&mut self) {
        Run::alone(&mut self.run).restart();
        self.executable.submit(&self.run);
        self.device.drive(&self.run);
        assert_eq!(self.run.failure(), None);
    }
}

#[test]
fn a_thread_that_runs_steps_keeps_its_context() {
    let Some(cards) = Cards::new("caller", &[64; 2]) else { return };
    let driver = Driver::open(&cards.machine);
    // Of another card, as another library of the process may have it.
    let own = driver.enter(1);
    let mut loaded = Loaded::new(&cards, program(3));
    for value in 1..4 {
        assert_eq!(loaded.step(value), [value; 4]);
    }
    drop(loaded);
    let mut now: Handle = null_mut();
    assert_eq!((call!(driver, "cuCtxGetCurrent"(*mut Handle), &mut now), now), (0, own));
}

#[test]
fn a_step_without_work_of_the_host_is_one_launch() {
    let Some(cards) = Cards::new("launches", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let mut loaded = Loaded::new(&cards, program(20));
    let mut step = |value: u32, function: Option<&str>| {
        let before = driver.calls(function);
        assert_eq!(loaded.step(value), [value; 4]);
        driver.calls(function) - before
    };
    assert_eq!((step(1, Some("cuLaunchKernel")), step(2, Some("cuGraphInstantiateWithFlags"))), (20, 1));
    // The card's context and the thread's own, the launch, an event behind it, and the sleep until the card comes there.
    for (value, function, calls) in [
        (3, Some("cuGraphLaunch"), 1),
        (4, Some("cuEventRecord"), 1),
        (5, Some("cuEventSynchronize"), 1),
        (6, Some("cuCtxSetCurrent"), 2),
        (7, None, 5),
    ] {
        assert_eq!(step(value, function), calls, "{function:?}");
    }
    // Other memory: it is bound anew, and launched as a graph from the second step on.
    let other = loaded.device.allocate(Bytes(1 << 20), "another arena").unwrap();
    let launches = || driver.calls(Some("cuGraphLaunch"));
    let before = launches();
    Run::alone(&mut loaded.run).bindings.arenas[0] = other.address();
    for (value, so_far) in [(8, 0), (9, 1), (10, 2)] {
        assert_eq!((loaded.step(value), launches() - before), ([value; 4], so_far));
    }
    // Commands that are timed are pushed one by one.
    Run::alone(&mut loaded.run).trace = Some(Trace::new([22]));
    assert_eq!((loaded.step(11), launches() - before), ([11; 4], 2));
    let trace = loaded.run.trace.as_ref().unwrap();
    assert!((0..22).all(|command| trace.span(0, command).is_some()));
    Run::alone(&mut loaded.run).trace = None;
    assert_eq!((loaded.step(12), launches() - before), ([12; 4], 3));
}

#[test]
fn graphs_stay_within_the_room_that_is_kept_for_them() {
    let Some(mut cards) = Cards::new("graph-room", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let launches = || driver.calls(Some("cuGraphLaunch"));
    cards.machine.gpus.set_graph_node(0, 8192).unwrap();
    let mut loaded = Loaded::new(&cards, program(20));
    let without = cards.machine.used(0);
    (1..4).for_each(|value| assert_eq!(loaded.step(value), [value; 4]));
    let taken = cards.machine.used(0) - without;
    assert!(taken >= 22 * 8192 && taken <= GraphUse::on("").taken.device.0 && launches() == 2, "{taken}");
    drop(loaded);
    assert_eq!(cards.machine.used(0), 0);
    // No room, or none on the card: the same values by single commands, step after step.
    cards.graphs = cards.graphs.with_room(Bytes(100_000));
    let mut loaded = Loaded::new(&cards, program(20));
    (1..4).for_each(|value| assert_eq!(loaded.step(value), [value; 4]));
    assert_eq!((launches(), cards.machine.used(0)), (2, without));
    cards.graphs = GraphUse::on("");
    cards.machine.gpus.set_graph_node(0, 64 << 20).unwrap();
    let mut loaded = Loaded::new(&cards, program(20));
    (1..4).for_each(|value| assert_eq!(loaded.step(value), [value; 4]));
    assert_eq!((launches(), cards.machine.used(0)), (2, 2 * without));
}

/// Copies of the caller's memory between, before and behind others of it: each reads what it would read in their order.
#[test]
fn the_hosts_memory_is_read_and_written_in_order() {
    let Some(cards) = Cards::new("host-order", &[64]) else { return };
    let (feed, fetch, flag) = (buffer(Place::Feed(0), 0, 4), buffer(Place::Fetch(0), 0, 4), buffer(Place::VariableFlag(0), 0, 4));
    let copy = |from, to| command(Work::Copy, vec![from, to]);
    let back = |offset, bytes| buffer(Place::Fetch(0), offset, bytes);
    let commands = vec![
        copy(feed, here(0, 4)),
        // Out to the host and in again, by way of two places there.
        copy(here(0, 4), flag),
        copy(flag, fetch),
        copy(fetch, here(256, 4)),
        fill(here(256, 4), here(512, 16)),
        copy(here(512, 4), back(4, 4)),
        copy(feed, back(8, 4)),
        copy(here(516, 4), back(12, 4)),
    ];
    let mut loaded = Loaded::new(&cards, commands);
    let mut flag = Box::new([0u32; 1]);
    Run::alone(&mut loaded.run).bindings.flags = vec![Address::new(flag.as_mut_ptr().cast())];
    for value in 1..6 {
        assert_eq!((loaded.step(value), flag[0]), ([value; 4], value));
    }
}

/// `CUDA_MEMCPY3D_v2`, as numbers.
fn row(from: (c_int, u64), to: (c_int, u64), bytes: u64) -> [u64; 25] {
    let side = |(kind, at): (c_int, u64)| {
        let (host, device) = if kind == 1 { (at, 0) } else { (0, at) };
        [0, 0, 0, 0, kind as u64, host, device, 0, 0, bytes, 1]
    };
    let mut words = [0; 25];
    words[..11].copy_from_slice(&side(from));
    words[11..22].copy_from_slice(&side(to));
    words[22..].copy_from_slice(&[bytes, 1, 1]);
    words
}

#[test]
fn the_mock_refuses_what_the_driver_refuses() {
    let Some(cards) = Cards::new("graph-rules", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let device = cards.device(&cards.card(0), 0, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
    let arena = device.allocate(Bytes(1 << 20), "arena").unwrap();
    let at = arena.address().number();
    driver.enter(0);
    let (mut graph, mut other, mut pinned): (Handle, Handle, *mut c_void) = (null_mut(), null_mut(), null_mut());
    assert_eq!(call!(driver, "cuGraphCreate"(*mut Handle, c_uint), &mut graph, 1), INVALID_VALUE);
    assert_eq!(call!(driver, "cuGraphCreate"(*mut Handle, c_uint), &mut graph, 0), 0);
    assert_eq!(call!(driver, "cuGraphCreate"(*mut Handle, c_uint), &mut other, 0), 0);
    assert_eq!(call!(driver, "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint), &mut pinned, 64, 3), 0);
    let add = |graph: Handle, after: &[Handle], node: [u64; 25]| {
        let mut place: Handle = null_mut();
        let code = call!(
            driver,
            "cuGraphAddMemcpyNode"(*mut Handle, Handle, *const Handle, usize, *const u64, Handle),
            &mut place,
            graph,
            after.as_ptr(),
            after.len(),
            node.as_ptr(),
            null_mut()
        );
        (code, place)
    };
    let host = pinned as u64;
    let (code, first) = add(graph, &[], row((1, host), (2, at), 64));
    assert_eq!(code, 0);
    let (_, foreign) = add(other, &[], row((1, host), (2, at), 64));
    let own = [0u8; 64];
    let mut bent = row((1, host), (2, at), 64);
    bent[23] = 2;
    let wrong = [
        (vec![foreign], row((1, host), (2, at), 64)),
        (vec![first, first], row((1, host), (2, at), 64)),
        // None, longer than the pinned memory, longer than a row can be, of memory that is not pinned, of no kind, of two rows.
        (vec![], row((1, host), (2, at), 0)),
        (vec![], row((1, host), (2, at), 65)),
        (vec![], row((2, at), (2, at), 1 << 31)),
        (vec![], row((1, own.as_ptr() as u64), (2, at), 64)),
        (vec![], row((0, host), (2, at), 64)),
        (vec![], bent),
    ];
    for (after, node) in wrong {
        assert_eq!(add(graph, &after, node).0, INVALID_VALUE, "{node:?}");
    }
    let fill = |words: [u64; 5]| {
        let mut place: Handle = null_mut();
        let (to, value_and_element) = (words[0], words[2] | words[3] << 32);
        let node = [to, words[1], value_and_element, words[4], 1];
        call!(
            driver,
            "cuGraphAddMemsetNode"(*mut Handle, Handle, *const Handle, usize, *const u64, Handle),
            &mut place,
            graph,
            null(),
            0,
            node.as_ptr(),
            null_mut()
        )
    };
    // Address, pitch, value, bytes of an element, elements.
    assert_eq!(fill([at, 0, 255, 1, 8]), 0);
    for words in [[at, 0, 256, 1, 8], [at, 0, 255, 3, 8], [at + 1, 0, 255, 2, 8], [at, 0, 255, 1, 0]] {
        assert_eq!(fill(words), INVALID_VALUE, "{words:?}");
    }
    let launch = |graph: Handle| call!(driver, "cuGraphLaunch"(Handle, Handle), graph, null_mut());
    assert_eq!(launch(graph), INVALID_VALUE, "a graph that was not instantiated");
    for graph in [graph, other] {
        assert_eq!(call!(driver, "cuGraphDestroy"(Handle), graph), 0);
        assert_eq!(call!(driver, "cuGraphDestroy"(Handle), graph), INVALID_VALUE);
    }
    assert_eq!(call!(driver, "cuMemFreeHost"(*mut c_void), pinned), 0);
}
