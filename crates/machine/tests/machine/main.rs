//! The ledger of a machine, with real processes: this program starts itself again to play the others.

mod child;
mod failures;
mod leases;
mod ledger;
mod members;
mod stress;
mod under;
mod users;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_base::{Bytes, Result};
use plimsoll_machine::{CardInfo, Guarantee, Identity, Machine, Member, StateDir};

/// The set of cards that all tests use, each in a folder of its own.
const SET: &str = "test";

/// A folder of a test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-test-{}-{}-{test}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder can be made");
        Folder(path)
    }

    /// Where the ledgers are.
    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// The ledger's file.
    fn file(&self) -> PathBuf {
        self.state().join(format!("{SET}.ledger"))
    }

    fn machine(&self, capacities: &[u64]) -> Machine {
        open(&self.state(), capacities)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cards(capacities: &[u64]) -> Vec<CardInfo> {
    let card = |(index, &bytes)| CardInfo { key: format!("uuid-{index}"), name: format!("card {index}"), capacity: Bytes(bytes) };
    capacities.iter().enumerate().map(card).collect()
}

/// The folder of a machine's users, or of one user alone.
fn state_dir(state: &Path) -> Result<StateDir> {
    if state.join("settings").exists() { StateDir::of_machine(state) } else { StateDir::open(state) }
}

fn open(state: &Path, capacities: &[u64]) -> Machine {
    Machine::open(&state_dir(state).unwrap(), SET, &cards(capacities)).unwrap()
}

fn identity(name: &str) -> Identity {
    Identity { name: name.into(), program: "tester --all".into(), guarantee: Guarantee::Held }
}

/// A member that holds that much of the first card.
fn holder(machine: &Machine, name: &str, bytes: u64) -> Member {
    let member = machine.join(&identity(name)).unwrap();
    member.reserve(&[(0, Bytes(bytes))]).unwrap();
    member
}

/// The reserved bytes of each card.
fn reserved(machine: &Machine) -> Vec<u64> {
    machine.look().unwrap().cards.iter().map(|card| card.reserved.0).collect()
}
