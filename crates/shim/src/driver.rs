//! The driver's own functions.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::abi::{Status, UNKNOWN};
use crate::loader;

/// A library of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `libcuda.so.1`
    Cuda,
    /// `libnvidia-ml.so.1`
    Nvml,
}

impl Library {
    /// A handle of the library, if the program has loaded it. It is never loaded from here.
    pub fn handle(self) -> Option<*mut c_void> {
        static HANDLES: [AtomicPtr<c_void>; 2] = [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())];
        let (known, name) = match self {
            Library::Cuda => (&HANDLES[0], c"libcuda.so.1"),
            Library::Nvml => (&HANDLES[1], c"libnvidia-ml.so.1"),
        };
        let mut handle = known.load(Relaxed);
        if handle.is_null() {
            // SAFETY: looks among loaded libraries.
            handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            // Kept open from now on, so that addresses stay.
            known.store(handle, Relaxed);
        }
        (!handle.is_null()).then_some(handle)
    }
}

/// A function of the driver, looked up once.
pub struct Function {
    library: Library,
    name: &'static CStr,
    /// Its address; 0 while it is not known, and 1 where the driver has no such function.
    address: AtomicUsize,
}

impl Function {
    pub const fn new(library: Library, name: &'static CStr) -> Function {
        Function { library, name, address: AtomicUsize::new(0) }
    }

    pub fn name(&self) -> &'static CStr {
        self.name
    }

    pub fn library(&self) -> Library {
        self.library
    }

    /// None where the driver is not loaded or has no such function.
    pub fn address(&self) -> Option<usize> {
        match self.address.load(Relaxed) {
            0 => {
                let found = loader::dlsym(self.library.handle()?, self.name) as usize;
                self.address.store(found.max(1), Relaxed);
                Some(found)
            }
            known => Some(known),
        }
        .filter(|&address| address > 1)
    }
}

/// Runs a wrapper. A panic must not reach the program. A thread that is cancelled meanwhile ends later: it has locks.
pub fn guard(wrapper: impl FnOnce() -> Status) -> Status {
    const DISABLE: c_int = 1;
    let mut before = DISABLE;
    // SAFETY: changes a number of the calling thread, and writes the one before to a local.
    let changed = unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    let status = catch_unwind(AssertUnwindSafe(wrapper)).unwrap_or(UNKNOWN);
    if changed == 0 && before != DISABLE {
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(before, null_mut()) };
    }
    status
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// A function of the driver with these arguments; none where the driver has none of that name.
macro_rules! driver {
    ($name:literal ($($ty:ty),*)) => {{
        static FUNCTION: $crate::driver::Function = $crate::driver::Function::new($crate::driver::Library::Cuda, $name);
        type Typed = unsafe extern "C" fn($($ty),*) -> $crate::abi::Status;
        #[allow(unused_unsafe, reason = "also used inside of unsafe blocks")]
        // SAFETY: the driver's function of that name has these arguments.
        FUNCTION.address().map(|address| unsafe { std::mem::transmute::<usize, Typed>(address) })
    }};
}

/// A wrapper of a function of the driver: the function of the same name that programs find. In its body the name behind the
/// arguments is the driver's function.
macro_rules! wrap {
    ($library:ident; $($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$real:ident| $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// As the driver's function: pointers are null or point to its types.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::abi::Status {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static REAL: $crate::driver::Function = $crate::driver::Function::new($crate::driver::Library::$library, NAME);
            $crate::driver::guard(|| {
                let Some(address) = REAL.address() else { return $crate::driver::missing(REAL.library()) };
                // SAFETY: the driver's function of that name has these arguments.
                let $real = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($ty),*) -> $crate::abi::Status>(address) };
                $body
            })
        }
    )*};
}

/// The answer where the driver has no such function, or is not there.
pub fn missing(library: Library) -> Status {
    match library {
        Library::Cuda => crate::abi::NOT_FOUND,
        // NVML_ERROR_FUNCTION_NOT_FOUND
        Library::Nvml => 13,
    }
}

pub(crate) use {driver, wrap};
