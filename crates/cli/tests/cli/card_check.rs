//! `bench/gpu/check.sh`, in full on a mock card, and what becomes of its results.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::nvidia::mock::Machine;
use super::{cases, outcome};

/// The test program of that name that was built last.
fn built(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent()?.join("deps");
    let is_it = |path: &PathBuf| {
        let stem = path.file_name().and_then(|file| file.to_str());
        path.extension().is_none() && stem.and_then(|stem| stem.strip_prefix(name)).is_some_and(|rest| rest.starts_with('-'))
    };
    let programs = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).filter(is_it);
    programs.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

#[test]
fn a_check_of_a_card_runs_on_a_mock_and_becomes_data() {
    let Some(machine) = Machine::new("cli-check", &[2048]) else { return };
    let (Some(computing), Some(kernels)) = (built("computing"), built("kernels")) else {
        eprintln!("skipped: the tests of the crate device-cuda were not built");
        return;
    };
    machine.add_cudnn();
    machine.gpus.set_graph_node(0, 4096).unwrap();
    let (pack, out) = (machine.folder().join("pack"), machine.folder().join("out"));
    std::fs::create_dir(&pack).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gpu");
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    for (name, of) in [("plimsoll", program), ("computing", &computing), ("kernels", &kernels), ("cases", &cases())] {
        symlink(of, pack.join(name)).unwrap();
    }
    std::fs::copy(scripts.join("check.sh"), pack.join("check.sh")).unwrap();
    let check = |seconds: &str| {
        let mut command = Command::new("bash");
        command.arg(pack.join("check.sh")).arg(&out).arg(seconds).env_remove("CUDA_VISIBLE_DEVICES").env_remove("PLIMSOLL_SIM_GPUS");
        command.env("PLIMSOLL_CHECK_MOCK", "1").env("PLIMSOLL_CHECK_RUNS", "2").env("PLIMSOLL_CHECK_KERNELS", "random_numbers");
        command.env("PLIMSOLL_CHECK_ROUNDS", "1").env("PLIMSOLL_CHECK_STEPS", "3");
        command.env("PLIMSOLL_CUDA_LIBS", machine.folder()).env("PLIMSOLL_NVML", machine.folder().join("libnvidia-ml.so.1"));
        let said = outcome(command.env("PLIMSOLL_SHIM", ""));
        let text = std::fs::read_to_string(out.join("check.json")).unwrap_or_else(|error| panic!("{error}: {}{}", said.out, said.err));
        (said, serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    };
    let (said, document) = check("590");
    let parts: Vec<(&str, &str)> = document["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part["part"].as_str().unwrap(), part["status"].as_str().unwrap()))
        .collect();
    let (passed, skipped) = ("passed", "skipped");
    let expected = [
        ("inventory", passed),
        ("overhead", passed),
        ("engines", skipped),
        ("conformance", passed),
        ("commits", passed),
        ("killed", passed),
        ("kernels", passed),
        ("cudnn", passed),
        ("bits", passed),
        ("line", passed),
        ("memory", passed),
        ("launches", passed),
        ("rates", passed),
        ("tune", passed),
        ("judges", skipped),
        ("sanitizer", skipped),
        ("suspend", skipped),
    ];
    assert_eq!((parts, said.code), (expected.to_vec(), 0), "{}{}", said.out, said.err);
    let results = &document["results"];
    assert_eq!((&results["overhead"]["card"], &results["bits"]["equal"]), (&json!("Mock card"), &json!(true)), "{results}");
    assert!(results["rates"].as_array().is_some_and(|rows| rows.len() > 6), "{results}");
    assert!(results["tune"]["devices"][0]["timed"].as_u64() > Some(0) && results["tuned"]["with_ms"].as_f64() > Some(0.0), "{results}");
    let memory = &results["memory"];
    assert!(memory["samples"].as_u64() > Some(10) && memory["taken_bytes"].as_u64() <= memory["promised_bytes"].as_u64(), "{memory}");
    assert_eq!(machine.used(0), 0);
    adopted(&scripts, &out, machine.folder());

    // A card that has no memory left fails the parts that need it, and the others are done all the same.
    machine.gpus.set_reserved(0, 2047 << 20).unwrap();
    let (said, document) = check("590");
    let failed: Vec<&str> = document["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["status"] == "failed")
        .map(|part| part["part"].as_str().unwrap())
        .collect();
    assert!(said.code == 1 && failed.contains(&"conformance") && !failed.contains(&"inventory"), "{failed:?}");
    // No time is no failure.
    let (said, document) = check("0");
    assert!(said.code == 0 && document["parts"].as_array().unwrap().iter().all(|part| part["status"] == "skipped"), "{document}");
}

/// What was measured is a table of the project then, under the card's name.
fn adopted(scripts: &Path, out: &Path, folder: &Path) {
    let adopt = |data: &Path| {
        let mut command = Command::new("python3");
        command.arg(scripts.join("adopt.py")).arg(out).arg(data);
        outcome(&mut command)
    };
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3 to adopt results with");
        return;
    }
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    let table = data.join("overhead.txt");
    std::fs::copy(scripts.join("../../crates/device-cuda/data/overhead.txt"), &table).unwrap();
    let before = std::fs::read_to_string(&table).unwrap();
    assert!(adopt(&data).err.contains("not a card of which there are others"));
    let rates = data.join("rates.txt");
    std::fs::copy(scripts.join("../../crates/device-cuda/data/rates.txt"), &rates).unwrap();
    let guesses = std::fs::read_to_string(&rates).unwrap();
    for name in ["overhead.txt", "overhead.json", "rates.txt"] {
        let text = std::fs::read_to_string(out.join(name)).unwrap();
        std::fs::write(out.join(name), text.replace("Mock card", "Card of this test")).unwrap();
    }
    for _ in 0..2 {
        let said = adopt(&data);
        assert_eq!((said.code, said.out.trim()), (0, "Card of this test"), "{}", said.err);
        let own = "card Card of this test\ngraph 4096\nnode 4096\ndevice 12582912\n";
        assert_eq!(std::fs::read_to_string(&table).unwrap(), format!("{before}{own}"));
        let measured = std::fs::read_to_string(&rates).unwrap();
        let own = measured.strip_prefix(&guesses).unwrap_or_else(|| panic!("{measured}"));
        assert!(own.starts_with("card Card of this test\nforward kernels ") && own.lines().count() == 17, "{own}");
        assert!(data.join("card/Card_of_this_test/check.json").exists() && data.join("card/Card_of_this_test/tuned.txt").exists());
    }
}
