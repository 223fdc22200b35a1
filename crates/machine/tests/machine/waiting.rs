//! Waiting: in order, woken at once, and nothing left in the queue.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{Denied, Machine, Member, Obstacle, Wait, Why};

use super::child::Player;
use super::{Folder, holder, identity, reserved};

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn wait_for(member: &Member, bytes: u64, priority: i32) -> Result<(), Denied> {
    member.reserve_waiting(&[(0, Bytes(bytes))], &Wait { priority, timeout: LONG }, &mut |_| true)
}

/// Until that many wait.
fn until_waiting(machine: &Machine, count: usize) {
    let begin = Instant::now();
    while machine.look().unwrap().waiters().len() != count {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", machine.look());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn by_priority_then_by_arrival() {
    let folder = Folder::new("order");
    let machine = folder.machine(&[10]);
    let first = holder(&machine, "", 10);
    let (granted, order) = mpsc::channel();
    std::thread::scope(|scope| {
        for (index, priority) in [0, 0, 5, -1, 5].into_iter().enumerate() {
            let (machine, granted) = (&machine, granted.clone());
            scope.spawn(move || {
                let member = machine.join(&identity(&index.to_string())).unwrap();
                wait_for(&member, 10, priority).unwrap();
                granted.send(index).unwrap();
            });
            until_waiting(machine, index + 1);
        }
        let seen = machine.look().unwrap();
        let names: Vec<&str> = seen.waiters().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["2", "4", "0", "1", "3"]);
        let waiting = seen.waiters()[1].waiting.as_ref().unwrap();
        assert_eq!((waiting.priority, waiting.ahead, waiting.card, &waiting.asked[..]), (5, 1, Some(0), &[(0, Bytes(10))][..]));
        drop(first);
        drop(granted);
        assert_eq!(order.iter().collect::<Vec<_>>(), [2, 4, 0, 1, 3]);
    });
    assert_eq!((reserved(&machine), machine.look().unwrap().entries.len()), (vec![0], 0));
}

#[test]
fn small_requests_pass_only_where_they_delay_no_other() {
    let folder = Folder::new("pass");
    let machine = folder.machine(&[10, 10]);
    let running = holder(&machine, "", 6);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| {
            let member = machine.join(&identity("large")).unwrap();
            let result = member.reserve_waiting(&[(0, Bytes(6)), (1, Bytes(6))], &Wait { priority: 0, timeout: LONG }, &mut |_| true);
            result.map(|()| member)
        });
        until_waiting(&machine, 1);
        let small = machine.join(&identity("small")).unwrap();
        let Denied::Full(full) = small.reserve(&[(0, Bytes(1))]).unwrap_err() else { panic!("not full") };
        assert_eq!((full.why, full.free, full.ahead.len()), (Why::Spoken, Bytes(4), 1));
        assert!(Error::from(*full).message().contains("\"large\": 6 B"));
        let soon = Wait { priority: 0, timeout: Some(Duration::from_millis(30)) };
        let Denied::Full(full) = small.reserve_waiting(&[(0, Bytes(1))], &soon, &mut |_| true).unwrap_err() else { panic!("not full") };
        assert_eq!(full.why, Why::TimedOut(Duration::from_millis(30)));
        small.reserve_waiting(&[(0, Bytes(1))], &Wait { priority: 1, ..soon }, &mut |_| true).unwrap();
        small.release(&[(0, Bytes(1))]).unwrap();
        small.reserve(&[(1, Bytes(4))]).unwrap();
        let who_waits = |machine: &Machine| machine.look().unwrap().waiters()[0].waiting.clone().unwrap();
        assert_eq!((who_waits(&machine).card, who_waits(&machine).behind), (Some(0), None));
        let behind = scope.spawn(|| wait_for(&machine.join(&identity("behind")).unwrap(), 1, 0));
        until_waiting(&machine, 2);
        let seen = machine.look().unwrap();
        let why: Vec<_> = seen.waiters().iter().filter_map(|entry| seen.why(entry)).collect();
        let pid = std::process::id();
        let expected =
            ["waits for 6 B of card 0, of which 4 B are free", &format!("waits behind pid {pid} for 1 B of card 0, of which 4 B are free")];
        assert_eq!(why, expected);
        assert_eq!(seen.entries.iter().filter_map(|entry| seen.why(entry)).count(), 2);
        running.release(&[(0, Bytes(2))]).unwrap();
        let large = large.join().unwrap().unwrap();
        assert_eq!((large.reserved(0), large.reserved(1), reserved(&machine)), (Bytes(6), Bytes(6), vec![10, 10]));
        drop(large);
        behind.join().unwrap().unwrap();
    });
}

