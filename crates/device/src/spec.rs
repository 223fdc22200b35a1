//! A device as the planner knows it.

use std::fmt;

use plimsoll_base::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Caches, Cost, DeviceName};

/// The kinds of device that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeviceKind {
    /// Processor cores with the host's memory.
    Cpu,
    /// A graphics card, real or simulated.
    Gpu,
    /// A file in which values of processors wait. It computes nothing, and nothing is placed on it.
    Spill,
}

impl DeviceKind {
    /// TensorFlow's type name: `CPU`, `GPU`; `SPILL` for a file.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
            DeviceKind::Spill => "SPILL",
        }
    }

    /// Whether nodes can be placed on its devices.
    pub fn computes(self) -> bool {
        self != DeviceKind::Spill
    }

    /// The kind of that type name, of those that compute; letter case counts, as in TensorFlow.
    pub fn from_name(name: &str) -> Option<DeviceKind> {
        match name {
            "CPU" => Some(DeviceKind::Cpu),
            "GPU" => Some(DeviceKind::Gpu),
            _ => None,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A logical device: everything that plans depend on, and nothing that changes while it is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// The full name.
    pub name: DeviceName,
    /// Its kind.
    pub kind: DeviceKind,
    /// How many bytes may be reserved on it; none is no limit.
    pub memory_limit: Option<Bytes>,
    /// The machine's memory, where the device has its own from there: devices without a limit share it. None where it is not
    /// known, and for devices with memory of their own.
    pub machine: Option<Bytes>,
    /// Bytes of the limit that the device takes for itself, from the moment when it is opened.
    pub overhead: Bytes,
    /// Reservations are multiples of this many bytes.
    pub granularity: u64,
    /// Buffers in an arena begin at multiples of this many bytes.
    pub alignment: u64,
    /// The instructions of the processor that computes for it.
    pub instructions: InstructionSet,
    /// The instructions for products of numbers of bf16, where products and convolutions of floats may round their operands to bf16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<Bf16Instructions>,
    /// The caches of that processor.
    #[serde(default)]
    pub caches: Caches,
    /// Threads that may compute for it at once; every one has its slice of scratch.
    pub threads: u32,
    /// Arithmetic operations in a second, all threads together: for predictions where no table of costs has the device.
    pub flops: f64,
    /// Bytes read and written in a second, all threads together: for predictions where no table of costs has the device.
    pub bandwidth: f64,
    /// The part of a card that it is; none for a processor.
    pub card: Option<CardPart>,
    /// Its hardware, for listings.
    pub description: String,
}

/// A logical device's part in its card. Logical devices of one card compute by turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardPart {
    /// The card's number on the machine.
    pub card: u32,
    /// The priority of its streams; among those that are ready, a smaller number goes first.
    pub priority: i32,
    /// How copies to and from the card are modelled; none where no time is.
    pub modelled: Option<ModelledLink>,
    /// What predictions know of a real card; none for one that the processor acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealCard>,
}

/// A real card, as far as predictions know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealCard {
    /// The driver's name of the model: tables of costs have cards by it.
    pub model: String,
    /// Its multiprocessors; 0 where they are not known.
    pub multiprocessors: u32,
    /// What joins it to the host and to other cards.
    pub link: CardLink,
}

/// The link of a real card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardLink {
    /// Bytes carried in a second, to or from pinned memory of the host.
    pub bandwidth: f64,
    /// Numbers of the cards whose memory it reaches directly.
    pub peers: Vec<u32>,
}

impl CardLink {
    /// Seconds that a copy to the card takes however small it is.
    pub const TO_CARD: f64 = 2e-5;

    /// Seconds that a copy to the host takes however small it is: the host waits until the card has come so far.
    pub const TO_HOST: f64 = 5e-5;

    /// Bytes that the host moves into or out of pinned memory in a second, by one thread. All that is copied between host and card takes this way.
    pub const STAGING: f64 = 1.2e10;

    /// Bytes of a copy to the card behind which pieces are moved into pinned memory while others are carried.
    pub const TOGETHER: f64 = (4 << 20) as f64;

    /// Seconds of so many bytes from the host's memory to the card's.
    fn to_card(&self, bytes: f64) -> f64 {
        let (slow, fast) = (self.bandwidth.min(CardLink::STAGING), self.bandwidth.max(CardLink::STAGING));
        CardLink::TO_CARD + bytes / slow + bytes.min(CardLink::TOGETHER) / fast
    }

