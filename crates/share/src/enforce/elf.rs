//! Whether a program loads the libraries that LD_PRELOAD names, by its file.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::getxattr;

use super::{Loads, Program};
use crate::run::find;

/// How many scripts may name each other as interpreters, as the kernel has it.
const DEPTH: usize = 4;

/// The most headers of a program that are looked at: the format allows no more.
const HEADERS: u64 = 0xffff;

/// Programs that start Python, beside those that are Python scripts.
const LAUNCHERS: [&str; 9] = ["python", "pypy", "uv", "uvx", "conda", "mamba", "micromamba", "pixi", "poetry"];

/// The kind of a program, found as a command line names it.
pub(super) fn examine(program: &Path) -> Program {
    let Some(file) = find(program) else { return Program::default() };
    let mut out = Program { is_python: starts_python(&file), loads: Loads::Yes, loader: None, file: Some(file.clone()) };
    let mut now = file;
    for _ in 0..=DEPTH {
        match read(&now) {
            Ok(Kind::Native(loads, loader)) => {
                (out.loads, out.loader) = (loads, loader);
                return out;
            }
            Ok(Kind::Script(next, argument)) => {
                // `#!/usr/bin/env python3`: the program that is meant comes behind it, and `-S` before that.
                let words = argument.split_whitespace().skip_while(|word| word.starts_with('-') || word.contains('='));
                let named = words.map(PathBuf::from).next().filter(|_| next.file_name().is_some_and(|name| name == "env"));
                out.is_python |= starts_python(&next) || named.as_deref().is_some_and(starts_python);
                now = named.and_then(|name| find(&name)).unwrap_or(next);
            }
            Err(why) => {
                out.loads = Loads::No(why);
                return out;
            }
        }
    }
    out.loads = Loads::No("is a script of too many scripts".into());
    out
}

fn starts_python(file: &Path) -> bool {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return false };
    // python3, python3.11, python3-dbg
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    name.ends_with(".py") || LAUNCHERS.contains(&bare) || name.starts_with("python3")
}

enum Kind {
    /// A program for the processor, and its loader.
    Native(Loads, Option<PathBuf>),
    /// A script: its interpreter, and the arguments behind that.
    Script(PathBuf, String),
}

/// The kind of a file; else why it cannot be told, behind "the program".
fn read(path: &Path) -> Result<Kind, String> {
    let mut file = plimsoll_base::open_file(path).map_err(|error| format!("cannot be examined: {error}"))?;
    let facts = file.metadata().map_err(|error| format!("cannot be examined: {error}"))?;
    let mut begin = [0; 256];
    let mut length = 0;
    while length < begin.len() {
        match file.read(&mut begin[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be examined: {error}")),
        }
    }
    let begin = &begin[..length];
    if let Some(line) = begin.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next().unwrap_or_default()).trim().to_string();
        let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
        return match interpreter {
            "" => Err("names no interpreter".into()),
            _ => Ok(Kind::Script(interpreter.into(), argument.to_string())),
        };
    }
    if !begin.starts_with(b"\x7fELF") {
        // A shell runs it as a script, or nothing does.
        return Ok(Kind::Script("/bin/sh".into(), String::new()));
    }
    Ok(Kind::Native(native(&file, &facts, begin, path), interpreter(&file, begin)))
}

fn native(file: &File, facts: &Metadata, begin: &[u8], path: &Path) -> Loads {
    let no = |why: &str| Loads::No(why.into());
    if facts.mode() & 0o6000 != 0 {
        return no("runs as another user (setuid), and the loader ignores LD_PRELOAD there");
    }
    if getxattr(path, "security.capability", &mut [0u8; 64]).is_ok() {
        return no("has capabilities of its own, and the loader ignores LD_PRELOAD there");
    }
    // Class and byte order, and the machine, as this program has them.
    let own = File::open("/proc/self/exe").and_then(|own| {
        let mut own_begin = [0; 20];
        own.read_exact_at(&mut own_begin, 0).map(|()| own_begin)
    });
    let is_ours = |own: &[u8; 20]| begin.len() >= 64 && begin[4..6] == own[4..6] && begin[18..20] == own[18..20];
    if !own.as_ref().is_ok_and(is_ours) {
        return no("is for another processor");
    }
    match interpreter(file, begin) {
        Some(loader) if loader.to_string_lossy().contains("musl") => no("has another C library (musl) than the shim"),
        Some(_) => Loads::Yes,
        None => no("is statically linked, and nothing loads LD_PRELOAD"),
    }
}

