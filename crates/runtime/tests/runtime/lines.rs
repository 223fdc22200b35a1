//! Graphs made at random under ten lines from the least to what they take as they are: the same bits, a lower line never
//! gives a faster step or a higher peak, and one byte below the least is refused with a shortfall that is exact. So it is where values may
//! wait in a file.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceSpec};
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

/// A processor whose promises are as fine as its buffers: the smallest value counts. Blocks lie between guard pages. A file, if there is
/// one, has its buffer elsewhere, so that lines may be as low as they like.
fn processor(line: Option<Bytes>, has_file: bool) -> Devices {
    let options = Options::new().intra_op(1);
    let pool = CpuPool::new(options.threads().unwrap()).unwrap();
    let spec = options.resolve().unwrap().remove(0);
    let buffer = CpuDevice::new(spec.clone(), pool.clone(), Arc::new(CpuKernels)).allocate(Bytes(1 << 16), "buffer").unwrap();
    let spec = DeviceSpec { granularity: spec.alignment, memory_limit: line, ..spec };
    let device = CpuDevice::new(spec, pool, Arc::new(CpuKernels)).with_guards();
    let mut devices = vec![Arc::new(device) as Arc<dyn Device>];
    if has_file {
        let folder = env!("CARGO_TARGET_TMPDIR");
        devices.push(Arc::new(SpillDevice::create(DeviceSpec::spill(0, FILE, folder), folder.as_ref(), buffer).unwrap()));
    }
    Devices::with(devices, &options).unwrap()
}

pub fn session(made: &Made, devices: &Devices) -> Session {
    Session::new(devices, &made.graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap()
}

/// What is fed.
pub fn waves(shape: &[u64]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i as f32 * 0.37).sin()).collect();
    HostTensor::from_slice(Shape::from(shape.to_vec()), &values).unwrap()
}

/// What all runs are promised to hold, what that is above the processor's line, and the predicted seconds of the step; and the bound below
/// each device's part of the step.
fn promised(session: &Session, devices: &Devices, (x, fetch): (&HostTensor, &str)) -> (Bytes, Bytes, f64, Vec<Bytes>) {
    let mut footprint = Footprint::new(devices.specs());
    footprint.add(&session.plan(&[], &[], &["init"]).unwrap());
    let step = session.plan(&[("x", x)], &[fetch], &["changes"]).unwrap();
    footprint.add(&step);
    let need = &footprint.needs()[0];
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
pub fn at_every_line(made: &Made, of: (&HostTensor, &str), has_file: bool) -> Result<(Bytes, Bytes, Fitting), TestCaseError> {
    let (x, fetch) = of;
    let open = processor(None, has_file);
    let plain = session(made, &open);
    let (highest, _, _, bounds) = promised(&plain, &open, of);
    let expected = run(&plain, made, of).unwrap();
    let under = |limit: Bytes| {
        let devices = processor(Some(limit), has_file);
        (session(made, &devices), devices)
    };
    let (nothing, devices) = under(Bytes(1));
    let (least, shortfall, ..) = promised(&nothing, &devices, of);
    prop_assert_eq!(shortfall, least - Bytes(1));

    let mut lower: Option<(Bytes, f64)> = None;
    for line in 0..LINES {
        let limit = Bytes(least.0 + (highest - least).0 * line / (LINES - 1));
        // Pages, which are coarser than these buffers, are no matter here.
        let with_lines = plain.with_lines([limit].into_iter().chain(has_file.then_some(FILE)).map(Some).collect()).unwrap();
        let (peak, shortfall, seconds, same) = promised(&with_lines, &open, of);
        prop_assert_eq!(&same, &bounds, "no line changes the bound");
        prop_assert!(peak <= limit && shortfall == Bytes::ZERO, "{limit}: {peak}");
        if line % (LINES / 2) == 0 {
            let (limited, devices) = under(limit);
            prop_assert_eq!(promised(&limited, &devices, of), (peak, Bytes::ZERO, seconds, same), "with that limit");
        }
        prop_assert_eq!(&run(&with_lines, made, of).unwrap(), &expected, "{}", limit);
        if let Some((low, longer)) = lower {
            prop_assert!(low <= peak && longer >= seconds, "{limit}: {peak} in {seconds} s; at the lower line {low} in {longer} s");
        }
        lower = Some((peak, seconds));
    }
    let (below, devices) = under(least - Bytes(1));
    prop_assert_eq!(promised(&below, &devices, of).1, Bytes(1));
    prop_assert_eq!(run(&below, made, of).map(drop).map_err(|error| error.code()), Err(Code::ResourceExhausted));
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
    let (least, highest, _) = at_every_line(&made, (&x, fetch), false)?;
    let (with_file, as_it_is, fitting) = at_every_line(&made, (&x, fetch), true)?;
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
