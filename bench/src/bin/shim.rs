//! The cost of the shim: calls of the mock driver with it and without it.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin shim

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_machine::{CardInfo, Identity, Machine, StateDir};
use plimsoll_mock_driver as mock;

const WAY: &str = "PLIMSOLL_BENCH_WAY";

/// A file that cargo built beside this program.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program").with_file_name("deps").join(name)
}

fn main() {
    if std::env::var_os(WAY).is_some() {
        return measure();
    }
    let folder = std::env::temp_dir().join(format!("plimsoll-bench-shim-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("driver")).expect("a folder");
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::copy(built("libplimsoll_mock_driver.so"), folder.join("driver").join(name)).expect("the mock driver");
    }
    let gpus = mock::Machine::create(&folder, &[16 << 30]).expect("a machine");
    let card = |card: &mock::Card| CardInfo { key: card.name(), name: card.name(), capacity: Bytes(card.total) };
    let state = StateDir::open(folder.join("state")).expect("a folder");
    let machine = Machine::open(&state, "cards", &gpus.cards().iter().map(card).collect::<Vec<_>>()).expect("a ledger");
    let member = machine.join(&Identity::this_process("")).expect("room");
    member.reserve(&[(0, Bytes(8 << 30))]).expect("room");
    for way in ["no shim", "shim, no lease", "shim"] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(WAY, way).env("LD_LIBRARY_PATH", folder.join("driver")).env(mock::MACHINE, &folder);
        command.env("PLIMSOLL_STATE_DIR", folder.join("state")).env_remove("PLIMSOLL_LEASE");
        if way != "no shim" {
            command.env("LD_PRELOAD", built("libplimsoll_shim.so"));
        }
        if way == "shim" {
            command.env("PLIMSOLL_LEASE", member.token());
        }
        println!("{way}:");
        assert!(command.status().expect("it starts").success());
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// The median of some rounds, for one of so many calls each.
fn show(name: &str, calls: u32, mut run: impl FnMut()) {
    let mut times: Vec<Duration> = (0..11)
        .map(|_| {
            let begin = Instant::now();
            (0..calls).for_each(|_| run());
            begin.elapsed() / calls
        })
        .collect();
    times.sort();
    println!("  {name}: {:?}", times[5]);
}

type Opaque = *mut c_void;

fn get(library: Opaque, name: &CStr) -> Opaque {
    // SAFETY: the library is loaded, and the name ends with zero.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

fn measure() {
    // SAFETY: functions of the mock driver with their own types and valid arguments.
    unsafe {
        let cuda = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        macro_rules! function {
            ($name:literal ($($ty:ty),*)) => {
                std::mem::transmute::<Opaque, unsafe extern "C" fn($($ty),*) -> c_int>(get(cuda, $name))
            };
        }
        let (mut context, mut name) = (std::ptr::null_mut(), 0u64);
        assert_eq!(function!(c"cuInit"(c_uint))(0), 0);
        assert_eq!(function!(c"cuDevicePrimaryCtxRetain"(*mut Opaque, c_int))(&mut context, 0), 0);
        assert_eq!(function!(c"cuCtxSetCurrent"(Opaque))(context), 0);
        let event = function!(c"cuEventSynchronize"(Opaque));
        show("a call that allocates nothing", 1_000_000, || assert_eq!(event(context), 0));
        show("dlsym of a name that is not the driver's", 10_000, || assert!(!get(cuda, c"dladdr").is_null() || context.is_null()));
        let (alloc, free) = (function!(c"cuMemAlloc_v2"(*mut u64, usize)), function!(c"cuMemFree_v2"(u64)));
        show("64 MiB, and back", 300, || assert_eq!((alloc(&mut name, 64 << 20), free(name)), (0, 0)));
        alloc(&mut name, 1000);
        show("1000 bytes beside others, and back", 300, || assert_eq!((alloc(&mut name, 1000), free(name)), (0, 0)));
        let alloc = function!(c"cuMemAllocAsync"(*mut u64, usize, Opaque));
        let free = function!(c"cuMemFreeAsync"(u64, Opaque));
        let null = std::ptr::null_mut();
        show("1 MiB of a pool, and back", 3000, || assert_eq!((alloc(&mut name, 1 << 20, null), free(name, null)), (0, 0)));
        let (mut free, mut total) = (0usize, 0usize);
        let info = function!(c"cuMemGetInfo_v2"(*mut usize, *mut usize));
        show("free and total memory", 1000, || assert_eq!(info(&mut free, &mut total), 0));
    }
}
