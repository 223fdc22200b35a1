//! The report of a run.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::mock::Mock;
use super::{Home, Said};

/// A run with a report: how it ended, and the report.
fn reported(home: &Home, options: &str, script: &str) -> (Said, Value) {
    let path = home.0.join("report.json");
    let said = home.run(&format!("report={} {options}", path.display()), script);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {}", said.err));
    let beside = std::fs::read_dir(&home.0).unwrap().flatten().filter(|entry| entry.file_name().to_string_lossy().contains("report.json"));
    assert_eq!(beside.count(), 1, "nothing lies beside it");
    (said, serde_json::from_str(&text).unwrap())
}

#[test]
fn a_report_says_how_it_ended() {
    let home = Home::new("report");
    let (_, done) = reported(&home, "memory=0.5", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    assert_eq!(done["ended"], json!({"how": "exited", "status": 0, "signal": null, "error": null}));
    assert_eq!((&done["version"], &done["command"][0], &done["rung"]), (&json!(1), &json!("sh"), &json!("not watched")));
    assert!(done["wall_seconds"].as_f64().unwrap() > 0.0 && done["user_seconds"].as_f64().unwrap() > 0.0, "{done}");
    assert!(done["peak_resident_bytes"].as_u64().unwrap() > 0 && done["pid"].as_u64().unwrap() > 0);
    let card = &done["cards"][0];
    assert_eq!((&card["reserved_bytes"], &card["gpu"], &card["name"]), (&json!(512 << 20), &json!(0), &json!("Simulated GPU")));
    assert_eq!(
        (&card["peak_bytes"], &card["peak_by"], &card["peaks"]),
        (&json!(null), &json!(null), &json!({"driver": null, "ledger": null}))
    );
    assert_eq!((&done["refusals"], &done["memory_came_back"], &done["left"]), (&json!(null), &json!(null), &json!([])));
    let lacks: Vec<&str> = done["not_possible"].as_array().unwrap().iter().map(|lack| lack["rung"].as_str().unwrap()).collect();
    assert_eq!(lacks, ["kernel", "mps", "shim", "framework", "watched"]);

    for (options, script, how) in [
        ("", "exit 3", json!({"how": "exited", "status": 3, "signal": null, "error": null})),
        ("", "kill -9 $$", json!({"how": "signal", "status": null, "signal": "SIGKILL", "error": null})),
        ("timeout=100", "exec sleep 300", json!({"how": "timeout", "status": null, "signal": null, "error": null})),
    ] {
        assert_eq!(reported(&home, options, script).1["ended"], how);
    }
    let (said, missing) = reported(&home, "program=/no/such/program", "");
    assert_eq!((said.status.code(), &missing["ended"]["how"], &missing["pid"]), (Some(127), &json!("not started"), &json!(null)));
    assert!(missing["ended"]["error"].as_str().unwrap().starts_with("/no/such/program: "), "{missing}");
    let (said, none) = reported(&home, "memory=2GiB", "true");
    assert_eq!((said.status.code(), &none["ended"]["how"], &none["cards"]), (Some(125), &json!("no lease"), &json!([])));
    assert!(none["ended"]["error"].as_str().unwrap().contains("2 GiB"), "{none}");
}

#[test]
fn peaks_are_said_with_the_observer() {
    let Some(mock) = Mock::new("report", false, &["lived"]) else { return };
    let home = Home::new("report-peaks");
    let driver = mock.path("lived");
    let path = home.0.join("report.json");
    let script = format!("echo 0 $$ 2000 > {driver}.uses; sleep 1.5");
    let mut command: Command = home.command(&format!("memory=1GiB user=7 report={} kill", path.display()), &script);
    command.env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", &driver);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let peak = json!(2000u64 << 20);
    assert_eq!((&report["cards"][0]["peak_bytes"], &report["cards"][0]["peak_by"]), (&peak, &json!("driver")), "{report}");
    assert_eq!((&report["ended"]["how"], &report["ended"]["signal"]), (&json!("beyond"), &json!("SIGTERM")), "{report}");
    assert_eq!((&report["rung"], &report["memory_came_back"]), (&json!("watched"), &json!(true)));
    assert!(report["warnings"][0].as_str().unwrap().starts_with("the program uses 1.95 GiB, beyond its 1 GiB"), "{report}");
    assert!(!output.status.success());
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before() {
    let home = Home::new("report-refused");
    let fifo = home.0.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let refused = |path: &Path, why: &str| {
        let said = home.run(&format!("report={}", path.display()), "echo :started");
        assert_eq!((said.status.code(), said.out.contains("started")), (Some(125), false), "{}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    };
    refused(&fifo, "it is no plain file");
    refused(&home.0, "it is no plain file");
    refused(Path::new("/dev/null"), "it is no plain file");
    refused(&home.0.join("no/folder/report.json"), "No such file");
    refused(Path::new("/proc/report.json"), "--report /proc/report.json: ");
    // A link stays one, and its file is replaced as a whole.
    std::fs::write(home.0.join("old.json"), "old").unwrap();
    std::os::unix::fs::symlink("old.json", home.0.join("link.json")).unwrap();
    let said = home.run(&format!("report={}", home.0.join("link.json").display()), "exit 0");
    assert!(said.status.success(), "{}", said.err);
    assert!(home.0.join("link.json").is_symlink() && std::fs::read_to_string(home.0.join("old.json")).unwrap().starts_with('{'));
    // One that leads to no file yet, too; one that leads to itself is none.
    std::fs::create_dir(home.0.join("results")).unwrap();
    std::os::unix::fs::symlink("results/new.json", home.0.join("next.json")).unwrap();
    std::os::unix::fs::symlink("round.json", home.0.join("round.json")).unwrap();
    std::os::unix::fs::symlink("/dev/null", home.0.join("null.json")).unwrap();
    let said = home.run(&format!("report={}", home.0.join("next.json").display()), "exit 0");
    assert!(said.status.success(), "{}", said.err);
    assert!(home.0.join("next.json").is_symlink() && std::fs::read_to_string(home.0.join("results/new.json")).unwrap().starts_with('{'));
    refused(&home.0.join("round.json"), "it is no plain file");
    refused(&home.0.join("null.json"), "it is no plain file");
    // The folder goes away meanwhile: the program's end stays the same.
    let folder = home.0.join("folder");
    std::fs::create_dir(&folder).unwrap();
    let said = home.run(&format!("report={}", folder.join("r.json").display()), &format!("rm -r {}; exit 5", folder.display()));
    assert_eq!(said.status.code(), Some(5), "{}", said.err);
    assert!(said.err.contains("@warning: --report "), "{}", said.err);
}
