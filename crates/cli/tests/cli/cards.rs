//! Simulated cards: the values of the processor, the line, and several programs on the same cards.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{cases, document, plimsoll, state_dir};

/// One case each with reference and resource variables, towers on `/gpu:0` and `/gpu:1`.
const TOWERS: [&str; 2] = ["towers2_adam_ref", "towers2_nesterov_resource"];

/// All fits as it is: the smallest limit, which `--json` names, is not looked for.
fn verified(case: &str, options: &str) -> serde_json::Value {
    document(&format!("verify {case} --json --fit=off {options}"))[0].clone()
}

#[test]
fn cards_give_the_processors_values_however_they_are_divided() {
    for case in TOWERS {
        let expected = verified(case, "")["worst_error"].clone();
        for options in [
            "--sim-gpus 2x64MiB",
            "--sim-gpus 2x64MiB --allow-growth",
            "--sim-gpus 2x64MiB --memory-fraction 0.3 --intra-op 1",
            "--sim-gpus 1x64MiB --memory-limit GPU:0=8MiB+8MiB",
            "--sim-gpus 4x64MiB --visible-devices 3,1",
            "--sim-gpus 2x64MiB,overhead=5MiB --device-count CPU=2,GPU=1",
        ] {
            let got = verified(case, options);
            assert_eq!((&got["worst_error"], got["status"].as_str()), (&expected, Some("OK")), "{case} {options}: {got}");
            for device in got["devices"].as_array().unwrap() {
                assert_eq!(device["planned_peak_bytes"], device["measured_peak_bytes"], "{case} {options}: {device}");
            }
        }
        let devices = verified(case, "--sim-gpus 2x64MiB")["devices"].clone();
        let used = devices.as_array().unwrap().iter().filter(|device| device["measured_peak_bytes"].as_u64() > Some(0)).count();
        assert_eq!(used, 3, "{case} computes on both cards: {devices}");
    }
}

#[test]
fn a_cards_line_holds_to_the_byte() {
    for overhead in ["", ",overhead=1MiB"] {
        let card = format!("--sim-gpus 2x64MiB{overhead}");
        let devices = verified("towers2_adam_ref", &card)["devices"].clone();
        let peak = devices[1]["planned_peak_bytes"].as_u64().unwrap();
        assert_eq!(verified("towers2_adam_ref", &format!("{card} --memory-limit GPU:0={peak}B"))["status"], "OK");
        let said = plimsoll(&format!("verify towers2_adam_ref {card} --fit=off --memory-limit GPU:0={}B", peak - 1));
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(said.out.contains("RESOURCE_EXHAUSTED") && said.out.contains("GPU:0"), "{}", said.out);
    }
}

/// A program that holds 0.4 of each card, as soon as there is room, until it is killed.
struct Holder(Child);

impl Holder {
    fn start() -> Holder {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let args = "bench towers2_adam_ref --runs 10000000 --sim-gpus 4x48MiB --memory-fraction 0.4 --wait=60s";
        command.args(args.split(' ')).current_dir(cases()).env("PLIMSOLL_STATE_DIR", state_dir());
        Holder(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_third_program_is_told_the_holders_or_waits_for_one_to_end() {
    let third = |options: &str| plimsoll(&format!("bench towers2_adam_ref --runs 2 --sim-gpus 4x48MiB --memory-fraction 0.4 {options}"));
    let (first, second) = (Holder::start(), Holder::start());
    let pids = [first.0.id(), second.0.id()];
    let start = Instant::now();
    // Until both have opened their devices.
    let refused = loop {
        let said = third("");
        if said.code != 0 && pids.iter().all(|pid| said.err.contains(&format!("pid {pid} "))) {
            break said;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{} {}", said.code, said.err);
    };
    assert_eq!(refused.code, 1, "{}", refused.err);
    for words in ["CUDA_ERROR_OUT_OF_MEMORY", "19.20 MiB (20132659 bytes) asked", "plimsoll bench towers2_adam_ref"] {
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    assert!(third("--wait 50ms").err.contains("waited for 50ms"));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(first);
    });
    let waited = third("--wait 60s");
    assert_eq!(waited.code, 0, "{}", waited.err);
    killer.join().unwrap();
    drop(second);
}
