//! The common parts of the tests of `plimsoll train`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The command, ready to start.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in ["PLIMSOLL_SIM_GPUS", "CUDA_VISIBLE_DEVICES", "PLIMSOLL_LEASE"] {
        command.env_remove(name);
    }
    let state = std::env::temp_dir().join(format!("plimsoll-cli-train-state-{}", std::process::id()));
    command.arg("train").args(args).env("PLIMSOLL_STATE_DIR", state).env("PLIMSOLL_NVML", "");
    command
}

/// Runs it.
pub fn train(args: &[&str]) -> Output {
    command(args).output().expect("the command runs")
}

/// Starts it, sends it a signal once it listens, and waits for its end.
pub fn stopped(args: &[&str], signal: &str) -> Output {
    // Signals are listened to before the promise is made.
    stopped_after("CPU:0: ", args, signal).0
}

/// Starts it, sends it a signal after a line that begins so, and waits for its end. Also returns how long that took.
pub fn stopped_after(beginning: &str, args: &[&str], signal: &str) -> (Output, Duration) {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert!(err.read_line(&mut line).unwrap() > 0, "it ended too early");
    }
    let asked = Instant::now();
    assert!(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success());
    (child.wait_with_output().unwrap(), asked.elapsed())
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The document of a training that ended well.
pub fn document(args: &[&str]) -> Value {
    let output = train(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// `CPU:0`.
pub fn short(name: &str) -> &str {
    name.rsplit("device:").next().unwrap_or(name)
}

/// Name, limit, promise and measure of each device.
pub fn devices(document: &Value) -> Vec<(String, Option<u64>, u64, u64)> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let device = |device: &Value| {
        let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| number(&device[key]));
        (device["name"].as_str().expect("a name").to_string(), device["limit_bytes"].as_u64(), planned, measured)
    };
    document["devices"].as_array().expect("devices").iter().map(device).collect()
}

/// A folder of this test alone, removed when it is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it.
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-cli-train-{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// A path in it.
    pub fn text(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
