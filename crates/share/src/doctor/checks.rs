//! The checks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plimsoll_base::{Code, Error};
use plimsoll_cards::{Environment, Options};
use plimsoll_device_cuda::{Look, Nvml, can_load};
use plimsoll_machine::{Scope, StateDir};
use rustix::fs::statfs;

use super::Check;
use crate::enforce::{Daemon, Group, Library, Places, Rung};
use crate::lease::Cards;

/// The driver's library that programs compute with.
const CUDA: &str = "libcuda.so.1";

/// File systems whose locks may be another machine's, or no locks, by their numbers.
const REMOTE: [(u64, &str); 8] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x5346_414f, "AFS"),
];

fn remedy(error: &Error) -> String {
    error.remedy().unwrap_or_default().to_string()
}

/// The driver, its libraries, and its cards.
pub(super) fn driver(environment: &Environment, checks: &mut Vec<Check>) {
    if environment.get("PLIMSOLL_NVML") == Some("") {
        let why = "it is not looked for: PLIMSOLL_NVML is empty";
        return checks.push(Check::not_here("driver", why, "unset PLIMSOLL_NVML"));
    }
    let nvml = Nvml::find(environment);
    let install = "install NVIDIA's driver, or use simulated cards (--sim-gpus 2x4GiB)";
    let cuda = can_load(CUDA);
    match &nvml {
        Ok(nvml) => {
            let look = nvml.look();
            let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".into());
            let newest = look.driver.cuda.map_or(String::new(), |(major, minor)| format!(", CUDA {major}.{minor}"));
            checks.push(Check::pass("driver", format!("version {}{newest}", version(&look.driver.driver))));
            checks.push(Check::pass("libnvidia-ml", format!("version {}", version(&look.driver.nvml))));
            checks.push(match cuda {
                Ok(()) => Check::pass("libcuda", format!("{CUDA} can be loaded")),
                Err(why) => {
                    Check::not_here("libcuda", format!("programs cannot use cards: {why}"), "install the driver's library for computing")
                }
            });
            seen(&look, checks);
        }
        Err(error) if error.code() == Code::NotFound => {
            checks.push(Check::not_here("driver", error.message(), install));
            checks.push(match cuda {
                Ok(()) => Check::not_here("libcuda", format!("{CUDA} can be loaded, and libnvidia-ml cannot: cards are not seen"), install),
                Err(why) => Check::not_here("libcuda", why, install),
            });
        }
        // The library is there, so there should be a driver behind it.
        Err(error) => checks.push(Check::fail("driver", error.message(), "load the driver, or restart the machine after an update of it")),
    }
}

/// Cards of a driver.
fn seen(look: &Look, checks: &mut Vec<Check>) {
    for note in &look.notes {
        checks.push(Check::fail("cards", note.as_str(), "see what the driver says of it: nvidia-smi, dmesg"));
    }
    if look.cards.is_empty() {
        checks.push(Check::not_here("cards", "the driver sees no cards", "see nvidia-smi"));
    }
    for card in &look.cards {
        let device = &card.device;
        let name = format!("GPU {} ({})", device.ordinal, device.name);
        checks.push(match card.memory.filter(|_| card.can_be_shared()) {
            Some(memory) => Check::pass("cards", format!("{name}: {} of {} are free, {}", memory.free, memory.total, device.uuid)),
            _ => {
                let missing = card.missing.join("; ");
                Check::fail("cards", format!("{name} cannot be shared: {missing}"), "see what the driver says of it: nvidia-smi -q")
            }
        });
        if card.mig {
            let why = format!("{name} is divided (MIG): its instances are not listed, and cannot be leased apart");
            checks.push(Check::not_here("cards", why, "switch MIG off for that card to share it by leases"));
        }
        if card.processes.iter().any(|process| process.bytes.is_none()) {
            let why = format!("{name}: the driver does not say what each process uses");
            checks.push(Check::not_here("cards", why, "in a container, share the machine's process ids (--pid=host)"));
        }
    }
}

/// The driver's server.
pub(super) fn mps(places: &Places, checks: &mut Vec<Check>) {
    let start = "start one where it is wanted: nvidia-cuda-mps-control -d";
    checks.push(match places.daemon() {
        Daemon::Runs(folder) => Check::pass("MPS", format!("a control daemon runs, its pipes are in {}", folder.display())),
        Daemon::None(folder) => Check::not_here("MPS", format!("no control daemon has its pipes in {}", folder.display()), start),
        Daemon::Ended(folder) => Check::not_here("MPS", format!("the control daemon that was in {} has ended", folder.display()), start),
        Daemon::OfAnother(folder, user) => {
            let remedy = "start one of your own, with CUDA_MPS_PIPE_DIRECTORY in a folder of yours";
            Check::not_here("MPS", format!("the control daemon in {} is that of user {user}", folder.display()), remedy)
        }
    });
}

