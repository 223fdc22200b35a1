//! How the threads of a device run commands: one at a time of all logical devices of the card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_base::Code;
use plimsoll_device::interpret::{Action, Engine, Loaded, NONE, Step, execute};
use plimsoll_device::{Bindings, Fault, Place, Run};
use plimsoll_memory::Address;

use crate::compute::Compute;
use crate::memory::{LOST, is_on_a_card, reach};

/// What computes for a device.
pub(crate) struct CardEngine {
    /// Of the card.
    pub compute: Arc<Compute>,
    /// Of this device's commands among those of the card.
    pub priority: i32,
    pub lost: Arc<AtomicBool>,
}

impl CardEngine {
    /// Whether a copy goes between the card and other memory.
    fn leaves(&self, loaded: &Loaded, run: &Run, step: &Step) -> bool {
        let is_here = |index: u32| is_on_a_card(run.bindings.base(loaded.pointers[index as usize].0));
        let mut ends = (step.args.0..step.args.0 + step.args.1).map(is_here);
        ends.any(|is_here| !is_here)
    }
}

impl Engine for CardEngine {
    const THREAD: &'static str = "plimsoll-sim";

    fn obstacle(&self) -> Option<Fault> {
        self.lost.load(Ordering::Acquire).then_some(LOST)
    }

    fn reach(&self, address: Address) -> *mut u8 {
        reach(address)
    }

    fn refuse(&self, loaded: &Loaded, bindings: &Bindings) -> Option<(u32, Fault)> {
        beyond_reach(loaded, bindings).map(|command| (command, BEYOND_REACH))
    }

    unsafe fn execute(&self, loaded: &Loaded, run: &Run, pointers: &[*mut u8], step: &Step) -> Result<(), Fault> {
        let _turn = match step.action {
            Action::Copy { .. } if self.leaves(loaded, run, step) => self.compute.turn_at_link(self.priority),
            _ => self.compute.turn(self.priority),
        };
        // SAFETY: the caller's promise. One thread takes all pieces, with the first slice of scratch.
        unsafe { execute(run, pointers, step, 0..step.chunks, 0) }
    }
}

/// The fault for an access that a real card could not make.
const BEYOND_REACH: Fault = Fault { code: Code::Internal, message: "a kernel of a card is given memory of the processor", numbers: [0, 0] };

/// The first command whose kernel would need values that are not in the memory of a card. States of operations are the
/// processor's: a card is told them with the call.
fn beyond_reach(loaded: &Loaded, bindings: &Bindings) -> Option<u32> {
    let is_reached = |index: u32| match loaded.pointers[index as usize].0 {
        Place::Variable(_) => true,
        place => {
            let base = bindings.base(place);
            // Buffers of no bytes may be all that lies in a place: it is nowhere then.
            base == Address::NULL || is_on_a_card(base)
        }
    };
    let is_fine = |step: &Step| {
        let args = match step.action {
            Action::Kernel { .. } => step.args.0..step.args.0 + step.args.1,
            // The condition of a loop is read as a guard is.
            Action::Copy { .. } | Action::Outside { .. } | Action::Jump { .. } => 0..0,
        };
        args.chain([step.scratch, step.worker.0, step.guard].into_iter().filter(|index| *index != NONE)).all(is_reached)
    };
    loaded.steps.iter().position(|step| !is_fine(step)).map(|position| position as u32)
}
