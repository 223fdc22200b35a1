//! NVML as C has it: numbers, structures, functions. From `nvml.h` as the CUDA toolkit publishes it. Functions are looked for under
//! their newest name first, and one that a driver does not have is [`Trouble::Missing`].

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fmt;

use crate::library::functions;

/// A card's handle.
pub(super) type Handle = *mut c_void;

/// Why a call gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The driver has no such function.
    Missing,
    /// The returned code.
    Code(c_uint),
}

impl Trouble {
    pub(super) const NOT_SUPPORTED: Trouble = Trouble::Code(3);
    pub(super) const NOT_FOUND: Trouble = Trouble::Code(6);
    pub(super) const INSUFFICIENT_SIZE: Trouble = Trouble::Code(7);
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match *self {
            Trouble::Missing => return f.write_str("this driver cannot say"),
            Trouble::Code(code) => code,
        };
        f.write_str(match code {
            1 => "not initialized",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            7 => "insufficient size",
            8 => "insufficient external power",
            9 => "the driver is not loaded",
            10 => "timeout",
            11 => "interrupt request issue",
            12 => "the NVML shared library could not be found or loaded",
            13 => "function not found",
            14 => "corrupted inforom",
            15 => "the GPU is lost: it has fallen off the bus, or is otherwise inaccessible",
            16 => "the GPU requires a reset",
            17 => "the operating system has blocked the request",
            18 => "driver and library versions differ: restart the machine, or reload the driver",
            19 => "in use by another client",
            20 => "insufficient memory",
            25 => "argument version mismatch",
            code => return write!(f, "NVML error {code}"),
        })
    }
}

/// A structure that may begin as zeros and be written by the library.
///
/// # Safety
/// Every pattern of bits is a value.
pub(super) unsafe trait Plain: Copy {
    /// Zeros.
    fn zeros() -> Self {
        // SAFETY: every pattern of bits is a value.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: a number.
unsafe impl Plain for u32 {}

/// `nvmlMemory_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemoryV1 {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}
// SAFETY: numbers.
unsafe impl Plain for MemoryV1 {}

/// `nvmlMemory_v2_t`: memory that the driver keeps for itself is not counted as used.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemoryV2 {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}
// SAFETY: numbers.
unsafe impl Plain for MemoryV2 {}

impl MemoryV2 {
    /// The fields that the library reads before it writes.
    pub(super) const VERSION: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;
}

/// `nvmlPciInfo_t`. Older versions are shorter and agree up to `device`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Pci {
    pub bus_id_legacy: [c_char; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    pub bus_id: [c_char; 32],
}
// SAFETY: numbers.
unsafe impl Plain for Pci {}

/// `nvmlUtilization_t`: percent of the time in which a kernel ran, and in which memory was read or written.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Utilization {
    pub gpu: u32,
    pub memory: u32,
}
// SAFETY: numbers.
unsafe impl Plain for Utilization {}

/// `nvmlProcessInfo_v1_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ProcessV1 {
    pub pid: u32,
    pub bytes: u64,
}
// SAFETY: numbers.
unsafe impl Plain for ProcessV1 {}

/// `nvmlProcessInfo_v2_t`, which the third version of the functions has too.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ProcessV2 {
    pub pid: u32,
    pub bytes: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}
// SAFETY: numbers.
unsafe impl Plain for ProcessV2 {}

/// `nvmlProcessUtilizationSample_t`: percent of the time of a sample, which has the time of the clock in microseconds.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ProcessSample {
    pub pid: u32,
    pub at: u64,
    pub multiprocessors: u32,
    pub memory: u32,
    pub encoder: u32,
    pub decoder: u32,
}
// SAFETY: numbers.
unsafe impl Plain for ProcessSample {}

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
pub(super) struct SetLimits {
    /// The full path of a control group, ending with a zero.
    pub group: *const c_char,
    /// Bytes that the group is guaranteed.
    pub soft: u64,
    /// Bytes above which allocations of the group fail.
    pub hard: u64,
}

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
pub(super) struct GetLimits {
    pub group: *const c_char,
    pub soft: u64,
    pub hard: u64,
    pub used: u64,
}

/// A hard limit that is none.
pub(super) const NO_LIMIT: u64 = u64::MAX;

/// Bytes of a process where the driver does not say.
pub(super) const NOT_AVAILABLE: u64 = u64::MAX;

/// A list of at most `*count` processes; `*count` becomes how many there are.
pub(super) type ListFn<T> = unsafe extern "C" fn(Handle, count: *mut c_uint, list: *mut T) -> c_uint;
/// A list of at most `*count` samples that are younger than a time.
pub(super) type SamplesFn = unsafe extern "C" fn(Handle, list: *mut ProcessSample, count: *mut c_uint, since: u64) -> c_uint;
/// One value of a card.
pub(super) type GetFn<T> = unsafe extern "C" fn(Handle, value: *mut T) -> c_uint;
/// One value of a card, by a number that says which.
pub(super) type GetOfFn<T> = unsafe extern "C" fn(Handle, which: c_uint, value: *mut T) -> c_uint;
/// A text of a card, at most that long with its zero.
pub(super) type TextFn = unsafe extern "C" fn(Handle, text: *mut c_char, length: c_uint) -> c_uint;

