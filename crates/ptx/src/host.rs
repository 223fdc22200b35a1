//! Kernels compiled for the processor by the system's C compiler.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::process::Command;

use crate::{Job, Value};

/// A C compiler.
#[derive(Clone, Debug)]
pub struct Host {
    compiler: String,
    /// Options that it knows: sanitizers where they can be linked.
    options: Vec<&'static str>,
    checks_bounds: bool,
}

/// Kernels that were compiled. The program's file is removed in the end.
#[derive(Debug)]
pub struct HostProgram {
    folder: PathBuf,
    /// The number of each kernel.
    kernels: HashMap<String, u64>,
}

const OPTIONS: &[&str] = &["-std=gnu11", "-w", "-ffp-contract=off", "-fno-strict-aliasing"];
const SANITIZERS: &[&str] =
    &["-fsanitize=address,alignment,shift,signed-integer-overflow,integer-divide-by-zero", "-fno-sanitize-recover=all"];

impl Host {
    /// The compiler that CC names, or `cc`; none where it does not work.
    pub fn find() -> Option<Host> {
        let plain = Host::with("-O1");
        let mut best = plain.clone();
        best.options.extend(SANITIZERS);
        best.checks_bounds = true;
        [best, plain].into_iter().find(|host| host.compile("").is_ok_and(|program| program.run(&mut [], false).is_ok()))
    }

    /// The compiler that CC names, or `cc`, without sanitizers. Whether it works is not tried. It does not optimise: tests with a driver
    /// compile many kernels, and run each a few times.
    pub fn plain() -> Host {
        Host::with("-O0")
    }

    fn with(level: &'static str) -> Host {
        let compiler = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".to_string());
        Host { compiler, options: [OPTIONS, &[level]].concat(), checks_bounds: false }
    }

    /// Compiles kernels to a library of this machine, whose bytes these are: its table [`TABLE`] has an [`Entry`] for each, and one
    /// without a name at the end.
    ///
    /// # Errors
    /// The compiler's.
    pub fn library(&self, source: &str) -> Result<Vec<u8>, String> {
        let text = [include_str!("host.h"), source, &exports(&kernels(source)?)].join("\n");
        let program = HostProgram { folder: folder()?, kernels: HashMap::new() };
        let (file, library) = (program.folder.join("kernels.c"), program.folder.join("kernels.so"));
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        self.compiled(Command::new(&self.compiler).args(&self.options).args(["-shared", "-fPIC"]).arg("-o").arg(&library).arg(&file))?;
        std::fs::read(&library).map_err(|error| error.to_string())
    }

