//! Allocations that belong to a context: linear, pitched, managed; and the records of arrays.

use std::collections::HashMap;
use std::ffi::c_uint;

use crate::abi::{DevicePtr, DevicePtrV1, OUT_OF_MEMORY, Opaque, SUCCESS, Status, read};
use crate::driver::wrap;
use crate::process::{Place, Process, is_leased, leased, place, with};
use crate::size;

/// The key of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    Pointer(u64),
    Array(u64),
    Mipmap(u64),
}

/// The record of an allocation.
pub struct Owned {
    card: usize,
    context: usize,
    bytes: u64,
    /// Whether it is a part of the blocks that the small ones of a context share.
    shares: bool,
}

/// The blocks that small allocations share.
#[derive(Default)]
struct Shared {
    /// Parts of blocks ([`size::WHOLE`]).
    live: u64,
    /// Bytes.
    held: u64,
}

/// The allocations of this process.
#[derive(Default)]
pub struct Records {
    owned: HashMap<Key, Owned>,
    shared: HashMap<(usize, usize), Shared>,
}

impl Process {
    /// Holds bytes for an allocation that is about to be made.
    fn hold(&mut self, at: Place, bytes: u64, shares: bool) -> Option<Owned> {
        let card = self.card(at.device)?;
        let owned = Owned { card, context: at.context, bytes, shares };
        if !shares {
            return self.reserve_or_refuse(card, bytes).then_some(owned);
        }
        let shared = self.plain.shared.entry((card, at.context)).or_default();
        let part = size::part(bytes);
        let more = ((shared.live + part).div_ceil(size::WHOLE) * size::BLOCK).saturating_sub(shared.held);
        if !self.reserve_or_refuse(card, more) {
            return None;
        }
        let shared = self.plain.shared.entry((card, at.context)).or_default();
        (shared.live, shared.held) = (shared.live + part, shared.held + more);
        Some(owned)
    }

    /// Gives back the bytes of an allocation that is no more.
    fn let_go(&mut self, owned: &Owned) {
        let key = (owned.card, owned.context);
        if !owned.shares {
            return self.give_back(owned.card, owned.bytes);
        }
        let Some(shared) = self.plain.shared.get_mut(&key) else { return };
        shared.live = shared.live.saturating_sub(size::part(owned.bytes));
        // Which blocks are empty is not known before all are.
        if shared.live == 0 {
            let held = shared.held;
            self.plain.shared.remove(&key);
            self.give_back(owned.card, held);
        }
    }

    fn keep(&mut self, key: Key, owned: Owned) {
        // One of the same name was freed on a way that is not seen here.
        if let Some(before) = self.plain.owned.insert(key, owned) {
            self.let_go(&before);
        }
    }

    /// The allocations of contexts that are no more.
    pub fn let_go_of_contexts(&mut self, is_gone: impl Fn(usize, usize) -> bool) {
        let gone: Vec<Key> = self.plain.owned.iter().filter(|(_, owned)| is_gone(owned.card, owned.context)).map(|(key, _)| *key).collect();
        for key in gone {
            if let Some(owned) = self.plain.owned.remove(&key) {
                self.let_go(&owned);
            }
        }
    }
}

/// An allocation of so many bytes: held, made, and recorded under the key that `made` reads.
pub fn allocate(bytes: u64, shares: bool, call: impl FnOnce() -> Status, made: impl FnOnce() -> Option<Key>) -> Status {
    let Some(at) = place() else { return call() };
    let Some(owned) = with(|process| process.hold(at, bytes, shares)) else { return OUT_OF_MEMORY };
    let status = call();
    let key = if status == SUCCESS { made() } else { None };
    with(|process| match key {
        Some(key) => process.keep(key, owned),
        None => process.let_go(&owned),
    });
    status
}

/// Frees the allocation with that key. Allocations that are not known here are the driver's business alone.
pub fn free(key: Key, call: impl FnOnce() -> Status) -> Status {
    // Before the driver frees it: another thread may be given the same address right afterwards.
    let Some(owned) = leased(|process| process.plain.owned.remove(&key)) else { return call() };
    let status = call();
    with(|process| match status {
        SUCCESS => process.let_go(&owned),
        _ => process.keep(key, owned),
    });
    status
}

