//! Arenas of pages of this machine: under a line, from several threads, and giving memory back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_memory::{Address, HostPages, Ledger, Loan, Reservation, page_size};
use plimsoll_runtime::open_regions::{Allocation, Arena, Options, Request, TimingCounter};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A wait that only a wake-up ends before the test is given up.
const LONG: Duration = Duration::from_secs(600);

fn growing(limit: u64) -> Options {
    Options { growth: true, ..Options::new(Bytes(limit)) }
}

fn pattern(allocation: &Allocation) -> &[u8] {
    // SAFETY: the bytes of the allocation, written by `fill` and not written now.
    unsafe { std::slice::from_raw_parts(allocation.address().pointer(), allocation.allocated().0 as usize) }
}

fn fill(allocation: &Allocation, byte: u8) {
    // SAFETY: the bytes of the allocation, with no other user now.
    unsafe { allocation.address().pointer().write_bytes(byte, allocation.allocated().0 as usize) };
}

#[test]
fn a_region_is_under_the_line_before_it_exists() {
    let ledger = Ledger::new("/device:CPU:0", Some(Bytes(8 * MIB)));
    let arena = Arena::host("session 1: open", &ledger, growing(64 * MIB));
    assert_eq!((arena.reserved(), ledger.in_use()), (Bytes::ZERO, Bytes::ZERO));
    let a = arena.allocate(Bytes(100), "a").unwrap();
    assert_eq!((arena.reserved(), ledger.in_use(), ledger.mapped()), (Bytes(2 * MIB), Bytes(2 * MIB), Bytes(2 * MIB)));
    assert_eq!(ledger.holders()[0].name.as_ref(), "session 1: open");
    assert_eq!((a.bytes(), a.allocated(), a.address().number() % 256), (Bytes(100), Bytes(256), 0));
    // 4 MiB are next, then 8 of which the line has 2.
    let b = arena.allocate(Bytes(3 * MIB), "b").unwrap();
    let c = arena.allocate(Bytes(2 * MIB), "c").unwrap();
    assert_eq!((ledger.in_use(), arena.stats().pool_bytes), (Bytes(8 * MIB), Bytes(8 * MIB)));
    let error = Error::from(arena.allocate(Bytes(2 * MIB), "conv1").unwrap_err());
    assert_eq!((error.code(), error.node(), error.device()), (Code::ResourceExhausted, Some("conv1"), Some("/device:CPU:0")));
    drop((a, b, c));
    drop(arena);
    assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn the_last_byte_under_the_line_can_be_had() {
    let page = page_size();
    for pages in 1..40 {
        let ledger = Ledger::new("CPU:0", Some(Bytes(pages * page)));
        let arena = Arena::host("arena", &ledger, growing(MIB));
        drop(arena.allocate(Bytes(pages * page), "all").unwrap());
        arena.release_unused();
        assert!(arena.allocate(Bytes(pages * page + 1), "more").is_err());
        let _other = ledger.reserve(Bytes(page), "another session").unwrap();
        assert!(arena.allocate(Bytes(pages * page), "all").is_err());
        assert_eq!(arena.allocate(Bytes((pages - 1) * page), "rest").map(|rest| rest.bytes().0).ok(), Some((pages - 1) * page));
    }
}

#[test]
fn an_error_names_everything() {
    let ledger = Ledger::new("/device:CPU:0", Some(Bytes(64 * MIB)));
    let arena = Arena::host("arena", &ledger, Options::new(Bytes(4 * MIB)));
    let weights = arena.allocate(Bytes(2 * MIB), "weights").unwrap();
    let small: Vec<_> = (0..4).map(|_| arena.allocate(Bytes(MIB / 2), "small").unwrap()).collect();
    let _kept: Vec<_> = small.into_iter().enumerate().filter(|(index, _)| index % 2 == 1).collect();
    let failure = arena.allocate(Bytes(MIB), "conv1").unwrap_err();
    assert_eq!((failure.free(), failure.waited, failure.refused.is_none()), (Bytes(MIB), false, true));
    assert_eq!(
        failure.dump.holders().iter().map(|holder| (&*holder.name, holder.bytes.0)).collect::<Vec<_>>(),
        [("weights", 2 * MIB), ("small", MIB)]
    );
    assert_eq!(
        Error::from(failure).to_string(),
        "RESOURCE_EXHAUSTED: conv1 asks arena arena for 1 MiB (1048576 bytes); 3 MiB of a limit of 4 MiB (4194304 bytes) are in use (weights: \
         2 MiB, small: 1 MiB), 1 MiB are free, 1 MiB of them in regions with at most 512 KiB in one piece (fragmentation 0.50) {{node conv1}} \
         on /device:CPU:0\n  hint: there is enough in all, but not in one piece: raise the limit, or take everything at once instead of \
         letting the arena grow"
    );
    drop(weights);
}

#[test]
fn no_bytes_are_an_allocation_too() {
    let ledger = Ledger::new("CPU:0", Some(Bytes::ZERO));
    let arena = Arena::host("arena", &ledger, Options::new(Bytes::ZERO));
    let nothing = arena.allocate(Bytes::ZERO, "a").unwrap();
    assert_eq!((nothing.bytes(), nothing.address().number() % 256, nothing.address() == Address::NULL), (Bytes::ZERO, 0, false));
    assert_eq!((arena.stats().num_allocs, arena.reserved()), (0, Bytes::ZERO));
    for bytes in [1, u64::MAX - 300, u64::MAX] {
        assert!(arena.allocate_with(Request { wait: LONG, ..Request::new(Bytes(bytes), "b") }).is_err());
    }
}

#[test]
fn giving_back_wakes_waiters() {
    let ledger = Ledger::new("CPU:0", None);
    let arena = Arena::host("arena", &ledger, Options::new(Bytes(MIB)));
    let (small, most) = (arena.allocate(Bytes(256), "small").unwrap(), arena.allocate(Bytes(MIB - 256), "most").unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| arena.allocate_with(Request { wait: LONG, ..Request::new(Bytes(MIB / 2), "waits") }));
        // Not enough: it waits on.
        drop(small);
        drop(most);
        assert_eq!(waiting.join().unwrap().unwrap().bytes(), Bytes(MIB / 2));
    });
}