    /// Seconds of so many bytes from the card's memory to the host's: one piece after the other.
    fn to_host(&self, bytes: f64) -> f64 {
        CardLink::TO_HOST + bytes / self.bandwidth + bytes / CardLink::STAGING
    }
}

/// The link that joins a card of modelled speed to the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelledLink {
    /// Seconds that a copy takes however small it is.
    #[serde(default, skip_serializing_if = "is_none")]
    pub latency: f64,
    /// Bytes carried in a second.
    pub bandwidth: f64,
    /// Numbers of the cards whose memory it reaches directly.
    pub peers: Vec<u32>,
}

/// Whether there is no latency.
fn is_none(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl ModelledLink {
    /// Seconds of a copy of so many bytes between the card and the host.
    fn seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }
}

impl DeviceSpec {
    /// Bytes to which reservations on processors are rounded: the smallest page.
    pub const CPU_GRANULARITY: u64 = 4096;

    /// Alignment of buffers on processors: a cache line, and the widest vector.
    pub const CPU_ALIGNMENT: u64 = 64;

    /// The logical device `CPU:index` of this process, computing with `threads` threads of `instructions`.
    pub fn cpu(index: u32, memory_limit: Option<Bytes>, threads: u32, instructions: InstructionSet) -> DeviceSpec {
        DeviceSpec {
            name: DeviceName::local("CPU", index),
            kind: DeviceKind::Cpu,
            memory_limit,
            machine: None,
            overhead: Bytes::ZERO,
            granularity: DeviceSpec::CPU_GRANULARITY,
            alignment: DeviceSpec::CPU_ALIGNMENT,
            instructions,
            bf16: None,
            caches: Caches::default(),
            threads,
            flops: instructions.flops() * f64::from(threads),
            // One core draws about half the bandwidth of two or more.
            bandwidth: if threads > 1 { 2e10 } else { 1e10 },
            card: None,
            description: format!("{instructions}, {threads} {}", if threads == 1 { "thread" } else { "threads" }),
        }
    }

    /// Alignment of buffers in a file, and the granularity of its reservations: what direct access to any disk asks for.
    pub const SPILL_ALIGNMENT: u64 = 4096;

    /// Bytes that a file reads or writes in a second. A constant, as [`InstructionSet::flops`] is: a disk of a server.
    pub const SPILL_BANDWIDTH: f64 = 1e9;

    /// Seconds that an access to a file takes however small it is.
    pub const SPILL_LATENCY: f64 = 1e-4;

    /// The file `SPILL:index` of this process, of at most so many bytes, in a folder.
    pub fn spill(index: u32, bytes: Bytes, folder: &str) -> DeviceSpec {
        DeviceSpec {
            name: DeviceName::local("SPILL", index),
            kind: DeviceKind::Spill,
            granularity: DeviceSpec::SPILL_ALIGNMENT,
            alignment: DeviceSpec::SPILL_ALIGNMENT,
            bandwidth: DeviceSpec::SPILL_BANDWIDTH,
            description: format!("a file in {folder}"),
            ..DeviceSpec::cpu(index, Some(bytes), 1, InstructionSet::Baseline)
        }
    }

    /// Bytes of the buffer of a processor that the accesses to a file of so many bytes go through: enough for direct access at the
    /// disk's speed, and little beside the file.
    pub fn spill_buffer(bytes: Bytes) -> Bytes {
        Bytes((bytes.0 / 16).clamp(DeviceSpec::SPILL_ALIGNMENT, 1 << 20)).round_up(DeviceSpec::SPILL_ALIGNMENT)
    }

    /// The specification without the fields that do not say whether a plan can run: the line, the machine's memory, the caches, what
    /// predictions know of a real card, the description.
    pub fn without_limits(&self) -> DeviceSpec {
        let (caches, card) = (Caches::default(), self.part_without_predictions());
        DeviceSpec { memory_limit: None, machine: None, caches, card, description: String::new(), ..self.clone() }
    }

    fn part_without_predictions(&self) -> Option<CardPart> {
        self.card.clone().map(|part| CardPart { real: None, ..part })
    }

