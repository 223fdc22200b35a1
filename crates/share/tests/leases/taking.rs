//! Requests for cards: which, how much of them, and the variables that tell a program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code};
use plimsoll_machine::{Guarantee, Identity, Wait};
use plimsoll_share::{Request, Which};

use super::{Folder, numbers, take};

const MIB: u64 = 1 << 20;

#[test]
fn cards_by_number_or_the_emptiest() {
    let folder = Folder::new("which");
    let cards = folder.cards("4x1GiB", &[]);
    let first = take(&cards, "3,1", "0.5").unwrap();
    assert_eq!((numbers(&first), first.parts()[0].bytes), (vec![3, 1], Bytes(512 * MIB)));
    let second = take(&cards, "1", "100MiB").unwrap();
    assert_eq!(numbers(&second), [0]);
    let third = take(&cards, "3", "512MiB").unwrap();
    assert_eq!(numbers(&third), [0, 1, 2], "the emptiest three, in order");
    let error = take(&cards, "2", "513MiB").unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    drop((first, second, third));
    let all = take(&cards, "4", "").unwrap();
    assert!(all.parts().iter().all(|part| part.bytes == Bytes(1 << 30)));
    assert_eq!(take(&cards, "1", "1MiB").unwrap_err().code(), Code::ResourceExhausted);
    assert!(take(&cards, "0", "").unwrap().parts().is_empty(), "no card is always to be had");
}

#[test]
fn cards_that_are_not_there_are_refused() {
    let folder = Folder::new("none");
    let hidden = folder.cards("4x1GiB", &[("CUDA_VISIBLE_DEVICES", "3,2")]);
    assert_eq!(numbers(&take(&hidden, "0,", "").unwrap()), [3], "numbers are those that the process sees");
    for (cards, why) in [("3", "3 cards are asked for, and 2 are seen; CUDA_VISIBLE_DEVICES hides 2"), ("0,2", "card 2 is asked for")] {
        let error = take(&hidden, cards, "").unwrap_err();
        assert!(error.code() == Code::InvalidArgument && error.message().starts_with(why), "{error}");
    }
    let error = take(&hidden, "1", "2GiB").unwrap_err();
    assert!(error.code() == Code::ResourceExhausted && error.remedy().unwrap().contains("ask for less"), "{error}");
}

#[test]
fn a_program_is_told_its_share() {
    let folder = Folder::new("told");
    let cards = folder.cards("4x1GiB", &[("CUDA_VISIBLE_DEVICES", "3,2")]);
    let lease = take(&cards, "2", "0.25").unwrap();
    let told = lease.told(|name| (name == "XLA_CLIENT_MEM_FRACTION").then(|| "0.9".into()));
    let get = |name: &str| told.set.iter().find(|(other, _)| other == name).map(|(_, value)| value.to_str().unwrap());
    assert_eq!((get("CUDA_VISIBLE_DEVICES"), get("PLIMSOLL_SIM_GPUS")), (Some("3,2"), Some("4x1GiB")));
    assert_eq!((get("TF_FORCE_GPU_ALLOW_GROWTH"), get("XLA_PYTHON_CLIENT_PREALLOCATE")), (Some("true"), Some("false")));
    assert_eq!((get("XLA_CLIENT_MEM_FRACTION"), get("XLA_PYTHON_CLIENT_MEM_FRACTION")), (Some("0.1250"), None), "half is for the context");
    assert_eq!((get("PYTORCH_CUDA_ALLOC_CONF"), told.warnings.len()), (None, 1));
    let hook = std::path::Path::new(get("PYTHONPATH").unwrap());
    assert!(hook.starts_with(&folder.0) && hook.join("sitecustomize.py").is_file(), "{}", hook.display());
    assert_eq!(lease.guarantee(), Guarantee::Framework);
    let off = lease.told(|name| (name == "PLIMSOLL_HOOK").then(|| "0".into()));
    assert!(!off.set.iter().any(|(name, _)| name == "PYTHONPATH"));
    let all = take(&cards, "0,", "").unwrap_err();
    assert_eq!(all.code(), Code::ResourceExhausted);
    drop(lease);
    let whole = take(&cards, "1", "").unwrap().told(|_| None);
    let names: Vec<&str> = whole.set.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["CUDA_VISIBLE_DEVICES", "PLIMSOLL_SIM_GPUS", "PLIMSOLL_LEASE", "PLIMSOLL_FRAMEWORK_LIMITS"],
        "a whole card is the program's"
    );
    let none = take(&cards, "0", "").unwrap();
    assert_eq!(none.told(|_| None).set, [("CUDA_VISIBLE_DEVICES".to_string(), "".into())], "it hides all cards");
}