#[test]
fn bytes_given_back_under_the_line_wake_waiters() {
    type Held = (Option<Reservation>, Loan, Arc<Arena>);
    let give_back: [fn(&mut Held); 3] =
        [|held| held.0 = None, |held| held.1.set(Bytes::ZERO).unwrap(), |held| assert_eq!(held.2.release_unused(), Bytes(MIB))];
    for give_back in give_back {
        for _ in 0..50 {
            let ledger = Ledger::new("CPU:0", Some(Bytes(3 * MIB)));
            let [arena, other] = ["arena", "other"].map(|name| Arena::host(name, &ledger, Options::new(Bytes(MIB))));
            drop(other.allocate(Bytes(256), "before").unwrap());
            let reservation = ledger.reserve(Bytes(MIB), "a program").unwrap();
            let mut held = (Some(reservation), Loan::new(&ledger, "fed"), other);
            held.1.set(Bytes(MIB)).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| arena.allocate_with(Request { wait: LONG, ..Request::new(Bytes(MIB), "waits") }).map(drop));
                give_back(&mut held);
                waiting.join().unwrap().unwrap();
            });
        }
    }
}

#[test]
fn the_frontier_wakes_waiters() {
    let (ledger, counter, passed) = (Ledger::new("CPU:0", None), Arc::new(TimingCounter::default()), AtomicU64::new(1));
    let space = Box::new(HostPages::new(&ledger));
    // Without collection: else the region as a whole is given back and had anew.
    let options = Options { garbage_collection: false, ..Options::new(Bytes(MIB)) };
    let arena = Arena::new("arena", &ledger, space, options, Some(counter.clone()));
    assert_eq!(counter.next(), 1);
    drop(arena.allocate(Bytes(MIB), "a").unwrap());
    assert_eq!(counter.get(), 2);
    let frontier = || passed.load(Ordering::Relaxed);
    let request = Request { frontier: Some(&frontier), ..Request::new(Bytes(MIB), "waits") };
    assert!(arena.allocate_with(request.clone()).is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| arena.allocate_with(Request { wait: LONG, ..request }));
        passed.store(2, Ordering::Relaxed);
        arena.advance(3);
        assert!(waiting.join().unwrap().is_ok());
    });
}

#[test]
fn a_wait_ends() {
    let ledger = Ledger::new("CPU:0", None);
    let arena = Arena::host("arena", &ledger, Options::new(Bytes(MIB)));
    let _all = arena.allocate(Bytes(MIB), "all").unwrap();
    let failure = arena.allocate_with(Request { wait: Duration::from_millis(1), ..Request::new(Bytes(1), "b") }).unwrap_err();
    assert!(failure.waited && failure.dump.failed.is_some() && failure.dump.to_string().contains("all"));
}

