//! Faults that kernels find, guards, and traces.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_device::{Bindings, BufferRef, Command, Device, Failure, KernelCall, Library, Place, Program, Run, Trace, Work};
use plimsoll_device_cuda::{CudaLibrary, any_card};
use plimsoll_memory::{Address, Block};
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;

use super::rig::Cards;

/// Where things lie in the arena.
const PARAMS: u64 = 0;
const INDICES: u64 = 256;
const TAKEN: u64 = 512;
const FIRST: u64 = 768;
const SECOND: u64 = 1024;
const THIRD: u64 = 1280;
const GUARD: u64 = 1536;

fn here(offset: u64, bytes: u64) -> BufferRef {
    BufferRef { place: Place::Arena(0), offset, bytes }
}

fn command(work: Work, args: Vec<BufferRef>) -> Command {
    Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "node".into() }
}

pub fn kernel(request: KernelRequest, args: Vec<BufferRef>) -> Command {
    let variant = CudaLibrary.variants(&any_card(), &request).unwrap().remove(0);
    command(Work::Kernel(KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }), args)
}

/// Takes three of four numbers, by indices; then three changes that come behind, of which the last is copied from the host.
fn program(guarded: bool) -> Vec<Command> {
    let params = vec![4];
    let take = Gather::Take { element: 4, params, indices: vec![3], axis: 0, batch_dims: 0, index_type: DataType::Int32 };
    let mut take = kernel(KernelRequest::Gather(take), vec![here(PARAMS, 16), here(INDICES, 12), here(TAKEN, 12)]);
    take.guard = guarded.then(|| here(GUARD, 1));
    let fill = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 4 } };
    let feed = BufferRef { place: Place::Feed(0), offset: 0, bytes: 16 };
    vec![
        take,
        command(Work::Copy, vec![here(PARAMS, 16), here(FIRST, 16)]),
        kernel(fill, vec![here(PARAMS, 4), here(SECOND, 16)]),
        command(Work::Copy, vec![feed, here(THIRD, 16)]),
    ]
}

struct Loaded {
    device: Box<dyn Device>,
    executable: Box<dyn plimsoll_device::Executable>,
    arena: Block,
    run: Arc<Run>,
    feed: Box<[f32; 4]>,
}

impl Loaded {
    fn new(cards: &Cards, commands: Vec<Command>) -> Loaded {
        let device = cards.device(&cards.card(0), 0, Some(Bytes(16 << 20)), Arc::new(CudaLibrary)).unwrap();
        let arena = device.allocate(Bytes(2048), "arena").unwrap();
        let executable = device.load(0, Arc::new(Program { commands })).unwrap();
        let feed = Box::new([5.0f32, 6.0, 7.0, 8.0]);
        let bindings =
            Bindings { arenas: vec![arena.address()], feeds: vec![Address::new(feed.as_ptr().cast_mut().cast())], ..Bindings::default() };
        Loaded { device: Box::new(device), executable, arena, run: Arc::new(Run::new(1, bindings)), feed }
    }

    fn set<const N: usize>(&self, offset: u64, words: [[u8; 4]; N]) {
        self.arena.write(offset, words.as_flattened()).unwrap();
    }

    fn floats<const N: usize>(&self, offset: u64) -> [f32; N] {
        std::array::from_fn(|at| {
            let mut word = [0; 4];
            self.arena.read(offset + 4 * at as u64, &mut word).unwrap();
            f32::from_le_bytes(word)
        })
    }

    fn step(&mut self) -> Option<Failure> {
        Run::alone(&mut self.run).restart();
        self.executable.submit(&self.run);
        self.device.drive(&self.run);
        self.run.failure()
    }
}

#[test]
fn behind_a_fault_nothing_changes() {
    let Some(cards) = Cards::new("faults", &[64]) else { return };
    for guarded in [false, true] {
        let mut loaded = Loaded::new(&cards, program(guarded));
        loaded.set(PARAMS, [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes));
        loaded.set(INDICES, [3i32, -7, 9].map(i32::to_le_bytes));
        loaded.set(GUARD, [[1, 0, 0, 0]]);
        // From the second step on by a graph.
        for _ in 0..3 {
            let failure = loaded.step().expect("an index is outside");
            assert_eq!((failure.command, failure.fault.code), (0, Code::InvalidArgument));
            assert_eq!(failure.fault.to_error().message(), "indices[1] is not in [0, 4)");
            assert_eq!([FIRST, SECOND, THIRD].map(|offset| loaded.floats::<4>(offset)), [[0.0; 4]; 3]);
        }
        // Where it is passed over, there is no fault, and all goes on.
        loaded.set(TAKEN, [[0; 4]; 3]);
        let expected = if guarded {
            loaded.set(GUARD, [[0; 4]]);
            [0.0; 3]
        } else {
            loaded.set(INDICES, [3i32, 0, 1].map(i32::to_le_bytes));
            [4.0, 1.0, 2.0]
        };
        for _ in 0..2 {
            assert_eq!((loaded.step(), loaded.floats::<3>(TAKEN)), (None, expected));
        }
        let behind = [FIRST, SECOND, THIRD].map(|offset| loaded.floats::<4>(offset));
        assert_eq!(behind, [[1.0, 2.0, 3.0, 4.0], [1.0; 4], *loaded.feed]);
    }
}

