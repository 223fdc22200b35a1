//! Memory of the host that cards reach.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};

use crate::state::{INVALID_VALUE, OUT_OF_MEMORY, Status, put, with};

/// What was allocated, by its address.
#[derive(Default)]
pub struct Pinned(BTreeMap<u64, Box<[u64]>>);

impl Pinned {
    /// Whether all of a range is in one of them.
    pub fn contains(&self, start: u64, bytes: u64) -> bool {
        let found = self.0.range(..=start).next_back();
        found.is_some_and(|(at, memory)| start.checked_add(bytes).is_some_and(|end| end <= at + 8 * memory.len() as u64))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(place: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    with(|state| {
        let (_, _, card) = state.current()?;
        state.has_room(card)?;
        if bytes == 0 || place.is_null() {
            return Err(INVALID_VALUE);
        }
        if bytes > 1 << 40 {
            return Err(OUT_OF_MEMORY);
        }
        let mut memory = vec![0xA7A7_A7A7_A7A7_A7A7u64; bytes.div_ceil(8)].into_boxed_slice();
        let start = memory.as_mut_ptr();
        state.pinned.0.insert(start as u64, memory);
        // SAFETY: the caller's promise.
        unsafe { put(place, start.cast()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(start: *mut c_void) -> Status {
    with(|state| state.pinned.0.remove(&(start as u64)).map(drop).ok_or(INVALID_VALUE))
}
