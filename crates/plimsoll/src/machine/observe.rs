//! Looking.

use std::sync::OnceLock;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_cards::{Card, CudnnMode, Division, Environment, MatmulPrecision, Options, PhysicalDevice, resolve, seen};
use plimsoll_device::{Bf16Instructions, DeviceKind, InstructionSet};
use plimsoll_device_cuda::{ComputeLibrary, EngineLimits, Look, NvidiaCard, Nvml, ProcessKind, subtract};
use plimsoll_machine::{Entry, Guarantee, History, LastUse, Machine, Scope, Share, Snapshot, StateDir};

use super::{Part, Process, SeenCard, View, Waiter};

/// Looks at a machine, as often as one likes. It opens no device, reserves nothing, and computes nothing.
#[derive(Debug)]
pub struct Observer {
    environment: Environment,
    /// The driver's library, or why there is none.
    nvml: Result<Nvml>,
    /// The simulated cards that are asked for, and the source of that request.
    simulated: Vec<PhysicalDevice>,
    /// Their ledger, or why it cannot be read; none where there are no such cards.
    ledger: Option<Result<Machine>>,
    /// Whose leases it shows.
    scope: Option<Scope>,
    division: Division,
    threads: usize,
    /// The notes that are the same at every look.
    notes: Vec<String>,
    /// What is known of the libraries that compute on real cards, once there was one.
    libraries: OnceLock<Vec<String>>,
}

/// Who computes products and convolutions on cards, by these options.
fn on_cudnn(options: &Options, environment: &Environment) -> String {
    let where_ = match options.cudnn {
        CudnnMode::Never => return "products and convolutions are computed by kernels of Plimsoll (--cudnn never)".into(),
        CudnnMode::Auto => "where that is predicted to be faster (--cudnn)",
        CudnnMode::Always => "wherever it can (--cudnn always)",
    };
    let floats = if options.tensor_float_32 { "floats rounded to TF32" } else { "whole floats (--tensor-float-32 rounds them)" };
    let workspace = options.cudnn_workspace_in(environment).unwrap_or(EngineLimits::WORKSPACE);
    format!("cuDNN computes products and convolutions {where_}, with {floats} and at most {workspace} of workspace (--cudnn-workspace)")
}

/// What the processor does where products may round their operands.
fn products(precision: MatmulPrecision) -> Option<String> {
    let here = if Bf16Instructions::detect().is_some() { "may round" } else { "cannot round (it has no AVX512-BF16)" };
    (precision == MatmulPrecision::Bf16)
        .then(|| format!("the processor {here} operands of products and convolutions to bf16 (--matmul-precision)"))
}

