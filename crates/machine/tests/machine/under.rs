//! A lease as a library finds it that knows its name alone.

use plimsoll_base::{Bytes, Code};
use plimsoll_machine::{Machine, StateDir};

use super::{Folder, holder, identity, reserved};

fn of_lease(folder: &Folder, lease: &str) -> plimsoll_base::Result<Machine> {
    Machine::of_lease(&StateDir::open(folder.state())?, lease)
}

#[test]
fn requests_are_granted_or_counted_and_what_was_held_at_most_stays() {
    let folder = Folder::new("of-lease");
    let machine = folder.machine(&[100, 1000]);
    let lease = holder(&machine, "lease", 40);
    lease.reserve(&[(1, Bytes(500))]).unwrap();

    let inside = of_lease(&folder, &lease.token()).unwrap();
    assert_eq!(inside.cards().iter().map(|card| card.capacity.0).collect::<Vec<_>>(), [40, 500]);
    assert_eq!((inside.card_with_key("uuid-1"), inside.card_with_key("uuid-0"), inside.card_with_key("uuid-2")), (Some(1), Some(0), None));

    // One that knows the keys, and two that do not.
    let ours = holder(&machine.under(&lease.token()).unwrap().unwrap(), "ours", 5);
    let (one, other) = (inside.join(&identity("one")).unwrap(), inside.join(&identity("other")).unwrap());
    assert!(one.try_reserve(0, Bytes(20)).unwrap());
    assert!(!other.try_reserve(0, Bytes(16)).unwrap());
    assert!(other.try_reserve(0, Bytes(15)).unwrap());
    assert!(!one.try_reserve(0, Bytes(1)).unwrap() && !one.try_reserve(0, Bytes(u64::MAX)).unwrap());
    assert!(one.try_reserve(1, Bytes(500)).unwrap());
    one.count_refusal(0).unwrap();
    other.count_refusal(0).unwrap();
    assert!(one.count_refusal(2).is_err());
    assert!(one.try_reserve(2, Bytes(1)).is_err());
    assert_eq!(reserved(&inside), [40, 500]);
    assert_eq!(inside.reserved().unwrap(), [Bytes(40), Bytes(500)]);
    one.release(&[(0, Bytes(20)), (1, Bytes(500))]).unwrap();
    drop((one, other, ours));
    assert_eq!(inside.reserved().unwrap(), [Bytes(0), Bytes(0)]);

    // As the holder reads it, when all are gone; the ledger around it counts nothing.
    let after = lease.inside().unwrap();
    assert_eq!([0, 1, 2].map(|card| after.refused(card)), [2, 0, 0]);
    assert_eq!([0, 1, 2].map(|card| after.most_reserved(card)), [Bytes(40), Bytes(500), Bytes(0)]);
    assert_eq!((machine.refused(0), machine.most_reserved(0)), (0, Bytes(0)));
}

#[test]
fn a_lease_inside_of_a_lease_has_a_name_for_each() {
    let folder = Folder::new("of-lease-twice");
    let outer = holder(&folder.machine(&[100]), "outer", 60);
    let inner = holder(&of_lease(&folder, &outer.token()).unwrap(), "inner", 30);
    let name = format!("{}/{}", outer.token(), inner.token());
    let inside = of_lease(&folder, &name).unwrap();
    assert_eq!((inside.cards()[0].capacity, inside.card_with_key("uuid-0")), (Bytes(30), Some(0)));
    drop(inner);
    assert_eq!(of_lease(&folder, &name).unwrap_err().code(), Code::FailedPrecondition);
}

#[test]
fn what_names_no_lease_is_refused_and_makes_no_file() {
    let folder = Folder::new("of-no-lease");
    let token = holder(&folder.machine(&[100]), "gone", 60).token();
    let before = std::fs::read_dir(folder.state()).unwrap().count();
    let cases = [
        ("", Code::InvalidArgument),
        ("x", Code::InvalidArgument),
        ("0.1.2@", Code::InvalidArgument),
        ("0.1.2@..", Code::InvalidArgument),
        ("/", Code::InvalidArgument),
        ("0.1.2@other.ledger", Code::FailedPrecondition),
        ("0.1.2@test.ledger", Code::FailedPrecondition),
        (&token, Code::FailedPrecondition),
    ];
    for (lease, code) in cases {
        assert_eq!(of_lease(&folder, lease).unwrap_err().code(), code, "{lease}");
    }
    assert_eq!(std::fs::read_dir(folder.state()).unwrap().count(), before);
}

#[test]
fn a_place_that_is_given_back_last_is_given_back() {
    let folder = Folder::new("last");
    let machine = folder.machine(&[100]);
    let member = holder(&machine, "last", 60);
    let last = member.give_back_last().unwrap();
    drop((member, last));
    assert_eq!(reserved(&machine), [0]);
}
