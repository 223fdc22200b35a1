//! The room of a session: runs and plans that share a line, and memory that is given back.

use std::sync::Barrier;
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_cards::Options;
use plimsoll_graph::HostTensor;
use plimsoll_runtime::Devices;

use crate::softmaxes::{open, rows, session};

/// The least limit for runs with that many rows, and their results.
fn alone(count: u64) -> (Bytes, HostTensor) {
    let devices = open(None);
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    devices.reset_peaks();
    let y = session.run(&[("x", &rows(count))], &["y"], &[]).unwrap().remove(0);
    (devices.report()[0].peak, y)
}

#[test]
fn runs_at_the_same_time_wait_where_there_is_room_for_one() {
    let (limit, want) = alone(500);
    let devices = open(Some(limit));
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    let (x, start) = (rows(500), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..20 {
                    assert_eq!(session.run(&[("x", &x)], &["y"], &[]).unwrap()[0], want);
                }
            });
        }
    });
    assert!(devices.report()[0].peak <= limit);
}

#[test]
fn plans_that_fit_one_at_a_time_run_in_turn() {
    let (sizes, mut limit) = ([400u64, 50, 390, 3], Bytes::ZERO);
    let wanted = sizes.map(|count| {
        let (needed, y) = alone(count);
        limit = limit.max(needed);
        y
    });
    let devices = open(Some(limit));
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    for _ in 0..3 {
        for (count, want) in sizes.iter().zip(&wanted) {
            assert_eq!(session.run(&[("x", &rows(*count))], &["y"], &[]).unwrap()[0], *want);
        }
    }
    assert!(devices.report()[0].peak <= limit);
}

#[test]
fn close_gives_everything_back_though_callables_are_held() {
    let devices = open(None);
    let session = session(&devices);
    session.run(&[], &[], &["init"]).unwrap();
    let x = rows(5);
    let callable = session.callable_for(&[("x", &x)], &["y"], &[]).unwrap();
    callable.run(&[&x]).unwrap();
    assert!(devices.report()[0].in_use > Bytes::ZERO);
    session.close();
    assert_eq!((devices.report()[0].in_use, devices.report()[0].reserved), (Bytes::ZERO, Bytes::ZERO));
    assert!(callable.run(&[&x]).is_err());
}

#[test]
fn an_empty_cache_holds_variables_and_nothing_else() {
    let devices = open(None);
    let sessions = [session(&devices), session(&devices)];
    for session in &sessions {
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[("x", &rows(100))], &["y"], &[]).unwrap();
    }
    let full = devices.memory_allocated("CPU:0").unwrap();
    assert_eq!(devices.memory_reserved("/cpu:0").unwrap(), full);
    let peak = devices.max_memory_allocated("CPU:0").unwrap();
    devices.empty_cache();
    // A page for each session's variable.
    assert!(full > Bytes(8192) && peak >= full && devices.memory_allocated("CPU:0").unwrap() == Bytes(8192));
    assert_eq!(devices.max_memory_allocated("CPU:0").unwrap(), peak);
    devices.reset_max_memory_allocated("CPU:0").unwrap();
    assert_eq!(devices.max_memory_allocated("CPU:0").unwrap(), Bytes(8192));
    assert!(devices.memory_allocated("GPU:0").is_err() && devices.memory_reserved("x").is_err());
    drop(sessions);
    assert_eq!(devices.memory_allocated("CPU:0").unwrap(), Bytes::ZERO);
}

#[test]
fn an_idle_session_gives_its_memory_back_and_takes_it_again() {
    let mut options = Options::new().intra_op(1);
    options = options.idle_release(Duration::from_millis(5));
    let devices = Devices::open(&options).unwrap();
    let (session, other) = (session(&devices), session(&devices));
    let variables = Bytes(4096);
    other.idle_release(Duration::MAX).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    // The plan and its constants stay as long as they have a holder.
    let x = rows(100);
    let callable = session.callable_for(&[("x", &x)], &["y"], &[]).unwrap();
    let constants = devices.memory_allocated("CPU:0").unwrap();
    let want = callable.run(&[&x]).unwrap();
    for _ in 0..3 {
        while devices.memory_allocated("CPU:0").unwrap() > constants {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(callable.run(&[&x]).unwrap(), want);
    }
    drop((session, callable));
    assert_eq!(devices.memory_allocated("CPU:0").unwrap(), Bytes::ZERO);
    // One that does not want it keeps its memory.
    other.run(&[], &[], &["init"]).unwrap();
    other.run(&[("x", &x)], &["y"], &[]).unwrap();
    let kept = devices.memory_allocated("CPU:0").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(kept > variables && devices.memory_allocated("CPU:0").unwrap() == kept);
}