/// Control groups and rights.
pub(super) fn groups(places: &Places, checks: &mut Vec<Check>) {
    checks.push(match places.group() {
        Group::In(folder) => Check::pass("control groups", format!("groups can be made in {}", folder.display())),
        Group::NotMounted => {
            let remedy = "for the rung kernel, mount cgroup v2 at /sys/fs/cgroup";
            Check::not_here("control groups", format!("cgroup v2 is not mounted at {}", places.groups.display()), remedy)
        }
        Group::Not(folder, why) => {
            let remedy = "for the rung kernel, let PLIMSOLL_CGROUP name a control group without processes of its own";
            Check::not_here("control groups", format!("no group can be made in {}: {why}", folder.display()), remedy)
        }
    });
    checks.push(match places.user {
        0 => Check::pass("rights", "this is root"),
        user => Check::not_here("rights", format!("this is user {user}; only root sets limits of the kernel's driver"), ""),
    });
}

/// The folder of ledgers.
pub(super) fn ledger(checks: &mut Vec<Check>) {
    let state = match StateDir::find() {
        Ok(state) => state,
        Err(error) => return checks.push(Check::fail("ledger", error.message(), remedy(&error))),
    };
    let path = state.path();
    checks.push(match state.scope() {
        Scope::Machine { folder, group, .. } => {
            Check::pass("ledger", format!("all users of the group {group} share the machine's ({})", folder.display()))
        }
        Scope::User { why: Some(why) } => Check::not_here("ledger", why, "ask an administrator to be added to the group"),
        Scope::User { why: None } => {
            let remedy = "to share with other users, let an administrator run: plimsoll setup --group GROUP";
            Check::not_here("ledger", "it is of this user alone: other users' leases are not seen", remedy)
        }
    });
    match fs::metadata(path) {
        Ok(facts) => {
            let what = format!("{}, of user {}, mode {:04o}", path.display(), facts.uid(), facts.mode() & 0o7777);
            checks.push(Check::pass("ledger", what));
        }
        Err(error) => checks.push(Check::fail("ledger", format!("{}: {error}", path.display()), "make the folder, and let it be yours")),
    }
    let elsewhere = "set PLIMSOLL_STATE_DIR to a folder on a local disk";
    match statfs(path) {
        Ok(system) => {
            // The sign of the number differs between systems.
            let number = system.f_type as u64 & 0xffff_ffff;
            checks.push(match REMOTE.iter().find(|(remote, _)| *remote == number) {
                Some((_, name)) => {
                    Check::fail("ledger", format!("{} is on {name}, whose locks are not this machine's alone", path.display()), elsewhere)
                }
                None => Check::pass("ledger", "it is on a local disk"),
            });
        }
        Err(error) => checks.push(Check::fail("ledger", format!("{}: {error}", path.display()), elsewhere)),
    }
    checks.push(match Path::new("/proc/locks").exists() {
        true => Check::pass("ledger", "the kernel lists locks, so that a ledger that is removed is noticed"),
        false => Check::not_here("ledger", "the kernel lists no locks: a ledger that is removed may not be noticed", ""),
    });
}

/// Cards that can be leased, the shim, and the rungs that are possible.
pub(super) fn cards(options: &Options, environment: &Environment, places: &Places, checks: &mut Vec<Check>) {
    let cards = match Cards::find(options, environment) {
        Ok(cards) => cards,
        Err(error) => return checks.push(Check::fail("leases", error.message(), remedy(&error))),
    };
    if let Some(machine) = cards.machine() {
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        checks.push(match machine.look() {
            Ok(seen) => match &seen.locked {
                None => {
                    let members = seen.entries.len();
                    Check::pass("leases", format!("{} can be leased; {}", count(cards.all().len(), "card"), count(members, "holder")))
                }
                Some(locked) => {
                    Check::fail("leases", format!("nothing is granted: {locked}"), "let that process go on (kill -CONT), or end it")
                }
            },
            Err(error) => Check::fail("leases", error.message(), remedy(&error)),
        });
    }
    let found = places.look(&cards, None);
    checks.push(match (&found.shim, found.library_lacks()) {
        (Library::At(path), _) => Check::pass("shim", path.display().to_string()),
        // A thing that is named, or there, is meant to be used.
        (Library::Missing(_), Some(lack)) if found.names_shim => Check::fail("shim", lack.why, lack.remedy),
        (Library::Unusable(..), Some(lack)) => Check::fail("shim", lack.why, lack.remedy),
        (_, lack) => {
            let lack = lack.unwrap_or_default();
            Check::not_here("shim", lack.why, lack.remedy)
        }
    });
    if cards.all().is_empty() {
        return checks.push(Check::not_here("rungs", "there are no cards to hold programs to", "use simulated cards (--sim-gpus 2x4GiB)"));
    }
    for step in found.steps() {
        let rung = step.rung;
        checks.push(match (step.lack, rung) {
            (None, Rung::Framework) => Check::pass("rungs", "framework: for Python programs"),
            (None, Rung::Shim) => Check::pass("rungs", "shim: for programs that are linked dynamically"),
            (None, _) => Check::pass("rungs", rung.word()),
            (Some(lack), _) => Check::not_here("rungs", format!("{rung}: {}", lack.why), lack.remedy),
        });
    }
}
