//! Many programs under one lease: never above the line, and nothing is left.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::client::{counted, lines, role};
use crate::rig::{Lease, MIB, Rig, said};

/// How many operations the test with `kill -9` does at least.
fn operations() -> u64 {
    std::env::var("PLIMSOLL_TEST_OPERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

/// That nothing is held, and nothing was ever above the line.
fn check(rig: &Rig, lease: &Lease, line: u64) {
    assert!(rig.gpus.peak(0).unwrap() <= line * MIB, "{} MiB of {line}", rig.gpus.peak(0).unwrap() / MIB);
    assert!(lease.inside().most_reserved(0).0 <= line * MIB);
    assert_eq!((rig.gpus.used().unwrap(), lease.held(0)), (vec![0], 0));
    assert!(rig.gpus.programs().unwrap().is_empty());
}

#[test]
fn programs_that_allocate_without_end_come_to_the_line_and_not_above() {
    let rig = Rig::new("line", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[1024]);
    let start = |_| rig.under(&lease, &client).arg("v2").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut programs: Vec<Child> = (0..8).map(start).collect();
    let mut most = 0;
    // The observer from outside, beside the peak that the machine keeps.
    while programs.iter_mut().any(|program| program.try_wait().unwrap().is_none()) {
        most = most.max(rig.gpus.used().unwrap()[0]);
    }
    assert!(most <= 1024 * MIB);
    let outputs: Vec<String> =
        programs.into_iter().map(|program| String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap()).collect();
    let times = |text: &String| text.split_once(" times").and_then(|(times, _)| times.parse::<u64>().ok()).expect("a number");
    // One that has ended has given back: together they can have more, one after the other.
    assert!(outputs.iter().map(times).sum::<u64>() >= 16, "{outputs:?}");
    check(&rig, &lease, 1024);
}

#[test]
fn killed_programs_leave_nothing_behind() {
    let rig = Rig::new("killed", &[4096]);
    let lease = rig.lease(&[768]);
    let (mut done, mut round) = (0, 0u64);
    while done < operations() {
        let start = |_| role(&rig, &lease, "hammer").stdout(Stdio::piped()).spawn().expect("it starts");
        let mut programs: Vec<Child> = (0..8).map(start).collect();
        // At different times, the first ones while others start.
        for (number, program) in (0u64..).zip(&mut programs) {
            for _ in 0..10 {
                assert!(rig.gpus.used().unwrap()[0] <= 768 * MIB);
                std::thread::sleep(Duration::from_millis(1 + (number * 7 + round * 13) % 11));
            }
            program.kill().expect("it can be killed");
        }
        for mut program in programs {
            let mut said = Vec::new();
            program.stdout.take().expect("a pipe").read_to_end(&mut said).expect("it can be read");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&program.wait().unwrap()),
                Some(libc::SIGKILL),
                "{}",
                String::from_utf8_lossy(&said)
            );
            done += 10 * said.iter().filter(|&&byte| byte == b'.').count() as u64;
        }
        round += 1;
        check(&rig, &lease, 768);
    }
    println!("{done} operations, {} programs killed, {} requests refused", round * 8, lease.inside().refused(0));
}

#[test]
fn programs_that_end_give_all_back() {
    let rig = Rig::new("ends", &[4096]);
    let lease = rig.lease(&[256]);
    let programs: Vec<Child> =
        (0..3).map(|_| counted(&rig, &lease, "hammer", 60).stdout(Stdio::null()).spawn().expect("it starts")).collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    check(&rig, &lease, 256);
}

#[test]
fn many_programs_start_at_once() {
    let rig = Rig::new("many", &[4096]);
    let lease = rig.lease(&[480]);
    let start = |_| role(&rig, &lease, "one").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut programs: Vec<Child> = (0..64).map(start).collect();
    let mut granted = 0;
    for program in &mut programs {
        let said = BufReader::new(program.stdout.as_mut().expect("a pipe")).lines();
        let status = said.map_while(Result::ok).find_map(|line| line.strip_prefix("> status ").map(str::to_string));
        granted += u64::from(status.as_deref() == Some("0"));
    }
    // 60 of 8 MiB fit.
    assert_eq!((granted, rig.gpus.used().unwrap()[0], lease.inside().refused(0)), (60, 480 * MIB, 4));
    for mut program in programs {
        drop(program.stdin.take());
        assert!(program.wait().is_ok());
    }
    check(&rig, &lease, 480);
}

#[test]
fn programs_of_ours_under_the_same_lease_count() {
    let rig = Rig::new("ours", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    let identity = plimsoll_machine::Identity::this_process("ours");
    let ours = lease.inside().join(&identity).unwrap();
    ours.reserve(&[(0, plimsoll_base::Bytes(256 * MIB))]).unwrap();
    assert_eq!(said(rig.under(&lease, &client).arg("v2")), "4 times, status 2, free 0 of 512 MiB\n");
    assert_eq!(lines(&mut role(&rig, &lease, "totals")), ["[512, 160, 512] [512, 160, 352] [512, 0, 160, 352]"]);
}

#[test]
#[ignore = "waits for as long as a program does for a ledger that is stuck: about 20 seconds"]
fn a_ledger_that_is_stuck_is_not_waited_for_without_end() {
    let rig = Rig::new("stuck", &[4096]);
    let Some(client) = rig.compile("client", &[]) else { return };
    let lease = rig.lease(&[512]);
    lease.inside().reserved().expect("there is a ledger");
    let is_inner = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end.to_string_lossy().parse::<u32>().is_ok());
    let files = std::fs::read_dir(rig.folder().join("state")).unwrap().flatten().map(|file| file.path());
    let inner = files.into_iter().find(is_inner).expect("the lease's ledger");
    let lock = std::fs::File::open(inner).unwrap();
    lock.lock().unwrap();
    assert_eq!(said(rig.under(&lease, &client).arg("v2")), "0 times, status 2, free 512 of 512 MiB\n");
    drop(lock);
    assert_eq!(said(rig.under(&lease, &client).arg("v2")), "8 times, status 2, free 0 of 512 MiB\n");
}
