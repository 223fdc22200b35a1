//! NVML: the driver's facts about cards and the processes on them.

mod activity;
mod calls;
mod card;
mod limits;
mod outside;
mod process;
mod raw;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{Environment, PhysicalDevice};

pub use activity::Activity;
pub use outside::subtract;
pub use process::{Process, ProcessKind};

use crate::library::Library;
use raw::Functions;

/// The names that the loader is asked for, in turn. The second is where Windows puts the library for its Linux guests.
const PLACES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// The management library, loaded and initialised.
#[derive(Debug)]
pub struct Nvml {
    functions: Functions,
}

// SAFETY: NVML may be called from any thread, several at a time; the functions are never unloaded.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

/// The versions of the driver and its libraries, as far as they are said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The kernel's driver: `535.104.05`.
    pub driver: Option<String>,
    /// The management library: `12.535.104.05`.
    pub nvml: Option<String>,
    /// The newest CUDA that the driver runs, major and minor.
    pub cuda: Option<(u32, u32)>,
}

/// A card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: Bytes,
    /// Taken by processes; by old drivers' count also the driver's own memory.
    pub used: Bytes,
    /// Bytes without a holder.
    pub free: Bytes,
    /// Kept by the driver for itself; none where an old driver counts that as used.
    pub reserved: Bytes,
}

/// A card, with the facts that change from one look to the next. Facts that the driver did not give are in [`NvidiaCard::missing`].
#[derive(Clone, Debug, PartialEq)]
pub struct NvidiaCard {
    /// The card as a physical device. Its ordinal is its place in the order of PCI bus ids.
    pub device: PhysicalDevice,
    /// Its memory now.
    pub memory: Option<Memory>,
    /// Percent of the time in which a kernel ran.
    pub utilisation: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Percent of the fan's full speed.
    pub fan: Option<u32>,
    /// Watts drawn now.
    pub power: Option<u32>,
    /// Watts that it may draw.
    pub power_limit: Option<u32>,
    /// 0 for the fastest of its performance states, to 15.
    pub performance_state: Option<u32>,
    /// The clock of its multiprocessors now, in MHz.
    pub clock_mhz: Option<u32>,
    /// Whether it is divided into instances (MIG).
    pub mig: bool,
    /// The processes on it, by pid.
    pub processes: Vec<Process>,
    /// The missing facts, and why: `fan: not supported`.
    pub missing: Vec<String>,
}

/// The driver's answers at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Versions.
    pub driver: Driver,
    /// The cards, in the order of PCI bus ids.
    pub cards: Vec<NvidiaCard>,
    /// Cards that could not be looked at, as sentences.
    pub notes: Vec<String>,
}

impl NvidiaCard {
    /// Whether programs can share it: it has memory, and a name by which they all know it.
    pub fn can_be_shared(&self) -> bool {
        !self.device.uuid.is_empty() && self.device.total > Bytes::ZERO
    }
}

impl Look {
    /// The cards that programs can share.
    pub fn shared(&self) -> Vec<PhysicalDevice> {
        self.cards.iter().filter(|card| card.can_be_shared()).map(|card| card.device.clone()).collect()
    }

    /// Why there are not more of them, as sentences.
    pub fn troubles(&self) -> Vec<String> {
        let cannot = |card: &NvidiaCard| {
            format!("NVIDIA card {} ({}) cannot be shared: {}", card.device.ordinal, card.device.name, card.missing.join("; "))
        };
        let cards = self.cards.iter().filter(|card| !card.can_be_shared()).map(cannot);
        self.notes.iter().cloned().chain(cards).collect()
    }
}

impl Nvml {
    /// Loads the library as the environment wants it: the driver's, or the one that PLIMSOLL_NVML names.
    ///
    /// # Errors
    /// As [`Nvml::load`]; NOT_FOUND, too, where PLIMSOLL_NVML is empty.
    pub fn find(environment: &Environment) -> Result<Nvml> {
        match environment.get("PLIMSOLL_NVML") {
            Some("") => Err(Error::not_found("NVIDIA cards are not looked for: PLIMSOLL_NVML is empty")),
            path => Nvml::load(path),
        }
    }

