//! Loops and branches that the card decides about: the same bytes and failures as where the host decides, and what they cost in calls.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_device::{Bindings, BufferRef, Command, Device, Executable, Failure, Place, Program, Run, Trace, Work};
use plimsoll_device_cuda::{CudaDevice, CudaLibrary, EngineLimits, GraphUse};
use plimsoll_memory::Block;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use super::convolutions::{self, Rig};
use super::driver::{Driver, Handle, INVALID_VALUE, call};
use super::faults::kernel;
use super::graphs::{buffer, command};
use super::rig::Cards;

const ARENA: u64 = 8192;
/// Sixteen rows of four numbers.
const ROWS: u64 = 16;
/// An index for each row, and bools: guards, and a list for each depth of loops.
const INDICES: u64 = 4096;
const GUARDS: u64 = 5120;
const LISTS: u64 = 6144;
/// Bools of a list.
const LIST: u64 = 4;

fn here(offset: u64, bytes: u64) -> BufferRef {
    buffer(Place::Arena(0), offset, bytes)
}

fn copy(from: u64, to: u64, bytes: u64) -> Command {
    command(Work::Copy, vec![here(from, bytes), here(to, bytes)])
}

fn row(number: u64) -> u64 {
    256 * number
}

/// The first number of a row, in all places of another.
fn fill(from: u64, to: u64) -> Command {
    let request = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 4 } };
    kernel(request, vec![here(row(from), 4), here(row(to), 16)])
}

/// The number of a row that an index says, which is a fault where it is none of four.
fn take(from: u64, to: u64) -> Command {
    let take = Gather::Take { element: 4, params: vec![4], indices: vec![1], axis: 0, batch_dims: 0, index_type: DataType::Int32 };
    kernel(KernelRequest::Gather(take), vec![here(row(from), 16), here(INDICES + 4 * to, 4), here(row(to), 4)])
}

fn list(depth: u64) -> u64 {
    LISTS + 256 * depth
}

/// A loop that goes on as long as the list of its depth says: the first bool decides, and each iteration moves them one place on.
fn repeated(depth: u64, mut body: Vec<Command>) -> Vec<Command> {
    // The list is made anew for a loop in a loop.
    let begin = copy(list(depth) + 64, list(depth), LIST);
    body.extend((1..LIST).map(|at| copy(list(depth) + at, list(depth) + at - 1, 1)));
    let condition = || vec![here(list(depth), 1)];
    let count = body.len() as u32;
    let mut all = vec![begin, command(Work::Loop { body: count, with: vec![] }, condition())];
    all.append(&mut body);
    all.push(command(Work::Again { body: count }, condition()));
    all
}

/// A number below another, from a seed.
struct Making(u64);

impl Making {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn commands(&mut self, depth: u64, count: u64) -> Vec<Command> {
        let mut made = Vec::new();
        let (mut guard, mut guarded) = (None, 0);
        for _ in 0..count {
            if guarded == 0 {
                guard = (self.below(2) == 0).then(|| here(GUARDS + self.below(4), 1));
                guarded = 1 + self.below(6);
            }
            guarded -= 1;
            let (from, to) = (self.below(ROWS), self.below(ROWS));
            let mut some = match self.below(8) {
                0 if depth < 3 => {
                    let count = 1 + self.below(5);
                    repeated(depth, self.commands(depth + 1, count))
                }
                0..3 => vec![copy(row(from), row(to), 16)].into_iter().filter(|_| from != to).collect(),
                3..6 => vec![fill(from, to)].into_iter().filter(|_| from != to).collect(),
                6 => vec![take(from, to)].into_iter().filter(|_| from != to).collect(),
                // Guards change, too.
                _ => vec![copy(list(self.below(3)), GUARDS + self.below(4), 1)],
            };
            let changes_a_guard = some.iter().any(|command| command.args.iter().any(|arg| (GUARDS..LISTS).contains(&arg.offset)));
            if !changes_a_guard && !some.is_empty() {
                // A loop's commands behind its beginning have guards of their own.
                let at = some.iter().position(|command| matches!(command.work, Work::Loop { .. })).unwrap_or(0);
                some[at].guard = guard;
            } else {
                guarded = 0;
            }
            made.append(&mut some);
        }
        made
    }

