//! The statistics of one run: TensorFlow's RunMetadata and StepStats.

use std::time::{Duration, Instant};

use plimsoll_device::{DeviceSpec, MeasuredKernels, Trace, Work};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, NodeId};
use plimsoll_plan::{Plan, Queue};

/// The records of a run beside its results.
#[derive(Clone, Debug, PartialEq)]
pub struct RunMetadata {
    /// When the run had its variables and its memory, and started. All times below count from here.
    pub began: Instant,
    /// From the call to its return: with its waits, and with the cost of recording.
    pub elapsed: Duration,
    /// The records of each device that took part.
    pub step_stats: Vec<DeviceStepStats>,
    /// The kernels of the processor, for tables of costs; none where no processor computes.
    pub measured: Option<MeasuredKernels>,
}

/// The records of a device in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStepStats {
    /// The device's full name.
    pub device: String,
    /// The kernels and copies, in the order in which they ran. A device runs one of them at a time.
    pub node_stats: Vec<NodeExecStats>,
}

/// A kernel or a copy that ran. Nodes that became part of another one's kernel have no entry of their own. Those that became
/// nothing (constants, variables, names for values) have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeExecStats {
    /// The node that it mostly is; for a copy, the node whose value it is.
    pub node_name: String,
    /// That node's operation; `copy` for a copy that the plan inserted.
    pub operation: String,
    /// `name = Op(inputs)`, as TensorFlow's timeline has it.
    pub timeline_label: String,
    /// Name and operation of the other nodes that were fused into it.
    pub fused: Vec<(String, String)>,
    /// When all that it needed was there and the device had come to it, in nanoseconds since the run began.
    pub scheduled_nanos: u64,
    /// When it started.
    pub all_start_nanos: u64,
    /// When its kernel started, after [`NodeExecStats::all_start_nanos`].
    pub op_start_rel_nanos: u64,
    /// When its kernel was done.
    pub op_end_rel_nanos: u64,
    /// When it was over.
    pub all_end_rel_nanos: u64,
    /// Bytes of its inputs: arguments as they are in memory.
    pub bytes_read: u64,
    /// Bytes of its outputs.
    pub bytes_written: u64,
    /// Bytes of scratch that it had.
    pub scratch_bytes: u64,
    /// When it started and ended on the virtual clock, in nanoseconds, where the speed of a card that takes part is modelled.
    pub modelled_nanos: Option<(u64, u64)>,
}

impl DeviceStepStats {
    /// The time of all kernels and copies.
    pub fn busy(&self) -> Duration {
        self.node_stats.iter().map(NodeExecStats::duration).sum()
    }
}

impl NodeExecStats {
    /// When it was over, in nanoseconds since the run began.
    pub fn all_end_nanos(&self) -> u64 {
        self.all_start_nanos + self.all_end_rel_nanos
    }

    /// How long it waited for the device after all that it needed was there.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.all_start_nanos.saturating_sub(self.scheduled_nanos))
    }

    /// How long its kernel took.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.op_end_rel_nanos - self.op_start_rel_nanos)
    }

    /// TensorFlow's `scheduled_micros`.
    pub fn scheduled_micros(&self) -> u64 {
        self.scheduled_nanos / 1000
    }

    /// TensorFlow's `all_start_micros`.
    pub fn all_start_micros(&self) -> u64 {
        self.all_start_nanos / 1000
    }

    /// TensorFlow's `op_start_rel_micros`.
    pub fn op_start_rel_micros(&self) -> u64 {
        self.op_start_rel_nanos / 1000
    }

    /// TensorFlow's `op_end_rel_micros`.
    pub fn op_end_rel_micros(&self) -> u64 {
        self.op_end_rel_nanos / 1000
    }

    /// TensorFlow's `all_end_rel_micros`.
    pub fn all_end_rel_micros(&self) -> u64 {
        self.all_end_rel_nanos / 1000
    }
}

impl RunMetadata {
    /// Of the stages of a run, in order; none of no stages. Times count from the beginning of the first.
    pub(crate) fn of_stages(stages: Vec<RunMetadata>) -> Option<RunMetadata> {
        stages.into_iter().reduce(|mut all, stage| {
            let before = stage.began.saturating_duration_since(all.began);
            let nanos = u64::try_from(before.as_nanos()).unwrap_or(u64::MAX);
            let modelled_end = |stats: &[DeviceStepStats]| {
                let ends = stats.iter().flat_map(|device| &device.node_stats).filter_map(|node| node.modelled_nanos);
                ends.map(|(_, end)| end).max().unwrap_or_default()
            };
            let modelled = modelled_end(&all.step_stats);
            for mut device in stage.step_stats {
                for node in &mut device.node_stats {
                    node.scheduled_nanos += nanos;
                    node.all_start_nanos += nanos;
                    node.modelled_nanos = node.modelled_nanos.map(|(start, end)| (start + modelled, end + modelled));
                }
                match all.step_stats.iter_mut().find(|known| known.device == device.device) {
                    Some(known) => known.node_stats.append(&mut device.node_stats),
                    None => all.step_stats.push(device),
                }
            }
            all.elapsed = before + stage.elapsed;
            if let (Some(all), Some(stage)) = (&mut all.measured, stage.measured) {
                all.kernels.extend(stage.kernels);
            }
            all
        })
    }

