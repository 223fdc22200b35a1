//! Counted memory and its lifetime; the sizes that programs are told.

use crate::client::{counted, lines, role};
use crate::rig::{MIB, Rig};

#[test]
fn every_family_is_counted_while_it_lives() {
    let rig = Rig::new("each", &[4096]);
    let lease = rig.lease(&[512]);
    let said = lines(&mut role(&rig, &lease, "each"));
    // A mipmap has smaller levels, too.
    let expected = [
        "linear: 0 96 0, more: Some(2)",
        "managed: 0 96 0, more: Some(2)",
        "pitch: 0 96 0, more: Some(2)",
        "array: 0 96 0, more: Some(2)",
        "array3d: 0 96 0, more: Some(2)",
        "mipmap: 0 126 0, more: Some(2)",
        "handle: 0 96 0, more: Some(2)",
        "mapped: 0 96 0, more: Some(2)",
        "async: 0 96 0, more: Some(2)",
        "pool: 0 96 0, more: Some(2)",
        "own pool: 0 96 0, more: Some(2)",
        "graph: 96 96 0",
        "graph: 96 96 0",
        "small: 4",
        "none: 0",
    ];
    assert_eq!(said, expected);
    assert_eq!((lease.held(0), rig.gpus.used().unwrap()), (0, vec![0]));
    assert!(rig.gpus.peak(0).unwrap() <= 512 * MIB);
    assert_eq!(lease.inside().refused(0), 13);
}

#[test]
fn contexts_take_what_they_hold_with_them() {
    let rig = Rig::new("contexts", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut role(&rig, &lease, "contexts")), ["112 64 0 0"]);
    // A context that is counted, once for each process and card.
    let counts = (100 * MIB).to_string();
    assert_eq!(lines(role(&rig, &lease, "contexts").env("PLIMSOLL_SHIM_CONTEXT", counts)), ["212 164 100 100"]);
}

#[test]
fn cuda_and_the_management_library_agree() {
    let rig = Rig::new("totals", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut role(&rig, &lease, "totals")), ["[512, 416, 512] [512, 416, 96] [512, 0, 416, 96]"]);
}

#[test]
fn null_is_answered_by_the_driver() {
    let rig = Rig::new("nulls", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut role(&rig, &lease, "nulls")), ["[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 101, 101, 1, 1, 1, 1, 1, 0] 512 512 held 0"]);
}

#[test]
fn a_function_that_allocates_and_is_too_new_is_not_there() {
    let rig = Rig::new("newer", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut role(&rig, &lease, "newer")), ["0 2 true", "500 true", "0 false"]);
}

#[test]
fn a_fork_has_nothing_and_gives_nothing_back() {
    let rig = Rig::new("fork", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut role(&rig, &lease, "fork")), ["fork 0, held 96", "held 0"]);
}

#[test]
fn threads_come_out_even() {
    let rig = Rig::new("threads", &[4096]);
    let lease = rig.lease(&[512]);
    assert_eq!(lines(&mut counted(&rig, &lease, "threads", 40)), ["held 0"]);
    assert!(rig.gpus.peak(0).unwrap() <= 512 * MIB);
    assert_eq!((lease.held(0), rig.gpus.used().unwrap()), (0, vec![0]));
}
