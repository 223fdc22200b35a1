//! Devices of a machine that is not here: plans are made for them, and nothing runs on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_cards::{
    CudnnMode, DescribedCard, DescribedCudnn, Division, Environment, LogicalDevice, MachineDescription, Options, PhysicalDevice, resolve,
};
use plimsoll_device::{Device, DeviceKind, DeviceSpec, Executable, Library, Program};
use plimsoll_device_cuda::{CudaDevice, CudaLibrary, CudaSource, CudnnLibrary, EngineName, Planner, Toolkit, without_cudnn};
use plimsoll_device_spill::NoKernels;
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::{Block, Ledger};

use crate::Devices;

/// A logical device that a file describes.
struct DescribedDevice {
    spec: DeviceSpec,
    library: Box<dyn Library>,
    ledger: Arc<Ledger>,
}

impl DescribedDevice {
    fn with(spec: DeviceSpec, library: impl Library + 'static) -> Arc<dyn Device> {
        DescribedDevice::boxed(spec, Box::new(library))
    }

    fn boxed(spec: DeviceSpec, library: Box<dyn Library>) -> Arc<dyn Device> {
        let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
        Arc::new(DescribedDevice { spec, library, ledger })
    }

    fn absent(&self, what: &str) -> Error {
        Error::failed_precondition(format!("a file describes the device, which is not here: {what}"))
            .on_device(self.spec.name.to_string())
            .with_remedy("plan and place here, and run on the machine that is described")
    }
}

impl Device for DescribedDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    fn library(&self) -> &dyn Library {
        &*self.library
    }

    fn allocate(&self, _: Bytes, holder: &str) -> Result<Block> {
        Err(self.absent(&format!("it has no memory for {holder}")))
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn load(&self, _: u32, _: Arc<Program>) -> Result<Box<dyn Executable>> {
        Err(self.absent("it runs nothing"))
    }
}

/// cuDNN of this machine, which plans for cards of another one.
struct Planning<'a> {
    options: &'a Options,
    environment: &'a Environment,
    /// Once it was looked for.
    planner: Option<Result<Arc<Planner>>>,
}

impl Planning<'_> {
    /// # Errors
    /// As [`Planner::find`]; FAILED_PRECONDITION where that is another version than the machine's.
    fn planner(&mut self, there: &DescribedCudnn) -> Result<Arc<Planner>> {
        let environment = self.options.with_libraries(self.environment);
        let planner = self.planner.get_or_insert_with(|| Planner::find(&environment).map(Arc::new)).clone()?;
        if planner.version() == there.version() {
            return Ok(planner);
        }
        let [here, there] = [planner.version(), there.version()].map(EngineName::version_text);
        Err(Error::failed_precondition(format!("the machine has cuDNN {there}, and this one {here}"))
            .with_remedy(format!("install cuDNN {there} here, too")))
    }

    /// The kernels of a real card. Where cuDNN cannot plan for it and need not, the division has a note.
    ///
    /// # Errors
    /// Where cuDNN has to compute: as [`Planning::planner`]; FAILED_PRECONDITION where the machine has none.
    fn library(&mut self, card: &DescribedCard, notes: &mut Vec<String>) -> Result<Box<dyn CudaSource>> {
        let mode = self.options.cudnn;
        let planner = match &card.cudnn {
            _ if mode == CudnnMode::Never => return Ok(Box::new(CudaLibrary)),
            None if mode == CudnnMode::Auto => return Ok(Box::new(CudaLibrary)),
            None => Err(Error::failed_precondition("cuDNN was not there when the machine was described")),
            Some(there) => self.planner(there).map(|planner| (planner, there)),
        };
        match planner {
            Ok((planner, there)) => {
                let limits = super::limits(self.options, &Environment::new());
                let (properties, name) = (there.properties().to_string(), &card.device.name);
                let library = CudnnLibrary::new(&planner, properties, name, limits, mode);
                Ok(Box::new(match &self.options.tuned {
                    Some(table) => library.tuned(table, name),
                    None => library,
                }))
            }
            Err(why) if mode == CudnnMode::Always => Err(why),
            Err(why) => {
                let note = without_cudnn(&why);
                if !notes.contains(&note) {
                    notes.push(note);
                }
                Ok(Box::new(CudaLibrary))
            }
        }
    }
}