    /// What is in the arena before.
    fn bytes(&mut self, may_fail: bool) -> Vec<u8> {
        let mut bytes = vec![0; ARENA as usize];
        for at in 0..ROWS * 64 {
            bytes[at as usize * 4..][..4].copy_from_slice(&(self.below(1000) as u32).to_le_bytes());
        }
        for at in 0..ROWS {
            let index = if may_fail && self.below(8) == 0 { 4 + self.below(9) } else { self.below(4) };
            bytes[(INDICES + 4 * at) as usize..][..4].copy_from_slice(&(index as i32).to_le_bytes());
        }
        (0..4).for_each(|at| bytes[(GUARDS + at) as usize] = self.below(2) as u8);
        for depth in 0..4 {
            (0..LIST - 1).for_each(|at| bytes[(list(depth) + 64 + at) as usize] = u8::from(self.below(4) > 0));
        }
        bytes
    }
}

struct Loaded {
    executable: Box<dyn Executable>,
    arena: Block,
    device: CudaDevice,
    run: Arc<Run>,
    commands: usize,
}

impl Loaded {
    fn new(cards: &Cards, commands: Vec<Command>) -> Loaded {
        let device = cards.device(&cards.card(0), 0, Some(Bytes(48 << 20)), Arc::new(CudaLibrary)).unwrap();
        let arena = device.allocate(Bytes(ARENA), "arena").unwrap();
        let count = commands.len();
        let executable = device.load(0, Arc::new(Program { commands })).unwrap();
        let bindings = Bindings { arenas: vec![arena.address()], ..Bindings::default() };
        Loaded { device, executable, arena, run: Arc::new(Run::new(1, bindings)), commands: count }
    }

    /// A step from these bytes on: the bytes behind it, and why it failed.
    fn step(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<Failure>) {
        self.arena.write(0, bytes).unwrap();
        Run::alone(&mut self.run).restart();
        self.executable.submit(&self.run);
        self.device.drive(&self.run);
        let mut behind = vec![0; ARENA as usize];
        self.arena.read(0, &mut behind).unwrap();
        (behind, self.run.failure())
    }

    /// The same by commands that are timed: the host decides.
    fn step_of_the_host(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<Failure>) {
        Run::alone(&mut self.run).trace = Some(Trace::new([self.commands]));
        let behind = self.step(bytes);
        Run::alone(&mut self.run).trace = None;
        behind
    }
}

fn at_once(cards: &mut Cards) {
    cards.graphs = GraphUse { at_once: true, ..cards.graphs };
}

#[test]
fn programs_at_random_do_the_same_where_the_card_decides() {
    let Some(mut cards) = Cards::new("bodies-random", &[64]) else { return };
    at_once(&mut cards);
    let driver = Driver::open(&cards.machine);
    let (mut failed, mut repeats) = (0, 0);
    let bodies = driver.calls(Some("cuGraphAddNode"));
    for seed in 0..60 {
        let mut making = Making(seed);
        let commands = making.commands(0, 14);
        repeats += commands.iter().filter(|command| matches!(command.work, Work::Loop { .. })).count();
        let mut loaded = Loaded::new(&cards, commands);
        for round in 0..4 {
            let bytes = making.bytes(round % 2 == 1);
            let (host, card) = (loaded.step_of_the_host(&bytes), loaded.step(&bytes));
            assert_eq!(host.1, card.1, "seed {seed}, round {round}");
            assert!(host.0 == card.0, "seed {seed}, round {round}: other bytes");
            failed += u32::from(host.1.is_some());
        }
    }
    let bodies = driver.calls(Some("cuGraphAddNode")) - bodies;
    assert!(failed >= 10 && repeats >= 40 && bodies as usize >= repeats, "{failed} failures, {repeats} loops, {bodies} bodies");
}

