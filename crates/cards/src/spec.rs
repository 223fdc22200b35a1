//! The specification of a logical device.

use plimsoll_base::Bytes;
use plimsoll_device::{CardLink, CardPart, DeviceKind, DeviceSpec, InstructionSet, ModelledLink, RealCard};

use crate::{Card, LogicalDevice, PhysicalDevice};

/// Operations and bytes a second of a real card whose clocks are not known: those of a small one of capability 8.
const UNKNOWN_FLOPS: f64 = 1e13;
const UNKNOWN_BANDWIDTH: f64 = 4e11;

impl LogicalDevice {
    /// Its specification as a processor that computes with so many threads.
    pub fn cpu_spec(&self, threads: u32, instructions: InstructionSet) -> DeviceSpec {
        DeviceSpec { overhead: self.overhead, ..DeviceSpec::cpu(self.index(), self.line(), threads, instructions) }
    }

    /// Its specification as a file.
    pub fn spill_spec(&self) -> DeviceSpec {
        let folder = self.folder.as_deref().map(|folder| folder.display().to_string());
        DeviceSpec::spill(self.index(), self.memory_limit.unwrap_or(Bytes::ZERO), &folder.unwrap_or_default())
    }

    /// Its specification on a simulated card, whose kernels one thread of the processor runs. It is as fast as that, or, on the
    /// virtual clock, as the card's model and `speed=FACTOR` say.
    pub fn simulated_spec(&self, instructions: InstructionSet) -> DeviceSpec {
        let spec = self.spec(instructions);
        let card = self.card.as_ref();
        let simulation = card.and_then(|card| card.device.simulation.as_ref());
        let Some((card, speed)) = card.zip(simulation.and_then(|simulation| simulation.speed)) else { return spec };
        let (flops, bandwidth) = (speed * card.device.peak_flops(), speed * card.device.bandwidth);
        let [latency, link] = simulation.map_or([0.0, bandwidth], |simulation| [simulation.link_latency, simulation.link]);
        let modelled = Some(ModelledLink { latency, bandwidth: link, peers: card.device.peers.clone() });
        DeviceSpec { flops, bandwidth, card: spec.card.map(|part| CardPart { modelled, ..part }), ..spec }
    }

    /// Its specification on a real card, as far as it is known before that is opened. It is as fast as the card's clocks say, where they
    /// are known.
    pub fn real_spec(&self, instructions: InstructionSet) -> DeviceSpec {
        let spec = self.spec(instructions);
        let Some(card) = &self.card else { return spec };
        let known = |value: f64, otherwise: f64| if value > 0.0 { value } else { otherwise };
        let PhysicalDevice { bandwidth, multiprocessors, ref name, ref peers, .. } = card.device;
        let (flops, guess) = (known(card.device.peak_flops(), UNKNOWN_FLOPS), UNKNOWN_BANDWIDTH);
        let link = CardLink { bandwidth: card.device.link_bandwidth(), peers: peers.clone() };
        let real = Some(RealCard { model: name.clone(), multiprocessors, link });
        DeviceSpec { flops, bandwidth: known(bandwidth, guess), card: spec.card.map(|part| CardPart { real, ..part }), ..spec }
    }

    /// The specification of a card that one thread of the processor acts.
    fn spec(&self, instructions: InstructionSet) -> DeviceSpec {
        let card = self.card.as_ref();
        let part = |card: &Card| CardPart { card: card.device.ordinal, priority: self.priority, modelled: None, real: None };
        DeviceSpec {
            name: self.name.clone(),
            kind: DeviceKind::Gpu,
            memory_limit: self.line(),
            overhead: self.overhead,
            card: card.map(part),
            description: card.map_or_else(String::new, Card::description),
            ..DeviceSpec::cpu(0, None, 1, instructions)
        }
    }
}