    /// Of a run that is over.
    pub(crate) fn new(plan: &Plan, graph: &Graph, devices: &[DeviceSpec], trace: &Trace, elapsed: Duration) -> RunMetadata {
        let ends: Vec<Vec<u64>> = plan.queues.iter().enumerate().map(|(index, queue)| ends(trace, index, queue)).collect();
        let is_modelled = plan.queues.iter().any(|queue| devices[queue.device.index()].is_modelled());
        let ran = |queue: usize, command: usize| trace.span(queue as u32, command as u32).is_some();
        let timeline = is_modelled.then(|| plan.on_the_clock(devices, ran));
        let modelled = |queue: usize, command: usize| {
            let (start, end) = *timeline.as_ref()?.spans.get(queue)?.get(command)?;
            Some(((start * 1e9).round() as u64, (end * 1e9).round() as u64))
        };
        let mut step_stats: Vec<DeviceStepStats> = Vec::new();
        let mut measured = MeasuredKernels::of(devices);
        for (index, queue) in plan.queues.iter().enumerate() {
            for (position, command) in queue.program.commands.iter().enumerate() {
                let span = trace.span(index as u32, position as u32);
                if let (Some(measured), Work::Kernel(call), Some((start, end))) = (&mut measured, &command.work, span) {
                    measured.add(&devices[queue.device.index()], call.step(), (end - start) as f64 / 1e9);
                }
            }
            let stats = |command| {
                let stats = node_stats(queue, command, graph, trace.span(index as u32, command as u32)?, index, &ends);
                Some(NodeExecStats { modelled_nanos: modelled(index, command), ..stats })
            };
            let node_stats: Vec<NodeExecStats> = (0..queue.program.commands.len()).filter_map(stats).collect();
            if !node_stats.is_empty() {
                step_stats.push(DeviceStepStats { device: plan.devices[queue.device.index()].name.clone(), node_stats });
            }
        }
        RunMetadata { began: trace.began(), elapsed, step_stats, measured }
    }
}

/// For each number of a queue's commands, when the last of them that ran ended.
fn ends(trace: &Trace, index: usize, queue: &Queue) -> Vec<u64> {
    let mut ends = vec![0];
    for command in 0..queue.program.commands.len() {
        let end = trace.span(index as u32, command as u32).map_or(ends[command], |(_, end)| end);
        ends.push(end);
    }
    ends
}

fn node_stats(queue: &Queue, position: usize, graph: &Graph, span: (u64, u64), index: usize, ends: &[Vec<u64>]) -> NodeExecStats {
    let command = &queue.program.commands[position];
    let waited = command.waits.iter().filter_map(|wait| ends.get(wait.queue as usize)?.get(wait.commands as usize)).copied();
    let scheduled_nanos = waited.chain([ends[index][position]]).max().unwrap_or(0);
    let nodes = &queue.nodes[position];
    let named = |id: &NodeId| (graph.node(*id).name.clone(), graph.node(*id).op.clone());
    let (node_name, node_op) = nodes.first().map(named).unwrap_or_default();
    let is_copy = matches!(command.work, Work::Copy);
    let inputs = nodes.first().map_or_else(Vec::new, |id| graph.node(*id).inputs.iter().map(|input| graph.tensor_name(*input)).collect());
    let inputs: Vec<&str> = inputs.iter().map(|name: &String| name.strip_suffix(":0").unwrap_or(name)).collect();
    let timeline_label = match is_copy {
        true => format!("copy of {node_name}"),
        false => format!("{node_name} = {node_op}({})", inputs.join(", ")),
    };
    let (start, end) = span;
    let scratch = command.scratch.iter().chain(&command.worker_scratch).map(|scratch| scratch.bytes);
    NodeExecStats {
        timeline_label,
        operation: if is_copy { "copy".to_string() } else { node_op },
        node_name,
        fused: nodes.iter().skip(1).map(named).collect(),
        scheduled_nanos,
        all_start_nanos: start,
        op_start_rel_nanos: 0,
        op_end_rel_nanos: end - start,
        all_end_rel_nanos: end - start,
        bytes_read: queue.bytes[position].0,
        bytes_written: queue.bytes[position].1,
        scratch_bytes: scratch.sum(),
        modelled_nanos: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_computing_are_told_apart() {
        let node = |scheduled_nanos, all_start_nanos, op_end_rel_nanos| NodeExecStats {
            node_name: "a".into(),
            operation: "Add".into(),
            timeline_label: "a = Add(x, y)".into(),
            fused: Vec::new(),
            scheduled_nanos,
            all_start_nanos,
            op_start_rel_nanos: 10,
            op_end_rel_nanos,
            all_end_rel_nanos: op_end_rel_nanos + 5,
            bytes_read: 0,
            bytes_written: 0,
            scratch_bytes: 0,
            modelled_nanos: None,
        };
        let stats = DeviceStepStats { device: "CPU:0".into(), node_stats: vec![node(100, 150, 40), node(200, 200, 30)] };
        let waited: Vec<Duration> = stats.node_stats.iter().map(NodeExecStats::waited).collect();
        assert_eq!(waited, [50, 0].map(Duration::from_nanos));
        assert_eq!(stats.busy(), Duration::from_nanos(30 + 20));
    }
}
