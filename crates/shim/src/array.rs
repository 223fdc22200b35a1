//! Arrays. The driver does not say the bytes of one: [`size::array`] is not less.

use std::ffi::c_uint;

use crate::abi::{Array3dDescriptor, Array3dDescriptorV1, ArrayDescriptor, ArrayDescriptorV1, Opaque, Status, read};
use crate::driver::wrap;
use crate::plain::{Key, allocate};
use crate::process::is_leased;
use crate::size;

fn make(bytes: Option<u64>, call: impl FnOnce() -> Status, made: impl FnOnce() -> Option<Key>) -> Status {
    match bytes {
        Some(bytes) if is_leased() => allocate(bytes, false, call, made),
        // Without a description the driver refuses.
        _ => call(),
    }
}

/// The bytes of an array of that description; none where there is no description.
///
/// # Safety
/// The pointer is null or points to a description.
unsafe fn bytes_of(of: *const Array3dDescriptor) -> Option<u64> {
    // SAFETY: the caller's promise.
    (!of.is_null()).then(|| size::array(unsafe { &*of }))
}

wrap! { Cuda;
    fn cuArrayCreate_v2(array: *mut Opaque, of: *const ArrayDescriptor) |real| {
        // SAFETY: the caller's promise.
        let bytes = (!of.is_null()).then(|| unsafe { &*of }).map(|of| size::array(&Array3dDescriptor {
            width: of.width, height: of.height, depth: 0, format: of.format, channels: of.channels, flags: 0,
        }));
        // SAFETY: the caller's promise.
        make(bytes, || unsafe { real(array, of) }, || Some(Key::Array(unsafe { read(array) }? as u64)))
    }

    /// As CUDA before 3.2 has it.
    fn cuArrayCreate(array: *mut Opaque, of: *const ArrayDescriptorV1) |real| {
        // SAFETY: the caller's promise.
        let bytes = (!of.is_null()).then(|| unsafe { &*of }).map(|of| size::array(&Array3dDescriptor {
            width: of.width as usize, height: of.height as usize, depth: 0, format: of.format, channels: of.channels, flags: 0,
        }));
        // SAFETY: the caller's promise.
        make(bytes, || unsafe { real(array, of) }, || Some(Key::Array(unsafe { read(array) }? as u64)))
    }

    fn cuArray3DCreate_v2(array: *mut Opaque, of: *const Array3dDescriptor) |real| {
        // SAFETY: the caller's promise.
        make(unsafe { bytes_of(of) }, || unsafe { real(array, of) }, || Some(Key::Array(unsafe { read(array) }? as u64)))
    }

    /// As CUDA before 3.2 has it.
    fn cuArray3DCreate(array: *mut Opaque, of: *const Array3dDescriptorV1) |real| {
        // SAFETY: the caller's promise.
        let bytes = (!of.is_null()).then(|| unsafe { &*of }).map(|of| size::array(&Array3dDescriptor {
            width: of.width as usize, height: of.height as usize, depth: of.depth as usize,
            format: of.format, channels: of.channels, flags: of.flags,
        }));
        // SAFETY: the caller's promise.
        make(bytes, || unsafe { real(array, of) }, || Some(Key::Array(unsafe { read(array) }? as u64)))
    }

    fn cuMipmappedArrayCreate(array: *mut Opaque, of: *const Array3dDescriptor, levels: c_uint) |real| {
        // SAFETY: the caller's promise.
        let bytes = (!of.is_null()).then(|| size::mipmap(unsafe { &*of }, levels));
        // SAFETY: the caller's promise.
        make(bytes, || unsafe { real(array, of, levels) }, || Some(Key::Mipmap(unsafe { read(array) }? as u64)))
    }
}