#[test]
fn pages_inside_of_a_region_are_given_back_and_come_again() {
    let page = page_size();
    let ledger = Ledger::new("CPU:0", Some(Bytes(32 * page)));
    let arena = Arena::host("arena", &ledger, Options::new(Bytes(32 * page)));
    let a = arena.allocate(Bytes(256), "a").unwrap();
    let b = arena.allocate(Bytes(8 * page), "b").unwrap();
    let c = arena.allocate(Bytes(page), "c").unwrap();
    [&a, &b, &c].into_iter().zip([1, 2, 3]).for_each(|(allocation, byte)| fill(allocation, byte));
    let address = b.address();
    drop(b);
    // 7 pages of b lie inside of its chunk, 22 are after the one in which c ends.
    let given = (7 + 22) * page;
    assert_eq!(arena.release_unused(), Bytes(given));
    assert_eq!((arena.reserved(), ledger.mapped()), (Bytes(3 * page), Bytes(3 * page)));
    assert_eq!(arena.release_unused(), Bytes::ZERO);
    assert_eq!(arena.stats().pool_bytes, Bytes(32 * page));
    // Another takes the chunk that was given back: the address is there, the memory is not.
    let other = ledger.reserve(Bytes(given - 3 * page), "another session").unwrap();
    let failure = arena.allocate(Bytes(8 * page), "b").unwrap_err();
    assert!(failure.refused.is_some() && Error::from(failure).to_string().contains("another session"));
    let small = arena.allocate(Bytes(page), "small").unwrap();
    assert!(ledger.in_use() <= Bytes(32 * page) && arena.defect().is_none());
    drop((other, small));
    let b = arena.allocate(Bytes(8 * page), "b").unwrap();
    assert_eq!((b.address(), ledger.mapped()), (address, arena.reserved()));
    fill(&b, 4);
    assert!(pattern(&a).iter().all(|&byte| byte == 1) && pattern(&c).iter().all(|&byte| byte == 3));
    drop((a, b, c));
    assert_eq!(arena.release_unused() > Bytes::ZERO, arena.reserved() == Bytes::ZERO);
    assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn a_free_page_of_the_arena_is_as_good_as_one_under_the_line() {
    let page = page_size();
    let ledger = Ledger::new("CPU:0", Some(Bytes(128 * page)));
    let arena = Arena::host("arena", &ledger, Options::new(Bytes(128 * page)));
    let sizes = [16, 1, 32, 15].map(|pages| arena.allocate(Bytes(pages * page), "a").unwrap());
    let [a, _b, c, _d] = sizes;
    drop(c);
    assert_eq!(arena.release_unused(), Bytes(96 * page));
    let _other = ledger.reserve(Bytes(80 * page), "another session").unwrap();
    drop(a);
    // 16 pages are left under the line; the others are those of `a`.
    let again = arena.allocate(Bytes(32 * page), "c").unwrap();
    assert_eq!((arena.reserved(), ledger.in_use(), again.allocated()), (Bytes(48 * page), Bytes(128 * page), Bytes(32 * page)));
}

#[test]
fn many_threads_share_an_arena() {
    let ledger = Ledger::new("CPU:0", Some(Bytes(8 * MIB)));
    let arena = Arena::host("arena", &ledger, growing(8 * MIB));
    std::thread::scope(|scope| {
        for thread in 1..5u8 {
            let arena = &arena;
            scope.spawn(move || {
                for round in 0..200u64 {
                    let size = (u64::from(thread) * 7919 * (round + 1)) % (MIB / 2) + 1;
                    let held: Vec<Allocation> = (0..4).filter_map(|_| arena.allocate(Bytes(size), "thread").ok()).collect();
                    held.iter().for_each(|allocation| fill(allocation, thread));
                    if round % 16 == 0 {
                        arena.release_unused();
                    }
                    assert!(held.iter().all(|allocation| pattern(allocation).iter().all(|&byte| byte == thread)));
                }
            });
        }
    });
    assert_eq!((arena.stats().bytes_in_use, arena.defect()), (Bytes::ZERO, None));
    arena.release_unused();
    assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes::ZERO, Bytes::ZERO));
    assert!(ledger.peak() <= Bytes(8 * MIB));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No owner's bytes change, and reserved bytes are mapped bytes, whatever is allocated, freed, given back and taken by others.
    #[test]
    fn bytes_stay_and_the_line_holds(
        growth in any::<bool>(),
        steps in prop::collection::vec((0u8..12, 1u64..200_000, any::<prop::sample::Index>()), 1..120),
    ) {
        let line = Bytes(MIB);
        let ledger = Ledger::new("CPU:0", Some(line));
        let arena = Arena::host("arena", &ledger, Options { growth, ..Options::new(line) });
        let (mut live, mut others) = (Vec::<(u8, Allocation)>::new(), Vec::new());
        for (number, (kind, size, index)) in steps.into_iter().enumerate() {
            match kind {
                0..6 => if let Ok(allocation) = arena.allocate(Bytes(size), "a") {
                    fill(&allocation, number as u8);
                    live.push((number as u8, allocation));
                },
                6..9 if !live.is_empty() => drop(live.swap_remove(index.index(live.len()))),
                9 => {
                    let before = arena.reserved();
                    prop_assert_eq!(arena.release_unused(), before - arena.reserved());
                }
                10 => others.extend(ledger.reserve(Bytes(size), "another").ok()),
                11 if !others.is_empty() => drop(others.swap_remove(index.index(others.len()))),
                _ => {}
            }
            prop_assert_eq!(arena.defect(), None);
            let elsewhere: Bytes = others.iter().map(|other| other.bytes()).sum();
            prop_assert_eq!(ledger.in_use(), arena.reserved() + elsewhere);
            prop_assert_eq!(ledger.mapped(), arena.reserved());
            prop_assert!(arena.stats().bytes_in_use <= arena.reserved());
            for (byte, allocation) in &live {
                prop_assert!(pattern(allocation).iter().all(|found| found == byte));
            }
        }
        drop(live);
        arena.release_unused();
        prop_assert_eq!(ledger.mapped(), Bytes::ZERO);
    }
}
