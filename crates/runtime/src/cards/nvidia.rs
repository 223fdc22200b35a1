//! Real cards: those that NVIDIA's driver knows, and contexts on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_cards::{CudnnMode, Division, Environment, Options, PhysicalDevice, resolve};
use plimsoll_device::DeviceKind;
use plimsoll_device_cuda::{CudaCard, DriverCard, Look, Nvml, Toolkit, subtract, without_cudnn};
use plimsoll_machine::Machine;

/// What sees the cards of a machine.
pub(crate) struct Seen {
    nvml: Nvml,
    look: Look,
}

/// What opens cards.
pub(crate) struct Nvidia {
    nvml: Arc<Nvml>,
    toolkit: Toolkit,
    /// The cards as the driver numbers them.
    numbered: Vec<DriverCard>,
    mode: CudnnMode,
    /// Sentences on cards that cannot be shared, and on a cuDNN that cannot be used.
    pub notes: Vec<String>,
}

/// Tells the ledger of cards how much of them programs outside of it use.
pub(crate) struct Outside {
    nvml: Arc<Nvml>,
    cards: Vec<PhysicalDevice>,
    ledger: Machine,
}

/// The most of a context that is counted as no process's: 5.5 MiB were seen on an H200.
const MOST_BESIDE: Bytes = Bytes(16 << 20);

/// Cards with contexts, by their numbers.
pub(crate) type Contexts = BTreeMap<usize, Opened>;

/// A card with a context.
pub(crate) struct Opened {
    pub card: Arc<CudaCard>,
    /// Bytes of the card that the context takes, and cuDNN there.
    pub context: Bytes,
    /// Why the card computes without cuDNN, where others may compute with it.
    pub trouble: Option<String>,
}

impl Nvidia {
    /// The cards that programs can share, in the order of the bus. None where there is no driver, no card, or where PLIMSOLL_NVML is
    /// empty.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a driver that cannot be used, and where no card can be shared.
    pub fn cards(environment: &Environment) -> Result<Option<(Seen, Vec<PhysicalDevice>)>> {
        let nvml = match Nvml::find(environment) {
            Err(error) if error.code() == Code::NotFound => return Ok(None),
            nvml => nvml?,
        };
        let look = nvml.look();
        let (cards, troubles) = (look.shared(), look.troubles());
        match cards.is_empty() {
            true if troubles.is_empty() => Ok(None),
            true => Err(Error::failed_precondition(troubles.join("; "))),
            false => Ok(Some((Seen { nvml, look }, cards))),
        }
    }

    /// What looks at programs outside of the ledger of these cards; none where the cards are a lease's part.
    pub fn outside(&self, cards: &[PhysicalDevice], ledger: &Machine) -> Option<Outside> {
        let is_leased = cards.iter().any(|card| card.leased);
        (!is_leased).then(|| Outside { nvml: self.nvml.clone(), cards: cards.to_vec(), ledger: ledger.clone() })
    }

    /// Makes a context on a card, and measures it by what the driver says that this process uses, and by what the card has less: some of a
    /// context is no process's. `bound` is counted instead where the driver does not say what a process uses, as in containers.
    ///
    /// A context that other devices of this process have there, or another library, is shared and cannot be measured: all that the
    /// process uses is counted then, at most `bound`. So each of several devices is charged, and those that remain hold the charge.
    ///
    /// # Errors
    /// FAILED_PRECONDITION for a card that cannot compute; the driver's error.
    pub fn open(&self, uuid: &str, bound: Bytes) -> Result<Opened> {
        let numbered = numbered(&self.numbered, uuid)?;
        let (is_there, before, used) = (self.toolkit.driver.has_context(numbered), self.own_bytes(uuid), self.nvml.memory_of(uuid));
        let (card, trouble) = self.context(numbered)?;
        // What is used is no measure alone: other programs come and go meanwhile.
        let context = match self.own_bytes(uuid) {
            Some(after) if is_there => after.min(bound),
            Some(after) => {
                let own = after - before.unwrap_or_default();
                let all = used.ok().zip(self.nvml.memory_of(uuid).ok()).map_or(own, |(before, after)| after.used - before.used);
                own.max(all.min(own + MOST_BESIDE))
            }
            None => bound,
        };
        let context = context.round_up(card.granularity());
        Ok(Opened { card, context, trouble })
    }

