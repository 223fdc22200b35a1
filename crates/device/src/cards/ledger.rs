//! Which ledger of the machine the holders of a set of simulated cards meet in.

use plimsoll_base::Result;
use plimsoll_memory::machine::{CardInfo, Machine, StateDir};

use super::PhysicalDevice;

impl PhysicalDevice {
    /// The ledger of these simulated cards, a whole set in its order: every process of this user that names the same set, however
    /// it is written, gets the same one. Its cards have the numbers that they have here.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no cards; otherwise as [`Machine::open`].
    pub fn ledger(cards: &[PhysicalDevice], state: &StateDir) -> Result<Machine> {
        // UUIDs are a function of the whole set.
        let set = cards.first().map_or("", |card| card.uuid.as_str());
        let info = |card: &PhysicalDevice| CardInfo { key: card.uuid.clone(), name: card.name.clone(), capacity: card.total };
        Machine::open(state, set, &cards.iter().map(info).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;
    use plimsoll_memory::machine::Who;

    use super::*;

    #[test]
    fn the_same_set_has_the_same_ledger_however_it_is_written() {
        let folder = std::env::temp_dir().join(format!("plimsoll-device-ledger-{}", std::process::id()));
        let state = StateDir::open(&folder).unwrap();
        let ledger = |spec: &str| PhysicalDevice::ledger(&PhysicalDevice::simulated("--sim-gpus", spec).unwrap(), &state).unwrap();
        let member = ledger("2x1GiB").join(&Who::this_process("")).unwrap();
        member.reserve(&[(1, Bytes(5))]).unwrap();
        let held = |spec: &str| ledger(spec).look().unwrap().cards.last().unwrap().reserved;
        assert_eq!((held("1GiB+1024MiB"), held("2x1GiB,overhead=1MiB"), held("1GiB")), (Bytes(5), Bytes(0), Bytes(0)));
        assert!(PhysicalDevice::ledger(&[], &state).is_err());
        drop(member);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
