//! Measures the kernels of a processor: the table of costs that plans for it read.
//!
//! Small graphs of each class of kernels run on one thread and on all of them, with a trace. Each command is a sample: its step, and
//! how long it took. The rates of a class are those that predict its samples best.

mod graphs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_base::Result;
use plimsoll_cards::Options;
use plimsoll_device::{Class, CostTable, Device, DeviceSpec, InstructionSet, Sample, Step, Work, fit};
use plimsoll_device_cpu::{CpuDevice, CpuPool, caches, processor};
use plimsoll_graph::HostTensor;
use plimsoll_kernels::OneVariant;

use crate::Devices;
use crate::standard_registry;
use graphs::{Case, cases};

/// How long a graph is run, about, and how often at least and at most.
const TIME: Duration = Duration::from_millis(60);
const RUNS: (u32, u32) = (5, 60);

/// A measured call: the step, the threads of its device, and its seconds.
struct Call {
    step: Step,
    threads: u32,
    seconds: f64,
}

/// Measures the kernels for an instruction set, the best of this processor if there is none, on one thread and on `threads` (0: one
/// for every core). `shown` is called with each class of graphs before it is measured. It takes about ten seconds, and is true of
/// a machine that does nothing else meanwhile.
///
/// # Errors
/// UNIMPLEMENTED where this processor does not have the instructions; the errors of planning and running.
pub fn calibrate(instructions: Option<InstructionSet>, threads: u32, shown: &dyn Fn(Class)) -> Result<CostTable> {
    let instructions = instructions.unwrap_or_else(InstructionSet::detect);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = if threads == 0 { cores } else { threads };
    let mut table = CostTable {
        processor: processor().unwrap_or_else(|| instructions.to_string()),
        card: None,
        instructions,
        caches: caches(),
        threads,
        command: 0.0,
        rates: BTreeMap::new(),
    };
    let registry = Arc::new(standard_registry());
    let counts = if threads == 1 { vec![1] } else { vec![1, threads] };
    let of = |only| counts.iter().map(|threads| devices(instructions, *threads, only)).collect::<Result<Vec<_>>>();
    let (first, last) = (of(OneVariant::First)?, of(OneVariant::Last)?);
    let mut calls = Vec::new();
    let mut gaps = Vec::new();
    let mut class = None;
    for case in cases() {
        if class != Some(case.class) {
            class = Some(case.class);
            shown(case.class);
        }
        // Convolutions with fewer multiplications are the last of several variants.
        for devices in if case.class == Class::Winograd { &last } else { &first } {
            let gap = measure(&case, devices, &registry, &mut calls)?;
            gaps.extend(gap.filter(|_| case.has_gaps));
        }
    }
    gaps.sort_by(f64::total_cmp);
    table.command = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    for class in Class::ALL {
        let of_class = calls.iter().filter(|call| call.step.load.class == class);
        let samples: Vec<Sample> = of_class.map(|call| Sample::new(&table, &call.step, call.threads, call.seconds)).collect();
        table.rates.insert(class, fit(&samples));
    }
    Ok(table)
}

/// A device of so many threads that computes with these instructions, by one variant of each request.
fn devices(instructions: InstructionSet, threads: u32, only: OneVariant) -> Result<Devices> {
    let spec = DeviceSpec { caches: caches(), ..DeviceSpec::cpu(0, None, threads, instructions) };
    let device = CpuDevice::new(spec, CpuPool::new(threads as usize)?, Arc::new(only));
    Devices::with(vec![Arc::new(device) as Arc<dyn Device>], &Options::new())
}

/// Runs a graph and adds its commands to `calls`. Returns the seconds between two commands.
fn measure(case: &Case, devices: &Devices, registry: &Arc<plimsoll_ops::Registry>, calls: &mut Vec<Call>) -> Result<Option<f64>> {
    let built = case.build(registry)?;
    let session = crate::Session::new(devices, &built.graph, Arc::clone(registry))?;
    let feeds: Vec<(&str, &HostTensor)> = built.feeds.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let targets: Vec<&str> = built.targets.iter().map(String::as_str).collect();
    let callable = session.callable_for(&feeds, &[], &targets)?;
    let values: Vec<&HostTensor> = built.feeds.iter().map(|(_, value)| value).collect();
    let start = Instant::now();
    callable.run_into(&values, &mut [])?;
    callable.run_into(&values, &mut [])?;
    let once = start.elapsed() / 2;
    let runs = (TIME.as_nanos() / once.as_nanos().max(1)).clamp(RUNS.0.into(), RUNS.1.into()) as u32;
    let profile = callable.profile(&values, &mut [], runs)?;
    let threads = devices.specs()[0].threads;
    let queues = &callable.plan().queues;
    for command in &profile.commands {
        let Work::Kernel(call) = &queues[command.queue as usize].program.commands[command.position as usize].work else { continue };
        calls.push(Call { step: call.step().clone(), threads, seconds: command.duration.as_secs_f64() });
    }
    let between = profile.step.saturating_sub(profile.busy()).as_secs_f64();
    Ok((!profile.commands.is_empty()).then(|| between / profile.commands.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_measured() {
        let registry = Arc::new(standard_registry());
        for class in Class::ALL {
            let only = if class == Class::Winograd { OneVariant::Last } else { OneVariant::First };
            let devices = devices(InstructionSet::Baseline, 1, only).unwrap();
            let case = cases().into_iter().find(|case| case.class == class).expect("a graph of each class");
            let mut calls = Vec::new();
            measure(&case, &devices, &registry, &mut calls).unwrap();
            assert!(calls.iter().any(|call| call.step.load.class == class), "{class:?}");
        }
    }
}
