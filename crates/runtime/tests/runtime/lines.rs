//! Graphs made at random under ten lines from the least to what they take as they are: the same bits, a lower line never
//! gives a faster step or a higher peak, and one byte below the least is refused with a shortfall that is exact. So it is where values may
//! wait in a file.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceSpec};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_ops::builder::VariableKind;
use plimsoll_plan::{Fitting, Footprint};
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::random_graphs::{COLUMNS, Made, ROWS, Step, bits, make, needs_a_file, steps};

/// Lines for each graph.
const LINES: u64 = 10;

/// How many graphs are tried: `PLIMSOLL_GRAPHS`, or few.
pub fn cases() -> u32 {
    std::env::var("PLIMSOLL_GRAPHS").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20)
}

/// More than the values of a graph take.
const FILE: Bytes = Bytes(8 << 20);

/// Processors, of which one has lines, and perhaps a file.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub processors: u32,
    /// The one that has lines.
    pub device: usize,
    pub has_file: bool,
}

impl Machine {
    /// One processor.
    pub const ONE: Machine = Machine { processors: 1, device: 0, has_file: false };

    /// Processors whose promises are as fine as their buffers: the smallest value counts. Blocks lie between guard pages. A file, if there is
    /// one, has its buffer elsewhere, so that lines may be as low as they like.
    fn devices(self, line: Option<Bytes>) -> Devices {
        let options = Options::new().intra_op(1).device_count(DeviceKind::Cpu, self.processors);
        let pool = CpuPool::new(options.threads().unwrap()).unwrap();
        let specs = options.resolve().unwrap();
        let buffer = CpuDevice::new(specs[0].clone(), pool.clone(), Arc::new(CpuKernels)).allocate(Bytes(1 << 16), "buffer").unwrap();
        let device = |(index, spec): (usize, DeviceSpec)| {
            let memory_limit = if index == self.device { line } else { None };
            let spec = DeviceSpec { granularity: spec.alignment, memory_limit, ..spec };
            Arc::new(CpuDevice::new(spec, pool.clone(), Arc::new(CpuKernels)).with_guards()) as Arc<dyn Device>
        };
        let mut devices: Vec<Arc<dyn Device>> = specs.into_iter().enumerate().map(device).collect();
        if self.has_file {
            let folder = env!("CARGO_TARGET_TMPDIR");
            devices.push(Arc::new(SpillDevice::create(DeviceSpec::spill(0, FILE, folder), folder.as_ref(), buffer).unwrap()));
        }
        Devices::with(devices, &options).unwrap()
    }

    /// The lines of its devices.
    fn lines(self, line: Bytes) -> Vec<Option<Bytes>> {
        let processors = (0..self.processors as usize).map(|index| (index == self.device).then_some(line));
        processors.chain(self.has_file.then_some(Some(FILE))).collect()
    }
}

pub fn session(made: &Made, devices: &Devices) -> Session {
    Session::new(devices, &made.graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap()
}

/// What is fed.
pub fn waves(shape: &[u64]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i as f32 * 0.37).sin()).collect();
    HostTensor::from_slice(Shape::from(shape.to_vec()), &values).unwrap()
}

/// What is asked of a graph.
#[derive(Clone, Copy)]
struct Asked<'a> {
    machine: Machine,
    /// What is fed.
    x: &'a HostTensor,
    fetch: &'a str,
}

/// What all runs are promised to hold of the device, what that is above its line, and the predicted seconds of the step; and the bound below
/// each device's part of the step.
fn promised(session: &Session, devices: &Devices, of: Asked<'_>) -> (Bytes, Bytes, f64, Vec<Bytes>) {
    let Asked { machine, x, fetch } = of;
    let mut footprint = Footprint::new(devices.specs());
    footprint.add(&session.plan(&[], &[], &["init"]).unwrap());
    let step = session.plan(&[("x", x)], &[fetch], &["changes"]).unwrap();
    footprint.add(&step);
    let need = &footprint.needs()[machine.device];
    assert!(step.devices.iter().all(|device| device.least <= device.peak.total()), "{:?}", step.devices);
    (need.peak, need.shortfall(), step.seconds, step.devices.iter().map(|device| device.least).collect())
}

/// The values of two steps, and those of the variables behind them.
pub fn run(session: &Session, made: &Made, (x, fetch): (&HostTensor, &str)) -> plimsoll_base::Result<Vec<Vec<u32>>> {
    session.run(&[], &[], &["init"])?;
    let mut values = Vec::new();
    for _ in 0..2 {
        values.extend(session.run(&[("x", x)], &[fetch], &["changes"])?.iter().map(bits));
    }
    values.extend(made.variables.iter().map(|variable| bits(&session.read_variable(&variable.name).unwrap())));
    Ok(values)
}

