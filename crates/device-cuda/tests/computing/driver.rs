//! The mock driver, called by hand.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use super::machine::Machine;

/// The mock driver of a machine.
pub struct Driver(*mut c_void);

/// Calls a function of the driver by its name and type: its code.
macro_rules! call {
    ($driver:expr, $name:literal($($type:ty),*), $($arg:expr),*) => {{
        let function = $driver.symbol($name);
        // SAFETY: the function has this type by `cuda.h`, and the arguments are for it.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> std::ffi::c_uint>(function)($($arg),*) }
    }};
}
pub(crate) use call;

impl Driver {
    pub fn open(machine: &Machine) -> Driver {
        Driver::at(&machine.driver())
    }

    /// The driver there.
    pub fn at(path: &Path) -> Driver {
        let path = CString::new(path.to_str().expect("a path in UTF-8")).unwrap();
        // SAFETY: a library without constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the mock driver was built");
        Driver(library)
    }

    pub fn symbol(&self, name: &str) -> *mut c_void {
        let text = CString::new(name).unwrap();
        // SAFETY: the library is loaded, and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        assert!(!address.is_null(), "the mock driver has no {name}");
        address
    }

    /// Makes a card's context the calling thread's, from here on.
    pub fn enter(&self, card: usize) -> Handle {
        let mut context: Handle = std::ptr::null_mut();
        assert_eq!(call!(self, "cuDevicePrimaryCtxRetain"(*mut Handle, c_int), &mut context, card as c_int), 0);
        assert_eq!(call!(self, "cuCtxSetCurrent"(Handle), context), 0);
        context
    }

    /// How often this process has called functions that runs use: that one, or all of them.
    pub fn calls(&self, function: Option<&str>) -> u64 {
        let text = function.map(|name| CString::new(name).unwrap());
        let name: *const c_char = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let calls = self.symbol("plimsoll_mock_calls");
        // SAFETY: the mock's function has this type.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> u64>(calls)(name) }
    }
}

/// A handle of the driver.
pub type Handle = *mut c_void;
/// What a call says of wrong arguments.
pub const INVALID_VALUE: c_uint = 1;
