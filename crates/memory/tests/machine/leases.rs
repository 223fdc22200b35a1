//! Places that other processes share: on purpose, and by forking.

use std::path::Path;
use std::process::Command;

use plimsoll_base::{Bytes, Code, Error};
use plimsoll_memory::machine::Who;

use super::child::{Player, say, stay};
use super::{Folder, open, reserved};

/// A process that takes a place, starts a program that shares it, and leaves the place to it.
#[expect(clippy::zombie_processes, reason = "they outlive the process that starts them")]
pub fn leases(state: &Path) {
    let member = open(state, &[10]).join(&Who::this_process("lease")).unwrap();
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
    let member = open(state, &[10]).join(&Who::this_process("forks")).unwrap();
    member.reserve(&[(0, Bytes(10))]).unwrap();
    // SAFETY: the fork of a process with one more thread, which reads; what it calls are a few system calls and this crate.
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
    // SAFETY: the fork is a child of this process that nobody has waited for.
    unsafe {
        libc::kill(fork, libc::SIGKILL);
        libc::waitpid(fork, std::ptr::null_mut(), 0);
    }
}

fn end(pid: &str) {
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
    // Who joined is gone: the program that lives on is shown.
    assert_eq!(shown(), [(shares.to_string(), "sleep 300".to_string())]);
    assert_eq!(reserved(&machine), [10], "the program lives");
    assert_eq!(machine.look().unwrap().entries[0].name, "lease");
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