    /// The first difference of a device from this one that a plan may depend on, in words. None where it does not.
    pub fn difference(&self, other: &DeviceSpec) -> Option<String> {
        fn of<T: PartialEq>(what: &str, mine: &T, theirs: &T, said: impl Fn(&T) -> String) -> Option<String> {
            (mine != theirs).then(|| format!("{what} {}, not {}", said(theirs), said(mine)))
        }
        of("called", &self.name, &other.name, DeviceName::to_string)
            .or_else(|| of("a", &self.kind, &other.kind, DeviceKind::to_string))
            .or_else(|| of("computing with", &self.instructions, &other.instructions, InstructionSet::to_string))
            .or_else(|| of("rounding operands of products:", &self.bf16.is_some(), &other.bf16.is_some(), bool::to_string))
            .or_else(|| of("computing with threads:", &self.threads, &other.threads, u32::to_string))
            .or_else(|| of("reserving multiples of", &self.granularity, &other.granularity, u64::to_string))
            .or_else(|| of("aligning buffers to", &self.alignment, &other.alignment, u64::to_string))
            .or_else(|| of("taking for itself", &self.overhead, &other.overhead, Bytes::to_string))
            .or_else(|| of("of operations a second:", &self.flops, &other.flops, f64::to_string))
            .or_else(|| of("of bytes a second:", &self.bandwidth, &other.bandwidth, f64::to_string))
            .or_else(|| of("a part of", &self.part_without_predictions(), &other.part_without_predictions(), |part| format!("{part:?}")))
    }

    /// Whether its time is that of a virtual clock.
    pub fn is_modelled(&self) -> bool {
        self.link().is_some()
    }

    fn link(&self) -> Option<&ModelledLink> {
        self.card.as_ref()?.modelled.as_ref()
    }

    /// What is known of it, if it is a part of a real card.
    pub fn real(&self) -> Option<&RealCard> {
        self.card.as_ref()?.real.as_ref()
    }

    /// The part of a card's bandwidth that kernels come to which read and write much.
    pub const REACHED: f64 = 0.8;

    /// Seconds of a kernel, or of a copy in a card's memory, beside what it computes and moves, where a graph of the driver launches it.
    pub const LAUNCH: f64 = 3.5e-6;

    /// The predicted seconds of a copy from `from`, where one of the two is a part of a real card, and the other one no file. Bytes between two cards
    /// that do not reach each other go by way of the host.
    fn real_copy_seconds(&self, from: &DeviceSpec, bytes: f64) -> Option<f64> {
        let is_one_card = self.card.as_ref().zip(from.card.as_ref()).is_some_and(|(here, there)| here.card == there.card);
        let number = |spec: &DeviceSpec| spec.card.as_ref().map(|card| card.card);
        match (self.real().map(|real| &real.link), from.real().map(|real| &real.link)) {
            (Some(_), Some(_)) if is_one_card => Some(DeviceSpec::LAUNCH + 2.0 * bytes / (DeviceSpec::REACHED * self.bandwidth)),
            (Some(here), Some(there)) => {
                let is_peer = number(from).is_some_and(|from| here.peers.contains(&from));
                let through_host = there.to_host(bytes) + here.to_card(bytes);
                Some(if is_peer { CardLink::TO_CARD + bytes / here.bandwidth.min(there.bandwidth) } else { through_host })
            }
            (Some(here), None) => Some(here.to_card(bytes)),
            (None, Some(there)) => Some(there.to_host(bytes)),
            (None, None) => None,
        }
    }

    /// The predicted seconds of a copy of `bytes` bytes from the memory of `from` to this device's, when nothing else is copied.
    /// Bytes that leave or enter a card take its link, real or of modelled speed, with the latencies on their way. Between two cards that do not
    /// reach each other they go by way of the host. A file has a latency and a bandwidth of its own.
    pub fn copy_seconds(&self, from: &DeviceSpec, bytes: f64) -> f64 {
        let is_one_memory = match (&self.card, &from.card) {
            (Some(here), Some(there)) => here.card == there.card,
            _ => false,
        };
        match (self.link(), from.link()) {
            _ if !self.kind.computes() => DeviceSpec::SPILL_LATENCY + bytes / self.bandwidth,
            _ if !from.kind.computes() => DeviceSpec::SPILL_LATENCY + bytes / from.bandwidth,
            (None, None) if self.real().or(from.real()).is_some() => self.real_copy_seconds(from, bytes).unwrap_or_default(),
            _ if is_one_memory => self.seconds(Cost { flops: 0.0, bytes: 2.0 * bytes }),
            (Some(here), Some(there)) => {
                let is_peer = from.card.as_ref().is_some_and(|from| here.peers.contains(&from.card));
                match is_peer {
                    true => here.latency.max(there.latency) + bytes / here.bandwidth.min(there.bandwidth),
                    false => here.seconds(bytes) + there.seconds(bytes),
                }
            }
            (Some(link), None) | (None, Some(link)) => link.seconds(bytes),
            (None, None) => self.seconds(Cost { flops: 0.0, bytes: 2.0 * bytes }),
        }
    }

