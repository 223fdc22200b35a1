//! Obstacles of a ledger, and their errors.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{Machine, StateDir, Wait};

use super::child::{Player, command};
use super::{Folder, SET, cards, holder, identity, reserved};

fn root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn folders_of_others_are_refused() {
    let folder = Folder::new("folders");
    fs::create_dir(folder.0.join("real")).unwrap();
    symlink(folder.0.join("real"), folder.0.join("link")).unwrap();
    fs::write(folder.0.join("file"), "").unwrap();
    fs::create_dir(folder.0.join("open")).unwrap();
    fs::set_permissions(folder.0.join("open"), fs::Permissions::from_mode(0o770)).unwrap();
    let refused = |path: &Path, code: Code, words: &str| {
        let error = StateDir::open(path).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(words), "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("PLIMSOLL_STATE_DIR")), "{error}");
    };
    for end in ["", "/", "//", "/.", "/./"] {
        refused(&folder.0.join(format!("link{end}")), Code::PermissionDenied, "is a link");
    }
    refused(&folder.0.join("file"), Code::PermissionDenied, "is not a folder");
    refused(&folder.0.join("open"), Code::PermissionDenied, "may be written by others (mode 0770)");
    refused(&folder.0.join("no/such"), Code::NotFound, "cannot be made");
    let others = if root() {
        let path = folder.0.join("others");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        path
    } else {
        "/".into()
    };
    refused(&others, Code::PermissionDenied, "belongs to user");
    if root() {
        // As after `su` and `sudo -E`: a file made there would lock its user out.
        refused(&others.join("missing"), Code::PermissionDenied, "would be made in a folder of user 65534, and this is user 0");
        assert!(!others.join("missing").exists());
    } else {
        eprintln!("skipped: only root can make folders of another user");
    }
    let made = folder.0.join("new");
    StateDir::open(&made).unwrap();
    assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Changes to a ledger, its file and its folder, made without this crate.
pub fn tamper(state: &Path) -> String {
    let file = state.join(format!("{SET}.ledger"));
    let aside = state.with_extension("aside");
    let done = [
        ("reads", fs::read(&file).is_ok()),
        ("writes", fs::OpenOptions::new().write(true).open(&file).is_ok()),
        ("locks", fs::File::open(&file).is_ok_and(|file| file.lock().is_ok())),
        ("removes", fs::remove_file(&file).is_ok()),
        ("adds", fs::write(state.join("more.ledger"), "").is_ok()),
        ("lists", fs::read_dir(state).is_ok()),
        ("opens", fs::set_permissions(state, fs::Permissions::from_mode(0o777)).is_ok()),
        ("moves", fs::rename(state, aside).is_ok()),
    ];
    let done: Vec<&str> = done.iter().filter(|(_, done)| *done).map(|(what, _)| *what).collect();
    if done.is_empty() { "nothing".into() } else { done.join(" ") }
}

/// The same folder for another user: neither read nor altered, for every maker of the file.
#[test]
fn another_user_gets_nowhere() {
    if !root() {
        eprintln!("skipped: only root can act as two users");
        return;
    }
    let folder = Folder::new("users");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let machine = folder.machine(&[10]);
    let _held = holder(&machine, "", 10);
    // As for users that may not read this program, no user may start it either.
    let program = std::env::current_exe().unwrap();
    let reachable = program.ancestors().all(|path| fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o005 == 0o005));
    if !reachable {
        eprintln!("skipped: another user may not start {}", program.display());
        return;
    }
    let as_nobody = |role: &str, state: &Path| {
        let mut command = command(role, state);
        command.uid(65534).gid(65534);
        let mut player = Player::start(command);
        let heard = player.hears();
        player.ends_well();
        heard
    };
    let heard = as_nobody("state", &folder.state());
    assert!(heard.contains("PERMISSION_DENIED") && heard.contains("belongs to user 0, and this is user 65534"), "{heard}");
    assert_eq!(as_nobody("tamper", &folder.state()), "nothing");
    // A folder of his own that he may not write is said to be so.
    let own = folder.0.join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o500)).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let heard = as_nobody("state", &own);
    assert!(heard.contains("PERMISSION_DENIED") && heard.contains("cannot be opened"), "{heard}");
    assert_eq!(reserved(&machine), [10]);
}

#[test]
fn a_read_only_folder_is_said_to_be_so() {
    // A file system in which no folder can be made.
    let error = StateDir::open("/sys/plimsoll").unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
}

