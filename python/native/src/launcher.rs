//! The program `plimsoll` of the wheel. Its code is in the package's native module, once for both: this finds the module from where
//! it lies itself, opens it without an interpreter, and calls its `program::main`.
//!
//! A module refers to symbols that only an interpreter has. The wheel's has them weak (`backend/weak_symbols.py`): without an
//! interpreter they are null, and the command line uses none.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_ulong, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MODULE: &str = "plimsoll/_native.abi3.so";
const MAIN: &str = concat!("plimsoll_main_", env!("CARGO_PKG_VERSION"));

// As in <dlfcn.h> and <sys/auxv.h>.
const RTLD_NOW: c_int = 2;
const AT_EXECFN: c_ulong = 31;
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

fn main() {
    let folders = folders();
    let obstacles: Vec<String> = modules(&folders).iter().map(|module| run(module)).collect();
    let message = if obstacles.is_empty() {
        let beside = folders.first().map_or_else(|| "it".to_string(), |folder| folder.display().to_string());
        format!("this program's code is in the Python package, {MODULE}, and no site-packages that belongs to {beside} has it")
    } else {
        obstacles.join("; ")
    };
    let hint = "install the package again, by `pip install --force-reinstall --no-deps` with what it was installed from";
    // A standard error that is closed is no reason to panic.
    let _ = writeln!(std::io::stderr(), "error: {message}\n  hint: {hint}");
    std::process::exit(2)
}

/// The folders that this program lies in: that of its file, and that of the link it was started by.
fn folders() -> Vec<PathBuf> {
    // SAFETY: the kernel leaves a text with an end at this address, for the life of the process; 0 is none.
    let started_by = unsafe { (getauxval(AT_EXECFN) as *const c_char).as_ref().map(|text| CStr::from_ptr(text)) };
    let started_by = started_by.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    let mut folders: Vec<PathBuf> = Vec::new();
    for program in [std::env::current_exe().ok(), started_by].into_iter().flatten() {
        let folder = program.parent().and_then(|folder| std::path::absolute(folder).ok());
        folders.extend(folder.filter(|folder| !folders.contains(folder)));
    }
    folders
}

/// The modules of the installations that programs in these folders can belong to, the latest first: installations for several
/// versions of Python share their programs, and the last one brought them.
fn modules(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for prefix in folders.iter().filter_map(|folder| folder.parent()) {
        // pip install --target
        let mut packages = vec![prefix.to_path_buf()];
        for library in ["lib", "lib64"] {
            for python in std::fs::read_dir(prefix.join(library)).into_iter().flatten().flatten() {
                if python.file_name().as_bytes().starts_with(b"python") {
                    packages.extend(["site-packages", "dist-packages"].map(|name| python.path().join(name)));
                }
            }
        }
        for module in packages.iter().map(|packages| packages.join(MODULE)) {
            if let Some(written) = module.metadata().ok().and_then(|metadata| metadata.modified().ok()) {
                found.push((written, module));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| b.cmp(a));
    found.into_iter().map(|(_, module)| module).collect()
}

/// Runs the command line that is in a module; why that cannot be.
fn run(module: &Path) -> String {
    let (Ok(path), Ok(name)) = (CString::new(module.as_os_str().as_bytes()), CString::new(MAIN)) else {
        return format!("{} is no path", module.display());
    };
    // SAFETY: both texts end with a 0. What runs when the module is opened is its own.
    let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        // SAFETY: a call failed just now: there is a text, which stays until the next call.
        let why = unsafe { CStr::from_ptr(dlerror()) };
        return format!("{} cannot be opened: {}", module.display(), why.to_string_lossy());
    }
    // SAFETY: the library is open, the text ends with a 0.
    let main = unsafe { dlsym(library, name.as_ptr()) };
    if main.is_null() {
        return format!("{} is of another version than this program, {}", module.display(), env!("CARGO_PKG_VERSION"));
    }
    // SAFETY: `program::main` has this type wherever it has this name, and the library stays open.
    let main = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> !>(main) };
    main()
}