/// The least line, what the graph takes as it is, and how the step is made to fit at the least line.
pub fn at_every_line(made: &Made, (x, fetch): (&HostTensor, &str), machine: Machine) -> Result<(Bytes, Bytes, Fitting), TestCaseError> {
    let of = Asked { machine, x, fetch };
    let open = machine.devices(None);
    let plain = session(made, &open);
    let (highest, _, _, bounds) = promised(&plain, &open, of);
    let expected = run(&plain, made, (x, fetch)).unwrap();
    if highest == Bytes::ZERO {
        // Nothing of the graph is on the device.
        return Ok((highest, highest, Fitting::default()));
    }
    let under = |limit: Bytes| {
        let devices = machine.devices(Some(limit));
        (session(made, &devices), devices)
    };
    let (nothing, devices) = under(Bytes(1));
    let (least, shortfall, ..) = promised(&nothing, &devices, of);
    prop_assert_eq!(shortfall, least - Bytes(1));

    let mut lower: Option<(Bytes, f64)> = None;
    for line in 0..LINES {
        let limit = Bytes(least.0 + (highest - least).0 * line / (LINES - 1));
        // Pages, which are coarser than these buffers, are no matter here.
        let with_lines = plain.with_lines(machine.lines(limit)).unwrap();
        let (peak, shortfall, seconds, same) = promised(&with_lines, &open, of);
        prop_assert_eq!(&same, &bounds, "no line changes the bound");
        prop_assert!(peak <= limit && shortfall == Bytes::ZERO, "{limit}: {peak}");
        if line % (LINES / 2) == 0 {
            let (limited, devices) = under(limit);
            prop_assert_eq!(promised(&limited, &devices, of), (peak, Bytes::ZERO, seconds, same), "with that limit");
        }
        prop_assert_eq!(&run(&with_lines, made, (x, fetch)).unwrap(), &expected, "{}", limit);
        if let Some((low, longer)) = lower {
            prop_assert!(low <= peak && longer >= seconds, "{limit}: {peak} in {seconds} s; at the lower line {low} in {longer} s");
        }
        lower = Some((peak, seconds));
    }
    let (below, devices) = under(least - Bytes(1));
    prop_assert_eq!(promised(&below, &devices, of).1, Bytes(1));
    prop_assert_eq!(run(&below, made, (x, fetch)).map(drop).map_err(|error| error.code()), Err(Code::ResourceExhausted));
    let step = nothing.plan(&[("x", x)], &[fetch], &["changes"]).unwrap();
    Ok((least, highest, step.fitting.unwrap_or_default()))
}

/// What of the lines of a graph there is to see: it takes less where it has to, less again where values may wait in a file, and values do.
#[derive(Debug, PartialEq)]
struct Seen {
    lower: bool,
    lower_with_file: bool,
    moved: bool,
}

fn with_and_without_a_file(steps: &[Step], chosen: u16, kind: VariableKind) -> Result<Seen, TestCaseError> {
    let made = make(steps, kind, &[]);
    let fetch = &made.values[1 + chosen as usize % (made.values.len() - 1)];
    let x = waves(&[ROWS, COLUMNS]);
    let (least, highest, _) = at_every_line(&made, (&x, fetch), Machine::ONE)?;
    let (with_file, as_it_is, fitting) = at_every_line(&made, (&x, fetch), Machine { has_file: true, ..Machine::ONE })?;
    prop_assert!(as_it_is == highest && with_file <= least, "{with_file} with a file, {least} without");
    Ok(Seen { lower: least < highest, lower_with_file: with_file < least, moved: !fitting.offloaded.is_empty() })
}

#[test]
fn lines_hold_at_ten_limits() {
    let mut runner = TestRunner::new(Config { cases: cases(), ..Config::default() });
    runner
        .run(&(steps(), any::<u16>(), any::<bool>()), |(steps, chosen, resource)| {
            let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
            with_and_without_a_file(&steps, chosen, kind).map(drop)
        })
        .unwrap();
}

/// About one in five graphs made at random takes less where values may wait in a file. This one does.
#[test]
fn lines_hold_where_values_wait_in_a_file() {
    let seen = with_and_without_a_file(&needs_a_file(), 27295, VariableKind::Reference).unwrap();
    assert_eq!(seen, Seen { lower: true, lower_with_file: true, moved: true });
}
