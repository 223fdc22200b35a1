//! Cards: graphics cards as they are found on a machine, or simulated.

mod ledger;
mod models;
mod simulated;

use std::ops::RangeInclusive;

use plimsoll_base::{Bytes, Error, Result};

pub(crate) use simulated::{MOST_BYTES, MOST_CARDS};

/// A compute capability, major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComputeCapability(pub u32, pub u32);

impl ComputeCapability {
    /// Single-precision units of a multiprocessor: CUDA cores.
    pub fn cores(self) -> u32 {
        match (self.0, self.1) {
            (0..=2, _) => 32,
            (3, _) => 192,
            (6, 0) | (7, _) | (8, 0) => 64,
            _ => 128,
        }
    }
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The priorities that streams of cards have.
pub fn stream_priorities(capability: ComputeCapability) -> RangeInclusive<i32> {
    if capability.0 < 6 { -1..=0 } else { -5..=0 }
}

/// A card as it was found, before anything is decided about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PhysicalDevice {
    /// Its number on the machine, in the order of PCI bus ids, whichever cards this process may see.
    pub ordinal: u32,
    /// The model, `Tesla T4`.
    pub name: String,
    /// `0000:00:1e.0`.
    pub pci_bus_id: String,
    /// `GPU-` and 32 hexadecimal digits in five groups.
    pub uuid: String,
    /// The version of its instructions.
    pub compute_capability: ComputeCapability,
    /// How many multiprocessors it has; 0 where that is not known.
    pub multiprocessors: u32,
    /// Their clock in MHz.
    pub clock_mhz: u32,
    /// Bytes that its memory moves in a second.
    pub bandwidth: f64,
    /// The generation and the lanes of its PCI Express; none where they are not known, and for a simulated card.
    pub pcie: Option<[u32; 2]>,
    /// All its memory.
    pub total: Bytes,
    /// Bytes without a holder.
    pub available: Bytes,
    /// Bytes that a process which opens the card cannot avoid: context, modules, library handles. Stated by a simulated card;
    /// zero on a real one until it is opened and measured.
    pub overhead: Bytes,
    /// The NUMA node that it hangs on, where that is known.
    pub numa_node: Option<u32>,
    /// The priorities that its streams may have; the smallest number is the greatest priority.
    pub stream_priorities: RangeInclusive<i32>,
    /// Whether the driver can move its memory to the host and back, page by page. Needs capability 6.0 besides.
    pub unified_memory: bool,
    /// Ordinals of the cards whose memory it reaches directly.
    pub peers: Vec<u32>,
    /// Whether it is a lease's part of a card: [`PhysicalDevice::total`] is the leased part, and nothing of it is left to the
    /// system.
    pub leased: bool,
    /// Why programs cannot compute on it, as `because …`; none for one that they can use as far as is known.
    pub unusable: Option<String>,
    /// Set for a card that is acted by the processor.
    pub simulation: Option<Simulation>,
}

/// The properties that only a simulated card has.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// How fast it is on the virtual clock: 1 is the speed by the model's clock and bandwidth. None shows no modelled time.
    pub speed: Option<f64>,
    /// Bytes that its link carries in a second on the virtual clock, to the host or to another card.
    pub link: f64,
    /// Seconds that a copy by its link takes however small it is, on the virtual clock.
    pub link_latency: f64,
    /// The capability of the model it is named after: its simulated kernels are made for it.
    pub model_capability: ComputeCapability,
}

impl PhysicalDevice {
    /// The least capability that is used of simulated cards, as in a TensorFlow 2.21 without extras.
    pub const MINIMUM_CAPABILITY: ComputeCapability = ComputeCapability(3, 5);

    /// The least capability of real cards that compute: kernels are not made for older ones.
    pub const MINIMUM_REAL_CAPABILITY: ComputeCapability = ComputeCapability(8, 0);

    /// The cards of a `--sim-gpus` or PLIMSOLL_SIM_GPUS, in the order written; none for the empty text.
    ///
    /// Groups between `+` (or `;`), each `[MODEL:][COUNTx][SIZE]` and then `,KEY=VALUE` as often as needed: `2x4GiB`,
    /// `k520:4x4095MiB`, `t4`, `a100:8x`, `4x4GiB,overhead=193MiB+1x2GiB,cc=3.0`. A model alone is one card of that model with
    /// its own memory. Keys: `overhead=SIZE`, `cc=MAJOR.MINOR`, `sm=N` (multiprocessors), `clock=MHZ`, `bandwidth=SIZE` (a second),
    /// `link=SIZE` (a second), `latency=MICROSECONDS` (of each copy by the link), `speed=FACTOR`, `numa=N`, `peers=all|none` (the cards of the group reach each other's memory).
    ///
    /// Bus ids follow the order; UUIDs are a function of the whole set, so that processes which name the same set mean the
    /// same cards.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming `option`, its value and the values that it may have.
    pub fn simulated(option: &str, spec: &str) -> Result<Vec<PhysicalDevice>> {
        simulated::cards(spec).map_err(|why| {
            Error::invalid_argument(format!("{option} {spec}: {why}")).with_remedy(format!(
                "write [MODEL:][COUNTx]SIZE, as 2x4GiB or k520:4x4095MiB, then any of ,overhead=SIZE ,cc=3.5 ,sm=16 ,clock=MHZ \
                 ,bandwidth=SIZE ,link=SIZE ,latency=MICROSECONDS ,speed=FACTOR ,numa=N ,peers=all; + between groups; models: {}",
                models::names()
            ))
        })
    }

    /// Whether the processor acts it.
    pub fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// The least capability with which this card is used. A simulated card computes with the processor's kernels, so a model
    /// older than [`PhysicalDevice::MINIMUM_CAPABILITY`] is used as long as its capability was not lowered.
    pub fn minimum_capability(&self) -> ComputeCapability {
        match &self.simulation {
            Some(simulation) => simulation.model_capability.min(PhysicalDevice::MINIMUM_CAPABILITY),
            None => PhysicalDevice::MINIMUM_REAL_CAPABILITY,
        }
    }

    /// Bytes a second that its link to the host carries: seven eighths of a gigabyte by each lane of PCI Express 3, twice as many with each generation
    /// since. Where the link is not known it is that of its time: sixteen lanes of generation 4 up to capability 8, of 5 since.
    pub fn link_bandwidth(&self) -> f64 {
        let [generation, lanes] = self.pcie.unwrap_or([if self.compute_capability.0 < 9 { 4 } else { 5 }, 16]);
        0.875e9 * f64::from(lanes) * 2f64.powi(generation as i32 - 3)
    }

    /// Single-precision operations a second at best: the order of cards from fast to slow.
    pub fn peak_flops(&self) -> f64 {
        2.0 * f64::from(self.multiprocessors) * f64::from(self.compute_capability.cores()) * f64::from(self.clock_mhz) * 1e6
    }
}
