//! A logical CPU device: a line, and a share in the pool.

use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{Device, DeviceSpec, Executable, Program, Run, Usage};
use plimsoll_memory::{Block, Ledger, Loan};

use crate::load::Loaded;
use crate::pool::CpuPool;
use crate::queue;

/// A logical CPU device.
#[derive(Debug)]
pub struct CpuDevice {
    spec: DeviceSpec,
    pool: Arc<CpuPool>,
    ledger: Arc<Ledger>,
    guarded: bool,
}

impl CpuDevice {
    /// A device with the specification's limit, computing on the threads of `pool`; `spec.threads` becomes their number.
    pub fn new(mut spec: DeviceSpec, pool: Arc<CpuPool>) -> CpuDevice {
        spec.threads = pool.threads() as u32;
        let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
        CpuDevice { spec, pool, ledger, guarded: false }
    }

    /// For tests: every block lies between pages that fault when they are touched.
    pub fn with_guards(self) -> CpuDevice {
        CpuDevice { guarded: true, ..self }
    }

    /// The device's line.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl Device for CpuDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block> {
        match self.guarded {
            true => Block::guarded(&self.ledger, bytes, holder),
            false => Block::new(&self.ledger, bytes, holder),
        }
    }

    fn lend(&self, holder: &str) -> Loan {
        Loan::new(&self.ledger, holder)
    }

    fn usage(&self) -> Usage {
        let (in_use, peak) = (self.ledger.in_use(), self.ledger.peak());
        Usage { in_use, peak, measured: self.ledger.mapped(), measured_peak: self.ledger.mapped_peak() }
    }

    fn reset_peak(&self) {
        self.ledger.reset_peak();
    }

    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>> {
        let loaded = Loaded::new(queue, &program, self.pool.threads()).map_err(|error| error.on_device(self.spec.name.to_string()))?;
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
