//! Members, their bytes, and the view of others.

use std::time::{Duration, Instant, UNIX_EPOCH};

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{CardInfo, Denied, Guarantee, Identity, LastUse, Machine, Share, StateDir, Why};

use super::child::Player;
use super::{Folder, cards, holder, identity, reserved};

#[test]
fn holds_gives_back_and_shows() {
    let folder = Folder::new("members");
    let machine = folder.machine(&[100, 50]);
    let member = machine.join(&identity("first")).unwrap();
    member.reserve(&[(0, Bytes(60)), (1, Bytes(50))]).unwrap();
    member.set_used(0, Bytes(40));
    member.set_used(0, Bytes(30));
    member.release(&[(1, Bytes(20))]).unwrap();
    let watched = Identity { guarantee: Guarantee::Watched, ..identity("second") };
    let other = machine.join(&watched).unwrap();
    other.reserve(&[(1, Bytes(5)), (1, Bytes(15))]).unwrap();

    // Another handle, as another process has it, with the cards in another order and one more.
    let mut known = cards(&[100, 50, 7]);
    known.rotate_left(1);
    let elsewhere = Machine::open(&StateDir::open(folder.state()).unwrap(), "test", &known).unwrap();
    let seen = elsewhere.look().unwrap();
    let facts: Vec<_> = seen.cards.iter().map(|card| (card.card.name.as_str(), card.reserved.0, card.used.0, card.free.0)).collect();
    assert_eq!(facts, [("card 1", 50, 0, 0), ("card 2", 0, 0, 7), ("card 0", 60, 30, 40)]);
    assert_eq!(seen.entries.len(), 2);
    let first = &seen.entries[0];
    assert_eq!((first.pid, first.name.as_str(), first.program.as_str()), (std::process::id(), "first", "tester --all"));
    assert_eq!((first.guarantee, seen.entries[1].guarantee), (Guarantee::Held, Guarantee::Watched));
    let share = |card, reserved, used, peak| Share { card, reserved: Bytes(reserved), used: Bytes(used), peak: Bytes(peak) };
    assert_eq!(first.shares, [share(0, 30, 0, 0), share(2, 60, 30, 40)]);
    assert_eq!(
        seen.holders(0).iter().map(|(entry, share)| (entry.name.as_str(), share.reserved.0)).collect::<Vec<_>>(),
        [("first", 30), ("second", 20)]
    );

    let last = LastUse { card: UNIX_EPOCH.checked_add(Duration::from_secs(1_800_000_000)), memory: None };
    assert_eq!((first.last_use, first.guarantee), (LastUse::default(), Guarantee::Held));
    member.set_last_use(last);
    member.set_guarantee(Guarantee::Kernel).unwrap();
    let seen = machine.look().unwrap();
    assert_eq!((seen.entries[0].last_use, seen.entries[0].guarantee), (last, Guarantee::Kernel));
    assert_eq!(seen.entries[0].shares, [share(0, 60, 30, 40), share(1, 30, 0, 0)], "nothing else has changed");

    member.reset_peak();
    assert_eq!(machine.look().unwrap().entries[0].shares[0].peak, Bytes(30));
    drop(member);
    assert_eq!(reserved(&machine), [0, 20]);
    other.release(&[(1, Bytes(u64::MAX))]).unwrap();
    assert_eq!((reserved(&machine), other.reserved(1)), (vec![0, 0], Bytes::ZERO));
}

#[test]
fn all_or_nothing_and_the_holders_of_the_rest() {
    let folder = Folder::new("full");
    let machine = folder.machine(&[4 << 30, 4 << 30]);
    let member = holder(&machine, "mine", 1 << 30);
    let _other = holder(&machine, "", 2 << 30);
    let Denied::Full(full) = member.reserve(&[(1, Bytes(1)), (0, Bytes(3 << 30))]).unwrap_err() else { panic!("not full") };
    assert_eq!((full.asked, full.free, full.why, full.card.name.as_str()), (Bytes(3 << 30), Bytes(1 << 30), Why::Taken, "card 0"));
    assert_eq!(full.holders.iter().map(|holder| (holder.bytes.0 >> 30, holder.own)).collect::<Vec<_>>(), [(2, false), (1, true)]);
    assert_eq!(reserved(&machine), [3 << 30, 0], "nothing was taken of the other card");
    let pid = std::process::id();
    assert_eq!(
        Error::from(*full).to_string(),
        format!(
            "RESOURCE_EXHAUSTED: 3 GiB (3221225472 bytes) asked; 1 GiB (1073741824 bytes) of 4 GiB (4294967296 bytes) are free; 1 GiB (1073741824 \
             bytes) are held by this program itself; held by pid {pid} (tester --all): 2 GiB (2147483648 bytes) on card 0\n  hint: end one of \
             the holders, ask for less, or wait until there is room"
        )
    );
    let Denied::Full(full) = member.reserve(&[(0, Bytes(u64::MAX))]).unwrap_err() else { panic!("not full") };
    assert_eq!(full.why, Why::Never);
    assert!(matches!(member.reserve(&[(2, Bytes(1))]), Err(Denied::Broken(error)) if error.code() == Code::InvalidArgument));
    member.reserve(&[(0, Bytes::ZERO)]).unwrap();
}