#[test]
fn a_wait_ends_by_time_by_the_caller_and_by_the_impossible() {
    let folder = Folder::new("ends");
    let machine = folder.machine(&[10]);
    let _running = holder(&machine, "", 6);
    let member = holder(&machine, "", 1);
    let why = |bytes: u64, told: bool| match member.reserve_waiting(
        &[(0, Bytes(bytes))],
        &Wait { priority: 0, timeout: Some(Duration::from_millis(20)) },
        &mut |_| told,
    ) {
        Err(Denied::Full(full)) => full.why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(4, true), Why::TimedOut(Duration::from_millis(20)));
    assert_eq!(why(4, false), Why::Stopped);
    assert_eq!(why(10, true), Why::Never);
    let seen = machine.look().unwrap();
    assert_eq!((seen.waiters().len(), seen.cards[0].reserved), (0, Bytes(7)));
    assert_eq!(why(3 + 1, true), Why::TimedOut(Duration::from_millis(20)));
    member.reserve(&[(0, Bytes(3))]).unwrap();
}

#[test]
fn of_two_that_grow_into_each_other_the_last_gives_up() {
    let folder = Folder::new("deadlock");
    let machine = folder.machine(&[10]);
    let (first, last) = (holder(&machine, "", 5), holder(&machine, "", 5));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| wait_for(&first, 3, 0));
        until_waiting(&machine, 1);
        let error = Error::from(wait_for(&last, 2, 0).unwrap_err());
        assert_eq!(error.code(), Code::Aborted, "{error}");
        assert_eq!(last.reserved(0), Bytes(5));
        drop(last);
        waits.join().unwrap().unwrap();
    });
    assert_eq!(first.reserved(0), Bytes(8));
    // The other way round: the earlier one has the lower priority, and is told when the other comes.
    let last = holder(&machine, "", 2);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| wait_for(&first, 1, 0));
        until_waiting(&machine, 1);
        let wins = scope.spawn(|| wait_for(&last, 1, 1));
        assert_eq!(Error::from(waits.join().unwrap().unwrap_err()).code(), Code::Aborted);
        first.release(&[(0, Bytes(8))]).unwrap();
        wins.join().unwrap().unwrap();
    });
}

#[test]
fn threads_of_a_member_take_turns() {
    let folder = Folder::new("turns");
    let machine = folder.machine(&[10]);
    let running = holder(&machine, "", 9);
    let member = machine.join(&identity("")).unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| wait_for(&member, 3, 0))).collect();
        until_waiting(&machine, 1);
        let soon = Wait { priority: 9, timeout: Some(Duration::from_millis(5)) };
        assert!(matches!(member.reserve_waiting(&[(0, Bytes(2))], &soon, &mut |_| true), Err(Denied::Full(_))));
        member.reserve(&[(0, Bytes(1))]).unwrap();
        drop(running);
        waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
    });
    assert_eq!((member.reserved(0), reserved(&machine)), (Bytes(10), vec![10]));
}

#[test]
fn a_killed_waiter_is_out_of_the_way() {
    let folder = Folder::new("waiter");
    let machine = folder.machine(&[10]);
    let running = holder(&machine, "", 6);
    let mut large = Player::new("wait 10 10", &folder.state());
    assert_eq!(large.hears(), "waits");
    std::thread::scope(|scope| {
        let small = scope.spawn(|| {
            let member = machine.join(&identity("small")).unwrap();
            wait_for(&member, 4, 0).map(|()| member)
        });
        until_waiting(&machine, 2);
        large.kill();
        let small = small.join().unwrap().unwrap();
        assert_eq!((small.reserved(0), machine.look().unwrap().waiters().len()), (Bytes(4), 0));
    });
    drop(running);
}

/// Prints the time from `kill -9` of a holder, and from a release, until the waiter has the bytes.
#[test]
fn wakes_when_a_holder_dies() {
    let folder = Folder::new("wake");
    let machine = folder.machine(&[10]);
    let member = machine.join(&identity("waiter")).unwrap();
    let mut took = Vec::new();
    for _ in 0..5 {
        let mut running = Player::new("hold 10 10", &folder.state());
        assert_eq!(running.hears(), "holds");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                wait_for(&member, 10, 0).unwrap();
                Instant::now()
            });
            until_waiting(&machine, 1);
            let begin = Instant::now();
            running.signal(libc::SIGKILL);
            took.push(waits.join().unwrap() - begin);
        });
        member.release(&[(0, Bytes(10))]).unwrap();
    }
    took.sort();
    println!("from kill -9 to the bytes: median {:?}, worst {:?}", took[2], took[4]);
    assert!(took[4] < Duration::from_secs(30));
}

