//! Several sessions on one `Devices`: under one line, side by side where there is room, in turn where there is not.

use std::sync::{Arc, Barrier};

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_device::Options;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

/// `y` = softmax of `x`, twice over, times a constant matrix, plus a variable.
fn session(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard()));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(64)]))).build().unwrap();
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 13) as f32).collect();
    let matrix = b.constant(HostTensor::from_slice([64, 64], &values).unwrap()).build().unwrap();
    let v = b.get_variable("v", DataType::Float, [64], &Initializer::Ones).unwrap();
    b.global_variables_initializer().unwrap();
    let once = b.softmax(x).build().unwrap();
    let twice = b.softmax(once).build().unwrap();
    let product = b.matmul(twice, matrix).build().unwrap();
    let sum = b.add(product, v.value).build().unwrap();
    b.reduce_sum(sum, None).name("y").build().unwrap();
    let registry = b.registry().clone();
    let session = Session::new(devices, &b.finish(), registry).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    session
}

fn rows(count: u64) -> HostTensor {
    HostTensor::from_slice([count, 64], &vec![0.5f32; count as usize * 64]).unwrap()
}

fn open(limit: Option<Bytes>) -> Devices {
    let options = Options::new().intra_op(1);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &limit.0.to_string()))).unwrap()
}

/// What a session with such runs takes, what of it stays between them, and what they give.
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
    // What one session keeps for its next run is not in the way of another's.
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
