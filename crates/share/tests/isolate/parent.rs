//! The program that started workers is killed: they end, and what they held is free.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;

use plimsoll_share::Workers;

use super::calls::gone;
use super::functions::*;
use super::{Test, leases};

/// What this program plays, where it was started by a test.
pub const ROLE: &str = "PLIMSOLL_TEST_ROLE";

pub const TESTS: &[Test] = &[("parent::kill_9_ends_all_and_frees_the_lease", kill_9)];

pub fn play(workers: &Workers, role: &str) {
    match role {
        "prints" => {
            workers.isolate(None, says, "to the output".to_string()).unwrap();
            let _ = workers.isolate(None, whispers, "to the error".to_string());
        }
        "parent" => {
            let lease = Arc::new(leases::lease(512 << 20));
            let pool = workers.pool_under([lease.clone(), lease.clone()]).unwrap();
            // One is busy with a child of its own, one sleeps, one is idle, and one is isolated.
            let child = pool.submit(leaves_a_child, ()).wait().unwrap().output;
            let sleeping = pool.submit(sleeps, 600_000);
            let (idle, _) = pool.submit(process, ()).wait().unwrap().output;
            std::thread::scope(|scope| {
                scope.spawn(|| workers.isolate(&*lease, sleeps, 600_000));
                let all = pool.pids().into_iter().chain([child, idle]);
                println!("{}", all.map(|pid| pid.to_string()).collect::<Vec<_>>().join(" "));
                let _ = sleeping.wait();
            });
        }
        role => panic!("no role is called {role}"),
    }
}

fn kill_9(_: &Workers) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut parent = command.env(ROLE, "parent").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() >= 4 && pids.iter().all(|pid| lives(*pid)), "{line}");
    assert_eq!(leases::reserved(), 512 << 20);
    parent.kill().unwrap();
    parent.wait().unwrap();
    pids.into_iter().for_each(gone);
    // The last of them, the isolated one too, had this as its standard output.
    said.read_to_string(&mut line).unwrap();
    let begin = std::time::Instant::now();
    while leases::reserved() > 0 {
        assert!(begin.elapsed().as_secs() < 60, "the lease is not free");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
