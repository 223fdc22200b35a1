//! A logical CPU device: a line, and a share in the pool.

use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::interpret::Loaded;
use plimsoll_device::{CpuLibrary, Device, DeviceSpec, Executable, Library, Program, Run};
use plimsoll_memory::{Block, Ledger};

use crate::pool::CpuPool;
use crate::queue;

/// A logical CPU device.
#[derive(Debug)]
pub struct CpuDevice {
    spec: DeviceSpec,
    library: Arc<dyn CpuLibrary>,
    pool: Arc<CpuPool>,
    ledger: Arc<Ledger>,
    guarded: bool,
}

impl CpuDevice {
    /// A device with the specification's limit, computing on the threads of `pool` with kernels of `library`; `spec.threads` becomes the
    /// number of threads.
    pub fn new(mut spec: DeviceSpec, pool: Arc<CpuPool>, library: Arc<dyn CpuLibrary>) -> CpuDevice {
        spec.threads = pool.threads() as u32;
        let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
        CpuDevice { spec, library, pool, ledger, guarded: false }
    }

    /// For tests: every block lies between pages that fault when they are touched.
    pub fn with_guards(self) -> CpuDevice {
        CpuDevice { guarded: true, ..self }
    }
}

impl Device for CpuDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    fn library(&self) -> &dyn Library {
        &*self.library
    }

    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block> {
        match self.guarded {
            true => Block::guarded(&self.ledger, bytes, holder),
            false => Block::host(&self.ledger, bytes, holder),
        }
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>> {
        let loaded = Loaded::new(queue, &program, self.pool.threads(), &self.spec, &*self.library)
            .map_err(|error| error.on_device(self.spec.name.to_string()))?;
        Ok(Box::new(CpuExecutable(Arc::new(loaded))))
    }

    fn drive(&self, run: &Arc<Run>) {
        self.pool.drive(run);
    }
}

/// A program prepared for the pool.
struct CpuExecutable(Arc<Loaded>);

impl Executable for CpuExecutable {
    fn submit(&self, run: &Arc<Run>) {
        queue::submit(&self.0, run);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Code;
    use plimsoll_cards::Options;
    use plimsoll_device::conformance::TestKernels;
    use plimsoll_device::{InstructionSet, Usage};

    use super::*;

    fn device(limit: u64) -> CpuDevice {
        CpuDevice::new(
            DeviceSpec::cpu(0, Some(Bytes(limit)), 1, InstructionSet::Baseline),
            CpuPool::new(1).unwrap(),
            Arc::<TestKernels>::default(),
        )
    }

    #[test]
    fn the_line_holds_and_everything_is_given_back() {
        for device in [device(3 << 12), device(3 << 12).with_guards()] {
            let block = device.allocate(Bytes(5000), "session 1: arena").unwrap();
            let error = device.allocate(Bytes(4097), "session 2: arena").unwrap_err();
            assert_eq!((error.code(), error.device()), (Code::ResourceExhausted, Some("/job:localhost/replica:0/task:0/device:CPU:0")));
            assert!(error.message().contains("session 1: arena: 8 KiB"), "{error}");
            let mut loan = device.lend("feeds");
            assert!(loan.set(Bytes(4097)).is_err() && loan.set(Bytes(4096)).is_ok());
            drop((block, loan));
            let gone = Usage { peak: Bytes(12288), measured_peak: Bytes(12288), ..Usage::default() };
            assert_eq!(device.usage(), gone);
            device.reset_peak();
            assert_eq!(device.usage(), Usage::default());
        }
    }

    #[test]
    fn devices_share_a_pool() {
        let options = Options::new().limit("CPU:0", "1MiB+2MiB").intra_op(3);
        let pool = CpuPool::with_inter_op(options.threads().unwrap(), options.queues()).unwrap();
        let devices: Vec<CpuDevice> =
            options.resolve().unwrap().into_iter().map(|spec| CpuDevice::new(spec, pool.clone(), Arc::<TestKernels>::default())).collect();
        let limits: Vec<_> = devices.iter().map(|device| (device.spec().memory_limit, device.spec().threads)).collect();
        assert_eq!(limits, [(Some(Bytes(1 << 20)), 3), (Some(Bytes(2 << 20)), 3)]);
        assert!(devices[1].allocate(Bytes(2 << 20), "a").is_ok() && devices[0].allocate(Bytes(2 << 20), "a").is_err());
    }
}
