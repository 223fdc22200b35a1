//! A ledger that several users share: the abilities of each. Acting as two users needs root.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{Machine, Obstacle, Priorities, Scope, Setup, StateDir, UserId, Wait, remove};

use super::child::{Player, command, say, stay};
use super::{Folder, SET, holder, identity, reserved, stress};

const GROUP: u32 = 59000;
const ALICE: u32 = 59001;
const BOB: u32 = 59002;

/// A machine's folder for a group, and processes that act as its users.
struct Lab(Folder);

impl Lab {
    /// None where this process cannot act as other users, which is said.
    fn new(test: &str) -> Option<Lab> {
        let program = std::env::current_exe().unwrap();
        let reachable = program.ancestors().all(|path| fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o005 == 0o005));
        // SAFETY: reads a number.
        if unsafe { libc::geteuid() } != 0 || !reachable {
            eprintln!("skipped: only root can act as two users, and they must be able to start {}", program.display());
            return None;
        }
        let folder = Folder::new(test);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        let lab = Lab(folder);
        lab.setup().make().unwrap();
        Some(lab)
    }

    fn state(&self) -> PathBuf {
        self.0.0.join("lab")
    }

    fn setup(&self) -> Setup {
        Setup { folder: self.state(), ..Setup::group(GROUP.to_string()) }
    }

    fn machine(&self, capacities: &[u64]) -> Machine {
        super::open(&self.state(), capacities)
    }

    fn play(&self, user: u32, role: &str) -> Player {
        let mut command = command(role, &self.state());
        command.uid(user).gid(GROUP).current_dir("/");
        Player::start(command)
    }

    /// The first answer of a user in a role.
    fn hears(&self, user: u32, role: &str) -> String {
        self.play(user, role).hears()
    }

    fn home(&self, user: u32) -> PathBuf {
        self.state().join(format!("users/{user}"))
    }

    fn ledger(&self, user: u32) -> PathBuf {
        self.home(user).join(format!("{SET}.ledger"))
    }
}

/// Flaws of users' ledgers, in one text.
fn doubts(machine: &Machine) -> String {
    machine.look().unwrap().doubts.join("; ")
}

/// In a process of a user other than root.
pub fn sets_up(folder: &Path) -> String {
    let made = Setup { folder: folder.with_extension("own"), ..Setup::group(GROUP.to_string()) }.make();
    [made.map(drop), remove(folder)]
        .map(|done| done.map_or_else(|error| error.to_string().replace('\n', " "), |()| "done".into()))
        .join(" / ")
}

