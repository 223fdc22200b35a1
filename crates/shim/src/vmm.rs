//! Physical memory by handles. It lives as long as a handle of it or a mapping does.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_ulonglong, c_void};

use crate::abi::{
    Device, DevicePtr, LOCATION_DEVICE, LOCATION_INVISIBLE, LOCATION_LOCALITY_DOMAIN, LOCATION_NONE, Location, OUT_OF_MEMORY, Properties,
    SUCCESS, Status, read,
};
use crate::driver::wrap;
use crate::process::{Process, is_leased, is_unknown, leased, place, with};
use crate::size;

/// The memory behind a handle.
struct Memory {
    card: usize,
    bytes: u64,
    handles: u64,
    mappings: u64,
    /// Handles and mappings that the driver is being asked to take away.
    leaving: u64,
}

/// The memory of this process that has handles or mappings.
#[derive(Default)]
pub struct Records {
    made: u64,
    memory: HashMap<u64, Memory>,
    /// For each handle its memory, and how often it was given.
    handles: HashMap<u64, (u64, u64)>,
    /// For each address where a mapping begins, its size and the memory that is mapped.
    mappings: BTreeMap<u64, (u64, u64)>,
}

impl Records {
    /// A mapping that contains an address.
    fn mapped_at(&self, address: u64) -> Option<u64> {
        let (&start, &(bytes, memory)) = self.mappings.range(..=address).next_back()?;
        (address - start < bytes).then_some(memory)
    }

    fn add_handle(&mut self, handle: u64, of: u64) {
        if let Some(memory) = self.memory.get_mut(&of) {
            memory.handles += 1;
            self.handles.entry(handle).or_insert((of, 0)).1 += 1;
        }
    }

    /// Takes a handle away once, and returns its memory.
    fn take_handle(&mut self, handle: u64) -> Option<u64> {
        let (of, count) = self.handles.get_mut(&handle)?;
        let of = *of;
        *count -= 1;
        if *count == 0 {
            self.handles.remove(&handle);
        }
        if let Some(memory) = self.memory.get_mut(&of) {
            memory.handles = memory.handles.saturating_sub(1);
            memory.leaving += 1;
        }
        Some(of)
    }

    fn map(&mut self, address: u64, bytes: u64, of: u64) {
        if let Some(memory) = self.memory.get_mut(&of) {
            memory.mappings += 1;
            self.mappings.insert(address, (bytes, of));
        }
    }

    /// Takes away the mappings inside of a range.
    fn unmap(&mut self, address: u64, bytes: u64) -> Vec<(u64, u64, u64)> {
        let end = address.saturating_add(bytes);
        let inside: Vec<u64> = self.mappings.range(address..end).map(|(&start, _)| start).collect();
        let mut taken = Vec::new();
        for start in inside {
            let Some((size, of)) = self.mappings.remove(&start) else { continue };
            if let Some(memory) = self.memory.get_mut(&of) {
                memory.mappings = memory.mappings.saturating_sub(1);
                memory.leaving += 1;
            }
            taken.push((start, size, of));
        }
        taken
    }

    /// The driver has answered for a handle or mapping that was taken away here.
    fn answered(&mut self, of: u64) {
        if let Some(memory) = self.memory.get_mut(&of) {
            memory.leaving = memory.leaving.saturating_sub(1);
        }
    }
}

impl Process {
    /// Gives memory back that nothing refers to any more.
    fn sweep(&mut self, of: impl IntoIterator<Item = u64>) {
        for of in of {
            let is_gone = |memory: &Memory| memory.handles == 0 && memory.mappings == 0 && memory.leaving == 0;
            if self.handles.memory.get(&of).is_some_and(is_gone)
                && let Some(memory) = self.handles.memory.remove(&of)
            {
                self.give_back(memory.card, memory.bytes);
            }
        }
    }
}

