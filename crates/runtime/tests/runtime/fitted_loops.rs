//! Programs of loops, lists and conditions, made at random, with plans that are made to fit ever lower lines: the same bits, no plan
//! for a lower line takes more, and what one byte below the least line lacks is that byte. The programs are those of crates/cli;
//! `PLIMSOLL_PROGRAMS` may name another folder of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Result};
use plimsoll_cards::Options;
use plimsoll_device::{Command, Device, DeviceKind, DeviceSpec, Place, Work};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::{Footprint, Holds, Plan, PlanBuffer};
use plimsoll_runtime::{Devices, Session};
use serde_json::Value;

/// Lines from the lowest peak up to the peak as it is, but for the first: `PLIMSOLL_LINES`, or few.
fn lines() -> u64 {
    std::env::var("PLIMSOLL_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(2)
}

/// A tensor as `type dimensions bytes`.
fn tensor(text: &str) -> HostTensor {
    let words: Vec<&str> = text.split(' ').collect();
    let data_type = match words[0] {
        "float32" => DataType::Float,
        "float64" => DataType::Double,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "bool" => DataType::Bool,
        other => panic!("{other}"),
    };
    let dims: Vec<u64> = words[1].split(',').filter(|dim| !dim.is_empty()).map(|dim| dim.parse().unwrap()).collect();
    let bytes: Vec<u8> = (0..words[2].len() / 2).map(|at| u8::from_str_radix(&words[2][2 * at..2 * at + 2], 16).unwrap()).collect();
    HostTensor::from_bytes(data_type, Shape::from(dims), &bytes).unwrap()
}

/// More than the values of a program take.
const FILE: Bytes = Bytes(8 << 20);

/// Devices between guard pages, whose reservations are as fine as their buffers: the smallest value counts. With a file or without one.
fn fine(count: u32, has_file: bool) -> Devices {
    let options = Options::new().intra_op(2).device_count(DeviceKind::Cpu, count);
    let pool = CpuPool::new(options.threads().unwrap()).unwrap();
    let device = |spec: DeviceSpec| {
        let spec = DeviceSpec { granularity: spec.alignment, ..spec };
        Arc::new(CpuDevice::new(spec, pool.clone(), Arc::new(CpuKernels)).with_guards()) as Arc<dyn Device>
    };
    let mut devices: Vec<Arc<dyn Device>> = options.resolve().unwrap().into_iter().map(device).collect();
    if has_file {
        let (folder, buffer) = (env!("CARGO_TARGET_TMPDIR"), devices[0].allocate(Bytes(1 << 16), "buffer").unwrap());
        devices.push(Arc::new(SpillDevice::create(DeviceSpec::spill(0, FILE, folder), folder.as_ref(), buffer).unwrap()));
    }
    Devices::with(devices, &options).unwrap()
}

struct Step {
    feeds: BTreeMap<String, HostTensor>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

fn steps(program: &Value) -> Vec<Step> {
    let init =
        names(&program["init"]).into_iter().map(|target| Step { feeds: BTreeMap::new(), fetches: Vec::new(), targets: vec![target] });
    let step = |step: &Value| Step {
        feeds: step["feeds"].as_object().unwrap().iter().map(|(name, text)| (name.clone(), tensor(text.as_str().unwrap()))).collect(),
        fetches: step["fetches"].as_object().unwrap().keys().cloned().collect(),
        targets: names(&step["targets"]),
    };
    init.chain(program["steps"].as_array().unwrap().iter().map(step)).collect()
}

/// Every argument of a command lies in a buffer that is taken during the command, and the buffers of a loop's body in its scratch.
fn check_buffers(plan: &Plan) {
    let spans = |outer: &PlanBuffer, offset: u64, bytes: u64| outer.offset <= offset && offset + bytes <= outer.offset + outer.bytes;
    for (number, queue) in plan.queues.iter().enumerate() {
        let is_first = plan.queues.iter().position(|other| other.device == queue.device) == Some(number);
        for (at, command) in (0u32..).zip(&queue.program.commands) {
            for arg in command.args.iter().chain(&command.scratch).chain(&command.guard) {
                let Place::Arena(device) = arg.place else { continue };
                let is_here = is_first && device == queue.device.index() as u32;
                let holds = |buffer: &&PlanBuffer| {
                    buffer.device.index() as u32 == device
                        && spans(buffer, arg.offset, arg.bytes)
                        && (!is_here || (buffer.commands.0..=buffer.commands.1).contains(&at))
                };
                let deepest = plan.buffers.iter().filter(holds).map(|buffer| buffer.depth).max();
                let depth = within(&queue.program.commands, at as usize);
                assert!(
                    deepest.is_some_and(|deepest| deepest <= depth || !is_here),
                    "{}: {arg:?} is in no buffer: {deepest:?} {depth}",
                    command.label
                );
            }
        }
    }
    for inner in plan.buffers.iter().filter(|buffer| buffer.depth > 0) {
        let holds = |outer: &&PlanBuffer| {
            outer.depth + 1 == inner.depth
                && outer.device == inner.device
                && matches!(outer.holds, Holds::Scratch(_))
                && spans(outer, inner.offset, inner.bytes)
                && outer.commands.0 < inner.commands.0
                && inner.commands.1 < outer.commands.1
        };
        assert_eq!(plan.buffers.iter().filter(holds).count(), 1, "{inner:?}");
    }
}

/// In how many loops a command is.
fn within(commands: &[Command], at: usize) -> u32 {
    let begins = commands[..at].iter().filter(|command| matches!(command.work, Work::Loop { .. })).count();
    let ends = commands[..at].iter().filter(|command| matches!(command.work, Work::Again { .. })).count();
    (begins - ends) as u32
}

/// What a session gives.
struct Ran {
    values: Vec<HostTensor>,
    /// For each plan, what it takes of each device, and the bound below that.
    peaks: Vec<Vec<Bytes>>,
    bounds: Vec<Vec<Bytes>>,
    /// Commands that run again, and values that wait in a file.
    again: usize,
    moved: usize,
    /// What the first device is promised to hold.
    held: Bytes,
}

fn run(session: &Session, steps: &[Step]) -> Result<Ran> {
    let mut ran = Ran { values: Vec::new(), peaks: Vec::new(), bounds: Vec::new(), again: 0, moved: 0, held: Bytes::ZERO };
    let mut footprint = Footprint::new(session.devices().specs());
    for step in steps {
        let feeds: Vec<(&str, &HostTensor)> = step.feeds.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let [fetches, targets] = [&step.fetches, &step.targets].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = session.plan(&feeds, &fetches, &targets)?;
        check_buffers(&plan);
        assert!(plan.devices.iter().all(|device| device.least <= device.peak.total()), "{:?}", plan.devices);
        ran.peaks.push(plan.devices.iter().map(|device| device.packed).collect());
        ran.bounds.push(plan.devices.iter().map(|device| device.least).collect());
        footprint.add(&plan);
        let fitting = plan.fitting.unwrap_or_default();
        ran.again += fitting.recomputed.len();
        ran.moved += fitting.offloaded.len();
        ran.values.extend(session.run(&feeds, &fetches, &targets)?);
    }
    ran.held = footprint.needs()[0].peak;
    Ok(ran)
}

#[test]
fn loops_give_the_same_bits_at_every_line() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/programs");
    let folder = std::env::var_os("PLIMSOLL_PROGRAMS").map_or(ours, PathBuf::from);
    let text = std::fs::read_to_string(folder.join("programs.jsonl")).unwrap();
    let (mut lower, mut again, mut waiting) = (0, 0, 0);
    for line in text.lines() {
        let program: Value = serde_json::from_str(line).unwrap();
        let (name, steps) = (program["name"].as_str().unwrap(), steps(&program));
        let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
        let graph = plimsoll_formats::read_graph_def(program["graph"].as_str().unwrap().as_bytes()).unwrap();
        let graph = Graph::resolve(graph, registry.table()).unwrap();
        let cpus = program["cpus"].as_u64().unwrap() as u32;
        let devices = fine(cpus, false);
        let session = Session::new(&devices, &graph, registry.clone()).unwrap();
        // Steps that fail are another test's.
        let Ok(Ran { values: expected, peaks: highest, bounds, .. }) = run(&session, &steps) else { continue };
        let mut before: Option<Vec<Vec<Bytes>>> = None;
        for line in 0..=lines() {
            let most = highest.iter().flatten().max().unwrap().0 * line / lines();
            let session = session.with_lines(vec![Some(Bytes(most)); devices.specs().len()]).unwrap();
            let ran = run(&session, &steps).unwrap_or_else(|error| panic!("{name} at {most}: {error}"));
            let Ran { values, peaks, held, .. } = ran;
            assert_eq!(values, expected, "{name} at {most}");
            assert_eq!(ran.bounds, bounds, "{name} at {most}");
            // On several devices one may take more where another takes less.
            if devices.specs().len() == 1
                && let Some(before) = &before
            {
                let is_no_less = before.iter().flatten().zip(peaks.iter().flatten()).all(|(low, high)| low <= high);
                assert!(is_no_less, "{name}: {before:?} and, at the higher line {most}, {peaks:?}");
            }
            if line == 0 && devices.specs().len() == 1 {
                for limit in [held, held - Bytes(1)] {
                    let session = session.with_lines(vec![Some(limit)]).unwrap();
                    let ran = run(&session, &steps).unwrap();
                    assert_eq!((&ran.values, ran.held), (&expected, held), "{name} at {limit}");
                }
            }
            lower += usize::from(line == 0 && peaks != highest);
            again += ran.again;
            before = Some(peaks);
        }
        // Values that a condition may not have made wait in a file if they were.
        let session = Session::new(&fine(cpus, true), &graph, registry).unwrap();
        let lines = (0..cpus).map(|_| Bytes::ZERO).chain([FILE]).map(Some).collect();
        let ran = run(&session.with_lines(lines).unwrap(), &steps).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(ran.values, expected, "{name} with a file");
        waiting += ran.moved;
    }
    let is_ours = std::env::var_os("PLIMSOLL_PROGRAMS").is_none();
    assert!(!is_ours || (lower > 5 && again > 100), "{lower} programs take less, and {again} commands run again");
    assert!(!is_ours || waiting > 0, "no value waits in a file");
}
