//! The devices of a program: opened once from options, shared by its sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::config::{find_device, get_memory_info, reset_memory_stats};
use plimsoll_cards::{Division, Environment, LogicalDevice, MachineDescription, Options, PhysicalDevice};
use plimsoll_device::{Costs, Device, DeviceKind, DeviceSpec, Library, Tuned, TunedFor};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_spill::SpillDevice;
use plimsoll_kernels::CpuKernels;

use crate::cancellation::Asking;
use crate::cards::Found;
use crate::grants::{Idle, Turns};

/// Logical devices with their lines, and the threads that compute for them. Cloning shares them. Two `Devices` in one process
/// behave as two processes.
#[derive(Clone)]
pub struct Devices(Arc<Inner>, Arc<Options>);

struct Inner {
    /// First: it ends before the devices do.
    idle: Idle,
    turns: Turns,
    asking: Arc<Asking>,
    devices: Vec<Arc<dyn Device>>,
    specs: Vec<DeviceSpec>,
    costs: Arc<Costs>,
    division: Option<Division>,
    sessions: AtomicU64,
}

/// How much of a device is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The full name.
    pub name: String,
    /// Its hardware.
    pub description: String,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// Bytes in use now, as counted where memory is asked for.
    pub in_use: Bytes,
    /// The most bytes in use at once, counted there.
    pub peak: Bytes,
    /// Bytes reserved now.
    pub reserved: Bytes,
}

impl Devices {
    /// Opens the devices that the options make of this machine, whatever the environment says. Of cards, simulated ones only.
    ///
    /// # Errors
    /// As [`Devices::open_in`].
    pub fn open(options: &Options) -> Result<Devices> {
        Devices::open_in(options, &Environment::new().with("PLIMSOLL_NVML", ""))
    }

    /// Opens the devices that options and environment make of this machine. Its cards are simulated ones where they are asked for, else
    /// those of NVIDIA's driver, unless PLIMSOLL_NVML is empty. On cards, bytes that have to be held from the beginning are reserved.
    /// Real cards that cannot be used are left out, and [`Division::obstacle`] says why.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense, and for GPUs that they name and that cannot be used.
    /// RESOURCE_EXHAUSTED where a card has no room, with the holders.
    pub fn open_in(options: &Options, environment: &Environment) -> Result<Devices> {
        let found = Found::look(options, environment)?;
        let processor = crate::cards::processor();
        let threads = options.threads_in(environment, processor.cores)?;
        let pool = CpuPool::with_inter_op(threads, options.queues_in(environment))?;
        let asking = Arc::default();
        let (mut division, gpus) = crate::cards::open(found, options, environment, &asking)?;
        division.notes.extend(untimed(options, &gpus));
        let cpus = crate::cards::processors(&division, &processor, threads, options).into_iter();
        let cpus = cpus.map(|spec| Arc::new(CpuDevice::new(spec, pool.clone(), Arc::new(CpuKernels))) as Arc<dyn Device>);
        let cpus: Vec<Arc<dyn Device>> = cpus.collect();
        let files = division.of(DeviceKind::Spill).map(|file| spill(file, &*cpus[0])).collect::<Result<Vec<_>>>()?;
        let devices = cpus.into_iter().chain(gpus).chain(files).collect();
        Devices::of(devices, options, Some(division), asking)
    }

    /// The devices that the options make of a machine that is not here: as [`Devices::open_in`] there, with no variable set. Plans are
    /// made for them as for others, and are those of that machine. They have no memory, and run nothing: FAILED_PRECONDITION. The environment says
    /// where cuDNN is, which plans for cards of a machine that has the same version; where it is not, a note of the division says so.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming option and value for options that make no sense for that machine, and for simulated cards beside it.
    /// FAILED_PRECONDITION for a GPU on a real card that was not opened when the machine was described, and where cuDNN has to compute and cannot plan.
    pub fn described(options: &Options, machine: &MachineDescription, environment: &Environment) -> Result<Devices> {
        if let Some(cards) = &options.sim_gpus {
            let message = format!("--sim-gpus {cards}: a described machine has the cards that its description says");
            return Err(Error::invalid_argument(message).with_remedy("describe a machine with these cards"));
        }
        let (division, devices) = crate::cards::described(machine, options, environment)?;
        Devices::of(devices, options, Some(division), Arc::default())
    }

