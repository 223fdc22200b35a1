//! The real compiler, where it is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// NVIDIA's run-time compiler.
#[derive(Debug)]
pub struct Nvrtc {
    create: CreateFn,
    compile: CompileFn,
    destroy: DestroyFn,
    log: Texts,
    ptx: Texts,
    cubin: Texts,
    version: (i32, i32),
}

type Program = *mut c_void;
type VersionFn = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type CreateFn =
    unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
type CompileFn = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type DestroyFn = unsafe extern "C" fn(*mut Program) -> c_int;
type SizeFn = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetFn = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The functions for the size of a text and for the text.
#[derive(Clone, Copy, Debug)]
struct Texts {
    size: SizeFn,
    get: GetFn,
}

impl Nvrtc {
    /// The compiler in the folder that PLIMSOLL_CUDA_LIBS names (several are separated by colons), or in the active Python
    /// environment; none where it is not installed.
    pub fn find() -> Option<Nvrtc> {
        let mut folders: Vec<PathBuf> = Vec::new();
        if let Some(named) = std::env::var_os("PLIMSOLL_CUDA_LIBS") {
            folders.extend(std::env::split_paths(&named));
        }
        for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os) {
            for entry in std::fs::read_dir(Path::new(&prefix).join("lib")).into_iter().flatten().flatten() {
                folders.push(entry.path().join("site-packages/nvidia/cu13/lib"));
            }
        }
        folders.into_iter().find_map(|folder| Nvrtc::open(&folder))
    }

    fn open(folder: &Path) -> Option<Nvrtc> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        let with = |prefix: &str| names.iter().find(|name| name.starts_with(prefix) && !name.contains("alt"));
        // The compiler finds its built-in functions by their name alone.
        let builtins = load(&folder.join(with("libnvrtc-builtins.so")?))?;
        let library = load(&folder.join(with("libnvrtc.so")?))?;
        debug_assert!(!builtins.is_null());
        // SAFETY: by NVRTC's documentation a symbol of this name is a function of the field's type, and the library stays loaded.
        unsafe {
            let mut version = (0, 0);
            let ask = std::mem::transmute::<*mut c_void, VersionFn>(symbol(library, c"nvrtcVersion")?);
            ask(&mut version.0, &mut version.1);
            let texts = |size: &CStr, get: &CStr| -> Option<Texts> {
                Some(Texts {
                    size: std::mem::transmute::<*mut c_void, SizeFn>(symbol(library, size)?),
                    get: std::mem::transmute::<*mut c_void, GetFn>(symbol(library, get)?),
                })
            };
            Some(Nvrtc {
                create: std::mem::transmute::<*mut c_void, CreateFn>(symbol(library, c"nvrtcCreateProgram")?),
                compile: std::mem::transmute::<*mut c_void, CompileFn>(symbol(library, c"nvrtcCompileProgram")?),
                destroy: std::mem::transmute::<*mut c_void, DestroyFn>(symbol(library, c"nvrtcDestroyProgram")?),
                log: texts(c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")?,
                ptx: texts(c"nvrtcGetPTXSize", c"nvrtcGetPTX")?,
                cubin: texts(c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN")?,
                version,
            })
        }
    }

    /// Its version, `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The PTX of a program for an architecture (`compute_90`).
    ///
    /// # Errors
    /// The compiler's log.
    pub fn ptx(&self, source: &str, architecture: &str, options: &[&str]) -> Result<String, String> {
        let (text, _) = self.compiled(source, architecture, options, self.ptx)?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_string())
    }

    /// The machine code of a program for an architecture (`sm_90`), and the compiler's log: with `--ptxas-options=-v` it has the
    /// registers and bytes of every kernel.
    ///
    /// # Errors
    /// The compiler's log.
    pub fn cubin(&self, source: &str, architecture: &str, options: &[&str]) -> Result<(Vec<u8>, String), String> {
        self.compiled(source, architecture, options, self.cubin)
    }

    fn compiled(&self, source: &str, architecture: &str, options: &[&str], texts: Texts) -> Result<(Vec<u8>, String), String> {
        let source = CString::new(source).map_err(|error| error.to_string())?;
        let options: Vec<String> =
            [format!("--gpu-architecture={architecture}")].into_iter().chain(options.iter().map(ToString::to_string)).collect();
        let options: Vec<CString> = options.into_iter().map(CString::new).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the texts end with a zero and live until the program is destroyed; the functions have these types.
        unsafe {
            let made = (self.create)(&mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, std::ptr::null(), std::ptr::null());
            if made != 0 {
                return Err(format!("NVRTC error {made}"));
            }
            let status = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let log = read(program, self.log).map(|log| String::from_utf8_lossy(&log).trim_end_matches('\0').to_string());
            let result = if status == 0 { read(program, texts) } else { None };
            (self.destroy)(&mut program);
            match (result, log) {
                (Some(result), log) => Ok((result, log.unwrap_or_default())),
                (None, log) => Err(format!("NVRTC error {status}: {}", log.unwrap_or_default())),
            }
        }
    }
}

/// # Safety
/// `program` is one of the library's.
unsafe fn read(program: Program, texts: Texts) -> Option<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the buffer is as long as the library says.
    unsafe {
        if (texts.size)(program, &mut size) != 0 {
            return None;
        }
        let mut bytes = vec![0u8; size];
        ((texts.get)(program, bytes.as_mut_ptr().cast()) == 0).then_some(bytes)
    }
}

fn load(path: &Path) -> Option<*mut c_void> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: the path ends with a zero. It names NVIDIA's library, whose constructors may run.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the library stays loaded, and the name ends with a zero.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
