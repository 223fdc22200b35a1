//! A control group (cgroup v2) of a program's own, with limits that the driver keeps.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device_cuda::Nvml;
use rustix::fs::{Access, access};

use super::Group;
use crate::lease::Part;

/// The beginning of our groups' names; the process that made one follows.
const PREFIX: &str = "plimsoll-";

/// The most groups of one process at a time.
const MOST: u32 = 10_000;

/// The controller by which the kernel counts memory of cards.
const CONTROLLER: &str = "dmem";

/// Where a group can be made: in the group of this process, so that all limits around it stay, or in the one that is named.
pub(super) fn look(root: &Path, named: Option<&Path>, own: Option<&str>) -> Group {
    if !root.join("cgroup.controllers").exists() {
        return Group::NotMounted;
    }
    let folder = match (named, own) {
        (Some(named), _) => named.to_path_buf(),
        (None, Some(own)) => root.join(own.trim_start_matches('/')),
        (None, None) => return Group::NotMounted,
    };
    if let Err(error) = access(&folder, Access::WRITE_OK | Access::EXEC_OK) {
        return Group::Not(folder, io::Error::from(error).to_string());
    }
    // A group with processes of its own, the root aside, cannot give a controller to groups inside of it.
    let is_root = folder == root;
    let lists = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default().split_whitespace().any(|word| word == CONTROLLER);
    let has_processes = || fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty());
    if lists("cgroup.controllers") && !lists("cgroup.subtree_control") && !is_root && has_processes() {
        return Group::Not(folder, format!("it has processes of its own, so that it cannot pass on the controller {CONTROLLER}"));
    }
    Group::In(folder)
}

/// The group of this process, as the kernel says.
pub(super) fn own() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_string)
}

/// A group with limits, for a program that is about to start. It is removed when this is dropped, as soon as no process is in it.
#[derive(Debug)]
pub struct Limited {
    folder: PathBuf,
    /// Where this process was before.
    home: PathBuf,
    cards: Vec<String>,
    inside: bool,
}

impl Limited {
    /// Makes a group in that folder, and has the driver limit it. This process is in the group `home`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the error of the system or the driver. Nothing is left then.
    pub(super) fn make(folder: &Path, home: PathBuf, nvml: &Nvml, parts: &[Part]) -> Result<Limited> {
        sweep(folder, nvml, parts);
        pass_on(folder);
        let name = |number: u32| folder.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let exists = |made: &io::Result<()>| made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
        let mut number = 0;
        let mut created = fs::create_dir(name(number));
        while exists(&created) && number < MOST {
            number += 1;
            created = fs::create_dir(name(number));
        }
        let failed = |error: io::Error| Error::failed_precondition(format!("control group {}: {error}", name(number).display()));
        created.map_err(failed)?;
        let cards = parts.iter().map(|part| part.device.uuid.clone()).collect();
        let made = Limited { folder: name(number), home, cards, inside: false };
        for part in parts {
            nvml.limit_group(&part.device.uuid, &made.folder, Some(part.bytes)).inspect_err(|_| made.remove(nvml))?;
        }
        Ok(made)
    }

    /// Has this process enter the group, so that processes that it starts are in it. [`Limited::leave`] undoes that.
    pub(super) fn enter(&mut self) -> Result<()> {
        self.inside = true;
        let failed = |error| Error::failed_precondition(format!("control group {}: {error}", self.folder.display()));
        fs::write(self.folder.join("cgroup.procs"), "0").map_err(failed)
    }

    /// Has this process be where it was. Where that fails it stays inside, which does no harm: it uses no card.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.inside) {
            let _ = fs::write(self.home.join("cgroup.procs"), "0");
        }
    }

    /// The bytes of a card that the processes in it use, as the driver says.
    pub(super) fn used(&self, nvml: &Nvml, uuid: &str) -> Option<Bytes> {
        nvml.used_by_group(uuid, &self.folder).ok()
    }

    /// Takes the limits away and removes the group, where no process is in it any more. One that still has processes keeps its
    /// limits; the next program that is started so removes it.
    pub(super) fn remove(&self, nvml: &Nvml) {
        if is_empty(&self.folder) {
            for uuid in &self.cards {
                let _ = nvml.limit_group(uuid, &self.folder, None);
            }
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.events")).map_or(true, |events| !events.lines().any(|line| line == "populated 1"))
}

/// Lets groups inside of a folder have the controller, where the kernel has it. Where that fails the driver says why.
fn pass_on(folder: &Path) {
    let has = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    if has.split_whitespace().any(|word| word == CONTROLLER) {
        let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{CONTROLLER}"));
    }
}

/// Removes groups that processes left behind that were killed.
fn sweep(folder: &Path, nvml: &Nvml, parts: &[Part]) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if pid.is_some_and(|pid| pid != std::process::id() && !Path::new(&format!("/proc/{pid}")).exists()) && is_empty(&entry.path()) {
            for part in parts {
                let _ = nvml.limit_group(&part.device.uuid, &entry.path(), None);
            }
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_group_can_be_made() {
        let root = std::env::temp_dir().join(format!("plimsoll-groups-{}", std::process::id()));
        let own = root.join("user/session");
        fs::create_dir_all(&own).unwrap();
        let seen = |named: Option<&Path>| look(&root, named, Some("/user/session"));
        assert_eq!(seen(None), Group::NotMounted);
        fs::write(root.join("cgroup.controllers"), "cpu dmem\n").unwrap();
        assert_eq!(seen(None), Group::In(own.clone()));
        fs::write(own.join("cgroup.controllers"), "cpu dmem\n").unwrap();
        fs::write(own.join("cgroup.procs"), "7\n").unwrap();
        assert!(matches!(seen(None), Group::Not(folder, why) if folder == own && why.starts_with("it has processes")));
        assert_eq!(seen(Some(&root)), Group::In(root.clone()), "the root may have processes");
        fs::write(own.join("cgroup.subtree_control"), "dmem\n").unwrap();
        assert_eq!(seen(None), Group::In(own.clone()));
        assert!(matches!(seen(Some(Path::new("/nowhere"))), Group::Not(_, why) if why.contains("No such file")));
        assert_eq!(look(&root, None, None), Group::NotMounted);
        fs::remove_dir_all(&root).unwrap();
    }
}