fn linear(bytes: u64, call: impl FnOnce() -> Status, made: impl FnOnce() -> Option<u64>) -> Status {
    if !is_leased() {
        return call();
    }
    allocate(size::plain(bytes), bytes < size::SMALL, call, || made().map(Key::Pointer))
}

/// A pitched allocation: `made` reads its address and its pitch.
fn pitched(
    width: u64,
    rows: u64,
    call: impl FnOnce() -> Status,
    made: impl FnOnce() -> Option<(u64, u64)>,
    undo: impl FnOnce(u64),
) -> Status {
    if !is_leased() {
        return call();
    }
    let guess = size::pitched(width, rows);
    let mut wider = None;
    let status = allocate(size::plain(guess), guess < size::SMALL, call, || {
        let (pointer, pitch) = made()?;
        wider = pitch.checked_mul(rows).filter(|&bytes| bytes > guess).map(|bytes| (pointer, bytes));
        Some(Key::Pointer(pointer))
    });
    // The driver's rows are longer than those of any card that was known.
    let Some((pointer, bytes)) = wider else { return status };
    let fits = with(|process| {
        let Some(owned) = process.plain.owned.remove(&Key::Pointer(pointer)) else { return true };
        let whole = Owned { bytes: size::plain(bytes), shares: false, ..owned };
        let fits = process.reserve_or_refuse(whole.card, whole.bytes);
        if fits {
            process.let_go(&owned);
        }
        process.keep(Key::Pointer(pointer), if fits { whole } else { owned });
        fits
    });
    if fits {
        return status;
    }
    undo(pointer);
    OUT_OF_MEMORY
}

wrap! { Cuda;
    fn cuMemAlloc_v2(pointer: *mut DevicePtr, bytes: usize) |real| {
        // SAFETY: the caller's promise.
        linear(bytes as u64, || unsafe { real(pointer, bytes) }, || unsafe { read(pointer) })
    }

    /// As CUDA before 3.2 has it.
    fn cuMemAlloc(pointer: *mut DevicePtrV1, bytes: c_uint) |real| {
        // SAFETY: the caller's promise.
        linear(bytes.into(), || unsafe { real(pointer, bytes) }, || unsafe { read(pointer) }.map(u64::from))
    }

    /// Managed memory counts as a whole for the card that it is made on, wherever its pages are.
    fn cuMemAllocManaged(pointer: *mut DevicePtr, bytes: usize, flags: c_uint) |real| {
        // SAFETY: the caller's promise.
        linear(bytes as u64, || unsafe { real(pointer, bytes, flags) }, || unsafe { read(pointer) })
    }

    fn cuMemAllocPitch_v2(pointer: *mut DevicePtr, pitch: *mut usize, width: usize, rows: usize, element: c_uint) |real| {
        // SAFETY: the caller's promise.
        pitched(width as u64, rows as u64, || unsafe { real(pointer, pitch, width, rows, element) },
            || unsafe { Some((read(pointer)?, read(pitch)? as u64)) },
            |made| unsafe { cuMemFree_v2(made); })
    }

    /// As CUDA before 3.2 has it.
    fn cuMemAllocPitch(pointer: *mut DevicePtrV1, pitch: *mut c_uint, width: c_uint, rows: c_uint, element: c_uint) |real| {
        // SAFETY: the caller's promise.
        pitched(width.into(), rows.into(), || unsafe { real(pointer, pitch, width, rows, element) },
            || unsafe { Some((read(pointer)?.into(), read(pitch)?.into())) },
            |made| unsafe { cuMemFree(made as DevicePtrV1); })
    }

    fn cuMemFree_v2(pointer: DevicePtr) |real| {
        // SAFETY: the caller's promise.
        crate::pool::free(pointer, || free(Key::Pointer(pointer), || unsafe { real(pointer) }))
    }

    /// As CUDA before 3.2 has it.
    fn cuMemFree(pointer: DevicePtrV1) |real| {
        // SAFETY: the caller's promise.
        free(Key::Pointer(pointer.into()), || unsafe { real(pointer) })
    }

    fn cuArrayDestroy(array: Opaque) |real| {
        // SAFETY: the caller's promise.
        free(Key::Array(array as u64), || unsafe { real(array) })
    }

    fn cuMipmappedArrayDestroy(array: Opaque) |real| {
        // SAFETY: the caller's promise.
        free(Key::Mipmap(array as u64), || unsafe { real(array) })
    }
}
