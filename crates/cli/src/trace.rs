//! Step statistics of runs: as a table, and as a Chrome trace that `chrome://tracing` and Perfetto show. Devices are processes,
//! runs are threads of them; times are microseconds since the first run began. Where the speed of cards is modelled, devices are there
//! once more on the virtual clock, on which every run begins at 0.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plimsoll::costs::MeasuredKernels;
use plimsoll::{Bytes, Result, RunMetadata};
use serde::Serialize;
use serde_json::{Value, json};

/// Options for reports on runs.
#[derive(Args, Clone, Debug, Default)]
pub struct TraceArgs {
    /// Print what ran when on which device (of a training, in its last step): a row for each kernel and copy, with how long it waited
    /// and what it read and wrote
    #[arg(long)]
    pub stats: bool,
    /// Write that as a Chrome trace, for chrome://tracing and Perfetto, and for `calibrate --from`
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

impl TraceArgs {
    /// Whether anything is to be written down.
    pub fn is_asked(&self) -> bool {
        self.stats || self.profile.is_some()
    }

    /// Writes the trace where it was asked for; the table where that was asked for.
    ///
    /// # Errors
    /// The system's error.
    pub fn deliver(&self, runs: &[TracedRun]) -> Result<Option<String>> {
        if let Some(path) = &self.profile {
            let measured = runs.iter().filter_map(|run| run.metadata.measured.clone()).collect();
            write(path, &Document { display_time_unit: "ns", measured, trace_events: events(runs) })?;
        }
        Ok(self.stats.then(|| table(runs)))
    }
}

/// A run that was traced.
pub struct TracedRun {
    /// The kernel or copy.
    pub label: String,
    /// When.
    pub metadata: RunMetadata,
}

#[derive(Serialize)]
struct Document {
    #[serde(rename = "displayTimeUnit")]
    display_time_unit: &'static str,
    /// For `calibrate --from`.
    measured: Vec<MeasuredKernels>,
    #[serde(rename = "traceEvents")]
    trace_events: Vec<Value>,
}

/// The name of a process: a device.
pub fn process(pid: usize, name: &str) -> Value {
    json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
}

/// The name of a thread: a queue or a run.
pub fn thread(pid: usize, tid: usize, name: &str) -> Value {
    json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}})
}

/// Something that took time. Microseconds.
pub fn slice(pid: usize, tid: usize, name: &str, category: &str, start_us: f64, duration_us: f64, args: &Value) -> Value {
    json!({"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": start_us, "dur": duration_us, "args": args})
}

/// A document as a file.
///
/// # Errors
/// As [`plimsoll::model::file_error`].
pub fn write(path: &Path, document: &impl Serialize) -> Result<()> {
    // Our documents have text keys only, so there is nothing that JSON lacks.
    let text = serde_json::to_string(document).unwrap_or_default();
    let mut out = plimsoll::model::create_output(path)?;
    std::io::Write::write_all(&mut out, (text + "\n").as_bytes()).map_err(|error| plimsoll::model::file_error(path, &error))
}

/// Nanoseconds are the last digit.
pub fn microseconds(duration: Duration) -> f64 {
    micros(duration.as_nanos() as u64)
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Devices by their first appearance: the position is the process, counted from 1.
fn devices(runs: &[TracedRun]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for device in runs.iter().flat_map(|run| &run.metadata.step_stats) {
        if !names.contains(&device.device.as_str()) {
            names.push(&device.device);
        }
    }
    names.sort_unstable();
    names
}

fn events(runs: &[TracedRun]) -> Vec<Value> {
    let devices = devices(runs);
    let mut events: Vec<Value> = (1..).zip(&devices).map(|(pid, name)| process(pid, name)).collect();
    let zero = runs.iter().map(|run| run.metadata.began).min();
    for (tid, run) in (1..).zip(runs) {
        let offset = zero.map_or(0, |zero| run.metadata.began.duration_since(zero).as_nanos() as u64);
        for device in &run.metadata.step_stats {
            let pid = 1 + devices.iter().position(|name| *name == device.device).unwrap_or(0);
            events.push(thread(pid, tid, &run.label));
            events.extend(device.node_stats.iter().map(|node| {
                let args = json!({
                    "label": node.timeline_label, "op": node.operation, "fused": node.fused.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                    "scheduled_us": micros(offset + node.scheduled_nanos),
                    "bytes_read": node.bytes_read, "bytes_written": node.bytes_written, "scratch_bytes": node.scratch_bytes,
                });
                let start = micros(offset + node.all_start_nanos);
                slice(pid, tid, &node.node_name, &node.operation, start, micros(node.all_end_rel_nanos), &args)
            }));
        }
    }
    events.extend(virtual_clock(runs, &devices));
    events
}

fn virtual_clock(runs: &[TracedRun], devices: &[&str]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut named = Vec::new();
    for (tid, run) in (1..).zip(runs) {
        for device in &run.metadata.step_stats {
            let modelled: Vec<_> = device.node_stats.iter().filter_map(|node| Some((node, node.modelled_nanos?))).collect();
            if modelled.is_empty() {
                continue;
            }
            let pid = 1 + devices.len() + devices.iter().position(|name| *name == device.device).unwrap_or(0);
            if !named.contains(&pid) {
                named.push(pid);
                events.push(process(pid, &format!("{} on the virtual clock", device.device)));
            }
            events.push(thread(pid, tid, &run.label));
            events.extend(modelled.into_iter().map(|(node, (start, end))| {
                let args = json!({"label": node.timeline_label, "op": node.operation});
                slice(pid, tid, &node.node_name, &node.operation, micros(start), micros(end - start), &args)
            }));
        }
    }
    events
}

fn table(runs: &[TracedRun]) -> String {
    let mut text = String::new();
    for run in runs {
        let _ = writeln!(text, "{}: {:.1} us from call to return", run.label, microseconds(run.metadata.elapsed));
        for device in &run.metadata.step_stats {
            let name = device.device.rsplit("device:").next().unwrap_or(&device.device);
            let _ = writeln!(text, "{name}: {} kernels and copies, {:.1} us", device.node_stats.len(), microseconds(device.busy()));
            let _ = writeln!(text, "{:>10} {:>10} {:>10} {:>11} {:>11}  node", "start us", "end us", "waited us", "read", "written");
            for node in &device.node_stats {
                let fused = if node.fused.is_empty() { String::new() } else { format!(" (+{})", node.fused.len()) };
                let _ = writeln!(
                    text,
                    "{:>10.1} {:>10.1} {:>10.1} {:>11} {:>11}  {}{fused}",
                    micros(node.all_start_nanos),
                    micros(node.all_end_nanos()),
                    microseconds(node.waited()),
                    Bytes(node.bytes_read).to_string(),
                    Bytes(node.bytes_written).to_string(),
                    node.timeline_label
                );
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}
