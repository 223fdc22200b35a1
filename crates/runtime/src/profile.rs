//! Where the time of a step goes.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_device::{Cost, DeviceSpec, MeasuredKernels, Trace, Work};
use plimsoll_graph::Graph;
use plimsoll_graph::id::Id;
use plimsoll_plan::Plan;

/// Where the time of a step went: medians over several runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How many runs were measured.
    pub runs: u32,
    /// A run from call to return, with the cost of recording.
    pub step: Duration,
    /// The same step on the virtual clock, where the speed of a card that takes part is modelled. The load of the processor does not
    /// change it.
    pub modelled: Option<Duration>,
    /// The commands that ran in any run: queue after queue, in the order in which they run.
    pub commands: Vec<CommandProfile>,
    /// The kernels of the processor, for tables of costs; none where no processor computes.
    pub measured: Option<MeasuredKernels>,
}

/// A command of a plan: one kernel, into which several nodes may be fused, or a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandProfile {
    /// The name of the node that it mostly is, with how many were fused into it.
    pub label: Arc<str>,
    /// That node's operation; `copy` for a copy that the plan inserted.
    pub operation: String,
    /// Name and operation of every node that it does.
    pub nodes: Vec<(String, String)>,
    /// The device's full name.
    pub device: String,
    /// The index of its queue.
    pub queue: u32,
    /// Its position in that queue.
    pub position: u32,
    /// In how many of the runs it ran.
    pub runs: u32,
    /// When it started after the run did.
    pub start: Duration,
    /// From its start to its end, by the clock, on however many threads.
    pub duration: Duration,
    /// Into how many pieces it is cut for threads.
    pub pieces: u32,
    /// Its cost by the plan.
    pub cost: Cost,
    /// The plan's prediction.
    pub predicted: Duration,
    /// When it started and how long it took on the virtual clock, where [`Profile::modelled`] is.
    pub modelled: Option<(Duration, Duration)>,
}

/// All commands of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationProfile {
    /// The operation that the commands are named after.
    pub operation: String,
    /// How many there are.
    pub commands: u32,
    /// Their time.
    pub duration: Duration,
    /// Their part of the time of all commands.
    pub share: f64,
    /// Their cost by the plan.
    pub cost: Cost,
}

impl CommandProfile {
    /// Arithmetic done in a second, in units of 10⁹; `None` where it is not known.
    pub fn gflops(&self) -> Option<f64> {
        gflops(self.cost, self.duration)
    }
}

impl OperationProfile {
    /// As [`CommandProfile::gflops`].
    pub fn gflops(&self) -> Option<f64> {
        gflops(self.cost, self.duration)
    }
}

fn gflops(cost: Cost, duration: Duration) -> Option<f64> {
    (cost.flops > 0.0 && duration > Duration::ZERO).then(|| cost.flops / duration.as_secs_f64() / 1e9)
}

impl Profile {
    /// The time of all commands. Those of several queues run side by side, so it may be more than a step takes.
    pub fn busy(&self) -> Duration {
        self.commands.iter().map(|command| command.duration).sum()
    }

    /// Commands by operation, those that take most first.
    pub fn operations(&self) -> Vec<OperationProfile> {
        let busy = self.busy().as_secs_f64();
        let mut operations: Vec<OperationProfile> = Vec::new();
        for command in &self.commands {
            let position = operations.iter().position(|known| known.operation == command.operation).unwrap_or_else(|| {
                let operation = command.operation.clone();
                operations.push(OperationProfile { operation, commands: 0, duration: Duration::ZERO, share: 0.0, cost: Cost::default() });
                operations.len() - 1
            });
            let operation = &mut operations[position];
            operation.commands += 1;
            operation.duration += command.duration;
            operation.cost = operation.cost + command.cost;
        }
        for operation in &mut operations {
            operation.share = if busy > 0.0 { operation.duration.as_secs_f64() / busy } else { 0.0 };
        }
        operations.sort_by(|a, b| b.duration.cmp(&a.duration).then_with(|| a.operation.cmp(&b.operation)));
        operations
    }
}

/// Collects the traces of a plan's runs.
pub(crate) struct Recorder {
    spare: Option<Trace>,
    lengths: Vec<usize>,
    steps: Vec<Duration>,
    /// For each command of each queue.
    spans: Vec<Vec<Spans>>,
    /// Of the virtual clock.
    makespans: Vec<u64>,
}

