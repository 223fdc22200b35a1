//! Modules: what the mock compiler has made is a library of this machine. Its kernels run in a stream's thread.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_ptx::{Entry, MOST_ARGUMENTS, TABLE};

use crate::calls::note;
use crate::conditions::{self, watched};
use crate::machine::Idle;
use crate::nvrtc::MARK;
use crate::space::ON_A_CARD;
use crate::state::{INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NO_ADDRESS, NOT_FOUND, Opaque, SUCCESS, Status, put, with};
use crate::streams::{push, spend};

/// A module.
pub struct Module {
    handle: *mut c_void,
    /// Its statics are there once: one launch at a time.
    turn: Mutex<()>,
    /// What it takes of a card.
    takes: (usize, u64),
}

// SAFETY: the handle is the loader's, which may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    entry: Entry,
}

impl Module {
    /// The library whose bytes these are.
    fn load(bytes: &[u8], takes: (usize, u64)) -> Option<Module> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The address of a static tells the copies of this library in one process apart.
        let name = format!("plimsoll-module-{}-{:x}-{number}.so", std::process::id(), &raw const NUMBER as usize);
        let path = std::env::temp_dir().join(name);
        let written = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(bytes));
        let text = CString::new(path.to_str()?).ok()?;
        let handle = match written {
            // SAFETY: a library of kernels: it has no constructors.
            Ok(()) => unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) },
            Err(_) => std::ptr::null_mut(),
        };
        let _ = std::fs::remove_file(path);
        if handle.is_null() {
            return None;
        }
        // SAFETY: the library is loaded, and has a place for a function of this type where it has one of that name.
        unsafe {
            let place = libc::dlsym(handle, c"plimsoll_condition".as_ptr()).cast::<unsafe extern "C" fn(u64, c_uint)>();
            if !place.is_null() {
                place.write(conditions::set);
            }
        }
        Some(Module { handle, turn: Mutex::new(()), takes })
    }

    fn entry(&self, name: &CStr) -> Option<Entry> {
        let table = CString::new(TABLE).ok()?;
        // SAFETY: the library is loaded, and the name ends with a zero.
        let mut at = unsafe { libc::dlsym(self.handle, table.as_ptr()) }.cast::<Entry>();
        if at.is_null() {
            return None;
        }
        loop {
            // SAFETY: the table ends with an entry without a name, and does not change.
            let entry = unsafe { *at };
            if entry.name.is_null() {
                return None;
            }
            // SAFETY: names end with zeros.
            if unsafe { CStr::from_ptr(entry.name) } == name {
                return Some(entry);
            }
            at = at.wrapping_add(1);
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`; no launch is left, each of which has the module.
        unsafe { libc::dlclose(self.handle) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(place: *mut Opaque, image: *const c_void) -> Status {
    if image.is_null() || place.is_null() {
        return INVALID_VALUE;
    }
    let head = MARK.len() + 8;
    // SAFETY: the caller's promise: an image is longer than that.
    let start = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), head) };
    let Some(count) = start.strip_prefix(MARK).and_then(|count| Some(u64::from_le_bytes(count.try_into().ok()?))) else {
        return INVALID_IMAGE;
    };
    with(|state| {
        let (_, _, card) = state.current()?;
        state.has_room(card)?;
        // SAFETY: the compiler wrote so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(image.cast::<u8>().add(head), count as usize) };
        let takes = if state.machine.takes_code(card) { head as u64 + count } else { 0 };
        let module = Module::load(bytes, (card, takes)).ok_or(INVALID_IMAGE)?;
        state.take(card, takes)?;
        let handle = state.name(1);
        state.modules.insert(handle, Arc::new(module));
        // SAFETY: the caller's promise.
        unsafe { put(place, handle as Opaque) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: Opaque) -> Status {
    with(|state| {
        let gone = state.modules.remove(&(module as u64)).ok_or(INVALID_HANDLE)?;
        state.functions.retain(|_, function| !Arc::ptr_eq(&function.module, &gone));
        let (card, bytes) = gone.takes;
        state.give_back(card, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(place: *mut Opaque, module: Opaque, name: *const c_char) -> Status {
    if name.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    with(|state| {
        let module = state.modules.get(&(module as u64)).cloned().ok_or(INVALID_HANDLE)?;
        let entry = module.entry(name).ok_or(NOT_FOUND)?;
        let handle = state.name(1);
        state.functions.insert(handle, Function { module, entry });
        // SAFETY: the caller's promise.
        unsafe { put(place, handle as Opaque) }
    })
}

/// A launch of a kernel with its arguments.
pub struct Launch {
    function: Function,
    blocks: c_uint,
    threads: c_uint,
    args: Vec<u64>,
    card: usize,
}

/// A launch of blocks in one dimension; the arguments are read now.
///
/// # Errors
/// What the driver refuses.
///
/// # Safety
/// There is a pointer for each parameter of the kernel.
pub unsafe fn prepare(
    function: Opaque,
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    params: *mut *mut c_void,
) -> Result<Launch, Status> {
    let ([blocks, 1, 1], [threads, 1, 1]) = (blocks, threads) else { return Err(INVALID_VALUE) };
    if shared != 0 || !(1..=1024).contains(&threads) || blocks == 0 || params.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut found = None;
    let status = with(|state| {
        let function = state.functions.get(&(function as u64)).cloned().ok_or(INVALID_HANDLE)?;
        found = Some((function, state.current()?.2));
        Ok(())
    });
    let (function, card) = found.ok_or(status)?;
    let mut args = vec![0u64; MOST_ARGUMENTS];
    let unpack = function.entry.unpack.ok_or(INVALID_IMAGE)?;
    // SAFETY: the caller's promise.
    unsafe { unpack(params.cast_const().cast(), args.as_mut_ptr(), ON_A_CARD) };
    Ok(Launch { function, blocks, threads, args, card })
}

impl Launch {
    /// Runs it, in this thread.
    pub fn run(&self) -> Status {
        let Some(run) = self.function.entry.run else { return INVALID_IMAGE };
        let idles = with(|state| {
            if state.machine.idles(self.card, Idle::Kernels) {
                return Err(NOT_FOUND);
            }
            spend(state.machine.kernel_time(self.card));
            Ok(())
        });
        if idles != SUCCESS {
            return SUCCESS;
        }
        let mut args = self.args.clone();
        let _turn = self.function.module.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the kernel's own arguments.
        match watched(self.card, || unsafe { run(self.blocks, self.threads, args.as_mut_ptr()) }) {
            (_, true) => NO_ADDRESS,
            (0, _) => SUCCESS,
            // A divergent barrier: a card would wait for ever.
            _ => 702,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Opaque,
    blocks: c_uint,
    blocks_y: c_uint,
    blocks_z: c_uint,
    threads: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    stream: Opaque,
    params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Status {
    note("cuLaunchKernel");
    // SAFETY: the caller's promise.
    match unsafe { prepare(function, [blocks, blocks_y, blocks_z], [threads, threads_y, threads_z], shared, params) } {
        Ok(launch) => push(stream, move || launch.run()),
        Err(status) => status,
    }
}
