//! Places that other processes share: on purpose, and by forking.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_machine::{Identity, Wait};

use super::child::{Player, say, stay};
use super::{Folder, holder, identity, open, reserved};

/// A process that takes a place, starts a program that shares it, and leaves the place to it.
#[expect(clippy::zombie_processes, reason = "they outlive the process that starts them")]
pub fn leases(state: &Path) {
    let member = open(state, &[10]).join(&Identity::this_process("lease")).unwrap();
    member.reserve(&[(0, Bytes(10))]).unwrap();
    // One that shares it and one that does not.
    let mut command = Command::new("sleep");
    member.inherit(command.arg("300")).unwrap();
    let shares = command.spawn().unwrap();
    drop(command);
    let stranger = Command::new("sleep").arg("300").spawn().unwrap();
    say(&format!("{} {}", shares.id(), stranger.id()));
    member.detach();
    stay();
}

/// A process that takes a place and forks: the fork sleeps and is not to be waited for.
pub fn forks(state: &Path) {
    let member = open(state, &[10]).join(&Identity::this_process("forks")).unwrap();
    member.reserve(&[(0, Bytes(10))]).unwrap();
    // SAFETY: the fork of a process with one more thread, which reads; it makes a few system calls and uses this crate.
    let fork = unsafe { libc::fork() };
    if fork == 0 {
        let error = Error::from(member.reserve(&[(0, Bytes(1))]).unwrap_err());
        let refused = error.code() == Code::FailedPrecondition && member.release(&[(0, Bytes(10))]).is_err();
        drop(member);
        if refused {
            // SAFETY: sleeps until a signal comes, then ends without running anything of the parent's.
            unsafe { libc::pause() };
        }
        // SAFETY: as above.
        unsafe { libc::_exit(1) };
    }
    say(&fork.to_string());
    // The parent drops the member when it is told to.
    stay();
    drop(member);
    say("dropped");
    // SAFETY: the fork is a child of this process that was not waited for yet.
    unsafe {
        libc::kill(fork, libc::SIGKILL);
        libc::waitpid(fork, std::ptr::null_mut(), 0);
    }
}

pub fn end(pid: &str) {
    // SAFETY: a process that the player started for this test, and that ends in no other way.
    unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
}

#[test]
fn a_lease_lasts_as_long_as_the_program() {
    let folder = Folder::new("lease");
    let machine = folder.machine(&[10]);
    let mut wrapper = Player::new("lease", &folder.state());
    let pids = wrapper.hears();
    let (shares, stranger) = pids.split_once(' ').unwrap();
    assert_eq!(reserved(&machine), [10]);
    let shown = || machine.look().unwrap().entries.iter().map(|entry| (entry.pid.to_string(), entry.program.clone())).collect::<Vec<_>>();
    wrapper.kill();
    // The member that joined is gone: the program that lives on is shown.
    assert_eq!(shown(), [(shares.to_string(), "sleep 300".to_string())]);
    assert_eq!(reserved(&machine), [10], "the program lives");
    assert_eq!(machine.look().unwrap().entries[0].name, "lease");
    // And named where it is in the way.
    let member = machine.join(&identity("newcomer")).unwrap();
    let mut told = String::new();
    let soon = Wait { priority: 0, timeout: Some(Duration::from_millis(20)) };
    let waited = member.reserve_waiting(&[(0, Bytes(1))], &soon, &mut |obstacle| {
        told = obstacle.to_string();
        true
    });
    for error in [member.reserve(&[(0, Bytes(1))]), waited].map(|denied| Error::from(denied.unwrap_err()).to_string()) {
        assert!(error.contains(&format!("held by pid {shares} (sleep 300)")), "{error}");
    }
    assert!(told.contains(&format!("held by pid {shares} (sleep 300)")), "{told}");
    drop(member);
    end(shares);
    let begin = std::time::Instant::now();
    while reserved(&machine) != [0] {
        assert!(begin.elapsed() < std::time::Duration::from_secs(30));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    end(stranger);
}

#[test]
fn a_fork_neither_gives_back_nor_keeps() {
    let folder = Folder::new("fork");
    let machine = folder.machine(&[10]);
    let mut parent = Player::new("fork", &folder.state());
    let fork = parent.hears();
    assert!(Path::new(&format!("/proc/{fork}")).exists());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(reserved(&machine), [10], "dropping it in the fork gives nothing back");
    parent.answer();
    assert_eq!(parent.hears(), "dropped");
    assert_eq!(reserved(&machine), [0], "dropping it in the parent does, though the fork may live");
    parent.ends_well();
}

/// The open handles of a process in a folder: the file, and whether it may write.
fn handles(pid: u32, folder: &Path) -> Vec<(String, bool)> {
    let handle = |entry: std::fs::DirEntry| {
        let file = std::fs::read_link(entry.path()).ok()?.strip_prefix(folder).ok()?.display().to_string();
        let facts = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_str()?)).ok()?;
        let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
        Some((file, i32::from_str_radix(flags, 8).ok()? & libc::O_ACCMODE != libc::O_RDONLY))
    };
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter_map(handle).collect()
}

