//! CUDA C to code for a card, by NVIDIA's run-time compiler. Cards are given cubins alone: PTX of a newer compiler is refused by an older
//! driver.

mod cubins;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use plimsoll_base::{Error, Result};

use crate::ComputeLibrary;
use crate::emit::OPTIONS;
use crate::library::{Library, functions};
use cubins::{Cubins, Key};

type Program = *mut c_void;

functions! {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = c"nvrtcVersion";
    create: unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int = c"nvrtcCreateProgram";
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int = c"nvrtcCompileProgram";
    destroy: unsafe extern "C" fn(*mut Program) -> c_int = c"nvrtcDestroyProgram";
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int = c"nvrtcGetCUBINSize";
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int = c"nvrtcGetCUBIN";
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int = c"nvrtcGetProgramLogSize";
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int = c"nvrtcGetProgramLog";
    error: unsafe extern "C" fn(c_int) -> *const c_char = c"nvrtcGetErrorString";
}

/// The compiler of kernels, with the cubins that it has made.
#[derive(Debug)]
pub struct Compiler {
    functions: Functions,
    version: (u32, u32),
    cubins: Cubins,
}

/// A program, ended in the end.
struct Unit<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Compiler {
    /// Loads NVRTC at `path`. With `cache` its cubins are kept in files there; a folder that cannot be used is none.
    ///
    /// # Errors
    /// NOT_FOUND with the loader's reason and the way to get it; FAILED_PRECONDITION where it lacks a function.
    pub fn load(path: &Path, cache: Option<PathBuf>) -> Result<Compiler> {
        let name = path.to_str().ok_or_else(|| Error::not_found(format!("{}: not a name in UTF-8", path.display())))?;
        // It finds its built-in functions by their name alone.
        if let Some(builtins) = path.parent().and_then(ComputeLibrary::builtins_in) {
            let _ = builtins.to_str().map(Library::load);
        }
        let library = Library::load(name).map_err(|why| {
            Error::not_found(format!("there is no compiler for kernels (NVRTC): {why}")).with_remedy(ComputeLibrary::Nvrtc.install())
        })?;
        let functions = Functions::of(&library);
        let (mut major, mut minor) = (0, 0);
        let version = functions.version.ok_or_else(|| missing("version"))?;
        // SAFETY: by NVRTC's documentation it writes two numbers.
        if unsafe { version(&mut major, &mut minor) } != 0 {
            return Err(Error::failed_precondition(format!("{name} does not say its version")));
        }
        if let Some(name) = functions.missing(&["log_size", "log", "error"]) {
            return Err(Error::failed_precondition(format!("this compiler for kernels (NVRTC) has no {name}")));
        }
        let number = |part| u32::try_from(part).unwrap_or_default();
        Ok(Compiler { functions, version: (number(major), number(minor)), cubins: Cubins::new(cache) })
    }

    /// Its version, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The code of a program for cards of that compute capability, from the cache where it is there.
    ///
    /// # Errors
    /// INTERNAL with the compiler's log.
    pub fn cubin(&self, source: &str, capability: (u32, u32)) -> Result<Vec<u8>> {
        let architecture = architecture(capability);
        let key = Key { source, version: self.version, architecture: &architecture, options: OPTIONS };
        if let Some(cubin) = self.cubins.get(&key) {
            return Ok(cubin);
        }
        let cubin = self.compile(source, &architecture)?;
        self.cubins.put(&key, &cubin);
        Ok(cubin)
    }

    fn compile(&self, source: &str, architecture: &str) -> Result<Vec<u8>> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::internal("a kernel with a zero in its text"));
        let options =
            [OPTIONS.iter().map(|option| text(option)).collect::<Result<Vec<_>>>()?, vec![text(&format!("-arch={architecture}"))?]];
        let options = options.concat();
        let places: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let unit = Unit::new(&self.functions, &text(source)?)?;
        let compile = self.functions.compile.ok_or_else(|| missing("compile"))?;
        // SAFETY: the program lives, and so do the options, each of which ends with a zero.
        let status = unsafe { compile(unit.program, places.len() as c_int, places.as_ptr()) };
        if status != 0 {
            let log = unit.log().unwrap_or_default();
            return Err(self.said("kernels for a card do not compile", status).context(log.trim()));
        }
        unit.cubin().ok_or_else(|| Error::internal(format!("the compiler gives no code for {architecture}")))
    }

    fn said(&self, what: &str, status: c_int) -> Error {
        let text = self.functions.error.map(|error| {
            // SAFETY: by NVRTC's documentation it gives a text that stays, for every number.
            let text = unsafe { error(status) };
            // SAFETY: as above, where it is not null.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        });
        Error::internal(format!("{what}: {} (NVRTC error {status})", text.unwrap_or_default()))
    }
}

/// The name of cards for the compiler: with the instructions that only they have.
fn architecture((major, minor): (u32, u32)) -> String {
    format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
}

fn missing(field: &str) -> Error {
    Error::failed_precondition(format!("this compiler for kernels (NVRTC) has no {}", Functions::symbol_of(field)))
        .with_remedy(ComputeLibrary::Nvrtc.install())
}

impl Unit<'_> {
    fn new<'a>(functions: &'a Functions, source: &CStr) -> Result<Unit<'a>> {
        let create = functions.create.ok_or_else(|| missing("create"))?;
        let (mut program, none) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: the texts end with zeros; there are no headers.
        match unsafe { create(&mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, none, none) } {
            0 => Ok(Unit { functions, program }),
            status => Err(Error::internal(format!("the compiler for kernels takes no program (NVRTC error {status})"))),
        }
    }

    fn cubin(&self) -> Option<Vec<u8>> {
        self.bytes(self.functions.cubin_size?, self.functions.cubin?).filter(|cubin| !cubin.is_empty())
    }

    fn log(&self) -> Option<String> {
        let bytes = self.bytes(self.functions.log_size?, self.functions.log?)?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(&bytes)).into_owned())
    }

    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Option<Vec<u8>> {
        let mut count = 0;
        // SAFETY: the program lives; it writes a number.
        let asked = unsafe { size(self.program, &mut count) } == 0;
        let mut bytes = vec![0u8; if asked { count } else { return None }];
        // SAFETY: it writes as many bytes as it said.
        (unsafe { get(self.program, bytes.as_mut_ptr().cast()) } == 0).then_some(bytes)
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.functions.destroy {
            // SAFETY: the program lives, and ends here.
            unsafe { destroy(&mut self.program) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_named_with_their_own_instructions() {
        assert_eq!([(8, 0), (8, 9), (9, 0), (10, 0)].map(architecture), ["sm_80", "sm_89", "sm_90a", "sm_100a"]);
    }
}
