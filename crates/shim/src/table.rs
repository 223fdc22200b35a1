//! The wrappers, and the driver's functions that they stand for.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::abi::SUCCESS;
use crate::driver::{Function, Library, driver};
use crate::{array, context, graph, info, lookup, nvml, plain, pool, vmm};

/// A wrapper and the function that it stands for.
pub struct Entry {
    /// The function, by the name of its symbol.
    pub function: Function,
    /// Its name in `cuGetProcAddress`.
    pub base: &'static CStr,
    /// The version of CUDA in which that name came to mean this function.
    pub since: c_int,
    /// Whether it is the one for programs whose default streams are per thread.
    pub per_thread: bool,
    wrapper: Address,
    /// The answer of `cuGetProcAddress` for it, where that is another address than the symbol's; 0 while it is not known.
    other: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Address(*const ());

// SAFETY: the address of a function, which any thread may call.
unsafe impl Sync for Address {}

impl Entry {
    const fn new(
        library: Library,
        symbol: &'static CStr,
        base: &'static CStr,
        since: c_int,
        per_thread: bool,
        wrapper: *const (),
    ) -> Entry {
        let function = Function::new(library, symbol);
        Entry { function, base, since, per_thread, wrapper: Address(wrapper), other: AtomicUsize::new(0) }
    }

    /// The wrapper's address.
    pub fn wrapper(&self) -> usize {
        self.wrapper.0 as usize
    }
}

macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        }
    };
}

macro_rules! table {
    ($($library:ident $base:ident $since:literal $per_thread:literal $module:ident :: $symbol:ident;)*) => {
        const COUNT: usize = [$(stringify!($symbol)),*].len();

        /// All of them, by library and base name.
        pub static ENTRIES: [Entry; COUNT] = [
            $(Entry::new(Library::$library, name!($symbol), name!($base), $since, $per_thread, $module::$symbol as *const ()),)*
        ];
    };
}

