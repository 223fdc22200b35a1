//! Physical memory by handles, and where it is mapped.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_ulonglong, c_void};
use std::ops::Range;

use crate::calls::note;
use crate::space::Space;
use crate::state::{BLOCK, INVALID_VALUE, OUT_OF_MEMORY, State as Process, Status, put, with};

struct Memory {
    /// None for the host's.
    card: Option<usize>,
    bytes: u64,
    handles: u64,
    mappings: u64,
}

/// Memory behind addresses.
#[derive(Clone, Copy)]
struct Mapped {
    bytes: u64,
    handle: u64,
    /// The cards that may use it there, a bit for each.
    access: u64,
}

#[derive(Default)]
pub struct State {
    memory: HashMap<u64, Memory>,
    mappings: BTreeMap<u64, Mapped>,
    pub space: Space,
}

/// The beginning of `CUmemAllocationProp`: kind, kinds of handles, kind and number of the location.
pub type Properties = [c_int; 4];

impl State {
    /// The card whose memory is mapped there.
    pub fn card(&self, address: u64) -> Option<usize> {
        let (start, Mapped { bytes, handle, .. }) = self.mappings.range(..=address).next_back()?;
        if address - start < *bytes { self.memory.get(handle)?.card } else { None }
    }

    /// Whether a card may use all bytes of a range that has memory.
    pub fn is_open_to(&self, range: &Range<u64>, card: usize) -> bool {
        let first = self.mappings.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        self.mappings.range(first..range.end).all(|(start, mapped)| start + mapped.bytes <= range.start || mapped.access & 1 << card != 0)
    }
}

