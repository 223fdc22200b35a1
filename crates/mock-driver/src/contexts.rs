//! Contexts.

use std::ffi::{c_int, c_uint, c_void};

use crate::calls::note;
use crate::state::{CURRENT, Context, INVALID_CONTEXT, Opaque, State, Status, put, with};

impl State {
    fn context(&mut self, device: c_int) -> u64 {
        let context = self.name(1);
        self.contexts.insert(context, Context { device, retained: 1, bytes: 0 });
        context
    }

    /// Ends a context and frees its allocations.
    fn end_context(&mut self, context: u64) {
        if let Some(Context { device, bytes, .. }) = self.contexts.remove(&context)
            && let Ok(card) = self.card(device)
        {
            self.give_back(card, bytes);
        }
        let gone: Vec<u64> =
            self.allocations.iter().filter(|(_, on)| on.context == context && on.pool.is_none()).map(|(name, _)| *name).collect();
        for name in gone {
            if let Some(on) = self.allocations.remove(&name) {
                self.give_back(on.card, on.bytes);
            }
        }
    }

    fn end_primary(&mut self, device: c_int) {
        if let Some(context) = self.primaries.remove(&device) {
            self.end_context(context);
            if let Ok(card) = self.card(device) {
                self.note_context(card, false);
            }
        }
    }
}

unsafe fn create(place: *mut Opaque, device: c_int) -> Status {
    with(|state| {
        state.card(device)?;
        let context = state.context(device);
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        // SAFETY: the caller's promise.
        unsafe { put(place, context as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate(place: *mut Opaque, _flags: c_uint, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { create(place, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(place: *mut Opaque, _flags: c_uint, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { create(place, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v3(
    place: *mut Opaque,
    _affinity: *mut c_void,
    _count: c_int,
    _flags: c_uint,
    device: c_int,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { create(place, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v4(place: *mut Opaque, _parameters: *mut c_void, _flags: c_uint, device: c_int) -> Status {
    // SAFETY: the caller's promise.
    unsafe { create(place, device) }
}

fn destroy(context: Opaque) -> Status {
    with(|state| {
        let context = context as u64;
        if !state.contexts.contains_key(&context) || state.primaries.values().any(|own| *own == context) {
            return Err(INVALID_CONTEXT);
        }
        state.end_context(context);
        CURRENT.with_borrow_mut(|stack| stack.retain(|on| *on != context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy(context: Opaque) -> Status {
    destroy(context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: Opaque) -> Status {
    destroy(context)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(place: *mut Opaque, device: c_int) -> Status {
    with(|state| {
        state.card(device)?;
        let context = match state.primaries.get(&device).copied() {
            Some(context) => {
                if let Some(on) = state.contexts.get_mut(&context) {
                    on.retained += 1;
                }
                context
            }
            None => {
                let card = state.card(device)?;
                state.works(card)?;
                match state.machine.refuses_contexts(card) {
                    0 => {}
                    code => return Err(Status::try_from(code).unwrap_or(INVALID_CONTEXT)),
                }
                let bytes = state.machine.context(card);
                state.take(card, bytes)?;
                let context = state.context(device);
                state.contexts.insert(context, Context { device, retained: 1, bytes });
                state.primaries.insert(device, context);
                state.note_context(card, true);
                context
            }
        };
        // SAFETY: the caller's promise.
        unsafe { put(place, context as Opaque) }
    })
}

fn release(device: c_int) -> Status {
    with(|state| {
        let context = state.primaries.get(&device).copied().ok_or(INVALID_CONTEXT)?;
        let on = state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        on.retained -= 1;
        if on.retained == 0 {
            state.end_primary(device);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease(device: c_int) -> Status {
    release(device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    release(device)
}

fn reset(device: c_int) -> Status {
    with(|state| {
        state.card(device)?;
        state.end_primary(device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset(device: c_int) -> Status {
    reset(device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> Status {
    reset(device)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, is_active: *mut c_int) -> Status {
    with(|state| {
        state.card(device)?;
        // SAFETY: the caller's promise.
        unsafe { put(flags, 0).and_then(|()| put(is_active, c_int::from(state.primaries.contains_key(&device)))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(place: *mut Opaque) -> Status {
    let context = CURRENT.with_borrow(|stack| stack.last().copied()).unwrap_or(0);
    // SAFETY: the caller's promise.
    with(|_| unsafe { put(place, context as Opaque) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Opaque) -> Status {
    note("cuCtxSetCurrent");
    with(|_| {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(context as u64);
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(place: *mut c_int) -> Status {
    // SAFETY: the caller's promise.
    with(|state| state.current().and_then(|(_, device, _)| unsafe { put(place, device) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    with(|state| {
        state.waited();
        Ok(())
    })
}
