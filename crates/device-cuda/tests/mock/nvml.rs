//! A management library of ours, for tests: compiled to a shared library by `mod.rs`, never linked.
//!
//! One source, several machines: the file's own name says which. With `--cfg old` it has the functions of an old driver only.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const OK: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NO_PERMISSION: c_uint = 4;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const DRIVER_NOT_LOADED: c_uint = 9;
const GPU_IS_LOST: c_uint = 15;
const VERSION_MISMATCH: c_uint = 25;
const MIB: u64 = 1 << 20;

#[repr(C)]
struct Symbol {
    file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, symbol: *mut Symbol) -> c_int;
}

/// The machine: the name of this file, without its ending.
fn machine() -> String {
    let file = file();
    file.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default().to_string()
}

/// On the machines `lived` and `limited`, the processes of a card and their bytes: lines `INDEX PID MIB` of a file beside this one.
/// Those that have ended use nothing.
fn uses(handle: *mut c_void) -> Option<Vec<(u32, u64)>> {
    if !is("lived") && !is("limited") {
        return None;
    }
    let text = std::fs::read_to_string(file() + ".uses").unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<u64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let &[index, pid, mebibytes] = words.as_slice() else { return None };
        let lives = std::path::Path::new(&format!("/proc/{pid}")).exists();
        (index + 1 == handle as u64 && lives).then_some((pid as u32, mebibytes * MIB))
    };
    Some(text.lines().filter_map(line).collect())
}

/// Where this library is.
fn file() -> String {
    let mut symbol = Symbol { file: std::ptr::null(), base: std::ptr::null_mut(), name: std::ptr::null(), address: std::ptr::null_mut() };
    let found = unsafe { dladdr(nvmlShutdown as *const c_void, &mut symbol) };
    assert!(found != 0 && !symbol.file.is_null());
    unsafe { CStr::from_ptr(symbol.file) }.to_string_lossy().into_owned()
}

fn is(name: &str) -> bool {
    machine() == name
}

/// Cards by the library's index. Not in PCI order, so that they have to be sorted.
struct Card {
    name: &'static str,
    uuid: &'static str,
    pci: (u32, u32, u32),
    capability: (c_int, c_int),
    total: u64,
    used: u64,
    cores: c_uint,
    clocks: (c_uint, c_uint),
    bus: c_uint,
}

const T4: Card = Card {
    name: "Tesla T4",
    uuid: "GPU-11111111-2222-3333-4444-555555555555",
    pci: (0xfade, 0xaf, 0),
    capability: (7, 5),
    total: 15360 * MIB,
    used: 2050 * MIB,
    cores: 2560,
    clocks: (1590, 5001),
    bus: 256,
};

const K20: Card = Card {
    name: "Tesla K20Xm",
    uuid: "GPU-99999999-8888-7777-6666-555555555555",
    pci: (0xfade, 0x3b, 0),
    capability: (3, 0),
    total: 5700 * MIB,
    used: 0,
    cores: 2688,
    clocks: (732, 2600),
    bus: 384,
};

fn cards() -> &'static [Card] {
    match machine().as_str() {
        "none" => &[],
        "sparse" => &[T4],
        _ => &[T4, K20],
    }
}

fn card(handle: *mut c_void) -> Option<&'static Card> {
    cards().get((handle as usize).checked_sub(1)?)
}

fn put<T>(place: *mut T, value: T) -> c_uint {
    unsafe { place.write(value) };
    OK
}

fn put_text(text: &str, place: *mut c_char, length: c_uint) -> c_uint {
    if text.len() + 1 > length as usize {
        return INSUFFICIENT_SIZE;
    }
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    OK
}

/// The facts of a card unless it is the machine where cards say almost nothing.
fn some<T>(handle: *mut c_void, place: *mut T, value: impl FnOnce(&Card) -> T) -> c_uint {
    match card(handle) {
        _ if is("sparse") => NOT_SUPPORTED,
        Some(card) => put(place, value(card)),
        None => INVALID_ARGUMENT,
    }
}

fn begin() -> c_uint {
    if is("unloaded") { DRIVER_NOT_LOADED } else { OK }
}