/// In a process that may not make files longer: as on a disk that is full.
pub fn without_room(state: &Path) -> String {
    let machine = super::open(state, &[10]);
    let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: sets a limit of this process, which does nothing else, and lets writing beyond it fail instead of ending it.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
    }
    let error = machine.join(&identity("")).unwrap_err();
    format!("{} {}", error.to_string().replace('\n', " "), machine.look().unwrap().entries.len())
}

#[test]
fn a_full_disk_is_said_to_be_so_and_nothing_is_broken() {
    let folder = Folder::new("disk");
    let mut player = Player::new("full", &folder.state());
    let heard = player.hears();
    assert!(heard.contains("RESOURCE_EXHAUSTED") && heard.contains("test.ledger cannot be used") && heard.ends_with(" 0"), "{heard}");
    player.ends_well();
    let machine = folder.machine(&[10]);
    let _held = holder(&machine, "", 10);
    assert_eq!(reserved(&machine), [10]);
}

#[test]
fn a_link_in_place_of_the_file_is_refused() {
    let folder = Folder::new("link");
    let state = StateDir::open(folder.state()).unwrap();
    fs::write(folder.0.join("mine"), "precious").unwrap();
    symlink(folder.0.join("mine"), folder.file()).unwrap();
    Machine::open(&state, SET, &cards(&[1])).unwrap_err();
    assert_eq!(fs::read(folder.0.join("mine")).unwrap(), b"precious");
    fs::remove_file(folder.file()).unwrap();
    fs::create_dir(folder.file()).unwrap();
    Machine::open(&state, SET, &cards(&[1])).unwrap_err();
}

#[test]
fn a_damaged_file_without_users_is_made_anew() {
    let folder = Folder::new("damaged");
    for garbage in [vec![], vec![0; 10], vec![0xff; 5000], b"PLIMSOLL\x02\0\0\0".repeat(2000)] {
        fs::write(folder.file(), garbage).unwrap_or_else(|_| StateDir::open(folder.state()).map(|_| ()).unwrap());
        let machine = folder.machine(&[10]);
        assert_eq!(machine.look().unwrap().entries.len(), 0);
        let held = holder(&machine, "", 10);
        assert_eq!(reserved(&machine), [10]);
        drop(held);
    }
    // Garbage in places without a lock.
    let machine = folder.machine(&[10]);
    let file = fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
    file.write_all_at(&[0xab; 9000], 4096).unwrap();
    let _held = holder(&machine, "", 4);
    assert_eq!(reserved(&machine), [4]);
}

#[test]
fn damage_to_living_members_is_named() {
    let folder = Folder::new("alive");
    let machine = folder.machine(&[10]);
    let mut child = Player::new("hold 10 4", &folder.state());
    assert_eq!(child.hears(), "holds");
    let file = fs::OpenOptions::new().read(true).write(true).open(folder.file()).unwrap();
    let mut before = vec![0; 8192];
    file.read_exact_at(&mut before, 0).unwrap();
    let refused = |words: &str| {
        let member = machine.join(&identity("")).map(drop).unwrap_err();
        let look = machine.look().unwrap_err();
        for error in [member, look] {
            assert_eq!(error.code(), Code::DataLoss, "{error}");
            assert!(error.message().contains(words) && error.message().contains(&format!("pid {} (", child.pid())), "{error}");
        }
    };
    file.write_all_at(&[0x55; 40], 4096 + 30).unwrap();
    refused("slot 0 is in use and cannot be read");
    file.write_all_at(&before, 0).unwrap();
    file.write_all_at(&[9], 8).unwrap();
    refused("is of another version and in use");
    file.write_all_at(&[0; 20], 0).unwrap();
    refused("is damaged and in use");
    file.write_all_at(&before, 0).unwrap();
    assert_eq!(reserved(&machine), [4]);
    file.write_all_at(&[0; 4096], 0).unwrap();
    child.kill();
    assert_eq!(reserved(&machine), [0], "once they are gone all is well");
}

#[test]
fn a_file_that_is_replaced_is_noticed() {
    let folder = Folder::new("replaced");
    let machine = folder.machine(&[10]);
    let held = holder(&machine, "", 4);
    held.check_place().unwrap();
    fs::remove_file(folder.file()).unwrap();
    for replaced in [false, true] {
        if replaced {
            fs::write(folder.file(), "").unwrap();
        }
        held.check_place().unwrap_err();
        let error = Error::from(held.reserve(&[(0, Bytes(1))]).unwrap_err());
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        assert!(machine.look().is_err() && machine.join(&identity("")).is_err() && held.release(&[(0, Bytes(1))]).is_err());
    }
}