    /// A context, with cuDNN where that can be opened and need not be.
    fn context(&self, numbered: &DriverCard) -> Result<(Arc<CudaCard>, Option<String>)> {
        let open = |planner| CudaCard::open(&self.toolkit.driver, numbered, &self.toolkit.compiler, planner);
        match open(self.toolkit.planner()) {
            Err(why) if self.mode == CudnnMode::Auto && self.toolkit.planner().is_some() && why.code() == Code::FailedPrecondition => {
                Ok((open(None)?, Some(format!("{}: {}", numbered.name, without_cudnn(&why)))))
            }
            opened => opened.map(|card| (card, None)),
        }
    }

    /// Bytes of a card that this process uses, where the driver says so.
    fn own_bytes(&self, uuid: &str) -> Option<Bytes> {
        let look = self.nvml.look();
        let card = look.cards.iter().find(|card| card.device.uuid == uuid)?;
        card.processes.iter().find(|process| process.pid == std::process::id())?.bytes
    }
}

impl Outside {
    /// Looks, and tells the ledger.
    pub fn see(&self) {
        self.nvml.subtract(&self.cards, &self.ledger);
    }

    /// As [`Outside::see`]; what is available on the cards is as it is now.
    pub fn see_available(&self, cards: &mut [PhysicalDevice]) {
        let look = self.nvml.look();
        subtract(&look, &self.cards, &self.ledger);
        available(&look, cards, &self.ledger);
    }
}

/// Memory that programs of the ledger use is available, as far as the ledger grants it: a line is the same whoever else runs.
fn available(look: &Look, cards: &mut [PhysicalDevice], ledger: &Machine) {
    for (number, card) in cards.iter_mut().enumerate() {
        let memory = look.cards.iter().find(|seen| seen.device.uuid == card.uuid).and_then(|seen| seen.memory);
        let (free, used) = memory.map_or((card.available, Bytes::ZERO), |memory| (memory.free, memory.used));
        card.available = (free + (used - ledger.outside(number))).min(card.total);
    }
}

impl Seen {
    /// Memory that programs of the ledger use is available, as far as the ledger grants it: a line is the same whoever else runs.
    pub fn count_ours_as_available(&self, cards: &mut [PhysicalDevice], ledger: &Machine) {
        if cards.iter().any(|card| card.leased) {
            return;
        }
        subtract(&self.look, cards, ledger);
        available(&self.look, cards, ledger);
    }

    /// Loads the driver and the compiler, and finds the driver's numbers of the cards. Those of the division that the driver does not
    /// show are unusable: they are left out of it. The inner error is that of a machine without cards that compute: as
    /// [`Toolkit::find`]; FAILED_PRECONDITION where the driver shows none of the cards.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn ready(
        self,
        cards: &mut [PhysicalDevice],
        mut division: Division,
        options: &Options,
        environment: &Environment,
    ) -> Result<Result<(Nvidia, Division)>> {
        let found =
            Toolkit::find(&options.with_libraries(environment), options.cudnn).and_then(|toolkit| Ok((toolkit.driver.cards()?, toolkit)));
        let (known, toolkit) = match found {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        // Another card may come in the place of one that is left out.
        loop {
            let divided = division.devices.iter().filter_map(|device| device.card.as_ref());
            let hidden: Vec<(String, Error)> =
                divided.filter_map(|card| Some((card.device.uuid.clone(), numbered(&known, &card.device.uuid).err()?))).collect();
            let Some((_, first)) = hidden.first() else { break };
            let first = first.clone();
            for (uuid, why) in hidden {
                let card = cards.iter_mut().find(|card| card.uuid == uuid);
                card.into_iter().for_each(|card| card.unusable = Some(format!("because {}", why.message())));
            }
            division = resolve(cards, options, environment)?;
            if division.of(DeviceKind::Gpu).next().is_none() {
                return Ok(Err(first));
            }
        }
        let notes = self.look.troubles().into_iter().chain(toolkit.without_cudnn()).collect();
        Ok(Ok((Nvidia { nvml: Arc::new(self.nvml), toolkit, numbered: known, mode: options.cudnn, notes }, division)))
    }
}

/// The card as the driver numbers it.
fn numbered<'a>(known: &'a [DriverCard], uuid: &str) -> Result<&'a DriverCard> {
    known.iter().find(|card| card.uuid == uuid).ok_or_else(|| {
        Error::failed_precondition(format!("the driver does not show {uuid} to programs that compute"))
            .with_remedy("see what the driver says of it: nvidia-smi -q")
    })
}
