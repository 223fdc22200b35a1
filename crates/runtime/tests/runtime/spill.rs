//! Values of a processor wait in a file: plans that would not fit without it, with the same bits. What is held is what is promised, on the
//! processor and in the file; a disk that fails ends the step, and nothing behind the failed move has happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceSpec};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Faults;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Footprint, Need, Plan};
use plimsoll_runtime::{Devices, Session};

const ROWS: u64 = 256;
const COLUMNS: u64 = 64;
/// The file, and its buffer on the processor.
const SIZE: Bytes = Bytes(4 << 20);
const LAYERS: usize = 12;

/// A folder on a disk.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn registry() -> Arc<Registry> {
    Arc::new(Registry::standard(Arc::new(CpuKernels)))
}

/// Layers that share their weights. These change before the last reader of each layer's result: it cannot be computed again.
fn graph() -> Graph {
    let mut b = GraphBuilder::new(registry());
    b.set_variable_kind(VariableKind::Resource);
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(ROWS), Some(COLUMNS)]))).build().unwrap();
    let first: Vec<f32> = (0..COLUMNS * COLUMNS).map(|i| (i as f32 * 0.7).sin() * 0.2).collect();
    let first = Initializer::Value(HostTensor::from_slice([COLUMNS, COLUMNS], &first).unwrap());
    let w = b.get_variable("w", DataType::Float, [COLUMNS, COLUMNS], &first).unwrap();
    b.global_variables_initializer().unwrap();
    let before = b.read(&w).unwrap();
    let mut layers = vec![x];
    for _ in 0..LAYERS {
        let product = b.matmul(layers[layers.len() - 1], before).build().unwrap();
        layers.push(b.op("Tanh").input(product).build().unwrap());
    }
    let change = b.op("MatMul").inputs([layers[0], layers[LAYERS]]).attr("transpose_a", plimsoll_graph::AttrValue::Bool(true));
    let change = change.build().unwrap();
    let change = b.op("Tanh").input(change).build().unwrap();
    let changed = b.assign_sub(&w, change).unwrap();
    let after = b.control_dependencies(&[changed], |b| b.read(&w).unwrap());
    let mut sum = layers[LAYERS];
    for layer in layers[1..].iter().rev() {
        let product = b.matmul(sum, after).build().unwrap();
        let added = b.add(product, *layer).build().unwrap();
        sum = b.op("Tanh").input(added).build().unwrap();
    }
    let total = b.reduce_sum(sum, Some(&[0])).build().unwrap();
    b.identity(total).name("y").build().unwrap();
    b.finish()
}

fn x() -> HostTensor {
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i as f32 * 0.37).cos()).collect();
    HostTensor::from_slice([ROWS, COLUMNS], &values).unwrap()
}

fn session(options: &Options) -> Session {
    Session::new(&Devices::open(&options.clone().intra_op(2)).unwrap(), &graph(), registry()).unwrap()
}

fn with_file(limit: Option<Bytes>) -> Options {
    let options = Options::new().spill(&folder().display().to_string(), &format!("{}B", SIZE.0));
    limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0)))
}