table! {
    Cuda cuArray3DCreate 2000 false array::cuArray3DCreate;
    Cuda cuArray3DCreate 3020 false array::cuArray3DCreate_v2;
    Cuda cuArrayCreate 2000 false array::cuArrayCreate;
    Cuda cuArrayCreate 3020 false array::cuArrayCreate_v2;
    Cuda cuArrayDestroy 2000 false plain::cuArrayDestroy;
    Cuda cuCtxCreate 2000 false context::cuCtxCreate;
    Cuda cuCtxCreate 3020 false context::cuCtxCreate_v2;
    Cuda cuCtxCreate 11040 false context::cuCtxCreate_v3;
    Cuda cuCtxCreate 12050 false context::cuCtxCreate_v4;
    Cuda cuCtxDestroy 2000 false context::cuCtxDestroy;
    Cuda cuCtxDestroy 4000 false context::cuCtxDestroy_v2;
    Cuda cuCtxSynchronize 2000 false pool::cuCtxSynchronize;
    Cuda cuCtxSynchronize 13000 false pool::cuCtxSynchronize_v2;
    Cuda cuDeviceGraphMemTrim 11040 false graph::cuDeviceGraphMemTrim;
    Cuda cuDevicePrimaryCtxRelease 7000 false context::cuDevicePrimaryCtxRelease;
    Cuda cuDevicePrimaryCtxRelease 11000 false context::cuDevicePrimaryCtxRelease_v2;
    Cuda cuDevicePrimaryCtxReset 7000 false context::cuDevicePrimaryCtxReset;
    Cuda cuDevicePrimaryCtxReset 11000 false context::cuDevicePrimaryCtxReset_v2;
    Cuda cuDevicePrimaryCtxRetain 7000 false context::cuDevicePrimaryCtxRetain;
    Cuda cuDeviceTotalMem 2000 false info::cuDeviceTotalMem;
    Cuda cuDeviceTotalMem 3020 false info::cuDeviceTotalMem_v2;
    Cuda cuEventSynchronize 2000 false pool::cuEventSynchronize;
    Cuda cuGetProcAddress 11030 false lookup::cuGetProcAddress;
    Cuda cuGetProcAddress 12000 false lookup::cuGetProcAddress_v2;
    Cuda cuGraphAddMemAllocNode 11040 false graph::cuGraphAddMemAllocNode;
    Cuda cuGraphAddNode 12020 false graph::cuGraphAddNode;
    Cuda cuGraphAddNode 12030 false graph::cuGraphAddNode_v2;
    Cuda cuGraphAddNode 13040 false graph::cuGraphAddNode_v3;
    Cuda cuGraphDestroy 10000 false graph::cuGraphDestroy;
    Cuda cuGraphExecDestroy 10000 false graph::cuGraphExecDestroy;
    Cuda cuGraphInstantiate 10000 false graph::cuGraphInstantiate;
    Cuda cuGraphInstantiate 11000 false graph::cuGraphInstantiate_v2;
    Cuda cuGraphInstantiate 12000 false graph::cuGraphInstantiateWithFlags;
    Cuda cuGraphInstantiateWithFlags 11040 false graph::cuGraphInstantiateWithFlags;
    Cuda cuGraphInstantiateWithParams 12000 false graph::cuGraphInstantiateWithParams;
    Cuda cuGraphInstantiateWithParams 12000 true graph::cuGraphInstantiateWithParams_ptsz;
    Cuda cuGreenCtxDestroy 12040 false context::cuGreenCtxDestroy;
    Cuda cuMemAlloc 2000 false plain::cuMemAlloc;
    Cuda cuMemAlloc 3020 false plain::cuMemAlloc_v2;
    Cuda cuMemAllocAsync 11020 false pool::cuMemAllocAsync;
    Cuda cuMemAllocAsync 11020 true pool::cuMemAllocAsync_ptsz;
    Cuda cuMemAllocFromPoolAsync 11020 false pool::cuMemAllocFromPoolAsync;
    Cuda cuMemAllocFromPoolAsync 11020 true pool::cuMemAllocFromPoolAsync_ptsz;
    Cuda cuMemAllocManaged 6000 false plain::cuMemAllocManaged;
    Cuda cuMemAllocPitch 2000 false plain::cuMemAllocPitch;
    Cuda cuMemAllocPitch 3020 false plain::cuMemAllocPitch_v2;
    Cuda cuMemCreate 10020 false vmm::cuMemCreate;
    Cuda cuMemFree 2000 false plain::cuMemFree;
    Cuda cuMemFree 3020 false plain::cuMemFree_v2;
    Cuda cuMemFreeAsync 11020 false pool::cuMemFreeAsync;
    Cuda cuMemFreeAsync 11020 true pool::cuMemFreeAsync_ptsz;
    Cuda cuMemGetDefaultMemPool 13000 false pool::cuMemGetDefaultMemPool;
    Cuda cuMemGetInfo 2000 false info::cuMemGetInfo;
    Cuda cuMemGetInfo 3020 false info::cuMemGetInfo_v2;
    Cuda cuMemGetMemPool 13000 false pool::cuMemGetMemPool;
    Cuda cuMemMap 10020 false vmm::cuMemMap;
    Cuda cuMemPoolCreate 11020 false pool::cuMemPoolCreate;
    Cuda cuMemPoolDestroy 11020 false pool::cuMemPoolDestroy;
    Cuda cuMemPoolImportFromShareableHandle 11020 false pool::cuMemPoolImportFromShareableHandle;
    Cuda cuMemPoolTrimTo 11020 false pool::cuMemPoolTrimTo;
    Cuda cuMemRelease 10020 false vmm::cuMemRelease;
    Cuda cuMemRetainAllocationHandle 11000 false vmm::cuMemRetainAllocationHandle;
    Cuda cuMemUnmap 10020 false vmm::cuMemUnmap;
    Cuda cuMipmappedArrayCreate 5000 false array::cuMipmappedArrayCreate;
    Cuda cuMipmappedArrayDestroy 5000 false plain::cuMipmappedArrayDestroy;
    Cuda cuStreamSynchronize 2000 false pool::cuStreamSynchronize;
    Cuda cuStreamSynchronize 7000 true pool::cuStreamSynchronize_ptsz;
    Nvml nvmlDeviceGetMemoryInfo 0 false nvml::nvmlDeviceGetMemoryInfo;
    Nvml nvmlDeviceGetMemoryInfo_v2 0 false nvml::nvmlDeviceGetMemoryInfo_v2;
}

/// The newest version of CUDA whose header the table was compared with.
pub const NEWEST: c_int = 13050;

/// Whether a name can be in the table: most cannot, and it is looked up for each call of `dlsym`.
fn may_be_here(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    matches!(bytes, [b'c', b'u', third, ..] if third.is_ascii_uppercase()) || bytes.starts_with(b"nvmlDevice")
}

/// The entry of a symbol.
pub fn by_symbol(name: &CStr) -> Option<&'static Entry> {
    if !may_be_here(name) {
        return None;
    }
    ENTRIES.iter().find(|entry| entry.function.name() == name)
}

/// The wrapper of the driver's function at that address.
pub fn by_address(address: usize) -> Option<&'static Entry> {
    let is_it = |entry: &&Entry| entry.function.address() == Some(address) || entry.other.load(Relaxed) == address;
    ENTRIES.iter().filter(|entry| entry.function.library() == Library::Cuda).find(is_it)
}