/// The logical devices that the options make of a described machine, and the division that has them.
///
/// # Errors
/// As [`resolve`]; FAILED_PRECONDITION for a GPU on a real card that was not opened when the machine was described. As [`Planner::find`]
/// where cuDNN has to compute.
pub(crate) fn described(
    machine: &MachineDescription,
    options: &Options,
    environment: &Environment,
) -> Result<(Division, Vec<Arc<dyn Device>>)> {
    let (division, gpus) = gpus(machine, Planning { options, environment, planner: None })?;
    let threads = options.threads_in(&Environment::new(), machine.processor.cores)?;
    let cpus = super::processors(&division, &machine.processor, threads, options).into_iter();
    let cpus = cpus.map(|spec| DescribedDevice::with(spec, CpuKernels));
    let files = division.of(DeviceKind::Spill).map(|file| DescribedDevice::with(file.spill_spec(), NoKernels));
    let devices = cpus.chain(gpus).chain(files).collect();
    Ok((division, devices))
}

fn gpus(machine: &MachineDescription, mut planning: Planning<'_>) -> Result<(Division, Vec<Arc<dyn Device>>)> {
    let options = planning.options;
    let is_real = |card: &DescribedCard| !card.device.is_simulated();
    let mut cards: Vec<PhysicalDevice> = machine.cards.iter().map(|card| card.device.clone()).collect();
    let mut opened = vec![false; cards.len()];
    // As where real cards are opened: what a context takes is known from then on, each logical device has a piece of the card, and what
    // that leaves may divide otherwise.
    for (card, _) in cards.iter_mut().zip(&machine.cards).filter(|(_, described)| is_real(described)) {
        card.overhead = Bytes::ZERO;
    }
    let mut division = resolve(&cards, options, &Environment::new())?;
    for _ in 0..=cards.len() {
        let parts = parts(&division);
        for (at, described) in machine.cards.iter().enumerate().filter(|(_, card)| is_real(card)) {
            let count = parts.get(&described.device.uuid).copied().unwrap_or(0);
            opened[at] |= count > 0;
            if opened[at] {
                // A program that computes without cuDNN has no handle of it.
                let handle =
                    described.cudnn.as_ref().filter(|_| options.cudnn != CudnnMode::Never).map_or(Bytes::ZERO, DescribedCudnn::handle);
                cards[at].overhead = described.device.overhead
                    + handle
                    + Bytes(described.granularity.map_or(0, |granularity| CudaDevice::own(&described.device.name, granularity).0) * count);
            }
        }
        division = resolve(&cards, options, &Environment::new())?;
        if self::parts(&division) == parts {
            break;
        }
    }
    let instructions = machine.processor.instructions;
    let (mut notes, mut own) = (Vec::new(), Vec::new());
    let mut device = |gpu: &LogicalDevice| {
        let card = gpu.card.as_ref().and_then(|card| machine.cards.iter().find(|described| described.device.uuid == card.device.uuid));
        match card {
            Some(DescribedCard { device, granularity: None, .. }) if !device.is_simulated() => {
                let message =
                    format!("card {} was not opened when the machine was described: what its context takes is not known", device.ordinal);
                Err(Error::failed_precondition(message).on_device(gpu.name.to_string()))
            }
            Some(card @ DescribedCard { granularity: Some(granularity), .. }) => {
                let library = planning.library(card, &mut notes)?;
                own.push((gpu.name.short(), library.tuned_for(&card.device.name)));
                Ok(DescribedDevice::boxed(CudaDevice::spec(*granularity, gpu.real_spec(instructions)), library))
            }
            _ => Ok(DescribedDevice::with(gpu.simulated_spec(instructions), CpuKernels)),
        }
    };
    let devices = division.of(DeviceKind::Gpu).map(&mut device).collect::<Result<_>>()?;
    division.notes.append(&mut notes);
    division.notes.extend(options.tuned.as_ref().map_or_else(Vec::new, |table| crate::devices::untimed_of(table, own)));
    Ok((division, devices))
}

