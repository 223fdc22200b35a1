//! Logical devices: the parts into which cards and processors are divided.

use std::path::PathBuf;

use plimsoll_base::Bytes;
use plimsoll_device::{DeviceKind, DeviceName};

use crate::PhysicalDevice;

/// A card as this process sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Its number among those that CUDA_VISIBLE_DEVICES leaves: TensorFlow's platform device id.
    pub ordinal: u32,
    /// Its kind and its number on the machine.
    pub device: PhysicalDevice,
}

impl Card {
    /// TensorFlow's `physical_device_desc`: `device: 0, name: Tesla T4, pci bus id: 0000:00:1e.0, compute capability: 7.5`, and
    /// `, simulated` where it is.
    pub fn description(&self) -> String {
        format!("device: {}, {}", self.ordinal, self.properties())
    }

    /// The line of the start log: `Found device 0 with properties: name: …, total memory: 4 GiB`, and the bytes of its context
    /// where they are known.
    pub fn found(&self) -> String {
        let PhysicalDevice { total, overhead, .. } = &self.device;
        let context = if *overhead > Bytes::ZERO { format!(", context: {overhead}") } else { String::new() };
        format!("Found device {} with properties: {}, total memory: {total}{context}", self.ordinal, self.properties())
    }

    fn properties(&self) -> String {
        let PhysicalDevice { name, pci_bus_id, compute_capability, .. } = &self.device;
        let simulated = if self.device.is_simulated() { ", simulated" } else { "" };
        format!("name: {name}, pci bus id: {pci_bus_id}, compute capability: {compute_capability}{simulated}")
    }
}

/// How much is reserved on the card when a logical device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The whole limit: an amount was set, or all was asked for.
    Whole,
    /// Nothing: memory is taken as steps need it, and stays.
    Growth,
    /// The bytes that loaded plans need.
    Plan,
}

/// Which allocator serves requests that no plan knows beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocatorKind {
    /// Best fit with coalescing.
    #[default]
    Bfc,
    /// The driver, every time.
    CudaMalloc,
    /// The driver's stream-ordered pool.
    CudaMallocAsync,
    /// Best fit with guard words around each piece.
    MemoryGuard,
}

/// How that allocator behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocatorOptions {
    /// Which one it is.
    pub kind: AllocatorKind,
    /// Whether it begins small and grows, rather than with its whole limit.
    pub growth: bool,
    /// Whether an allocation that fails waits for others to end before it says so.
    pub retry: bool,
    /// Whether regions without a used piece are given back before an allocation fails.
    pub garbage_collection: bool,
    /// The share of the limit that may be handed out in excess; 0 for the default.
    pub fragmentation_fraction: f64,
}

impl Default for AllocatorOptions {
    fn default() -> AllocatorOptions {
        AllocatorOptions { kind: AllocatorKind::Bfc, growth: false, retry: true, garbage_collection: true, fragmentation_fraction: 0.0 }
    }
}

/// How pinned host memory for copies from and to cards is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedHost {
    /// The most there may be.
    pub limit: Bytes,
    /// Whether it is taken as it is needed.
    pub growth: bool,
}

/// A way from one GPU to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of the other GPU.
    pub device: u32,
    /// Whether both are one card.
    pub same_card: bool,
}

impl Link {
    /// TensorFlow's name for it: `SAME_DEVICE`, or `StreamExecutor` for direct access between cards.
    pub fn kind(&self) -> &'static str {
        if self.same_card { "SAME_DEVICE" } else { "StreamExecutor" }
    }

    /// TensorFlow's strength.
    pub fn strength(&self) -> i32 {
        if self.same_card { 1000 } else { 1 }
    }
}

