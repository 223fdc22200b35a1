//! Pools, and what streams record. A pool takes memory of a card in steps, and gives back unused bytes when its work is waited for.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::physical::Properties;
use crate::state::{Allocation, BLOCK, INVALID_VALUE, Opaque, STEP, State as Process, Status, put, up, with};

/// The least that a pool grows by.
const GROWTH: u64 = 32 << 20;

const RELEASE_THRESHOLD: c_int = 4;
const RESERVED_NOW: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED_NOW: c_int = 7;
const USED_HIGH: c_int = 8;

struct Pool {
    card: usize,
    reserved: u64,
    used: u64,
    threshold: u64,
    most: [u64; 2],
    /// It has no handle any more.
    destroyed: bool,
}

#[derive(Default)]
pub struct State {
    pools: HashMap<u64, Pool>,
    own: HashMap<c_int, u64>,
    current: HashMap<c_int, u64>,
    /// The graph that a stream's calls are recorded into.
    pub capturing: HashMap<u64, u64>,
}

impl Process {
    fn make_pool(&mut self, card: usize) -> u64 {
        let name = self.name(1);
        self.pools.pools.insert(name, Pool { card, reserved: 0, used: 0, threshold: 0, most: [0; 2], destroyed: false });
        name
    }

    fn own_pool(&mut self, device: c_int) -> Result<u64, Status> {
        let card = self.card(device)?;
        if let Some(&pool) = self.pools.own.get(&device) {
            return Ok(pool);
        }
        let pool = self.make_pool(card);
        self.pools.own.insert(device, pool);
        Ok(pool)
    }

    fn current_pool(&mut self, device: c_int) -> Result<u64, Status> {
        match self.pools.current.get(&device) {
            Some(&pool) => Ok(pool),
            None => self.own_pool(device),
        }
    }

    fn allocate_in_pool(&mut self, name: u64, bytes: u64) -> Result<u64, Status> {
        let bytes = up(bytes.max(1), STEP);
        let pool = self.pools.pools.get(&name).ok_or(INVALID_VALUE)?;
        let card = pool.card;
        let missing = (pool.used + bytes).saturating_sub(pool.reserved);
        let growth = if missing > 0 { up(missing, GROWTH) } else { 0 };
        self.take(card, growth)?;
        let pool = self.pools.pools.get_mut(&name).ok_or(INVALID_VALUE)?;
        (pool.reserved, pool.used) = (pool.reserved + growth, pool.used + bytes);
        pool.most = [pool.most[0].max(pool.reserved), pool.most[1].max(pool.used)];
        let address = self.name(bytes);
        self.allocations.insert(address, Allocation { card, bytes, context: 0, pool: Some(name) });
        Ok(address)
    }

    pub fn free_in_pool(&mut self, name: u64, bytes: u64) {
        let Some(pool) = self.pools.pools.get_mut(&name) else { return };
        pool.used -= bytes;
        if pool.destroyed && pool.used == 0 {
            let (card, reserved) = (pool.card, pool.reserved);
            self.pools.pools.remove(&name);
            self.give_back(card, reserved);
        }
    }

    fn trim(&mut self, name: u64, keep: u64) {
        let Some(pool) = self.pools.pools.get_mut(&name) else { return };
        let spare = pool.reserved.saturating_sub(up(pool.used, BLOCK).max(keep));
        pool.reserved -= spare;
        let card = pool.card;
        if spare > 0 {
            self.give_back(card, spare);
        }
    }

    /// All work is done: pools give back bytes above their thresholds.
    pub fn waited(&mut self) {
        let all: Vec<(u64, u64)> = self.pools.pools.iter().map(|(name, pool)| (*name, pool.threshold)).collect();
        all.into_iter().for_each(|(name, threshold)| self.trim(name, threshold));
    }
}

