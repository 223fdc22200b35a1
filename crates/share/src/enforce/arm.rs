//! Making a choice so, for a command that is about to start.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use plimsoll_base::{Bytes, Result};

use super::group::Limited;
use super::{Choice, Enforce, Found, Group, Library, Loads, Places, Rung, choose, elf, look};
use crate::lease::{Cards, Lease, Part, variable};

/// A limit of MPS: for each card by its number as the program sees it.
const MPS_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const PRELOAD: &str = "LD_PRELOAD";

/// Options of AddressSanitizer's run-time library: the last one of a name counts.
const ASAN: &str = "ASAN_OPTIONS";

/// The rung of a program under a lease, and the changes to undo when it has ended.
#[derive(Debug)]
pub struct Armed {
    choice: Choice,
    limited: Option<Limited>,
}

/// Holds a command under a lease by the best rung, or by the one that is asked for. Where the driver refuses, the next one is
/// taken. `found` is the state of the machine; others are told the rung by the lease.
///
/// # Errors
/// FAILED_PRECONDITION with the missing part, where the rung that is asked for is not possible.
pub fn arm(lease: &mut Lease, command: &mut Command, mut found: Found, enforce: Enforce, places: &Places) -> Result<Armed> {
    loop {
        let choice = choose(&found, enforce)?;
        if choice.has(Rung::Shim) {
            // It may be gone since it was looked for: the program may have waited for its lease.
            let now = places.shim_for(&found.program);
            if now != found.shim {
                found.shim = now;
                continue;
            }
        }
        let mut limited = None;
        if let (true, Group::In(folder), Some(nvml)) = (choice.has(Rung::Kernel), &found.kernel.group, lease.cards().nvml()) {
            match Limited::make(folder, places.home(), nvml, lease.parts()) {
                Ok(made) => limited = Some(made),
                Err(error) => {
                    found.kernel.refused = Some(error.message().to_string());
                    continue;
                }
            }
        }
        if choice.has(Rung::Mps) {
            command.env(MPS_LIMIT, pinned(lease.parts()));
        }
        if let (true, Library::At(shim)) = (choice.has(Rung::Shim), &found.shim) {
            load(command, shim.as_os_str());
        }
        if choice.has(Rung::Kernel) || choice.has(Rung::Shim) {
            lease.show_share();
        }
        lease.tell_frameworks(choice.tells_frameworks);
        lease.set_guarantee(choice.rung.guarantee());
        return Ok(Armed { choice, limited });
    }
}

/// Lets a worker, which is this program again, share a lease. Where the cards are real and the shim can be used, the shim holds the
/// worker as it holds a program: its functions may use any library.
///
/// # Errors
/// As [`Lease::inherit`].
pub(crate) fn arm_worker(lease: &Lease, command: &mut Command) -> Result<()> {
    let cards = lease.cards();
    let is_real = !lease.parts().is_empty() && cards.nvml().is_some() && cards.simulated().is_none();
    let program = is_real.then(|| elf::examine(Path::new(look::OWN)));
    let places = || Places::of(|name| variable(command, name));
    let shim = match program.filter(|program| program.loads == Loads::Yes).map(|program| places().shim_for(&program)) {
        Some(Library::At(shim)) => Some(shim),
        _ => None,
    };
    if let Some(shim) = &shim {
        load(command, shim.as_os_str());
    }
    lease.inherit_seeing(command, shim.is_some()).map(drop)
}

/// Has a command load a library before all others.
fn load(command: &mut Command, library: &OsStr) {
    let before = variable(command, PRELOAD).unwrap_or_default();
    command.env(PRELOAD, preload(library.to_os_string(), &before));
    // A program that is built with it refuses to start where it is not the first.
    let options = variable(command, ASAN).filter(|options| !options.is_empty());
    let rest = options.map_or(OsString::new(), |options| [OsStr::new(":"), &options].into_iter().collect());
    command.env(ASAN, [OsStr::new("verify_asan_link_order=0"), &rest].into_iter().collect::<OsString>());
}

impl Armed {
    /// The rung, and why it is not a higher one.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Starts a command that was armed.
    ///
    /// # Errors
    /// The system's error.
    pub fn spawn(&mut self, command: &mut Command) -> std::io::Result<std::process::Child> {
        if let Some(limited) = &mut self.limited {
            limited.enter().map_err(|error| std::io::Error::other(error.message().to_string()))?;
        }
        let child = command.spawn();
        if let Some(limited) = &mut self.limited {
            limited.leave();
        }
        child
    }

    /// The bytes of a card that the program's processes use together, where the kernel's driver counts them.
    pub fn used(&self, cards: &Cards, part: &Part) -> Option<Bytes> {
        self.limited.as_ref()?.used(cards.nvml()?, &part.device.uuid)
    }

    /// Undoes the changes for a program that has ended. Limits stay where processes that it left behind still are.
    pub fn disarm(self, cards: &Cards) {
        if let (Some(limited), Some(nvml)) = (self.limited, cards.nvml()) {
            limited.remove(nvml);
        }
    }
}

/// The value for MPS: whole MiB, rounded down, and never none.
fn pinned(parts: &[Part]) -> String {
    let limit = |(number, part): (usize, &Part)| format!("{number}={}M", (part.bytes.0 >> 20).max(1));
    parts.iter().enumerate().map(limit).collect::<Vec<_>>().join(",")
}

/// LD_PRELOAD with a library in front, once.
fn preload(library: OsString, before: &OsString) -> OsString {
    let mut out = library.clone();
    let parts = before.as_encoded_bytes().split(|byte| matches!(byte, b':' | b' '));
    for part in parts.filter(|part| !part.is_empty() && *part != library.as_encoded_bytes()) {
        out.push(":");
        out.push(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(part));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_before_stays() {
        let with = |before: &str| preload("/p/shim.so".into(), &before.into()).into_string().unwrap();
        for (before, after) in [
            ("", "/p/shim.so"),
            ("/a.so", "/p/shim.so:/a.so"),
            ("/a.so /b.so:/c.so", "/p/shim.so:/a.so:/b.so:/c.so"),
            ("/a.so:/p/shim.so", "/p/shim.so:/a.so"),
            ("::", "/p/shim.so"),
        ] {
            assert_eq!(with(before), after, "{before}");
        }
    }
}
