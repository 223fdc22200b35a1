//! Ledgers of a process with a part of a card behind them.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{CardUpstream, Machine, Member, Obstacle, Wait};
use plimsoll_memory::{Block, Ledger, Loan, page_size};

use super::child::Player;
use super::{Folder, holder, identity, reserved};

fn member(machine: &Machine) -> Arc<Member> {
    Arc::new(machine.join(&identity("session")).unwrap())
}

#[test]
fn a_whole_line_is_held_from_the_beginning() {
    let folder = Folder::new("whole");
    let machine = folder.machine(&[100, 100]);
    let member = member(&machine);
    member.reserve(&[(0, Bytes(40)), (1, Bytes(40))]).unwrap();
    let ledgers = [0, 1].map(|card| Ledger::with_upstream(format!("GPU:{card}"), None, CardUpstream::new(&member, card, Bytes(40))));
    let inside = ledgers[0].reserve(Bytes(40), "arena").unwrap();
    let refusal = ledgers[0].reserve(Bytes(1), "arena").unwrap_err();
    assert_eq!((refusal.limit, refusal.upstream.is_none(), reserved(&machine)), (Bytes(40), true, vec![40, 40]));
    drop(inside);
    assert_eq!((reserved(&machine), ledgers[0].release_unused().unwrap()), (vec![40, 40], Bytes::ZERO));
    let [first, _second] = ledgers;
    drop(first);
    assert_eq!((reserved(&machine), member.reserved(0)), (vec![0, 40], Bytes::ZERO));
}

#[test]
fn a_growing_line_reserves_what_it_lacks_in_steps() {
    let folder = Folder::new("growing");
    let machine = folder.machine(&[100]);
    let member = member(&machine);
    let ledger = Ledger::with_upstream("GPU:0", None, CardUpstream::new(&member, 0, Bytes::ZERO).growing(Bytes(16)));
    let first = ledger.reserve(Bytes(5), "a").unwrap();
    assert_eq!((reserved(&machine), ledger.held()), (vec![16], Bytes(16)));
    let second = ledger.reserve(Bytes(11), "b").unwrap();
    assert_eq!(reserved(&machine), [16]);
    let mut loan = Loan::new(&ledger, "feeds");
    loan.set(Bytes(20)).unwrap();
    assert_eq!((reserved(&machine), ledger.in_use()), (vec![48], Bytes(36)));
    drop(second);
    loan.set(Bytes::ZERO).unwrap();
    assert_eq!(reserved(&machine), [48], "kept until it is asked for");
    assert_eq!((ledger.release_unused().unwrap(), reserved(&machine)), (Bytes(32), vec![16]));

    // Others have taken the rest but for less than a step: exactly that is had, and no more.
    let other = holder(&machine, "other", 80);
    other.release(&[(0, Bytes(6))]).unwrap();
    ledger.ensure(Bytes(17), "next step").unwrap();
    assert_eq!((reserved(&machine), ledger.in_use(), ledger.held()), (vec![74 + 22], Bytes(5), Bytes(22)));
    let refusal = ledger.reserve(Bytes(22), "arena").unwrap_err();
    assert!(matches!(refusal.upstream.as_deref(), Some(plimsoll_memory::Denied::Full { card, .. }) if card == "card 0"), "{refusal:?}");
    let error = Error::from(refusal);
    let pid = std::process::id();
    assert_eq!(
        error.to_string(),
        format!(
            "RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY: out of memory: GPU:0: arena asks for 22 B; 5 B of a limit of 100 B are reserved (a: 5 B); card card 0: 5 B asked; 4 B of 100 B \
             are free; 22 B are held by this program itself; held by pid {pid} (tester --all) \"other\": 74 B on card 0\n  hint: end one of the \
             holders, ask for less, or wait until there is room"
        )
    );
    assert_eq!((ledger.in_use(), ledger.held()), (Bytes(5), Bytes(22)), "nothing has changed");
    drop((first, other));
    let _all = ledger.reserve(Bytes(100), "arena").unwrap();
    assert_eq!(Error::from(ledger.reserve(Bytes(1), "more").unwrap_err()).code(), Code::ResourceExhausted);
    drop((_all, loan, ledger));
    assert_eq!(reserved(&machine), [0]);
}

#[test]
fn a_limit_holds_a_growing_line() {
    let folder = Folder::new("limit");
    let machine = folder.machine(&[100]);
    let member = member(&machine);
    let ledger = Ledger::with_upstream("GPU:0", Some(Bytes(30)), CardUpstream::new(&member, 0, Bytes::ZERO).growing(Bytes(16)));
    let _held = ledger.reserve(Bytes(30), "a").unwrap();
    assert_eq!(reserved(&machine), [30]);
    assert!(ledger.reserve(Bytes(1), "a").unwrap_err().upstream.is_none());
}

