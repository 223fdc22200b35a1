//! Networks that TensorFlow's runs were recorded of, in folders beside the project: values, and lines on every kind of machine.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{document, plimsoll};

/// The cases of each folder that is there; none, visibly, where no folder is.
pub fn recorded() -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folders = ["golden", "models"].map(|name| shared.join(name));
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).filter(|case| case.join("case.json").exists()).collect();
    if cases.is_empty() {
        eprintln!("skipped: no recorded networks in {}", shared.display());
    }
    cases.sort();
    cases
}

/// What no device runs yet is said before anything is run.
pub fn is_not_yet(verdict: &Value) -> bool {
    verdict["reason"].as_str().is_some_and(|reason| reason.starts_with("UNIMPLEMENTED")) && verdict["steps"] == json!(0)
}

/// What is wrong with a case on a machine: its values, or its line. Plans are as they are. At exactly the promised peaks the steps run and
/// hold just these; with one byte less on any device the first step is refused.
fn differs(case: &Path, machine: &str) -> Result<(), String> {
    let verify = format!("verify {} {machine} --fit=off", case.display());
    let verdict = &document(&format!("{verify} --json"))[0];
    if is_not_yet(verdict) {
        return Ok(());
    }
    if verdict["status"] != "OK" {
        return Err(verdict.to_string());
    }
    let peaks = |verdict: &Value, kind: &str| -> Vec<(String, u64)> {
        let devices = verdict["devices"].as_array().unwrap();
        let name = |device: &Value| device["name"].as_str().unwrap().rsplit("device:").next().unwrap().to_string();
        devices.iter().map(|device| (name(device), device[kind].as_u64().unwrap())).collect()
    };
    let promised = peaks(verdict, "planned_peak_bytes");
    let at = |less: usize| {
        let limit = |(index, (name, peak)): (usize, &(String, u64))| format!("{name}={}B", peak - u64::from(index == less));
        let limits: Vec<String> = promised.iter().enumerate().filter(|(_, (_, peak))| *peak > 0).map(limit).collect();
        format!("{verify} --memory-limit {}", limits.join(","))
    };
    let verdict = &document(&format!("{} --json", at(promised.len())))[0];
    let held = peaks(verdict, "measured_peak_bytes");
    if verdict["status"] != "OK" || held != promised {
        return Err(format!("at {promised:?}: {verdict}"));
    }
    for (less, (name, _)) in promised.iter().enumerate().filter(|(_, (_, peak))| *peak > 0) {
        let refused = plimsoll(&at(less));
        if !(refused.code == 1 && refused.out.contains(" steps=0 ") && refused.out.contains("1 byte short")) {
            return Err(format!("one byte less on {name}: {}{}", refused.out, refused.err));
        }
    }
    Ok(())
}

#[test]
#[ignore = "takes minutes: scripts/long"]
fn recorded_networks_agree_at_their_lines() {
    let cases = recorded();
    let wrong: Vec<String> = cases
        .iter()
        .flat_map(|case| ["", "--device-count CPU=2", "--sim-gpus 2x1GiB"].map(|machine| (case, machine)))
        .filter_map(|(case, machine)| Some(format!("{} {machine}: {}", case.display(), differs(case, machine).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// At exactly the promised peaks, too. Under a line that is a byte too low, `auto` may have another placement: it has no smallest line of
/// its own.
#[test]
#[ignore = "takes minutes: scripts/long"]
fn recorded_networks_agree_where_auto_puts_them() {
    let mut wrong = Vec::new();
    for case in recorded() {
        for machine in ["--device-count CPU=2", "--sim-gpus 2x1GiB"] {
            let verify = format!("verify {} {machine} --placement auto --fit=off", case.display());
            let verdict = &document(&format!("{verify} --json"))[0];
            if is_not_yet(verdict) {
                continue;
            }
            let devices = verdict["devices"].as_array().unwrap().iter();
            let limit = |device: &Value| {
                let peak = device["planned_peak_bytes"].as_u64().filter(|peak| *peak > 0)?;
                Some(format!("{}={peak}B", device["name"].as_str()?.rsplit("device:").next()?))
            };
            let lines: Vec<String> = devices.filter_map(limit).collect();
            let at_its_line = &document(&format!("{verify} --json --memory-limit {}", lines.join(",")))[0];
            for verdict in [verdict, at_its_line] {
                if verdict["status"] != "OK" {
                    wrong.push(format!("{} {machine} {lines:?}: {verdict}", case.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}