/// A value of the caller's, filled into rows in a loop with a loop in it, which goes back.
fn nested() -> Vec<Command> {
    let inner = repeated(1, vec![fill(0, 1), fill(1, 2)]);
    let mut commands = vec![fill(0, 3)];
    commands.extend(repeated(0, [inner, vec![fill(2, 4)]].concat()));
    commands.push(fill(4, 5));
    commands
}

/// Bytes with which each of the loops goes round three times.
fn of_three_rounds() -> Vec<u8> {
    let mut bytes = Making(3).bytes(false);
    (0..2).for_each(|depth| bytes[(list(depth) + 64) as usize..][..LIST as usize].copy_from_slice(&[1, 1, 1, 0]));
    bytes
}

#[test]
fn a_step_with_loops_is_one_launch() {
    let Some(cards) = Cards::new("bodies-calls", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let mut loaded = Loaded::new(&cards, nested());
    let bytes = of_three_rounds();
    let mut step = |function: Option<&str>| {
        let before = driver.calls(function);
        loaded.executable.submit({
            Run::alone(&mut loaded.run).restart();
            &loaded.run
        });
        loaded.device.drive(&loaded.run);
        assert_eq!(loaded.run.failure(), None);
        driver.calls(function) - before
    };
    loaded.arena.write(0, &bytes).unwrap();
    // The host decides in the first step, and waits for the card each time.
    assert!(step(Some("cuEventSynchronize")) >= 12);
    assert_eq!(step(Some("cuGraphInstantiateWithFlags")), 1);
    // The card's context and the thread's own, the launch, an event behind it, and the sleep until the card comes there.
    for (function, calls) in [(Some("cuGraphLaunch"), 1), (Some("cuLaunchKernel"), 0), (Some("cuEventSynchronize"), 1), (None, 5)] {
        assert_eq!(step(function), calls, "{function:?}");
    }
}

#[test]
fn a_loop_on_the_card_without_an_end_can_be_given_up() {
    let Some(mut cards) = Cards::new("bodies-endless", &[64]) else { return };
    at_once(&mut cards);
    // The condition stays; what is behind the loop is not done.
    let condition = || vec![here(list(0), 1)];
    let body = vec![fill(0, 1)];
    let mut commands = vec![command(Work::Loop { body: 1, with: vec![] }, condition())];
    commands.extend(body);
    commands.extend([command(Work::Again { body: 1 }, condition()), fill(1, 2)]);
    let mut loaded = Loaded::new(&cards, commands);
    let mut bytes = vec![0u8; ARENA as usize];
    bytes[row(0) as usize] = 7;
    for _ in 0..3 {
        bytes[list(0) as usize] = 1;
        loaded.arena.write(0, &bytes).unwrap();
        Run::alone(&mut loaded.run).restart();
        loaded.executable.submit(&loaded.run);
        let run = Arc::downgrade(&loaded.run);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                run.upgrade().expect("the run is there until it is over").give_up();
            });
            loaded.device.drive(&loaded.run);
        });
        assert!(loaded.run.is_over() && loaded.run.failure().is_none());
        let mut behind = vec![0; ARENA as usize];
        loaded.arena.read(0, &mut behind).unwrap();
        assert_eq!((behind[row(1) as usize], behind[row(2) as usize]), (7, 0));
        // The next run is another one.
        bytes[list(0) as usize] = 0;
        let (behind, failure) = loaded.step(&bytes);
        assert_eq!((behind[row(1) as usize], behind[row(2) as usize], failure), (0, 0, None));
    }
}

#[test]
fn a_card_that_is_lost_in_a_loop_ends_it() {
    let Some(mut cards) = Cards::new("bodies-lost", &[64]) else { return };
    at_once(&mut cards);
    let condition = || vec![here(list(0), 1)];
    let commands =
        vec![command(Work::Loop { body: 1, with: vec![] }, condition()), fill(0, 1), command(Work::Again { body: 1 }, condition())];
    let mut loaded = Loaded::new(&cards, commands);
    let mut bytes = vec![0u8; ARENA as usize];
    bytes[list(0) as usize] = 1;
    loaded.arena.write(0, &bytes).unwrap();
    Run::alone(&mut loaded.run).restart();
    loaded.executable.submit(&loaded.run);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            cards.machine.gpus.lose(0).unwrap();
        });
        loaded.device.drive(&loaded.run);
    });
    assert_eq!(loaded.run.failure().map(|failure| failure.fault.code), Some(Code::Unavailable));
}

