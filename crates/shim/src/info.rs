//! How much memory there is and is free, as CUDA says it: of the lease.

use std::ffi::c_uint;

use crate::abi::{Device, SUCCESS, Status, read, write};
use crate::driver::wrap;
use crate::process::{Process, is_leased, place, with};

/// The memory of a card: in all, and free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub free: u64,
    /// Used by the programs under the lease.
    pub used: u64,
}

impl Process {
    /// The size of a card that a program under the lease is told, for a card of which the driver says that much. Of a card of which
    /// the lease has nothing, nothing is free.
    pub fn seen(&mut self, card: Option<usize>, total: u64, free: u64) -> Memory {
        let Some(card) = card else { return Memory { total, free: 0, used: 0 } };
        let (limit, used) = (self.limit(card), self.used(card));
        Memory { total: total.min(limit), free: free.min(limit.saturating_sub(used)), used: used.min(limit) }
    }
}

fn info<T: Copy + TryFrom<u64> + Into<u64> + Default>(
    free: *mut T,
    total: *mut T,
    largest: T,
    ask: impl FnOnce(*mut T, *mut T) -> Status,
) -> Status {
    if !is_leased() || (free.is_null() && total.is_null()) {
        return ask(free, total);
    }
    let (mut is_free, mut in_all) = (T::default(), T::default());
    let status = ask(&mut is_free, &mut in_all);
    if status == SUCCESS {
        let seen = place().map(|place| {
            with(|process| {
                let card = process.card(place.device);
                process.seen(card, in_all.into(), is_free.into())
            })
        });
        let seen = seen.unwrap_or(Memory { total: in_all.into(), free: is_free.into(), used: 0 });
        // SAFETY: the caller of the wrapper promised that the pointers are null or valid.
        unsafe {
            write(free, T::try_from(seen.free).unwrap_or(largest));
            write(total, T::try_from(seen.total).unwrap_or(largest));
        }
    }
    status
}

fn total(bytes: Option<u64>, device: Device) -> Option<u64> {
    let bytes = bytes.filter(|_| is_leased())?;
    Some(with(|process| match process.card(device) {
        Some(card) => process.limit(card).min(bytes),
        None => bytes,
    }))
}

wrap! { Cuda;
    fn cuMemGetInfo_v2(free: *mut u64, total: *mut u64) |real| {
        // SAFETY: the caller's promise; a size has 64 bits on all systems that this is made for.
        info(free, total, u64::MAX, |free, total| unsafe { real(free, total) })
    }

    /// As CUDA before 3.2 has it.
    fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) |real| {
        // SAFETY: the caller's promise.
        info(free, total, c_uint::MAX, |free, total| unsafe { real(free, total) })
    }

    fn cuDeviceTotalMem_v2(bytes: *mut u64, device: Device) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(bytes, device) };
        // SAFETY: the caller's promise.
        if status == SUCCESS && let Some(seen) = total(unsafe { read(bytes) }, device) {
            // SAFETY: the caller's promise.
            unsafe { write(bytes, seen) };
        }
        status
    }

    /// As CUDA before 3.2 has it.
    fn cuDeviceTotalMem(bytes: *mut c_uint, device: Device) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(bytes, device) };
        // SAFETY: the caller's promise.
        if status == SUCCESS && let Some(seen) = total(unsafe { read(bytes) }.map(u64::from), device) {
            // SAFETY: the caller's promise.
            unsafe { write(bytes, c_uint::try_from(seen).unwrap_or(c_uint::MAX)) };
        }
        status
    }
}
