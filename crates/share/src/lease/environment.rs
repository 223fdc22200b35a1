//! The variables that tell a program its lease.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_machine::StateDir;

use super::{Lease, Part};
use crate::framework::{self, Card, Overheads, Told};

/// Where the driver shows itself.
const DRIVER: &str = "/proc/driver/nvidia";

/// Our variables that name a place.
const FOLDERS: [&str; 3] = ["PLIMSOLL_STATE_DIR", "PLIMSOLL_MACHINE_DIR", "PLIMSOLL_SHIM"];

/// The variables, beside those that a program would have.
pub(super) fn told(lease: &Lease, shows_share: bool, variable: &dyn Fn(&str) -> Option<OsString>) -> Told {
    let mut out = Told::default();
    for name in FOLDERS {
        // A program that changes its folder would look elsewhere, and with other ledgers count for itself.
        let relative = variable(name).filter(|path| !path.is_empty() && Path::new(path).is_relative());
        if let Some(path) = relative.and_then(|path| std::path::absolute(path).ok()) {
            out.set.push((name.into(), path.into()));
        }
    }
    let mut set = |name: &str, value: String| out.set.push((name.into(), value.into()));
    let cards = cards(lease, shows_share);
    set("CUDA_VISIBLE_DEVICES", cards.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(","));
    let Some(member) = &lease.member else { return out };
    if let Some(spec) = lease.cards.simulated() {
        set("PLIMSOLL_SIM_GPUS", spec.into());
    }
    let token = member.token();
    set("PLIMSOLL_LEASE", lease.cards.outer().map_or(token.clone(), |outer| format!("{outer}/{token}")));
    if !lease.tells_frameworks {
        return out;
    }
    let frameworks = framework::told(&cards, &overheads(lease), variable);
    out.set.extend(frameworks.set);
    out.removed = frameworks.removed;
    out.warnings = frameworks.warnings;
    if framework::is_share(&cards) && !framework::is_off(variable) {
        match hook(lease) {
            Ok(folder) => out.set.push(("PYTHONPATH".into(), framework::python_path(folder.as_os_str(), variable("PYTHONPATH")))),
            Err(error) => out.warnings.push(format!("Python programs have variables alone to keep to their share: {}", error.message())),
        }
    }
    out
}

/// The cards, by UUID where there are real ones: a number means another card where CUDA counts otherwise, and a simulated card's
/// UUID is none of the driver's.
fn cards(lease: &Lease, shows_share: bool) -> Vec<Card> {
    let by_uuid = lease.cards.simulated().is_none() || Path::new(DRIVER).exists();
    let card = |part: &Part| Card {
        name: if by_uuid { part.device.uuid.clone() } else { part.ordinal.to_string() },
        model: part.device.name.clone(),
        uuid: part.device.uuid.clone(),
        bytes: part.bytes,
        // A program that is shown its share as the whole card takes shares of that.
        total: if shows_share { part.bytes } else { lease.cards.total(part.card) },
    };
    lease.parts.iter().map(card).collect()
}

/// Those that were measured with this machine's driver, where a file says so; else the stated ones.
fn overheads(lease: &Lease) -> Overheads {
    let measured = || {
        let driver = lease.cards.nvml()?.look().driver.driver?;
        let file = state(lease)?.path().join(Overheads::FILE);
        Some(Overheads::measured(&String::from_utf8_lossy(&plimsoll_base::read_file(&file).ok()?), &driver))
    };
    measured().unwrap_or(Overheads::STATED)
}

/// The folder with the hook for Python programs.
fn hook(lease: &Lease) -> plimsoll_base::Result<std::path::PathBuf> {
    let state = state(lease);
    framework::hook::folder(state.as_ref().map_or(Path::new("/nonexistent"), StateDir::path))
}

/// The user's folder.
fn state(lease: &Lease) -> Option<StateDir> {
    lease.cards.state().cloned().or_else(|| StateDir::find().ok())
}
