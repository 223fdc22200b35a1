//! Loops of several queues. Both devices have numbers that each mixes with the other's in every iteration.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::Code;

use super::Rig;
use super::kernel::{CellOperation, call, cells, copy, mix};
use super::runs::{Loaded, line};
use crate::{BufferRef, Command, Partner, Place, Work};

/// Cells of each device: its condition, where a copy of the other's number goes, its own number, and a constant.
const CONDITION: u64 = 0;
const THEIRS: u64 = 1;
const NUMBER: u64 = 2;
const ONE: u64 = 3;
/// Of the first device: what its conditions will be, and room to move them.
const LIST: u64 = 8;
const SPARE: u64 = 64;
/// How many conditions it has.
const MOST: u64 = 50;
const CELLS: u64 = 256;

/// Where the loop begins in each queue, and its commands in an iteration.
const FIRST: [u32; 2] = [0, 2];
const BODY: [u32; 2] = [5, 3];

fn cell(device: u32, at: u64) -> BufferRef {
    cells(device, at, 1)
}

fn condition(device: u32) -> Vec<BufferRef> {
    vec![BufferRef { place: Place::Arena(device), offset: CONDITION * 8, bytes: 1 }]
}

/// The beginning of a loop, or its end.
fn jump(work: Work, device: u32, waits: &[(u32, u32)]) -> Command {
    let mut command = copy(cell(device, CONDITION), cell(device, CONDITION), waits);
    (command.work, command.args) = (work, condition(device));
    command
}

/// The loop of two queues. Conditions come from the first device's list. `also` is one more command of the second body.
fn queues(rig: &dyn Rig, also: Option<Command>) -> Vec<Vec<Command>> {
    let (mut body, [first, second]) = (BODY, FIRST);
    body[1] += u32::from(also.is_some());
    let with = |other: usize| vec![Partner { queue: other as u32, first: FIRST[other], body: body[other] }];
    let ends = [first + 1 + body[0], second + 1 + body[1]];
    let one = vec![
        jump(Work::Loop { body: body[0], with: with(1) }, 0, &[]),
        // The partner has read its condition, and its number is that of the iteration before.
        copy(cell(1, NUMBER), cell(0, THEIRS), &[(1, second + 1)]),
        // Not before the partner has its copy.
        call(rig, CellOperation::Mix(3), 1, vec![cell(0, NUMBER), cell(0, THEIRS), cell(0, NUMBER)], &[(1, second + 2)]),
        copy(cell(0, LIST), cell(0, CONDITION), &[]),
        copy(cells(0, LIST + 1, MOST - 1), cells(0, SPARE, MOST - 1), &[]),
        copy(cells(0, SPARE, MOST - 1), cells(0, LIST, MOST - 1), &[]),
        jump(Work::Again { body: body[0] }, 0, &[(1, ends[1])]),
    ];
    let mut two = vec![
        copy(cell(1, ONE), cell(1, THEIRS), &[]),
        copy(cell(1, THEIRS), cell(1, ONE), &[]),
        jump(Work::Loop { body: body[1], with: with(0) }, 1, &[]),
        copy(cell(0, NUMBER), cell(1, THEIRS), &[(0, first + 1)]),
        call(rig, CellOperation::Mix(5), 1, vec![cell(1, NUMBER), cell(1, THEIRS), cell(1, NUMBER)], &[(0, first + 2)]),
        copy(cell(0, CONDITION), cell(1, CONDITION), &[(0, first + 4)]),
    ];
    two.extend(also);
    two.push(jump(Work::Again { body: body[1] }, 1, &[(0, ends[0])]));
    vec![one, two]
}

/// Sets what the loop of so many iterations begins with.
fn set(loaded: &Loaded, iterations: u64) {
    for device in [0, 1] {
        loaded.set(device, CONDITION, u64::from(iterations > 0));
        loaded.set(device, NUMBER, 7 + device as u64);
        loaded.set(device, ONE, 1);
    }
    (0..MOST).for_each(|at| loaded.set(0, LIST + at, u64::from(at + 1 < iterations)));
}

/// The numbers behind so many iterations.
fn numbers(iterations: u64) -> (u64, u64) {
    (0..iterations).fold((7, 8), |(one, two), _| (mix(mix(3, one), two), mix(mix(5, two), one)))
}

pub(super) fn several_queues_go_round_together(rig: &dyn Rig) {
    let devices = rig.devices(3, line(rig));
    let mut programs = queues(rig, None);
    // A queue without a part in the loop waits for its end, and the partners go on behind it.
    let ends = [0, 1].map(|queue| FIRST[queue] + BODY[queue] + 2);
    let both = [(0, ends[0]), (1, ends[1])];
    programs.push(vec![copy(cell(0, NUMBER), cell(2, 0), &both), copy(cell(1, NUMBER), cell(2, 1), &[])]);
    programs[0].push(copy(cell(1, NUMBER), cell(0, THEIRS), &[(1, ends[1])]));
    let mut loaded = Loaded::new(&devices, programs, CELLS);
    for iterations in [3, 0, 1, MOST, 2] {
        set(&loaded, iterations);
        assert_eq!(loaded.step(), None);
        let (one, two) = numbers(iterations);
        assert_eq!((loaded.cell(0, NUMBER), loaded.cell(1, NUMBER)), (one, two), "{iterations} iterations");
        assert_eq!((loaded.cell(2, 0), loaded.cell(2, 1), loaded.cell(0, THEIRS)), (one, two, two), "{iterations} iterations");
    }
}