/// Whether a loader can load a library with all that it needs. A program with LD_PRELOAD does not start where it cannot.
///
/// # Errors
/// The loader's error.
pub(super) fn check_loads(loader: &Path, library: &Path) -> Result<(), String> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(library).stdin(Stdio::null()).stdout(Stdio::null());
    // Variables by which the user wants a loader to print or load something are not for this one.
    let is_extra = |name: &OsString| name.as_encoded_bytes().starts_with(b"LD_") && name != "LD_LIBRARY_PATH";
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_extra(name)) {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| format!("cannot be tried with the loader {}: {error}", loader.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match (said.lines().next(), output.status.success()) {
        (None, true) => Ok(()),
        (Some(line), _) => Err(format!("cannot be loaded: {line}")),
        (None, false) => Err(format!("cannot be loaded: {} ends with {}", loader.display(), output.status)),
    }
}

/// The loader that a 64-bit program names.
fn interpreter(file: &File, begin: &[u8]) -> Option<PathBuf> {
    if begin.len() < 64 {
        return None;
    }
    const PT_INTERP: u32 = 3;
    let is_little = begin[5] == 1;
    let number = |bytes: &[u8]| -> u64 {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if is_little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) }
    };
    let (at, size, count) = (number(&begin[32..40]), number(&begin[54..56]), number(&begin[56..58]).min(HEADERS));
    if begin[4] != 2 || size < 56 {
        return None;
    }
    let mut header = [0; 56];
    for index in 0..count {
        file.read_exact_at(&mut header, at.checked_add(index * size)?).ok()?;
        if number(&header[..4]) as u32 == PT_INTERP {
            let mut name = vec![0; number(&header[32..40]).min(4096) as usize];
            file.read_exact_at(&mut name, number(&header[8..16])).ok()?;
            return Some(String::from_utf8_lossy(&name).trim_end_matches('\0').into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_loader_says_whether_it_can_load_a_library() {
        let loader = examine(Path::new("/proc/self/exe")).loader.expect("this program is linked dynamically");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.lines().find_map(|line| line.split_whitespace().nth(5).filter(|path| path.contains("/libc.so")));
        let Some(library) = library else {
            eprintln!("skipped: this program has no libc.so");
            return;
        };
        assert_eq!(check_loads(&loader, Path::new(library)), Ok(()));
        let text = std::env::temp_dir().join(format!("plimsoll-elf-{}.so", std::process::id()));
        fs::write(&text, "no library").unwrap();
        assert!(check_loads(&loader, &text).unwrap_err().starts_with("cannot be loaded: "));
        fs::remove_file(&text).unwrap();
        assert!(check_loads(Path::new("/no/loader"), &text).unwrap_err().contains("/no/loader"));
    }

    #[test]
    fn programs_are_told_apart() {
        let folder = std::env::temp_dir().join(format!("plimsoll-elf-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).unwrap();
            folder.join(name)
        };
        let loads = |path: &Path| match examine(path).loads {
            Loads::No(why) => why,
            Loads::Yes => "yes".into(),
            Loads::NotAsked => "?".into(),
        };
        let own = fs::read("/proc/self/exe").unwrap();
        assert_eq!(loads(Path::new("/proc/self/exe")), "yes", "this program is linked dynamically");
        assert_eq!(loads(Path::new("sh")), "yes");
        assert_eq!((loads(Path::new("no-such-program")), examine(Path::new("no-such-program")).file), ("?".into(), None));
        let begin = own[..own.len().min(1 << 16)].to_vec();
        let setuid = write("setuid", &begin);
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(loads(&setuid).starts_with("runs as another user"), "{}", loads(&setuid));
        // No header names a loader.
        let mut bytes = begin.clone();
        bytes[56..58].fill(0);
        assert!(loads(&write("static", &bytes)).starts_with("is statically linked"));
        let mut bytes = begin.clone();
        bytes[18] ^= 1;
        assert_eq!(loads(&write("other", &bytes)), "is for another processor");
        for length in 0..200 {
            let _ = loads(&write("short", &begin[..length]));
        }
        let mut bytes = begin.clone();
        bytes[32..40].fill(0xff);
        assert!(loads(&write("far", &bytes)).starts_with("is statically linked"));
        let python = |name: &str, text: &str| {
            let examined = examine(&write(name, text.as_bytes()));
            (examined.is_python, examined.loads == Loads::Yes)
        };
        assert_eq!(python("torchrun", "#!/usr/bin/env -S FOO=1 python3 -u\n"), (true, true));
        assert_eq!(python("jupyter", "#!/opt/somewhere/bin/python3.11\nimport\n"), (true, false), "that Python is not there");
        assert_eq!(python("train", "#!/bin/sh\npython3 train.py\n"), (false, true));
        assert_eq!(python("plain", "echo\n"), (false, true));
        assert_eq!(python("train.py", "#!/bin/sh\n"), (true, true));
        let itself = folder.join("itself").display().to_string();
        assert_eq!(loads(&write("itself", format!("#!{itself}\n").as_bytes())), "is a script of too many scripts");
        assert_eq!(loads(&write("none", b"#!\n")), "names no interpreter");
        for (name, is) in [("python", true), ("/x/python3.12", true), ("uv", true), ("pythonic", false), ("conda", true), ("bash", false)] {
            assert_eq!(starts_python(Path::new(name)), is, "{name}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