/// The device where memory is to be; none for memory that is no card's.
pub fn device_of(location: Location) -> Option<Device> {
    match location.kind {
        LOCATION_DEVICE => Some(location.id),
        LOCATION_LOCALITY_DOMAIN => Some(location.id & 0xff),
        // It is some card's: the one in use.
        LOCATION_NONE | LOCATION_INVISIBLE => place().map(|place| place.device),
        _ => None,
    }
}

fn create(handle: *mut u64, bytes: usize, device: Device, call: impl FnOnce() -> Status) -> Status {
    let bytes = size::up(bytes as u64, size::BLOCK);
    let card = with(|process| {
        let card = process.card(device)?;
        process.reserve_or_refuse(card, bytes).then_some(card)
    });
    let Some(card) = card else {
        // For a device that is not there, the error is the driver's.
        return if is_unknown(device) { call() } else { OUT_OF_MEMORY };
    };
    let status = call();
    // SAFETY: the caller of the wrapper promised that the pointer is null or valid.
    let made = if status == SUCCESS { unsafe { read(handle) } } else { None };
    with(|process| match made {
        None => process.give_back(card, bytes),
        Some(handle) => {
            process.handles.made += 1;
            let of = process.handles.made;
            process.handles.memory.insert(of, Memory { card, bytes, handles: 0, mappings: 0, leaving: 0 });
            process.handles.add_handle(handle, of);
        }
    });
    status
}

wrap! { Cuda;
    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const Properties, flags: c_ulonglong) |real| {
        // SAFETY: the caller's promise.
        let call = || unsafe { real(handle, bytes, properties, flags) };
        // SAFETY: the caller's promise.
        let location = (is_leased() && !properties.is_null()).then(|| unsafe { (*properties).location });
        match location.and_then(device_of) {
            Some(device) => create(handle, bytes, device, call),
            None => call(),
        }
    }

    fn cuMemRelease(handle: u64) |real| {
        let taken = leased(|process| process.handles.take_handle(handle));
        // SAFETY: the caller's promise.
        let status = unsafe { real(handle) };
        if let Some(of) = taken {
            with(|process| {
                process.handles.answered(of);
                match status {
                    SUCCESS => process.sweep([of]),
                    _ => process.handles.add_handle(handle, of),
                }
            });
        }
        status
    }

    fn cuMemRetainAllocationHandle(handle: *mut u64, address: *mut c_void) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(handle, address) };
        // SAFETY: the caller's promise.
        if status == SUCCESS && let Some(handle) = unsafe { read(handle) } {
            leased(|process| {
                if let Some(of) = process.handles.mapped_at(address as u64) {
                    process.handles.add_handle(handle, of);
                }
            });
        }
        status
    }

    fn cuMemMap(address: DevicePtr, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(address, bytes, offset, handle, flags) };
        if status == SUCCESS {
            leased(|process| {
                if let Some(&(of, _)) = process.handles.handles.get(&handle) {
                    process.handles.map(address, bytes as u64, of);
                }
            });
        }
        status
    }

    fn cuMemUnmap(address: DevicePtr, bytes: usize) |real| {
        let taken = leased(|process| process.handles.unmap(address, bytes as u64));
        // SAFETY: the caller's promise.
        let status = unsafe { real(address, bytes) };
        if !taken.is_empty() {
            with(|process| {
                taken.iter().for_each(|&(_, _, of)| process.handles.answered(of));
                match status {
                    SUCCESS => process.sweep(taken.iter().map(|&(_, _, of)| of)),
                    _ => taken.iter().for_each(|&(start, size, of)| process.handles.map(start, size, of)),
                }
            });
        }
        status
    }

    /// Memory that another process exported counts there. A handle of it that this process has already means nothing here either.
    fn cuMemImportFromShareableHandle(handle: *mut u64, shared: *mut c_void, kind: c_int) |real| {
        // SAFETY: the caller's promise.
        unsafe { real(handle, shared, kind) }
    }
}
