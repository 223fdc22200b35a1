//! A profile as a document and as a table.

use std::fmt::Write;

use plimsoll::costs::MeasuredKernels;
use plimsoll::{Profile, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::trace::{self, microseconds};

/// `bench --profile`'s file. It is a Chrome trace, too: `chrome://tracing` and Perfetto show `traceEvents`.
#[derive(Serialize)]
pub struct Document {
    case: String,
    runs: u32,
    step_us: f64,
    commands_us: f64,
    /// The step on the virtual clock; null where no card's speed is modelled.
    modelled_step_us: Option<f64>,
    operations: Vec<Operation>,
    commands: Vec<Command>,
    /// For `calibrate --from`.
    measured: Vec<MeasuredKernels>,
    #[serde(rename = "traceEvents")]
    trace_events: Vec<Value>,
}

#[derive(Serialize)]
struct Operation {
    op: String,
    commands: u32,
    total_us: f64,
    share: f64,
    gflops: Option<f64>,
}

#[derive(Serialize)]
struct Command {
    label: String,
    op: String,
    /// The operations fused into it, its own first.
    ops: Vec<String>,
    nodes: Vec<String>,
    device: String,
    runs: u32,
    start_us: f64,
    duration_us: f64,
    predicted_us: f64,
    modelled_start_us: Option<f64>,
    modelled_us: Option<f64>,
    pieces: u32,
    flops: f64,
    bytes: f64,
    gflops: Option<f64>,
}

impl Document {
    /// The profile of a case.
    pub fn new(case: &str, profile: &Profile) -> Document {
        let operation = |operation: plimsoll::OperationProfile| Operation {
            gflops: operation.gflops(),
            total_us: microseconds(operation.duration),
            op: operation.operation,
            commands: operation.commands,
            share: operation.share,
        };
        let command = |command: &plimsoll::CommandProfile| Command {
            label: command.label.to_string(),
            op: command.operation.clone(),
            ops: command.nodes.iter().map(|(_, op)| op.clone()).collect(),
            nodes: command.nodes.iter().map(|(name, _)| name.clone()).collect(),
            device: command.device.clone(),
            runs: command.runs,
            start_us: microseconds(command.start),
            duration_us: microseconds(command.duration),
            predicted_us: microseconds(command.predicted),
            modelled_start_us: command.modelled.map(|(start, _)| microseconds(start)),
            modelled_us: command.modelled.map(|(_, duration)| microseconds(duration)),
            pieces: command.pieces,
            flops: command.cost.flops,
            bytes: command.cost.bytes,
            gflops: command.gflops(),
        };
        let commands: Vec<Command> = profile.commands.iter().map(command).collect();
        let mut trace_events = Vec::new();
        // Medians may overlap a little, which viewers would show as one inside of the other.
        let (mut queue, mut end) = (None, 0.0);
        for (profile, command) in profile.commands.iter().zip(&commands) {
            let pid = profile.queue as usize + 1;
            if queue.replace(profile.queue) != Some(profile.queue) {
                trace_events.extend([trace::process(pid, &profile.device), trace::thread(pid, 1, "queue")]);
                end = 0.0;
            }
            let args = json!({"ops": command.ops, "gflops": command.gflops});
            let start = command.start_us.max(end);
            trace_events.push(trace::slice(pid, 1, &command.label, &command.op, start, command.duration_us, &args));
            end = start + command.duration_us;
        }
        trace_events.extend(virtual_clock(profile));
        Document {
            case: case.to_string(),
            runs: profile.runs,
            step_us: microseconds(profile.step),
            commands_us: microseconds(profile.busy()),
            modelled_step_us: profile.modelled.map(microseconds),
            operations: profile.operations().into_iter().map(operation).collect(),
            commands,
            measured: profile.measured.iter().cloned().collect(),
            trace_events,
        }
    }

    /// The document as a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, path: &std::path::Path) -> Result<()> {
        trace::write(path, self)
    }

    /// The operations and the commands that take most.
    pub fn table(&self) -> String {
        const ROWS: usize = 12;
        let rate = |gflops: Option<f64>| gflops.map_or_else(String::new, |gflops| format!("{gflops:.1}"));
        let mut text = format!(
            "a run while it is traced: {:.1} us, its commands together {:.1} us\n{:>10} {:>6} {:>8} {:>9}  operation",
            self.step_us, self.commands_us, "us", "share", "commands", "GFLOP/s"
        );
        for operation in self.operations.iter().take(ROWS) {
            let (us, share) = (operation.total_us, 100.0 * operation.share);
            let _ = write!(text, "\n{us:>10.1} {share:>5.1}% {:>8} {:>9}  {}", operation.commands, rate(operation.gflops), operation.op);
        }
        let _ = write!(text, "\n{:>10} {:>6} {:>8} {:>9}  command", "us", "share", "pieces", "GFLOP/s");
        let mut commands: Vec<&Command> = self.commands.iter().collect();
        commands.sort_by(|a, b| b.duration_us.total_cmp(&a.duration_us));
        for command in commands.into_iter().take(ROWS) {
            let (us, share) = (command.duration_us, 100.0 * command.duration_us / self.commands_us.max(f64::MIN_POSITIVE));
            let ops = short(&command.ops);
            let _ = write!(text, "\n{us:>10.1} {share:>5.1}% {:>8} {:>9}  {}: {ops}", command.pieces, rate(command.gflops), command.label);
        }
        text
    }
}

/// The commands on the virtual clock, as devices of their own behind the measured ones.
fn virtual_clock(profile: &Profile) -> Vec<Value> {
    let queues = profile.commands.iter().map(|command| command.queue as usize + 1).max().unwrap_or(0);
    let mut events = Vec::new();
    for queue in profile.commands.chunk_by(|a, b| a.queue == b.queue) {
        let pid = queues + queue[0].queue as usize + 1;
        let modelled: Vec<_> = queue.iter().filter_map(|command| command.modelled.map(|times| (command, times))).collect();
        if !modelled.is_empty() {
            events.extend([trace::process(pid, &format!("{} on the virtual clock", queue[0].device)), trace::thread(pid, 1, "queue")]);
        }
        events.extend(modelled.into_iter().map(|(command, (start, duration))| {
            trace::slice(pid, 1, &command.label, &command.operation, microseconds(start), microseconds(duration), &json!({}))
        }));
    }
    events
}

/// `MatMul+BiasAdd+Relu`; not more than some.
fn short(ops: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = ops[..ops.len().min(SHOWN)].join("+");
    if ops.len() > SHOWN {
        let _ = write!(text, "+{}", ops.len() - SHOWN);
    }
    text
}
