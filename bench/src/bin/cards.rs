//! What the host does for a step on an NVIDIA card: microseconds of processor time, with a mock driver whose launches do nothing.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin cards
//!
//! A queue with a feed of 4 bytes, so many kernels, and a fetch of 16 bytes. "caller": the thread that pushes and waits. "all": all threads
//! of the process, the mock driver's among them. The least of seven measurements.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{Bindings, BufferRef, CardPart, Command, Device, DeviceSpec, KernelCall, Library, Place, Program, Run, Work};
use plimsoll_device_cuda::{Compiler, CudaCard, CudaDevice, CudaDriver, CudaLibrary, GraphUse, any_card};
use plimsoll_memory::{Address, Ledger};
use plimsoll_mock_driver as mock;
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;

const STEPS: u32 = 20_000;

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("plimsoll-bench-cards-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let name = "libplimsoll_mock_driver.so";
    let built = [own.with_file_name("deps").join(name), own.with_file_name(name)];
    let library = built.iter().find(|path| path.exists()).expect("the mock driver was built");
    for name in ["libcuda.so.1", "libnvrtc.so.13"] {
        std::fs::copy(library, folder.join(name)).expect("a copy of the mock driver");
    }
    let machine = mock::Machine::create(&folder, &[1 << 30]).expect("a machine");
    let measured = measure(&folder, &machine);
    let _ = std::fs::remove_dir_all(folder);
    measured
}

fn measure(folder: &Path, machine: &mock::Machine) -> Result<()> {
    let driver = CudaDriver::load(&folder.join("libcuda.so.1"))?;
    let compiler = Arc::new(Compiler::load(&folder.join("libnvrtc.so.13"), None)?);
    let card = CudaCard::open(&driver, &driver.cards()?[0], &compiler, None)?;
    println!("kernels  way      caller us  all us");
    for kernels in [20, 200, 1000] {
        for (way, room) in [("stream", Bytes::ZERO), ("graph", Bytes(1 << 30))] {
            machine.set_idle(0, mock::Idle::Not).expect("the machine's file");
            let part = CardPart { card: 0, priority: 0, modelled: None, real: None };
            let spec = CudaDevice::spec(card.granularity(), DeviceSpec { card: Some(part), ..any_card() });
            let ledger = Ledger::new(spec.name.to_string(), None);
            let device = CudaDevice::on(
                &card,
                spec,
                ledger,
                Arc::new(CudaLibrary),
                GraphUse { at_once: true, ..GraphUse::on(card.name()) }.with_room(room),
            )?;
            let arena = device.allocate(Bytes(1 << 20), "arena")?;
            let executable = device.load(0, Arc::new(Program { commands: commands(kernels)? }))?;
            let (feed, mut fetch) = (Box::new(7u32), Box::new([0u32; 4]));
            let bindings = Bindings {
                arenas: vec![arena.address()],
                feeds: vec![Address::new((&raw const *feed).cast_mut().cast())],
                fetches: vec![Address::new((&raw mut *fetch).cast())],
                ..Bindings::default()
            };
            let mut run = Arc::new(Run::new(1, bindings));
            let mut step = || {
                Run::alone(&mut run).restart();
                executable.submit(&run);
                device.drive(&run);
                assert_eq!(run.failure(), None);
            };
            step();
            assert_eq!(*fetch, [7; 4]);
            machine.set_idle(0, mock::Idle::All).expect("the machine's file");
            let steps = if way == "graph" { STEPS } else { STEPS / 20 };
            let (mut caller, mut all) = (f64::MAX, f64::MAX);
            for _ in 0..7 {
                let before = (seconds(libc::CLOCK_THREAD_CPUTIME_ID), seconds(libc::CLOCK_PROCESS_CPUTIME_ID));
                (0..steps).for_each(|_| step());
                caller = caller.min(seconds(libc::CLOCK_THREAD_CPUTIME_ID) - before.0);
                all = all.min(seconds(libc::CLOCK_PROCESS_CPUTIME_ID) - before.1);
            }
            let [caller, all] = [caller, all].map(|seconds| 1e6 * seconds / f64::from(steps));
            println!("{kernels:>7}  {way:<7}  {caller:>9.2}  {all:>6.2}");
        }
    }
    Ok(())
}

fn commands(kernels: u64) -> Result<Vec<Command>> {
    let buffer = |place, offset, bytes| BufferRef { place, offset, bytes };
    let here = |offset, bytes| buffer(Place::Arena(0), offset, bytes);
    let command =
        |work, args| Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "node".into() };
    let request = KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 4 } };
    let variant = Arc::new(CudaLibrary.variants(&any_card(), &request)?.remove(0));
    let call = KernelCall { request: Arc::new(request), variant, step: 0 };
    let mut commands = vec![command(Work::Copy, vec![buffer(Place::Feed(0), 0, 4), here(0, 4)])];
    commands.extend((1..=kernels).map(|at| command(Work::Kernel(call.clone()), vec![here(256 * (at - 1), 4), here(256 * at, 16)])));
    commands.push(command(Work::Copy, vec![here(256 * kernels, 16), buffer(Place::Fetch(0), 0, 16)]));
    Ok(commands)
}

/// Seconds of a clock.
fn seconds(clock: libc::clockid_t) -> f64 {
    // SAFETY: numbers, for which zero is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the clock exists, and the place is ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}
