//! `plimsoll devices`: cards of a driver (a library of ours plays it), simulated cards, and their holders.

#[path = "../../../device-cuda/tests/mock/mod.rs"]
mod mock;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll::machine::PhysicalDevice;
use plimsoll::{Bytes, Environment};
use plimsoll_machine::{Guarantee, Identity, Machine, Member, StateDir, Wait};
use serde_json::{Value, json};

use super::{Folder, Said, outcome};
use mock::Mock;

const SET: &str = "k520:2x4GiB,overhead=64MiB,peers=all";
const MIB: u64 = 1 << 20;

fn command(args: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in Environment::NAMES {
        command.env_remove(name);
    }
    command.args(args.split_whitespace()).env("PLIMSOLL_NVML", "").env("PLIMSOLL_SHIM", "").envs(variables.iter().copied());
    command
}

fn devices(args: &str, variables: &[(&str, &str)]) -> Said {
    let said = outcome(&mut command(&format!("devices --intra-op 1 {args}"), variables));
    assert_eq!(said.code, 0, "{}", said.err);
    said
}

fn document(args: &str, variables: &[(&str, &str)]) -> Value {
    serde_json::from_str(&devices(&format!("--json {args}"), variables).out).unwrap()
}

/// The value of a key of each of a list.
fn all(list: &Value, key: &str) -> Value {
    list.as_array().unwrap().iter().map(|entry| entry[key].clone()).collect()
}

/// The ledger that programs meet in which name the set and that folder.
fn ledger(state: &Path) -> Machine {
    let cards = PhysicalDevice::simulated("--sim-gpus", SET).unwrap();
    PhysicalDevice::ledger(&cards, &StateDir::open(state).unwrap()).unwrap()
}

fn holder(machine: &Machine, number: u64) -> Member {
    let program = format!("/opt/programs/train --number {number}");
    let name = if number == 3 { "third".to_string() } else { String::new() };
    let member = machine.join(&Identity { name, program, guarantee: Guarantee::Held }).unwrap();
    let card = (number % 2) as usize;
    member.reserve(&[(card, Bytes((512 + number) * MIB))]).unwrap();
    member.set_used(card, Bytes(300 * MIB));
    member.set_used(card, Bytes(number * MIB));
    member
}

#[test]
fn holders_and_waiters_are_seen_and_gone_when_they_are_gone() {
    let folder = Folder::new("machine");
    let state = folder.0.join("state");
    let variables = [("PLIMSOLL_STATE_DIR", state.to_str().unwrap()), ("PLIMSOLL_SIM_GPUS", SET)];
    let machine = ledger(&state);
    let none = devices("", &variables).out;
    assert!(none.contains("|  No running processes found  ") && !none.contains("Waiting"), "{none}");

    let holders: Vec<Member> = (0..8).map(|number| holder(&machine, number)).collect();
    let waiter = machine.join(&Identity { name: "w".into(), program: "late".into(), guarantee: Guarantee::Held }).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = Wait { priority: 2, timeout: Some(Duration::from_secs(60)) };
            waiter.reserve_waiting(&[(1, Bytes(3000 * MIB))], &wait, &mut |_| true).unwrap();
        });
        let begin = Instant::now();
        while machine.look().unwrap().waiters().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "nobody waits");
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = document("", &variables);
        let table = devices("-v", &variables).out;
        // The waiter gets its bytes.
        drop(holders);
        is_documented(&seen);
        is_drawn(&table);
    });
    drop(waiter);
    let after = document("", &variables);
    assert_eq!((&after["processes"], &after["waiters"]), (&json!([]), &json!([])));
    assert_eq!(all(&after["cards"], "free_bytes"), json!([4096 * MIB, 4096 * MIB]));
}

