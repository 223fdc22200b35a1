//! Libraries of kernels that NVIDIA's own libraries compile: the functions by which these look at what they have compiled. cuDNN plans with
//! engines of that kind where a driver has all of them. An image is taken as it is, and none of its kernels runs here.

use std::ffi::{c_char, c_int, c_void};

use crate::state::{Answer, INVALID_VALUE, NOT_SUPPORTED, Opaque, SUCCESS, Status, put};

/// Handles of the one library, of its kernels, and of their functions.
const LIBRARY: usize = 0x10;
const KERNEL: usize = 0x20;
const FUNCTION: usize = 0x30;

/// These calls need no context, and no driver that has begun.
fn said(answer: Answer) -> Status {
    answer.err().unwrap_or(SUCCESS)
}

/// Writes a handle; options and their values are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(
    library: *mut Opaque,
    image: *const c_void,
    _options: *const c_void,
    _values: *const c_void,
    _count: u32,
    _library_options: *const c_void,
    _library_values: *const c_void,
    _library_count: u32,
) -> Status {
    if image.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    said(unsafe { put(library, LIBRARY as Opaque) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryUnload(_library: Opaque) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(kernel: *mut Opaque, _library: Opaque, _name: *const c_char) -> Status {
    // SAFETY: the caller's promise.
    said(unsafe { put(kernel, KERNEL as Opaque) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetFunction(function: *mut Opaque, _kernel: Opaque) -> Status {
    // SAFETY: the caller's promise.
    said(unsafe { put(function, FUNCTION as Opaque) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetAttribute(value: *mut c_int, _attribute: c_int, _kernel: Opaque, _device: c_int) -> Status {
    // SAFETY: the caller's promise.
    said(unsafe { put(value, 0) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuKernelSetAttribute(_attribute: c_int, _value: c_int, _kernel: Opaque, _device: c_int) -> Status {
    SUCCESS
}

/// Functions that a driver has to have, and that planning does not call.
macro_rules! refused {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Status {
                NOT_SUPPORTED
            }
        )*
    };
}

refused! {
    cuCtxGetLimit
    cuCtxPopCurrent
    cuCtxPushCurrent
    cuLaunchCooperativeKernel
    cuLaunchKernelEx
    cuLibraryLoadFromFile
    cuLinkAddData
    cuLinkComplete
    cuLinkCreate
    cuLinkDestroy
    cuOccupancyMaxPotentialClusterSize
    cuStreamGetCtx
}