/// Starts and durations of a command, in nanoseconds.
#[derive(Clone, Default)]
struct Spans {
    measured: (Vec<u64>, Vec<u64>),
    modelled: (Vec<u64>, Vec<u64>),
}

impl Recorder {
    pub fn new(plan: &Plan) -> Recorder {
        let lengths: Vec<usize> = plan.queues.iter().map(|queue| queue.program.commands.len()).collect();
        let spans = lengths.iter().map(|&length| vec![Spans::default(); length]).collect();
        Recorder { spare: None, lengths, steps: Vec::new(), spans, makespans: Vec::new() }
    }

    /// A trace for the next run.
    pub fn trace(&mut self) -> Trace {
        self.spare.take().unwrap_or_else(|| Trace::new(self.lengths.iter().copied()))
    }

    /// Takes a run's trace in.
    pub fn add(&mut self, step: Duration, trace: Option<Trace>, plan: &Plan, devices: &[DeviceSpec]) {
        self.steps.push(step);
        let Some(trace) = trace else { return };
        let is_modelled = plan.queues.iter().any(|queue| devices[queue.device.index()].is_modelled());
        let ran = |queue: usize, command: usize| trace.span(queue as u32, command as u32);
        let timeline = is_modelled.then(|| plan.on_the_clock(devices, |queue, command| ran(queue, command).is_some()));
        self.makespans.extend(timeline.as_ref().map(|timeline| nanoseconds(timeline.makespan)));
        for (queue, commands) in self.spans.iter_mut().enumerate() {
            for (command, spans) in commands.iter_mut().enumerate() {
                let Some((start, end)) = ran(queue, command) else { continue };
                spans.measured.0.push(start);
                spans.measured.1.push(end - start);
                if let Some((start, end)) = timeline.as_ref().map(|timeline| timeline.spans[queue][command]) {
                    spans.modelled.0.push(nanoseconds(start));
                    spans.modelled.1.push(nanoseconds(end) - nanoseconds(start));
                }
            }
        }
        self.spare = Some(trace);
    }

    pub fn finish(mut self, plan: &Plan, graph: &Graph, devices: &[DeviceSpec]) -> Profile {
        let mut commands = Vec::new();
        let mut kernels = MeasuredKernels::of(devices);
        for (index, (queue, spans)) in plan.queues.iter().zip(&mut self.spans).enumerate() {
            for (position, Spans { measured: (starts, durations), modelled }) in spans.iter_mut().enumerate() {
                if durations.is_empty() {
                    continue;
                }
                let command = &queue.program.commands[position];
                let duration = Duration::from_nanos(median(durations));
                if let (Some(kernels), Work::Kernel(call)) = (&mut kernels, &command.work) {
                    kernels.add(&devices[queue.device.index()], call.step(), duration.as_secs_f64());
                }
                let nodes: Vec<(String, String)> =
                    queue.nodes[position].iter().map(|id| (graph.node(*id).name.clone(), graph.node(*id).op.clone())).collect();
                let first = nodes.first().map_or_else(String::new, |(_, operation)| operation.clone());
                let (operation, pieces, cost) = match &command.work {
                    Work::Kernel(call) => (first, call.step().chunks, call.step().cost),
                    Work::Copy => ("copy".into(), 1, Cost::default()),
                    Work::Outside { .. } => ("file".into(), 1, Cost::default()),
                    Work::Loop { .. } | Work::Again { .. } => ("loop".into(), 1, Cost::default()),
                };
                commands.push(CommandProfile {
                    label: command.label.clone(),
                    operation,
                    nodes,
                    device: plan.devices[queue.device.index()].name.clone(),
                    queue: index as u32,
                    position: position as u32,
                    runs: durations.len() as u32,
                    start: Duration::from_nanos(median(starts)),
                    duration,
                    pieces,
                    cost,
                    predicted: Duration::try_from_secs_f64(queue.seconds[position]).unwrap_or(Duration::MAX),
                    modelled: (!modelled.0.is_empty())
                        .then(|| (Duration::from_nanos(median(&mut modelled.0)), Duration::from_nanos(median(&mut modelled.1)))),
                });
            }
        }
        let modelled = (!self.makespans.is_empty()).then(|| Duration::from_nanos(median(&mut self.makespans)));
        Profile { runs: self.steps.len() as u32, step: median(&mut self.steps), modelled, commands, measured: kernels }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The middle one of some values.
fn median<T: Ord + Copy + Default>(values: &mut [T]) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
