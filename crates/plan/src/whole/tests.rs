//! A loop that writes a list whole, and changes by each of which it does not, or is not known to.

use std::sync::Arc;

use plimsoll_device::{Cost, Load, Partner, Place, Step, Variant};
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg, Scalar};
use plimsoll_request::gather::{Gather, ScatterOp};

use super::*;

/// Where the commands have their numbers, the list, and what is put into it.
const I: BufferRef = at(0, 4);
const NEXT: BufferRef = at(64, 4);
const TEST: BufferRef = at(128, 1);
const ITEM: BufferRef = at(192, 8);
const LIST: BufferRef = at(256, 24);

const fn at(offset: u64, bytes: u64) -> BufferRef {
    BufferRef { place: Place::Arena(0), offset, bytes }
}

fn command(work: Work, args: &[BufferRef]) -> Command {
    Command { work, args: args.to_vec(), scratch: None, worker_scratch: None, guard: None, waits: Vec::new(), label: "test".into() }
}

fn call(request: KernelRequest, args: &[BufferRef]) -> Command {
    let (cost, load) = (Cost { flops: 0.0, bytes: 0.0 }, Load::default());
    let step = Step { args: None, chunks: 1, scratch: 0, per_worker: 0, in_place: Vec::new(), cost, load, seconds: None };
    let variant = Variant { name: "test".into(), numerics: "test".into(), between: Vec::new(), steps: vec![step], laid_out: None };
    command(Work::Kernel(KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }), args)
}

/// An operation on one integer and a number.
fn number(op: BinaryOp, number: i32, args: &[BufferRef]) -> Command {
    let mut builder = ExprBuilder::new();
    let input = builder.input(DataType::Int32).unwrap();
    let number = builder.constant(Scalar::I32(number));
    let result = builder.binary(op, input, number).unwrap();
    scalar(builder, result, 1, args)
}

fn scalar(builder: ExprBuilder, result: Reg, inputs: usize, args: &[BufferRef]) -> Command {
    call(KernelRequest::Expr { expr: builder.finish(vec![result]), shape: Vec::new(), operands: vec![Vec::new(); inputs] }, args)
}

/// A bool that holds.
fn holds() -> Command {
    let mut builder = ExprBuilder::new();
    let holds = builder.constant(Scalar::Bool(true));
    scalar(builder, holds, 0, &[TEST])
}

fn put(rows: u64, index: BufferRef) -> Command {
    let scatter = Gather::Scatter {
        op: ScatterOp::Update,
        data_type: DataType::Float,
        index_type: DataType::Int32,
        shape: vec![rows, 24 / rows / 4],
        indices: 1,
        depth: 1,
        scalar_updates: false,
        ignore: false,
        in_place: true,
    };
    call(KernelRequest::Gather(scatter), &[LIST, index, ITEM, LIST])
}

/// `i` is 0; while `i < 3`: the item becomes row `i`.
fn program() -> Vec<Command> {
    vec![
        holds(),
        command(Work::Copy, &[BufferRef { place: Place::Constant(0), offset: 0, bytes: 4 }, I]),
        command(Work::Loop { body: 4, with: Vec::new() }, &[TEST]),
        put(3, I),
        number(BinaryOp::Add, 1, &[I, NEXT]),
        number(BinaryOp::Less, 3, &[NEXT, TEST]),
        command(Work::Copy, &[NEXT, I]),
        command(Work::Again { body: 4 }, &[TEST]),
    ]
}

fn found(commands: &[Command], others: &[BufferRef]) -> Vec<(usize, Vec<BufferRef>)> {
    let written = |command: &Command| match &command.work {
        Work::Kernel(_) | Work::Copy => command.args.last().copied().into_iter().collect(),
        _ => Vec::new(),
    };
    let written: Vec<Vec<BufferRef>> = commands.iter().map(written).collect();
    written_whole(&Commands { commands, written: &written, others, constants: &[Some((DataType::Int32, 0))] })
}