#[test]
fn a_fault_in_a_loop_ends_it() {
    let Some(mut cards) = Cards::new("bodies-faults", &[64]) else { return };
    at_once(&mut cards);
    // The index of the second iteration is none.
    let mut commands = repeated(0, vec![take(0, 1), copy(INDICES + 64, INDICES + 4, 4), fill(1, 2)]);
    commands.push(fill(0, 3));
    let mut loaded = Loaded::new(&cards, commands);
    let mut bytes = vec![0u8; ARENA as usize];
    (0..4u8).for_each(|at| bytes[row(0) as usize + 4 * usize::from(at)] = 10 + at);
    bytes[INDICES as usize + 4] = 2;
    bytes[INDICES as usize + 64] = 9;
    (0..2).for_each(|at| bytes[list(0) as usize + 64 + at] = 1);
    for _ in 0..3 {
        let (behind, failure) = loaded.step(&bytes);
        let failure = failure.expect("an index is outside");
        assert_eq!((failure.command, failure.fault.code), (2, Code::InvalidArgument));
        assert_eq!(failure.fault.to_error().message(), "indices[0] is not in [0, 4)");
        // The first iteration was done, the list was moved once, and nothing came behind.
        assert_eq!((behind[row(2) as usize], behind[row(3) as usize], behind[list(0) as usize]), (12, 0, 1));
    }
}

#[test]
fn where_the_driver_refuses_bodies_the_host_decides() {
    let Some(cards) = Cards::new("bodies-refused", &[64]) else { return };
    let driver = Driver::open(&cards.machine);
    let bytes = of_three_rounds();
    let expected = Loaded::new(&cards, nested()).step_of_the_host(&bytes);
    cards.machine.gpus.set_without_bodies(0, true).unwrap();
    let card = cards.card(0);
    for _ in 0..2 {
        let device = cards.device(&card, 0, Some(Bytes(16 << 20)), Arc::new(CudaLibrary)).unwrap();
        let arena = device.allocate(Bytes(ARENA), "arena").unwrap();
        let executable = device.load(0, Arc::new(Program { commands: nested() })).unwrap();
        let bindings = Bindings { arenas: vec![arena.address()], ..Bindings::default() };
        let mut loaded = Loaded { device, executable, arena, run: Arc::new(Run::new(1, bindings)), commands: nested().len() };
        let before = driver.calls(Some("cuGraphLaunch"));
        for _ in 0..3 {
            assert_eq!(loaded.step(&bytes), expected);
        }
        // What is between the decisions are graphs as ever.
        assert!(driver.calls(Some("cuGraphLaunch")) - before >= 12);
    }
    // It was asked once.
    assert_eq!(driver.calls(Some("cuGraphConditionalHandleCreate")), 1);
}