/// An allocation in a stream, from a pool or from the current one.
unsafe fn allocate(place: *mut u64, bytes: usize, pool: Option<u64>, stream: Opaque) -> Status {
    if place.is_null() {
        return INVALID_VALUE;
    }
    with(|state| {
        let (_, device, _) = state.current()?;
        let made = match state.pools.capturing.get(&(stream as u64)).copied() {
            Some(graph) => state.add_node(graph, device, bytes as u64)?,
            None => {
                let pool = pool.map_or_else(|| state.current_pool(device), Ok)?;
                state.allocate_in_pool(pool, bytes as u64)?
            }
        };
        // SAFETY: the caller's promise.
        unsafe { put(place, made) }
    })
}

fn free(address: u64) -> Status {
    with(|state| match state.graphs.is_a_node(address) {
        true => Ok(()),
        false => state.free(address),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(place: *mut u64, bytes: usize, stream: Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes, None, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync_ptsz(place: *mut u64, bytes: usize, stream: Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes, None, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(place: *mut u64, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes, Some(pool as u64), stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync_ptsz(place: *mut u64, bytes: usize, pool: Opaque, stream: Opaque) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes, Some(pool as u64), stream) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, _stream: Opaque) -> Status {
    free(address)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync_ptsz(address: u64, _stream: Opaque) -> Status {
    free(address)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(place: *mut Opaque, of: *const Properties) -> Status {
    if of.is_null() {
        return INVALID_VALUE;
    }
    with(|state| {
        // SAFETY: the caller's promise.
        let card = state.card(unsafe { (*of)[3] })?;
        // SAFETY: the caller's promise.
        unsafe { put(place, state.make_pool(card) as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolDestroy(pool: Opaque) -> Status {
    with(|state| {
        let on = state.pools.pools.get_mut(&(pool as u64)).filter(|pool| !pool.destroyed).ok_or(INVALID_VALUE)?;
        on.destroyed = true;
        state.pools.current.retain(|_, current| *current != pool as u64);
        state.free_in_pool(pool as u64, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(pool: Opaque, keep: usize) -> Status {
    with(|state| {
        state.trim(pool as u64, keep as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(pool: Opaque, attribute: c_int, place: *mut u64) -> Status {
    with(|state| {
        let pool = state.pools.pools.get(&(pool as u64)).ok_or(INVALID_VALUE)?;
        let value = match attribute {
            RELEASE_THRESHOLD => pool.threshold,
            RESERVED_NOW => pool.reserved,
            RESERVED_HIGH => pool.most[0],
            USED_NOW => pool.used,
            USED_HIGH => pool.most[1],
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: the caller's promise.
        unsafe { put(place, value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(pool: Opaque, attribute: c_int, value: *const u64) -> Status {
    with(|state| {
        let pool = state.pools.pools.get_mut(&(pool as u64)).ok_or(INVALID_VALUE)?;
        if attribute == RELEASE_THRESHOLD && !value.is_null() {
            // SAFETY: the caller's promise.
            pool.threshold = unsafe { *value };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(place: *mut Opaque, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| state.own_pool(device).and_then(|pool| unsafe { put(place, pool as Opaque) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(place: *mut Opaque, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| state.current_pool(device).and_then(|pool| unsafe { put(place, pool as Opaque) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetMemPool(device: c_int, pool: Opaque) -> Status {
    with(|state| {
        state.card(device)?;
        state.pools.current.insert(device, pool as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: Opaque, place: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(place, c_int::from(state.pools.capturing.contains_key(&(stream as u64)))) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: Opaque,
    status: *mut c_int,
    _number: *mut u64,
    graph: *mut Opaque,
    _nodes: *mut c_void,
    _count: *mut c_void,
) -> Status {
    with(|state| {
        let into = state.pools.capturing.get(&(stream as u64)).copied();
        // SAFETY: the caller's promise.
        unsafe {
            put(status, c_int::from(into.is_some()))?;
            if !graph.is_null() {
                put(graph, into.unwrap_or(0) as Opaque)?;
            }
        }
        Ok(())
    })
}
