//! NVIDIA's libraries for computing: where they are, and in which version. They are found when a program runs, and never linked.
//!
//! They are looked for in the folders of PLIMSOLL_CUDA_LIBS, beside the program, in the active Python environment (its wheels, or
//! conda's folder), by the system's loader, and in the toolkit's folder. The first that is found is taken.

mod places;

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use plimsoll_cards::Environment;

use crate::library::Library;

/// A library for computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeLibrary {
    /// The driver's own.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Convolutions, products and attention.
    Cudnn,
    /// Products.
    CublasLt,
}

impl ComputeLibrary {
    /// All of them.
    pub const ALL: [ComputeLibrary; 4] = [ComputeLibrary::Driver, ComputeLibrary::Nvrtc, ComputeLibrary::Cudnn, ComputeLibrary::CublasLt];

    /// The name that people know.
    pub fn name(self) -> &'static str {
        match self {
            ComputeLibrary::Driver => "libcuda",
            ComputeLibrary::Nvrtc => "NVRTC",
            ComputeLibrary::Cudnn => "cuDNN",
            ComputeLibrary::CublasLt => "cuBLASLt",
        }
    }

    /// The file's name.
    pub fn file(self) -> &'static str {
        match self {
            ComputeLibrary::Driver => "libcuda.so.1",
            ComputeLibrary::Nvrtc => "libnvrtc.so.13",
            ComputeLibrary::Cudnn => "libcudnn.so.9",
            ComputeLibrary::CublasLt => "libcublasLt.so.13",
        }
    }

    /// How to get it.
    pub fn install(self) -> &'static str {
        match self {
            ComputeLibrary::Driver => "it comes with NVIDIA's driver",
            ComputeLibrary::Nvrtc => "pip install nvidia-cuda-nvrtc",
            ComputeLibrary::Cudnn => "pip install nvidia-cudnn-cu13",
            ComputeLibrary::CublasLt => "pip install nvidia-cublas",
        }
    }

    /// The file that has to be loaded before it: the library finds that by its name alone.
    fn before(self) -> Option<&'static str> {
        (self == ComputeLibrary::Nvrtc).then_some("libnvrtc-builtins.so.")
    }

    /// The built-in functions of the compiler in a folder.
    pub(crate) fn builtins_in(folder: &Path) -> Option<PathBuf> {
        places::newest(folder, ComputeLibrary::Nvrtc.before()?)
    }

    /// Looks for it, loads it and asks for its version. It stays loaded.
    pub fn find(self, environment: &Environment) -> Seen {
        let program = std::env::current_exe().ok();
        let folders = places::folders(environment, program.as_deref(), self);
        let mut why = None;
        for place in folders
            .iter()
            .map(|folder| Place::In(folder))
            .chain([Place::Loader])
            .chain(places::TOOLKITS.iter().map(|at| Place::In(Path::new(at))))
        {
            match self.at(place) {
                Ok(Some(found)) => return Seen { library: self, found: Ok(found) },
                Ok(None) => {}
                // The loader's sentence is worth less than that of a file which is there.
                Err(reason) => {
                    if why.is_none() || matches!(place, Place::In(_)) {
                        why = Some(reason);
                    }
                }
            }
        }
        Seen { library: self, found: Err(why.unwrap_or_else(|| format!("{} is nowhere", self.file()))) }
    }

    /// The library there; none where there is no such file.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn at(self, place: Place<'_>) -> Result<Option<Found>, String> {
        let path = match place {
            Place::Loader => PathBuf::from(self.file()),
            Place::In(folder) => {
                let path = folder.join(self.file());
                if !path.exists() {
                    return Ok(None);
                }
                if let Some(first) = self.before().and_then(|prefix| places::newest(folder, prefix)) {
                    load(&first)?;
                }
                path
            }
        };
        let library = load(&path)?;
        let version = self.version(&library).ok_or_else(|| format!("{} does not say its version", path.display()))?;
        Ok(Some(Found { path, version }))
    }

    fn version(self, library: &Library) -> Option<(u32, u32, u32)> {
        match self {
            ComputeLibrary::Driver => {
                let mut version = 0;
                let ask = library.symbol(&[c"cuDriverGetVersion"])?;
                // SAFETY: by the driver's documentation this is a function of that type. It writes one number.
                let status = unsafe { std::mem::transmute::<*mut c_void, OneFn>(ask)(&mut version) };
                // 13020 is 13.2.
                let version = u32::try_from(version).ok().filter(|_| status == 0)?;
                Some((version / 1000, version % 1000 / 10, 0))
            }
            ComputeLibrary::Nvrtc => {
                let (mut major, mut minor) = (0, 0);
                let ask = library.symbol(&[c"nvrtcVersion"])?;
                // SAFETY: by NVRTC's documentation this is a function of that type. It writes two numbers.
                let status = unsafe { std::mem::transmute::<*mut c_void, TwoFn>(ask)(&mut major, &mut minor) };
                (status == 0).then_some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?, 0))
            }
            ComputeLibrary::Cudnn => number(library, c"cudnnGetVersion").and_then(spread),
            ComputeLibrary::CublasLt => number(library, c"cublasLtGetVersion").and_then(spread),
        }
    }
}

type OneFn = unsafe extern "C" fn(*mut c_int) -> c_int;
type TwoFn = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type NumberFn = unsafe extern "C" fn() -> usize;

/// The number that a function without arguments gives.
fn number(library: &Library, name: &CStr) -> Option<u64> {
    let ask = library.symbol(&[name])?;
    // SAFETY: by the libraries' documentation a function of this name takes nothing, gives a `size_t`, and needs no card.
    Some(unsafe { std::mem::transmute::<*mut c_void, NumberFn>(ask)() } as u64)
}

/// The version from its number: 91900 is 9.19.0, and 130100 is 13.1.0. Libraries before 10.0 of one, and 9.0 of the other, have a
/// digit less.
fn spread(version: u64) -> Option<(u32, u32, u32)> {
    if version == 0 {
        return None;
    }
    let major = if version >= 10_000 { 10_000 } else { 1000 };
    let part = |part: u64| u32::try_from(part).ok();
    Some((part(version / major)?, part(version % major / 100)?, part(version % 100)?))
}

/// A place to look at.
#[derive(Clone, Copy)]
enum Place<'a> {
    In(&'a Path),
    Loader,
}

fn load(path: &Path) -> Result<Library, String> {
    Library::load(path.to_str().ok_or_else(|| format!("{}: not a name in UTF-8", path.display()))?)
}

/// A library that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which.
    pub library: ComputeLibrary,
    /// Where it is, or why it cannot be used.
    pub found: Result<Found, String>,
}

/// A library that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path, or the name by which the loader knows it.
    pub path: PathBuf,
    /// Its version.
    pub version: (u32, u32, u32),
}

/// One line: `NVRTC 13.0.0: PATH`, or why there is none and how to get it.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.library.name();
        match &self.found {
            Ok(Found { path, version: (major, minor, patch) }) => write!(f, "{name} {major}.{minor}.{patch}: {}", path.display()),
            Err(why) => write!(f, "{name} was not found: {why}; {}", self.library.install()),
        }
    }
}
