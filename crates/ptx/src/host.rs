//! Kernels compiled for the processor by the system's C compiler.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use crate::{Job, Value};

/// A C compiler.
#[derive(Clone, Debug)]
pub struct Host {
    compiler: String,
    /// Options that it knows: sanitizers where they can be linked.
    options: Vec<&'static str>,
}

/// Kernels that were compiled. The program's file is removed in the end.
#[derive(Debug)]
pub struct HostProgram {
    folder: PathBuf,
    /// The number of each kernel.
    kernels: HashMap<String, u64>,
}

const OPTIONS: &[&str] = &["-std=gnu11", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing"];
const SANITIZERS: &[&str] =
    &["-fsanitize=address,alignment,shift,signed-integer-overflow,integer-divide-by-zero", "-fno-sanitize-recover=all"];

impl Host {
    /// The compiler that CC names, or `cc`; none where it does not work.
    pub fn find() -> Option<Host> {
        let compiler = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".to_string());
        let plain = Host { compiler, options: OPTIONS.to_vec() };
        let mut best = plain.clone();
        best.options.extend(SANITIZERS);
        [best, plain].into_iter().find(|host| host.compile("").is_ok_and(|program| program.run(&mut [], false).is_ok()))
    }

    /// Whether reads and writes outside of buffers are reported.
    pub fn checks_bounds(&self) -> bool {
        self.options.len() > OPTIONS.len()
    }

    /// Compiles kernels: functions that begin with `KERNEL BOUNDS name(` on a line.
    ///
    /// # Errors
    /// The compiler's.
    pub fn compile(&self, source: &str) -> Result<HostProgram, String> {
        let (kernels, wrappers) = wrappers(source)?;
        let program = HostProgram { folder: folder()?, kernels };
        let text = [include_str!("host.h"), source, &wrappers, include_str!("host.c")].join("\n");
        let file = program.folder.join("kernels.c");
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        let output = Command::new(&self.compiler)
            .args(&self.options)
            .args(["-D__launch_bounds__(x)=", "-D__device__=", "-o"])
            .arg(program.folder.join("kernels"))
            .arg(&file)
            .arg("-lm")
            .output()
            .map_err(|error| format!("{}: {error}", self.compiler))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
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

/// The number of each kernel, and functions that call them with arguments of eight bytes.
fn wrappers(source: &str) -> Result<(HashMap<String, u64>, String), String> {
    let (mut kernels, mut text, mut table) = (HashMap::new(), String::new(), String::new());
    for part in source.split("\nKERNEL BOUNDS ").skip(1) {
        let (name, rest) = part.split_once('(').ok_or("a kernel without parameters")?;
        let (params, rest) = rest.split_once(')').ok_or("a kernel without a body")?;
        let body = rest.split("\n}\n").next().unwrap_or(rest);
        let mut args = Vec::new();
        for (at, param) in params.split(',').map(str::trim).filter(|param| !param.is_empty()).enumerate() {
            let (ctype, _) = param.rsplit_once(' ').ok_or_else(|| format!("a parameter without a type: {param}"))?;
            let through = if ctype.ends_with('*') { "(uintptr_t)" } else { "" };
            // Floats are passed by their bits.
            args.push(if ctype == "f32" { format!("__uint_as_float((u32)a[{at}])") } else { format!("({ctype}){through}a[{at}]") });
        }
        text.push_str(&format!("static void call_{name}(unsigned long long* a) {{ {name}({}); }}\n", args.join(", ")));
        table.push_str(&format!("{{call_{name}, {}}}, ", u8::from(body.contains("__syncthreads"))));
        let number = kernels.len() as u64;
        kernels.insert(name.to_string(), number);
    }
    text.push_str(&format!(
        "static const struct {{ void (*call)(unsigned long long*); int barriers; }} kernels[] = {{{table}{{0, 0}}}};\n"
    ));
    Ok((kernels, text))
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
