//! Allocations that belong to a context.

use std::ffi::{c_int, c_uint};

use crate::state::{Allocation, BLOCK, INVALID_VALUE, Opaque, STEP, State, Status, put, up, with};

/// The bytes of a card that an allocation takes.
fn taken(bytes: u64) -> u64 {
    if bytes < 1 << 20 { up(bytes, STEP) } else { up(bytes, BLOCK) }
}

impl State {
    fn allocate(&mut self, bytes: u64) -> Result<u64, Status> {
        let (context, _, card) = self.current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let bytes = taken(bytes);
        self.take(card, bytes)?;
        let name = self.name(bytes);
        self.allocations.insert(name, Allocation { card, bytes, context, pool: None });
        Ok(name)
    }

    pub fn free(&mut self, name: u64) -> Result<(), Status> {
        let on = self.allocations.remove(&name).ok_or(INVALID_VALUE)?;
        match on.pool {
            Some(pool) => self.free_in_pool(pool, on.bytes),
            None => self.give_back(on.card, on.bytes),
        }
        Ok(())
    }
}

/// An allocation whose address goes to `place`, unless there is no place.
unsafe fn allocate<T>(place: *mut T, bytes: u64, name: impl FnOnce(u64) -> T) -> Status {
    if place.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    with(|state| state.allocate(bytes).and_then(|made| unsafe { put(place, name(made)) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(place: *mut u64, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes as u64, |made| made) }
}

/// The address that `cuGetProcAddress` gives out for `cuMemAlloc`: not the symbol's, as a driver may do.
pub unsafe extern "C" fn allocate_otherwise(place: *mut u64, bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    std::hint::black_box(unsafe { allocate(place, bytes as u64, |made| made) })
}

/// A function that no program of today knows.
pub unsafe extern "C" fn allocate_in_future(place: *mut u64, bytes: usize, flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes as u64 + std::hint::black_box(u64::from(flags)), |made| made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(place: *mut u64, bytes: usize, _flags: c_uint) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes as u64, |made| made) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocPitch_v2(place: *mut u64, pitch: *mut usize, width: usize, rows: usize, _element: c_uint) -> Status {
    let row = up(width as u64, STEP);
    // SAFETY: the caller's promise.
    match unsafe { put(pitch, row as usize) } {
        Err(status) => status,
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { allocate(place, row.saturating_mul(rows as u64), |made| made) },
    }
}

fn free(name: u64) -> Status {
    if name == 0 { 0 } else { with(|state| state.free(name)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(name: u64) -> Status {
    free(name)
}

/// Memory of the host: none of a card.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(place: *mut Opaque, _bytes: usize) -> Status {
    // SAFETY: the caller's promise.
    with(|state| unsafe { put(place, state.name(1) as Opaque) })
}

/// Which of the two are asked for is up to the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    with(|state| {
        let (_, _, card) = state.current()?;
        state.works(card)?;
        let in_all = state.machine.available(card);
        let used = state.machine.used().map_or(0, |used| used[card]);
        // SAFETY: the caller's promise.
        unsafe {
            if !free.is_null() {
                put(free, in_all.saturating_sub(used) as usize)?;
            }
            if !total.is_null() {
                put(total, in_all as usize)?;
            }
        }
        Ok(())
    })
}

/// `CUDA_ARRAY_DESCRIPTOR`
#[repr(C)]
pub struct Array {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[repr(C)]
pub struct Array3d {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

fn element(format: c_int, channels: c_uint) -> u64 {
    u64::from(channels)
        * match format {
            1 | 8 => 1,
            2 | 9 | 0x10 => 2,
            _ => 4,
        }
}

fn bytes(of: &Array3d, level: u32) -> u64 {
    let at = |size: usize| (size >> level).max(1) as u64;
    at(of.width) * at(of.height) * at(of.depth) * element(of.format, of.channels)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArrayCreate_v2(place: *mut Opaque, of: *const Array) -> Status {
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let of = &*of;
        allocate(place, (of.width * of.height.max(1)) as u64 * element(of.format, of.channels), |made| made as Opaque)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArray3DCreate_v2(place: *mut Opaque, of: *const Array3d) -> Status {
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { allocate(place, bytes(&*of, 0), |made| made as Opaque) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMipmappedArrayCreate(place: *mut Opaque, of: *const Array3d, levels: c_uint) -> Status {
    if of.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { allocate(place, (0..levels.min(32)).map(|level| bytes(&*of, level)).sum(), |made| made as Opaque) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayDestroy(array: Opaque) -> Status {
    free(array as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayDestroy(array: Opaque) -> Status {
    free(array as u64)
}