#[test]
fn a_process_stuck_in_a_transaction_is_named() {
    let folder = Folder::new("stuck");
    let machine = folder.machine(&[10]).with_patience(Duration::from_millis(100)).unwrap();
    let held = holder(&machine, "", 4);
    let mut stuck = Player::new("stuck", &folder.state());
    assert_eq!(stuck.hears(), "locked");
    stuck.signal(libc::SIGSTOP);
    let name = format!("has been locked for 100ms by pid {} (", stuck.pid());
    let mut error = machine.join(&identity("")).unwrap_err();
    // A signal takes its time.
    for _ in 0..100 {
        if error.message().contains("which is stopped") {
            break;
        }
        error = machine.join(&identity("")).unwrap_err();
    }
    assert!(error.message().contains(&name) && error.message().ends_with("which is stopped"), "{error}");
    let seen = machine.look().unwrap();
    assert!(seen.locked.is_some_and(|locked| locked.stopped && locked.by.contains(&format!("pid {} (", stuck.pid()))));
    assert_eq!(seen.cards[0].reserved, Bytes(4), "who only looks sees what is there");
    assert!(machine.join(&identity("")).is_err() && held.reserve(&[(0, Bytes(1))]).is_err());
    assert!(held.release(&[(0, Bytes(1))]).is_err());
    // Leaving needs no transaction.
    drop(held);
    stuck.kill();
    assert_eq!(reserved(&machine), [0]);
}

#[test]
fn what_could_not_be_given_back_is_with_the_next_change() {
    let folder = Folder::new("later");
    let machine = folder.machine(&[10]).with_patience(Duration::from_millis(50)).unwrap();
    let held = holder(&machine, "", 9);
    let mut stuck = Player::new("stuck", &folder.state());
    assert_eq!(stuck.hears(), "locked");
    assert!(held.release(&[(0, Bytes(5))]).is_err());
    stuck.kill();
    assert_eq!(reserved(&machine), [9]);
    held.reserve(&[(0, Bytes(6))]).unwrap();
    assert_eq!((reserved(&machine), held.reserved(0)), (vec![10], Bytes(10)));
}

/// A ledger that is shorter than it was, by any number of bytes.
#[test]
fn a_file_that_was_cut_short_is_said_to_be_so() {
    let folder = Folder::new("short");
    let machine = folder.machine(&[10]);
    let held = holder(&machine, "", 4);
    let whole = fs::read(folder.file()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.file()).unwrap();
    let own = format!("pid {} (", std::process::id());
    for length in [0, 1, 8, 11, 12, 40, 100, 4095, 4096, 5000, 8191] {
        file.set_len(length).unwrap();
        let newcomer =
            Machine::open(&StateDir::open(folder.state()).unwrap(), SET, &cards(&[10])).and_then(|machine| machine.look()).map(drop);
        let reserved = held.reserve(&[(0, Bytes(1))]).map_err(Error::from);
        let waited = held.reserve_waiting(&[(0, Bytes(1))], &Wait::default(), &mut |_| true).map_err(Error::from);
        for error in [newcomer, reserved, waited].map(Result::unwrap_err) {
            assert_eq!(error.code(), Code::DataLoss, "{length}: {error}");
            assert!(error.message().contains("cut short") && error.message().contains(&own), "{length}: {error}");
        }
        file.set_len(0).unwrap();
        file.write_all_at(&whole, 0).unwrap();
    }
    assert_eq!(reserved(&machine), [4]);
    file.set_len(100).unwrap();
    drop(held);
    assert_eq!(reserved(&machine), [0], "a ledger that has no members is made anew");
}

/// The errors of newcomers that find no ledger, or another one than was there.
fn newcomers_are_told(folder: &Folder, pid: u32, what: &str) {
    let opened = Machine::open(&StateDir::open(folder.state()).unwrap(), SET, &cards(&[10]));
    let error = opened.and_then(|machine| machine.join(&identity("newcomer"))).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::DataLoss, "{what}: {error}");
    assert!(error.message().contains(&format!("pid {pid} (")), "{what}: {error}");
}