#[test]
fn a_folder_is_made_changed_and_taken_away() {
    let Some(lab) = Lab::new("setup") else { return };
    let facts = |name: &str| {
        let facts = fs::symlink_metadata(lab.state().join(name)).unwrap();
        (facts.uid(), facts.gid(), facts.mode() & 0o7777)
    };
    let expected = [("", 0o750), ("settings", 0o640), ("lock", 0o640), ("users", 0o3770), ("users/0", 0o2750)];
    for (name, mode) in expected {
        assert_eq!(facts(name), (0, GROUP, mode), "{name}");
    }
    let lock = fs::metadata(lab.state().join("lock")).unwrap().ino();
    let bounds = |least, most| Priorities { least, most };
    let again = Setup {
        priorities: Some(bounds(-1, 1)),
        users: vec![("root".into(), bounds(0, 5)), ("59001".into(), bounds(2, 2))],
        ..lab.setup()
    };
    let made = again.make().unwrap();
    assert_eq!(
        (made.is_new, made.priorities, made.users),
        (false, bounds(-1, 1), vec![(UserId(0), bounds(0, 5)), (UserId(ALICE), bounds(2, 2))])
    );
    let kept = lab.setup().make().unwrap();
    assert_eq!((kept.priorities, kept.users.len()), (bounds(-1, 1), 2), "nothing said, nothing changed");
    assert_eq!(fs::metadata(lab.state().join("lock")).unwrap().ino(), lock, "programs that use it go on");
    for (name, mode) in expected {
        assert_eq!(facts(name), (0, GROUP, mode), "{name}");
    }
    let refused = |setup: Setup, code: Code, words: &str| {
        let error = setup.make().unwrap_err();
        assert!(error.code() == code && error.message().contains(words), "{error}");
    };
    refused(Setup { group: "59009".into(), ..lab.setup() }, Code::FailedPrecondition, "is for the group 59000");
    refused(Setup { group: "no such group".into(), ..lab.setup() }, Code::NotFound, "no group 'no such group'");
    refused(Setup { users: vec![("no such user".into(), bounds(0, 0))], ..lab.setup() }, Code::NotFound, "no user 'no such user'");
    refused(Setup { folder: lab.0.0.clone(), ..lab.setup() }, Code::FailedPrecondition, "holds something else");
    let open = lab.0.0.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    refused(Setup { folder: open.join("lab"), ..lab.setup() }, Code::FailedPrecondition, "can be changed by others than root");
    refused(Setup { folder: "/proc/plimsoll".into(), ..lab.setup() }, Code::Unavailable, "cannot be made");
    let heard = lab.hears(ALICE, "setup");
    assert!(heard.matches("PERMISSION_DENIED").count() == 2 && heard.contains("is for root"), "{heard}");
    let mut alice = lab.play(ALICE, "hold 10 4");
    assert_eq!(alice.hears(), "holds");
    let error = remove(&lab.state()).unwrap_err();
    assert!(error.code() == Code::FailedPrecondition && error.message().contains("59001"), "{error}");
    alice.kill();
    remove(&lab.state()).unwrap();
    assert!(!lab.state().exists() && remove(&lab.state()).unwrap_err().code() == Code::NotFound);
}

#[test]
fn users_share_one_line_and_are_named() {
    let Some(lab) = Lab::new("share") else { return };
    let machine = lab.machine(&[10]);
    let mut alice = lab.play(ALICE, "hold 10 6");
    assert_eq!(alice.hears(), "holds");
    let own = machine.join(&identity("own")).unwrap();
    let error = Error::from(own.reserve(&[(0, Bytes(5))]).unwrap_err());
    assert!(error.message().contains(&format!("held by pid {} of 59001 (", alice.pid())), "{error}");
    own.reserve(&[(0, Bytes(1))]).unwrap();
    let mut bob = lab.play(BOB, "wait 10 5");
    assert_eq!(bob.hears(), "waits");
    let seen = machine.look().unwrap();
    let entries: Vec<_> = seen.entries.iter().map(|entry| (entry.user, entry.pid, entry.waiting.is_some())).collect();
    let expected = [(0, std::process::id(), false), (ALICE, alice.pid(), false), (BOB, bob.pid(), true)];
    assert_eq!(entries, expected.map(|(user, pid, waits)| (Some(UserId(user)), pid, waits)));
    assert_eq!((seen.cards[0].reserved, seen.doubts.len()), (Bytes(7), 0));
    // A later request that would delay another user's is behind it.
    let error = Error::from(own.reserve(&[(0, Bytes(3))]).unwrap_err());
    assert!(error.message().contains(&format!("waited for by pid {} of 59002 (", bob.pid())), "{error}");
    alice.kill();
    assert_eq!(bob.hears(), "holds", "a waiter is woken by another user's death");
    assert_eq!(reserved(&machine), [6]);
    bob.kill();
    assert_eq!(reserved(&machine), [1]);
}

