//! The contract of every device, as a suite that a device crate runs on its own devices: reserving, loading, submitting, waiting
//! across queues, copies in every direction, loops, failures, loss, close. Panics where a device does otherwise.
//!
//! Nothing here takes it that work is done when a call returns: only [`Device::drive`] says that a run is over. Nothing reaches a
//! device's memory but its own kernels, copies, and [`plimsoll_memory::Block::read`] and `write`.

mod kernel;
mod library;
mod loops;
mod memory;
mod nested;
mod runs;

use std::sync::Arc;

use plimsoll_base::Bytes;

use crate::{Device, KernelCall};

pub use kernel::{CellOperation, mix};
pub use library::TestKernels;

/// Makes devices for the suite.
pub trait Rig {
    /// So many fresh devices of one process, each with that line, that can take part in one run.
    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>>;

    /// A call of a kernel of the devices' library that does this with its cells, in as many pieces as every argument has cells.
    fn call(&self, operation: CellOperation, pieces: u32, arguments: usize) -> KernelCall;

    /// The bytes that sizes in the suite are multiples of: no less than what devices reserve at once.
    fn unit(&self) -> u64 {
        1 << 20
    }

    /// Whether a kernel can panic without the end of its device.
    fn can_panic(&self) -> bool {
        true
    }

    /// Breaks a device, as hardware does. Whether it can be broken.
    fn lose(&self, _device: &Arc<dyn Device>) -> bool {
        false
    }
}

/// Runs the part of the suite that calls no kernel, for a device that only copies. Of several devices that its rig makes the first is a
/// processor.
pub fn run_without_kernels(rig: &dyn Rig) {
    memory::a_line_holds_and_everything_comes_back(rig);
    memory::blocks_are_zeroed_and_aligned(rig);
    memory::the_host_reads_what_it_wrote(rig);
    memory::lent_memory_counts(rig);
    runs::copies_go_in_every_direction(rig);
    runs::programs_that_contradict_themselves_are_refused(rig);
    runs::a_lost_device_says_so(rig);
}

/// Runs the suite.
pub fn run_all(rig: &dyn Rig) {
    run_without_kernels(rig);
    runs::submitting_does_not_wait(rig);
    runs::queues_wait_for_each_other(rig);
    runs::a_guard_passes_a_command_over(rig);
    runs::a_failure_ends_the_run_and_nothing_else(rig);
    runs::nothing_behind_a_failure_is_written(rig);
    runs::runs_go_side_by_side(rig);
    runs::a_device_may_be_lost_in_the_last_command(rig);
    nested::loops_of_one_queue_lie_in_each_other(rig);
    nested::a_failure_in_a_loop_ends_it(rig);
    nested::a_loop_without_an_end_can_be_given_up(rig);
    loops::several_queues_go_round_together(rig);
    loops::shared_loops_lie_in_each_other(rig);
    loops::a_failure_in_one_queue_ends_the_loop(rig);
    loops::a_shared_loop_without_an_end_can_be_given_up(rig);
    runs::a_device_closes_when_it_is_dropped(rig);
}

/// One device.
fn device(rig: &dyn Rig, line: u64) -> Arc<dyn Device> {
    rig.devices(1, Bytes(line)).remove(0)
}
