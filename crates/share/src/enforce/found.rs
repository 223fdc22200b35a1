//! The means on a machine to hold a program to its lease.

use std::path::PathBuf;

/// Facts about a machine, and a program that is to be started on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether cards are simulated: no driver stands between them and a program.
    pub simulated: bool,
    /// The needs of the kernel's driver.
    pub kernel: Kernel,
    /// The server of the driver that processes share cards through.
    pub mps: Daemon,
    /// The library that stands between a program and the driver.
    pub shim: Library,
    /// Whether PLIMSOLL_SHIM names that library.
    pub names_shim: bool,
    /// The program.
    pub program: Program,
    /// Whether use of cards is seen.
    pub sees: Sees,
}

/// The needs of limits by the kernel's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The driver's version, where it says so.
    pub driver: Option<String>,
    /// Whether its library has the calls.
    pub has_limits: bool,
    /// Cards that are divided into instances (MIG), by name.
    pub divided: Vec<String>,
    /// Whether this process acts for root.
    pub is_root: bool,
    /// Where a control group for the program can be made.
    pub group: Group,
    /// The driver's answer when it was asked, where it refused.
    pub refused: Option<String>,
}

/// Where a control group can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// In that folder.
    In(PathBuf),
    /// Nowhere: cgroup v2 is not mounted.
    NotMounted,
    /// Not in that folder, and why.
    Not(PathBuf, String),
}

/// MPS's control daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// There is none: the folder where it would have its pipes.
    None(PathBuf),
    /// The file that an ended program left in that folder.
    Ended(PathBuf),
    /// That of another user, by number.
    OfAnother(PathBuf, u32),
    /// One that runs for this user, or for all.
    Runs(PathBuf),
}

/// The shim, as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// Switched off: PLIMSOLL_SHIM is empty.
    Off,
    /// Not at that place.
    Missing(PathBuf),
    /// At a place that LD_PRELOAD cannot name, or no library, or another one; why.
    Unusable(PathBuf, String),
    /// There.
    At(PathBuf),
}

/// A program that is to be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its file; none where there is none, or where no program is meant.
    pub file: Option<PathBuf>,
    /// Whether it loads the libraries that LD_PRELOAD names.
    pub loads: Loads,
    /// The loader that its file names; none where it names none, or where no program is meant.
    pub loader: Option<PathBuf>,
    /// Whether it is Python, or starts Python: then frameworks have settings.
    pub is_python: bool,
}

/// Whether a program loads the libraries that LD_PRELOAD names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loads {
    /// It does.
    Yes,
    /// It does not, or that cannot be told; why, as half a sentence behind "the program".
    No(String),
    /// No program is meant.
    #[default]
    NotAsked,
}

/// Whether use of cards is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sees {
    /// The driver lists processes with their bytes.
    Yes,
    /// It is not, and why.
    No(String),
}