    /// This machine, as another one needs to know it to plan for it. Of the options, those of simulated cards count. Cards are opened,
    /// which says what of them programs cannot have; what other programs hold of real cards is not available on the described ones.
    ///
    /// # Errors
    /// As [`Devices::open_in`].
    pub fn describe(options: &Options, environment: &Environment) -> Result<MachineDescription> {
        crate::cards::describe(options, environment)
    }

    /// The division that [`Devices::open_in`] would make of this machine. No device is opened, and nothing is reserved: the bytes that
    /// contexts take on real cards are not known.
    ///
    /// # Errors
    /// As [`Devices::open_in`], but for room.
    pub fn divide(options: &Options, environment: &Environment) -> Result<Division> {
        Found::look(options, environment).map(|found| found.division)
    }

    /// For each device, the kernels that it has.
    pub(crate) fn libraries(&self) -> Vec<&dyn Library> {
        self.all().iter().map(|device| device.library()).collect()
    }

    /// What kernels take, for predictions and decisions.
    pub fn costs(&self) -> &Costs {
        &self.0.costs
    }

    /// Devices from another maker.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where there is none, and where one that computes is behind a file.
    pub fn with(devices: Vec<Arc<dyn Device>>, options: &Options) -> Result<Devices> {
        Devices::of(devices, options, None, Arc::default())
    }

    fn of(devices: Vec<Arc<dyn Device>>, options: &Options, division: Option<Division>, asking: Arc<Asking>) -> Result<Devices> {
        if devices.is_empty() {
            return Err(Error::failed_precondition("there are no devices"));
        }
        let computes = |device: &Arc<dyn Device>| device.spec().kind.computes();
        if !devices.is_sorted_by_key(|device| !computes(device)) {
            return Err(Error::failed_precondition("a device that computes is behind a file"));
        }
        let idle = Idle::new(&devices);
        let costs = options.costs.clone().unwrap_or_else(|| Arc::new(Costs::committed()));
        let specs: Vec<DeviceSpec> = devices.iter().map(|device| device.spec().clone()).collect();
        let costs = Arc::new(Costs::clone(&costs).with_cards(&specs, plimsoll_device_cuda::priced_by));
        let costs = match &options.tuned {
            Some(tuned) => Arc::new(Costs::clone(&costs).beside(tuned)),
            None => costs,
        };
        let costs = if options.exact_convolutions { Arc::new(Costs::clone(&costs).with_exact_convolutions()) } else { costs };
        let (turns, sessions) = (Turns::default(), AtomicU64::new(0));
        let inner = Inner { idle, turns, asking, devices, specs, costs, division, sessions };
        Ok(Devices(Arc::new(inner), Arc::new(options.clone())))
    }

    /// The same devices, for sessions that place their nodes softly or not, and log it or not.
    #[must_use]
    pub fn with_placement(&self, soft: bool, log: bool) -> Devices {
        let options = self.options().clone().soft_placement(soft).log_placement(log);
        Devices(self.0.clone(), Arc::new(options))
    }

    /// The cards of this machine that [`Devices::open_in`] divides, as the part that a lease has of them. Whichever of them a program
    /// sees: of the options, those of the division say nothing here.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a text of simulated cards that makes no sense; those of a lease that has ended.
    pub fn cards(options: &Options, environment: &Environment) -> Result<Vec<PhysicalDevice>> {
        let of_the_machine = options.sim_gpus.iter().fold(Options::new(), |all, cards| all.sim_gpus(cards));
        Found::look_at_all(&of_the_machine, environment).map(|found| found.cards)
    }

    /// The specifications that plans are made for.
    pub fn specs(&self) -> &[DeviceSpec] {
        &self.0.specs
    }

    /// The options that they were opened with.
    pub fn options(&self) -> &Options {
        &self.1
    }

    /// How the machine was divided: cards that were found and left out, and why each logical device is as it is. None where the
    /// devices have another maker.
    pub fn division(&self) -> Option<&Division> {
        self.0.division.as_ref()
    }

    /// TensorFlow's log when it creates devices, one line each; see [`Division::start_log`]. Nothing is written anywhere.
    pub fn start_log(&self) -> Vec<String> {
        self.division().map_or_else(Vec::new, Division::start_log)
    }

    /// How much of each device is in use.
    pub fn report(&self) -> Vec<DeviceReport> {
        let report = |device: &Arc<dyn Device>| {
            let (spec, usage) = (device.spec(), device.usage());
            DeviceReport {
                name: spec.name.to_string(),
                description: spec.description.clone(),
                limit: spec.memory_limit,
                in_use: usage.measured,
                peak: usage.measured_peak,
                reserved: usage.in_use,
            }
        };
        self.0.devices.iter().map(report).collect()
    }

