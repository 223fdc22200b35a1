//! The device, and the thread that makes its copies.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_device::interpret::{Action, Engine, Loaded, NONE, Step, Streams};
use plimsoll_device::{
    Bindings, CpuLibrary, Device, DeviceSpec, Executable, Fault, KernelCall, Library, Prepared, Program, Run, Variant, Work,
};
use plimsoll_memory::{Address, Block, Faults, Ledger};
use plimsoll_request::KernelRequest;

use crate::disk::Disk;
use crate::space::is_in_a_file;
use crate::store::{SpillMemory, Store};

/// A file as a device.
pub struct SpillDevice {
    spec: DeviceSpec,
    ledger: Arc<Ledger>,
    memory: SpillMemory,
    streams: Streams<FileEngine>,
}

impl SpillDevice {
    /// Makes the file in a folder, as long as the limit of the specification (see [`DeviceSpec::spill`]), with all of its blocks. What
    /// is read and written goes through `buffer`, memory of a processor: see [`DeviceSpec::spill_buffer`].
    ///
    /// # Errors
    /// NOT_FOUND and PERMISSION_DENIED for the folder; RESOURCE_EXHAUSTED where the disk has less; INVALID_ARGUMENT for a limit of no
    /// block; INTERNAL for a buffer that is not of whole blocks.
    pub fn create(spec: DeviceSpec, folder: &Path, buffer: Block) -> Result<SpillDevice> {
        let bytes = Bytes(spec.memory_limit.unwrap_or_default().0 / spec.granularity * spec.granularity);
        let on_device = |error: Error| error.on_device(spec.name.to_string());
        if bytes == Bytes::ZERO {
            let least = format!("a file of less than {} bytes", spec.granularity);
            return Err(on_device(Error::invalid_argument(least).with_remedy("name a larger size")));
        }
        let ledger = Ledger::new(spec.name.to_string(), Some(bytes));
        let disk = Disk::create(folder, bytes).map_err(on_device)?;
        let memory = SpillMemory(Arc::new(Store::new(disk, bytes, buffer, &ledger, &spec.description).map_err(on_device)?));
        let streams = Streams::new(FileEngine(memory.0.clone()));
        let spec = DeviceSpec { memory_limit: Some(bytes), ..spec };
        Ok(SpillDevice { spec, ledger, memory, streams })
    }

    /// Whether the system's page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.memory.0.disk().is_direct()
    }

    /// From now on `faults` decides which accesses to the file fail, as those of a disk that is broken, for tests.
    pub fn inject(&self, faults: &Arc<Faults>) {
        self.memory.0.disk().inject(faults);
    }
}

impl Device for SpillDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    fn library(&self) -> &dyn Library {
        &NoKernels
    }

    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block> {
        Block::new(&self.ledger, &self.memory, bytes, holder)
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>> {
        let on_device = |error: Error| error.on_device(self.spec.name.to_string());
        if let Some(command) = program.commands.iter().find(|command| !matches!(command.work, Work::Copy)) {
            return Err(on_device(Error::unimplemented(format!("{} is no copy, and a file only copies", command.label))));
        }
        Ok(self.streams.executable(Loaded::new(queue, &program, 1, &self.spec, &NoKernels).map_err(on_device)?))
    }
}

impl Drop for SpillDevice {
    fn drop(&mut self) {
        self.streams.close();
    }
}

/// The kernels of a file: none.
#[derive(Debug)]
pub struct NoKernels;

fn no_kernel() -> Error {
    Error::unimplemented("a file computes nothing")
}

impl Library for NoKernels {
    fn variants(&self, _: &DeviceSpec, _: &KernelRequest) -> Result<Vec<Variant>> {
        Err(no_kernel())
    }
}

impl CpuLibrary for NoKernels {
    fn code(&self, _: &DeviceSpec, _: &KernelCall) -> Result<Prepared> {
        Err(no_kernel())
    }
}

/// Copies between the file and the memory of processors.
struct FileEngine(Arc<Store>);

/// The fault for a copy that is not the file's to make.
const BEYOND_REACH: Fault = Fault { code: Code::Internal, message: "a file copies between itself and a processor alone", numbers: [0, 0] };

impl Engine for FileEngine {
    const THREAD: &'static str = "plimsoll-spill";

    fn obstacle(&self) -> Option<Fault> {
        None
    }

    fn reach(&self, address: Address) -> *mut u8 {
        // SAFETY: one of a processor is followed by `execute` and as a guard; one of the file is only a number there.
        unsafe { address.pointer() }
    }

    fn refuse(&self, loaded: &Loaded, bindings: &Bindings) -> Option<(u32, Fault)> {
        let is_in_file = |index: u32| is_in_a_file(bindings.base(loaded.pointers[index as usize].0).number());
        let is_fine = |step: &Step| {
            let Action::Copy { bytes } = step.action else { return false };
            let is_guarded_there = step.guard != NONE && is_in_file(step.guard);
            !is_guarded_there && (bytes == 0 || is_in_file(step.args.0) != is_in_file(step.args.0 + 1))
        };
        let refused = loaded.steps.iter().position(|step| !is_fine(step))?;
        Some((refused as u32, BEYOND_REACH))
    }

    unsafe fn execute(&self, _: &Loaded, _: &Run, pointers: &[*mut u8], step: &Step) -> Result<(), Fault> {
        let Action::Copy { bytes } = step.action else { return Err(BEYOND_REACH) };
        let (from, to) = (pointers[step.args.0 as usize], pointers[step.args.0 as usize + 1]);
        // SAFETY: the caller's promise: both are as long as the copy, and no other command uses what is written.
        unsafe {
            match is_in_a_file(to.addr() as u64) {
                true => self.0.write(from, to.addr() as u64, bytes),
                false => self.0.read(from.addr() as u64, to, bytes),
            }
        }
    }
}
