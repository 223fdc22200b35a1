//! Loops of one queue that lie in each other: results, failures in them, and an end from outside.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::Code;

use super::Rig;
use super::kernel::{CellOperation, call, cells, copy, mix};
use super::runs::{Loaded, line};
use crate::{BufferRef, Command, Failure, Place, Work};

/// Cells: both conditions, the number that each inner iteration mixes, a constant, the guard of a command that fails, and a result of the end.
const OUTER: u64 = 0;
const INNER: u64 = 1;
const NUMBER: u64 = 2;
const ONE: u64 = 3;
const FAILS: u64 = 4;
const BEHIND: u64 = 5;
/// What the conditions and the guard will be, the inner conditions of each outer iteration, and room to move them.
const OUTERS: u64 = 16;
const INNERS: u64 = 32;
const GUARDS: u64 = 48;
const ROW: u64 = 64;
const SPARE: u64 = 80;
const MOST: u64 = 12;
const CELLS: u64 = 96;

/// The command that fails.
const FAILING: u32 = 5;
/// The result before.
const BEFORE: u64 = 77;

fn byte(cell: u64) -> BufferRef {
    BufferRef { place: Place::Arena(0), offset: cell * 8, bytes: 1 }
}

fn jump(work: Work, condition: u64) -> Command {
    let mut command = copy(byte(condition), byte(condition), &[]);
    (command.work, command.args) = (work, vec![byte(condition)]);
    command
}

/// The first of a list goes to a cell, and the others move one place on. The last stays.
fn next(list: u64, to: u64) -> [Command; 3] {
    let copied = |from, to, count| copy(cells(0, from, count), cells(0, to, count), &[]);
    [copied(list, to, 1), copied(list + 1, SPARE, MOST - 1), copied(SPARE, list, MOST - 1)]
}

fn program(rig: &dyn Rig) -> Vec<Command> {
    let number = cells(0, NUMBER, 1);
    let mut fails = call(rig, CellOperation::Fail(3), 1, vec![cells(0, BEHIND, 1)], &[]);
    fails.guard = Some(byte(FAILS));
    let mut inner = vec![call(rig, CellOperation::Mix(3), 1, vec![number, number], &[]), fails];
    inner.extend(next(INNERS, INNER));
    let body = inner.len() as u32;
    let mut outer = vec![copy(cells(0, ROW, MOST), cells(0, INNERS, MOST), &[]), copy(cells(0, ONE, 1), cells(0, INNER, 1), &[])];
    outer.push(jump(Work::Loop { body, with: vec![] }, INNER));
    outer.extend(inner);
    outer.push(jump(Work::Again { body }, INNER));
    outer.extend(next(OUTERS, OUTER).into_iter().chain(next(GUARDS, FAILS)));
    let body = outer.len() as u32;
    let mut program = vec![jump(Work::Loop { body, with: vec![] }, OUTER)];
    program.extend(outer);
    program.push(jump(Work::Again { body }, OUTER));
    program.push(call(rig, CellOperation::Mix(9), 1, vec![number, cells(0, BEHIND, 1)], &[]));
    program
}

/// A step of so many iterations of each loop; in one of the outer ones, if any, the command fails.
fn step(loaded: &mut Loaded, outer: u64, inner: u64, fails: Option<u64>) -> Option<Failure> {
    set(loaded, outer, inner, fails);
    loaded.step()
}

fn set(loaded: &Loaded, outer: u64, inner: u64, fails: Option<u64>) {
    let single = [(OUTER, u64::from(outer > 0)), (NUMBER, 7), (ONE, 1), (FAILS, u64::from(fails == Some(0))), (BEHIND, BEFORE)];
    single.into_iter().for_each(|(cell, value)| loaded.set(0, cell, value));
    for at in 0..MOST {
        loaded.set(0, OUTERS + at, u64::from(at + 1 < outer));
        loaded.set(0, ROW + at, u64::from(at + 1 < inner));
        loaded.set(0, GUARDS + at, u64::from(fails == Some(at + 1)));
    }
}

/// The number behind so many inner iterations.
fn number(iterations: u64) -> u64 {
    (0..iterations).fold(7, |number, _| mix(3, number))
}

pub(super) fn loops_of_one_queue_lie_in_each_other(rig: &dyn Rig) {
    let devices = rig.devices(1, line(rig));
    let mut loaded = Loaded::new(&devices, vec![program(rig)], CELLS);
    for (outer, inner) in [(1, 1), (3, 2), (0, 4), (2, 5), (MOST, 1)] {
        assert_eq!(step(&mut loaded, outer, inner, None), None);
        let number = number(outer * inner);
        assert_eq!((loaded.cell(0, NUMBER), loaded.cell(0, BEHIND)), (number, mix(9, number)), "{outer} times {inner} iterations");
    }
}

pub(super) fn a_failure_in_a_loop_ends_it(rig: &dyn Rig) {
    let devices = rig.devices(1, line(rig));
    let mut loaded = Loaded::new(&devices, vec![program(rig)], CELLS);
    for fails in [0, 2, 0, 1] {
        let failure = step(&mut loaded, 4, 3, Some(fails)).expect("it fails");
        assert_eq!((failure.queue, failure.command, failure.fault.code), (0, FAILING, Code::InvalidArgument));
        // In the first inner iteration: what comes before the failure was done, and nothing behind it.
        assert_eq!((loaded.cell(0, NUMBER), loaded.cell(0, BEHIND)), (number(3 * fails + 1), BEFORE), "outer iteration {fails}");
    }
    assert_eq!((step(&mut loaded, 2, 2, None), loaded.cell(0, NUMBER)), (None, number(4)));
}

pub(super) fn a_loop_without_an_end_can_be_given_up(rig: &dyn Rig) {
    let devices = rig.devices(1, line(rig));
    let mut loaded = Loaded::new(&devices, vec![program(rig)], CELLS);
    for milliseconds in [0, 10, 30] {
        set(&loaded, MOST + 1, 2, None);
        loaded.submit();
        let run = Arc::downgrade(&loaded.run);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(milliseconds));
                run.upgrade().expect("the run is there until it is over").give_up();
            });
            devices[0].drive(&loaded.run);
        });
        assert!(loaded.run.is_over() && loaded.run.failure().is_none());
        assert_eq!(loaded.cell(0, BEHIND), BEFORE, "given up after {milliseconds} ms");
        assert_eq!((step(&mut loaded, 2, 3, None), loaded.cell(0, NUMBER)), (None, number(6)));
    }
}
