//! Memory of cards: in a worker it is the lease's, and afterwards it is back.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_cards::{Environment, Options};
use plimsoll_share::isolate::Line;
use plimsoll_share::{Amount, Cards, Cause, Lease, Request, Workers};

use super::Test;
use super::functions::*;

pub const TESTS: &[Test] = &[
    ("leases::memory_of_a_card_is_back", memory_is_back),
    ("leases::a_worker_has_what_the_lease_has", no_more_than_the_lease),
    ("leases::whatever_ends_it_the_ledger_is_clean", whatever_ends_it),
    ("leases::a_worker_that_keeps_a_card's_memory_is_replaced", keepers_are_replaced),
];

pub fn cards() -> Cards {
    Cards::find(&Options::new(), &Environment::of(std::env::vars())).unwrap()
}

pub fn lease(bytes: u64) -> Lease {
    cards().lease(&Request::cards(1).memory(Amount::Bytes(Bytes(bytes))), &mut |_| true).unwrap()
}

/// The reserved bytes of the machine's card.
pub fn reserved() -> u64 {
    cards().machine().unwrap().look().unwrap().cards[0].reserved.0
}

fn memory_is_back(workers: &Workers) {
    let lease = lease(512 << 20);
    assert_eq!(reserved(), 512 << 20);
    let outcome = workers.isolate(&lease, reserves, 100 << 20).unwrap();
    assert_eq!(outcome.output, 100 << 20, "it was reserved inside of the lease");
    let report = &outcome.report;
    assert_eq!(report.cards.len(), 1);
    let card = &report.cards[0];
    assert_eq!((card.lease, card.before, card.peak, card.after), (Bytes(512 << 20), Bytes(0), Some(Bytes(100 << 20)), Bytes(0)));
    assert!(report.all_back() && report.to_string().ends_with("all memory is back"), "{report}");
    // One that forgets it gives it back too, by ending.
    let outcome = workers.isolate(&lease, keeps, (50 << 20, 0)).unwrap();
    assert!(outcome.report.all_back());
    assert_eq!(reserved(), 512 << 20, "the lease is still there");
    drop(lease);
    assert_eq!(reserved(), 0);
}

fn no_more_than_the_lease(workers: &Workers) {
    let lease = lease(64 << 20);
    let death = workers.isolate(&lease, reserves, 65 << 20).unwrap_err();
    assert!(matches!(death.cause, Cause::OutOfMemory { of: Line::Ledger, .. }), "{death}");
    assert!(death.report.all_back());
}

fn whatever_ends_it(workers: &Workers) {
    let lease = lease(64 << 20);
    for signal in [6, 9, 11, 15] {
        let death = workers.isolate(&lease, kills_itself, signal).unwrap_err();
        assert!(death.report.all_back() && !death.report.cards.is_empty());
    }
    assert!(workers.isolate(&lease, exits, 1).unwrap_err().report.all_back());
    assert!(workers.isolate(&lease, panics, "x".to_string()).unwrap_err().report.all_back());
    assert_eq!(lease.inside().unwrap().unwrap().look().unwrap().entries.len(), 0);
}

fn keepers_are_replaced(workers: &Workers) {
    let shared = Arc::new(lease(64 << 20));
    let pool = workers.pool_under([shared.clone()]).unwrap();
    let first = pool.submit(keeps, (1 << 20, 0)).wait().unwrap();
    assert!(!first.report.all_back() && first.report.to_string().contains("NOT all"), "{}", first.report);
    let second = pool.submit(process, ()).wait().unwrap();
    assert_ne!(first.output, second.output.0);
    assert_eq!(pool.counts().recycled, 1);
    assert!(second.report.all_back());
    assert_eq!(shared.inside().unwrap().unwrap().look().unwrap().cards[0].reserved, Bytes(0));
    drop(pool);
    drop(shared);
    assert_eq!(reserved(), 0);
}