#[test]
fn what_a_program_inherits_is_its_lease_alone_and_cannot_write() {
    let folder = Folder::new("inherits");
    let machine = folder.machine(&[10]);
    let _other = holder(&machine, "other", 2);
    let member = holder(&machine, "lease", 3);
    let mut command = Command::new("sleep");
    member.inherit(command.arg("300")).unwrap();
    let mut program = command.spawn().unwrap();
    drop(command);
    assert_eq!(handles(program.id(), &folder.state()), [("test.ledger.leases/1".to_string(), false)]);
    let slot = member.slot();
    assert_eq!((slot.holders().contains(&program.id()), machine.slot_of(program.id())), (true, Some(1)));
    member.detach();
    assert!(slot.is_held() && reserved(&machine) == [5]);
    program.kill().unwrap();
    program.wait().unwrap();
    // A program that another test starts at this moment has all handles of this process until it is executed.
    let is_given_back = || !slot.is_held() && reserved(&machine) == [2];
    assert!((0..500).any(|_| is_given_back() || {
        std::thread::sleep(Duration::from_millis(10));
        false
    }));
}

/// A program of another user, which root started under a lease, tries its handle in all ways.
#[test]
fn a_program_of_another_user_can_change_nothing_with_its_lease() {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can act as two users");
        return;
    }
    let folder = Folder::new("inherits-user");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let machine = folder.machine(&[10]);
    let other = holder(&machine, "other", 7);
    let member = holder(&machine, "lease", 3);
    let script = "for handle in /proc/self/fd/*; do case $(readlink $handle) in *ledger*) \
                  echo has $handle; (echo x > $handle) && echo writes; (echo x >> $handle) && echo appends; (: <> $handle) && echo opens; \
                  truncate -s 0 $handle && echo cuts; n=${handle##*/}; (cat $handle) && echo reads; \
                  flock -n $n && echo locks its own; ;; esac; done; echo end; exec sleep 300";
    let mut command = Command::new("sh");
    command.args(["-c", script]).uid(65534).gid(65534).current_dir("/").stdout(Stdio::piped()).stderr(Stdio::null());
    member.inherit(&mut command).unwrap();
    let mut program = command.spawn().unwrap();
    drop(command);
    let mut said = Vec::new();
    for line in std::io::BufRead::lines(std::io::BufReader::new(program.stdout.take().unwrap())) {
        let line = line.unwrap();
        if line == "end" {
            break;
        }
        said.push(line);
    }
    assert!(said[0].starts_with("has /proc/self/fd/"), "{said:?}");
    let did: Vec<&str> = said.iter().map(String::as_str).filter(|line| !line.starts_with("has ")).collect();
    // No other process uses a lock of the lease's own file.
    assert!(did.iter().all(|done| *done == "locks its own"), "{said:?}");
    assert_eq!(reserved(&machine), [10]);
    assert!(other.reserve(&[(0, Bytes(1))]).is_err());
    other.release(&[(0, Bytes(7))]).unwrap();
    assert_eq!(reserved(&machine), [3]);
    // It is the lease of the process that started it, for every program.
    member.detach();
    assert_eq!(reserved(&machine), [3]);
    program.kill().unwrap();
    program.wait().unwrap();
    let begin = std::time::Instant::now();
    while reserved(&machine) != [0] {
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
