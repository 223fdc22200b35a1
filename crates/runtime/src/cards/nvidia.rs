//! Real cards: those that NVIDIA's driver knows, and contexts on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{Division, Environment, PhysicalDevice};
use plimsoll_device_cuda::{CudaCard, DriverCard, Look, NvidiaCard, Nvml, Toolkit, subtract};
use plimsoll_machine::Machine;

/// What sees the cards of a machine.
pub(crate) struct Seen {
    nvml: Nvml,
    look: Look,
}

/// What opens cards.
pub(crate) struct Nvidia {
    nvml: Nvml,
    toolkit: Toolkit,
    /// The cards as the driver numbers them.
    numbered: Vec<DriverCard>,
}

/// Cards with contexts, by their numbers.
pub(crate) type Contexts = BTreeMap<usize, Opened>;

/// A card with a context.
pub(crate) struct Opened {
    pub card: Arc<CudaCard>,
    /// Bytes of the card that the context took: none where other devices of this process have one there already.
    pub context: Bytes,
}

impl Nvidia {
    /// The cards that can be shared, in the order of the bus: those with a name by which other programs know them, and memory. None where
    /// there is no driver or no such card, and where PLIMSOLL_NVML is empty.
    pub fn cards(environment: &Environment) -> Option<(Seen, Vec<PhysicalDevice>)> {
        let nvml = match environment.get("PLIMSOLL_NVML") {
            Some("") => return None,
            path => Nvml::load(path).ok()?,
        };
        let look = nvml.look();
        let devices = look.cards.iter().map(|card| card.device.clone());
        let cards: Vec<_> = devices.filter(|device| !device.uuid.is_empty() && device.total > Bytes::ZERO).collect();
        (!cards.is_empty()).then_some((Seen { nvml, look }, cards))
    }

    /// Tells the ledger what programs outside of it use, unless the cards are a lease's part.
    pub fn see_outside(&self, cards: &[PhysicalDevice], ledger: &Machine) {
        if !cards.iter().any(|card| card.leased) {
            subtract(&self.nvml.look(), cards, ledger);
        }
    }

    /// Makes contexts on these cards, by their numbers.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a card that cannot compute; the driver's error.
    pub fn open(&self, cards: &[PhysicalDevice], used: &[usize]) -> Result<Contexts> {
        used.iter().map(|&number| Ok((number, self.open_one(&cards[number].uuid)?))).collect()
    }

    fn open_one(&self, uuid: &str) -> Result<Opened> {
        let numbered = numbered(&self.numbered, uuid)?;
        let before = self.memory(uuid);
        let card = CudaCard::open(&self.toolkit.driver, numbered, &self.toolkit.compiler)?;
        // The driver knows better than what is free: other programs come and go meanwhile.
        let context = match (before, self.memory(uuid)) {
            (Some((_, before)), Some((_, Some(after)))) => after - before.unwrap_or_default(),
            (Some((before, _)), Some((after, None))) => before - after,
            _ => Bytes::ZERO,
        };
        let context = context.round_up(card.granularity());
        Ok(Opened { card, context })
    }

    /// Free bytes of a card, and those that this process uses, where the driver says so.
    fn memory(&self, uuid: &str) -> Option<(Bytes, Option<Bytes>)> {
        let look = self.nvml.look();
        let NvidiaCard { memory, processes, .. } = look.cards.iter().find(|card| card.device.uuid == uuid)?;
        let own = processes.iter().find(|process| process.pid == std::process::id());
        Some(((*memory)?.free, own.and_then(|own| own.bytes)))
    }
}

impl Seen {
    /// Memory that programs of the ledger use is available, as far as the ledger grants it: a line is the same whoever else runs.
    pub fn count_ours_as_available(&self, cards: &mut [PhysicalDevice], ledger: &Machine) {
        if cards.iter().any(|card| card.leased) {
            return;
        }
        subtract(&self.look, cards, ledger);
        for (number, card) in cards.iter_mut().enumerate() {
            let memory = self.look.cards.iter().find(|seen| seen.device.uuid == card.uuid).and_then(|seen| seen.memory);
            let used = memory.map_or(Bytes::ZERO, |memory| memory.used);
            card.available = (card.available + (used - ledger.outside(number))).min(card.total);
        }
    }

    /// Loads the driver and the compiler, and finds the driver's numbers of the cards that are divided.
    ///
    /// # Errors
    /// As [`Toolkit::find`]; FAILED_PRECONDITION for a card that the driver does not show.
    pub fn ready(self, division: &Division, environment: &Environment) -> Result<Nvidia> {
        let toolkit = Toolkit::find(environment)?;
        let known = toolkit.driver.cards()?;
        for card in division.devices.iter().filter_map(|device| device.card.as_ref()) {
            numbered(&known, &card.device.uuid)?;
        }
        Ok(Nvidia { nvml: self.nvml, toolkit, numbered: known })
    }
}

/// The card as the driver numbers it.
fn numbered<'a>(known: &'a [DriverCard], uuid: &str) -> Result<&'a DriverCard> {
    known.iter().find(|card| card.uuid == uuid).ok_or_else(|| {
        Error::failed_precondition(format!("the driver does not show {uuid} to programs that compute"))
            .with_remedy("see what the driver says of it: nvidia-smi -q")
    })
}
