//! Sizes that share memory: the same values, peaks that never fall as sizes grow, and memory that stays the same.

use std::collections::BTreeSet;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_plan::{Feed, Footprint, Plan, Signature};
use plimsoll_runtime::{Devices, Session};

use crate::softmaxes::{rows, session};

const BUCKETS: [u64; 3] = [8, 64, 200];

fn open(buckets: &[u64], limit: Option<Bytes>) -> Devices {
    let options = Options::new().intra_op(1).buckets(buckets).fit(false);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0)))).unwrap()
}

fn initialised(devices: &Devices) -> Session {
    let session = session(devices);
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    session
}

fn planned(session: &Session, count: u64) -> Plan {
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape: [count, 64].into(), value: None };
    session.plan_signature(&Signature { feeds: vec![feed], fetches: vec!["y".into()], ..Signature::default() }).unwrap()
}

fn peak(devices: &Devices, plan: &Plan) -> Bytes {
    let mut footprint = Footprint::new(devices.specs());
    footprint.add(plan);
    footprint.needs()[0].peak
}

#[test]
fn sizes_of_a_bucket_take_one_arena_and_no_peak_falls() {
    let devices = open(&BUCKETS, None);
    let bucketed = initialised(&devices);
    let plain = initialised(&open(&[], None));
    let mut before = Bytes::ZERO;
    let mut arenas = [const { BTreeSet::new() }; 3];
    for count in 1..=220 {
        let plan = planned(&bucketed, count);
        let peak = peak(&devices, &plan);
        assert!(peak >= before, "{count}: {peak} after {before}");
        before = peak;
        match BUCKETS.iter().position(|bucket| count <= *bucket) {
            Some(bucket) => drop(arenas[bucket].insert(plan.devices[0].arena)),
            None => assert!(plan.devices[0].arena >= *arenas[2].first().unwrap()),
        }
        // What is computed is what the size asks for.
        let own = planned(&plain, count);
        assert_eq!(plan.queues[0].program.commands.len(), own.queues[0].program.commands.len());
    }
    let arena = |count| planned(&plain, count).devices[0].arena;
    assert_eq!(arenas.map(Vec::from_iter), BUCKETS.map(|bucket| vec![arena(bucket)]));
}

#[test]
fn values_are_those_of_the_size_itself() {
    let (bucketed, plain) = (initialised(&open(&BUCKETS, None)), initialised(&open(&[], None)));
    for count in [1, 7, 8, 9, 63, 64, 65, 199, 200, 201, 240] {
        let run = |session: &Session| session.run(&[("x", &rows(count))], &["y"], &[]).unwrap();
        assert_eq!(run(&bucketed), run(&plain), "{count}");
    }
}

#[test]
fn memory_stays_the_same_while_sizes_change() {
    let devices = open(&BUCKETS, None);
    let session = initialised(&devices);
    let limit = peak(&devices, &planned(&session, 200));
    // One byte less is refused, also for a size that would need less by itself: it counts for its bucket.
    let run = |session: &Session, count: u64| session.run(&[("x", &rows(count))], &["y"], &[]).map(drop);
    let small = peak(&devices, &planned(&session, 65));
    let least = initialised(&open(&BUCKETS, Some(small)));
    run(&least, 65).unwrap();
    let less = initialised(&open(&BUCKETS, Some(small - Bytes(1))));
    assert_eq!(run(&less, 65).unwrap_err().code(), Code::ResourceExhausted);

    let devices = open(&BUCKETS, Some(limit));
    let session = initialised(&devices);
    run(&session, 200).unwrap();
    let (peak, kept) = (devices.report()[0].peak, devices.memory_allocated("CPU:0").unwrap());
    assert_eq!(peak, limit);
    for step in 0..600u64 {
        run(&session, 1 + step * 37 % 200).unwrap();
        assert_eq!((devices.report()[0].peak, devices.memory_allocated("CPU:0").unwrap()), (peak, kept), "step {step}");
    }
}

#[test]
fn a_bucket_that_the_graph_refuses_is_none() {
    let error = Devices::open(&Options::new().buckets([4, 0])).map(drop).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "a bucket of size 0"));
    // So large that no shape has its bytes: sizes below have plans of their own.
    let session = initialised(&open(&[1 << 62], None));
    let plain = initialised(&open(&[], None));
    assert_eq!(planned(&session, 3).to_string(), planned(&plain, 3).to_string());
}