    fn compiled(&self, command: &mut Command) -> Result<(), String> {
        let output = command.args(["-D__launch_bounds__(...)=", "-D__device__=", "-lm"]).output();
        let output = output.map_err(|error| format!("{}: {error}", self.compiler))?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// Whether reads and writes outside of buffers are reported.
    pub fn checks_bounds(&self) -> bool {
        self.checks_bounds
    }

    /// Compiles kernels: functions that begin with `KERNEL BOUNDS name(` on a line.
    ///
    /// # Errors
    /// The compiler's.
    pub fn compile(&self, source: &str) -> Result<HostProgram, String> {
        let found = kernels(source)?;
        let wrappers = wrappers(&found);
        let kernels = (0..).zip(&found).map(|(number, kernel)| (kernel.name.to_string(), number)).collect();
        let program = HostProgram { folder: folder()?, kernels };
        let text = [include_str!("host.h"), source, &wrappers, include_str!("host.c")].join("\n");
        let file = program.folder.join("kernels.c");
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        self.compiled(Command::new(&self.compiler).args(&self.options).arg("-o").arg(program.folder.join("kernels")).arg(&file))?;
        Ok(program)
    }
}

/// A folder of its own.
fn folder() -> Result<PathBuf, String> {
    for number in 0..10_000 {
        let folder = std::env::temp_dir().join(format!("plimsoll-kernels-{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        }
    }
    Err("there are too many folders of this process".to_string())
}

/// A kernel of a text.
struct Declared<'a> {
    name: &'a str,
    /// The types of its parameters.
    params: Vec<&'a str>,
    has_barriers: bool,
}

fn kernels(source: &str) -> Result<Vec<Declared<'_>>, String> {
    let mut found = Vec::new();
    for part in source.split("\nKERNEL BOUNDS ").skip(1) {
        let (name, rest) = part.split_once('(').ok_or("a kernel without parameters")?;
        let (params, rest) = rest.split_once(')').ok_or("a kernel without a body")?;
        let body = rest.split("\n}\n").next().unwrap_or(rest);
        let params = params.split(',').map(str::trim).filter(|param| !param.is_empty()).map(|param| {
            let (ctype, _) = param.rsplit_once(' ').ok_or_else(|| format!("a parameter without a type: {param}"))?;
            Ok(ctype)
        });
        found.push(Declared { name, params: params.collect::<Result<_, String>>()?, has_barriers: body.contains("__syncthreads") });
    }
    Ok(found)
}

/// A function that calls a kernel with arguments of eight bytes.
fn call(kernel: &Declared<'_>) -> String {
    let argument = |(at, ctype): (usize, &&str)| {
        let through = if ctype.ends_with('*') { "(uintptr_t)" } else { "" };
        // Floats are passed by their bits.
        if *ctype == "f32" { format!("__uint_as_float((u32)a[{at}])") } else { format!("({ctype}){through}a[{at}]") }
    };
    let arguments: Vec<String> = kernel.params.iter().enumerate().map(argument).collect();
    format!("static void call_{0}(unsigned long long* a) {{ {0}({1}); }}\n", kernel.name, arguments.join(", "))
}

/// The table for the program.
fn wrappers(kernels: &[Declared<'_>]) -> String {
    let calls: String = kernels.iter().map(call).collect();
    let rows: String = kernels.iter().map(|kernel| format!("{{call_{}, {}}}, ", kernel.name, u8::from(kernel.has_barriers))).collect();
    format!("{calls}static const struct {{ void (*call)(unsigned long long*); int barriers; }} kernels[] = {{{rows}{{0, 0}}}};\n")
}

/// The name of a library's table.
pub const TABLE: &str = "plimsoll_kernels";

/// The most arguments that a kernel of a library has.
pub const MOST_ARGUMENTS: usize = 512;

/// A kernel of a library.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry {
    /// Its name, which ends with a zero; null in the last entry.
    pub name: *const c_char,
    /// Takes the arguments from where a launch's pointers point, eight bytes each. Bits of the number are cleared in addresses.
    pub unpack: Option<unsafe extern "C" fn(*const *const c_void, *mut u64, u64)>,
    /// Runs so many blocks of so many threads; not 0 where a barrier is not reached by all. One thread at a time.
    pub run: Option<unsafe extern "C" fn(c_uint, c_uint, *mut u64) -> c_int>,
}

// SAFETY: pointers to constants and functions of a library.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

/// The table for a library.
fn exports(kernels: &[Declared<'_>]) -> String {
    let mut text = String::from("typedef unsigned long long word_;\n");
    for kernel in kernels {
        text.push_str(&call(kernel));
        let Declared { name, params, has_barriers } = kernel;
        let unpacked = params.iter().enumerate().map(|(at, ctype)| match *ctype {
            pointer if pointer.ends_with('*') => format!("a[{at}] = *(const word_*)p[{at}] & ~bits;"),
            "u64" | "i64" | "f64" => format!("a[{at}] = *(const word_*)p[{at}];"),
            _ => format!("a[{at}] = *(const unsigned*)p[{at}];"),
        });
        let unpacked: String = unpacked.collect();
        text.push_str(&format!("static void unpack_{name}(void** p, word_* a, word_ bits) {{ (void)bits; {unpacked} }}\n"));
        text.push_str(&format!(
            "static int run_{name}(unsigned b, unsigned t, word_* a) {{ return launch(call_{name}, {}, b, t, a, 0); }}\n",
            u8::from(*has_barriers)
        ));
    }
    let row = |kernel: &Declared<'_>| format!("{{\"{0}\", unpack_{0}, run_{0}}}, ", kernel.name);
    let rows: String = kernels.iter().map(row).collect();
    text + &format!(
        "const struct {{ const char* name; void (*unpack)(void**, word_*, word_); int (*run)(unsigned, unsigned, word_*); }} {TABLE}[] = {{{rows}{{0, 0, 0}}}};\n"
    )
}

impl HostProgram {
    /// Runs jobs. With `descending` the threads of a block, and the blocks, run in the opposite order.
    ///
    /// # Errors
    /// What the sanitizers report, or a divergent barrier.
    pub fn run(&self, jobs: &mut [Job], descending: bool) -> Result<(), String> {
        let mut bytes = Vec::new();
        let mut push = |value: u64, more: &[u8]| {
            bytes.extend_from_slice(&value.to_le_bytes());
            bytes.extend_from_slice(more);
        };
        push(jobs.len() as u64, &[]);
        for job in jobs.iter() {
            push(job.buffers.len() as u64, &[]);
            job.buffers.iter().for_each(|buffer| push(buffer.len() as u64, buffer));
            push(job.launches.len() as u64, &[]);
            for launch in &job.launches {
                let kernel = self.kernels.get(&launch.entry).ok_or_else(|| format!("no kernel is called {}", launch.entry))?;
                for word in [*kernel, u64::from(launch.blocks), u64::from(launch.threads), launch.args.len() as u64] {
                    push(word, &[]);
                }
                for arg in &launch.args {
                    let (kind, value) = match *arg {
                        Value::Buffer(buffer) => (0, buffer as u64),
                        Value::Number(number) => (1, number),
                    };
                    push(kind, &value.to_le_bytes());
                }
            }
        }
        let [input, output] = ["jobs", "results"].map(|name| self.folder.join(format!("{name}{}", u8::from(descending))));
        std::fs::write(&input, bytes).map_err(|error| error.to_string())?;
        let ran = Command::new(self.folder.join("kernels"))
            .args([&input, &output])
            .arg(if descending { "1" } else { "0" })
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
            .output()
            .map_err(|error| error.to_string())?;
        if !ran.status.success() {
            return Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr)));
        }
        let results = std::fs::read(&output).map_err(|error| error.to_string())?;
        let mut rest = &results[..];
        for buffer in jobs.iter_mut().flat_map(|job| &mut job.buffers) {
            let (mine, others) = rest.split_at_checked(buffer.len()).ok_or("results are missing")?;
            buffer.copy_from_slice(mine);
            rest = others;
        }
        Ok(())
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
