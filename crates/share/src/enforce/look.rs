//! Looking at the machine.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Daemon, Found, Group, Kernel, Library, Loads, Program, Sees, elf, group, marker, mps};
use crate::lease::Cards;

/// The variable that names another shim than the one beside this program; empty, there is none.
pub const SHIM: &str = "PLIMSOLL_SHIM";

/// This very program.
pub(super) const OWN: &str = "/proc/self/exe";

/// The name of the shim's file.
const LIBRARY: &str = "libplimsoll_shim.so";

/// Where this machine keeps the files that rungs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where cgroup v2 is mounted.
    pub groups: PathBuf,
    /// The group in which those of programs are made, where another one than this process's is named (PLIMSOLL_CGROUP).
    pub group: Option<PathBuf>,
    /// The group of this process, from the root of the mount.
    pub own_group: Option<String>,
    /// Where the control daemon of MPS has its pipes.
    pub pipes: PathBuf,
    /// The shim; none where it is switched off.
    pub shim: Option<PathBuf>,
    /// Whether PLIMSOLL_SHIM names it.
    pub names_shim: bool,
    /// The user on whose behalf this process acts.
    pub user: u32,
}

impl Places {
    /// Those of this machine, by these variables.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Places {
        let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let beside = || {
            let own = std::env::current_exe().ok()?;
            Some(own.with_file_name(LIBRARY))
        };
        let shim = match variable(SHIM) {
            Some(path) if path.is_empty() => None,
            Some(path) => Some(std::path::absolute(&path).unwrap_or_else(|_| path.into())),
            None => beside().or_else(|| Some(LIBRARY.into())),
        };
        // Some systems have the first version at the usual place, and the second beside it.
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let groups = mounts.iter().find(|mount| mount.join("cgroup.controllers").exists()).unwrap_or(&mounts[0]).clone();
        Places {
            groups,
            group: named("PLIMSOLL_CGROUP"),
            own_group: group::own(),
            pipes: named("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| mps::PIPES.into()),
            names_shim: variable(SHIM).is_some_and(|path| !path.is_empty()),
            shim,
            user: std::fs::metadata("/proc/self").map_or(u32::MAX, |facts| facts.uid()),
        }
    }

    /// Those of this machine, by the variables of this process.
    pub fn here() -> Places {
        Places::of(|name| std::env::var_os(name))
    }

    /// The control daemon of MPS.
    pub fn daemon(&self) -> Daemon {
        mps::look(&self.pipes, self.user)
    }

    /// Where a control group can be made.
    pub fn group(&self) -> Group {
        group::look(&self.groups, self.group.as_deref(), self.own_group.as_deref())
    }

    /// The folder of this process's group.
    pub(super) fn home(&self) -> PathBuf {
        self.groups.join(self.own_group.as_deref().unwrap_or_default().trim_start_matches('/'))
    }

    /// The means for a program on these cards; without a program, for one like most programs.
    pub fn look(&self, cards: &Cards, program: Option<&Path>) -> Found {
        let look = cards.nvml().map(|nvml| nvml.look());
        let divided = |look: &plimsoll_device_cuda::Look| {
            let divided = look.cards.iter().filter(|card| card.mig);
            divided.map(|card| card.device.name.clone()).collect()
        };
        let sees = match (cards.nvml(), cards.simulated()) {
            (Some(_), _) => Sees::Yes,
            (None, Some(_)) => Sees::No("simulated cards are for programs of Plimsoll's, which report their use themselves".into()),
            (None, None) => Sees::No("there is no driver that would show it".into()),
        };
        let program = program.map(elf::examine).unwrap_or_default();
        let shim = if cards.nvml().is_some() { self.shim_for(&program) } else { self.library() };
        Found {
            simulated: cards.simulated().is_some(),
            kernel: Kernel {
                driver: look.as_ref().and_then(|look| look.driver.driver.clone()),
                has_limits: cards.nvml().is_some_and(|nvml| nvml.has_memory_limits()),
                divided: look.as_ref().map(divided).unwrap_or_default(),
                is_root: self.user == 0,
                group: self.group(),
                refused: None,
            },
            mps: self.daemon(),
            shim,
            names_shim: self.names_shim,
            program,
            sees,
        }
    }

