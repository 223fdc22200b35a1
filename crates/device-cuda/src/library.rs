//! A shared library that is loaded while the program runs.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};

/// Where systems have their libraries.
const FOLDERS: [&str; 6] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/usr/local/nvidia/lib64"];

/// The functions of a library, by names of our own: a structure with the address of each, where the library has it. The first of its
/// symbols that is there is taken.
macro_rules! functions {
    ($($name:ident: $type:ty = $($symbol:literal)|+;)*) => {
        /// The functions that the library has.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $name: Option<$type>,)*
        }

        impl Functions {
            /// Looks for them.
            pub(super) fn of(library: &$crate::library::Library) -> Functions {
                Functions {
                    $($name: library.symbol(&[$($symbol),+]).map(|address| {
                        // SAFETY: by the library's documentation a symbol of this name is a function of this type, and the library
                        // is never unloaded.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(address) }
                    }),)*
                }
            }

            /// Of the functions of ours that are not `optional`, one that the library lacks, by its own name.
            #[allow(dead_code, reason = "some libraries are used as far as they go")]
            pub(super) fn missing(&self, optional: &[&str]) -> Option<&'static str> {
                let all = [$((stringify!($name), self.$name.is_some())),*];
                let lacks = |(name, is_there): &&(&str, bool)| !is_there && !optional.contains(name);
                all.iter().find(lacks).map(|(name, _)| Functions::symbol_of(name))
            }

            /// The library's own name for a function of ours.
            #[allow(dead_code, reason = "not every library's errors name functions")]
            pub(super) fn symbol_of(name: &str) -> &'static str {
                let symbol: &[&std::ffi::CStr] = match name {
                    $(stringify!($name) => &[$($symbol),+],)*
                    _ => &[],
                };
                symbol.first().and_then(|symbol| symbol.to_str().ok()).unwrap_or("such function")
            }
        }
    };
}
pub(crate) use functions;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const std::ffi::c_char) -> *mut c_void;

/// The loader's own `dlsym`. A shim that holds programs to their lease has one of its own, which gives out functions that count
/// bytes. This program counts its bytes itself, in the lease's ledger: they must not be counted twice.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn real_dlsym() -> Dlsym {
    // Since 2.34 in the C library itself, before in a library of its own.
    let versions = [c"GLIBC_2.34", if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" }];
    // SAFETY: names end with zeros.
    let find = |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr(), version.as_ptr()) };
    match versions.into_iter().map(find).find(|found| !found.is_null()) {
        // SAFETY: by the C library's documentation it is a function of that type.
        Some(found) => unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) },
        None => libc::dlsym,
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn real_dlsym() -> Dlsym {
    libc::dlsym
}

/// A loaded library.
///
/// It stays loaded until the process ends. A driver's library may have threads and exit handlers of its own, and unloading would
/// win a few pages of address space.
#[derive(Debug)]
pub(crate) struct Library(*mut c_void);

/// Whether a library can be loaded, by the name that the system's loader knows, or by a path. It stays loaded.
///
/// # Errors
/// The loader's error.
pub fn can_load(name: &str) -> Result<(), String> {
    Library::load(name).map(drop)
}

impl Library {
    /// Whether there is a file of that name: a path, or in a folder that the system's loader looks in on common systems.
    pub(crate) fn is_there(name: &str) -> bool {
        if name.contains('/') {
            return Path::new(name).exists();
        }
        let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        std::env::split_paths(&named).chain(FOLDERS.map(PathBuf::from)).any(|folder| folder.join(name).exists())
    }

    /// Loads a library by the name that the system's loader knows, or by a path.
    ///
    /// # Errors
    /// The loader's error.
    pub(crate) fn load(name: &str) -> Result<Library, String> {
        let name = CString::new(name).map_err(|_| "its name has a zero in it".to_string())?;
        // SAFETY: the name ends with a zero. Constructors of the library run: its user asks for that by naming it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: dlerror gives null or a text that lives until this thread's next call of the loader.
        let why = unsafe { libc::dlerror() };
        if why.is_null() {
            return Err("it cannot be loaded".into());
        }
        // SAFETY: not null, ends with a zero, and copied before the next call.
        Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
    }

    /// The address of the first of these that it has.
    pub(crate) fn symbol(&self, names: &[&CStr]) -> Option<*mut c_void> {
        names.iter().find_map(|name| {
            // SAFETY: the handle is that of a library which is never unloaded, and the name ends with a zero.
            let address = unsafe { real_dlsym()(self.0, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Library;

    functions! {
        there: unsafe extern "C" fn(f64) -> f64 = c"cos";
        newer: unsafe extern "C" fn(f64) -> f64 = c"no_such_function_v2" | c"no_such_function";
    }

    #[test]
    fn a_function_that_is_missing_has_its_name() {
        let Some(library) = ["libm.so.6", "libSystem.dylib"].into_iter().find_map(|name| Library::load(name).ok()) else { return };
        let functions = Functions::of(&library);
        assert!(functions.there.is_some() && functions.newer.is_none());
        assert_eq!((functions.missing(&[]), functions.missing(&["newer"])), (Some("no_such_function_v2"), None));
    }
}