#[test]
fn a_mask_that_takes_all_rights_away_changes_nothing() {
    let Some(lab) = Lab::new("mask") else { return };
    let masked = |user: u32, state: &Path, role: &str| {
        let mut command = command(role, state);
        command.uid(user).gid(GROUP).current_dir("/");
        // SAFETY: sets a number of the process that is started.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o777);
                Ok(())
            })
        };
        Player::start(command)
    };
    // A user's own folder, and the machine's.
    let own = lab.0.0.join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(ALICE), Some(GROUP)).unwrap();
    for state in [own.join("state"), lab.state()] {
        let mut first = masked(ALICE, &state, "hold 10 4");
        assert_eq!(first.hears(), "holds");
        let mut second = masked(ALICE, &state, "hold 10 4");
        assert_eq!(second.hears(), "holds");
        let mut third = masked(ALICE, &state, "wait 10 4");
        assert_eq!(third.hears(), "waits");
        first.kill();
        assert_eq!(third.hears(), "holds");
        drop((second, third));
        // Bytes left to a program by one that has ended.
        let mut wrapper = masked(ALICE, &state, "lease");
        let pids = wrapper.hears();
        wrapper.kill();
        let mut waiter = masked(ALICE, &state, "wait 10 10");
        assert_eq!(waiter.hears(), "waits", "the program lives");
        pids.split(' ').for_each(super::leases::end);
        assert_eq!(waiter.hears(), "holds");
    }
    assert_eq!(doubts(&lab.machine(&[10])), "");
}

#[test]
fn the_line_holds_between_users() {
    let Some(lab) = Lab::new("stress-users") else { return };
    let memory = lab.0.0.join("memory");
    fs::write(&memory, "").unwrap();
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o666)).unwrap();
    let (count, time) = stress::extent();
    let machine = lab.machine(&stress::CAPACITIES);
    stress::holds(&machine, count, time, &|role, number| lab.play([ALICE, BOB, 0][number as usize % 3], role));
    assert_eq!(doubts(&machine), "");
}

#[test]
fn users_outside_of_the_group_are_told() {
    let Some(lab) = Lab::new("outside") else { return };
    assert!(
        matches!(StateDir::of_machine(lab.state()).unwrap().scope(), Scope::Machine { group, user: UserId(0), .. } if group == "59000")
    );
    let mut stranger = command("state-of-machine", &lab.state());
    stranger.uid(ALICE).gid(ALICE).current_dir("/");
    let heard = Player::start(stranger).hears();
    assert!(heard.contains("PERMISSION_DENIED") && heard.contains("is for the group 59000, and user 59001 is not in it"), "{heard}");
}

/// Attempts of a user with the files of another one and of root, without this crate.
pub fn attack(folder: &Path, victim: &str) -> String {
    let home = folder.join("users").join(victim);
    let (ledger, leases) = (home.join("test.ledger"), home.join("test.ledger.leases"));
    let fifo = leases.join("0");
    let write = |path: &Path| fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).is_ok();
    use std::os::unix::fs::OpenOptionsExt;
    let aside = folder.join("users/aside");
    let mode = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).is_ok();
    let mut done = Vec::new();
    for path in [&ledger, &fifo, &folder.join("lock"), &folder.join("settings")] {
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        let mut tried = |what: &str, did: bool| {
            if did {
                done.push(format!("{what} {name}"));
            }
        };
        tried("writes", write(path));
        tried("removes", fs::remove_file(path).is_ok());
        tried("moves", fs::rename(path, &aside).is_ok());
        tried("opens", mode(path));
        tried("takes", chown(path, Some(BOB), None).is_ok());
        tried("links", fs::hard_link(path, &aside).is_ok());
    }
    for path in [&home, &leases, &folder.join("users"), folder] {
        let name = path.strip_prefix(folder).unwrap().display().to_string();
        let mut tried = |what: &str, did: bool| {
            if did {
                done.push(format!("{what} folder {name}"));
            }
        };
        tried("removes", fs::remove_dir(path).is_ok());
        tried("moves", fs::rename(path, &aside).is_ok());
        tried("opens", mode(path));
        // New entries are for users' own folders.
        tried("adds to", *path != folder.join("users") && fs::write(path.join("more"), "").is_ok());
    }
    if done.is_empty() { "nothing".into() } else { done.join(", ") }
}

