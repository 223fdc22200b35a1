//! Pools: counted by the driver's reservations for them, not by the allocations from them.
//!
//! Before an allocation, the ledger holds the bytes that a pool has reserved and those that it may grow by. Afterwards it keeps a
//! little more than it has, so that most allocations need no look at the ledger. Where there is no room, the pool is asked to give
//! back first.

use std::collections::HashMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::abi::{
    Device, DevicePtr, LOCATION_INVISIBLE, LOCATION_NONE, Location, OUT_OF_MEMORY, Opaque, POOL_RESERVED_NOW, Properties, STREAM_CAPTURES,
    SUCCESS, Status, read,
};
use crate::driver::{driver, wrap};
use crate::process::{Process, is_leased, leased, place, with};
use crate::vmm::device_of;
use crate::{graph, size};

/// A pool of this process.
struct Pool {
    handle: usize,
    /// None for one that counts elsewhere or is no card's.
    card: Option<usize>,
    held: u64,
    /// The bytes that allocations under way may add.
    pending: u64,
    /// How many allocations it has.
    blocks: u64,
    /// It has no handle any more, and lives as long as its allocations.
    destroyed: bool,
}

#[derive(Default)]
pub struct Records {
    made: u64,
    pools: HashMap<u64, Pool>,
    numbers: HashMap<usize, u64>,
    blocks: HashMap<u64, u64>,
}

/// Whether memory went back to a pool since the pools were last looked at.
static FREED: AtomicBool = AtomicBool::new(false);

impl Records {
    fn add(&mut self, handle: usize, card: Option<usize>) -> u64 {
        self.made += 1;
        self.pools.insert(self.made, Pool { handle, card, held: 0, pending: 0, blocks: 0, destroyed: false });
        self.numbers.insert(handle, self.made);
        self.made
    }
}

/// The bytes that the driver has reserved for a pool.
fn reserved(pool: usize) -> Option<u64> {
    let mut bytes = 0u64;
    let get = driver!(c"cuMemPoolGetAttribute"(Opaque, c_int, *mut u64))?;
    // SAFETY: the pool is one of the driver's, and the attribute is a number of 64 bits.
    (unsafe { get(pool as Opaque, POOL_RESERVED_NOW, &mut bytes) } == SUCCESS).then_some(bytes)
}

/// Asks a pool to give back unused bytes.
fn trim(pool: usize) {
    if let Some(trim) = driver!(c"cuMemPoolTrimTo"(Opaque, usize)) {
        // SAFETY: the pool is one of the driver's.
        unsafe { trim(pool as Opaque, 0) };
    }
}

impl Process {
    /// The number of the pool with a handle that was not made here: a device's own.
    fn pool(&mut self, handle: usize, device: Option<Device>) -> Option<u64> {
        if let Some(&number) = self.pools.numbers.get(&handle) {
            return Some(number);
        }
        let device = default_of(handle).or(device)?;
        let card = self.card(device)?;
        Some(self.pools.add(handle, Some(card)))
    }

    /// Makes room for an allocation: whether there was. The last try is counted as a refusal.
    fn grow(&mut self, number: u64, bytes: u64, is_last: bool) -> bool {
        let Some(pool) = self.pools.pools.get(&number) else { return true };
        let Some(card) = pool.card else { return true };
        let more = size::up(bytes, size::POOL_STEP);
        // Looked at here: bytes that another thread's allocation added are either in this number or still pending.
        let needed = reserved(pool.handle).unwrap_or(pool.held).saturating_add(pool.pending).saturating_add(more);
        let missing = needed.saturating_sub(pool.held);
        let fits = if is_last { self.reserve_or_refuse(card, missing) } else { self.reserve(card, missing) };
        if fits && let Some(pool) = self.pools.pools.get_mut(&number) {
            pool.held += missing;
            pool.pending += more;
        }
        fits
    }

