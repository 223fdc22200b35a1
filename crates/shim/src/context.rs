//! Contexts: their allocations end with them. The bytes of a context itself cannot be seen from here. PLIMSOLL_SHIM_CONTEXT is the
//! bytes to count for the first one of a process on each card.

use std::collections::HashSet;
use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{Device, OUT_OF_MEMORY, Opaque, SUCCESS, Status, read};
use crate::driver::{driver, wrap};
use crate::process::{Process, is_leased, with};

#[derive(Default)]
pub struct Records {
    /// Those that the program made; the others are devices' own.
    made: HashSet<usize>,
    /// The cards on which a context is counted.
    counted: HashSet<usize>,
}

/// The bytes that a context counts for.
fn bytes() -> u64 {
    std::env::var("PLIMSOLL_SHIM_CONTEXT").ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

impl Process {
    /// Holds bytes for a context on a device: whether there was room, and the card where they were not held before.
    fn hold_context(&mut self, device: Device) -> (bool, Option<usize>) {
        // On a card of which the lease has nothing, a context alone is let through: programs look at cards that way.
        let Some(card) = self.card(device) else { return (true, None) };
        if bytes() == 0 || self.contexts.counted.contains(&card) {
            return (true, None);
        }
        let fits = self.reserve_or_refuse(card, bytes());
        if fits {
            self.contexts.counted.insert(card);
        }
        (fits, Some(card))
    }
}

fn make(device: Device, call: impl FnOnce() -> Status, made: impl FnOnce() -> Option<usize>) -> Status {
    if !is_leased() {
        return call();
    }
    let (fits, new) = with(|process| process.hold_context(device));
    if !fits {
        return OUT_OF_MEMORY;
    }
    let status = call();
    with(|process| match (status, new) {
        (SUCCESS, _) => process.contexts.made.extend(made()),
        (_, Some(card)) => {
            process.contexts.counted.remove(&card);
            process.give_back(card, bytes());
        }
        _ => {}
    });
    status
}

/// After a device's own context may have ended: lets go of its allocations, if it has.
fn ended(status: Status, device: Device) -> Status {
    if status != SUCCESS || !is_leased() {
        return status;
    }
    let (mut flags, mut is_active): (c_uint, c_int) = (0, 1);
    if let Some(get) = driver!(c"cuDevicePrimaryCtxGetState"(Device, *mut c_uint, *mut c_int)) {
        // SAFETY: the driver writes to locals.
        unsafe { get(device, &mut flags, &mut is_active) };
    }
    if is_active == 0 {
        all_gone(device);
    }
    status
}

/// Lets go of the allocations in a device's own context.
fn all_gone(device: Device) {
    with(|process| {
        let Some(card) = process.card(device) else { return };
        let made = std::mem::take(&mut process.contexts.made);
        process.let_go_of_contexts(|on, context| on == card && !made.contains(&context));
        process.contexts.made = made;
    });
}

fn destroyed(status: Status, context: Opaque) -> Status {
    if status == SUCCESS && is_leased() {
        with(|process| {
            process.contexts.made.remove(&(context as usize));
            process.let_go_of_contexts(|_, of| of == context as usize);
        });
    }
    status
}

wrap! { Cuda;
    /// As CUDA before 3.2 has it.
    fn cuCtxCreate(context: *mut Opaque, flags: c_uint, device: Device) |real| {
        // SAFETY: the caller's promise.
        make(device, || unsafe { real(context, flags, device) }, || unsafe { read(context) }.map(|made| made as usize))
    }

    fn cuCtxCreate_v2(context: *mut Opaque, flags: c_uint, device: Device) |real| {
        // SAFETY: the caller's promise.
        make(device, || unsafe { real(context, flags, device) }, || unsafe { read(context) }.map(|made| made as usize))
    }

    fn cuCtxCreate_v3(context: *mut Opaque, affinity: *mut c_void, count: c_int, flags: c_uint, device: Device) |real| {
        // SAFETY: the caller's promise.
        make(device, || unsafe { real(context, affinity, count, flags, device) }, || unsafe { read(context) }.map(|made| made as usize))
    }

    fn cuCtxCreate_v4(context: *mut Opaque, parameters: *mut c_void, flags: c_uint, device: Device) |real| {
        // SAFETY: the caller's promise.
        make(device, || unsafe { real(context, parameters, flags, device) }, || unsafe { read(context) }.map(|made| made as usize))
    }

    fn cuDevicePrimaryCtxRetain(context: *mut Opaque, device: Device) |real| {
        // SAFETY: the caller's promise.
        make(device, || unsafe { real(context, device) }, || None)
    }

    fn cuCtxDestroy_v2(context: Opaque) |real| {
        // SAFETY: the caller's promise.
        destroyed(unsafe { real(context) }, context)
    }

    /// As CUDA before 4.0 has it.
    fn cuCtxDestroy(context: Opaque) |real| {
        // SAFETY: the caller's promise.
        destroyed(unsafe { real(context) }, context)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: Device) |real| {
        // SAFETY: the caller's promise.
        ended(unsafe { real(device) }, device)
    }

    /// As CUDA before 11.0 has it.
    fn cuDevicePrimaryCtxRelease(device: Device) |real| {
        // SAFETY: the caller's promise.
        ended(unsafe { real(device) }, device)
    }

    /// With it the device's own context is released once.
    fn cuGreenCtxDestroy(context: Opaque) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(context) };
        if is_leased() {
            with(|process| process.devices()).into_iter().for_each(|device| {
                ended(status, device);
            });
        }
        status
    }

    fn cuDevicePrimaryCtxReset_v2(device: Device) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(device) };
        if status == SUCCESS && is_leased() {
            all_gone(device);
        }
        status
    }

    /// As CUDA before 11.0 has it.
    fn cuDevicePrimaryCtxReset(device: Device) |real| {
        // SAFETY: the caller's promise.
        let status = unsafe { real(device) };
        if status == SUCCESS && is_leased() {
            all_gone(device);
        }
        status
    }
}
