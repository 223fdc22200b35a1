//! This program in the part of others: its calls under the shim.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{Read, Write};
use std::process::Command;
use std::ptr::{null, null_mut};

use crate::rig::{Lease, MIB, Rig, said};

const ROLE: &str = "PLIMSOLL_TEST_ROLE";
const COUNT: &str = "PLIMSOLL_TEST_COUNT";

type Opaque = *mut c_void;

/// This program in a part.
pub fn role(rig: &Rig, lease: &Lease, role: &str) -> Command {
    let mut command = rig.under(lease, std::env::current_exe().expect("this program"));
    command.args(["client::play", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// As [`role`], of those that do something so often.
pub fn counted(rig: &Rig, lease: &Lease, name: &str, count: u64) -> Command {
    let mut command = role(rig, lease, name);
    command.env(COUNT, count.to_string());
    command
}

/// The lines that a part wrote.
pub fn lines(command: &mut Command) -> Vec<String> {
    said(command).lines().filter_map(|line| line.split_once("> ").map(|(_, line)| line.to_string())).collect()
}

#[test]
fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let count = std::env::var(COUNT).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    match role.as_str() {
        "each" => each(),
        "hammer" => hammer(count),
        "threads" => threads(count),
        "one" => one(),
        "fork" => forks(),
        "nulls" => nulls(),
        "totals" => totals(),
        "newer" => newer(),
        "contexts" => contexts(),
        _ => panic!("no part is called {role}"),
    }
}

/// The driver, as a program finds it.
struct Library(Opaque);

impl Library {
    fn open(name: &CStr) -> Library {
        // SAFETY: loads a library whose loading does nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{name:?} cannot be loaded");
        Library(handle)
    }

    /// # Safety
    /// The function has that type.
    unsafe fn get<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: the handle is open; the caller's promise.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is missing");
        assert_eq!(size_of::<F>(), size_of::<Opaque>());
        // SAFETY: as above.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

macro_rules! call {
    ($library:expr, $name:literal ($($ty:ty),*), $($arg:expr),*) => {{
        // SAFETY: the driver's function of that name has these arguments; they are valid.
        unsafe { $library.get::<unsafe extern "C" fn($($ty),*) -> c_int>($name)($($arg),*) }
    }};
}

/// The driver with a context on the first device.
fn begin() -> Library {
    let cuda = Library::open(c"libcuda.so.1");
    assert_eq!(call!(cuda, c"cuInit"(c_uint), 0), 0);
    let mut context = null_mut();
    assert_eq!(call!(cuda, c"cuDevicePrimaryCtxRetain"(*mut Opaque, c_int), &mut context, 0), 0);
    assert_eq!(call!(cuda, c"cuCtxSetCurrent"(Opaque), context), 0);
    cuda
}

/// Free and total.
fn info(cuda: &Library) -> [u64; 2] {
    let mut out = [0; 2];
    let [free, total] = &mut out;
    assert_eq!(call!(cuda, c"cuMemGetInfo_v2"(*mut u64, *mut u64), free, total), 0);
    out
}

/// MiB that programs under the lease hold.
fn held(cuda: &Library) -> u64 {
    let [free, total] = info(cuda);
    (total - free) / MIB
}

fn show(line: &str) {
    // The test harness writes without an end of line before.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n> {line}\n").as_bytes()).expect("it can be written");
    out.flush().expect("it can be written");
}

const PROPERTIES: [c_int; 32] = {
    let mut properties = [0; 32];
    // Pinned memory of device 0.
    (properties[0], properties[2]) = (1, 1);
    properties
};

/// A family of functions: allocates so many bytes; the name of the allocation, or the driver's answer.
type Allocate = fn(&Library, u64) -> Result<u64, c_int>;
type Free = fn(&Library, u64) -> c_int;

fn made(status: c_int, name: u64) -> Result<u64, c_int> {
    if status == 0 { Ok(name) } else { Err(status) }
}

/// Rows of 1 MiB of an array of floats.
fn descriptor(bytes: u64) -> [u64; 5] {
    // Width, height, depth; format and channels; flags.
    [256 * 1024, bytes.div_ceil(MIB), 0, 0x20 | 1 << 32, 0]
}

const FAMILIES: [(&str, Allocate, Free); 11] = [
    (
        "linear",
        |cuda, bytes| {
            let mut name = 0;
            made(call!(cuda, c"cuMemAlloc_v2"(*mut u64, usize), &mut name, bytes as usize), name)
        },
        |cuda, name| call!(cuda, c"cuMemFree_v2"(u64), name),
    ),
    (
        "managed",
        |cuda, bytes| {
            let mut name = 0;
            made(call!(cuda, c"cuMemAllocManaged"(*mut u64, usize, c_uint), &mut name, bytes as usize, 1), name)
        },
        |cuda, name| call!(cuda, c"cuMemFree_v2"(u64), name),
    ),
    (
        "pitch",
        |cuda, bytes| {
            let (mut name, mut pitch, rows) = (0, 0, bytes.div_ceil(MIB) as usize);
            let status =
                call!(cuda, c"cuMemAllocPitch_v2"(*mut u64, *mut usize, usize, usize, c_uint), &mut name, &mut pitch, 1 << 20, rows, 4);
            made(status, name)
        },
        |cuda, name| call!(cuda, c"cuMemFree_v2"(u64), name),
    ),
    (
        "array",
        |cuda, bytes| {
            let ([width, height, _, kind, _], mut array) = (descriptor(bytes), null_mut());
            let of = [width, height, kind];
            let status = call!(cuda, c"cuArrayCreate_v2"(*mut Opaque, *const u64), &mut array, of.as_ptr());
            made(status, array as u64)
        },
        |cuda, name| call!(cuda, c"cuArrayDestroy"(Opaque), name as Opaque),
    ),
    (
        "array3d",
        |cuda, bytes| {
            let (of, mut array) = (descriptor(bytes), null_mut());
            made(call!(cuda, c"cuArray3DCreate_v2"(*mut Opaque, *const u64), &mut array, of.as_ptr()), array as u64)
        },
        |cuda, name| call!(cuda, c"cuArrayDestroy"(Opaque), name as Opaque),
    ),
    (
        "mipmap",
        |cuda, bytes| {
            let (of, mut array) = (descriptor(bytes), null_mut());
            made(call!(cuda, c"cuMipmappedArrayCreate"(*mut Opaque, *const u64, c_uint), &mut array, of.as_ptr(), 3), array as u64)
        },
        |cuda, name| call!(cuda, c"cuMipmappedArrayDestroy"(Opaque), name as Opaque),
    ),
    (
        "handle",
        |cuda, bytes| {
            let (mut name, bytes) = (0, bytes.next_multiple_of(2 * MIB) as usize);
            let status = call!(cuda, c"cuMemCreate"(*mut u64, usize, *const c_int, u64), &mut name, bytes, PROPERTIES.as_ptr(), 0);
            made(status, name)
        },
        |cuda, name| call!(cuda, c"cuMemRelease"(u64), name),
    ),
    (
        // The pattern of programs that need no handle: it lives as long as it is mapped.
        "mapped",
        |cuda, bytes| {
            let (mut name, mut address, mut again, bytes) = (0, 0, 0, bytes.next_multiple_of(2 * MIB) as usize);
            let status = call!(cuda, c"cuMemCreate"(*mut u64, usize, *const c_int, u64), &mut name, bytes, PROPERTIES.as_ptr(), 0);
            made(status, name)?;
            assert_eq!(call!(cuda, c"cuMemAddressReserve"(*mut u64, usize, usize, u64, u64), &mut address, bytes, 0, 0, 0), 0);
            assert_eq!(call!(cuda, c"cuMemMap"(u64, usize, usize, u64, u64), address, bytes, 0, name, 0), 0);
            assert_eq!(call!(cuda, c"cuMemRelease"(u64), name), 0);
            assert_eq!(call!(cuda, c"cuMemRetainAllocationHandle"(*mut u64, Opaque), &mut again, (address + 4096) as Opaque), 0);
            assert_eq!(call!(cuda, c"cuMemRelease"(u64), again), 0);
            Ok(address | bytes as u64 >> 20)
        },
        |cuda, name| call!(cuda, c"cuMemUnmap"(u64, usize), name & !0xfffff, ((name & 0xfffff) << 20) as usize),
    ),
    (
        "async",
        |cuda, bytes| {
            let mut name = 0;
            made(call!(cuda, c"cuMemAllocAsync"(*mut u64, usize, Opaque), &mut name, bytes as usize, null_mut()), name)
        },
        |cuda, name| {
            let status = call!(cuda, c"cuMemFreeAsync"(u64, Opaque), name, null_mut());
            status.max(call!(cuda, c"cuStreamSynchronize"(Opaque), null_mut()))
        },
    ),
    (
        // Freed as memory that is not of a pool.
        "pool",
        |cuda, bytes| {
            let (mut name, mut pool) = (0, null_mut());
            assert_eq!(call!(cuda, c"cuDeviceGetDefaultMemPool"(*mut Opaque, c_int), &mut pool, 0), 0);
            let status =
                call!(cuda, c"cuMemAllocFromPoolAsync_ptsz"(*mut u64, usize, Opaque, Opaque), &mut name, bytes as usize, pool, null_mut());
            made(status, name)
        },
        |cuda, name| {
            let status = call!(cuda, c"cuMemFree_v2"(u64), name);
            status.max(call!(cuda, c"cuCtxSynchronize"(),))
        },
    ),
    (
        // A pool that is destroyed before its allocations are freed.
        "own pool",
        |cuda, bytes| {
            let (mut name, mut pool) = (0, null_mut());
            assert_eq!(call!(cuda, c"cuMemPoolCreate"(*mut Opaque, *const c_int), &mut pool, PROPERTIES.as_ptr()), 0);
            let status =
                call!(cuda, c"cuMemAllocFromPoolAsync"(*mut u64, usize, Opaque, Opaque), &mut name, bytes as usize, pool, null_mut());
            assert_eq!(call!(cuda, c"cuMemPoolDestroy"(Opaque), pool), 0);
            made(status, name)
        },
        |cuda, name| call!(cuda, c"cuMemFreeAsync_ptsz"(u64, Opaque), name, null_mut()),
    ),
];

/// Each family alone: the bytes held before, with an allocation of 96 MiB, and after it; and the answer to one of 1 GiB.
fn each() {
    let cuda = begin();
    for (family, allocate, free) in FAMILIES {
        let before = held(&cuda);
        let name = allocate(&cuda, 96 * MIB).unwrap_or_else(|status| panic!("{family}: {status}"));
        let during = held(&cuda);
        let more = allocate(&cuda, 1 << 30).err();
        assert_eq!(free(&cuda, name), 0, "{family}");
        show(&format!("{family}: {before} {during} {}, more: {more:?}", held(&cuda)));
    }
    for captured in [false, true] {
        graph(&cuda, captured);
    }
    // An allocation that is not known here is freed all the same, or not, as the driver says.
    assert_eq!(call!(cuda, c"cuMemFree_v2"(u64), 12345), 1);
    assert_eq!(call!(cuda, c"cuMemFree_v2"(u64), 0), 0);
    // Memory of the host is none of the lease's.
    let mut host = null_mut();
    assert_eq!(call!(cuda, c"cuMemAllocHost_v2"(*mut Opaque, usize), &mut host, 1 << 40), 0);
    // Small ones share blocks.
    let small: Vec<u64> = (0..3000).map(|_| FAMILIES[0].1(&cuda, 1000).expect("room")).collect();
    show(&format!("small: {}", held(&cuda)));
    small.into_iter().for_each(|name| assert_eq!(FAMILIES[0].2(&cuda, name), 0));
    show(&format!("none: {}", held(&cuda)));
}

/// A graph with a node that allocates 96 MiB, made by hand or from calls.
fn graph(cuda: &Library, captured: bool) {
    let add = |graph: Opaque, bytes: u64| {
        // The properties of a pool, its other users, bytes, and the address.
        let mut node = [0u64; 15];
        (node[0], node[1], node[13]) = (1, 1, bytes);
        let mut name = null_mut();
        call!(cuda, c"cuGraphAddMemAllocNode"(*mut Opaque, Opaque, Opaque, usize, *mut u64), &mut name, graph, null_mut(), 0, node.as_mut_ptr())
    };
    let (mut graph, mut executable, stream) = (null_mut(), null_mut(), 0x1234 as Opaque);
    if captured {
        assert_eq!(call!(cuda, c"cuStreamBeginCapture_v2"(Opaque, c_int), stream, 0), 0);
        let mut name = 0;
        assert_eq!(call!(cuda, c"cuMemAllocAsync"(*mut u64, usize, Opaque), &mut name, 96 << 20, stream), 0);
        assert_eq!(call!(cuda, c"cuMemAllocAsync"(*mut u64, usize, Opaque), &mut name, 1 << 30, stream), 2);
        assert_eq!(call!(cuda, c"cuStreamEndCapture"(Opaque, *mut Opaque), stream, &mut graph), 0);
    } else {
        assert_eq!(call!(cuda, c"cuGraphCreate"(*mut Opaque, c_uint), &mut graph, 0), 0);
        assert_eq!((add(graph, 96 * MIB), add(graph, 1 << 30)), (0, 2));
    }
    assert_eq!(call!(cuda, c"cuGraphInstantiateWithFlags"(*mut Opaque, Opaque, u64), &mut executable, graph, 0), 0);
    assert_eq!(call!(cuda, c"cuGraphLaunch"(Opaque, Opaque), executable, null_mut()), 0);
    assert_eq!(call!(cuda, c"cuGraphDestroy"(Opaque), graph), 0);
    let during = held(cuda);
    assert_eq!(call!(cuda, c"cuGraphExecDestroy"(Opaque), executable), 0);
    let left = held(cuda);
    assert_eq!(call!(cuda, c"cuDeviceGraphMemTrim"(c_int), 0), 0);
    show(&format!("graph: {during} {left} {}", held(cuda)));
}

/// Numbers that look random, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Random allocations of all families, and frees; a dot for each ten. So many, or without end for 0.
fn hammer(count: u64) {
    let (cuda, mut random) = (begin(), Random(u64::from(std::process::id()) << 20 | 1));
    let mut live: Vec<(usize, u64)> = Vec::new();
    for done in 1.. {
        if random.below(3) > 0 || live.is_empty() {
            let family = random.below(FAMILIES.len() as u64) as usize;
            let bytes = if random.below(2) == 0 { random.below(2 * MIB) + 1 } else { random.below(48 * MIB) + 1 };
            match FAMILIES[family].1(&cuda, bytes) {
                Ok(name) => live.push((family, name)),
                Err(status) => assert_eq!(status, 2, "{}", FAMILIES[family].0),
            }
        } else {
            let (family, name) = live.swap_remove(random.below(live.len() as u64) as usize);
            assert_eq!(FAMILIES[family].2(&cuda, name), 0, "{}", FAMILIES[family].0);
        }
        if done % 10 == 0 {
            std::io::stdout().write_all(b".").expect("it can be written");
            std::io::stdout().flush().expect("it can be written");
        }
        if done == count {
            break;
        }
    }
    for (family, name) in live {
        assert_eq!(FAMILIES[family].2(&cuda, name), 0);
    }
}

/// Several threads that allocate and free, all of it in the end.
fn threads(count: u64) {
    let cuda = begin();
    let mut context = null_mut();
    assert_eq!(call!(cuda, c"cuCtxGetCurrent"(*mut Opaque), &mut context), 0);
    let (context, handle) = (context as usize, cuda.0 as usize);
    let threads: Vec<_> = (1..=8u64)
        .map(|seed| {
            std::thread::spawn(move || {
                let (cuda, mut random) = (Library(handle as Opaque), Random(seed * 7919));
                assert_eq!(call!(cuda, c"cuCtxSetCurrent"(Opaque), context as Opaque), 0);
                let mut live = Vec::new();
                for _ in 0..count {
                    let family = random.below(FAMILIES.len() as u64) as usize;
                    live.extend(FAMILIES[family].1(&cuda, random.below(20 * MIB) + 1).ok().map(|name| (family, name)));
                    if random.below(2) == 0
                        && let Some((family, name)) = live.pop()
                    {
                        assert_eq!(FAMILIES[family].2(&cuda, name), 0);
                    }
                }
                live.into_iter().for_each(|(family, name)| assert_eq!(FAMILIES[family].2(&cuda, name), 0));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    assert_eq!(call!(cuda, c"cuCtxSynchronize"(),), 0);
    show(&format!("held {}", held(&cuda)));
}

/// Holds 8 MiB until it is told to end.
fn one() {
    let cuda = begin();
    let status = FAMILIES[0].1(&cuda, 8 * MIB).err().unwrap_or(0);
    show(&format!("status {status}"));
    let _ = std::io::stdin().read(&mut [0]);
}

/// Forks beside its allocations: the fork has no driver, and its end gives nothing back.
fn forks() {
    let cuda = begin();
    let name = FAMILIES[0].1(&cuda, 96 * MIB).expect("room");
    // SAFETY: the fork of a process with another thread that waits. It calls functions of a library without locks that the other
    // thread could hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut name = 0;
        let status = call!(cuda, c"cuMemAlloc_v2"(*mut u64, usize), &mut name, 1 << 20);
        // SAFETY: ends the fork without running anything of its parent's.
        unsafe { libc::_exit(if status == 3 { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child of this process.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    show(&format!("fork {status}, held {}", held(&cuda)));
    assert_eq!(FAMILIES[0].2(&cuda, name), 0);
    show(&format!("held {}", held(&cuda)));
}

/// Null where the driver takes pointers: its answers, and no crash.
fn nulls() {
    let cuda = begin();
    let (mut free, mut total) = (0u64, 0u64);
    // Memory of a device.
    let on = |device: c_int| {
        let mut properties = PROPERTIES;
        properties[3] = device;
        properties
    };
    let answers = [
        call!(cuda, c"cuMemGetInfo_v2"(*mut u64, *mut u64), null_mut(), &mut total),
        call!(cuda, c"cuMemGetInfo_v2"(*mut u64, *mut u64), &mut free, null_mut()),
        call!(cuda, c"cuMemGetInfo_v2"(*mut u64, *mut u64), null_mut(), null_mut()),
        call!(cuda, c"cuMemAlloc_v2"(*mut u64, usize), null_mut(), 1 << 20),
        call!(cuda, c"cuMemAllocPitch_v2"(*mut u64, *mut usize, usize, usize, c_uint), null_mut(), null_mut(), 8, 8, 4),
        call!(cuda, c"cuMemAllocAsync"(*mut u64, usize, Opaque), null_mut(), 1 << 20, null_mut()),
        call!(cuda, c"cuArrayCreate_v2"(*mut Opaque, *const u64), null_mut(), null()),
        call!(cuda, c"cuArray3DCreate_v2"(*mut Opaque, *const u64), null_mut(), null()),
        call!(cuda, c"cuMipmappedArrayCreate"(*mut Opaque, *const u64, c_uint), null_mut(), null(), 3),
        call!(cuda, c"cuMemCreate"(*mut u64, usize, *const c_int, u64), null_mut(), 2 << 20, null(), 0),
        call!(cuda, c"cuMemCreate"(*mut u64, usize, *const c_int, u64), &mut free, 2 << 20, on(99).as_ptr(), 0),
        call!(cuda, c"cuMemCreate"(*mut u64, usize, *const c_int, u64), &mut free, 2 << 20, on(-1).as_ptr(), 0),
        call!(cuda, c"cuMemPoolCreate"(*mut Opaque, *const c_int), null_mut(), null()),
        call!(cuda, c"cuDeviceTotalMem_v2"(*mut u64, c_int), null_mut(), 0),
        call!(cuda, c"cuGraphAddMemAllocNode"(*mut Opaque, Opaque, Opaque, usize, *mut u64), null_mut(), null_mut(), null_mut(), 0, null_mut()),
        call!(cuda, c"cuGetProcAddress"(*const c_char, *mut Opaque, c_int, u64), null(), null_mut(), 12000, 0),
        call!(cuda, c"cuGetProcAddress_v2"(*const c_char, *mut Opaque, c_int, u64, *mut c_int), c"cuMemAlloc".as_ptr(), null_mut(), 12000, 0, null_mut()),
        call!(cuda, c"cuMemFree_v2"(u64), 0),
    ];
    show(&format!("{answers:?} {} {} held {}", free / MIB, total / MIB, held(&cuda)));
    // SAFETY: a handle that is null means the whole program; no function of that name is there.
    assert!(unsafe { libc::dlsym(null_mut(), c"cuMemNothing".as_ptr()) }.is_null());
}

/// The answers of CUDA and the management library for a card with 96 MiB allocated.
fn totals() {
    let cuda = begin();
    FAMILIES[0].1(&cuda, 96 * MIB).expect("room");
    let ([free, total], mut whole) = (info(&cuda), 0u64);
    assert_eq!(call!(cuda, c"cuDeviceTotalMem_v2"(*mut u64, c_int), &mut whole, 0), 0);
    let nvml = Library::open(c"libnvidia-ml.so.1");
    assert_eq!(call!(nvml, c"nvmlInit_v2"(),), 0);
    let mut device = null_mut();
    assert_eq!(call!(nvml, c"nvmlDeviceGetHandleByIndex_v2"(c_uint, *mut Opaque), 0, &mut device), 0);
    let (mut one, mut two) = ([0u64; 3], [0u64; 5]);
    two[0] = 40 | 2 << 24;
    assert_eq!(call!(nvml, c"nvmlDeviceGetMemoryInfo"(Opaque, *mut u64), device, one.as_mut_ptr()), 0);
    assert_eq!(call!(nvml, c"nvmlDeviceGetMemoryInfo_v2"(Opaque, *mut u64), device, two.as_mut_ptr()), 0);
    let mib = |bytes: &[u64]| bytes.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>();
    show(&format!("{:?} {:?} {:?}", mib(&[total, free, whole]), mib(&one), mib(&two[1..])));
}

/// Asks for a function that allocates and is newer than the shim, and for one that does not.
fn newer() {
    let cuda = begin();
    let (mut address, mut reason) = (null_mut(), 0);
    let status = call!(cuda, c"cuGetProcAddress_v2"(*const c_char, *mut Opaque, c_int, u64, *mut c_int), c"cuMemAllocManaged".as_ptr(), &mut address, 99000, 0, &mut reason);
    show(&format!("{status} {reason} {}", address.is_null()));
    let status =
        call!(cuda, c"cuGetProcAddress"(*const c_char, *mut Opaque, c_int, u64), c"cuMemAllocManaged".as_ptr(), &mut address, 99000, 0);
    show(&format!("{status} {}", address.is_null()));
    let status =
        call!(cuda, c"cuGetProcAddress"(*const c_char, *mut Opaque, c_int, u64), c"cuCtxGetDevice".as_ptr(), &mut address, 99000, 0);
    show(&format!("{status} {}", address.is_null()));
}

/// Allocations of contexts end with them.
fn contexts() {
    let cuda = begin();
    let mut own = null_mut();
    FAMILIES[0].1(&cuda, 64 * MIB).expect("room");
    assert_eq!(call!(cuda, c"cuCtxCreate_v2"(*mut Opaque, c_uint, c_int), &mut own, 0, 0), 0);
    FAMILIES[0].1(&cuda, 32 * MIB).expect("room");
    FAMILIES[3].1(&cuda, 16 * MIB).expect("room");
    let both = held(&cuda);
    assert_eq!(call!(cuda, c"cuCtxDestroy_v2"(Opaque), own), 0);
    let one = held(&cuda);
    assert_eq!(call!(cuda, c"cuDevicePrimaryCtxReset_v2"(c_int), 0), 0);
    let cuda = begin();
    let none = held(&cuda);
    FAMILIES[0].1(&cuda, 64 * MIB).expect("room");
    assert_eq!(call!(cuda, c"cuDevicePrimaryCtxRelease_v2"(c_int), 0), 0);
    let cuda = begin();
    show(&format!("{both} {one} {none} {}", held(&cuda)));
}