    /// Makes the holding of a pool fit its reservation; whether it does. One that has grown by more than it could is not counted
    /// right.
    fn settle(&mut self, number: u64, done: u64) -> bool {
        let Some(pool) = self.pools.pools.get_mut(&number) else { return true };
        pool.pending = pool.pending.saturating_sub(done);
        let (Some(card), false) = (pool.card, pool.destroyed) else { return true };
        let Some(has) = reserved(pool.handle) else {
            // No pool, or one that is gone: unused bytes go back.
            if pool.blocks == 0 && pool.pending == 0 {
                let held = std::mem::take(&mut pool.held);
                self.give_back(card, held);
            }
            return true;
        };
        let has = has.saturating_add(pool.pending);
        let enough = if has > 0 { has.saturating_add(size::POOL_STEP) } else { 0 };
        if pool.held > enough {
            let spare = pool.held - enough;
            pool.held = enough;
            self.give_back(card, spare);
        } else if pool.held < has {
            let missing = has - pool.held;
            if !self.reserve_or_refuse(card, missing) {
                return false;
            }
            if let Some(pool) = self.pools.pools.get_mut(&number) {
                pool.held += missing;
            }
        }
        true
    }

    fn settle_all(&mut self) {
        let numbers: Vec<u64> = self.pools.pools.keys().copied().collect();
        numbers.into_iter().for_each(|number| {
            self.settle(number, 0);
        });
    }

    /// An allocation of a pool is no more.
    fn less(&mut self, number: u64) {
        FREED.store(true, Relaxed);
        let Some(pool) = self.pools.pools.get_mut(&number) else { return };
        pool.blocks = pool.blocks.saturating_sub(1);
        if pool.destroyed && pool.blocks == 0 {
            let (card, held) = (pool.card, pool.held);
            self.pools.pools.remove(&number);
            card.into_iter().for_each(|card| self.give_back(card, held));
        }
    }
}

/// The device whose own pool that is.
fn default_of(handle: usize) -> Option<Device> {
    let mut count = 0;
    // SAFETY: the driver writes to locals.
    unsafe { driver!(c"cuDeviceGetCount"(*mut c_int))?(&mut count) };
    let get = driver!(c"cuDeviceGetDefaultMemPool"(*mut Opaque, Device))?;
    (0..count).find(|&device| {
        let mut pool: Opaque = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { get(&mut pool, device) == SUCCESS && pool as usize == handle }
    })
}

/// The device of a stream.
fn device_of_stream(stream: Opaque) -> Option<Device> {
    let mut device = 0;
    // The first three are names of the current context's own streams.
    if stream as usize > 2
        && let Some(get) = driver!(c"cuStreamGetDevice"(Opaque, *mut Device))
        // SAFETY: the stream is the program's; the driver writes to a local.
        && unsafe { get(stream, &mut device) } == SUCCESS
    {
        return Some(device);
    }
    place().map(|place| place.device)
}

/// The graph that a stream's calls are recorded into, if they are; null where the driver does not say which.
fn captured_by(stream: Opaque) -> Option<usize> {
    let mut status = 0;
    let get = driver!(c"cuStreamIsCapturing"(Opaque, *mut c_int))?;
    // SAFETY: the stream is the program's; the driver writes to a local.
    if unsafe { get(stream, &mut status) } != SUCCESS || status != STREAM_CAPTURES {
        return None;
    }
    let mut graph: Opaque = std::ptr::null_mut();
    if let Some(get) = driver!(c"cuStreamGetCaptureInfo_v2"(Opaque, *mut c_int, *mut u64, *mut Opaque, *mut c_void, *mut c_void)) {
        // SAFETY: as above; the pointers that may be null are.
        unsafe { get(stream, &mut status, std::ptr::null_mut(), &mut graph, std::ptr::null_mut(), std::ptr::null_mut()) };
    }
    Some(graph as usize)
}

/// Waits for a stream's work: memory that it frees is free then.
fn wait_for(stream: Opaque) {
    if let Some(wait) = driver!(c"cuStreamSynchronize"(Opaque)) {
        // SAFETY: the stream is the program's.
        unsafe { wait(stream) };
    }
}