    /// Loads the library: the one at `path`, or the driver's.
    ///
    /// # Errors
    /// NOT_FOUND where there is no such file, which only says that there is no driver. FAILED_PRECONDITION for a file that cannot be
    /// loaded, and for a library that cannot begin.
    pub fn load(path: Option<&str>) -> Result<Nvml> {
        let places = path.map_or(PLACES.to_vec(), |path| vec![path]);
        let mut tried = Vec::new();
        let library = places.iter().find_map(|&place| Library::load(place).map_err(|why| tried.push((place, why))).ok());
        let Some(library) = library else {
            if let Some((_, why)) = tried.iter().find(|(place, _)| Library::is_there(place)) {
                let message = format!("the NVIDIA driver's library cannot be loaded: {why}");
                return Err(Error::failed_precondition(message).with_remedy("install NVIDIA's driver anew"));
            }
            // The reason is that of the first name: the others are for odd systems.
            let why = tried.into_iter().next().map(|(_, why)| why).unwrap_or_default();
            return Err(Error::not_found(format!("there is no NVIDIA driver: {why}")));
        };
        let nvml = Nvml { functions: Functions::of(&library) };
        match nvml.begin() {
            Ok(()) => Ok(nvml),
            Err(trouble) => Err(Error::failed_precondition(format!("the NVIDIA driver's library cannot begin: {trouble}"))),
        }
    }

    /// Looks at everything. A fact missing on one card leaves the others as they are.
    pub fn look(&self) -> Look {
        let mut look = Look { driver: self.driver(), ..Look::default() };
        let count = match self.count() {
            Ok(count) => count,
            Err(trouble) => {
                look.notes.push(format!("NVIDIA cards cannot be counted: {trouble}"));
                0
            }
        };
        let mut found = Vec::new();
        for index in 0..count {
            match self.handle(index).and_then(|handle| Ok((self.pci(handle)?, handle))) {
                Ok((pci, handle)) => found.push((pci, handle)),
                Err(trouble) => look.notes.push(format!("NVIDIA card {index} of {count} cannot be examined: {trouble}")),
            }
        }
        found.sort_by_key(|(pci, _)| *pci);
        for (ordinal, (pci, handle)) in found.iter().enumerate() {
            let mut card = card::look(self, ordinal as u32, *pci, *handle);
            card.device.peers = self.peers(ordinal, &found, &mut card.missing);
            look.cards.push(card);
        }
        look
    }

    /// The memory of a card, without a look at anything else of it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there is no such card, or with the driver's reason.
    pub fn memory_of(&self, uuid: &str) -> Result<Memory> {
        let mut cards = (0..self.count().unwrap_or(0)).filter_map(|index| self.handle(index).ok());
        let card = cards.find(|card| self.text(*card, |functions| functions.uuid).is_ok_and(|name| name == uuid));
        let card = card.ok_or_else(|| Error::failed_precondition(format!("there is no card {uuid}")))?;
        self.memory(card).map_err(|trouble| Error::failed_precondition(format!("the memory of card {uuid}: {trouble}")))
    }

    /// The ordinals of the cards whose memory a card reaches directly.
    fn peers(&self, ordinal: usize, cards: &[(calls::PciAddress, raw::Handle)], missing: &mut Vec<String>) -> Vec<u32> {
        let others = (0..cards.len()).filter(|&other| other != ordinal);
        let reached = others.filter_map(|other| match self.reaches(cards[ordinal].1, cards[other].1) {
            Ok(reaches) => reaches.then_some(other as u32),
            Err(trouble) => {
                let why = format!("peers: {trouble}");
                if !missing.contains(&why) {
                    missing.push(why);
                }
                None
            }
        });
        reached.collect()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        self.end();
    }
}
