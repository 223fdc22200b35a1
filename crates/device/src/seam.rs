//! The seams that a device crate implements.
//!
//! A device gets a whole [`Program`] ([`Device::load`]), starts it for a [`Run`] ([`Executable::submit`], which never blocks), and may
//! borrow the caller's thread ([`Device::drive`]). CPU devices of one `Devices` share a pool in which callers count as threads. A
//! device whose programs run on memory of this process uses [`crate::interpret`]. Every device passes [`crate::conformance`], a
//! test file in each device crate.

use std::sync::Arc;

use plimsoll_base::{Bytes, Result};
use plimsoll_memory::{Block, Ledger, Loan};
use plimsoll_request::KernelRequest;

use crate::{Bindings, DeviceSpec, Library, Program, Run, TunedFor, Variant};

/// A logical device.
pub trait Device: Send + Sync {
    /// Its name, kind, capacity and granularity.
    fn spec(&self) -> &DeviceSpec;

    /// The kernels that it has.
    fn library(&self) -> &dyn Library;

    /// Reserves `bytes` under the device's line in the name of `holder`, then backs them with zeroed memory; both end when
    /// the block is dropped. The host reaches it through [`Block::read`] and [`Block::write`] alone, and gives the device's programs
    /// its address.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED naming device, bytes asked, in use and allowed, and the holders.
    fn allocate(&self, bytes: Bytes, holder: &str) -> Result<Block>;

    /// The account of its bytes, with its line.
    fn ledger(&self) -> &Arc<Ledger>;

    /// A loan of no bytes yet in the name of `holder`: for memory that others own and this device's kernels use.
    fn lend(&self, holder: &str) -> Loan {
        Loan::new(self.ledger(), holder)
    }

    /// The bytes reserved and mapped now, and the most since the peak was last reset.
    fn usage(&self) -> Usage {
        let ledger = self.ledger();
        Usage {
            in_use: ledger.in_use(),
            peak: ledger.peak(),
            measured: ledger.mapped(),
            measured_peak: ledger.mapped_peak(),
            held: ledger.kept(),
        }
    }

    /// The most that could be in use here as things are: the line, less the bytes of the card that other programs hold. None where
    /// there is no line.
    ///
    /// # Errors
    /// The error that prevents an answer.
    fn reach(&self) -> Result<Option<Bytes>> {
        self.ledger().reach()
    }

    /// Forgets the peaks: they become the present use.
    fn reset_peak(&self) {
        self.ledger().reset_peak();
    }

    /// Gives back to the machine bytes that are reserved there and not in use here, where the device can get them again.
    fn release_unused(&self) {
        // Where the machine's ledger cannot be used, the bytes come back when the device is closed.
        let _ = self.ledger().release_unused();
    }

    /// What times ways to compute on the device; none where its library has nothing to choose by such times.
    fn tuner(&self) -> Option<&dyn Tuner> {
        None
    }

    /// Prepares queue `queue` of a plan.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the program has work of another kind of device; INTERNAL where it contradicts itself.
    fn load(&self, queue: u32, program: Arc<Program>) -> Result<Box<dyn Executable>>;

    /// Lends the calling thread to the device until `run` is over. Every queue of the run that computes on this device, or on a
    /// device that shares its threads, advances. Devices that compute elsewhere merely wait, or push the commands of a run of one queue.
    /// Called once for each run, after all its queues were submitted, on one of the devices that take part; on a processor, if there
    /// is one.
    fn drive(&self, run: &Arc<Run>) {
        run.wait_over();
    }
}

/// Times ways to compute on a device, by the device's own clock. What it measures is a table that the device's library chooses by
/// ([`crate::Tuned`]).
pub trait Tuner {
    /// What the times are for.
    fn tuned_for(&self) -> TunedFor;

    /// The ways to compute a request that the library chooses among: at most so many of another library's engines, the best predicted
    /// first, and the device's own kernels. None for requests that are not looked up in a table.
    ///
    /// # Errors
    /// Those of a device that has no room, or is lost.
    fn candidates(&self, request: &KernelRequest, engines: usize) -> Result<Vec<Variant>>;

    /// Prepares a program of calls that cannot fail, to be timed on these blocks. It takes no more memory of the device's line.
    ///
    /// # Errors
    /// As [`Device::load`]; FAILED_PRECONDITION where the device has no clock.
    fn prepare(&self, program: &Arc<Program>, bindings: &Bindings) -> Result<Box<dyn Timed>>;
}

/// A program that is timed.
pub trait Timed {
    /// The seconds that the device takes for so many runs of the program, one behind the other.
    ///
    /// # Errors
    /// The fault that ended one.
    fn seconds(&mut self, runs: u32) -> Result<f64>;
}

/// How much of a device is in use. Reservations and mappings are counted apart from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes reserved now.
    pub in_use: Bytes,
    /// The most bytes reserved at once.
    pub peak: Bytes,
    /// Bytes that the device's memory is asked for now.
    pub measured: Bytes,
    /// The most of them at once.
    pub measured_peak: Bytes,
    /// Bytes that no other program can have: those held on a card beyond the reservations here, or the same.
    pub held: Bytes,
}

/// A program that a device has prepared.
pub trait Executable: Send + Sync {
    /// Starts the program for `run` and returns at once. The device advances its queue as commands finish, and fails the run when
    /// one does not. Where it computes on lent threads, that waits for [`Device::drive`]. The first submission of a run may
    /// allocate; the next ones do not. A run that cannot be started fails.
    fn submit(&self, run: &Arc<Run>);
}