/// Locks for reading every file that can be opened for that, as far as it goes.
pub fn locks_for_reading(folder: &Path, victim: &str) {
    let home = folder.join("users").join(victim);
    let mut handles = Vec::new();
    let paths: Vec<PathBuf> =
        (0..8).map(|slot| home.join(format!("test.ledger.leases/{slot}"))).chain([home.join("test.ledger")]).collect();
    for path in paths {
        use std::os::unix::fs::OpenOptionsExt;
        let Ok(file) = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) else { continue };
        let lock = |start: i64, count: i64| {
            // SAFETY: numbers only, for which zero is a value.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_start, lock.l_len) = (libc::F_RDLCK as i16, start, count);
            // SAFETY: the structure is what the command reads.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
        };
        let _ = file.try_lock();
        if !lock(0, 0) {
            for slot in 0..8 {
                let _ = lock((1 << 40) + slot, 1);
            }
        }
        handles.push(file);
    }
    say(&handles.len().to_string());
    stay();
}

#[test]
fn no_user_can_alter_or_fake_or_block_what_another_has() {
    let Some(lab) = Lab::new("attack") else { return };
    let machine = lab.machine(&[10]);
    let mut alice = lab.play(ALICE, "hold 10 4");
    assert_eq!(alice.hears(), "holds");
    assert_eq!(lab.hears(BOB, "attack 59001"), "nothing");
    assert_eq!((reserved(&machine), doubts(&machine)), (vec![4], String::new()));
    // Locks that every reader can take: they neither keep the dead alive nor the living out.
    let mut locks = lab.play(BOB, "read-lock 59001");
    assert_eq!(locks.hears(), "2");
    let mut second = lab.play(ALICE, "hold 10 3");
    assert_eq!(second.hears(), "holds");
    assert_eq!(reserved(&machine), [7]);
    alice.kill();
    assert_eq!(reserved(&machine), [3]);
    let mut third = lab.play(ALICE, "hold 10 5");
    assert_eq!(third.hears(), "holds");
    assert_eq!(reserved(&machine), [8]);
    let mut more = lab.play(BOB, "read-lock 59001");
    more.hears();
    second.kill();
    third.kill();
    assert_eq!(reserved(&machine), [0], "a lock for reading is no proof");
    let mut again = lab.play(ALICE, "hold 10 10");
    assert_eq!(again.hears(), "holds");
}

/// The checksum of a record, as the format has it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0x706c_696d_736f_6c6c, |hash: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// Changes the first slot of a ledger, and makes its checksum right.
fn forge(ledger: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = File::options().read(true).write(true).open(ledger).unwrap();
    let mut page = vec![0; 4096];
    file.read_exact_at(&mut page, 4096).unwrap();
    let length = u64::from_le_bytes(page[8..16].try_into().unwrap()) as usize;
    let mut record = page[..length].to_vec();
    change(&mut record);
    let sum = checksum(&record[8..]);
    record[..8].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&record, 4096).unwrap();
}