/// An allocation from a pool, in a stream. Without a pool it is the current one of the stream's device.
fn allocate(pointer: *mut DevicePtr, bytes: u64, pool: Option<usize>, stream: Opaque, call: impl FnOnce() -> Status) -> Status {
    if !is_leased() {
        return call();
    }
    let device = device_of_stream(stream);
    if let Some(graph) = captured_by(stream) {
        let Some(device) = device else { return call() };
        return graph::add(graph, device, bytes, call);
    }
    let current = || {
        let mut pool: Opaque = std::ptr::null_mut();
        let get = driver!(c"cuDeviceGetMemPool"(*mut Opaque, Device))?;
        // SAFETY: the driver writes to a local.
        (unsafe { get(&mut pool, device?) } == SUCCESS).then_some(pool as usize)
    };
    // Without a context or a pool the driver refuses.
    let Some(handle) = pool.or_else(current).filter(|&pool| pool != 0) else { return call() };
    let Some(number) = with(|process| process.pool(handle, device)) else { return OUT_OF_MEMORY };
    let mut fits = with(|process| process.grow(number, bytes, false));
    for wait in [false, true] {
        if fits {
            break;
        }
        if wait {
            wait_for(stream);
        }
        trim(handle);
        fits = with(|process| {
            process.settle_all();
            process.grow(number, bytes, wait)
        });
    }
    if !fits {
        return OUT_OF_MEMORY;
    }
    let status = call();
    // SAFETY: the caller of the wrapper promised that the pointer is null or valid.
    let made = if status == SUCCESS { unsafe { read(pointer) } } else { None };
    let is_counted = with(|process| {
        if let Some(pointer) = made {
            process.pools.blocks.insert(pointer, number);
            if let Some(pool) = process.pools.pools.get_mut(&number) {
                pool.blocks += 1;
            }
        }
        process.settle(number, size::up(bytes, size::POOL_STEP))
    });
    if is_counted {
        return status;
    }
    // The driver took more than it was thought to.
    if let (Some(pointer), Some(free)) = (made, driver!(c"cuMemFreeAsync"(DevicePtr, Opaque))) {
        with(|process| process.pools.blocks.remove(&pointer).into_iter().for_each(|number| process.less(number)));
        // SAFETY: the memory was allocated just now and is freed in the same stream.
        unsafe { free(pointer, stream) };
        wait_for(stream);
        trim(handle);
    }
    OUT_OF_MEMORY
}

/// Frees memory that may be an allocation of a pool.
pub fn free(pointer: DevicePtr, call: impl FnOnce() -> Status) -> Status {
    let Some(number) = leased(|process| process.pools.blocks.remove(&pointer)) else { return call() };
    let status = call();
    with(|process| match status {
        SUCCESS => process.less(number),
        _ => {
            process.pools.blocks.insert(pointer, number);
        }
    });
    status
}

fn free_async(pointer: DevicePtr, call: impl FnOnce() -> Status) -> Status {
    free(pointer, || crate::plain::free(crate::plain::Key::Pointer(pointer), call))
}

/// After a wait: pools may have given back memory that was freed before.
fn waited(status: Status) -> Status {
    if FREED.load(Relaxed) && FREED.swap(false, Relaxed) {
        leased(Process::settle_all);
    }
    status
}

/// Remembers whose memory a pool is of.
fn learn(status: Status, pool: *mut Opaque, device: Option<Device>) -> Status {
    // SAFETY: the caller of the wrapper promised that the pointer is null or valid.
    let made = if status == SUCCESS && is_leased() { unsafe { read(pool) } } else { None };
    if let Some(handle) = made {
        with(|process| {
            if !process.pools.numbers.contains_key(&(handle as usize)) {
                let card = device.and_then(|device| process.card(device));
                // Of a card of which the lease has nothing, a pool cannot have anything: it is found out when it is used.
                if device.is_none() || card.is_some() {
                    process.pools.add(handle as usize, card);
                }
            }
        });
    }
    status
}