fn bits(tensor: &HostTensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The values of steps, and of the variable after each.
fn run(session: &Session, steps: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    session.run(&[], &[], &["init"]).unwrap();
    (0..steps).map(|_| step(session).unwrap()).collect()
}

fn step(session: &Session) -> plimsoll_base::Result<(Vec<u32>, Vec<u32>)> {
    let y = session.run(&[("x", &x())], &["y"], &[])?;
    Ok((bits(&y[0]), bits(&session.read_variable("w").unwrap())))
}

/// What the runs take, and the plan of a step.
fn promise(session: &Session) -> (Vec<Need>, Arc<Plan>) {
    let mut footprint = Footprint::new(session.devices().specs());
    footprint.add(&session.plan(&[], &[], &["init"]).unwrap());
    let plan = session.plan(&[("x", &x())], &["y"], &[]).unwrap();
    footprint.add(&plan);
    (footprint.needs().to_vec(), Arc::new(plan))
}

/// The least limit of the processor.
fn least(options: &Options) -> Bytes {
    let file = Some(SIZE).filter(|_| options.spill.is_some());
    promise(&session(options).with_lines([Some(Bytes::ZERO)].into_iter().chain(file.map(Some)).collect()).unwrap()).0[0].peak
}

#[test]
fn a_file_holds_what_memory_has_no_room_for() {
    let (without, with) = (least(&Options::new()), least(&with_file(None)));
    let value = ROWS * COLUMNS * 4;
    assert!(with.0 + 4 * value < without.0, "{with} with a file, {without} without");
    let expected = run(&session(&Options::new()), 3);
    let highest = promise(&session(&with_file(None))).0[0].peak;
    let (mut before, mut moved): (Option<(Bytes, f64)>, Bytes) = (None, Bytes::ZERO);
    for line in 0..=10 {
        let limit = Bytes(with.0 + (highest - with).0 * line / 10);
        let session = session(&with_file(Some(limit)));
        let (needs, plan) = promise(&session);
        assert_eq!(run(&session, 3), expected, "the bits of the run without a limit");
        let held: Vec<Bytes> = session.devices().report().iter().map(|report| report.peak).collect();
        assert_eq!(held, needs.iter().map(|need| need.peak).collect::<Vec<_>>(), "what is promised is held");
        assert!(held[0] <= limit && held[1] <= SIZE);
        if let Some((peak, seconds)) = before {
            assert!(peak <= held[0] && plan.seconds <= seconds, "{limit}: {} and {seconds} before", plan.seconds);
        }
        before = Some((held[0], plan.seconds));
        let offloaded: Bytes = plan.fitting.iter().flat_map(|fitting| &fitting.offloaded).map(|(_, bytes)| *bytes).sum();
        moved = moved.max(offloaded);
        assert_eq!(offloaded == Bytes::ZERO, held[1] == Bytes::ZERO);
    }
    assert!(moved.0 >= 4 * value, "{moved} wait in the file");
    // One byte below the least is refused, with the shortfall.
    let short = session(&with_file(Some(with - Bytes(1))));
    let error = short.run(&[("x", &x())], &["y"], &[]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains(": 1 byte short"), "{error}");
}

#[test]
fn a_file_that_is_too_small_holds_less() {
    let of_size = |size: &str| {
        let options = Options::new().spill(&folder().display().to_string(), size);
        let lines = vec![Some(Bytes::ZERO), options.spill.as_ref().map(|spill| spill.bytes)];
        let session = session(&options).with_lines(lines).unwrap();
        let needs = promise(&session).0;
        // Its buffer is a part of it.
        (needs[0].peak - session.devices().specs()[0].overhead, needs[1].peak)
    };
    let (smallest, small, large) = (of_size("4KiB"), of_size("256KiB"), of_size("4MiB"));
    assert_eq!(smallest.1, Bytes::ZERO, "nothing fits into one block");
    assert!(small.0 < smallest.0 && large.0 < small.0, "{smallest:?} {small:?} {large:?}");
    assert!(small.1 > Bytes::ZERO && small.1 <= Bytes(256 << 10) && large.1 > small.1);
}

/// A processor with that limit, and a file whose accesses `faults` lets fail.
fn faulty(limit: Bytes, faults: &Arc<Faults>) -> Devices {
    let options = Options::new().intra_op(2);
    let pool = CpuPool::new(2).unwrap();
    let spec = DeviceSpec { overhead: DeviceSpec::spill_buffer(SIZE), memory_limit: Some(limit), ..options.resolve().unwrap().remove(0) };
    let cpu = CpuDevice::new(spec, pool, Arc::new(CpuKernels));
    let buffer = cpu.allocate(cpu.spec().overhead, "buffer").unwrap();
    let spec = DeviceSpec::spill(0, SIZE, &folder().display().to_string());
    let file = SpillDevice::create(spec, folder(), buffer).unwrap();
    file.inject(faults);
    Devices::with(vec![Arc::new(cpu), Arc::new(file)], &options).unwrap()
}

#[test]
fn every_access_to_a_disk_may_fail() {
    let expected = run(&session(&Options::new()), 40);
    let faults = Arc::<Faults>::default();
    let session = Session::new(&faulty(least(&with_file(None)), &faults), &graph(), registry()).unwrap();
    assert_eq!(run(&session, 2), expected[..2]);
    let before = faults.asked();
    assert_eq!(step(&session).unwrap(), expected[2]);
    let accesses = faults.asked() - before;
    assert!(accesses >= 8, "{accesses} accesses in a step");
    let (mut done, mut unchanged) = (3, 0);
    for access in 0..accesses {
        let now = faults.asked();
        faults.refuse(now + access..now + access + 1);
        let error = step(&session).unwrap_err();
        faults.stop();
        let device = session.devices().specs()[1].name.to_string();
        assert_eq!((error.code(), error.device()), (Code::Unavailable, Some(device.as_str())), "{error}");
        let said = [format!("a file in {}: ", folder().display()), " bytes of it fails: system error 5".to_string()];
        assert!(said.iter().all(|said| error.message().contains(said)) && error.node().is_some(), "{error}");
        // Either the weights are as they were or the change before the failure stays, whole.
        let weights = bits(&session.read_variable("w").unwrap());
        let is_changed = weights != expected[done - 1].1;
        assert!(!is_changed || weights == expected[done].1, "access {access}");
        done += usize::from(is_changed);
        unchanged += u64::from(!is_changed);
        assert_eq!(step(&session).unwrap(), expected[done], "the step after access {access}");
        done += 1;
    }
    assert!(unchanged > 0 && unchanged < accesses, "failures before the change and after it: {unchanged} of {accesses}");
    // A disk that stays broken has no room for new sessions.
    faults.refuse(0..u64::MAX);
    session.release_unused();
    assert_eq!(step(&session).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_file_has_no_name_and_goes_with_its_devices() {
    let own = folder().join(format!("unnamed-{}", std::process::id()));
    std::fs::create_dir_all(&own).unwrap();
    let options = Options::new().spill(&own.display().to_string(), "1MiB").limit("CPU:0", "64MiB");
    // Of this folder alone: other tests have files, too.
    let open = || -> Vec<(PathBuf, u64)> {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
        let ours = files.filter_map(|file| Some((std::fs::read_link(&file).ok()?, std::fs::metadata(&file).ok()?.len())));
        ours.filter(|(path, _)| path.starts_with(&own)).collect()
    };
    let two: Vec<Devices> = (0..2).map(|_| Devices::open(&options).unwrap()).collect();
    let files = open();
    assert_eq!(files.len(), 2, "two programs may name one folder");
    assert!(files.iter().all(|(path, length)| path.to_string_lossy().ends_with(" (deleted)") && *length == 1 << 20));
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    drop(two);
    assert!(open().is_empty());
    std::fs::remove_dir(&own).unwrap();
}

#[test]
fn folders_and_sizes_that_cannot_be_are_refused_when_devices_are_opened() {
    let refusal = |folder: &str, size: &str| Devices::open(&Options::new().spill(folder, size)).map(|_| ()).unwrap_err();
    let here = folder().display().to_string();
    for (folder, size, code, said) in [
        ("/nowhere", "1MiB", Code::NotFound, "no file can be made in /nowhere"),
        ("/proc/self/status", "1MiB", Code::NotFound, "no file can be made in /proc/self/status"),
        (&here, "0", Code::InvalidArgument, "a file has 4 KiB at least"),
        (&here, "1048576GiB", Code::ResourceExhausted, "for a file"),
    ] {
        let error = refusal(folder, size);
        assert!(error.code() == code && error.message().contains(said), "{folder}={size}: {error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    let small = Devices::open(&with_file(Some(Bytes(64 << 10)))).unwrap_err();
    assert!(small.message().contains("its buffer alone takes 256 KiB of 64 KiB"), "{small}");
}

#[test]
fn a_file_is_no_device_for_nodes() {
    let devices = Devices::open(&with_file(None)).unwrap();
    let mut b = GraphBuilder::new(registry());
    let made = b.device("/device:SPILL:0", |b| b.constant(HostTensor::from_slice([1], &[1f32]).unwrap()).build().unwrap());
    b.identity(made).name("y").build().unwrap();
    let graph = b.finish();
    let session = Session::new(&devices, &graph, registry()).unwrap();
    assert_eq!(session.placement().devices.values().map(|device| device.index()).max(), Some(0));
    let hard = Session::new(&devices.with_placement(false, false), &graph, registry()).map(|_| ()).unwrap_err();
    assert_eq!(hard.code(), Code::InvalidArgument);
}
