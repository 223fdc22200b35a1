//! Programs that the shim holds, with a driver that knows the use at every instant.

use std::process::Command;

use plimsoll_mock_driver as gpus;
use serde_json::{Value, json};

use super::Home;

const MIB: u64 = 1 << 20;

#[test]
fn programs_that_allocate_without_end_stay_within_their_lease() {
    let home = Home::new("shim");
    // A file that cargo built beside this program.
    let beside = |name: &str| std::env::current_exe().unwrap().with_file_name(name);
    let (driver, folder) = (home.0.join("driver"), home.0.join("gpus"));
    for folder in [&driver, &folder] {
        std::fs::create_dir(folder).unwrap();
    }
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::copy(beside("libplimsoll_mock_driver.so"), driver.join(name)).expect("the mock driver was built");
    }
    let machine = gpus::Machine::create(&folder, &[4096 * MIB]).unwrap();
    let client = home.0.join("client");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../shim/tests/shim/client.c");
    match Command::new("cc").arg("-o").arg(&client).args([source, "-ldl", "-lpthread"]).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return eprintln!("skipped: there is no C compiler"),
        output => assert!(output.unwrap().status.success()),
    }
    let report = home.0.join("report.json");
    let shim = beside("libplimsoll_shim.so");
    let run_with = |preload: &str, more: &str, script: &str| {
        let mut command = home.command(&format!("memory=1GiB user=7 report={} {more}", report.display()), script);
        command.env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", driver.join("libnvidia-ml.so.1")).env("LD_LIBRARY_PATH", &driver);
        command.env(gpus::MACHINE, &folder).env("PLIMSOLL_SHIM", &shim).env("LD_PRELOAD", preload);
        command.env("CUDA_MPS_PIPE_DIRECTORY", home.0.join("no-pipes"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said: Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr), said)
    };
    let run = |more: &str, script: &str| run_with("", more, script);
    let eight = format!("for i in 1 2 3 4 5 6 7 8; do {} v2 & done; wait", client.display());
    let (code, out, err, said) = run("", &eight);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("; shim: a library before the driver refuses what its processes together ask for beyond"), "{err}");
    assert_eq!(out.matches(" times, status 2, ").count(), 8, "each is refused at the line: {out}");
    assert!(machine.peak(0).unwrap() <= 1024 * MIB, "{} MiB of 1024", machine.peak(0).unwrap() / MIB);
    assert_eq!(machine.used().unwrap(), [0]);
    assert_eq!((&said["rung"], &said["also"]), (&json!("shim"), &json!(["watched"])), "{said}");
    assert!(said["refusals"].as_u64().unwrap() >= 8 && said["memory_came_back"] != json!(false), "{said}");
    let peak = said["cards"][0]["peaks"]["ledger"].as_u64().unwrap();
    assert!((512 * MIB..=1024 * MIB).contains(&peak), "{said}");
    // Without the shim the same programs take the card.
    let (_, _, err, said) = run("enforce=none", &eight);
    assert!(err.contains("; watched: ") && machine.peak(0).unwrap() > 1024 * MIB, "{err}{said}");
    assert_eq!((&said["rung"], &said["refusals"]), (&json!("watched"), &json!(null)), "{said}");
    // A copy of the shim that is loaded already does not count a second time. It may come from a run of another installation around
    // this one.
    let (copy, one) = (home.0.join("libplimsoll_shim.so"), format!("{} v2; echo :[$LD_PRELOAD]", client.display()));
    std::fs::copy(&shim, &copy).unwrap();
    let (_, out, err, _) = run_with(&format!("{} {}", copy.display(), driver.join("libcuda.so.1").display()), "", &one);
    assert!(out.contains("16 times, status 2, "), "{out}{err}");
    let kept = [&shim, &copy, &driver.join("libcuda.so.1")].map(|library| library.display().to_string()).join(":");
    assert!(out.contains(&format!(":[{kept}]")), "{out}{err}");
    // A lease inside of the lease.
    let inner = format!("{} play --exact --nocapture --test-threads=1 -q", std::env::current_exe().unwrap().display());
    let (_, out, err, _) = run("", &format!("PLIMSOLL_TEST_RUN='memory=512MiB user=7 -- {} v2' {inner}", client.display()));
    assert!(out.contains("8 times, status 2, free 0 of 512 MiB"), "{out}{err}");
    let (_, out, err, _) =
        run("", &format!("PLIMSOLL_TEST_RUN='memory=512MiB -- {0} v2' {inner} & sleep 0.1; {0} v2; wait", client.display()));
    assert_eq!(machine.used().unwrap(), [0], "{out}{err}");
}