impl Observer {
    /// Gets ready to look at the machine as a program with these options and variables would find it. PLIMSOLL_NVML names
    /// another library than the driver's; empty, none is loaded.
    ///
    /// # Errors
    /// Those of [`plimsoll_cards::resolve`] for options that make no sense. A thing that cannot be examined is no error: the notes
    /// of a [`View`] say so.
    pub fn open(options: &Options, environment: &Environment) -> Result<Observer> {
        let simulated = options.simulated_cards(environment)?;
        // Under a lease a program gets the lease's part; the cards that are shown are the machine's.
        let (mut had, mut under) = (simulated.clone(), None);
        if environment.get("PLIMSOLL_LEASE").is_some_and(|token| !token.is_empty()) && !had.is_empty() {
            let leased = StateDir::find().and_then(|state| PhysicalDevice::leased_ledger(&mut had, &state, environment));
            under = Some(leased.map_or_else(|error| error.message().to_string(), |_| "this program was started under a lease".into()));
        }
        let division = match had.is_empty() {
            true => match plimsoll_runtime::Devices::divide(options, environment) {
                // The ledger of a lease, which is not the machine's.
                Err(error) if error.code() == Code::FailedPrecondition => {
                    under = Some(error.message().to_string());
                    resolve(&[], options, environment)?
                }
                division => division?,
            },
            false => resolve(&had, options, environment)?,
        };
        if had.is_empty() && division.seen.iter().any(|card| card.device.leased) {
            under = Some("this program was started under a lease".into());
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = options.threads_in(environment, cores)?;
        let mut notes = vec![format!("{cores} cores may be used by this process, {threads} threads compute (--intra-op)")];
        notes.extend(products(options.matmul_precision));
        let nvml = Nvml::find(environment);
        notes.extend(under);
        let state = (!simulated.is_empty()).then(StateDir::find);
        let scope = state.as_ref().and_then(|state| state.as_ref().ok().map(StateDir::scope));
        let ledger = state.map(|state| PhysicalDevice::ledger(&simulated, &state?));
        notes.push(match simulated.len() {
            0 => "no simulated GPUs are asked for (--sim-gpus, PLIMSOLL_SIM_GPUS)".into(),
            count => format!("{count} simulated GPUs are asked for: the processor acts them, in the host's memory"),
        });
        notes.extend(division.notes.iter().cloned());
        notes.extend(division.left_out.iter().map(|left| format!("GPU {} is left out {}", left.card.ordinal, left.why)));
        let is_real = |card: &Card| !card.device.is_simulated();
        if division.devices.iter().any(|device| device.card.as_ref().is_some_and(is_real)) {
            notes.push(
                "programs measure what their context takes of an NVIDIA card when they open it: their limits are less by that".into(),
            );
            notes.push(on_cudnn(options, environment));
        }
        for device in &division.devices {
            notes.push(format!("{}: {}", device.name.short(), device.reasons.join("; ")));
        }
        Ok(Observer {
            environment: options.with_libraries(environment),
            nvml,
            simulated,
            ledger,
            scope,
            division,
            threads,
            notes,
            libraries: OnceLock::new(),
        })
    }

    /// Looks.
    pub fn look(&self) -> View {
        let mut view = View { start_log: self.division.start_log(), ledger: self.scope.clone(), ..View::default() };
        match &self.nvml {
            Ok(nvml) => self.real(nvml, &mut view),
            Err(error) => {
                view.no_driver = Some(error.message().into());
                view.notes.push(error.message().into());
            }
        }
        let first = view.cards.len();
        view.cards.extend(self.simulated.iter().map(|device| self.simulated_card(device)));
        if let Some(ledger) = &self.ledger {
            match ledger.as_ref().map_err(Error::clone).and_then(Machine::look) {
                Ok(snapshot) => held(&snapshot, &(first..view.cards.len()).collect::<Vec<_>>(), &mut view),
                Err(error) => view.warnings.push(format!("the holders of simulated GPUs' memory cannot be listed: {}", error.message())),
            }
        }
        view.processes.sort_by_key(|process| (process.card, std::cmp::Reverse(process.reserved.max(process.used)), process.pid));
        view.warnings.extend(self.division.obstacle.iter().cloned());
        view.devices = self.parts(&view.cards);
        view.notes.extend(self.notes.iter().cloned());
        view
    }

    /// Adds the driver's answers.
    fn real(&self, nvml: &Nvml, view: &mut View) {
        let look = nvml.look();
        let devices: Vec<PhysicalDevice> = look.cards.iter().map(|card| card.device.clone()).collect();
        let count = devices.len();
        let plural = if count == 1 { "" } else { "s" };
        view.notes.push(format!("NVML sees {count} NVIDIA card{plural}"));
        view.notes.extend(look.notes.iter().cloned());
        if count > 0 {
            view.notes.extend(self.libraries.get_or_init(|| libraries(&self.environment)).iter().cloned());
        }
        let mut notes = Vec::new();
        let visible = seen(&devices, &self.environment, &mut notes);
        // Some are the division's, too.
        view.notes.extend(notes.into_iter().filter(|note| !self.notes.contains(note)));
        view.driver = Some(look.driver.clone());
        for (place, card) in look.cards.iter().cloned().enumerate() {
            view.notes.extend(card.missing.iter().map(|what| format!("NVIDIA card {place} ({}) does not say: {what}", card.device.name)));
            view.processes.extend(card.processes.iter().map(|process| Process {
                card: place,
                pid: process.pid,
                user: None,
                kind: process.kind,
                program: process.program.clone(),
                name: String::new(),
                reserved: None,
                used: process.bytes,
                peak: None,
                guarantee: None,
                history: History::default(),
                last_use: LastUse::default(),
            }));
            if let Some(why) = too_old(&card.device) {
                view.notes.push(format!("NVIDIA card {place} ({}) cannot be used: {why}", card.device.name));
            }
            let unused = self.unused(&card.device);
            view.cards.push(real_card(card, &visible, unused));
        }
        self.leases(&look, view);
    }

    /// Adds the leases of real cards.
    fn leases(&self, look: &Look, view: &mut View) {
        let shared = look.cards.iter().enumerate().filter(|(_, card)| card.can_be_shared());
        let (places, cards): (Vec<usize>, Vec<PhysicalDevice>) = shared.map(|(place, card)| (place, card.device.clone())).unzip();
        if cards.is_empty() {
            return;
        }
        let state = StateDir::find();
        view.ledger = state.as_ref().ok().map(StateDir::scope).or(view.ledger.take());
        let ledger = state.and_then(|state| PhysicalDevice::ledger(&cards, &state));
        let snapshot = ledger.and_then(|ledger| {
            subtract(look, &cards, &ledger);
            ledger.look()
        });
        match snapshot {
            Ok(snapshot) => held(&snapshot, &places, view),
            Err(error) => view.warnings.push(format!("the leases of NVIDIA cards cannot be listed: {}", error.message())),
        }
    }

    fn simulated_card(&self, device: &PhysicalDevice) -> SeenCard {
        let number = |card: &Card| (card.device.ordinal == device.ordinal).then_some(card.ordinal);
        let left_out = self.division.left_out.iter().find(|left| left.card.device.ordinal == device.ordinal);
        SeenCard {
            cuda_ordinal: self.division.seen.iter().find_map(number),
            unused: left_out.map(|left| left.why.clone()),
            total: Some(device.total),
            ..SeenCard::new(device.clone())
        }
    }

    /// Why nothing is computed on a real card, as half a sentence.
    fn unused(&self, device: &PhysicalDevice) -> Option<String> {
        let Division { devices, left_out, obstacle, .. } = &self.division;
        let is_it = |card: &Card| card.device.uuid == device.uuid;
        if devices.iter().filter_map(|part| part.card.as_ref()).any(is_it) {
            return None;
        }
        let left_out = || left_out.iter().find(|left| is_it(&left.card)).map(|left| left.why.clone());
        let instead = || (!self.simulated.is_empty()).then(|| "simulated GPUs are used in its place".to_string());
        let why = too_old(device).or_else(instead).or_else(left_out).or_else(|| obstacle.clone());
        Some(why.unwrap_or_else(|| "options or variables leave it out".into()))
    }

    /// The logical devices, on these cards.
    fn parts(&self, cards: &[SeenCard]) -> Vec<Part> {
        let instructions = InstructionSet::detect();
        let part = |device: &plimsoll_cards::LogicalDevice| Part {
            description: match (&device.card, device.kind) {
                (Some(card), _) => card.description(),
                (None, DeviceKind::Cpu) => device.cpu_spec(self.threads as u32, instructions).description,
                (None, DeviceKind::Spill) => device.spill_spec().description,
                (None, DeviceKind::Gpu) => String::new(),
            },
            card: device.card.as_ref().and_then(|card| cards.iter().position(|seen| seen.device.uuid == card.device.uuid)),
            device: device.clone(),
        };
        self.division.devices.iter().map(part).collect()
    }
}

/// A line for each library that computes on real cards.
fn libraries(environment: &Environment) -> Vec<String> {
    ComputeLibrary::ALL.map(|library| library.find(environment).to_string()).to_vec()
}

fn too_old(device: &PhysicalDevice) -> Option<String> {
    let (capability, minimum) = (device.compute_capability, device.minimum_capability());
    (capability < minimum).then(|| format!("its compute capability is {capability}, and the least that is used is {minimum}"))
}

fn real_card(card: NvidiaCard, visible: &[Card], unused: Option<String>) -> SeenCard {
    SeenCard {
        cuda_ordinal: visible.iter().find(|seen| seen.device.ordinal == card.device.ordinal).map(|seen| seen.ordinal),
        unused,
        total: card.memory.map(|memory| memory.total),
        reserved: None,
        outside: None,
        used: card.memory.map(|memory| memory.used),
        free: card.memory.map(|memory| memory.free),
        utilisation: card.utilisation,
        temperature: card.temperature,
        fan: card.fan,
        power: card.power,
        power_limit: card.power_limit,
        performance_state: card.performance_state,
        clock_mhz: card.clock_mhz,
        mig: card.mig,
        device: card.device,
    }
}

/// The ledger's records of the cards at these places. Use of a real card is better known to its driver.
fn held(snapshot: &Snapshot, places: &[usize], view: &mut View) {
    view.warnings.extend(snapshot.locked.iter().map(|locked| format!("nothing is granted: {locked}")));
    view.warnings.extend(snapshot.doubts.iter().cloned());
    for (&place, usage) in places.iter().zip(&snapshot.cards) {
        let card = &mut view.cards[place];
        card.reserved = Some(usage.reserved);
        card.outside = Some(usage.outside);
        if card.device.is_simulated() {
            card.used = Some(usage.used);
            card.device.available = usage.free;
        }
        card.free = Some(card.free.map_or(usage.free, |free| free.min(usage.free)));
    }
    for entry in &snapshot.entries {
        // Programs of ours that compute on a real card are in both lists: the driver knows what they use.
        let by_driver = |place: usize, processes: &mut Vec<Process>| {
            let at = processes.iter().position(|process| (process.card, process.pid, process.reserved) == (place, entry.pid, None))?;
            processes.swap_remove(at).used
        };
        let seen: Vec<Option<Bytes>> = places.iter().map(|&place| by_driver(place, &mut view.processes)).collect();
        let holds = entry.shares.iter().filter(|share| share.reserved > Bytes::ZERO || share.used > Bytes::ZERO);
        view.processes.extend(holds.map(|share| Process {
            card: places[share.card],
            pid: entry.pid,
            user: entry.user,
            kind: ProcessKind::Compute,
            program: Some(entry.program.clone()),
            name: entry.name.clone(),
            reserved: Some(share.reserved),
            used: seen[share.card].or(Some(share.used).filter(|_| is_observed(entry, share))),
            peak: Some(share.peak).filter(|_| is_observed(entry, share)),
            guarantee: Some(entry.guarantee),
            history: entry.history.clone(),
            last_use: entry.last_use,
        }));
    }
    for entry in snapshot.waiters() {
        let Some(waiting) = &entry.waiting else { continue };
        view.waiters.push(Waiter {
            pid: entry.pid,
            user: entry.user,
            program: entry.program.clone(),
            name: entry.name.clone(),
            priority: waiting.priority,
            ahead: waiting.ahead,
            some: waiting.some,
            asked: waiting.asked.iter().map(|&(card, bytes)| (places[card], bytes)).collect(),
            why: snapshot.why(entry).unwrap_or_default(),
        });
    }
}

/// Whether a member's use is known: programs of ours report it, and of others it was seen.
fn is_observed(entry: &Entry, share: &Share) -> bool {
    entry.guarantee == Guarantee::Held || entry.last_use.memory.is_some() || share.peak > Bytes::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_errors_and_what_is_not_there_is_none() {
        let quiet = Environment::new().with("PLIMSOLL_NVML", "");
        assert!(Observer::open(&Options::new().sim_gpus("much"), &quiet).is_err());
        assert!(Observer::open(&Options::new().device_count(DeviceKind::Cpu, 0), &quiet).is_err());

        let view = Observer::open(&Options::new().limit("CPU:0", "64MiB").intra_op(3), &quiet).unwrap().look();
        assert_eq!((view.cards.len(), view.processes.len(), view.waiters.len()), (0, 0, 0));
        assert_eq!((view.driver, view.no_driver.is_some(), view.start_log.len()), (None, true, 0));
        assert_eq!((view.devices.len(), view.devices[0].device.memory_limit), (1, Some(Bytes(64 << 20))));
        assert!(view.devices[0].description.ends_with("3 threads"), "{:?}", view.devices);
        for note in ["3 threads compute", "no simulated GPUs are asked for", "CPU:0: --memory-limit: 64 MiB"] {
            assert!(view.notes.iter().any(|said| said.contains(note)), "{:?}", view.notes);
        }
    }
}