/// A logical device before it is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct LogicalDevice {
    /// The full name.
    pub name: DeviceName,
    /// Its kind.
    pub kind: DeviceKind,
    /// The card that it is a part of; none for a processor.
    pub card: Option<Card>,
    /// The folder that it is a file in; none for devices that compute.
    pub folder: Option<PathBuf>,
    /// How many bytes may be handed out on it, overhead not counted: TensorFlow's limit. Only a processor may have none.
    pub memory_limit: Option<Bytes>,
    /// Its share of the overhead of the card's context; of the first processor the buffer of a file. The line is the limit and this
    /// together.
    pub overhead: Bytes,
    /// The bytes that are reserved when it is opened.
    pub reserve: Reserve,
    /// Whether reserved bytes are touched at once.
    pub preallocate: bool,
    /// Whether its memory may spill to the host, so that the limit may be above the card's memory.
    pub unified_memory: bool,
    /// The priority of its streams; a smaller number goes first.
    pub priority: i32,
    /// How it allocates memory that no plan knows beforehand.
    pub allocator: AllocatorOptions,
    /// The NUMA node; 0 where it is not known.
    pub numa_node: u32,
    /// The other GPUs that it reaches directly.
    pub links: Vec<Link>,
    /// Why it is as it is: one short sentence for each decision, in the order they were made.
    pub reasons: Vec<String>,
}

impl LogicalDevice {
    /// The number in its name.
    pub fn index(&self) -> u32 {
        self.name.index.unwrap_or_default()
    }

    /// All that it may take, overhead included.
    pub fn line(&self) -> Option<Bytes> {
        self.memory_limit.map(|limit| limit + self.overhead)
    }

    /// The size of the first region that its allocator takes: 2 MiB with growth, else the whole limit, both rounded up to 256
    /// bytes. None without a limit.
    pub fn first_region(&self) -> Option<Bytes> {
        let first = if self.allocator.growth { Bytes(2 << 20) } else { Bytes(u64::MAX) };
        self.memory_limit.map(|limit| limit.min(first).round_up(256))
    }

    /// TensorFlow's name of its allocator: `GPU_0_bfc`, `cpu`.
    pub fn allocator_name(&self) -> String {
        match (self.kind, self.allocator.kind) {
            (DeviceKind::Cpu, _) => "cpu".into(),
            (DeviceKind::Spill, _) => "file".into(),
            (DeviceKind::Gpu, AllocatorKind::CudaMallocAsync) => "gpu_async_".to_string() + &self.index().to_string(),
            (DeviceKind::Gpu, _) => format!("GPU_{}_bfc", self.index()),
        }
    }

    /// The line of the start log: `Created device /job:localhost/replica:0/task:0/device:GPU:0 with 1234 MB memory:  -> device: 0,
    /// name: …`; none for a processor.
    pub fn created(&self) -> Option<String> {
        let (card, limit) = (self.card.as_ref()?, self.memory_limit?);
        Some(format!("Created device {} with {} MB memory:  -> {}", self.name, limit.0 >> 20, card.description()))
    }
}

/// A card that the process sees and does not use.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The card.
    pub card: Card,
    /// Why, as a sentence.
    pub why: String,
}

/// A machine, divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The logical devices: CPUs, then GPUs, each in the order of their numbers; then the file in which values of processors wait.
    pub devices: Vec<LogicalDevice>,
    /// The cards that the process sees, whether they are used or not, in the order of their numbers.
    pub seen: Vec<Card>,
    /// Of those, the ones that cannot be used.
    pub left_out: Vec<LeftOut>,
    /// Pinned host memory, where there are GPUs.
    pub pinned_host: Option<PinnedHost>,
    /// Options without effect, and why; options that narrowed the choice.
    pub notes: Vec<String>,
    /// Why cards that could be used are not, as a sentence: set by the caller, who left them out of the division.
    pub obstacle: Option<String>,
}

impl Division {
    /// The logical devices of a kind.
    pub fn of(&self, kind: DeviceKind) -> impl Iterator<Item = &LogicalDevice> {
        self.devices.iter().filter(move |device| device.kind == kind)
    }

    /// TensorFlow's log of created devices: the cards that were found, those that are left out, and which GPU is on which card.
    /// Nothing where no card is asked for.
    pub fn start_log(&self) -> Vec<String> {
        let created: Vec<String> = self.devices.iter().filter_map(LogicalDevice::created).collect();
        if created.is_empty() && self.left_out.is_empty() {
            return Vec::new();
        }
        let ignored = self.left_out.iter().map(|left| format!("Ignoring visible gpu device ({}) {}", left.card.description(), left.why));
        self.seen.iter().map(Card::found).chain(ignored).chain(created).collect()
    }
}