    /// The shim, where the loader of a program can load it. Where no program is meant, this one's loader is like most.
    pub(super) fn shim_for(&self, program: &Program) -> Library {
        let library = self.library();
        let own = || elf::examine(Path::new(OWN)).loader;
        match (&library, &program.loads) {
            (_, Loads::No(_)) => library,
            (Library::At(path), _) => match program.loader.clone().or_else(own).map(|loader| elf::check_loads(&loader, path)) {
                Some(Err(why)) => Library::Unusable(path.clone(), why),
                _ => library,
            },
            _ => library,
        }
    }

    /// The shim, by its file alone.
    fn library(&self) -> Library {
        let Some(path) = &self.shim else { return Library::Off };
        let unusable = |why: &str| Library::Unusable(path.clone(), why.into());
        match plimsoll_base::open_file(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Library::Missing(path.clone()),
            Err(error) => unusable(&format!("cannot be read: {error}")),
            // The characters that end a name in LD_PRELOAD.
            Ok(_) if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\n' | b'\t' | b'$')) => {
                unusable("has a blank, a colon or a dollar sign in its name, which LD_PRELOAD cannot have")
            }
            Ok(mut file) => {
                let mut begin = [0; 4];
                match std::io::Read::read_exact(&mut file, &mut begin) {
                    Ok(()) if begin != *b"\x7fELF" => unusable("is no library"),
                    Ok(()) if marker::exports(&file, marker::MARKER) => Library::At(path.clone()),
                    Ok(()) => unusable("is another library than the shim of this version"),
                    Err(_) => unusable("is no library"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_say_where() {
        let places = |name: &'static str, value: &'static str| Places::of(move |asked| (asked == name).then(|| value.into()));
        let none = places("", "");
        assert!(none.shim.as_ref().unwrap().ends_with("libplimsoll_shim.so") && none.shim.unwrap().is_absolute());
        assert_eq!((none.pipes, none.group), (PathBuf::from("/tmp/nvidia-mps"), None));
        assert!(!none.names_shim);
        assert_eq!((places(SHIM, "").shim, places(SHIM, "").names_shim), (None, false));
        assert_eq!((places(SHIM, "/a/b.so").shim, places(SHIM, "/a/b.so").names_shim), (Some("/a/b.so".into()), true));
        assert!(places(SHIM, "b.so").shim.unwrap().is_absolute());
        assert_eq!(places("CUDA_MPS_PIPE_DIRECTORY", "/p").pipes, PathBuf::from("/p"));
        assert_eq!(places("CUDA_MPS_PIPE_DIRECTORY", "").pipes, PathBuf::from("/tmp/nvidia-mps"));
        assert_eq!(places("PLIMSOLL_CGROUP", "/g").group, Some("/g".into()));
    }

    #[test]
    fn a_library_is_one_that_can_be_named() {
        let folder = std::env::temp_dir().join(format!("plimsoll-shim {}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let library = |shim: Option<&Path>| Places { shim: shim.map(Path::to_path_buf), ..Places::here() }.library();
        assert_eq!(library(None), Library::Off);
        let missing = folder.join("missing.so");
        assert_eq!(library(Some(&missing)), Library::Missing(missing.clone()));
        assert!(matches!(library(Some(&folder)), Library::Unusable(..)), "a folder");
        let own = std::env::current_exe().unwrap();
        assert!(matches!(library(Some(&own)), Library::Unusable(_, why) if why == "is another library than the shim of this version"));
        let shim = own.with_file_name(LIBRARY);
        assert_eq!(library(Some(&shim)), Library::At(shim.clone()));
        std::fs::copy(&shim, folder.join("b.so")).unwrap();
        assert!(matches!(library(Some(&folder.join("b.so"))), Library::Unusable(_, why) if why.contains("blank")));
        let text = std::env::temp_dir().join(format!("plimsoll-shim-{}.so", std::process::id()));
        std::fs::write(&text, "no library").unwrap();
        assert!(matches!(library(Some(&text)), Library::Unusable(_, why) if why == "is no library"));
        std::fs::remove_file(&text).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