/// Every record that a user may write into the own ledger: it never counts as more than the card, and the user is named.
#[test]
fn what_a_ledger_claims_is_bounded_and_named() {
    let Some(lab) = Lab::new("claims") else { return };
    let machine = lab.machine(&[10]);
    let own = holder(&machine, "own", 3);
    let mut bob = lab.play(BOB, "hold 10 2");
    assert_eq!(bob.hears(), "holds");
    let whole = fs::read(lab.ledger(BOB)).unwrap();
    let file = File::options().write(true).open(lab.ledger(BOB)).unwrap();
    let restore = || {
        file.set_len(0).unwrap();
        file.write_all_at(&whole, 0).unwrap();
    };
    let denied = |what: &str, words: &str, claimed: u64| {
        let seen = machine.look().unwrap();
        let said = seen.doubts.join("; ");
        assert!(said.contains(words) && said.contains("59002"), "{what}: {said}");
        assert_eq!((seen.cards[0].reserved, seen.cards[0].free), (Bytes(3 + claimed), Bytes(7u64.saturating_sub(claimed))), "{what}");
        assert_eq!(own.reserve(&[(0, Bytes(6))]).is_err(), claimed > 1, "{what}");
        own.release(&[(0, Bytes(own.reserved(0).0 - 3))]).unwrap();
    };
    type Change = fn(&mut Vec<u8>);
    // Of the one card: its hash, reserved bytes, asked bytes.
    let claims: [(&str, &str, u64, Change); 3] = [
        ("more than the card", "claims 16777216.00 TiB of card 0, which has 10 B", 10, |record| {
            let at = record.len() - 17;
            record[at..][..8].fill(0xff);
        }),
        ("a card twice", "names card 0 twice", 10 + 2, |record| {
            let at = record.len() - 26;
            record[at] = 2;
            let (card, guarantee) = (record[at + 1..at + 25].to_vec(), record.pop());
            record.extend(card.into_iter().chain(guarantee));
            let length = record.len() as u64;
            record[8..16].copy_from_slice(&length.to_le_bytes());
        }),
        ("all of the card beside others", "13 B of card 0 are claimed, which has 10 B", 10, |record| {
            let at = record.len() - 17;
            record[at] = 10;
        }),
    ];
    for (what, words, claimed, change) in claims {
        forge(&lab.ledger(BOB), change);
        denied(what, words, claimed);
        restore();
    }
    file.write_all_at(&[0x55; 40], 4096 + 30).unwrap();
    denied("garbage", "slot 0 of user 59002 is in use and cannot be read: it counts as all of every card", 10);
    restore();
    for (what, words, change) in [
        ("cut short", "was cut short to 5000 bytes, and programs use it", (|file| file.set_len(5000).unwrap()) as fn(&File)),
        ("no header", "is damaged, and programs use it", |file| file.write_all_at(&[1; 12], 0).unwrap()),
        ("another version", "is of another version, and programs use it", |file| file.write_all_at(&[9], 8).unwrap()),
    ] {
        change(&file);
        denied(what, words, 10);
        restore();
    }
    assert_eq!((reserved(&machine), doubts(&machine)), (vec![5], String::new()));
    // Control characters would be obeyed by terminals.
    forge(&lab.ledger(BOB), |record| {
        let at = record.windows(5).position(|text| text == b"child").unwrap();
        record[at..at + 5].copy_from_slice(b"\x1b[2J\n");
    });
    assert!(machine.look().unwrap().entries.iter().all(|entry| !entry.name.contains('\x1b') && !entry.name.contains('\n')));
    bob.kill();
    assert_eq!(reserved(&machine), [3], "with the process all of it ends");
}