/// The entries that `cuGetProcAddress` means by a name.
pub fn by_base(name: &CStr) -> impl Iterator<Item = &'static Entry> {
    let entries = if may_be_here(name) { &ENTRIES[..] } else { &[] };
    entries.iter().filter(move |entry| entry.base == name && entry.function.library() == Library::Cuda)
}

/// Asks the driver's own `cuGetProcAddress` for each function once: it need not answer with the symbol's address.
pub fn ask_the_driver() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    if ASKED.swap(1, Relaxed) == 1 {
        return;
    }
    type Pointer = *mut *mut std::ffi::c_void;
    let new = driver!(c"cuGetProcAddress_v2"(*const std::ffi::c_char, Pointer, c_int, u64, *mut c_int));
    let old = driver!(c"cuGetProcAddress"(*const std::ffi::c_char, Pointer, c_int, u64));
    for entry in ENTRIES.iter().filter(|entry| entry.function.library() == Library::Cuda) {
        let (mut address, mut found) = (std::ptr::null_mut(), 0);
        let flags = if entry.per_thread { lookup::PER_THREAD } else { lookup::LEGACY };
        let status = match (new, old) {
            // SAFETY: the name ends with zero, and the driver writes to locals.
            (Some(ask), _) => unsafe { ask(entry.base.as_ptr(), &mut address, entry.since, flags, &mut found) },
            // SAFETY: as above.
            (None, Some(ask)) => unsafe { ask(entry.base.as_ptr(), &mut address, entry.since, flags) },
            (None, None) => return,
        };
        if status == SUCCESS {
            entry.other.store(address as usize, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whole_or_not_at_all() {
        assert!(by_symbol(c"cuMemAlloc_v2").is_some() && by_symbol(c"nvmlDeviceGetMemoryInfo_v2").is_some());
        for name in
            [c"cuMemAlloc_v", c"cuMemAlloc_v22", c"cudnnCreate", c"cublasCreate_v2", c"cudaMalloc", c"cu", c"", c"nvmlInit_v2", c"dlsym"]
        {
            assert!(by_symbol(name).is_none(), "{name:?}");
        }
        assert_eq!(by_base(c"cuMemAlloc").count(), 2);
        assert_eq!(by_base(c"cuMemAlloc_v2").count(), 0);
    }

    #[test]
    fn entries_are_in_order_and_none_is_there_twice() {
        let key = |entry: &Entry| (entry.function.library() as u8, entry.base, entry.since, entry.per_thread);
        for pair in ENTRIES.windows(2) {
            assert!(key(&pair[0]) < key(&pair[1]), "{:?} {:?}", pair[0].function.name(), pair[1].function.name());
        }
    }

    /// The list's entry for each function.
    fn list() -> Vec<(&'static str, &'static str, &'static str)> {
        let line = |line: &'static str| {
            let (name, mark) = line.split_once(' ').expect("a name and a mark");
            let (mark, reason) = mark.split_once(' ').unwrap_or((mark, ""));
            (name, mark, reason)
        };
        include_str!("../data/entry_points.txt").lines().filter(|line| !line.starts_with('#')).map(line).collect()
    }

    #[test]
    fn every_function_of_the_header_has_been_looked_at() {
        // Names of functions that could take memory: none of them without a reason.
        let telling = [
            "Alloc",
            "MemCreate",
            "ArrayCreate",
            "CtxCreate",
            "Pool",
            "Import",
            "LoadData",
            "ModuleLoad",
            "Retain",
            "AddNode",
            "MapResources",
        ];
        let harmless = [
            "GetAccess",
            "SetAccess",
            "Export",
            "GetParams",
            "Granularity",
            "PropertiesFromHandle",
            "UserObject",
            "TensorMap",
            "LoadingMode",
            "Semaphore",
        ];
        for (name, mark, reason) in list() {
            assert!(["wrapper", "host", "elsewhere", "uncounted", "no"].contains(&mark), "{name} has the mark {mark}");
            let could = telling.iter().any(|word| name.contains(word)) && !harmless.iter().any(|word| name.contains(word));
            assert!(!could || mark == "wrapper" || !reason.is_empty(), "{name} could take memory: why has it no wrapper?");
            assert!(mark == "no" || mark == "wrapper" || !reason.is_empty(), "{name}: {mark} needs a reason");
        }
    }

    #[test]
    fn the_wrappers_are_those_of_the_list() {
        let listed: Vec<&str> = list().into_iter().filter(|(_, mark, _)| *mark == "wrapper").map(|(name, ..)| name).collect();
        let cuda = ENTRIES.iter().filter(|entry| entry.function.library() == Library::Cuda);
        let mut wrapped: Vec<&str> = cuda.map(|entry| entry.function.name().to_str().unwrap()).collect();
        wrapped.sort_unstable();
        wrapped.dedup();
        assert_eq!(wrapped, listed);
    }
}