/// How many logical devices each card becomes, by its UUID.
fn parts(division: &Division) -> BTreeMap<String, u64> {
    let mut parts = BTreeMap::new();
    for card in division.of(DeviceKind::Gpu).filter_map(|gpu| gpu.card.as_ref()) {
        *parts.entry(card.device.uuid.clone()).or_default() += 1;
    }
    parts
}

/// This machine, described. Its cards are opened, which says what their contexts take.
///
/// # Errors
/// As [`Devices::open_in`].
pub(crate) fn describe(options: &Options, environment: &Environment) -> Result<MachineDescription> {
    // Whatever a program with these options makes of the cards, with cuDNN and without: what a handle takes is the difference.
    let all = options.sim_gpus.iter().fold(Options::new().allow_growth(true), |all, cards| all.sim_gpus(cards));
    let environment = options.with_libraries(&environment.of_the_machine());
    let without = contexts(&Devices::open_in(&all.clone().cudnn(CudnnMode::Never), &environment)?)?;
    let devices = Devices::open_in(&all, &environment)?;
    let division = devices.division().ok_or_else(|| Error::internal("opened devices have a division"))?;
    let (contexts, specs) = (contexts(&devices)?, devices.specs());
    let mut cards: Vec<DescribedCard> =
        division.seen.iter().map(|card| DescribedCard { device: card.device.clone(), granularity: None, cudnn: None }).collect();
    cards.sort_by_key(|card| card.device.ordinal);
    for card in cards.iter_mut().filter(|card| !card.device.is_simulated()) {
        let part = division.devices.iter().position(|device| device.card.as_ref().is_some_and(|of| of.device.uuid == card.device.uuid));
        let (Some(spec), Some(context)) = (part.and_then(|part| specs.get(part)), contexts.get(&card.device.uuid)) else { continue };
        card.granularity = Some(spec.granularity);
        let cudnn = cudnn(&environment, &card.device.uuid);
        let alone = without.get(&card.device.uuid).filter(|_| cudnn.is_some()).map_or(*context, |alone| (*alone).min(*context));
        card.device.overhead = alone;
        card.cudnn = cudnn.map(|cudnn| cudnn.taking(*context - alone));
    }
    Ok(MachineDescription { processor: super::processor(), cards })
}

/// What contexts take on opened real cards, by their UUIDs: with a handle of cuDNN, where that was opened.
fn contexts(devices: &Devices) -> Result<BTreeMap<String, Bytes>> {
    let division = devices.division().ok_or_else(|| Error::internal("opened devices have a division"))?;
    let (parts, specs) = (parts(division), devices.specs());
    let context = |(device, spec): (&LogicalDevice, &DeviceSpec)| {
        let card = device.card.as_ref().filter(|card| !card.device.is_simulated())?;
        let count = parts.get(&card.device.uuid).copied().unwrap_or(0);
        let own = CudaDevice::own(&card.device.name, spec.granularity).0 * count;
        Some((card.device.uuid.clone(), card.device.overhead - Bytes(own)))
    };
    Ok(division.devices.iter().zip(specs).filter_map(context).collect())
}

/// cuDNN on this machine, with what it knows of a card; none where it is not there, or does not say.
fn cudnn(environment: &Environment, uuid: &str) -> Option<DescribedCudnn> {
    let toolkit = Toolkit::find(environment, CudnnMode::Auto).ok()?;
    let planner = toolkit.planner()?;
    let number = toolkit.driver.cards().ok()?.into_iter().find(|card| card.uuid == uuid)?.number;
    DescribedCudnn::new(planner.version(), &planner.properties(number).ok()?).ok()
}