    /// The predicted seconds of `cost` when the device does nothing else: it computes and moves bytes at the same time.
    pub fn seconds(&self, cost: Cost) -> f64 {
        (cost.flops / self.flops).max(cost.bytes / self.bandwidth)
    }
}

/// Instructions that multiply pairs of numbers of bf16 and add the products to floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bf16Instructions {
    /// AVX512-BF16, with [`InstructionSet::Avx512`].
    Avx512,
}

impl Bf16Instructions {
    /// Those of this processor; none where it has none.
    pub fn detect() -> Option<Bf16Instructions> {
        #[cfg(target_arch = "x86_64")]
        if InstructionSet::detect() == InstructionSet::Avx512 && is_x86_feature_detected!("avx512bf16") {
            return Some(Bf16Instructions::Avx512);
        }
        None
    }
}

/// The widest vectors of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InstructionSet {
    /// The instructions of every processor of the architecture.
    Baseline,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with those of [`InstructionSet::Avx2`].
    Avx512,
    /// 64-bit ARM with Advanced SIMD.
    Neon,
}

impl InstructionSet {
    /// The instructions of this processor.
    pub fn detect() -> InstructionSet {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match (avx2, avx512) {
                (true, true) => return InstructionSet::Avx512,
                (true, false) => return InstructionSet::Avx2,
                (false, _) => {}
            }
        }
        if cfg!(target_arch = "aarch64") { InstructionSet::Neon } else { InstructionSet::Baseline }
    }

    /// Arithmetic operations a second that a core of a server comes to in a good product kernel. A constant, so that plans do
    /// not depend on the weather.
    pub fn flops(self) -> f64 {
        match self {
            InstructionSet::Baseline => 2e10,
            InstructionSet::Avx2 => 8e10,
            InstructionSet::Avx512 => 2e11,
            InstructionSet::Neon => 4e10,
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            InstructionSet::Baseline => std::env::consts::ARCH,
            InstructionSet::Avx2 => "x86_64 with AVX2",
            InstructionSet::Avx512 => "x86_64 with AVX-512",
            InstructionSet::Neon => "aarch64",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_says_what_it_is() {
        let spec = DeviceSpec::cpu(1, Some(Bytes(1 << 20)), 2, InstructionSet::Avx2);
        assert_eq!(spec.name.to_string(), "/job:localhost/replica:0/task:0/device:CPU:1");
        assert_eq!((spec.granularity, spec.alignment, spec.threads), (4096, 64, 2));
        assert_eq!(spec.description, "x86_64 with AVX2, 2 threads");
        assert_eq!(DeviceKind::from_name(spec.kind.name()), Some(DeviceKind::Cpu));
        assert_eq!(DeviceKind::from_name("gpu"), None);
        // No option of devices that compute is for a file.
        assert_eq!(DeviceKind::from_name(DeviceKind::Spill.name()), None);
    }

    #[test]
    fn differences_are_said_where_plans_depend_on_them() {
        let spec = DeviceSpec::cpu(0, Some(Bytes(1 << 20)), 2, InstructionSet::Avx2);
        let with = |instructions, threads| spec.difference(&DeviceSpec::cpu(0, None, threads, instructions));
        assert_eq!(with(InstructionSet::Avx2, 2), None);
        assert_eq!(with(InstructionSet::Avx2, 4).unwrap(), "computing with threads: 4, not 2");
        assert_eq!(with(InstructionSet::Avx512, 4).unwrap(), "computing with x86_64 with AVX-512, not x86_64 with AVX2");
    }

    #[test]
    fn a_file_has_a_latency_and_a_bandwidth() {
        let (cpu, file) = (DeviceSpec::cpu(0, None, 2, InstructionSet::Avx2), DeviceSpec::spill(0, Bytes(1 << 30), "/tmp"));
        assert_eq!((file.name.short().as_str(), file.description.as_str()), ("SPILL:0", "a file in /tmp"));
        for (to, from) in [(&cpu, &file), (&file, &cpu)] {
            assert_eq!(to.copy_seconds(from, 0.0), DeviceSpec::SPILL_LATENCY);
            assert!((to.copy_seconds(from, 2e9) - 2.0 - DeviceSpec::SPILL_LATENCY).abs() < 1e-9);
        }
    }

    #[test]
    fn the_slower_of_arithmetic_and_memory_counts() {
        let spec = DeviceSpec { flops: 10.0, bandwidth: 5.0, ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) };
        assert_eq!(spec.seconds(Cost { flops: 100.0, bytes: 10.0 }), 10.0);
        assert_eq!(spec.seconds(Cost { flops: 10.0, bytes: 100.0 }), 20.0);
    }
}