wrap! { Cuda;
    fn cuMemAllocAsync(pointer: *mut DevicePtr, bytes: usize, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        allocate(pointer, bytes as u64, None, stream, || unsafe { real(pointer, bytes, stream) })
    }

    fn cuMemAllocAsync_ptsz(pointer: *mut DevicePtr, bytes: usize, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        allocate(pointer, bytes as u64, None, stream, || unsafe { real(pointer, bytes, stream) })
    }

    fn cuMemAllocFromPoolAsync(pointer: *mut DevicePtr, bytes: usize, pool: Opaque, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        allocate(pointer, bytes as u64, Some(pool as usize), stream, || unsafe { real(pointer, bytes, pool, stream) })
    }

    fn cuMemAllocFromPoolAsync_ptsz(pointer: *mut DevicePtr, bytes: usize, pool: Opaque, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        allocate(pointer, bytes as u64, Some(pool as usize), stream, || unsafe { real(pointer, bytes, pool, stream) })
    }

    fn cuMemFreeAsync(pointer: DevicePtr, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        free_async(pointer, || unsafe { real(pointer, stream) })
    }

    fn cuMemFreeAsync_ptsz(pointer: DevicePtr, stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        free_async(pointer, || unsafe { real(pointer, stream) })
    }

    fn cuMemPoolCreate(pool: *mut Opaque, properties: *const Properties) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(pool, properties) };
        // SAFETY: the caller's promise.
        let location = (!properties.is_null()).then(|| unsafe { (*properties).location });
        let device = location.and_then(device_of);
        // Whose it is may be open until it is used.
        let is_open = device.is_none() && location.is_some_and(|location| [LOCATION_NONE, LOCATION_INVISIBLE].contains(&location.kind));
        if is_open { status } else { learn(status, pool, device) }
    }

    /// Another process has exported it, and counts for it.
    fn cuMemPoolImportFromShareableHandle(pool: *mut Opaque, shared: *mut c_void, kind: c_int, flags: c_ulonglong) |real| {
        // SAFETY: the caller's promise.
        learn(unsafe { real(pool, shared, kind, flags) }, pool, None)
    }

    fn cuMemGetDefaultMemPool(pool: *mut Opaque, location: *const Location, kind: c_int) |real| {
        // SAFETY: the caller's promise.
        learn(unsafe { real(pool, location, kind) }, pool, unsafe { read(location) }.and_then(device_of))
    }

    fn cuMemGetMemPool(pool: *mut Opaque, location: *const Location, kind: c_int) |real| {
        // SAFETY: the caller's promise.
        learn(unsafe { real(pool, location, kind) }, pool, unsafe { read(location) }.and_then(device_of))
    }

    fn cuMemPoolDestroy(pool: Opaque) |real| {
        // Before it is destroyed: another pool may be given the same handle right afterwards.
        let number = leased(|process| process.pools.numbers.remove(&(pool as usize)));
        // SAFETY: the caller's promise.
        let status = unsafe { real(pool) };
        if let Some(number) = number {
            with(|process| match status {
                SUCCESS => {
                    if let Some(pool) = process.pools.pools.get_mut(&number) {
                        pool.destroyed = true;
                        pool.blocks += 1;
                    }
                    process.less(number);
                }
                _ => {
                    process.pools.numbers.insert(pool as usize, number);
                }
            });
        }
        status
    }

    fn cuMemPoolTrimTo(pool: Opaque, keep: usize) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(pool, keep) };
        FREED.store(true, Relaxed);
        waited(status)
    }

    fn cuStreamSynchronize(stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        waited(unsafe { real(stream) })
    }

    fn cuStreamSynchronize_ptsz(stream: Opaque) |real| {
        // SAFETY: the caller's promise.
        waited(unsafe { real(stream) })
    }

    fn cuCtxSynchronize() |real| {
        // SAFETY: the caller's promise.
        waited(unsafe { real() })
    }

    fn cuCtxSynchronize_v2(context: Opaque) |real| {
        // SAFETY: the caller's promise.
        waited(unsafe { real(context) })
    }

    fn cuEventSynchronize(event: Opaque) |real| {
        // SAFETY: the caller's promise.
        waited(unsafe { real(event) })
    }
}
