//! Calls that have a result.

use std::process::{Command, Stdio};

use plimsoll_share::isolate::Report;
use plimsoll_share::{Bulk, Workers};

use super::Test;
use super::functions::*;

pub const TESTS: &[Test] = &[
    ("calls::a_result_comes_back", a_result_comes_back),
    ("calls::it_is_another_process_of_this_program", it_is_another_process),
    ("calls::closures_are_functions_too", closures),
    ("calls::workers_may_have_workers", nested),
    ("calls::many_numbers_come_back_as_they_are", many_numbers),
    ("calls::what_is_printed_goes_through", printing),
    ("calls::what_it_started_ends_with_it", nothing_is_left),
];

fn a_result_comes_back(workers: &Workers) {
    let outcome = workers.isolate(None, square, 12).unwrap();
    assert_eq!(outcome.output, 144);
    let Report { pid, cards, ended, .. } = outcome.report.clone();
    assert!(pid != std::process::id() && cards.is_empty() && ended && outcome.report.all_back());
    assert!(!lives(pid));
    workers.isolate(None, nothing, ()).unwrap();
}

fn it_is_another_process(workers: &Workers) {
    let (pid, arguments) = workers.clone().env("PLIMSOLL_TEST", "x").isolate(None, process, ()).unwrap().output;
    assert_ne!(pid, std::process::id());
    assert_eq!(arguments[1..], std::env::args().skip(1).collect::<Vec<_>>()[..], "its arguments are the program's");
}

fn closures(_: &Workers) {
    // A table of its own would be found by workers only if it came first in main: the first is asked.
    let triple = |x: u32| Ok::<u32, String>(3 * x);
    let death = super::functions::table().with(triple).begin().isolate(None, triple, 5).unwrap_err();
    assert!(death.to_string().contains("the program's first table"), "{death}");
    assert!(death.to_string().contains("square"), "{death}");
}

fn many_numbers(workers: &Workers) {
    let numbers: Vec<f32> = (0..300_000).map(|number| number as f32).collect();
    let text = "é".repeat(100_000);
    let (doubled, same) = workers.isolate(None, double_all, (Bulk::from(numbers.clone()), text.clone())).unwrap().output;
    assert!(doubled.iter().zip(&numbers).all(|(doubled, number)| *doubled == number * 2.0) && doubled.len() == numbers.len());
    assert_eq!(same, text);
    let made = workers.isolate(None, fills, 1 << 20).unwrap().output;
    assert!(made.len() == 1 << 20 && made.iter().all(|byte| *byte == 7));
}

fn nested(workers: &Workers) {
    let (worker, of_worker, nine) = workers.isolate(None, isolates, 3).unwrap().output;
    assert!(worker != of_worker && of_worker != std::process::id() && nine == 9);
}

fn printing(_: &Workers) {
    let output = Command::new(std::env::current_exe().unwrap())
        .env(super::parent::ROLE, "prints")
        .stdin(Stdio::null())
        .output()
        .expect("this program starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "to the output\nwithout an end of line");
    assert!(String::from_utf8_lossy(&output.stderr).contains("to the error"), "{output:?}");
}

fn nothing_is_left(workers: &Workers) {
    let child = workers.isolate(None, leaves_a_child, ()).unwrap().output;
    gone(child);
}

/// Waits until a process is no more; nothing would be proved by how long that takes.
pub fn gone(pid: u32) {
    let begin = std::time::Instant::now();
    while lives(pid) {
        assert!(begin.elapsed().as_secs() < 60, "process {pid} goes on");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