/// Prints how long it takes from one to the next where many wait in line.
#[test]
fn a_long_queue_moves_on() {
    let count = if std::env::var_os("PLIMSOLL_STRESS_SECONDS").is_some() { 200 } else { 40 };
    let folder = Folder::new("queue");
    let machine = folder.machine(&[10]);
    let first = holder(&machine, "", 10);
    let (granted, times) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..count {
            let (machine, granted) = (&machine, granted.clone());
            scope.spawn(move || {
                let member = machine.join(&identity("")).unwrap();
                wait_for(&member, 10, 0).unwrap();
                granted.send(Instant::now()).unwrap();
            });
        }
        drop(granted);
        until_waiting(&machine, count);
        let mut last = Instant::now();
        drop(first);
        let mut steps = Vec::new();
        for time in times {
            steps.push(time - last);
            last = time;
        }
        assert_eq!(steps.len(), count);
        steps.sort();
        println!("{count} in line, from one to the next: median {:?}, worst {:?}", steps[count / 2], steps[count - 1]);
    });
    assert_eq!(machine.look().unwrap().entries.len(), 0);
}

/// A process that is stopped in the middle of a change.
fn stopped(folder: &Folder) -> Player {
    let mut stuck = Player::new("stuck", &folder.state());
    assert_eq!(stuck.hears(), "locked");
    stuck.signal(libc::SIGSTOP);
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", stuck.pid())).unwrap();
    while !state().rsplit_once(") ").unwrap().1.starts_with('T') {
        std::thread::yield_now();
    }
    stuck
}

#[test]
fn a_process_stopped_in_a_change_is_waited_for() {
    let folder = Folder::new("stopped");
    // Shorter than the wait: the bound of a transaction does not concern a waiter without one.
    let machine = folder.machine(&[10]).with_patience(Duration::from_millis(20)).unwrap();
    for (what, killed) in [("killed", true), ("continued", false)] {
        let stuck = stopped(&folder);
        let (told, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            let (machine, told) = (&machine, &told);
            let waits = scope.spawn(move || {
                let mut tell = |obstacle: Obstacle<'_>| told.send((obstacle.to_string(), matches!(obstacle, Obstacle::Locked(_)))).is_ok();
                let member = machine.join_waiting(&identity(""), &Wait::default(), &mut tell).unwrap();
                member.reserve_waiting(&[(0, Bytes(10))], &Wait::default(), &mut tell).unwrap();
                member
            });
            for _ in 0..3 {
                let (words, is_locked) = hears.recv().unwrap();
                let pid = format!("by pid {} (", stuck.pid());
                assert!(is_locked && words.contains(&pid) && words.ends_with("which is stopped"), "{what}: {words}");
            }
            if killed {
                stuck.kill();
            } else {
                stuck.signal(libc::SIGCONT);
                drop(stuck);
            }
            assert_eq!(waits.join().unwrap().reserved(0), Bytes(10), "{what}");
        });
        assert_eq!(reserved(&machine), [0]);
    }
}

#[test]
fn a_wait_with_a_bound_ends_while_a_process_is_stopped_in_a_change() {
    let folder = Folder::new("bounded");
    let machine = folder.machine(&[10]).with_patience(Duration::from_millis(20)).unwrap();
    let running = holder(&machine, "", 6);
    let member = machine.join(&identity("waits")).unwrap();
    // It is in the queue when the other process is stopped.
    let mut stuck = None;
    let for_at_most = |time| Wait { priority: 0, timeout: Some(Duration::from_millis(time)) };
    // Starting and stopping that process is part of the time.
    let ended = member.reserve_waiting(&[(0, Bytes(10))], &for_at_most(3000), &mut |_| {
        stuck.get_or_insert_with(|| stopped(&folder));
        true
    });
    let stuck = stuck.unwrap();
    let named = |error: &Error| error.message().contains(&format!("by pid {} (", stuck.pid())) && error.message().contains("is stopped");
    let error = Error::from(ended.unwrap_err());
    assert!(error.code() == Code::DeadlineExceeded && named(&error), "{error}");
    let error = machine.join_waiting(&identity(""), &for_at_most(300), &mut |_| true).map(drop).unwrap_err();
    assert!(error.code() == Code::DeadlineExceeded && named(&error), "{error}");
    let error = Error::from(member.reserve_waiting(&[(0, Bytes(1))], &Wait::default(), &mut |_| false).unwrap_err());
    assert!(error.code() == Code::Cancelled && named(&error), "{error}");
    // Nothing of it is left in the queue, though nothing could be changed when it ended.
    let seen = machine.look().unwrap();
    assert!(seen.locked.is_some_and(|locked| locked.stopped) && seen.entries.iter().all(|entry| entry.waiting.is_none()));
    stuck.kill();
    let later = machine.join(&identity("later")).unwrap();
    later.reserve(&[(0, Bytes(4))]).unwrap();
    // A new place in the queue has the same number as the one that was given up.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| wait_for(&member, 10, 0));
        until_waiting(&machine, 1);
        drop((running, later));
        waits.join().unwrap().unwrap();
    });
    assert_eq!(reserved(&machine), [10]);
}
