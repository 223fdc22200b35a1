//! The plans of a session, kept for later runs by how much memory they take. The least recently used go first.

use std::collections::HashMap;
use std::mem::{size_of, size_of_val};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_base::{Bytes, Error};
use plimsoll_device::{BufferRef, Command};
use plimsoll_plan::{HeldValue, Plan, PlanBuffer, Signature};

use crate::loaded::Loaded;

/// Plans that take more memory of the process than this, together, are not kept.
const MOST: Bytes = Bytes(64 << 20);

/// More errors than this are not kept.
const MOST_ERRORS: usize = 256;

/// Plans by the key of their signature.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Several for a key where they depend on the elements of feeds.
    entries: HashMap<String, Vec<Entry>>,
    /// Keys of which no plan is made without elements of feeds, and why.
    needing_values: HashMap<String, Error>,
    bytes: u64,
    /// Counts the uses.
    clock: u64,
}

struct Entry {
    signature: Signature,
    plan: Arc<Plan>,
    /// With code, and maybe constants on devices; none before the first run and after [`Plans::unload`].
    loaded: Option<Arc<Loaded>>,
    bytes: u64,
    used: u64,
}

/// A plan that is kept.
pub(crate) struct Found {
    pub signature: Signature,
    pub plan: Arc<Plan>,
    pub loaded: Option<Arc<Loaded>>,
}

impl Entry {
    /// Whether a callable has it.
    fn is_held(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| Arc::strong_count(loaded) > 1)
    }
}

impl Plans {
    /// The plan of the first of these signatures that has one.
    pub fn find(&self, key: &str, signatures: &[&Signature]) -> Option<Found> {
        let mut table = self.table();
        let Table { entries, clock, .. } = &mut *table;
        let entries = entries.get_mut(key)?;
        let position = signatures.iter().find_map(|signature| entries.iter().position(|entry| entry.signature == **signature))?;
        let entry = &mut entries[position];
        *clock += 1;
        entry.used = *clock;
        Some(Found { signature: entry.signature.clone(), plan: entry.plan.clone(), loaded: entry.loaded.clone() })
    }

    /// The loaded plan of the first of these signatures that has one.
    pub fn loaded(&self, key: &str, signatures: &[&Signature]) -> Option<Arc<Loaded>> {
        self.find(key, signatures)?.loaded
    }

    /// Keeps a plan, in the place of an earlier one for the signature. Plans that were not used for longest go if there is too much,
    /// but for those that callables have.
    pub fn keep(&self, key: &str, signature: &Signature, plan: &Arc<Plan>, loaded: Option<&Arc<Loaded>>) {
        let mut table = self.table();
        table.clock += 1;
        let entry =
            Entry { signature: signature.clone(), plan: plan.clone(), loaded: loaded.cloned(), bytes: bytes(plan), used: table.clock };
        table.bytes += entry.bytes;
        let entries = table.entries.entry(key.to_string()).or_default();
        let before = entries.iter().position(|entry| entry.signature == *signature).map(|position| entries.swap_remove(position));
        entries.push(entry);
        table.bytes -= before.map_or(0, |entry| entry.bytes);
        table.shrink(MOST);
    }

    /// Why there is no plan for a key without elements of feeds, if that is known.
    pub fn needs_values(&self, key: &str) -> Option<Error> {
        self.table().needing_values.get(key).cloned()
    }

    /// Keeps an error that says that plans for the key need elements of feeds.
    pub fn keep_needs_values(&self, key: &str, error: &Error) {
        let mut table = self.table();
        if table.needing_values.len() >= MOST_ERRORS {
            table.needing_values.clear();
        }
        table.needing_values.insert(key.to_string(), error.clone());
    }

    /// Gives back the device memory of plans without holders. The plans stay.
    pub fn unload(&self) {
        let mut table = self.table();
        table.entries.values_mut().flatten().filter(|entry| !entry.is_held()).for_each(|entry| entry.loaded = None);
    }

    /// Forgets all plans.
    pub fn clear(&self) {
        *self.table() = Table::default();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets plans until the rest takes at most so much. The one that was used last stays.
    fn shrink(&mut self, most: Bytes) {
        while self.bytes > most.0 {
            let oldest = self
                .entries
                .iter()
                .flat_map(|(key, entries)| entries.iter().enumerate().map(move |(position, entry)| (key, position, entry)))
                .filter(|(_, _, entry)| entry.used < self.clock && !entry.is_held())
                .min_by_key(|(_, _, entry)| entry.used)
                .map(|(key, position, _)| (key.clone(), position));
            let Some((key, position)) = oldest else { return };
            if let Some(entries) = self.entries.get_mut(&key) {
                self.bytes -= entries.swap_remove(position).bytes;
                if entries.is_empty() {
                    self.entries.remove(&key);
                }
            }
        }
    }
}

/// About how much memory of the process a plan takes: its commands, twice, since a device has them in a form of its own.
fn bytes(plan: &Plan) -> u64 {
    let of_command = |command: &Command| {
        2 * size_of::<Command>() + 2 * command.args.len() * size_of::<BufferRef>() + command.label.len() + 8 * command.waits.len()
    };
    let commands: usize = plan.queues.iter().flat_map(|queue| &queue.program.commands).map(of_command).sum();
    let constants = size_of_val(&plan.constants[..]);
    // A buffer holds a value or two, with a few readers.
    let buffers = 2 * plan.buffers.len() * (size_of::<PlanBuffer>() + size_of::<HeldValue>());
    (size_of::<Plan>() + commands + constants + buffers + 64 * plan.nodes.len()) as u64
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    fn plan() -> Arc<Plan> {
        Arc::new(Plan {
            feeds: vec![],
            fetches: vec![],
            calls: vec![],
            variables: vec![],
            constants: vec![],
            values: vec![],
            devices: vec![],
            host: plimsoll_plan::DeviceId::from_index(0),
            queues: vec![],
            buffers: Arc::default(),
            nodes: vec![],
            softened: vec![],
            before: vec![],
            costs: String::new(),
            seconds: 0.0,
            loops_are_counted: true,
            later: None,
            fitting: None,
        })
    }

    fn signature(target: &str) -> Signature {
        Signature { targets: vec![target.to_string()], ..Signature::default() }
    }

    #[test]
    fn plans_that_were_not_used_for_longest_go_first() {
        let plans = Plans::default();
        let names = ["a", "b", "c"];
        for name in names {
            // All for one key, as plans that depend on elements of feeds are.
            plans.keep("key", &signature(name), &plan(), None);
        }
        let is_kept =
            |name: &str| plans.table().entries.get("key").is_some_and(|all| all.iter().any(|entry| entry.signature == signature(name)));
        assert!(plans.find("key", &[&signature("none"), &signature("a")]).is_some_and(|found| found.signature == signature("a")));
        let one = bytes(&plan());
        assert_eq!(plans.table().bytes, 3 * one);
        plans.table().shrink(Bytes(2 * one));
        assert_eq!(names.map(is_kept), [true, false, true]);
        // The one that was used last stays, however large it is.
        plans.table().shrink(Bytes::ZERO);
        assert_eq!(names.map(is_kept), [true, false, false]);
        assert_eq!(plans.table().bytes, one);
        // A plan in the place of another counts once.
        plans.keep("key", &signature("a"), &plan(), None);
        assert_eq!(plans.table().bytes, one);
        plans.clear();
        assert!(plans.find("key", &[&signature("a")]).is_none());
    }
}