functions! {
    init: unsafe extern "C" fn() -> c_uint = c"nvmlInit_v2" | c"nvmlInit";
    shutdown: unsafe extern "C" fn() -> c_uint = c"nvmlShutdown";
    driver_version: unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint = c"nvmlSystemGetDriverVersion";
    nvml_version: unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint = c"nvmlSystemGetNVMLVersion";
    cuda_version: unsafe extern "C" fn(*mut i32) -> c_uint = c"nvmlSystemGetCudaDriverVersion_v2" | c"nvmlSystemGetCudaDriverVersion";
    count: unsafe extern "C" fn(*mut u32) -> c_uint = c"nvmlDeviceGetCount_v2" | c"nvmlDeviceGetCount";
    handle: unsafe extern "C" fn(c_uint, *mut Handle) -> c_uint = c"nvmlDeviceGetHandleByIndex_v2" | c"nvmlDeviceGetHandleByIndex";
    name: TextFn = c"nvmlDeviceGetName";
    uuid: TextFn = c"nvmlDeviceGetUUID";
    pci: GetFn<Pci> = c"nvmlDeviceGetPciInfo_v3" | c"nvmlDeviceGetPciInfo_v2" | c"nvmlDeviceGetPciInfo";
    capability: unsafe extern "C" fn(Handle, *mut i32, *mut i32) -> c_uint = c"nvmlDeviceGetCudaComputeCapability";
    cores: GetFn<u32> = c"nvmlDeviceGetNumGpuCores";
    bus_width: GetFn<u32> = c"nvmlDeviceGetMemoryBusWidth";
    pcie_generation: GetFn<u32> = c"nvmlDeviceGetMaxPcieLinkGeneration";
    pcie_lanes: GetFn<u32> = c"nvmlDeviceGetMaxPcieLinkWidth";
    max_clock: GetOfFn<u32> = c"nvmlDeviceGetMaxClockInfo";
    clock: GetOfFn<u32> = c"nvmlDeviceGetClockInfo";
    memory_v2: GetFn<MemoryV2> = c"nvmlDeviceGetMemoryInfo_v2";
    memory: GetFn<MemoryV1> = c"nvmlDeviceGetMemoryInfo";
    utilization: GetFn<Utilization> = c"nvmlDeviceGetUtilizationRates";
    temperature: GetOfFn<u32> = c"nvmlDeviceGetTemperature";
    fan: GetFn<u32> = c"nvmlDeviceGetFanSpeed";
    power: GetFn<u32> = c"nvmlDeviceGetPowerUsage";
    power_limit: GetFn<u32> = c"nvmlDeviceGetEnforcedPowerLimit";
    performance: GetFn<u32> = c"nvmlDeviceGetPerformanceState";
    mig: unsafe extern "C" fn(Handle, *mut u32, *mut u32) -> c_uint = c"nvmlDeviceGetMigMode";
    peer: unsafe extern "C" fn(Handle, Handle, c_uint, *mut u32) -> c_uint = c"nvmlDeviceGetP2PStatus";
    compute: ListFn<ProcessV2> = c"nvmlDeviceGetComputeRunningProcesses_v3" | c"nvmlDeviceGetComputeRunningProcesses_v2";
    compute_v1: ListFn<ProcessV1> = c"nvmlDeviceGetComputeRunningProcesses";
    graphics: ListFn<ProcessV2> = c"nvmlDeviceGetGraphicsRunningProcesses_v3" | c"nvmlDeviceGetGraphicsRunningProcesses_v2";
    graphics_v1: ListFn<ProcessV1> = c"nvmlDeviceGetGraphicsRunningProcesses";
    shared: ListFn<ProcessV2> = c"nvmlDeviceGetMPSComputeRunningProcesses_v3" | c"nvmlDeviceGetMPSComputeRunningProcesses_v2";
    shared_v1: ListFn<ProcessV1> = c"nvmlDeviceGetMPSComputeRunningProcesses";
    samples: SamplesFn = c"nvmlDeviceGetProcessUtilization";
    set_limits: unsafe extern "C" fn(Handle, *const SetLimits) -> c_uint = c"nvmlDeviceSetMemoryLimits_v1";
    get_limits: unsafe extern "C" fn(Handle, *mut GetLimits) -> c_uint = c"nvmlDeviceGetMemoryLimits_v1";
}

/// The text before the first zero.
pub(super) fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |text| text.to_string_lossy().trim().to_string())
}
