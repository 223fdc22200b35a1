//! Which ledger of the machine the holders of a set of simulated cards meet in.

use plimsoll_base::Result;
use plimsoll_machine::{CardInfo, Machine, StateDir};

use super::PhysicalDevice;
use crate::Environment;

impl PhysicalDevice {
    /// The ledger of these cards, a whole set in its order. Every process of this user that names the same set of simulated cards,
    /// in any spelling, gets the same one. Real cards of a machine, of one kind or another, are all in one. Its cards have the
    /// numbers that they have here.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for no cards; otherwise as [`Machine::open`].
    pub fn ledger(cards: &[PhysicalDevice], state: &StateDir) -> Result<Machine> {
        let set = match cards.first() {
            None => "",
            // UUIDs are a function of the whole set.
            Some(card) if card.is_simulated() => card.uuid.as_str(),
            Some(_) => "cards",
        };
        let info = |card: &PhysicalDevice| CardInfo { key: card.uuid.clone(), name: card.name.clone(), capacity: card.total };
        Machine::open(state, set, &cards.iter().map(info).collect::<Vec<_>>())
    }

    /// As [`PhysicalDevice::ledger`], for a program that may have been started under a lease. The cards become the lease's part of
    /// them then, and the ledger is the one that programs under the lease share.
    ///
    /// # Errors
    /// As [`PhysicalDevice::ledger`] and [`Machine::under`].
    pub fn leased_ledger(cards: &mut [PhysicalDevice], state: &StateDir, environment: &Environment) -> Result<Machine> {
        let mut machine = PhysicalDevice::ledger(cards, state)?;
        // A lease inside of another one is named after it.
        for token in environment.get("PLIMSOLL_LEASE").unwrap_or_default().split('/').filter(|token| !token.is_empty()) {
            let Some(inside) = machine.under(token)? else { break };
            machine = inside;
            for (card, info) in cards.iter_mut().zip(machine.cards()) {
                (card.total, card.available, card.leased) = (info.capacity, info.capacity, true);
            }
        }
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;
    use plimsoll_machine::Identity;

    use super::*;

    #[test]
    fn the_same_set_has_the_same_ledger_however_it_is_written() {
        let folder = std::env::temp_dir().join(format!("plimsoll-device-ledger-{}", std::process::id()));
        let state = StateDir::open(&folder).unwrap();
        let ledger = |spec: &str| PhysicalDevice::ledger(&PhysicalDevice::simulated("--sim-gpus", spec).unwrap(), &state).unwrap();
        let member = ledger("2x1GiB").join(&Identity::this_process("")).unwrap();
        member.reserve(&[(1, Bytes(5))]).unwrap();
        let held = |spec: &str| ledger(spec).look().unwrap().cards.last().unwrap().reserved;
        assert_eq!((held("1GiB+1024MiB"), held("2x1GiB,overhead=1MiB"), held("1GiB")), (Bytes(5), Bytes(0), Bytes(0)));
        assert!(PhysicalDevice::ledger(&[], &state).is_err());
        drop(member);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