/// Memory of the host that copies before and behind a fault go to: the former stay.
#[test]
fn what_came_before_a_fault_stays() {
    let Some(cards) = Cards::new("before", &[64]) else { return };
    let take = program(false).remove(0);
    let flag = |number: u32| BufferRef { place: Place::VariableFlag(number), offset: 0, bytes: 16 };
    let feed = BufferRef { place: Place::Feed(0), offset: 0, bytes: 16 };
    let copy = |from, to| command(Work::Copy, vec![from, to]);
    let commands = vec![copy(here(PARAMS, 16), flag(0)), copy(feed, flag(1)), take, copy(here(PARAMS, 16), flag(2)), copy(feed, flag(3))];
    let mut loaded = Loaded::new(&cards, commands);
    let mut flags = Box::new([[0f32; 4]; 4]);
    let places = flags.iter_mut().map(|flag| Address::new(flag.as_mut_ptr().cast())).collect();
    Run::alone(&mut loaded.run).bindings.flags = places;
    let params = [1.0f32, 2.0, 3.0, 4.0];
    loaded.set(PARAMS, params.map(f32::to_le_bytes));
    for (index, behind) in [(9, [[0.0; 4]; 2]), (2, [params, *loaded.feed])].repeat(3) {
        loaded.set(INDICES, [0, 1, index].map(i32::to_le_bytes));
        *flags = [[0.0; 4]; 4];
        assert_eq!(loaded.step().is_some(), index == 9);
        assert_eq!(*flags, [params, *loaded.feed, behind[0], behind[1]], "index {index}");
    }
}

#[test]
fn copies_obey_their_guards() {
    let Some(cards) = Cards::new("guards", &[64]) else { return };
    let mut commands = program(false).split_off(1);
    commands.iter_mut().for_each(|command| command.guard = Some(here(GUARD, 1)));
    let mut loaded = Loaded::new(&cards, commands);
    loaded.set(PARAMS, [1.0f32; 4].map(f32::to_le_bytes));
    let done = [[1.0; 4], [1.0; 4], [5.0, 6.0, 7.0, 8.0]];
    for _ in 0..3 {
        for (guard, expected) in [(0, [[0.0; 4]; 3]), (1, done)] {
            loaded.set(GUARD, [[guard, 0, 0, 0]]);
            [FIRST, SECOND, THIRD].into_iter().for_each(|offset| loaded.set(offset, [[0; 4]; 4]));
            assert_eq!((loaded.step(), [FIRST, SECOND, THIRD].map(|offset| loaded.floats::<4>(offset))), (None, expected));
        }
    }
}

#[test]
fn a_trace_has_the_commands_that_ran() {
    let Some(cards) = Cards::new("trace", &[64]) else { return };
    let mut commands = program(true);
    commands[3].guard = Some(here(GUARD, 1));
    let mut loaded = Loaded::new(&cards, commands);
    Run::alone(&mut loaded.run).trace = Some(Trace::new([4]));
    assert_eq!(loaded.step(), None);
    let trace = loaded.run.trace.as_ref().unwrap();
    let spans: Vec<Option<(u64, u64)>> = (0..4).map(|command| trace.span(0, command)).collect();
    let [_, Some(copy), Some(fill), None] = spans[..] else { panic!("{spans:?}") };
    assert!(copy.0 <= copy.1 && copy.1 <= fill.0 && fill.0 <= fill.1, "{spans:?}");
}

#[test]
fn loops_go_on_while_the_card_says_so() {
    let Some(cards) = Cards::new("loops", &[64]) else { return };
    // The body moves four bools one place on: the condition is the first.
    let shift = |from: u64, to: u64| command(Work::Copy, vec![here(GUARD + from, 1), here(GUARD + to, 1)]);
    let body = vec![
        kernel(KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 4 } }, vec![here(PARAMS, 4), here(SECOND, 16)]),
        shift(1, 0),
        shift(2, 1),
        shift(3, 2),
    ];
    let condition = vec![here(GUARD, 1)];
    let count = body.len() as u32;
    let begin = command(Work::Loop { body: count, with: vec![] }, condition.clone());
    let end = command(Work::Again { body: count }, condition);
    let commands = std::iter::once(begin).chain(body).chain([end]).collect();
    let mut loaded = Loaded::new(&cards, commands);
    loaded.set(PARAMS, [[0, 0, 128, 63]]);
    let cases = [([1, 1, 0, 1], [0, 1, 1, 1], 1.0), ([0, 1, 1, 1], [0, 1, 1, 1], 0.0)];
    for (bools, left, filled) in cases.repeat(3) {
        loaded.set(GUARD, [bools]);
        loaded.set(SECOND, [[0; 4]; 4]);
        assert_eq!(loaded.step(), None);
        let mut now = [0; 4];
        loaded.arena.read(GUARD, &mut now).unwrap();
        assert_eq!((now, loaded.floats::<4>(SECOND)), (left, [filled; 4]));
    }
}