#[test]
fn work_of_cudnn_is_in_branches_and_loops() {
    let limits: EngineLimits = convolutions::FULL;
    let Some(mut rig) = Rig::new("bodies-cudnn") else { return };
    at_once(&mut rig.cards);
    let driver = Driver::open(&rig.cards.machine);
    let card = rig.open().unwrap();
    let (device, library) = rig.device(&card, limits).unwrap();
    let variant = library.variants(&plimsoll_device_cuda::any_card(), &convolutions::request()).unwrap().remove(0);
    // The results are where nothing else is, scratch among it.
    const PLACES: [u64; 3] = [convolutions::PLACES[2], convolutions::PLACES[3], convolutions::ARENA - (64 << 10)];
    const GUARD: u64 = convolutions::ARENA - 4096;
    let convolve = |to: usize| convolutions::convolution(variant.clone(), PLACES[to]);
    let bool_at = |at: u64| vec![here(GUARD + at, 1)];
    // A guarded one; then a loop of one, behind what may be a fault, that goes on while the list says so; then another guarded one.
    let mut guarded = convolve(0);
    guarded.guard = Some(here(GUARD + 8, 1));
    let mut last = convolve(2);
    last.guard.clone_from(&guarded.guard);
    let body = vec![convolutions::take(&*library), convolve(1), copy(GUARD + 1, GUARD, 1), copy(GUARD + 2, GUARD + 1, 1)];
    let mut commands = vec![guarded, command(Work::Loop { body: 4, with: vec![] }, bool_at(0))];
    commands.extend(body);
    commands.extend([command(Work::Again { body: 4 }, bool_at(0)), last]);
    let mut loaded = convolutions::Loaded::new(device, commands).unwrap();
    let index = |loaded: &convolutions::Loaded, index: i32| loaded.arena.write(24576, &index.to_le_bytes()).unwrap();
    let none = vec![0u8; convolutions::IMAGES as usize];
    let mut full = Vec::new();
    // Bools of the loop, the guard, the index, and whether each of the three results is there; whether it fails.
    let cases = [
        ([1, 1, 0], 1, 0, [true, true, true], false),
        ([0, 1, 0], 1, 0, [true, false, true], false),
        ([1, 0, 0], 0, 3, [false, true, false], false),
        ([1, 1, 0], 1, 9, [true, false, false], true),
        ([0, 1, 0], 0, 9, [false, false, false], false),
    ];
    for (list, guard, at, there, fails) in cases.repeat(2) {
        PLACES.into_iter().for_each(|place| loaded.arena.write(place, &none).unwrap());
        loaded.arena.write(GUARD, &list).unwrap();
        loaded.arena.write(GUARD + 8, &[guard]).unwrap();
        index(&loaded, at);
        let before = driver.calls(Some("cuGraphLaunch"));
        assert_eq!(loaded.step().is_err(), fails, "{list:?} {guard} {at}");
        assert_eq!(driver.calls(Some("cuGraphLaunch")) - before, 1);
        let results = PLACES.map(|place| loaded.result(place));
        if full.is_empty() {
            full.clone_from(&results[0]);
            assert_ne!(full, none);
        }
        for (result, there) in results.iter().zip(there) {
            assert!(*result == if there { &full[..] } else { &none[..] }, "{list:?} {guard} {at}: {there}");
        }
    }
}

/// `CUgraphNodeParams` of a conditional node, as numbers: condition, form, count, context.
fn conditional(condition: u64, form: u64, count: u64, context: u64) -> [u64; 32] {
    let mut words = [0; 32];
    words[0] = 13;
    words[2..6].copy_from_slice(&[condition, form | count << 32, 0, context]);
    words
}