/// What is found in the program, of which a command is another.
fn with(number: usize, change: impl Fn(&mut Command)) -> Vec<(usize, Vec<BufferRef>)> {
    let mut commands = program();
    change(&mut commands[number]);
    found(&commands, &[])
}

#[test]
fn a_loop_writes_a_list_whole_whose_row_is_its_count() {
    assert_eq!(found(&program(), &[]), [(2, vec![LIST])]);
    assert_eq!(with(5, |command| *command = number(BinaryOp::LessEqual, 2, &[NEXT, TEST])), [(2, vec![LIST])]);
}

#[test]
fn other_loops_may_leave_rows_out() {
    // More or fewer rows than iterations, or another count of them.
    assert_eq!(with(3, |command| *command = put(2, I)), []);
    assert_eq!(with(3, |command| *command = put(6, I)), []);
    assert_eq!(with(5, |command| *command = number(BinaryOp::LessEqual, 3, &[NEXT, TEST])), []);
    assert_eq!(with(5, |command| *command = number(BinaryOp::NotEqual, 3, &[NEXT, TEST])), []);
    assert_eq!(with(4, |command| *command = number(BinaryOp::Add, 2, &[I, NEXT])), []);
    assert_eq!(with(4, |command| *command = number(BinaryOp::Mul, 1, &[I, NEXT])), []);
    // Nothing is known of a first iteration, or of the first count.
    assert_eq!(with(0, |command| *command = number(BinaryOp::Less, 3, &[ITEM, TEST])), []);
    assert_eq!(with(1, |command| command.args[0].place = Place::Constant(1)), []);
    // Rows by another index, and commands that may be passed over.
    assert_eq!(with(3, |command| *command = put(3, ITEM)), []);
    for number in [0, 1, 2, 3, 4, 5, 6] {
        assert_eq!(with(number, |command| command.guard = Some(at(320, 1))), [], "command {number}");
    }
    // Queues of one loop.
    let partner = Partner { queue: 1, first: 0, body: 1 };
    assert_eq!(with(2, |command| command.work = Work::Loop { body: 4, with: vec![partner] }), []);
}

#[test]
fn what_is_read_or_written_otherwise_counts_in_a_loop() {
    let behind = |command: Command| {
        let mut commands = program();
        commands.insert(6, command);
        commands[2].work = Work::Loop { body: 5, with: Vec::new() };
        found(&commands, &[])
    };
    assert_eq!(behind(command(Work::Copy, &[at(320, 4), at(384, 4)])), [(2, vec![LIST])]);
    // A row that is read, one that is written otherwise, and a count that is.
    assert_eq!(behind(command(Work::Copy, &[at(264, 8), at(384, 8)])), []);
    assert_eq!(behind(command(Work::Copy, &[at(384, 8), at(264, 8)])), []);
    assert_eq!(behind(command(Work::Copy, &[at(384, 4), NEXT])), []);
    assert_eq!(behind(Command { scratch: Some(at(272, 64)), ..command(Work::Copy, &[at(320, 4), at(384, 4)]) }), []);
    // Another queue may change what a count is, or read rows that are not there yet.
    for place in [I, NEXT, TEST, LIST] {
        assert_eq!(found(&program(), &[place]), [], "{place:?}");
    }
}

#[test]
fn a_loop_in_a_loop_may_have_no_iteration() {
    let wrapped = |number: usize| {
        let mut commands = program();
        commands.insert(number + 1, command(Work::Again { body: 1 }, &[at(320, 1)]));
        commands.insert(number, command(Work::Loop { body: 1, with: Vec::new() }, &[at(320, 1)]));
        commands[2].work = Work::Loop { body: 6, with: Vec::new() };
        found(&commands, &[])
    };
    // The row, the count, and whether there is another iteration.
    assert_eq!([3, 4, 5, 6].map(wrapped), [const { Vec::new() }; 4]);
}
