//! Several sessions on one `Devices`: under one line, side by side where there is room, in turn where there is not.

use std::sync::Barrier;

use plimsoll_base::{Bytes, Code};
use plimsoll_graph::HostTensor;
use plimsoll_runtime::{Devices, Session};

use crate::softmaxes::{self, open, rows};

/// One with a variable that has its value.
fn session(devices: &Devices) -> Session {
    let session = softmaxes::session(devices);
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    session
}

/// The bytes of a session with such runs, the part of them that stays between the runs, and the results.
fn alone(count: u64) -> (Bytes, Bytes, HostTensor) {
    let devices = open(None);
    let session = session(&devices);
    devices.reset_peaks();
    let y = session.run(&[("x", &rows(count))], &["y"], &[]).unwrap().remove(0);
    let peak = session.plan(&[("x", &rows(count))], &["y"], &[]).unwrap().devices[0].peak;
    assert_eq!(devices.report()[0].peak, peak.total());
    (peak.total(), peak.variables + peak.constants, y)
}

#[test]
fn sessions_take_turns_where_there_is_room_for_one_run() {
    const SESSIONS: u64 = 3;
    let (peak, stays, want) = alone(500);
    let limit = peak + Bytes(stays.0 * (SESSIONS - 1));
    let devices = open(Some(limit));
    let sessions: Vec<Session> = (0..SESSIONS).map(|_| session(&devices)).collect();
    let x = rows(500);
    // Memory that one session keeps for its next run is not in the way of another's.
    for _ in 0..2 {
        for session in &sessions {
            assert_eq!(session.run(&[("x", &x)], &["y"], &[]).unwrap()[0], want);
        }
    }
    let start = Barrier::new(2 * sessions.len());
    std::thread::scope(|scope| {
        for session in sessions.iter().chain(&sessions) {
            scope.spawn(|| {
                start.wait();
                for _ in 0..20 {
                    assert_eq!(session.run(&[("x", &x)], &["y"], &[]).unwrap()[0], want);
                }
            });
        }
    });
    assert!(devices.report()[0].peak <= limit, "{:?} of {limit}", devices.report());
}

#[test]
fn sessions_run_side_by_side_under_the_sum_of_their_peaks() {
    let (peak, _, want) = alone(100);
    let limit = Bytes(2 * peak.0);
    let devices = open(Some(limit));
    let sessions = [session(&devices), session(&devices)];
    let (x, start) = (rows(100), Barrier::new(2));
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                start.wait();
                for _ in 0..50 {
                    assert_eq!(session.run(&[("x", &x)], &["y"], &[]).unwrap()[0], want);
                }
            });
        }
    });
    assert!(devices.report()[0].peak <= limit);
}

#[test]
fn what_stays_with_another_session_is_never_taken_from_it() {
    let (peak, _, want) = alone(500);
    let devices = open(Some(peak));
    let [first, second] = [session(&devices), session(&devices)];
    let x = rows(500);
    let error = second.run(&[("x", &x)], &["y"], &[]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    first.close();
    assert_eq!(second.run(&[("x", &x)], &["y"], &[]).unwrap()[0], want);
    assert!(devices.report()[0].peak <= peak);
}