/// The change to a ledger, in words and in deed.
type Removal = (&'static str, fn(&Folder));

fn removals() -> [Removal; 4] {
    [
        ("the file is removed", |folder| fs::remove_file(folder.file()).unwrap()),
        ("the file is moved", |folder| fs::rename(folder.file(), folder.0.join("aside")).unwrap()),
        ("the file is replaced by a copy", |folder| {
            fs::copy(folder.file(), folder.0.join("copy")).unwrap();
            fs::rename(folder.0.join("copy"), folder.file()).unwrap();
        }),
        ("the folder is removed", |folder| fs::remove_dir_all(folder.state()).unwrap()),
    ]
}

#[test]
fn no_second_ledger_is_made_beside_members() {
    for (what, remove) in removals() {
        let folder = Folder::new("second");
        let machine = folder.machine(&[10]);
        let mut child = Player::new("hold 10 4", &folder.state());
        assert_eq!(child.hears(), "holds");
        remove(&folder);
        newcomers_are_told(&folder, child.pid(), what);
        newcomers_are_told(&folder, child.pid(), what);
        assert!(machine.look().is_err(), "{what}");
        child.kill();
        // A ledger that was opened before is not the one that is there now.
        assert_eq!(reserved(&folder.machine(&[10])), [0], "{what}");
    }
}

/// The same where programs hold bytes that a process left to them. These programs and the newcomer see other process ids, mounts
/// and networks than each other.
#[test]
fn no_second_ledger_is_made_beside_leases() {
    let apart = ["", "--mount --pid --fork --kill-child --net"];
    let can = |options: &str| {
        let mut command = Command::new("unshare");
        options.is_empty() || command.args(options.split(' ')).arg("true").output().is_ok_and(|output| output.status.success())
    };
    for options in apart {
        if !can(options) {
            eprintln!("skipped: unshare {options} is not to be had");
            continue;
        }
        for (what, remove) in removals() {
            let folder = Folder::new("leases");
            folder.machine(&[10]);
            let mut wrapper = Player::apart("lease", &folder.state(), options);
            let heard = wrapper.hears();
            let (shares, stranger) = heard.split_once(' ').unwrap();
            wrapper.kill_inside();
            remove(&folder);
            if options.is_empty() {
                newcomers_are_told(&folder, shares.parse().unwrap(), what);
                super::leases::end(shares);
                super::leases::end(stranger);
            } else {
                let state = StateDir::open(folder.state()).unwrap();
                let error = Machine::open(&state, SET, &cards(&[10])).and_then(|machine| machine.look()).map(drop).unwrap_err();
                assert_eq!(error.code(), Code::DataLoss, "{what}: {error}");
                // The first process of the namespace ends all in it.
                wrapper.kill();
            }
            let begin = Instant::now();
            while Machine::open(&StateDir::open(folder.state()).unwrap(), SET, &cards(&[10])).and_then(|machine| machine.look()).is_err() {
                assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
            }
        }
    }
}

/// The files of leases are removed, and the ledger is not: the leases count all the same.
#[test]
fn a_lease_whose_file_is_removed_counts() {
    let folder = Folder::new("lease-file");
    let machine = folder.machine(&[10]);
    let mut wrapper = Player::new("lease", &folder.state());
    let heard = wrapper.hears();
    let (shares, stranger) = heard.split_once(' ').unwrap();
    wrapper.kill();
    let leases = folder.state().join(format!("{SET}.ledger.leases"));
    fs::remove_dir_all(&leases).unwrap();
    assert_eq!(reserved(&machine), [10]);
    fs::create_dir(&leases).unwrap();
    fs::write(leases.join("0"), "").unwrap();
    assert_eq!(reserved(&machine), [10], "another file in its place");
    super::leases::end(shares);
    super::leases::end(stranger);
    let begin = Instant::now();
    while reserved(&machine) != [0] {
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}

/// As programs do that become daemons: handles that they do not know are closed, and their numbers are used again.
#[test]
fn a_handle_that_the_program_closed_is_not_written_to() {
    use std::os::fd::AsRawFd;
    let folder = Folder::new("closed");
    let machine = folder.machine(&[10]);
    let member = machine.join(&identity("")).unwrap();
    let mine = folder.0.join("mine");
    fs::write(&mine, "precious").unwrap();
    let file = fs::File::options().read(true).write(true).open(&mine).unwrap();
    let mut closed = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if fs::read_link(entry.path()).is_ok_and(|path| path == folder.file()) {
            let number = entry.file_name().to_string_lossy().parse().unwrap();
            // SAFETY: numbers of files, of which the second one is this test's alone.
            assert!(unsafe { libc::dup2(file.as_raw_fd(), number) } >= 0);
            closed += 1;
        }
    }
    assert!(closed > 0);
    assert!(member.try_reserve(0, Bytes(1)).is_err());
    member.set_used(0, Bytes(1));
    assert_eq!(fs::read(&mine).unwrap(), b"precious");
}