/// The environment of a program under the lease.
fn variable(lease: &plimsoll_share::Lease, name: &str) -> String {
    let set = lease.told(|_| None).set;
    set.into_iter().find(|(other, _)| other == name).unwrap().1.into_string().unwrap()
}

#[test]
fn a_lease_is_a_machine_of_its_own() {
    let folder = Folder::new("inside");
    let outside = folder.cards("2x1GiB", &[]);
    let mut lease = take(&outside, "1,", "400MiB").unwrap();
    let token = variable(&lease, "PLIMSOLL_LEASE");
    let cards = folder.cards("2x1GiB", &[("CUDA_VISIBLE_DEVICES", "1"), ("PLIMSOLL_LEASE", &token)]);
    assert_eq!(cards.all()[1].total, Bytes(400 * MIB));
    let inner = take(&cards, "1", "0.5").unwrap();
    assert_eq!((numbers(&inner), inner.parts()[0].bytes), (vec![1], Bytes(200 * MIB)));
    let told = variable(&inner, "XLA_PYTHON_CLIENT_MEM_FRACTION");
    assert_eq!(told, "0.0976", "a share of the whole card, half of which is for the context");
    let chain = variable(&inner, "PLIMSOLL_LEASE");
    let innermost = folder.cards("2x1GiB", &[("CUDA_VISIBLE_DEVICES", "1"), ("PLIMSOLL_LEASE", &chain)]);
    assert_eq!(innermost.all()[1].total, Bytes(200 * MIB), "a lease inside of a lease");
    let elsewhere = folder.cards("3x1GiB", &[("PLIMSOLL_LEASE", &chain)]);
    assert_eq!(elsewhere.all()[1].total, Bytes(1 << 30), "other cards have nothing to do with it");
    assert!(take(&cards, "1", "201MiB").is_err() && take(&cards, "2", "1MiB").is_err());
    // Use inside is shown outside.
    let member = cards.machine().unwrap().join(&Identity::this_process("")).unwrap();
    member.set_used(1, Bytes(30 * MIB));
    assert_eq!(lease.look(), [Some(Bytes(30 * MIB))]);
    member.set_used(1, Bytes(70 * MIB));
    drop(member);
    let seen = outside.machine().unwrap().look().unwrap();
    assert_eq!((seen.cards[1].reserved, seen.cards[1].used), (Bytes(400 * MIB), Bytes(30 * MIB)), "nothing is counted twice");
    drop(inner);
    // A later one of the same place does not hide the peak.
    drop(cards.machine().unwrap().join(&Identity::this_process("")).unwrap());
    let report = lease.end();
    assert!(report.is_free() && report.came_back == Some(true) && report.peaks[0].most() == Some(Bytes(70 * MIB)), "{report:?}");
    assert_eq!(outside.machine().unwrap().look().unwrap().cards[1].reserved, Bytes::ZERO);
    let error = cards.machine().unwrap().look().map(drop).and(outside.machine().unwrap().under(&token).map(drop)).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
}

#[test]
fn a_lease_lasts_as_long_as_what_shares_it() {
    let folder = Folder::new("lasts");
    let cards = folder.cards("1x1GiB", &[]);
    let lease = take(&cards, "1", "").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 300 & echo $!"]).stdout(Stdio::piped());
    lease.inherit(&mut command).unwrap();
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut pid = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut pid).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    child.wait().unwrap();
    let slot = cards.machine().unwrap().slot_of(pid);
    assert_eq!(slot, Some(0), "it is found by what it inherited");
    let report = lease.end();
    assert_eq!(report.left, [(pid, "sleep 300".to_string())]);
    assert!(!report.is_free() && take(&cards, "1", "1MiB").is_err(), "it is held until that has ended");
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    let begin = Instant::now();
    while take(&cards, "1", "").is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn whichever_card_becomes_free_is_taken() {
    let folder = Folder::new("any");
    let cards = folder.cards("3x1GiB", &[]);
    let mut held: Vec<_> = ["0,", "1,", "2,"].iter().map(|card| Some(take(&cards, card, "").unwrap())).collect();
    let request = Request { cards: Which::Count(2), wait: Some(Wait::default()), ..Request::default() };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| cards.lease(&request, &mut |_| true).unwrap());
        let machine = cards.machine().unwrap();
        let begin = Instant::now();
        while machine.look().unwrap().waiters().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(30));
        }
        let seen = machine.look().unwrap();
        let waiting = seen.waiters()[0].waiting.clone().unwrap();
        assert_eq!((waiting.some, waiting.asked.len()), (2, 3), "two of three");
        held[2] = None;
        // One is not enough, and it may not be taken meanwhile.
        assert!(take(&cards, "2,", "1MiB").is_err());
        assert_eq!(machine.look().unwrap().cards[2].reserved, Bytes::ZERO);
        held[0] = None;
        assert_eq!(numbers(&waits.join().unwrap()), [0, 2]);
    });
}
