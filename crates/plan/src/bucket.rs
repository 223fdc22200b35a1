//! Plans of several sizes in the memory of one: a run of N takes what a run of the next larger size takes that the caller named.

use plimsoll_base::{Bytes, Result};
use plimsoll_device::{BufferRef, Command, Place, Work};

use crate::Request;
use crate::infer::prune_and_infer;
use crate::plan::{DevicePlan, Plan};
use crate::verify::verify;

/// The plan of a request in no larger arenas than `outer` has, the plan of a larger size of the same signature. Where its own arena is
/// larger than that (kernels of another variant may need more for less), its buffers go where `outer` has them, if both plans have
/// the same commands; otherwise it keeps that arena. Values are those of the size itself: nothing is padded.
///
/// # Errors
/// As [`crate::plan()`].
pub fn within(request: &Request<'_>, plan: Plan, outer: &Plan) -> Result<Plan> {
    let is_over = |(mine, theirs): (&DevicePlan, &DevicePlan)| mine.arena > theirs.arena;
    let mut plan = plan;
    if plan.devices.iter().zip(&outer.devices).any(is_over)
        && let Some(moved) = laid_out_as(&plan, outer)
        && verify(request, &prune_and_infer(request)?, &moved).is_ok()
    {
        plan = moved;
    }
    Ok(plan)
}

impl Plan {
    /// Takes arenas as large as those of another plan, where its own are smaller.
    pub fn take_as_much_as(&mut self, other: &Plan) {
        for (device, other) in self.devices.iter_mut().zip(&other.devices).filter(|(mine, theirs)| mine.arena < theirs.arena) {
            device.peak.activations += other.arena - device.arena;
            (device.arena, device.packed) = (other.arena, other.packed);
        }
    }
}

/// The plan with its buffers where another one has them; none where they are not made of the same commands.
fn laid_out_as(plan: &Plan, outer: &Plan) -> Option<Plan> {
    if plan.queues.len() != outer.queues.len() {
        return None;
    }
    let mut queues = plan.queues.clone();
    for (queue, theirs) in queues.iter_mut().zip(&outer.queues) {
        let program = std::sync::Arc::make_mut(&mut queue.program);
        if queue.device != theirs.device || program.commands.len() != theirs.program.commands.len() {
            return None;
        }
        for (command, theirs) in program.commands.iter_mut().zip(&theirs.program.commands) {
            move_command(command, theirs)?;
        }
    }
    let devices = plan.devices.iter().zip(&outer.devices).map(|(mine, theirs)| with_arena(mine, theirs)).collect();
    Some(Plan { queues, devices, buffers: outer.buffers.clone(), ..plan.clone() })
}

fn move_command(command: &mut Command, theirs: &Command) -> Option<()> {
    let is_same = match (&command.work, &theirs.work) {
        (Work::Kernel(mine), Work::Kernel(theirs)) => mine.variant.name == theirs.variant.name && mine.step == theirs.step,
        (Work::Copy, Work::Copy) => true,
        (Work::Outside { call: mine, .. }, Work::Outside { call: theirs, .. }) => mine == theirs,
        _ => false,
    };
    if !is_same || command.label != theirs.label || command.args.len() != theirs.args.len() || command.waits != theirs.waits {
        return None;
    }
    command.args.iter_mut().zip(&theirs.args).try_for_each(|(mine, theirs)| move_buffer(mine, theirs))?;
    move_some(&mut command.scratch, &theirs.scratch)?;
    move_some(&mut command.worker_scratch, &theirs.worker_scratch)?;
    move_some(&mut command.guard, &theirs.guard)
}

fn move_some(mine: &mut Option<BufferRef>, theirs: &Option<BufferRef>) -> Option<()> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => move_buffer(mine, theirs),
        (None, _) => Some(()),
        (Some(_), None) => None,
    }
}

fn move_buffer(mine: &mut BufferRef, theirs: &BufferRef) -> Option<()> {
    let fits = mine.place == theirs.place && mine.bytes <= theirs.bytes;
    if fits && matches!(mine.place, Place::Arena(_)) {
        mine.offset = theirs.offset;
    }
    fits.then_some(())
}

/// What a device takes, with the arena of another plan.
fn with_arena(mine: &DevicePlan, theirs: &DevicePlan) -> DevicePlan {
    let mut device = DevicePlan { arena: theirs.arena, packed: theirs.packed, live: mine.live.min(theirs.packed), ..mine.clone() };
    let mut less = mine.arena.0.saturating_sub(theirs.arena.0);
    device.peak.activations += Bytes(theirs.arena.0.saturating_sub(mine.arena.0));
    for part in [&mut device.peak.activations, &mut device.peak.workspace, &mut device.peak.transfer] {
        let taken = part.0.min(less);
        *part = *part - Bytes(taken);
        less -= taken;
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_moves_where_a_larger_one_is() {
        let at = |place, offset, bytes| BufferRef { place, offset, bytes };
        let mut mine = at(Place::Arena(0), 4096, 64);
        assert_eq!(move_buffer(&mut mine, &at(Place::Arena(0), 128, 256)), Some(()));
        assert_eq!(mine, at(Place::Arena(0), 128, 64));
        assert_eq!(move_buffer(&mut mine, &at(Place::Arena(0), 0, 32)), None, "smaller");
        assert_eq!(move_buffer(&mut mine, &at(Place::Feed(0), 0, 256)), None, "elsewhere");
        assert_eq!(mine, at(Place::Arena(0), 128, 64));
    }
}