#[test]
fn what_others_use_outside_is_not_granted() {
    let folder = Folder::new("outside");
    let machine = folder.machine(&[100]);
    machine.set_outside(0, Bytes(70)).unwrap();
    let member = machine.join(&identity("")).unwrap();
    let error = Error::from(member.reserve(&[(0, Bytes(31))]).unwrap_err());
    assert!(error.message().contains("30 B of 100 B are free; 70 B are used by programs that are not in the ledger"), "{error}");
    member.reserve(&[(0, Bytes(30))]).unwrap();
    machine.set_outside(0, Bytes(200)).unwrap();
    assert_eq!(machine.look().unwrap().cards[0].free, Bytes::ZERO);
    assert!(machine.set_outside(1, Bytes(1)).is_err());
}

#[test]
fn a_killed_process_holds_nothing() {
    let folder = Folder::new("killed");
    let machine = folder.machine(&[100]);
    for _ in 0..2 {
        let mut first = Player::new("hold 100 60", &folder.state());
        assert_eq!(first.hears(), "holds");
        let seen = machine.look().unwrap();
        assert_eq!((seen.entries[0].pid, seen.entries[0].name.as_str(), seen.cards[0].free), (first.pid(), "a child", Bytes(40)));
        assert!(seen.entries[0].program.contains("child::play --exact"), "{}", seen.entries[0].program);
        let member = machine.join(&identity("")).unwrap();
        let error = Error::from(member.reserve(&[(0, Bytes(41))]).unwrap_err());
        assert!(error.message().contains(&format!("held by pid {}", first.pid())), "{error}");
        first.kill();
        assert_eq!(reserved(&machine), [0]);
        member.reserve(&[(0, Bytes(100))]).unwrap();
    }
}

#[test]
fn places_are_used_again_and_the_file_shrinks() {
    let folder = Folder::new("slots");
    let machine = folder.machine(&[100]);
    let pages = || std::fs::metadata(folder.file()).unwrap().len() / 4096;
    let mut members: Vec<_> = (0..20).map(|index| holder(&machine, &index.to_string(), 1)).collect();
    assert_eq!(pages(), 21);
    members.drain(3..);
    assert_eq!((reserved(&machine), machine.look().unwrap().entries.len()), (vec![3], 3));
    members.remove(1);
    members.push(holder(&machine, "again", 2));
    assert_eq!(pages(), 21, "a gap was filled");
    members.push(holder(&machine, "last", 3));
    assert_eq!(pages(), 5, "the last one cuts off the slots behind it");
    assert_eq!(machine.look().unwrap().entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["0", "again", "2", "last"]);
    assert_eq!(reserved(&machine), [7]);
}

#[test]
fn sets_are_apart_and_wrong_ones_are_refused() {
    let folder = Folder::new("sets");
    let state = StateDir::open(folder.state()).unwrap();
    let one = Machine::open(&state, "one", &cards(&[10])).unwrap();
    let two = Machine::open(&state, "two", &cards(&[10])).unwrap();
    let _held = holder(&one, "", 10);
    assert_eq!((reserved(&one), reserved(&two)), (vec![10], vec![0]));
    let twins: Vec<CardInfo> = cards(&[1]).into_iter().chain(cards(&[2])).collect();
    for (set, cards) in [("", cards(&[1])), ("none", vec![]), ("many", cards(&[1; 65])), ("twins", twins)] {
        assert_eq!(Machine::open(&state, set, &cards).unwrap_err().code(), Code::InvalidArgument, "{set}");
    }
}

/// Prints the time of joining, reserving and looking.
#[test]
fn hundreds_of_members() {
    let folder = Folder::new("hundreds");
    let machine = folder.machine(&[1000]);
    let mut members = Vec::new();
    for count in [8, 300] {
        let begin = Instant::now();
        let joined = count - members.len();
        members.extend((members.len()..count).map(|index| machine.join(&identity(&index.to_string())).unwrap()));
        let join = begin.elapsed() / joined as u32;
        let begin = Instant::now();
        (0..20).for_each(|_| members[count - 1].reserve(&[(0, Bytes(1))]).unwrap());
        let reserve = begin.elapsed() / 20;
        let begin = Instant::now();
        (0..20).for_each(|_| assert_eq!(machine.look().unwrap().entries.len(), count));
        println!("{count} members: join {join:?}, reserve {reserve:?}, look {:?}", begin.elapsed() / 20);
    }
    assert_eq!(reserved(&machine), [40]);
}