/// The same two queues in an outer loop of both. It sets the inner conditions again.
pub(super) fn shared_loops_lie_in_each_other(rig: &dyn Rig) {
    const OUTER: u64 = 128;
    const ROW: u64 = 160;
    const INNER: u64 = 3;
    let devices = rig.devices(2, line(rig));
    // Outer conditions: that of each device, and on the first one those to come. A row of inner conditions begins with the first.
    let outer = |device: u32| vec![BufferRef { place: Place::Arena(device), offset: OUTER * 8, bytes: 1 }];
    let inner = queues(rig, None);
    let lengths = [2 + inner[0].len() as u32 + 3, 1 + inner[1].len() as u32 + 1];
    let shift = [3u32, 2];
    let mut programs = Vec::new();
    for (queue, commands) in inner.into_iter().enumerate() {
        let other = 1 - queue;
        let with = vec![Partner { queue: other as u32, first: 0, body: lengths[other] }];
        let mut begin = jump(Work::Loop { body: lengths[queue], with }, queue as u32, &[]);
        begin.args = outer(queue as u32);
        let mut program = vec![begin];
        match queue {
            0 => program.extend([copy(cells(0, ROW, INNER), cells(0, LIST, INNER), &[]), copy(cell(0, ONE), cell(0, CONDITION), &[])]),
            _ => program.push(copy(cell(1, ONE), cell(1, CONDITION), &[])),
        }
        for mut command in commands {
            command.waits.iter_mut().for_each(|wait| wait.commands += shift[wait.queue as usize]);
            if let Work::Loop { with, .. } = &mut command.work {
                with.iter_mut().for_each(|partner| partner.first += shift[partner.queue as usize]);
            }
            program.push(command);
        }
        match queue {
            0 => program.extend([
                copy(cell(0, OUTER + 1), cell(0, OUTER), &[]),
                copy(cells(0, OUTER + 2, 4), cells(0, SPARE, 4), &[]),
                copy(cells(0, SPARE, 4), cells(0, OUTER + 1, 4), &[]),
            ]),
            // The first one has its new condition by then.
            _ => program.push(copy(cell(0, OUTER), cell(1, OUTER), &[(0, lengths[0] - 1)])),
        }
        let mut again = jump(Work::Again { body: lengths[queue] }, queue as u32, &[(other as u32, 1 + lengths[other])]);
        again.args = outer(queue as u32);
        program.push(again);
        programs.push(program);
    }
    let mut loaded = Loaded::new(&devices, programs, CELLS);
    for rounds in [1u64, 4, 0, 2] {
        set(&loaded, 0);
        // `INNER` iterations: the first by the constant, the others by the row, which ends with no.
        (0..INNER).for_each(|at| loaded.set(0, ROW + at, u64::from(at + 1 < INNER)));
        [0, 1].into_iter().for_each(|device| loaded.set(device, OUTER, u64::from(rounds > 0)));
        (0..6u64).for_each(|at| loaded.set(0, OUTER + 1 + at, u64::from(at + 1 < rounds)));
        assert_eq!(loaded.step(), None);
        assert_eq!((loaded.cell(0, NUMBER), loaded.cell(1, NUMBER)), numbers(rounds * INNER), "{rounds} rounds");
    }
}

pub(super) fn a_failure_in_one_queue_ends_the_loop(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let fails = call(rig, CellOperation::Fail(3), 1, vec![cell(1, THEIRS)], &[]);
    let mut loaded = Loaded::new(&devices, queues(rig, Some(fails)), CELLS);
    for _ in 0..3 {
        set(&loaded, MOST);
        let failure = loaded.step().expect("it fails");
        assert_eq!((failure.queue, failure.command, failure.fault.code), (1, FIRST[1] + 1 + BODY[1], Code::InvalidArgument));
    }
}

pub(super) fn a_shared_loop_without_an_end_can_be_given_up(rig: &dyn Rig) {
    let devices = rig.devices(2, line(rig));
    let mut loaded = Loaded::new(&devices, queues(rig, None), CELLS);
    set(&loaded, 1);
    // The list is never empty: what moves down is the same.
    (0..2 * MOST).for_each(|at| loaded.set(0, LIST + at, 1));
    loaded.submit();
    let run = Arc::downgrade(&loaded.run);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            let run = run.upgrade().expect("the run is there until it is over");
            // However slow the machine is: not before an iteration is over, which nothing but the queue's turn says.
            let start = Instant::now();
            while run.turn(0) == 0 && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
            run.give_up();
        });
        devices[0].drive(&loaded.run);
    });
    assert!(loaded.run.is_over() && loaded.run.failure().is_none());
    assert_ne!(loaded.cell(0, NUMBER), 7);
}