/// Things in the place of a user's ledger that nothing may wait for.
#[test]
fn what_stands_in_the_place_of_a_ledger_delays_none() {
    let Some(lab) = Lab::new("places") else { return };
    let machine = lab.machine(&[10]);
    let mut bob = lab.play(BOB, "hold 10 2");
    assert_eq!(bob.hears(), "holds");
    bob.kill();
    let (home, ledger) = (lab.home(BOB), lab.ledger(BOB));
    let make: [(&str, &dyn Fn()); 5] = [
        ("a link", &|| symlink("/etc/passwd", &ledger).unwrap()),
        ("a FIFO", &|| assert!(Command::new("mkfifo").arg(&ledger).status().unwrap().success())),
        ("a folder", &|| fs::create_dir(&ledger).unwrap()),
        ("a link to a device", &|| symlink("/dev/zero", &ledger).unwrap()),
        ("a sparse file", &|| File::create(&ledger).and_then(|file| file.set_len(1 << 42)).unwrap()),
    ];
    for (what, make) in make {
        fs::remove_file(&ledger).or_else(|_| fs::remove_dir(&ledger)).unwrap();
        make();
        if fs::symlink_metadata(&ledger).unwrap().is_file() {
            chown(&ledger, Some(BOB), Some(GROUP)).unwrap();
        }
        let held = holder(&machine, "", 10);
        let said = doubts(&machine);
        assert!(said.contains("the ledger of user 59002") && said.contains("counts for nothing"), "{what}: {said}");
        drop(held);
    }
    fs::remove_file(&ledger).unwrap();
    // A file of another user there, and a place that another user took.
    fs::copy(lab.ledger(0), &ledger).unwrap();
    assert!(doubts(&machine).contains("is not a file of that user"), "{}", doubts(&machine));
    fs::remove_dir_all(&home).unwrap();
    fs::create_dir(&home).unwrap();
    chown(&home, Some(ALICE), Some(GROUP)).unwrap();
    assert!(doubts(&machine).contains("user 59001 has taken the place of user 59002"), "{}", doubts(&machine));
    let heard = lab.hears(BOB, "state");
    assert!(heard.contains("PERMISSION_DENIED") && heard.contains("was taken by user 59001"), "{heard}");
    // More entries than users.
    for number in 0..4100 {
        fs::create_dir(lab.state().join(format!("users/x{number}"))).unwrap();
    }
    let error = machine.look().unwrap_err();
    assert!(
        error.code() == Code::ResourceExhausted && error.message().contains("more than 4096 entries, most of them made by user root"),
        "{error}"
    );
}

#[test]
fn a_user_has_a_bounded_number_of_members() {
    let Some(lab) = Lab::new("many") else { return };
    let machine = lab.machine(&[10]);
    let mut bob = lab.play(BOB, "hold 10 2");
    assert_eq!(bob.hears(), "holds");
    // Slots beyond the bound are not looked at, whatever the file says.
    let file = File::options().write(true).open(lab.ledger(BOB)).unwrap();
    file.set_len(4096 * 4001).unwrap();
    file.write_all_at(&4000u64.to_le_bytes(), 32).unwrap();
    assert_eq!((reserved(&machine), doubts(&machine)), (vec![2], String::new()));
    let _bob = bob;
}

#[test]
fn a_process_that_keeps_the_lock_is_named_and_waited_for_with_a_bound() {
    let Some(lab) = Lab::new("locked") else { return };
    let machine = lab.machine(&[10]).with_patience(Duration::from_millis(200)).unwrap();
    let held = holder(&machine, "", 4);
    let mut bob = lab.play(BOB, "flock");
    assert_eq!(bob.hears(), "locked");
    let name = format!("by pid {} of 59002 (", bob.pid());
    let error = machine.join(&identity("")).unwrap_err();
    assert!(error.code() == Code::Unavailable && error.message().contains(&name), "{error}");
    assert!(held.reserve(&[(0, Bytes(1))]).is_err());
    let seen = machine.look().unwrap();
    assert!(seen.locked.is_some_and(|locked| locked.by.contains("of 59002")) && seen.cards[0].reserved == Bytes(4));
    bob.signal(libc::SIGSTOP);
    let (mut told, mut bob) = (Vec::new(), Some(bob));
    held.reserve_waiting(&[(0, Bytes(1))], &Wait::default(), &mut |obstacle| {
        if let Obstacle::Locked(locked) = obstacle {
            told.push(locked.to_string());
            if locked.stopped
                && let Some(bob) = bob.take()
            {
                bob.kill();
            }
        }
        true
    })
    .unwrap();
    assert!(told.iter().all(|told| told.contains(&name)) && told.last().is_some_and(|told| told.ends_with("which is stopped")), "{told:?}");
    assert_eq!(reserved(&machine), [5]);
}