impl Process {
    fn sweep(&mut self, handle: u64) {
        if self.physical.memory.get(&handle).is_some_and(|memory| memory.handles == 0 && memory.mappings == 0)
            && let Some(Memory { card: Some(card), bytes, .. }) = self.physical.memory.remove(&handle)
        {
            self.give_back(card, bytes);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(place: *mut u64, bytes: usize, of: *const Properties, _flags: c_ulonglong) -> Status {
    let bytes = bytes as u64;
    if place.is_null() || of.is_null() || bytes == 0 || !bytes.is_multiple_of(BLOCK) {
        return INVALID_VALUE;
    }
    with(|state| {
        // SAFETY: the caller's promise.
        let [_, _, kind, number] = unsafe { *of };
        let card = if kind == 1 { Some(state.card(number)?) } else { None };
        card.map_or(Ok(()), |card| state.has_room(card))?;
        card.map_or(Ok(()), |card| state.take(card, bytes))?;
        let handle = state.name(1);
        state.physical.memory.insert(handle, Memory { card, bytes, handles: 1, mappings: 0 });
        // SAFETY: the caller's promise.
        unsafe { put(place, handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> Status {
    with(|state| {
        let memory = state.physical.memory.get_mut(&handle).filter(|memory| memory.handles > 0).ok_or(INVALID_VALUE)?;
        memory.handles -= 1;
        state.sweep(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRetainAllocationHandle(place: *mut u64, address: *mut c_void) -> Status {
    with(|state| {
        let (&start, &Mapped { bytes, handle, .. }) = state.physical.mappings.range(..=address as u64).next_back().ok_or(INVALID_VALUE)?;
        if address as u64 - start >= bytes {
            return Err(INVALID_VALUE);
        }
        state.physical.memory.get_mut(&handle).ok_or(INVALID_VALUE)?.handles += 1;
        // SAFETY: the caller's promise.
        unsafe { put(place, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(place: *mut u64, bytes: usize, _align: usize, _address: u64, _flags: c_ulonglong) -> Status {
    if place.is_null() || bytes == 0 || !bytes.is_multiple_of(BLOCK as usize) {
        return INVALID_VALUE;
    }
    with(|state| {
        state.has_room_here()?;
        let start = state.physical.space.reserve(bytes as u64).ok_or(OUT_OF_MEMORY)?;
        // SAFETY: the caller's promise.
        unsafe { put(place, start) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> Status {
    with(|state| match state.physical.mappings.range(address..address.saturating_add(bytes as u64)).next() {
        Some(_) => Err(INVALID_VALUE),
        None => state.physical.space.free(address, bytes as u64),
    })
}

/// Whole pieces of reserved addresses, from the beginning of the memory on, where nothing is mapped.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: c_ulonglong) -> Status {
    with(|state| {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        state.has_room_here()?;
        let physical = &mut state.physical;
        let before = physical.mappings.range(..end).next_back();
        let is_free = before.is_none_or(|(start, mapped)| start + mapped.bytes <= address) && physical.space.has(&(address..end));
        let is_whole = offset == 0 && bytes > 0 && address.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let memory = physical.memory.get_mut(&handle).ok_or(INVALID_VALUE)?;
        if !is_free || !is_whole || bytes as u64 > memory.bytes {
            return Err(INVALID_VALUE);
        }
        memory.mappings += 1;
        state.physical.mappings.insert(address, Mapped { bytes: bytes as u64, handle, access: 0 });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> Status {
    with(|state| {
        let inside: Vec<u64> =
            state.physical.mappings.range(address..address.saturating_add(bytes as u64)).map(|(start, _)| *start).collect();
        if inside.is_empty() {
            return Err(INVALID_VALUE);
        }
        for start in inside {
            let Some(Mapped { bytes, handle, .. }) = state.physical.mappings.remove(&start) else { continue };
            state.physical.space.close(&(start..start + bytes));
            if let Some(memory) = state.physical.memory.get_mut(&handle) {
                memory.mappings -= 1;
            }
            state.sweep(handle);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(place: *mut usize, _of: *const Properties, _option: c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|_| unsafe { put(place, BLOCK as usize) })
}

/// `CUmemAccessDesc`: kind and number of a location, and what it may do.
#[repr(C)]
pub struct Access {
    kind: c_int,
    number: c_int,
    flags: c_int,
}

/// `CU_MEM_ACCESS_FLAGS_PROT_NONE` and `_READWRITE`
const NONE: c_int = 0;
const READ_WRITE: c_int = 3;

/// Access to memory that is mapped, for cards that reach it. From the first on it is there, full of what nobody wrote. What is not said of a card stays.
///
/// # Safety
/// The driver's: there are so many descriptions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize) -> Status {
    note("cuMemSetAccess");
    if access.is_null() || count == 0 || bytes == 0 {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    with(|state| {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        state.has_room_here()?;
        let mut cards = Vec::with_capacity(count);
        for Access { kind, number, flags } in access {
            if *kind != 1 || ![NONE, READ_WRITE].contains(flags) {
                return Err(INVALID_VALUE);
            }
            cards.push((state.card(*number)?, *flags));
        }
        let inside: Vec<(u64, u64, u64)> =
            state.physical.mappings.range(address..end).map(|(start, mapped)| (*start, start + mapped.bytes, mapped.handle)).collect();
        let mut at = address;
        for (start, end, handle) in &inside {
            let of = state.physical.memory.get(handle).and_then(|memory| memory.card);
            let is_reached = |card: usize| of.is_none_or(|of| of == card || !state.machine.is_alone(of) && !state.machine.is_alone(card));
            if *start != at || !cards.iter().all(|(card, _)| is_reached(*card)) {
                return Err(INVALID_VALUE);
            }
            at = *end;
        }
        if at != end {
            return Err(INVALID_VALUE);
        }
        let physical = &mut state.physical;
        for (start, end, _) in inside {
            if let Some(mapped) = physical.mappings.get_mut(&start) {
                for (card, flags) in &cards {
                    mapped.access = mapped.access & !(1 << card) | u64::from(*flags == READ_WRITE) << card;
                }
            }
            if !physical.space.is_open(&(start..end)) {
                physical.space.open(start..end);
            }
        }
        Ok(())
    })
}
