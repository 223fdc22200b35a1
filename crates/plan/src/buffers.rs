//! The buffers of the arenas, for pictures and reports: where each lies, from which command to which, and what it holds meanwhile.

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_memory::layout::Buffer;

use crate::lir::{Lir, ValueId, WorkId};
use crate::live::{Arena, Lane, Slot};
use crate::pack::Addresses;
use crate::plan::DeviceId;

/// A command: its queue, and its number there.
pub type CommandAt = (u32, u32);

/// Bytes of a device's arena that are taken together, from one command to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// The device.
    pub device: DeviceId,
    /// Where it begins in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The same with the gap that the alignment of the next buffer leaves: these add up to [`crate::DevicePlan::live`].
    pub slot: u64,
    /// The first and the last command of the device's queue during which it is taken. Of a device without commands, 0.
    pub commands: (u32, u32),
    /// The contents.
    pub holds: Holds,
}

/// The contents of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Values, one written over the other.
    Values(Vec<HeldValue>),
    /// Scratch of a command; of a loop, the values of its body.
    Scratch(CommandAt),
}

/// A value in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldValue {
    /// The node that it comes from.
    pub node: NodeId,
    /// Whether it is a copy of another device's value.
    pub is_copy: bool,
    /// The command that writes it.
    pub writer: CommandAt,
    /// The commands that read it.
    pub readers: Vec<CommandAt>,
}

/// Where the commands of works are.
pub(crate) struct Commands<'a> {
    pub slots: &'a IdVec<WorkId, Slot>,
    /// For each work of each queue, how many commands there are when it is over.
    pub over: &'a [Vec<u32>],
}

impl Commands<'_> {
    /// The first command of a work.
    fn first(&self, (queue, position): Slot) -> u32 {
        position.checked_sub(1).and_then(|before| self.over.get(queue)?.get(before).copied()).unwrap_or(0)
    }

    /// The last command of a work.
    fn last(&self, (queue, position): Slot) -> u32 {
        self.over.get(queue).and_then(|over| over.get(position)).map_or(0, |over| over.saturating_sub(1))
    }

    fn of(&self, work: WorkId) -> CommandAt {
        let slot = self.slots[work];
        (slot.0 as u32, self.first(slot))
    }
}

/// The buffers of the arena of a queue's device, by the command that they begin with; those of more bytes first.
pub(crate) fn buffers(
    lir: &Lir,
    (queue, lane): (usize, &Lane),
    arena: &Arena,
    addresses: &Addresses,
    spec: &DeviceSpec,
    commands: &Commands<'_>,
) -> Vec<PlanBuffer> {
    let of = |index: usize, holds: Holds| {
        let Buffer { first, last, bytes, .. } = arena.buffers[index];
        let commands = (commands.first((queue, first as usize)), commands.last((queue, last as usize)));
        PlanBuffer { device: lane.device, offset: addresses.buffers[index], bytes, slot: spec.slot(Bytes(bytes)).0, commands, holds }
    };
    let mut held: Vec<Vec<HeldValue>> = vec![Vec::new(); arena.value_buffers];
    let definitions = lir.definitions();
    let readers = readers(lir);
    for (value, buffer) in &arena.values {
        let Some(writer) = definitions[*value] else { continue };
        let (node, is_copy) = (lir.values[*value].node, lir.values[*value].is_copy);
        let readers = readers[*value].iter().map(|work| commands.of(*work)).collect();
        held[*buffer].push(HeldValue { node, is_copy, writer: commands.of(writer), readers });
    }
    let values = held.into_iter().enumerate().map(|(index, held)| of(index, Holds::Values(held)));
    let scratch = lane.works.iter().zip(&arena.scratch);
    let scratch = scratch.filter_map(|(work, buffer)| Some(of((*buffer)?, Holds::Scratch(commands.of(*work)))));
    let mut buffers: Vec<PlanBuffer> = values.chain(scratch).collect();
    buffers.sort_by_key(|buffer| (buffer.commands.0, std::cmp::Reverse(buffer.bytes), buffer.offset));
    buffers
}

/// By value: the works of the region that read it, in their order.
fn readers(lir: &Lir) -> IdVec<ValueId, Vec<WorkId>> {
    let mut readers = IdVec::filled(Vec::new(), lir.values.len());
    for id in &lir.region().works {
        for value in lir.works[*id].reads_once() {
            readers[value].push(*id);
        }
    }
    readers
}

#[cfg(test)]
mod tests {
    use plimsoll_graph::id::Id;

    use super::*;

    #[test]
    fn commands_of_works_follow_from_their_counts() {
        let slots: IdVec<WorkId, Slot> = [(0, 0), (0, 1), (0, 2)].into_iter().collect();
        // The second work has three commands, as loops have.
        let over = [vec![1, 4, 5]];
        let commands = Commands { slots: &slots, over: &over };
        let ends = |position| (commands.first((0, position)), commands.last((0, position)));
        assert_eq!([ends(0), ends(1), ends(2)], [(0, 0), (1, 3), (4, 4)]);
        assert_eq!(commands.of(WorkId::from_index(2)), (0, 4));
        // A queue without works.
        assert_eq!((commands.first((1, 0)), commands.last((1, 0))), (0, 0));
    }
}
