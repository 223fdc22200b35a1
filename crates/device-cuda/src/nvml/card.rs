//! One card, in full.

use std::fmt::Display;
use std::fs;

use plimsoll_base::Bytes;
use plimsoll_cards::{ComputeCapability, PhysicalDevice, stream_priorities};

use super::calls::PciAddress;
use super::raw::{Handle, Trouble, Utilization};
use super::{NvidiaCard, Nvml, process};

/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const CLOCK_SM: u32 = 1;
const CLOCK_MEMORY: u32 = 2;
/// `NVML_TEMPERATURE_GPU`.
const TEMPERATURE_GPU: u32 = 0;
/// `NVML_PSTATE_UNKNOWN`.
const STATE_UNKNOWN: u32 = 32;

/// The missing facts.
struct Missing(Vec<String>);

impl Missing {
    /// The value; without one, the reason is kept.
    fn note<T>(&mut self, what: impl Display, found: Result<T, Trouble>) -> Option<T> {
        found.map_err(|trouble| self.0.push(format!("{what}: {trouble}"))).ok()
    }

    /// The same for facts that many cards and drivers do not have: that is no news.
    fn note_unless_common<T>(&mut self, what: impl Display, found: Result<T, Trouble>) -> Option<T> {
        match found {
            Err(Trouble::Missing | Trouble::NOT_SUPPORTED) => None,
            found => self.note(what, found),
        }
    }
}

/// Everything but its peers.
pub(super) fn look(nvml: &Nvml, ordinal: u32, pci: PciAddress, card: Handle) -> NvidiaCard {
    let mut missing = Missing(Vec::new());
    let capability = missing.note("compute capability", nvml.capability(card)).unwrap_or(ComputeCapability(0, 0));
    let memory = missing.note("memory", nvml.memory(card));
    let cores = missing.note_unless_common("cores", nvml.get::<u32>(card, |functions| functions.cores)).unwrap_or(0);
    let max_clock = |which| nvml.get_of::<u32>(card, which, |functions| functions.max_clock);
    let memory_clock = missing.note("memory clock", max_clock(CLOCK_MEMORY)).unwrap_or(0);
    let bus_width = missing.note_unless_common("memory bus", nvml.get::<u32>(card, |functions| functions.bus_width)).unwrap_or(0);
    let pcie =
        missing.note_unless_common("PCI Express", nvml.get::<u32>(card, |functions| functions.pcie_generation)).and_then(|generation| {
            let lanes = missing.note_unless_common("PCI Express", nvml.get::<u32>(card, |functions| functions.pcie_lanes))?;
            // What no card has is not known.
            ((1..=16).contains(&generation) && (1..=64).contains(&lanes)).then_some([generation, lanes])
        });
    let pci_bus_id = pci.to_string();
    // No program can have what the driver keeps.
    let total = memory.map_or(Bytes::ZERO, |memory| memory.total - memory.reserved);
    let mig = nvml.mig(card).unwrap_or(false);
    let device = PhysicalDevice {
        ordinal,
        name: missing.note("name", nvml.text(card, |functions| functions.name)).unwrap_or_else(|| "NVIDIA GPU".into()),
        uuid: missing.note("UUID", nvml.text(card, |functions| functions.uuid)).unwrap_or_default(),
        compute_capability: capability,
        multiprocessors: cores / capability.cores(),
        clock_mhz: missing.note("clock", max_clock(CLOCK_SM)).unwrap_or(0),
        // Two transfers a clock, as CUDA's own samples count.
        bandwidth: 2.0 * f64::from(memory_clock) * 1e6 * f64::from(bus_width) / 8.0,
        pcie,
        total,
        available: memory.map_or(Bytes::ZERO, |memory| memory.free),
        overhead: Bytes::ZERO,
        numa_node: numa_node(&pci_bus_id),
        stream_priorities: stream_priorities(capability),
        unified_memory: true,
        peers: Vec::new(),
        leased: false,
        unusable: mig.then(|| "because it is divided (MIG), and its instances are not listed".into()),
        simulation: None,
        pci_bus_id,
    };
    if mig {
        missing.0.push("instances: the card is divided (MIG), and its instances are not listed".into());
    }
    let number = |function: fn(&super::Functions) -> Option<super::raw::GetFn<u32>>| nvml.get::<u32>(card, function);
    let utilisation = missing.note("utilisation", nvml.get::<Utilization>(card, |functions| functions.utilization));
    let temperature = missing.note("temperature", nvml.get_of::<u32>(card, TEMPERATURE_GPU, |functions| functions.temperature));
    let fan = missing.note_unless_common("fan", number(|functions| functions.fan));
    let power = missing.note_unless_common("power", number(|functions| functions.power));
    let power_limit = missing.note_unless_common("power limit", number(|functions| functions.power_limit));
    let state = missing.note_unless_common("performance state", number(|functions| functions.performance));
    let clock_mhz = missing.note_unless_common("clock now", nvml.get_of::<u32>(card, CLOCK_SM, |functions| functions.clock));
    let compute = missing.note("compute processes", nvml.compute(card)).unwrap_or_default();
    let graphics = missing.note_unless_common("graphics processes", nvml.graphics(card)).unwrap_or_default();
    let shared = missing.note_unless_common("MPS processes", nvml.shared(card)).unwrap_or_default();
    NvidiaCard {
        device,
        memory,
        utilisation: utilisation.map(|percent| percent.gpu),
        temperature,
        fan,
        power: power.map(|milliwatts| (milliwatts + 500) / 1000),
        power_limit: power_limit.map(|milliwatts| (milliwatts + 500) / 1000),
        performance_state: state.filter(|&state| state < STATE_UNKNOWN),
        clock_mhz,
        mig,
        processes: process::join(compute, graphics, shared),
        missing: missing.0,
    }
}

/// Where the system says that the card hangs.
fn numa_node(pci_bus_id: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/bus/pci/devices/{pci_bus_id}/numa_node")).ok()?.trim().parse().ok()
}
