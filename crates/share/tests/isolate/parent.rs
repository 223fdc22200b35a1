//! The program that started workers is killed: they end, and the bytes that they held are free.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use plimsoll_share::Workers;

use super::calls::gone;
use super::functions::*;
use super::{Test, leases};

/// The role of this program, where it was started by a test.
pub const ROLE: &str = "PLIMSOLL_TEST_ROLE";

pub const TESTS: &[Test] = &[
    ("parent::kill_9_ends_all_and_frees_the_lease", kill_9),
    ("parent::the_driver_of_real_cards_is_asked_too", real_cards),
    ("parent::workers_under_real_cards_have_the_shim", shim),
    ("parent::a_control_group_without_room_is_out_of_memory", control_group),
];

pub fn play(workers: &Workers, role: &str) {
    match role {
        "prints" => {
            workers.isolate(None, says, "to the output".to_string()).unwrap();
            let _ = workers.isolate(None, whispers, "to the error".to_string());
        }
        "parent" => {
            let lease = Arc::new(leases::lease(512 << 20));
            let pool = workers.pool_under([lease.clone(), lease.clone()]).unwrap();
            // Five workers: one is busy with a child of its own, one in a session of its own, one sleeps, one is idle, and one is
            // isolated.
            let child = pool.submit(leaves_a_child, ()).wait().unwrap().output;
            let apart = pool.submit(leaves_one_apart, ()).wait().unwrap().output;
            let sleeping = pool.submit(sleeps, 600_000);
            let (idle, _) = pool.submit(process, ()).wait().unwrap().output;
            std::thread::scope(|scope| {
                scope.spawn(|| workers.isolate(&*lease, sleeps, 600_000));
                let all = pool.pids().into_iter().chain([child, apart, idle]);
                println!("{}", all.map(|pid| pid.to_string()).collect::<Vec<_>>().join(" "));
                let _ = sleeping.wait();
            });
        }
        // In a control group that has room for the program, and not for its worker.
        "allocates" => println!("{:?}", workers.isolate(None, allocates, 1 << 30).unwrap_err().cause),
        // Real cards, played by a library.
        "real" => {
            let lease = leases::lease(1 << 30);
            let back = workers.isolate(&lease, uses_a_real_card, (300, None)).unwrap();
            println!("{} {}", back.report.all_back(), back.report);
            let stays = workers.isolate(&lease, uses_a_real_card, (300, Some(std::process::id()))).unwrap();
            println!("{} {}", stays.report.all_back(), stays.report);
        }
        "shim" => {
            let lease = Arc::new(leases::lease(1 << 30));
            let off = workers.clone().env("PLIMSOLL_SHIM", "");
            let pool = workers.pool_under([lease.clone()]).unwrap();
            let isolated = [workers, &off].map(|workers| workers.isolate(&*lease, has_the_shim, ()).unwrap().output);
            let without = workers.isolate(None, has_the_shim, ()).unwrap().output;
            println!("{:?} {isolated:?} {without:?}", pool.submit(has_the_shim, ()).wait().unwrap().output);
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
    assert!(pids.len() >= 5 && pids.iter().all(|pid| lives(*pid)), "{line}");
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

fn real_cards(_: &Workers) {
    let Some(mock) = super::mock::Mock::new("isolate", false, &["lived"]) else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, "real").env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", mock.path("lived"));
    let output = command.env("USES", mock.path("lived") + ".uses").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(lines[0].starts_with("true ") && lines[0].contains("(by the driver 0 B and 0 B): all memory is back"), "{}", lines[0]);
    assert!(lines[1].starts_with("false ") && lines[1].contains("(by the driver 0 B and 300 MiB): NOT all"), "{}", lines[1]);
}

fn shim(_: &Workers) {
    let Some(mock) = super::mock::Mock::new("isolate-shim", false, &["lived"]) else { return };
    let said = |driver: &str, cards: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, "shim").env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", driver).env_remove("LD_PRELOAD");
        cards.map(|cards| command.env("PLIMSOLL_SIM_GPUS", cards));
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_string() + &String::from_utf8_lossy(&output.stderr)
    };
    let real = said(&mock.path("lived"), None);
    assert_eq!(
        real, "(true, true) [(true, true), (false, false)] (false, false)",
        "in a pool, in a call, switched off, and without a lease"
    );
    let simulated = said("", Some("1x1GiB"));
    assert_eq!(simulated, "(false, false) [(false, false), (false, false)] (false, false)");
}

fn control_group(_: &Workers) {
    let Some(group) = Group::new(192 << 20) else {
        eprintln!("skipped: no control group with a limit can be made here");
        return;
    };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$1/cgroup.procs\" && exec \"$0\""]).arg(std::env::current_exe().unwrap()).arg(&group.0);
    let output = command.env(ROLE, "allocates").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("OutOfMemory { of: Kernel") && said.contains("in this control group"), "{output:?}");
}

/// A control group of a test's own.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let name = format!("plimsoll-test-{}", std::process::id());
        // The first version of control groups, and the second.
        for (root, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let group = Group(Path::new(root).join(&name));
            if std::fs::create_dir(&group.0).is_err() {
                continue;
            }
            let limited = std::fs::write(group.0.join(limit), bytes.to_string()).is_ok();
            // Without this it would swap instead of ending.
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            let swaps = std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1);
            if limited && (!swaps || limit == "memory.max") {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