    /// Forgets the peaks: they become the present use.
    pub fn reset_peaks(&self) {
        self.0.devices.iter().for_each(|device| device.reset_peak());
    }

    /// Bytes that sessions have of a device now: variables, constants and arenas, also arenas that are kept for the next run. The
    /// device is `GPU:0`, `/cpu:0`, or any name that one device alone matches.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a text that is no name, names no device, or several.
    pub fn memory_allocated(&self, device: &str) -> Result<Bytes> {
        get_memory_info(self.all(), device).map(|info| Bytes(info.current))
    }

    /// The most of [`Devices::memory_allocated`] at once, since the devices were opened or the peak was reset.
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn max_memory_allocated(&self, device: &str) -> Result<Bytes> {
        get_memory_info(self.all(), device).map(|info| Bytes(info.peak))
    }

    /// Bytes of a device that no other program can have because of this one. On a card, bytes that are reserved beforehand or beyond
    /// need count too. On a processor it is [`Devices::memory_allocated`].
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn memory_reserved(&self, device: &str) -> Result<Bytes> {
        let position = find_device(self.all(), device)?;
        Ok(self.all().get(position).map_or(Bytes::ZERO, |device| device.usage().held))
    }

    /// For each device, how much of its line other programs hold now, so that it is out of reach.
    ///
    /// # Errors
    /// The error that prevents an answer.
    pub fn memory_out_of_reach(&self) -> Result<Vec<Bytes>> {
        let taken = |device: &Arc<dyn Device>| match (device.spec().memory_limit, device.reach()?) {
            (Some(limit), Some(reach)) => Ok(limit - reach),
            _ => Ok(Bytes::ZERO),
        };
        self.all().iter().map(taken).collect()
    }

    /// Makes [`Devices::max_memory_allocated`] the present allocation.
    ///
    /// # Errors
    /// As [`Devices::memory_allocated`].
    pub fn reset_max_memory_allocated(&self, device: &str) -> Result<()> {
        reset_memory_stats(self.all(), device)
    }

    /// Gives back memory that sessions keep and no run needs now, as [`crate::Session::release_unused`] does for one session. Memory
    /// that growing cards hold beyond their allocations goes back, too. Variables stay.
    pub fn empty_cache(&self) {
        self.0.idle.release_all();
    }

    pub(crate) fn idle(&self) -> &Idle {
        &self.0.idle
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    pub(crate) fn asking(&self) -> &Asking {
        &self.0.asking
    }

    pub(crate) fn all(&self) -> &[Arc<dyn Device>] {
        &self.0.devices
    }

    pub(crate) fn next_session(&self) -> u64 {
        self.0.sessions.fetch_add(1, Ordering::Relaxed)
    }
}

/// A sentence for each thing that a table of times has none for, where there is one.
fn untimed(options: &Options, devices: &[Arc<dyn Device>]) -> Vec<String> {
    let own = devices.iter().filter_map(|device| Some((device.spec().name.short(), device.tuner()?.tuned_for())));
    options.tuned.as_ref().map_or_else(Vec::new, |table| untimed_of(table, own.collect()))
}

/// As [`untimed`], for devices and what times of theirs are for.
pub(crate) fn untimed_of(table: &Tuned, own: Vec<(String, TunedFor)>) -> Vec<String> {
    let there = match table.parts().keys().map(TunedFor::to_string).collect::<Vec<_>>() {
        parts if parts.is_empty() => "it is empty".to_string(),
        parts => format!("it is for {}", parts.join("; and for ")),
    };
    if own.is_empty() {
        return vec![format!("the table of times (--tuned) is not used: {there}, and no NVIDIA card computes here")];
    }
    let without = own.into_iter().filter(|(_, of)| table.part(of).is_none());
    without.map(|(name, of)| format!("the table of times (--tuned) has none for {name}, {of}: {there}")).collect()
}

/// The file of a `--spill`. Its buffer is in the memory of a processor, whose overhead it is.
fn spill(file: &LogicalDevice, cpu: &dyn Device) -> Result<Arc<dyn Device>> {
    let buffer = cpu.allocate(cpu.spec().overhead, &format!("buffer of {}", file.name.short()))?;
    let folder = file.folder.as_deref().ok_or_else(|| Error::internal(format!("{} is in no folder", file.name)))?;
    Ok(Arc::new(SpillDevice::create(file.spill_spec(), folder, buffer)?))
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.report()).finish()
    }
}