#[test]
fn the_mock_refuses_of_bodies_what_the_driver_refuses() {
    const NOT_SUPPORTED: c_uint = 801;
    let Some(cards) = Cards::new("bodies-rules", &[64, 64]) else { return };
    let driver = Driver::open(&cards.machine);
    let device = cards.device(&cards.card(0), 0, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
    let arena = device.allocate(Bytes(1 << 20), "arena").unwrap();
    let at = arena.address().number();
    let null: Handle = null_mut();
    let create = || {
        let mut graph = null;
        assert_eq!(call!(driver, "cuGraphCreate"(*mut Handle, c_uint), &mut graph, 0), 0);
        graph
    };
    let condition = |graph: Handle, flags: c_uint| {
        let mut handle = 0u64;
        let code = call!(
            driver,
            "cuGraphConditionalHandleCreate"(*mut u64, Handle, Handle, c_uint, c_uint),
            &mut handle,
            graph,
            null,
            1,
            flags
        );
        (code, handle)
    };
    let add = |graph: Handle, mut node: [u64; 32]| {
        let mut place = null;
        let code = call!(
            driver,
            "cuGraphAddNode_v2"(*mut Handle, Handle, *const Handle, *const c_void, usize, *mut u64),
            &mut place,
            graph,
            null.cast(),
            null.cast(),
            0,
            node.as_mut_ptr()
        );
        // SAFETY: the driver's list of as many bodies as were asked for.
        let bodies = if code == 0 && node[0] == 13 { unsafe { *(node[4] as *const Handle) } } else { null };
        (code, bodies)
    };
    let fill = |graph: Handle, value: u64| {
        let (mut place, node) = (null, [at, 0, value | 1 << 32, 8, 1]);
        call!(
            driver,
            "cuGraphAddMemsetNode"(*mut Handle, Handle, *const Handle, usize, *const u64, Handle),
            &mut place,
            graph,
            null.cast(),
            0,
            node.as_ptr(),
            null
        )
    };
    let instantiate = |graph: Handle| {
        let mut executable = null;
        let code = call!(driver, "cuGraphInstantiateWithFlags"(*mut Handle, Handle, c_ulonglong), &mut executable, graph, 0);
        (code, executable)
    };
    let destroy = |graph: Handle| call!(driver, "cuGraphDestroy"(Handle), graph);
    let end = |executable: Handle| call!(driver, "cuGraphExecDestroy"(Handle), executable);
    let child = |graph: Handle, child: Handle| {
        let mut place = null;
        call!(
            driver,
            "cuGraphAddChildGraphNode"(*mut Handle, Handle, *const Handle, usize, Handle),
            &mut place,
            graph,
            null.cast(),
            0,
            child
        )
    };
    driver.enter(0);
    let (graph, other) = (create(), create());
    // Conditions: of no graph, with flags that are none.
    assert_eq!((condition(null, 1).0, condition(graph, 2).0), (INVALID_VALUE, INVALID_VALUE));
    let [(0, first), (0, second), (0, foreign)] = [condition(graph, 1), condition(graph, 1), condition(other, 1)] else { panic!() };
    let mut reserved = conditional(first, 0, 1, 0);
    reserved[1] = 1;
    let wrong = [
        // No condition, another graph's, no form, no bodies, too many of them, no context, and words that are reserved.
        conditional(1, 0, 1, 0),
        conditional(foreign, 0, 1, 0),
        conditional(first, 3, 1, 0),
        conditional(first, 0, 0, 0),
        conditional(first, 0, 3, 0),
        conditional(first, 1, 2, 0),
        conditional(first, 0, 1, 99),
        reserved,
    ];
    for node in wrong {
        assert_ne!(add(graph, node).0, 0, "{node:?}");
    }
    let (code, body) = add(graph, conditional(first, 0, 1, 0));
    assert_eq!((code, add(graph, conditional(first, 0, 1, 0)).0), (0, INVALID_VALUE), "a condition has one node");
    // A condition without a node.
    assert_eq!(instantiate(graph).0, INVALID_VALUE);
    assert_eq!(add(graph, conditional(second, 1, 1, 0)).0, 0);
    // A body takes fills and bodies with conditions of its own, and no allocations; it is no graph of its own.
    assert_eq!(fill(body, 7), 0);
    let (0, inner) = condition(body, 1) else { panic!() };
    assert_eq!((add(graph, conditional(inner, 0, 1, 0)).0, add(body, conditional(inner, 0, 2, 0)).0), (INVALID_VALUE, 0));
    let mut allocation = [0u64; 32];
    (allocation[0], allocation[15]) = (10, 4096);
    assert_eq!(add(body, allocation).0, NOT_SUPPORTED);
    assert_eq!((instantiate(body).0, destroy(body)), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!((child(other, graph), child(other, body)), (NOT_SUPPORTED, NOT_SUPPORTED));
    // One executable at a time.
    let (code, executable) = instantiate(graph);
    assert_eq!((code, instantiate(graph).0, end(executable)), (0, INVALID_VALUE, 0));
    let (code, executable) = instantiate(graph);
    assert_eq!((code, end(executable), destroy(graph), destroy(other)), (0, 0, 0, 0));
    // A body ends with its graph.
    assert_eq!(fill(body, 7), INVALID_VALUE);
    assert_eq!(condition(graph, 1).0, INVALID_VALUE);
}
