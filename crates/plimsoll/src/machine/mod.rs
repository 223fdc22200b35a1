//! Seeing the machine: its cards, real and simulated, their logical devices, and their holders.
//!
//! ```no_run
//! # fn main() -> plimsoll::Result<()> {
//! let observer = plimsoll::machine::Observer::open(&plimsoll::Options::new(), &plimsoll::machine::environment())?;
//! for process in observer.look().processes {
//!     println!("pid {} uses {:?}", process.pid, process.used);
//! }
//! # Ok(())
//! # }
//! ```

mod observe;

use plimsoll_base::Bytes;
use plimsoll_cards::Environment;

pub use observe::Observer;
pub use plimsoll_cards::config as device_config;
pub use plimsoll_cards::{
    Card, ComputeCapability, CudnnMode, DescribedCard, DescribedCudnn, Division, GpuConfig, Link, LogicalDevice, MachineDescription,
    MatmulPrecision, PhysicalDevice, Processor, Reserve, Spill, VirtualDevices, resolve,
};
pub use plimsoll_device_cuda::{Driver, ProcessKind};
pub use plimsoll_machine::{Guarantee, History, LastUse};
pub use plimsoll_machine::{MACHINE_DIR, Priorities, Scope, SetUp, Setup, UserId, remove as remove_setup};

/// The variables of this process that decide about devices.
pub fn environment() -> Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Environment::of(std::env::vars_os().filter_map(text))
}

/// A machine at one time.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// NVIDIA's driver, where there is one.
    pub driver: Option<Driver>,
    /// Why there is none.
    pub no_driver: Option<String>,
    /// The cards: real ones, then simulated ones, each in the order of PCI bus ids.
    pub cards: Vec<SeenCard>,
    /// The logical devices of a program with these options and variables.
    pub devices: Vec<Part>,
    /// Whose leases are shown; none where there are no cards to share.
    pub ledger: Option<Scope>,
    /// The holders of memory of cards: by card, most first.
    pub processes: Vec<Process>,
    /// The waiters for memory of cards, in the order of the queue.
    pub waiters: Vec<Waiter>,
    /// TensorFlow's log when it creates these devices.
    pub start_log: Vec<String>,
    /// Why no NVIDIA card computes, where one could. The flaw of a ledger: it cannot be used, or a process keeps it locked.
    pub warnings: Vec<String>,
    /// The findings, missing things and reasons, as sentences.
    pub notes: Vec<String>,
}

/// A card, with the facts that change. A missing field is not known.
#[derive(Clone, Debug)]
pub struct SeenCard {
    /// The card; its ordinal counts real and simulated ones each for themselves.
    pub device: PhysicalDevice,
    /// The number under which a program sees it, by CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES; none if it is hidden.
    pub cuda_ordinal: Option<u32>,
    /// Why nothing is computed on it, as half a sentence; none for a card that is used.
    pub unused: Option<String>,
    /// All its memory.
    pub total: Option<Bytes>,
    /// Set aside by programs of ours, whether they use it or not.
    pub reserved: Option<Bytes>,
    /// Used by programs that set nothing aside.
    pub outside: Option<Bytes>,
    /// Used by programs.
    pub used: Option<Bytes>,
    /// The bytes that may still be taken.
    pub free: Option<Bytes>,
    /// Percent of the time in which something ran.
    pub utilisation: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Percent of the fan's full speed.
    pub fan: Option<u32>,
    /// Watts drawn.
    pub power: Option<u32>,
    /// Watts that may be drawn.
    pub power_limit: Option<u32>,
    /// 0 for the fastest of its performance states, to 15.
    pub performance_state: Option<u32>,
    /// The clock now, in MHz.
    pub clock_mhz: Option<u32>,
    /// Whether it is divided into instances (MIG), which are not listed.
    pub mig: bool,
}

/// A logical device of a program.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its name, limit and all that was decided about it.
    pub device: LogicalDevice,
    /// Its hardware.
    pub description: String,
    /// Its card's place in [`View::cards`].
    pub card: Option<usize>,
}

/// A process on a card.
#[derive(Clone, Debug)]
pub struct Process {
    /// The card's place in [`View::cards`].
    pub card: usize,
    /// Its number.
    pub pid: u32,
    /// Its user, where users share the ledger and it has a lease.
    pub user: Option<UserId>,
    /// Its use of the card.
    pub kind: ProcessKind,
    /// The program and its arguments, where that may be known.
    pub program: Option<String>,
    /// The name that its user gave it; may be empty.
    pub name: String,
    /// Set aside; none for programs that are not ours.
    pub reserved: Option<Bytes>,
    /// Used; none where that is not observed.
    pub used: Option<Bytes>,
    /// The most used at once; none where that is not observed, and for programs without a lease.
    pub peak: Option<Bytes>,
    /// How sure it is that it keeps to its reservation; none for programs that are not ours.
    pub guarantee: Option<Guarantee>,
    /// Its use of its reserved bytes on all cards, over time; empty for programs that are not ours.
    pub history: History,
    /// When its lease was last used, where that is observed.
    pub last_use: LastUse,
}

/// A process that waits for memory.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Its number.
    pub pid: u32,
    /// Its user, where users share the ledger.
    pub user: Option<UserId>,
    /// The program and its arguments.
    pub program: String,
    /// The name that its user gave it; may be empty.
    pub name: String,
    /// Higher comes first.
    pub priority: i32,
    /// How many wait before it.
    pub ahead: usize,
    /// On how many of the cards that it names it wants its bytes; 0 for all.
    pub some: usize,
    /// The bytes it asks for, by the card's place in [`View::cards`].
    pub asked: Vec<(usize, Bytes)>,
    /// Why it waits, in words.
    pub why: String,
}

impl SeenCard {
    /// A card of which only the model is known.
    pub fn new(device: PhysicalDevice) -> SeenCard {
        SeenCard {
            device,
            cuda_ordinal: None,
            unused: None,
            total: None,
            reserved: None,
            outside: None,
            used: None,
            free: None,
            utilisation: None,
            temperature: None,
            fan: None,
            power: None,
            power_limit: None,
            performance_state: None,
            clock_mhz: None,
            mig: false,
        }
    }
}

impl View {
    /// The name of a card in listings: its ordinal, with an `s` before it for a simulated one where there are real ones too.
    pub fn label(&self, card: usize) -> String {
        let has_real = self.cards.iter().any(|card| !card.device.is_simulated());
        let Some(card) = self.cards.get(card) else { return "?".into() };
        let mark = if has_real && card.device.is_simulated() { "s" } else { "" };
        format!("{mark}{}", card.device.ordinal)
    }
}
