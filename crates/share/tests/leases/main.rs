//! Leases on simulated cards, with real processes.

mod taking;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_cards::{Environment, Options};
use plimsoll_machine::StateDir;
use plimsoll_share::{Amount, Cards, Lease, Request};

/// A folder of a test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = std::env::temp_dir().join(format!("plimsoll-share-{}-{}-{test}", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
        StateDir::open(&path).expect("a folder can be made");
        Folder(path)
    }

    /// Simulated cards as a process with those variables sees them.
    fn cards(&self, spec: &str, variables: &[(&str, &str)]) -> Cards {
        let environment = variables.iter().fold(Environment::new(), |environment, (name, value)| environment.with(name, value));
        Cards::find_in(&StateDir::open(&self.0).unwrap(), &Options::new().sim_gpus(spec), &environment).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Without waiting.
fn take(cards: &Cards, gpus: &str, memory: &str) -> plimsoll_base::Result<Lease> {
    let memory = if memory.is_empty() { Amount::All } else { memory.parse()? };
    cards.lease(&Request { cards: gpus.parse()?, memory, ..Request::default() }, &mut |_| true)
}

/// The numbers of its cards.
fn numbers(lease: &Lease) -> Vec<usize> {
    lease.parts().iter().map(|part| part.card).collect()
}
