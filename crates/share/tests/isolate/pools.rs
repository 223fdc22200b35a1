//! Workers that stay: none of them is missed, no call is lost and none is run twice.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_share::{Cause, Workers};
use rustix::process::{Pid, Signal, kill_process};

use super::Test;
use super::calls::gone;
use super::functions::*;

pub const TESTS: &[Test] = &[
    ("pools::answers_come_in_order_or_as_they_are_there", answers),
    ("pools::workers_stay", workers_stay),
    ("pools::an_idle_one_that_dies_is_not_missed", idle_deaths),
    ("pools::no_call_is_lost_and_none_is_run_twice", none_lost_none_twice),
    ("pools::one_that_keeps_memory_is_replaced", keepers),
    ("pools::one_that_takes_too_long_is_replaced", timeouts),
    ("pools::dropping_it_ends_all", dropped),
    ("pools::a_pool_of_none_is_refused", none),
];

fn kill(pid: u32) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
}

fn answers(workers: &Workers) {
    let pool = workers.pool(2).unwrap();
    let squares: Vec<u64> = pool.map(square, 0..50).map(|answer| answer.unwrap().output).collect();
    assert_eq!(squares, (0..50).map(|x| x * x).collect::<Vec<u64>>());
    // The first ends when the two others have.
    let there = std::env::current_exe().unwrap();
    let later = std::env::temp_dir().join(format!("plimsoll-test-later-{}", std::process::id()));
    let mut order = Vec::new();
    for (number, answer) in pool.as_completed(waits_for, [later.clone(), there.clone(), there]) {
        answer.unwrap();
        order.push(number);
        if order.len() == 2 {
            std::fs::write(&later, "").unwrap();
        }
    }
    assert_eq!(order, [1, 2, 0]);
    std::fs::remove_file(&later).unwrap();
    assert!(pool.map(square, []).next().is_none() && pool.as_completed(square, []).next().is_none());
    let handle = pool.submit(waits_for, later.clone());
    let handle = handle.wait_timeout(Duration::from_millis(1)).unwrap_err();
    std::fs::write(&later, "").unwrap();
    assert!(handle.wait_timeout(Duration::from_secs(60)).unwrap().is_ok());
    std::fs::remove_file(later).unwrap();
}

fn workers_stay(workers: &Workers) {
    // Symbols are kept once a trace was resolved: tens of MiB where a program has debug information.
    let pool = workers.clone().keep(Bytes(1 << 30)).pool(1).unwrap();
    let pids: BTreeSet<u32> = pool.map(process, vec![(); 20]).map(|answer| answer.unwrap().output.0).collect();
    assert_eq!(pids.len(), 1);
    // An error and a panic are answers: the worker goes on.
    assert!(pool.submit(fails, "text".into()).wait().is_err() && pool.submit(panics, "x".into()).wait().is_err());
    assert!(pids.contains(&pool.submit(process, ()).wait().unwrap().output.0));
    assert_eq!((pool.counts().started, pool.counts().died), (1, 0));
}

fn idle_deaths(workers: &Workers) {
    let pool = workers.pool(2).unwrap();
    for round in 0..5 {
        assert!(pool.map(square, 0..4).all(|answer| answer.is_ok()));
        pool.pids().into_iter().for_each(kill);
        assert_eq!(pool.submit(square, round).wait().unwrap().output, round * round);
    }
    // More of them than a call is ever given to.
    let pool = workers.pool(8).unwrap();
    assert!(pool.map(sleeps, vec![20; 16]).all(|answer| answer.is_ok()));
    pool.pids().into_iter().for_each(kill);
    assert!(pool.map(square, 0..16).all(|answer| answer.is_ok()));
}

fn none_lost_none_twice(workers: &Workers) {
    let folder = std::env::temp_dir().join(format!("plimsoll-test-notes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pool = workers.pool(3).unwrap();
    const COUNT: u32 = 120;
    // Some end their worker themselves, and workers are killed from outside all the while, idle or not.
    let calls = (0..COUNT).map(|number| (folder.clone(), number, number % 7 == 3));
    let done = std::sync::atomic::AtomicBool::new(false);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let answers = pool.as_completed(notes, calls);
        scope.spawn(|| {
            for round in 0.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(3));
                let pids = pool.pids();
                if let Some(pid) = pids.get(round % 3) {
                    kill(*pid);
                }
            }
        });
        let answers = answers.collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        answers
    });
    let numbers: BTreeSet<usize> = answers.iter().map(|(number, _)| *number).collect();
    assert_eq!((answers.len(), numbers.len()), (COUNT as usize, COUNT as usize), "each has one answer");
    for (number, answer) in &answers {
        let ran = std::fs::read(folder.join(number.to_string())).map_or(0, |bytes| bytes.len());
        match answer {
            Ok(outcome) => assert_eq!((outcome.output as usize, ran), (*number, 1)),
            Err(death) if matches!(death.cause, Cause::Signal { number: 9, .. }) => assert!(ran <= 1, "{number} was run {ran} times"),
            // Three workers that were killed one after the other before they began it.
            Err(death) if matches!(death.cause, Cause::Start { .. }) => assert_eq!(ran, 0, "{death}"),
            Err(death) => panic!("{number}: {death}"),
        }
        if number % 7 == 3 {
            assert!(answer.is_err());
        }
    }
    assert!(pool.counts().died > 0);
    std::fs::remove_dir_all(folder).unwrap();
}

fn keepers(workers: &Workers) {
    let pool = workers.clone().keep(Bytes(8 << 20)).pool(1).unwrap();
    let first = pool.submit(keeps, (0, 64 << 20)).wait().unwrap();
    let (before, after) = first.report.resident;
    assert!(after - before > Bytes(60 << 20), "{before} {after}");
    let second = pool.submit(process, ()).wait().unwrap();
    assert_ne!(second.output.0, first.output);
    assert_eq!(pool.counts().recycled, 1);
    // One that gives it back stays.
    pool.submit(allocates, 64 << 20).wait().unwrap();
    assert_eq!(pool.submit(process, ()).wait().unwrap().output.0, second.output.0);
}

fn timeouts(workers: &Workers) {
    let pool = workers.clone().timeout(Duration::from_secs(1)).pool(1).unwrap();
    let death = pool.submit(sleeps, 600_000).wait().unwrap_err();
    assert!(matches!(death.cause, Cause::Timeout { .. }) && !lives(death.report.pid), "{death}");
    assert_eq!(pool.submit(square, 3).wait().unwrap().output, 9);
}

fn dropped(workers: &Workers) {
    let pool = workers.pool(2).unwrap();
    pool.submit(square, 1).wait().unwrap();
    let handles: Vec<_> = (0..6).map(|_| pool.submit(sleeps, 600_000)).collect();
    let pids = pool.pids();
    assert!(!pids.is_empty());
    drop(pool);
    for handle in handles {
        let death = handle.wait().unwrap_err();
        assert_eq!(death.cause, Cause::Cancelled, "{death}");
    }
    pids.into_iter().for_each(gone);
}

fn none(workers: &Workers) {
    assert!(workers.pool(0).is_err());
}