fn pci_of(handle: *mut c_void) -> Option<(u32, u32, u32)> {
    Some(card(handle)?.pci)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    OK
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(place: *mut c_char, length: c_uint) -> c_uint {
    put_text("535.104.05", place, length)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(handle: *mut c_void, place: *mut c_char, length: c_uint) -> c_uint {
    card(handle).map_or(INVALID_ARGUMENT, |card| put_text(card.name, place, length))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(handle: *mut c_void, place: *mut c_char, length: c_uint) -> c_uint {
    match card(handle) {
        _ if is("faults") => NO_PERMISSION,
        Some(card) => put_text(card.uuid, place, length),
        None => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCudaComputeCapability(handle: *mut c_void, major: *mut c_int, minor: *mut c_int) -> c_uint {
    let Some(card) = card(handle) else { return INVALID_ARGUMENT };
    put(major, card.capability.0);
    put(minor, card.capability.1)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxClockInfo(handle: *mut c_void, which: c_uint, place: *mut c_uint) -> c_uint {
    some(handle, place, |card| if which == 1 { card.clocks.0 } else { card.clocks.1 })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(handle: *mut c_void, place: *mut [u64; 3]) -> c_uint {
    if is("faults") { NO_PERMISSION } else { some(handle, place, |card| [card.total, card.total - card.used, card.used]) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(handle: *mut c_void, place: *mut [c_uint; 2]) -> c_uint {
    some(handle, place, |card| if card.used > 0 { [37, 12] } else { [0, 0] })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(handle: *mut c_void, sensor: c_uint, place: *mut c_uint) -> c_uint {
    if sensor != 0 { INVALID_ARGUMENT } else { some(handle, place, |_| 45) }
}

#[cfg(old)]
mod version {
    use super::*;

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlInit() -> c_uint {
        begin()
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetCount(place: *mut c_uint) -> c_uint {
        put(place, cards().len() as c_uint)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, place: *mut *mut c_void) -> c_uint {
        put(place, (index as usize + 1) as *mut c_void)
    }

    /// The first structure: shorter than today's.
    #[repr(C)]
    pub struct Pci {
        bus_id: [u8; 16],
        domain: u32,
        bus: u32,
        device: u32,
        device_id: u32,
        subsystem_id: u32,
        reserved: [u32; 4],
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetPciInfo(handle: *mut c_void, place: *mut Pci) -> c_uint {
        let Some((domain, bus, device)) = pci_of(handle) else { return INVALID_ARGUMENT };
        let bus_id = *b"fade:00:00.1\0\0\0\0";
        put(place, Pci { bus_id, domain, bus, device, device_id: 0, subsystem_id: 0, reserved: [0; 4] })
    }

    #[repr(C)]
    pub struct Process {
        pid: u32,
        bytes: u64,
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetComputeRunningProcesses(handle: *mut c_void, count: *mut c_uint, list: *mut Process) -> c_uint {
        let there = card(handle).map_or(0, |card| u32::from(card.used > 0));
        let room = unsafe { count.read() };
        put(count, there);
        if room < there {
            return INSUFFICIENT_SIZE;
        }
        if there > 0 {
            put(list, Process { pid: std::process::id(), bytes: 77 * MIB });
        }
        OK
    }
}

#[cfg(not(old))]
mod version {
    use super::*;

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlInit_v2() -> c_uint {
        begin()
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlSystemGetNVMLVersion(place: *mut c_char, length: c_uint) -> c_uint {
        put_text("12.535.104.05", place, length)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(place: *mut c_int) -> c_uint {
        put(place, 12020)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetCount_v2(place: *mut c_uint) -> c_uint {
        put(place, cards().len() as c_uint)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: *mut *mut c_void) -> c_uint {
        if is("faults") && index == 1 {
            return GPU_IS_LOST;
        }
        put(place, (index as usize + 1) as *mut c_void)
    }

    #[repr(C)]
    pub struct Pci {
        bus_id_legacy: [u8; 16],
        domain: u32,
        bus: u32,
        device: u32,
        device_id: u32,
        subsystem_id: u32,
        bus_id: [u8; 32],
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetPciInfo_v3(handle: *mut c_void, place: *mut Pci) -> c_uint {
        let Some((domain, bus, device)) = pci_of(handle) else { return INVALID_ARGUMENT };
        put(place, Pci { bus_id_legacy: [0; 16], domain, bus, device, device_id: 0, subsystem_id: 0, bus_id: [0; 32] })
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetNumGpuCores(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |card| card.cores)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMemoryBusWidth(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |card| card.bus)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |_| 3)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |_| 16)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetClockInfo(handle: *mut c_void, _which: c_uint, place: *mut c_uint) -> c_uint {
        some(handle, place, |_| 585)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetFanSpeed(_handle: *mut c_void, _place: *mut c_uint) -> c_uint {
        NOT_SUPPORTED
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetPowerUsage(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |_| 26_600)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetEnforcedPowerLimit(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |_| 70_000)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetPerformanceState(handle: *mut c_void, place: *mut c_uint) -> c_uint {
        some(handle, place, |card| if card.used > 0 { 0 } else { 32 })
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMigMode(_handle: *mut c_void, now: *mut c_uint, pending: *mut c_uint) -> c_uint {
        if !is("sparse") {
            return NOT_SUPPORTED;
        }
        put(now, 1);
        put(pending, 1)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetP2PStatus(one: *mut c_void, other: *mut c_void, _index: c_uint, place: *mut c_uint) -> c_uint {
        if card(one).is_none() || card(other).is_none() || one == other {
            return INVALID_ARGUMENT;
        }
        put(place, 0)
    }

    #[repr(C)]
    pub struct Memory {
        version: c_uint,
        total: u64,
        reserved: u64,
        free: u64,
        used: u64,
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: *mut c_void, place: *mut Memory) -> c_uint {
        let version = unsafe { (*place).version };
        if version != 0x0200_0028 {
            return VERSION_MISMATCH;
        }
        if is("faults") {
            return NO_PERMISSION;
        }
        if let (Some(uses), Some(card)) = (uses(handle), card(handle)) {
            let used = uses.iter().map(|(_, bytes)| bytes).sum();
            return put(place, Memory { version, total: card.total, reserved: 0, free: card.total.saturating_sub(used), used });
        }
        let reserved = 200 * MIB;
        some(handle, place, |card| {
            let used = card.used.saturating_sub(reserved);
            Memory { version, total: card.total, reserved, free: card.total - used - reserved, used }
        })
    }

    #[repr(C)]
    pub struct Sample {
        pid: u32,
        at: u64,
        percent: [u32; 4],
    }

    /// Activity of processes: lines `INDEX PID AT PERCENT` of the file `.ran` beside this one. On other machines than `lived` and
    /// `limited` it is not known.
    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetProcessUtilization(handle: *mut c_void, list: *mut Sample, count: *mut c_uint, since: u64) -> c_uint {
        if uses(handle).is_none() {
            return NOT_SUPPORTED;
        }
        let text = std::fs::read_to_string(file() + ".ran").unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<u64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
            let &[index, pid, at, percent] = words.as_slice() else { return None };
            (index + 1 == handle as u64 && at > since).then_some(Sample { pid: pid as u32, at, percent: [percent as u32, 0, 0, 0] })
        };
        let samples: Vec<Sample> = text.lines().filter_map(line).collect();
        let room = unsafe { count.read() } as usize;
        put(count, samples.len() as c_uint);
        if samples.is_empty() {
            return NOT_FOUND;
        }
        if list.is_null() || room < samples.len() {
            return INSUFFICIENT_SIZE;
        }
        for (index, sample) in samples.into_iter().enumerate() {
            put(unsafe { list.add(index) }, sample);
        }
        OK
    }

    #[repr(C)]
    pub struct Limits {
        group: *const c_char,
        soft: u64,
        hard: u64,
    }

    /// On the machine `limited`: a line `INDEX GROUP SOFT HARD` in the file `.limits` beside this one for every call.
    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceSetMemoryLimits_v1(handle: *mut c_void, limits: *const Limits) -> c_uint {
        use std::io::Write;
        let limits = unsafe { &*limits };
        let group = unsafe { CStr::from_ptr(limits.group) }.to_string_lossy().into_owned();
        if !is("limited") {
            return NOT_SUPPORTED;
        }
        if !std::path::Path::new(&group).is_dir() {
            return NOT_FOUND;
        }
        let line = format!("{} {group} {} {}\n", handle as u64 - 1, limits.soft, limits.hard as i64);
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file() + ".limits").unwrap();
        if file.write_all(line.as_bytes()).is_ok() { OK } else { NO_PERMISSION }
    }

    #[repr(C)]
    pub struct LimitsAndUse {
        limits: Limits,
        used: u64,
    }

    /// The use of the group is the use of all processes.
    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetMemoryLimits_v1(handle: *mut c_void, limits: *mut LimitsAndUse) -> c_uint {
        match uses(handle) {
            Some(uses) if is("limited") => {
                let used = uses.iter().map(|(_, bytes)| bytes).sum();
                unsafe { (*limits).used = used };
                OK
            }
            _ => NOT_SUPPORTED,
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Process {
        pid: u32,
        bytes: u64,
        instances: [u32; 2],
    }

    fn process(pid: u32, bytes: u64) -> Process {
        Process { pid, bytes, instances: [u32::MAX; 2] }
    }

    fn list(processes: &[Process], count: *mut c_uint, list: *mut Process) -> c_uint {
        let room = unsafe { count.read() };
        put(count, processes.len() as c_uint);
        if (room as usize) < processes.len() {
            return INSUFFICIENT_SIZE;
        }
        for (index, process) in processes.iter().enumerate() {
            put(unsafe { list.add(index) }, *process);
        }
        OK
    }

    /// How often this list was asked for: on one machine it grows each time.
    static ASKED: AtomicU32 = AtomicU32::new(0);

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(handle: *mut c_void, count: *mut c_uint, place: *mut Process) -> c_uint {
        let Some(card) = card(handle) else { return INVALID_ARGUMENT };
        if is("faults") {
            return NO_PERMISSION;
        }
        if let Some(uses) = uses(handle) {
            return list(&uses.into_iter().map(|(pid, bytes)| process(pid, bytes)).collect::<Vec<_>>(), count, place);
        }
        if is("growing") {
            let there = (ASKED.fetch_add(1, Relaxed) * 10).min(30);
            let processes: Vec<Process> = (0..there).map(|index| process(4_000_000_000 + index, 1)).collect();
            return list(&processes, count, place);
        }
        if card.used == 0 {
            return list(&[], count, place);
        }
        list(&[process(std::process::id(), 1500 * MIB), process(4_100_000_000, u64::MAX)], count, place)
    }

    #[unsafe(no_mangle)]
    pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(handle: *mut c_void, count: *mut c_uint, place: *mut Process) -> c_uint {
        match card(handle) {
            Some(card) if card.used > 0 && is("two") => list(&[process(std::process::id(), 1500 * MIB)], count, place),
            _ => list(&[], count, place),
        }
    }
}
