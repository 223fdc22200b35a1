//! The line for programs that are not ours: a ladder of means by which a program is held to its lease.
//!
//! [`Found`] is the state of this machine for a program ([`Places::look`]). [`choose`] is a pure function of it that picks the best
//! rung, with the reason why each higher one is not possible. [`arm`] makes it so for a command that is about to start. The rung
//! stands in the lease's record. Rungs add up: a program that the shim holds is also told its share by its framework's settings,
//! and is watched. The word names the strongest.

mod arm;
mod choose;
mod elf;
mod found;
mod group;
mod look;
mod marker;
mod mps;

use std::fmt;
use std::str::FromStr;

use plimsoll_base::{Error, Result};
use plimsoll_machine::Guarantee;

pub(crate) use arm::arm_worker;
pub use arm::{Armed, arm};
pub use choose::{Choice, Lack, Step, choose};
pub use found::{Daemon, Found, Group, Kernel, Library, Loads, Program, Sees};
pub use look::{Places, SHIM};

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// The kernel's driver refuses requests of all processes of the program together beyond the lease.
    Kernel,
    /// The driver's server (MPS) refuses requests of each process beyond the lease.
    Mps,
    /// A library between the program and the driver refuses requests of its processes together beyond the lease.
    Shim,
    /// PyTorch, TensorFlow and JAX are held by settings of their own.
    Framework,
    /// Use is looked at, and reported.
    Watched,
    /// Nothing holds it, and use cannot be seen.
    NotWatched,
}

impl Rung {
    /// All of them, the strongest first.
    pub const ALL: [Rung; 6] = [Rung::Kernel, Rung::Mps, Rung::Shim, Rung::Framework, Rung::Watched, Rung::NotWatched];

    /// The text for others about a lease that is held so.
    pub fn guarantee(self) -> Guarantee {
        match self {
            Rung::Kernel => Guarantee::Kernel,
            Rung::Mps => Guarantee::Mps,
            Rung::Shim => Guarantee::Shim,
            Rung::Framework => Guarantee::Framework,
            Rung::Watched => Guarantee::Watched,
            Rung::NotWatched => Guarantee::NotWatched,
        }
    }

    /// `kernel`, `mps`, `shim`, `framework`, `watched`, `not watched`.
    pub fn word(self) -> &'static str {
        self.guarantee().word()
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which rung is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforce {
    /// The best one that there is.
    #[default]
    Best,
    /// That one, and those below it; no program is started without it.
    Only(Rung),
    /// None: the program is only watched, as far as its use can be seen.
    Nothing,
}

impl FromStr for Enforce {
    type Err = Error;

    /// `kernel`, `mps`, `shim`, `framework`, `none`.
    fn from_str(text: &str) -> Result<Enforce> {
        match Rung::ALL[..4].iter().find(|rung| rung.word() == text) {
            Some(rung) => Ok(Enforce::Only(*rung)),
            None if text == "none" => Ok(Enforce::Nothing),
            None => Err(Error::invalid_argument(format!("'{text}' is no rung of the ladder"))
                .with_remedy("write kernel, mps, shim, framework or none")),
        }
    }
}