#[test]
fn a_growing_line_may_wait() {
    let folder = Folder::new("patient");
    let machine = folder.machine(&[100]);
    let member = member(&machine);
    member.reserve(&[(0, Bytes(10))]).unwrap();
    let wait = Wait { priority: 0, timeout: Some(Duration::from_secs(60)) };
    let ledger = Ledger::with_upstream("GPU:0", None, CardUpstream::new(&member, 0, Bytes(10)).growing(Bytes(1)).waiting(wait, |_| true));
    let other = holder(&machine, "other", 60);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ledger.reserve(Bytes(50), "step"));
        while machine.look().unwrap().waiters().is_empty() {
            std::thread::yield_now();
        }
        // Held bytes can be used meanwhile, looked at and given back.
        let small = ledger.reserve(Bytes(2), "small").unwrap();
        assert_eq!((ledger.in_use(), ledger.release_unused().unwrap(), ledger.held()), (Bytes(2), Bytes(8), Bytes(2)));
        drop((small, other));
        assert_eq!(waits.join().unwrap().unwrap().bytes(), Bytes(50));
    });
    let _other = holder(&machine, "other", 30);
    let stops = CardUpstream::new(&member, 0, Bytes::ZERO)
        .growing(Bytes(1))
        .waiting(wait, |obstacle| !matches!(obstacle, Obstacle::Full(full) if full.free == Bytes(20)));
    let stopped = Ledger::with_upstream("GPU:0", None, stops).reserve(Bytes(40), "step").unwrap_err();
    assert_eq!(Error::from(stopped).code(), Code::Cancelled);
}

#[test]
fn what_is_mapped_is_shown_as_used() {
    let folder = Folder::new("used");
    let page = page_size();
    let machine = folder.machine(&[10 * page]);
    let member = member(&machine);
    let ledgers = [0, 1].map(|_| Ledger::with_upstream("GPU:0", None, CardUpstream::new(&member, 0, Bytes::ZERO).growing(Bytes(page))));
    let blocks = [3, 2].map(|pages| Block::host(&ledgers[pages as usize - 2], Bytes(pages * page), "arena").unwrap());
    let share = || machine.look().unwrap().entries[0].shares[0];
    assert_eq!((share().used, share().reserved), (Bytes(5 * page), Bytes(5 * page)));
    drop(blocks);
    assert_eq!((share().used, share().peak, share().reserved), (Bytes::ZERO, Bytes(5 * page), Bytes(5 * page)));
    for ledger in &ledgers {
        ledger.release_unused().unwrap();
    }
    assert_eq!(share().reserved, Bytes::ZERO);
}

#[test]
fn many_threads_grow_and_give_back() {
    let folder = Folder::new("threads");
    let machine = folder.machine(&[20]);
    let member = member(&machine);
    let ledger = Ledger::with_upstream("GPU:0", None, CardUpstream::new(&member, 0, Bytes::ZERO).growing(Bytes(3)));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (ledger, machine) = (&ledger, &machine);
            scope.spawn(move || {
                for round in 0..50 {
                    let held: Vec<_> = (1..4).filter_map(|bytes| ledger.reserve(Bytes(bytes * (thread + 1)), "thread").ok()).collect();
                    assert!(ledger.in_use() <= ledger.held() && ledger.held() <= Bytes(20));
                    drop(held);
                    if round % 5 == 0 {
                        ledger.release_unused().unwrap();
                        assert!(reserved(machine)[0] <= 20);
                    }
                }
            });
        }
    });
    assert_eq!(ledger.in_use(), Bytes::ZERO);
    assert_eq!(reserved(&machine), [ledger.held().0]);
    ledger.release_unused().unwrap();
    assert_eq!(reserved(&machine), [0]);
}

/// While another process is stuck in a transaction, held bytes can be reserved and given back: that asks no other process.
#[test]
fn held_bytes_need_no_other_process() {
    let folder = Folder::new("alone");
    let machine = folder.machine(&[100]).with_patience(Duration::from_millis(20)).unwrap();
    let member = member(&machine);
    let ledger = Ledger::with_upstream("GPU:0", None, CardUpstream::new(&member, 0, Bytes::ZERO).growing(Bytes(16)));
    ledger.ensure(Bytes(20), "plan").unwrap();
    let mut stuck = Player::new("stuck", &folder.state());
    assert_eq!(stuck.hears(), "locked");
    let mut loan = Loan::new(&ledger, "feeds");
    for _ in 0..100 {
        let _arena = ledger.reserve(Bytes(12), "arena").unwrap();
        loan.set(Bytes(20)).unwrap();
        loan.set(Bytes(1)).unwrap();
    }
    let error = Error::from(ledger.reserve(Bytes(32), "arena").unwrap_err());
    assert_eq!((error.code(), error.device()), (Code::Unavailable, Some("GPU:0")));
    assert!(error.message().contains("arena asks for 32 B; 1 B of a limit of 100 B are reserved (feeds: 1 B)"), "{error}");
    stuck.kill();
    ledger.reserve(Bytes(32), "arena").unwrap();
}