fn is_documented(seen: &Value) {
    let cards = &seen["cards"];
    assert_eq!(all(cards, "name"), json!(["GRID K520", "GRID K520"]));
    assert_eq!((all(cards, "simulated"), all(cards, "unused")), (json!([true, true]), json!([null, null])));
    assert_eq!(all(cards, "pci_bus_id"), json!(["0000:00:03.0", "0000:00:04.0"]));
    assert_eq!((all(cards, "total_bytes"), all(cards, "peers")), (json!([4096 * MIB, 4096 * MIB]), json!([[1], [0]])));
    // 512 + 0, 2, 4, 6 on the first card, 512 + 1, 3, 5, 7 on the other one.
    let reserved = [(4 * 512 + 12) * MIB, (4 * 512 + 16) * MIB];
    assert_eq!(all(cards, "reserved_bytes"), json!(reserved));
    assert_eq!(all(cards, "free_bytes"), json!(reserved.map(|bytes| 4096 * MIB - bytes)));
    assert_eq!(all(cards, "used_bytes"), json!([12 * MIB, 16 * MIB]));
    let processes = &seen["processes"];
    assert_eq!(all(processes, "card"), json!([0, 0, 0, 0, 1, 1, 1, 1]));
    assert_eq!(all(processes, "used_bytes"), json!([6 * MIB, 4 * MIB, 2 * MIB, 0, 7 * MIB, 5 * MIB, 3 * MIB, MIB]));
    let third = json!({
        "card": 1, "pid": std::process::id(), "user": null, "type": "C", "program": "/opt/programs/train --number 3", "name": "third",
        "reserved_bytes": 515 * MIB, "used_bytes": 3 * MIB, "peak_bytes": 300 * MIB, "guarantee": "held",
        "card_last_used": null, "memory_last_changed": null,
        // 300 of 515 MiB, in steps of half a percent.
        "history": {"step_ms": 100, "used": [0.585]}
    });
    assert_eq!(processes[6], third);
    let waiter = &seen["waiters"][0];
    assert_eq!((&waiter["program"], &waiter["priority"], &waiter["ahead"]), (&json!("late"), &json!(2), &json!(0)));
    assert_eq!(waiter["asked"], json!([{"card": 1, "bytes": 3000 * MIB}]));
    assert!(waiter["why"].as_str().unwrap().starts_with("waits for 2.93 GiB of GRID K520"), "{waiter}");
    let parts = &seen["devices"];
    assert_eq!((all(parts, "card"), all(parts, "reserve")), (json!([null, 0, 1]), json!(["plan", "plan", "plan"])));
    assert_eq!(parts[1]["name"], "/job:localhost/replica:0/task:0/device:GPU:0");
    assert!(seen["log"].to_string().contains("\"Created device /job:localhost/replica:0/task:0/device:GPU:0 with "), "{seen}");
}

/// The table is the one in `machine.txt`, process numbers and this processor's name masked. `PLIMSOLL_BLESS=1` writes it anew.
fn is_drawn(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/machine.txt");
    let pid = format!("{:>8}", std::process::id());
    let mut got = String::new();
    for line in table.lines().filter(|line| !line.contains(" cores may be used by this process")) {
        let line = match line.split_once("as planned    ").filter(|_| line.contains(" CPU:")) {
            Some((before, _)) => format!("{before}as planned    #"),
            None => line.replace(&pid, "     PID").replace(env!("CARGO_PKG_VERSION"), "#.#.#"),
        };
        got += line.trim_end();
        got.push('\n');
    }
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, wanted, "{} differs; PLIMSOLL_BLESS=1 writes it anew", path.display());
}

#[test]
fn what_options_and_variables_choose_is_listed() {
    let folder = Folder::new("machine-options");
    let state: PathBuf = folder.0.join("state");
    let with = |args: &str, more: &[(&str, &str)]| {
        let variables = [&[("PLIMSOLL_STATE_DIR", state.to_str().unwrap())], more].concat();
        document(args, &variables)
    };
    let seen = with("--sim-gpus 4x1GiB --memory-limit GPU:0=256MiB+128MiB", &[("CUDA_VISIBLE_DEVICES", "3,1")]);
    assert_eq!(all(&seen["cards"], "cuda_ordinal"), json!([null, 1, null, 0]));
    assert_eq!(all(&seen["devices"], "card"), json!([null, 3, 3, 1]));
    assert_eq!(seen["devices"][2]["limit_bytes"], json!(128 * MIB));
    assert_eq!(seen["devices"][1]["links"][0], json!({"device": 1, "kind": "SAME_DEVICE", "strength": 1000}));
    assert!(seen["notes"].to_string().contains("CUDA_VISIBLE_DEVICES=3,1 shows 2 of 4 cards"), "{}", seen["notes"]);

    let seen = with("--sim-gpus 1GiB+1GiB,cc=3.0", &[]);
    assert_eq!(seen["cards"][0]["unused"], Value::Null);
    assert!(seen["cards"][1]["unused"].as_str().unwrap().contains("The minimum required Cuda capability is 3.5"), "{seen}");
    assert!(seen["log"].to_string().contains("\"Ignoring visible gpu device (device: "), "{seen}");

    // A place for ledgers that cannot be used is no reason to see nothing.
    let file = folder.write("file", "");
    let seen = document("", &[("PLIMSOLL_STATE_DIR", &file), ("PLIMSOLL_SIM_GPUS", "1GiB")]);
    assert_eq!((&seen["cards"][0]["total_bytes"], &seen["cards"][0]["free_bytes"]), (&json!(1024 * MIB), &Value::Null));
    assert!(seen["warnings"].to_string().contains("the holders of simulated GPUs' memory cannot be listed: "), "{}", seen["warnings"]);
}