#[test]
fn priorities_stay_within_their_bounds() {
    let Some(lab) = Lab::new("priorities") else { return };
    let bounds = |least, most| Priorities { least, most };
    Setup { priorities: Some(bounds(-2, 2)), users: vec![("root".into(), bounds(0, 9))], ..lab.setup() }.make().unwrap();
    let machine = lab.machine(&[10]);
    let own = holder(&machine, "own", 10);
    for (priority, allowed) in [(-1, false), (0, true), (9, true), (10, false), (i32::MAX, false)] {
        let other = machine.join(&identity("")).unwrap();
        let wait = Wait { priority, timeout: Some(Duration::ZERO) };
        let error = Error::from(other.reserve_waiting(&[(0, Bytes(1))], &wait, &mut |_| true).unwrap_err());
        assert_eq!(error.code(), if allowed { Code::DeadlineExceeded } else { Code::PermissionDenied }, "{error}");
        assert!(allowed || error.message().contains("outside of 0..9, which this machine allows user root"), "{error}");
    }
    // A priority written without asking is read as the nearest that is allowed.
    let mut bob = lab.play(BOB, "wait 10 5 2");
    assert_eq!(bob.hears(), "waits");
    forge(&lab.ledger(BOB), |record| record[36..40].copy_from_slice(&i32::MAX.to_le_bytes()));
    let seen = machine.look().unwrap();
    assert_eq!(seen.waiters()[0].waiting.as_ref().map(|waiting| waiting.priority), Some(2));
    forge(&lab.ledger(BOB), |record| record[36..40].copy_from_slice(&2i32.to_le_bytes()));
    drop(own);
    assert_eq!(bob.hears(), "holds");
}

/// A program that has a lease keeps it for other users, too, when the wrapper is gone.
#[test]
fn a_lease_of_another_user_lasts_as_long_as_the_program() {
    let Some(lab) = Lab::new("lease-users") else { return };
    let machine = lab.machine(&[10]);
    let mut wrapper = lab.play(ALICE, "lease");
    let pids = wrapper.hears();
    let (shares, stranger) = pids.split_once(' ').unwrap();
    assert_eq!(reserved(&machine), [10]);
    wrapper.kill();
    assert_eq!(reserved(&machine), [10], "the program lives");
    super::leases::end(shares);
    let begin = Instant::now();
    while reserved(&machine) != [0] {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(1));
    }
    super::leases::end(stranger);
}

/// In namespaces of their own, as containers have them, users keep their identity.
#[test]
fn users_in_namespaces_share_the_folder() {
    let Some(lab) = Lab::new("namespaces") else { return };
    let machine = lab.machine(&[10]);
    for (what, words) in [
        ("another user namespace", vec!["unshare", "--user", "--map-root-user"]),
        (
            "all of a container's",
            vec!["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--ipc", "--uts", "--net"],
        ),
    ] {
        if !Command::new("unshare").args(&words[1..]).arg("true").status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: this system makes no namespaces ({what})");
            continue;
        }
        let plain = command("hold 10 6", &lab.state());
        let mut apart = Command::new(words[0]);
        apart.args(&words[1..]).arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            apart.env(name, value.unwrap_or_default());
        }
        apart.uid(ALICE).gid(GROUP).current_dir("/").stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut alice = Player::start(apart);
        assert_eq!(alice.hears(), "holds", "{what}");
        let seen = machine.look().unwrap();
        assert_eq!((seen.entries.len(), seen.entries[0].user, seen.cards[0].reserved), (1, Some(UserId(ALICE)), Bytes(6)), "{what}");
        let other = machine.join(&identity("")).unwrap();
        assert!(other.reserve(&[(0, Bytes(5))]).is_err(), "{what}");
        // The other way round.
        other.reserve(&[(0, Bytes(4))]).unwrap();
        drop(alice);
        let begin = Instant::now();
        while reserved(&machine) != [4] {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        }
    }
}
