//! The specification of a logical device on a simulated card.

use plimsoll_device::{CardPart, DeviceKind, DeviceSpec, InstructionSet, ModelledLink};

use crate::{Card, LogicalDevice};

impl LogicalDevice {
    /// Its specification on a simulated card, whose kernels one thread of the processor runs. It is as fast as that, or, on the
    /// virtual clock, as the card's model and `speed=FACTOR` say.
    pub fn simulated_spec(&self, instructions: InstructionSet) -> DeviceSpec {
        let cpu = DeviceSpec::cpu(0, None, 1, instructions);
        let card = self.card.as_ref();
        let simulation = card.and_then(|card| card.device.simulation.as_ref());
        let speed = card.zip(simulation.and_then(|simulation| simulation.speed));
        let (flops, bandwidth) = match speed {
            Some((card, speed)) => (speed * card.device.peak_flops(), speed * card.device.bandwidth),
            None => (cpu.flops, cpu.bandwidth),
        };
        let link = |(card, _): (&Card, f64)| ModelledLink {
            bandwidth: simulation.map_or(bandwidth, |simulation| simulation.link),
            peers: card.device.peers.clone(),
        };
        let part = |card: &Card| CardPart { card: card.device.ordinal, priority: self.priority, modelled: speed.map(link) };
        DeviceSpec {
            name: self.name.clone(),
            kind: DeviceKind::Gpu,
            memory_limit: self.line(),
            overhead: self.overhead,
            flops,
            bandwidth,
            card: card.map(part),
            description: card.map_or_else(String::new, Card::description),
            ..cpu
        }
    }
}