#[test]
fn cards_of_a_driver_are_listed_in_the_order_of_the_bus() {
    let Some(mock) = Mock::new("cli", false, &["two", "faults"]) else { return };
    let library = mock.path("two");
    let seen = |more: &[(&str, &str)]| document("", &[&[("PLIMSOLL_NVML", library.as_str())], more].concat());
    let plain = seen(&[]);
    assert_eq!(plain["driver"], json!({"driver_version": "535.104.05", "nvml_version": "12.535.104.05", "cuda_version": "12.2"}));
    assert_eq!(all(&plain["cards"], "pci_bus_id"), json!(["fade:3b:00.0", "fade:af:00.0"]));
    assert_eq!(all(&plain["cards"], "cuda_ordinal"), json!([1, 0]), "the faster one first");
    assert_eq!(all(&plain["cards"], "simulated"), json!([false, false]));
    assert_eq!(all(&plain["cards"], "utilisation_percent"), json!([0, 37]));
    assert_eq!(plain["cards"][0]["unused"], "its compute capability is 3.0, and the least that is used is 8.0");
    assert_eq!(plain["cards"][1]["unused"], "its compute capability is 7.5, and the least that is used is 8.0");
    assert_eq!(all(&plain["devices"], "card"), json!([null]));
    let own = &plain["processes"][0];
    assert_eq!((&own["type"], &own["used_bytes"], &own["reserved_bytes"]), (&json!("C+G"), &json!(1500 * MIB), &Value::Null));
    assert!(own["program"].as_str().unwrap().contains("plimsoll devices --intra-op 1 --json"), "{own}");
    assert_eq!(all(&seen(&[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")])["cards"], "cuda_ordinal"), json!([0, 1]));
    assert_eq!(all(&seen(&[("CUDA_VISIBLE_DEVICES", "1")])["cards"], "cuda_ordinal"), json!([0, null]));

    let faults = devices("-v", &[("PLIMSOLL_NVML", &mock.path("faults")), ("PLIMSOLL_CUDA_LIBS", "/nowhere")]).out;
    for line in [
        "note: NVML sees 1 NVIDIA card",
        "note: NVIDIA card 1 of 2 cannot be examined: the GPU is lost",
        "note: NVIDIA card 0 (Tesla T4) does not say: memory: no permission",
        "N/A / N/A",
        // Where they are, or what is to be done.
        "note: libcuda ",
        "note: NVRTC ",
        "note: cuDNN ",
        "note: cuBLASLt ",
    ] {
        assert!(faults.contains(line), "{faults}");
    }
}

#[test]
fn no_driver_is_one_line_and_no_error() {
    let said = devices("", &[("PLIMSOLL_NVML", "/nowhere/libnvidia-ml.so.1")]);
    assert!(said.out.contains("No GPUs were found") && said.err.is_empty(), "{}{}", said.out, said.err);
    assert_eq!(said.out.matches("there is no NVIDIA driver: /nowhere/libnvidia-ml.so.1: ").count(), 1, "{}", said.out);
    let seen = document("", &[("PLIMSOLL_NVML", "/nowhere/libnvidia-ml.so.1")]);
    assert_eq!((&seen["driver"], &seen["cards"]), (&Value::Null, &json!([])));
}

#[test]
fn watching_goes_on_until_it_is_stopped() {
    let mut child = command("devices --watch 0.05 --json", &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(serde_json::from_str::<Value>(&line).unwrap()["devices"].is_array(), "{line}");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    // The rest of its output is read, so that it is the signal that ends it.
    out.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut child = command("devices --watch 0.05", &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!((first, child.wait().unwrap().code()), (*b"+", Some(0)), "nobody reads any more");

    let said = outcome(&mut command("devices --watch 0", &[]));
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
}

/// A child that is ended when a test is over.
struct Started(std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn leases_of_a_drivers_cards_are_seen_beside_what_others_use() {
    let Some(mock) = Mock::new("leases", false, &["lived"]) else { return };
    let folder = Folder::new("leases");
    let (library, state) = (mock.path("lived"), folder.0.join("state").display().to_string());
    let variables = [("PLIMSOLL_NVML", library.as_str()), ("PLIMSOLL_STATE_DIR", state.as_str())];
    let uses = format!("{library}.uses");
    // This process has no lease. The library's first card is the machine's second.
    std::fs::write(&uses, format!("0 {} 2000\n", std::process::id())).unwrap();
    let mut run = command("run --quiet --gpus 0, --memory 1GiB --name mine -- sh -c", &variables);
    let script = format!("echo 0 $$ 300 >> {uses}; exec sleep 300");
    let _lease = Started(run.arg(&script).spawn().unwrap());
    let begin = Instant::now();
    while !document("", &variables)["processes"].to_string().contains("\"mine\"") {
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
    // Not before: a waiter for so much has it kept free.
    let mut late = command("run --quiet --gpus 0, --memory 14GiB --wait --priority 3 --name late -- true", &variables);
    let _waiter = Started(late.spawn().unwrap());
    let seen = loop {
        let seen = document("", &variables);
        let lease = seen["processes"].as_array().unwrap().iter().find(|process| process["name"] == "mine").cloned();
        if lease.is_some_and(|lease| lease["used_bytes"] == json!(300 * MIB) && lease["card_last_used"].is_u64())
            && seen["waiters"][0]["name"] == "late"
        {
            break seen;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{seen}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let card = &seen["cards"][1];
    assert_eq!((&card["reserved_bytes"], &card["outside_bytes"]), (&json!(1024 * MIB), &json!(2000 * MIB)), "{card}");
    assert_eq!((&card["used_bytes"], &card["free_bytes"]), (&json!(2300 * MIB), &json!((15360 - 2000 - 1024) * MIB)));
    let lease = seen["processes"].as_array().unwrap().iter().find(|process| process["name"] == "mine").unwrap();
    assert_eq!((&lease["card"], &lease["reserved_bytes"], &lease["guarantee"]), (&json!(1), &json!(1024 * MIB), &json!("watched")));
    assert_eq!(lease["program"], json!(format!("sh -c {script}")));
    assert!(lease["history"]["used"].as_array().unwrap().contains(&json!(0.295)), "{lease}");
    let waiter = &seen["waiters"][0];
    assert_eq!((&waiter["priority"], &waiter["asked"]), (&json!(3), &json!([{"card": 1, "bytes": 14336 * MIB}])));
    assert!(waiter["why"].as_str().unwrap().contains("waits for 14 GiB of Tesla T4"), "{waiter}");
    assert!(lease["memory_last_changed"].as_u64().unwrap() >= lease["card_last_used"].as_u64().unwrap() - 1, "{lease}");
    let table = devices("", &variables).out;
    assert!(table.contains("1024MiB, others 2000MiB"), "{table}");
    assert!(table.contains(" watched ") && table.contains("card last used: ") && table.contains("; memory last changed: "), "{table}");
}

/// A process that is stopped in a change of the ledger does not block a process that only looks.
#[test]
fn a_process_stopped_in_a_change_is_named() {
    let has = Command::new("sh").args(["-c", "command -v flock"]).output().is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("skipped: there is no flock(1)");
        return;
    }
    let folder = Folder::new("stopped");
    let state = folder.0.join("state");
    let variables = [("PLIMSOLL_STATE_DIR", state.to_str().unwrap()), ("PLIMSOLL_SIM_GPUS", SET)];
    let _held = holder(&ledger(&state), 3);
    let files = std::fs::read_dir(&state).unwrap().flatten().map(|entry| entry.path());
    let file = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "ledger")).unwrap();
    let script = "exec 9<> \"$1\"; flock 9; echo locked; kill -STOP $$; exec sleep 300";
    let child = Command::new("sh").args(["-c", script, "sh", file.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stopped = Killed(child);
    let mut line = String::new();
    BufReader::new(stopped.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = stopped.0.id();
    // As a process that changes the ledger identifies itself.
    let ledger = std::fs::File::options().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&ledger, &pid.to_le_bytes(), 12).unwrap();
    let seen = document("", &variables);
    let warning = seen["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("nothing is granted: the ledger ") && warning.contains(&format!("by pid {pid} (sh -c ")), "{warning}");
    assert_eq!(seen["processes"][0]["reserved_bytes"], json!(515 * MIB), "what the ledger says is shown");
    assert!(devices("", &variables).out.contains("\nwarning: nothing is granted: the ledger "));
}

/// A child that is killed when a test is over.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
